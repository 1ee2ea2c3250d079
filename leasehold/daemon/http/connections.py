"""Connection limits: counts open connections and closes some when a limit is reached.

A connection is a *stranger's* until one of its requests is authenticated. Strangers' connections
are counted by address. Authenticated ones are not, so a thousand agents may share one address.
"""

from __future__ import annotations

import ipaddress
import logging
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leasehold.config.settings import ServerSection

_log = logging.getLogger("leasehold.daemon")

#: Descriptors that the process asks for, up to its hard limit.
WANTED_DESCRIPTORS = 65_536
#: Connections at most, even with more descriptors: each takes some 30 kB.
MOST_CONNECTIONS = 10_000
#: Descriptors reserved for the store, the solver and the files of a turn.
RESERVE = 128
#: Fewest connections that a daemon can work with.
LEAST_CONNECTIONS = 8
#: One in this many connections is reserved for agents and probes.
AGENTS_PART = 4
#: Strangers of one address may hold one in this many connections.
ADDRESS_PART = 4
#: Time that a new connection has before it can be dropped in favour of a newer one.
PATIENCE_S = 2.0
#: Time between two lines of the log about connections that were cut off.
TELL_EVERY_S = 60.0


class HeldConnection(Protocol):
    """A connection, as its ``Keeper`` uses it."""

    address: str

    def drop(self) -> None:
        """Close it at once."""

    def time_out(self) -> None:
        """Close it because its request is not completed in time, and answer so if possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds on connections.

    Attributes:
        most: of all.
        per_address: of strangers of one address.
        for_agents: the part of ``most`` that is reserved for agents.
        header_timeout_s: from a request's first byte, or the start of the connection, to the end of
            the request's head.
        body_timeout_s: from there to the end of its body.
        idle_timeout_s: from the end of an answer to the next request.
    """

    most: int
    per_address: int
    for_agents: int
    header_timeout_s: float
    body_timeout_s: float
    idle_timeout_s: float


def more_descriptors() -> None:
    """Raise this process's limit of descriptors as far as allowed; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, WANTED_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def room_for_connections() -> int:
    """Return how many connections leave enough descriptors for everything else."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    try:
        taken = sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        taken = RESERVE
    room = limit - taken - min(RESERVE, limit // 4)
    if room < LEAST_CONNECTIONS:
        _log.warning(
            "only %d descriptors may be open, and %d are; raise the limit (ulimit -n)", limit, taken
        )
    return max(LEAST_CONNECTIONS, min(room, MOST_CONNECTIONS))


def limits_of(settings: ServerSection, *, room: int, idle_timeout_s: float) -> ConnectionLimits:
    """Return the limits of a configuration.

    Args:
        settings: of the server.
        room: number of connections for which there are descriptors.
        idle_timeout_s: see ``ConnectionLimits``.
    """
    if settings.forward:
        room = max(LEAST_CONNECTIONS, room // 2)  # a forwarded request takes a second one
    most = room if settings.connections is None else min(settings.connections, room)
    if settings.connections is not None and most < settings.connections:
        _log.warning(
            "server.connections is %d, and there are descriptors for %d; raise the limit "
            "(ulimit -n)",
            settings.connections,
            most,
        )
    own = settings.connections_per_address
    return ConnectionLimits(
        most=most,
        per_address=max(1, most // ADDRESS_PART) if own is None else min(own, most),
        for_agents=most // AGENTS_PART,
        header_timeout_s=settings.header_timeout_s,
        body_timeout_s=settings.body_timeout_s,
        idle_timeout_s=idle_timeout_s,
    )


def plain_address(address: str) -> str:
    """Return a client's address; a listener for both families shows IPv4 as ``::ffff:1.2.3.4``."""
    mapped = address.lower().removeprefix("::ffff:")
    return mapped if mapped != address and "." in mapped else address


def origin_of(address: str) -> str:
    """Return the key that counts as one address: for IPv6, its network of 64 bits."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


class Keeper:
    """Keeps the connections within their limits.

    A connection waits for the rest of a request (*unfinished*), for the next one (*idle*), or for
    its answer. If there is no room, connections that wait only for their caller are closed.

    Args:
        limits: of the connections.
        monotonic: seconds on a clock that never runs backwards.
        is_proxy: whether an address belongs to a proxy, which has many callers.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        *,
        monotonic: Callable[[], float],
        is_proxy: Callable[[str], bool] = lambda _address: False,
    ) -> None:
        self.limits = limits
        self._monotonic = monotonic
        self._is_proxy = is_proxy
        self._all: set[HeldConnection] = set()
        #: origin -> its unauthenticated connections, oldest first, with their start.
        self._strangers: dict[str, dict[HeldConnection, float]] = {}
        #: connection -> when the rest of its request is due.
        self._unfinished: dict[HeldConnection, float] = {}
        #: connection -> when the next request is due; the longest idle comes first.
        self._idle: dict[HeldConnection, float] = {}
        #: connections that serve a caller other than an agent.
        self._people: set[HeldConnection] = set()
        self._cut, self._refused = 0, 0
        self._told_s = -TELL_EVERY_S

    def __len__(self) -> int:
        """Return how many connections there are."""
        return len(self._all)

    @property
    def is_crowded(self) -> bool:
        """Whether all connections not reserved for agents are taken."""
        return len(self._people) >= self.limits.most - self.limits.for_agents

    def admit(self, address: str) -> bool:
        """Make room for a connection of an address if needed; return whether there is room."""
        mine = self._strangers.get(origin_of(address), {})
        too_many = len(mine) >= self.limits.per_address and not self._is_proxy(address)
        room = not too_many or self._drop(self._dispensable(mine))
        if room and len(self._all) >= self.limits.most:
            room = self._drop(self._anybody())
        self._refused += not room
        return room

    def add(self, one: HeldConnection) -> None:
        """Add a connection, and wait for its first request."""
        self._all.add(one)
        self._strangers.setdefault(origin_of(one.address), {})[one] = self._monotonic()
        self.await_head(one)

    def remove(self, one: HeldConnection) -> None:
        """Forget a connection that has ended."""
        self._all.discard(one)
        self._people.discard(one)
        self._unfinished.pop(one, None)
        self._idle.pop(one, None)
        self.know(one)

    def know(self, one: HeldConnection) -> None:
        """Record that a connection's caller is authenticated."""
        origin = origin_of(one.address)
        mine = self._strangers.get(origin)
        if mine is not None and mine.pop(one, None) is not None and not mine:
            del self._strangers[origin]

    def await_head(self, one: HeldConnection) -> None:
        """Record that a request has begun."""
        self._idle.pop(one, None)
        self._unfinished[one] = self._monotonic() + self.limits.header_timeout_s

    def await_body(self, one: HeldConnection, *, agent: bool) -> None:
        """Record that a request's head is complete."""
        self._unfinished[one] = self._monotonic() + self.limits.body_timeout_s
        if not agent:
            self._people.add(one)

    def has_all(self, one: HeldConnection) -> None:
        """Record that a request is complete."""
        self._unfinished.pop(one, None)

    def has_answer(self, one: HeldConnection) -> None:
        """Record that an answer is complete, and wait for the next request."""
        self._people.discard(one)
        if one in self._all and one not in self._unfinished:
            self._idle[one] = self._monotonic() + self.limits.idle_timeout_s

    def sweep(self) -> None:
        """Close overdue connections; call this about every second."""
        now_s = self._monotonic()
        for one in [one for one, due_s in self._unfinished.items() if due_s <= now_s]:
            self._cut += 1
            del self._unfinished[one]  # counts until it is closed
            one.time_out()
        for one in list(self._overdue(now_s)):
            self.remove(one)
            one.drop()
        self._tell(now_s)

    def make_room(self) -> None:
        """Close a connection to free a descriptor, if the process has no more."""
        self._drop(self._anybody())

    def _overdue(self, now_s: float) -> Iterator[HeldConnection]:
        for one, due_s in self._idle.items():
            if due_s > now_s:
                return
            yield one

    def _dispensable(self, mine: dict[HeldConnection, float]) -> HeldConnection | None:
        """Return a stranger's connection to drop: an idle one, or one that has had enough time."""
        before_s = self._monotonic() - PATIENCE_S
        waiting = (
            one
            for one, since_s in mine.items()
            if one in self._idle or (one in self._unfinished and since_s <= before_s)
        )
        return next(waiting, None)

    def _anybody(self) -> HeldConnection | None:
        """Return the connection to drop if all is full: an idle one, else the busiest address's."""
        if self._idle:
            return next(iter(self._idle))
        by_number = sorted(self._strangers.values(), key=len, reverse=True)
        found = (self._dispensable(mine) for mine in by_number)
        return next((one for one in found if one is not None), None)

    def _drop(self, one: HeldConnection | None) -> bool:
        if one is None:
            return False
        if one in self._unfinished:
            self._cut += 1
        self.remove(one)
        one.drop()
        return True

    def _tell(self, now_s: float) -> None:
        if not (self._cut or self._refused) or now_s - self._told_s < TELL_EVERY_S:
            return
        most = max(self._strangers.items(), key=lambda item: len(item[1]), default=("", {}))
        _log.warning(
            "%d requests that did not come to an end were cut off, and %d connections refused; "
            "there are %d of at most %d%s",
            self._cut,
            self._refused,
            len(self._all),
            self.limits.most,
            f", {len(most[1])} of them strangers' at {most[0]}" if most[1] else "",
        )
        self._cut, self._refused, self._told_s = 0, 0, now_s
