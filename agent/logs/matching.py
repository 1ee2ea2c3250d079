"""The agent's side of the process that searches output for steps; see ``agent.logs.matcher``.

It is started with the first lease that has an expression, and again when it dies or falls silent. A
lease that has seen it die too often is no longer searched, and reports why; its job runs on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agent.clock import lease_clock_s
from agent.logs.job_output import SPOILT, read_regular
from agent.logs.matcher import read_count
from scheduler.protocol import bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_log = logging.getLogger("leasehold.agent")

#: After this long without a sign of life it counts as stuck.
SILENCE_S: Final = 60.0
#: First wait before it is started again; doubles, up to the second.
RESTART_LEAST_S: Final = 0.2
RESTART_MOST_S: Final = 30.0
#: A lease is no longer searched after so many deaths, none of them after a long life.
MOST_DEATHS: Final = 5
LONG_LIFE_S: Final = 600.0
#: Longest line of its reports, in bytes.
LINE_BYTES: Final = 65536
#: Warnings for a lease in the agent's log, once each.
_WARNINGS: Final = {
    "skipped": "more than can be searched for steps; older output is left out",
    "absurd": f"a number of steps above {bounds.MOST_COUNT}; it is ignored",
}
#: The program. ``-P`` excludes the working directory from the import path.
COMMAND: Final = (sys.executable, "-P", "-m", "agent.logs.matcher")


@dataclass(kw_only=True)
class Watch:
    """The results of searching one lease's output.

    Attributes:
        lease_id: the lease.
        order: the order to the process.
        steps: done, checkpointed or not.
        saved: steps that are checkpointed, by the output.
        tells_saved: whether the output reports those; None before the first search.
        problem: why no steps are found any more; empty while all is well.
        finishing: the output is complete.
        finished: all of it was searched, or will never be.
        deaths: of the process while it searched this.
    """

    lease_id: int
    order: dict[str, object]
    steps: int = 0
    saved: int = 0
    tells_saved: bool | None = None
    problem: str = ""
    finishing: bool = False
    finished: bool = False
    deaths: int = 0
    _warned: set[str] = field(default_factory=set, init=False)

    def take(self, news: dict[str, Any]) -> None:
        """Take in figures; counts never shrink."""
        self.steps = max(self.steps, read_count(news.get("steps_live")))
        self.saved = max(self.saved, read_count(news.get("steps_done")))
        self.tells_saved = bool(news.get("tells_saved"))
        self.problem = str(news.get("problem") or "")
        self.finished = bool(news.get("finished"))
        for name, words in _WARNINGS.items():
            if news.get(name) and name not in self._warned:
                self._warned.add(name)
                _log.warning("lease %d prints %s", self.lease_id, words)

    def give_up(self, problem: str) -> None:
        """Stop searching."""
        self.problem, self.finished = problem, True


class Matching:
    """Searches the output of leases.

    Args:
        on_change: called when a lease's output was searched to its end, or never will be.
        command: the program to start.
        silence_s: after this long without a sign of life the process is restarted.
    """

    def __init__(
        self,
        *,
        on_change: Callable[[], None],
        command: Sequence[str] = COMMAND,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._on_change, self._command, self._silence_s = on_change, tuple(command), silence_s
        self._watches: dict[int, Watch] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._wanted = asyncio.Event()

    def watch(self, lease_id: int, *, expression: str, files: Sequence[Path], state: Path) -> Watch:
        """Search a lease's output from now on.

        Args:
            lease_id: the lease.
            expression: of the user.
            files: the newest file of each stream.
            state: the file of the results; read at once.
        """
        order: dict[str, object] = {
            "lease": lease_id,
            "expression": expression,
            "files": [str(path) for path in files],
            "state": str(state),
        }
        watch = Watch(lease_id=lease_id, order=order)
        watch.steps, watch.saved = found_before(state)
        self._watches[lease_id] = watch
        self._wanted.set()
        self._send(order)
        return watch

    def finish(self, watch: Watch) -> None:
        """Search the rest of an output that is complete."""
        if not watch.finishing:
            watch.finishing = True
            self._send({"lease": watch.lease_id, "finish": True})

    def drop(self, lease_id: int) -> None:
        """Drop a lease."""
        if self._watches.pop(lease_id, None) is not None:
            self._send({"lease": lease_id, "drop": True})

    async def run(self) -> None:
        """Keep the process running while there is anything to search, until cancelled."""
        wait_s = RESTART_LEAST_S
        while True:
            await self._wanted.wait()
            if all(watch.finished for watch in self._watches.values()):
                self._wanted.clear()
                continue
            begun_s = lease_clock_s()
            why = await self._serve()
            if lease_clock_s() - begun_s >= LONG_LIFE_S:
                wait_s = RESTART_LEAST_S
                for watch in self._watches.values():
                    watch.deaths = 0
            self._count_death(why)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RESTART_MOST_S)

    async def _serve(self) -> str:
        """Run one process for as long as it lives and gives signs; return why it is over."""
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd="/",
                env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                limit=LINE_BYTES,
            )  # in our session: outside it counts as a job's stray
        except OSError as error:
            return f"it cannot be started: {error}"
        try:
            for watch in self._watches.values():
                if not watch.finished:
                    self._begin(watch)
            return await self._listen(process)
        finally:
            self._process = None
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _begin(self, watch: Watch) -> None:
        self._send(watch.order)
        if watch.finishing:
            self._send({"lease": watch.lease_id, "finish": True})

    async def _listen(self, process: asyncio.subprocess.Process) -> str:
        assert process.stdout is not None
        while True:
            try:
                async with asyncio.timeout(self._silence_s):
                    line = await process.stdout.readline()
                if line:
                    self._take(json.loads(line))
            except TimeoutError:
                return f"it was silent for {self._silence_s:.0f} s"
            except (*SPOILT, AttributeError) as error:  # it may be overwritten
                return f"its output is malformed ({error})"
            if not line:
                return f"it ended with code {await process.wait()}"

    def _take(self, news: dict[str, Any]) -> None:
        watch = self._watches.get(news.get("lease", -1))
        if watch is not None:
            watch.take(news)
            if watch.finished:
                self._on_change()

    def _count_death(self, why: str) -> None:
        _log.warning("the process that searches output for steps is started again: %s", why)
        for watch in self._watches.values():
            watch.deaths += not watch.finished
            if watch.deaths >= MOST_DEATHS and not watch.finished:
                watch.give_up(
                    f"the process that searches its output has ended {watch.deaths} times: {why}"
                )
                self._on_change()

    def _send(self, order: dict[str, object]) -> None:
        """Send an order; a process that is started later receives all orders then."""
        stdin = None if self._process is None else self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(json.dumps(order).encode() + b"\n")


def found_before(state: Path) -> tuple[int, int]:
    """Return (steps, checkpointed steps) of an earlier agent's search of a lease's output."""
    with contextlib.suppress(*SPOILT, AttributeError):
        data = json.loads(read_regular(state, 65536))
        return read_count(data.get("steps_live")), read_count(data.get("steps_done"))
    return 0, 0
