"""Accepts connections with or without TLS, within the limits."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from leasehold.daemon.http.connections import plain_address

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from leasehold.daemon.http.connections import Keeper
    from leasehold.daemon.http.protocol import GuardedProtocol

_log = logging.getLogger("leasehold.daemon")
#: Connections that are accepted at a time, before other work has its turn.
_BURST = 16
#: Errors that mean that the process or the machine has no more descriptors or memory.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_S = 0.5
#: Time that the other side of TLS may take for its shutdown.
_TLS_SHUTDOWN_S = 5.0


class Listener:
    """Accepts connections; uvicorn closes it like one of its servers.

    asyncio's own servers accept every connection, and count it only after the TLS handshake. A
    client that never completes the handshake could hold every descriptor.

    Args:
        bound: a listening, non-blocking socket.
        make: builds the protocol for a connection from an address.
        keeper: of the connections.
        tls: certificates, or None.
    """

    def __init__(
        self,
        bound: socket.socket,
        make: Callable[[str], GuardedProtocol],
        keeper: Keeper,
        *,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._bound, self._make, self._keeper = bound, make, keeper
        self._loop = asyncio.get_running_loop()
        self._options: dict[str, Any] = {}
        if tls is not None:
            self._options = {
                "ssl": tls,
                "ssl_handshake_timeout": keeper.limits.header_timeout_s,
                "ssl_shutdown_timeout": _TLS_SHUTDOWN_S,
            }
        self._accepting: set[asyncio.Task[None]] = set()
        self._pausing: asyncio.TimerHandle | None = None
        self._resume()

    def close(self) -> None:
        """Accept no more connections."""
        self._loop.remove_reader(self._bound)
        if self._pausing is not None:
            self._pausing.cancel()
        for task in self._accepting:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until no connection is being accepted."""
        await asyncio.gather(*self._accepting, return_exceptions=True)

    def _resume(self) -> None:
        self._loop.add_reader(self._bound, self._take_some)

    def _take_some(self) -> None:
        for _ in range(_BURST):
            try:
                connection, address = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    _log.warning("a connection could not be accepted: %s", error)
                    return
                self._pause(error)
                return
            self._take(connection, plain_address(str(address[0])))

    def _take(self, connection: socket.socket, address: str) -> None:
        if not self._keeper.admit(address):
            connection.close()
            return
        connection.setblocking(False)
        protocol = self._make(address)
        self._keeper.add(protocol)
        protocol.accepting = task = self._loop.create_task(self._connect(connection, protocol))
        self._accepting.add(task)
        task.add_done_callback(partial(self._connected, connection, protocol))

    async def _connect(self, connection: socket.socket, protocol: GuardedProtocol) -> None:
        # If the TLS handshake fails or takes too long, the protocol is not called.
        with contextlib.suppress(OSError):
            await self._loop.connect_accepted_socket(lambda: protocol, connection, **self._options)

    def _connected(
        self, connection: socket.socket, protocol: GuardedProtocol, task: asyncio.Task[None]
    ) -> None:
        """Clean up a connection that was not made, even if its task never started."""
        self._accepting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a connection could not be accepted: %s", error)
        if not protocol.was_made:
            self._keeper.remove(protocol)
            connection.close()

    def _pause(self, error: OSError) -> None:
        """Drop a connection and retry soon; retrying at once would be a busy loop."""
        _log.warning("no connection can be accepted: %s", error)
        self._keeper.make_room()
        self._loop.remove_reader(self._bound)
        self._pausing = self._loop.call_later(_PAUSE_S, self._resume)
