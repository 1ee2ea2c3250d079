"""Forecast when jobs start and complete: replay the live state in a separate process."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.control.jobs.submit import names_of
from scheduler.errors import LeaseholdError
from simulator.forecast.forecast import Forecast, ForecastInput, JobTimes, forecast_packed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from scheduler.clock import Clock
    from scheduler.control.state.control_copy import ControlCopy
    from scheduler.views.types import Explanation

#: A forecast answers all questions of the next seconds; a slower one, for as long as it took.
FRESH_S = 5.0
#: Time that a question waits for a forecast; clients wait for 30 s by default.
PATIENCE_S = 10.0


class SimulatedForecaster:
    """Implements ``scheduler.runtime.service.Forecaster``.

    Args:
        clock: the daemon's clock.
        sources: plugins that know further ways to run jobs, by the names of their entry points.
        patience_s: time that a question waits for a replay; the replay goes on for the next one.
    """

    def __init__(
        self, clock: Clock, *, sources: Sequence[str] = (), patience_s: float = PATIENCE_S
    ) -> None:
        self._clock = clock
        self._sources = tuple(sources)
        self._patience_s = patience_s
        self._pool: ProcessPoolExecutor | None = None
        #: the replay in progress, shared by all questions meanwhile.
        self._making: asyncio.Task[None] | None = None
        self._made_s = -math.inf
        self._fresh_until_s = -math.inf
        self._forecast: Forecast | None = None
        self._problem = ""

    async def add_times(
        self,
        copied: Callable[[], Awaitable[ControlCopy]],
        explanation: Explanation,
        *,
        changed_s: float = -math.inf,
    ) -> Explanation:
        """Return the explanation with expected times, or with the reason why there are no times.

        A forecast from before the last change (``changed_s``) is not used.
        """
        loop = asyncio.get_running_loop()
        until_s, asked_s = loop.time() + self._patience_s, self._clock.now_s()
        is_ours = False
        while self._making or not (is_ours or self._knows(changed_s, now_s=asked_s)):
            if self._making is None:
                is_ours = True
                self._making = asyncio.create_task(self._make(copied, self._clock.now_s()))
            making = self._making
            await asyncio.wait({making}, timeout=max(until_s - loop.time(), 0.0))
            if not making.done():
                words = "no forecast yet: the replay takes its time; ask again in a while"
                return replace(explanation, forecast=words)
            making.result()
        if self._forecast is None:
            return replace(explanation, forecast=f"no forecast: {self._problem}")
        times = self._forecast.times.get(explanation.job_id)
        if times is None:
            return replace(explanation, forecast="no forecast: the job may not run now")
        starts, completes = times.start_s, times.completion_s
        running = explanation.reason is None
        return replace(
            explanation,
            starts_s=None if running or starts is None else self._made_s + starts,
            completes_s=None if completes is None else self._made_s + completes,
            forecast=self._words(explanation.job_id, times),
        )

    def _knows(self, changed_s: float, *, now_s: float) -> bool:
        """Return whether the present forecast is fresh enough."""
        return now_s <= self._fresh_until_s and changed_s <= self._made_s

    def _words(self, job_id: str, times: JobTimes) -> str:
        assert self._forecast is not None
        if times.unknown:
            return f"unknown: {times.unknown}"
        if times.ending:
            return f"by a replay of the cluster from now on it does not complete: {times.ending}"
        if times.completion_s is not None:
            return "by a replay of the cluster from now on; no job joins, nothing fails"
        others = [o for o, entry in self._forecast.times.items() if entry.unknown and o != job_id]
        because = f"; it is unknown when {names_of(others)} will be done" if others else ""
        return f"unknown: the replay of the cluster from now on did not come to its end{because}"

    async def _make(self, copied: Callable[[], Awaitable[ControlCopy]], now_s: float) -> None:
        found, problem = None, ""
        try:
            asked = ForecastInput(control=await copied(), now_s=now_s, sources=self._sources)
            packed = await asyncio.to_thread(asked.pack)
            found = await asyncio.get_running_loop().run_in_executor(
                self._executor(), forecast_packed, packed
            )
        except BrokenExecutor:
            self._pool = None
            problem = "the replay died; the next question starts a new one"
        except LeaseholdError as error:
            problem = str(error)
        finally:
            self._making = None
        self._forecast, self._problem, self._made_s = found, problem, now_s
        done_s = self._clock.now_s()
        self._fresh_until_s = done_s + max(FRESH_S, done_s - now_s)

    def _executor(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                max_workers=1, mp_context=context, initializer=_leave_signals_to_the_daemon
            )
        return self._pool

    def close(self) -> None:
        """Stop the process."""
        if self._making is not None:
            self._making.cancel()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _leave_signals_to_the_daemon() -> None:
    """Ignore Ctrl-C in a terminal, which goes to the whole group: the daemon handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """End when the daemon has died; the pipes do not show it, as this process holds both ends."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)
