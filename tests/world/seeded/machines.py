"""Machines with clocks that drift, a network between them, and a database beside it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import httpx

from leasehold_testing.memory_store import MemoryStore
from scheduler.errors import StoreError, StoreUnavailableError
from seeded.virtual_time import RUNNING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from scheduler.store.protocol import Entry, Head
    from seeded.virtual_time import Process, VirtualLoop

#: Of the world's beginning on a clock that is right.
EPOCH_S = 1.8e9
#: How long a process stands still that does so within a commit.
FROZEN_S = 5.0


class Machine:
    """A machine's name and clocks.

    Args:
        loop: has the true time.
        name: also its address.
        rate: seconds that its clocks count in a second.
        offset_s: by which its wall clock is ahead at the beginning.
        booted_s: what its steady clock shows at the beginning.
    """

    def __init__(
        self, loop: VirtualLoop, name: str, *, rate: float, offset_s: float, booted_s: float
    ) -> None:
        self.loop, self.name, self.rate = loop, name, rate
        self.offset_s, self.booted_s = offset_s, booted_s

    def steady_s(self) -> float:
        """Return the steady clock, which cannot be set."""
        return self.booted_s + self.rate * self.loop.now_s

    def wall_s(self) -> float:
        """Return the wall clock."""
        return EPOCH_S + self.offset_s + self.rate * self.loop.now_s

    def true_of_steady(self, steady_s: float) -> float:
        """Return when the steady clock shows a time."""
        return (steady_s - self.booted_s) / self.rate


class Network:
    """Carries requests between machines: late, never, twice, or out of order.

    Args:
        loop: the time.
        chance: decides about each message.
        lose: part of the messages that are lost.
        late: part of them that take seconds.
        repeat: part of the requests that arrive twice.
        record: called with each message that arrives.

    Attributes:
        landed_s: when the last message arrives that takes seconds.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        chance: random.Random,
        *,
        lose: float,
        late: float,
        repeat: float,
        record: Callable[..., None],
    ) -> None:
        self._loop, self._chance, self.record = loop, chance, record
        self.lose, self.late, self.repeat = lose, late, repeat
        self.landed_s = 0.0
        #: address -> (process, the server there).
        self.servers: dict[str, tuple[Process, Any]] = {}
        #: pairs of machines between which nothing passes.
        self.cut: set[frozenset[str]] = set()

    def delay_s(self) -> float:
        """Return how long a message is on its way."""
        if self._chance.random() < self.late:
            delay_s = self._chance.uniform(0.2, 6.0)
            self.landed_s = max(self.landed_s, self._loop.now_s + delay_s)
            return delay_s
        return 0.001 + self._chance.expovariate(200.0)

    def is_cut(self, one: str, other: str) -> bool:
        """Return whether nothing passes between two machines."""
        return frozenset((one, other)) in self.cut

    def _passes(self, one: str, other: str) -> bool:
        return not self.is_cut(one, other) and self._chance.random() >= self.lose

    async def ask(self, source: str, target: str, request: Any) -> Any:
        """Send a request and return its answer; waits without end if one of them is lost.

        Raises:
            ConnectionResetError: no process listens there, or it died.
        """
        answered: asyncio.Future[Any] = self._loop.create_future()

        def answer(value: Any, error: Exception | None) -> None:
            if self._passes(source, target):
                self._loop.outside(self.delay_s(), arrive, value, error)

        def arrive(value: Any, error: Exception | None) -> None:
            if answered.done() or self.is_cut(source, target):
                return
            if error is not None:
                answered.set_exception(error)
            else:
                answered.set_result(value)

        def deliver() -> None:
            if self.is_cut(source, target):
                return
            process, serve = self.servers.get(target, (None, None))
            self.record("request", source, target, _plain(request))
            if process is None or not process.alive:
                answer(None, ConnectionResetError(f"nobody listens at {target}"))
                return
            process.on_death.append(died := lambda: answer(None, ConnectionResetError("it died")))

            async def work() -> None:
                try:
                    value = await serve(source, request)
                except Exception as error:  # noqa: BLE001 - a fault of the tested code
                    self._loop.failures.append(f"{target} fails at a request: {error!r}")
                    return
                with contextlib.suppress(ValueError):
                    process.on_death.remove(died)
                self.record("answer", target, source, _plain(value))
                answer(value, None)

            process.spawn(work())

        copies = 2 if self._chance.random() < self.repeat else 1
        for _ in range(copies):
            if self._passes(source, target):
                self._loop.outside(self.delay_s(), deliver)
        return await answered


def _plain(value: Any) -> object:
    """Return what of a message goes into the record."""
    if isinstance(value, httpx.Request):
        return value.method, str(value.url), value.content
    if isinstance(value, httpx.Response):
        return value.status_code, value.content
    if callable(value):
        return value.__qualname__
    return value if isinstance(value, bytes) else repr(value)


class Transport(httpx.AsyncBaseTransport):
    """Carries an agent's HTTP over the network, with its own timeouts.

    Args:
        network: the network.
        source: the agent's machine.
    """

    def __init__(self, network: Network, source: str) -> None:
        self._network, self._source = network, source

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request.

        Raises:
            httpx.TimeoutException: no answer came in time.
            httpx.ConnectError: no process listens there, or it died meanwhile.
        """
        target = request.url.host
        times = request.extensions["timeout"]
        await request.aread()
        if self._network.is_cut(self._source, target):
            await asyncio.sleep(times["connect"])
            raise httpx.ConnectTimeout("the machine does not answer", request=request)
        try:
            async with asyncio.timeout(times["read"]):
                answer = await self._network.ask(self._source, target, request)
        except TimeoutError:
            raise httpx.ReadTimeout("no answer came", request=request) from None
        except ConnectionResetError as error:
            raise httpx.ConnectError(str(error), request=request) from error
        return httpx.Response(**answer)


class Database:
    """The database: it keeps each committed entry.

    Args:
        record: called with each commit.
        watch: called with an entry after it was committed.
        loading: called with the machine of a scheduler that loads its state.
        server_s: the clock of its own machine, which is right.

    Attributes:
        store: its content.
        away: machines that cannot reach it.
    """

    def __init__(
        self,
        record: Callable[..., None],
        watch: Callable[[Entry], None],
        loading: Callable[[str], None],
        server_s: Callable[[], float],
    ) -> None:
        self.store = MemoryStore()
        self.away: set[str] = set()
        #: journal entry -> token of the leader that has committed it.
        self.owners: dict[int, int] = {}
        #: machine -> faults of its next commits, the next one last.
        self.planned: dict[str, list[str]] = {}
        self._record, self._watch, self.loading = record, watch, loading
        self.server_s = server_s

    def put(self, store: MemoryStore) -> None:
        """Put another store in place, that is an older copy."""
        self.store = store
        last = store.head().sequence
        self.owners = {number: token for number, token in self.owners.items() if number <= last}

    def line(self, machine: str) -> Line:
        """Return the store as a machine sees it."""
        return Line(self, machine)

    def commit(self, machine: str, entry: Entry, token: int) -> Head:
        """Commit for a machine, or fail as planned."""
        planned = self.planned.get(machine)
        fault = planned.pop() if planned else ""
        if fault == "lost before":
            raise StoreUnavailableError("the connection to the database is lost")
        if fault == "refused":
            raise StoreError("a trigger of the database refuses the write: sprung")
        if fault == "death before":
            _die()
        if fault == "freeze before":
            self._freeze()
            raise StoreUnavailableError("the connection to the database is lost")
        head = self.store.commit(entry, token=token)
        self._record("commit", machine, entry.sequence, repr(entry))
        self._watch(entry)
        self.owners[entry.sequence] = token
        if fault == "death after":
            _die()
        if fault == "freeze after":
            self._freeze()
            raise StoreUnavailableError("the connection to the database is lost")
        if fault == "lost after":
            raise StoreUnavailableError("the connection to the database is lost")
        return head

    def _freeze(self) -> None:
        """Let the process stand still until another one has had the time to take over."""
        process = RUNNING.get()
        assert process is not None
        process.freeze()
        process.loop.outside(FROZEN_S, process.thaw)


def _die() -> None:
    process = RUNNING.get()
    assert process is not None
    process.kill()


class Line:
    """The contract of ``Store`` over the way from a machine to the database."""

    def __init__(self, database: Database, machine: str) -> None:
        self._database, self._machine = database, machine

    def __getattr__(self, name: str) -> Any:
        """Return a method of the store, which fails while the database is away."""
        if name == "close":
            return lambda: None
        owner = self._database if name == "server_s" else self._database.store
        method = getattr(owner, name)

        def call(*args: Any, **named: Any) -> Any:
            self._check()
            if name == "load":
                self._database.loading(self._machine)
            return method(*args, **named)

        return call

    def commit(self, entry: Entry, *, token: int) -> Head:
        """Append an entry, or fail as planned."""
        self._check()
        return self._database.commit(self._machine, entry, token)

    def _check(self) -> None:
        if self._machine in self._database.away:
            raise StoreUnavailableError("the database is away")
