"""Jobs as models: they step, checkpoint, obey or ignore notices, fail, hang, and leave evidence.

Their state is a ledger of the steps that count, kept on storage that all nodes share, as in the
soak test (``tests/chaos/job.py``). A process records each action at once; the oracle
reads nothing else of it.
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evidence import Line

from scheduler.protocol.desired import LEFT_EARLY
from seeded.virtual_time import Process

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from scheduler.protocol.desired import DesiredLease
    from seeded.virtual_time import VirtualLoop

#: How long a rank waits for the others before it gives up.
MEET_S = 60.0
#: From SIGKILL to the end of a process at most.
KILL_MOST_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Mishap:
    """Something that a job does once.

    Attributes:
        step: before which step.
        kind: ``fail``, ``oom`` or ``hang``.
        for_s: how long it hangs.
    """

    step: int
    kind: str
    for_s: float = 0.0


@dataclass(kw_only=True)
class Model:
    """The truth about a job.

    Attributes:
        name: its id.
        steps: how many it does.
        step_s: time of a step on the slowest worker type.
        long_every: every so many steps one takes ``long_s``; 0: none does.
        long_s: time of such a step.
        save_s: time of a checkpoint.
        save_every: steps between two checkpoints.
        heeds: obeys ``notice``, ``sigterm`` (only its checkpoints are left) or ``nothing``.
        counted: whether it reports its steps.
        mishaps: the faults still to come.
        checkpoints: steps -> ledger of (step, token); on storage that outlives all.
        lines: what its processes did, in order.
        failures: how often it has failed by itself, by a rank without a notice to leave.
    """

    name: str
    steps: int
    step_s: float
    long_every: int = 0
    long_s: float = 0.0
    save_s: float = 0.05
    save_every: int = 5
    heeds: str = "notice"
    counted: bool = True
    mishaps: list[Mishap] = field(default_factory=list)
    checkpoints: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    failures: int = 0
    #: lease id -> its gang.
    gangs: dict[int, Gang] = field(default_factory=dict)

    @property
    def ledger(self) -> tuple[tuple[int, int], ...]:
        """The last checkpoint."""
        return self.checkpoints[max(self.checkpoints)] if self.checkpoints else ()


class Gang:
    """The processes of a lease: none goes on before all have done the same step."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.broken = False
        self._arrived: list[int] = []
        self._gate: asyncio.Future[int] | None = None

    async def meet(self, steps: int) -> int:
        """Wait for all others; returns the steps of the one that has done least.

        Raises:
            ConnectionError: one of them is gone.
        """
        if self.broken:
            raise ConnectionError("a process of the gang is gone")
        if self.size == 1:
            return steps
        self._gate = self._gate or asyncio.get_running_loop().create_future()
        gate = self._gate
        self._arrived.append(steps)
        if len(self._arrived) == self.size:
            least, self._arrived, self._gate = min(self._arrived), [], None
            gate.set_result(least)
        async with asyncio.timeout(MEET_S):
            least = await asyncio.shield(gate)
        if least < 0:
            raise ConnectionError("a process of the gang is gone")
        return least

    def leave(self) -> None:
        """Note that a process of it is gone."""
        self.broken = True
        if self._gate is not None and not self._gate.done():
            self._gate.set_result(-1)


class JobProcess:
    """One process of a job.

    Args:
        loop: the time.
        chance: of its machine.
        model: the job.
        lease: that it runs under, as its node knows it.
        position: among the node's processes of the lease.
        node: its node.
        pid: identifies it.
        speed: of its worker.
        record: called with each line.
        ended: called once it is gone.

    Attributes:
        live: steps done, as it reports.
        done: steps checkpointed, likewise.
        code: its exit code; None while it lives.
        oom: whether it ran out of memory.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        chance: random.Random,
        model: Model,
        lease: DesiredLease,
        position: int,
        *,
        node: str,
        pid: int,
        speed: float,
        record: Callable[..., None],
        ended: Callable[[], None],
    ) -> None:
        self._loop, self._chance, self._model, self._lease = loop, chance, model, lease
        self.job, self.token, self.attempt = model.name, lease.token, lease.attempt
        self.rank = lease.rank + position
        self._worker, self._node, self.pid = lease.workers[position], node, pid
        self._speed = speed
        self._record, self._ended = record, ended
        self.live = self.done = 0
        self.code: int | None = None
        self.oom = False
        self._asked = False
        self._news: asyncio.Future[None] | None = None
        self._gang = model.gangs.setdefault(lease.lease_id, Gang(lease.world_size))
        self._process = Process(loop, f"{model.name}#{pid}")
        self._process.spawn(self._run())

    @property
    def lease_id(self) -> int:
        """Of its lease."""
        return self._lease.lease_id

    @property
    def nonce(self) -> str:
        """As above."""
        return self._lease.nonce

    # -- what others do to it -------------------------------------------------------------------

    def notice(self, on: bool) -> None:
        """Ask it to leave, or let it stay."""
        if self._model.heeds == "notice":
            self._ask(on)

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self.code is not None:
            return
        if self._model.heeds == "notice":
            self._ask(True)
        elif self._model.heeds == "sigterm":
            self._end(-signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL; the kernel takes a moment."""
        self._loop.outside(self._chance.uniform(0.0, KILL_MOST_S), self.vanish)

    def vanish(self) -> None:
        """End at once."""
        if self.code is None:
            self._end(-signal.SIGKILL)

    def fail(self) -> None:
        """End as a program does that cannot use its machine."""
        if self.code is None:
            self._end(1)

    def _ask(self, on: bool) -> None:
        self._asked = on
        if on and self._news is not None and not self._news.done():
            self._news.set_result(None)

    # -- what it does ---------------------------------------------------------------------------

    def _write(self, kind: str, step: int) -> None:
        line = Line(
            at_s=self._loop.now_s,
            kind=kind,
            step=step,
            node=self._node,
            worker=self._worker,
            rank=self.rank,
            lease=self._lease.lease_id,
            attempt=self._lease.attempt,
            token=self._lease.token,
            pid=self.pid,
        )
        self._model.lines.append(line)
        self._record("job", self._model.name, line.kind, line.step, line.lease, line.rank)

    async def _run(self) -> None:
        self._write("start", 0)
        try:
            code = await self._work()
        except (ConnectionError, TimeoutError):
            code = 1
        self._end(code)

    async def _work(self) -> int:
        model, token = self._model, self._lease.token
        ledger = list(model.ledger)
        del ledger[await self._gang.meet(len(ledger)) :]
        if ledger:
            self._write("load", len(ledger))
        self._tell(len(ledger), len(ledger))
        while len(ledger) < model.steps:
            if self._asked:
                if self.rank == 0 and len(ledger) > len(model.ledger):
                    await self._save(ledger)
                return self._exit(LEFT_EARLY, len(ledger))
            code = await self._stumble(len(ledger))
            if code is not None:
                return code
            await self._step(len(ledger))
            await self._gang.meet(len(ledger))
            ledger.append((len(ledger) + 1, token))
            self._write("step", len(ledger))
            self._tell(len(ledger), self.done)
            if len(ledger) % model.save_every == 0 or len(ledger) == model.steps:
                if self.rank == 0:
                    await self._save(ledger)
                await self._gang.meet(len(ledger))
        return self._exit(0, len(ledger))

    def _exit(self, code: int, steps: int) -> int:
        self._write("exit", steps)
        return code

    async def _step(self, steps: int) -> None:
        model = self._model
        long = model.long_every and steps % model.long_every == model.long_every - 1
        await asyncio.sleep(model.long_s if long else model.step_s / self._speed)

    async def _stumble(self, steps: int) -> int | None:
        """Have a mishap, if one is due; returns the exit code if it ends by it."""
        model = self._model
        due = [m for m in model.mishaps if m.step <= steps] if self.rank == 0 else []
        if not due:
            return None
        model.mishaps.remove(due[0])
        if due[0].kind == "hang":
            self._news = self._loop.create_future()
            await asyncio.wait({self._news}, timeout=due[0].for_s)
            self._news = None
            return None
        self.oom = due[0].kind == "oom"
        return 1

    async def _save(self, ledger: list[tuple[int, int]]) -> None:
        self._write("save", len(ledger))
        await asyncio.sleep(self._model.save_s)
        self._model.checkpoints[len(ledger)] = tuple(ledger)
        self._tell(len(ledger), len(ledger))

    def _tell(self, live: int, done: int) -> None:
        if self._model.counted:
            self.live, self.done = max(self.live, live), max(self.done, done)

    def _end(self, code: int) -> None:
        self.code = code
        self._record("end", self._model.name, self.pid, code)
        self._gang.leave()
        self._process.kill()
        self._loop.outside(0.001, self._ended)
