"""Connections of jobs to the agent: bounded for each stranger and altogether.

A connection is a *stranger's* until a line on it has the secret of a lease; then it is the lease's.
If a peer has too many strangers, its oldest one is cut off. If there are too many connections
altogether, the oldest one of the lease or peer with the most is cut off. So a peer that takes all
connections loses first, and a well-behaved program identifies itself with its first line.
"""

from __future__ import annotations

import resource
import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

#: Strangers of one peer, which is a user of this machine or an address.
MOST_STRANGERS: Final = 128
#: Connections altogether, and descriptors that are kept for the agent's own work.
MOST_CONNECTIONS: Final = 16_384
OWN_DESCRIPTORS: Final = 512
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid


def room_for_connections() -> int:
    """Return the number of connections that leaves descriptors for the agent's own work."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(min(limit - OWN_DESCRIPTORS, MOST_CONNECTIONS), limit // 2)


def peer_of(writer: asyncio.StreamWriter) -> str:
    """Return the peer of a connection: the user behind a Unix socket, or the address."""
    there = writer.get_extra_info("socket")
    if there is not None and there.family == socket.AF_UNIX:
        told = there.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return f"user {_CREDENTIALS.unpack(told)[1]}"
    name = writer.get_extra_info("peername")
    return str(name[0]) if name else ""


class Peers:
    """The open connections.

    Args:
        most: limit of all connections.
        most_strangers: limit of strangers of one peer.
    """

    def __init__(self, most: int, most_strangers: int = MOST_STRANGERS) -> None:
        self._most, self._most_strangers = most, most_strangers
        self._group_of: dict[asyncio.StreamWriter, str | int] = {}
        #: peer, or lease id -> its connections, oldest first.
        self._groups: dict[str | int, dict[asyncio.StreamWriter, None]] = {}

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._group_of)

    @property
    def all(self) -> tuple[asyncio.StreamWriter, ...]:
        """Every connection."""
        return tuple(self._group_of)

    def add(self, writer: asyncio.StreamWriter, peer: str) -> None:
        """Count a new connection; another one is cut off if there is no room for it."""
        strangers = self._groups.get(peer, {})
        if len(strangers) >= self._most_strangers:
            self._cut_oldest(strangers)
        elif len(self) >= self._most:
            self._cut_oldest(max(self._groups.values(), key=len))
        self._put(writer, peer)

    def know(self, writer: asyncio.StreamWriter, lease_id: int) -> None:
        """Note the lease of a connection."""
        if self._group_of.get(writer, lease_id) != lease_id:
            self.remove(writer)
            self._put(writer, lease_id)

    def remove(self, writer: asyncio.StreamWriter) -> None:
        """Remove a connection that has ended."""
        group = self._group_of.pop(writer, None)
        if group is not None:
            del self._groups[group][writer]
            if not self._groups[group]:
                del self._groups[group]

    def _put(self, writer: asyncio.StreamWriter, group: str | int) -> None:
        self._group_of[writer] = group
        self._groups.setdefault(group, {})[writer] = None

    def _cut_oldest(self, connections: dict[asyncio.StreamWriter, None]) -> None:
        oldest = next(iter(connections))
        self.remove(oldest)
        oldest.transport.abort()
