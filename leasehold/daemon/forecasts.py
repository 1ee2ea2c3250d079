"""Replays of the live state in a separate process: when jobs end, what a policy would change."""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scheduler.control.jobs.submit import names_of
from scheduler.errors import ConflictError, LeaseholdError
from scheduler.views.types import ExpectedStarts, PolicyTrial
from simulator.forecast.forecast import Forecast, ForecastInput, forecast_packed
from simulator.forecast.policy_trial import try_policy_packed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from planner.plans.hardware import Hardware
    from scheduler.clock import Clock
    from scheduler.control.facts.facts import JobsSubmitted
    from scheduler.control.facts.requests import Fit, PolicyChoice
    from scheduler.control.state.control_copy import ControlCopy
    from scheduler.views.types import Explanation

_log = logging.getLogger("leasehold.forecasts")
#: A forecast answers all questions of the next seconds; a slower one, for as long as it took.
FRESH_S = 5.0
#: Lists of jobs have a new forecast after so long; a slower one, after ten times what it took.
LISTED_S = 20.0
#: A question waits so long for a forecast; clients wait for 30 s by default.
PATIENCE_S = 10.0
#: Time that the trial of a policy may take, with the start of its process.
TRIAL_S = 20.0


class SimulatedForecaster:
    """Implements ``scheduler.runtime.forecaster.Forecaster``.

    Args:
        clock: the daemon's clock.
        sources: plugins that know further ways to run jobs, by the names of their entry points.
        hardware: accelerators for which models are planned; None for the bundled ones.
        patience_s: time that a question waits for a replay; the replay goes on for the next one.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        sources: Sequence[str] = (),
        hardware: Hardware | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._clock = clock
        self._sources, self._hardware = tuple(sources), hardware
        self._patience_s = patience_s
        self._pool: ProcessPoolExecutor | None = None
        #: the replay in progress, shared by all questions meanwhile.
        self._making: asyncio.Task[None] | None = None
        self._made_s = -math.inf
        self._took_s = 0.0
        self._fresh_until_s = -math.inf
        self._forecast: Forecast | None = None
        self._problem = ""
        #: whether a job is tried now.
        self._tries_job = False
        #: the policy that is tried now.
        self._trial: Trial | None = None

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
            forecast=_words(self._forecast, explanation.job_id),
        )

    def starts(
        self, copied: Callable[[], Awaitable[ControlCopy]], job_ids: Sequence[str]
    ) -> ExpectedStarts:
        """Return when jobs will start, by the last replay; do not wait for one."""
        now_s = self._clock.now_s()
        again_s = max(LISTED_S, 10 * self._took_s)
        if self._making is None and now_s - self._made_s >= again_s:
            self._making = asyncio.create_task(self._make(copied, now_s))
            self._making.add_done_callback(_note_failure)
        if self._forecast is None or now_s - self._made_s > again_s + 2 * max(
            LISTED_S, self._took_s
        ):
            return ExpectedStarts()
        known = ((job_id, self._forecast.times.get(job_id)) for job_id in job_ids)
        found = {
            job_id: self._made_s + times.start_s
            for job_id, times in known
            if times is not None and times.start_s is not None
        }
        # A job that ran at the replay, or should run by now, has met something that it did not see.
        later = {job_id: start_s for job_id, start_s in found.items() if start_s > now_s}
        return ExpectedStarts(made_s=self._made_s, start_s=later)

    def _knows(self, changed_s: float, *, now_s: float) -> bool:
        """Return whether the present forecast is fresh enough."""
        return now_s <= self._fresh_until_s and changed_s <= self._made_s

    async def _make(self, copied: Callable[[], Awaitable[ControlCopy]], now_s: float) -> None:
        found, problem, waited = None, "", self._tries_job
        try:
            found = await self._replayed(await self._input(copied))
        except BrokenExecutor:
            self._pool = None
            problem = "the replay died; the next question starts a new one"
        except LeaseholdError as error:
            problem = str(error)
        finally:
            self._making = None
            done_s = self._clock.now_s()
            self._forecast, self._problem, self._made_s = found, problem, now_s
            if not (waited or self._tries_job):  # a trial has the same process, and comes first
                self._took_s = done_s - now_s
        self._fresh_until_s = done_s + max(FRESH_S, self._took_s)

    async def try_job(
        self, copied: Callable[[], Awaitable[ControlCopy]], fact: JobsSubmitted, fit: Fit
    ) -> Fit:
        """Return a fit with expected times, or with the reason why there are none."""
        if self._tries_job:
            words = "no forecast: another job is tried now; try again in a few seconds"
            return replace(fit, forecast=words)
        self._tries_job = True
        asked_s = self._clock.now_s()
        run = asyncio.create_task(self._with_job(copied, fact))
        run.add_done_callback(_note_failure)
        await asyncio.wait({run}, timeout=self._patience_s)
        if not run.done():  # it goes on to its end: until then no other one may begin
            return replace(fit, forecast="no forecast: the replay takes too long")
        if run.exception() is not None:  # it is in the log
            return replace(fit, forecast="no forecast: the replay failed")
        found = run.result()
        if isinstance(found, str):
            return replace(fit, forecast=f"no forecast: {found}")
        (job_id,) = fact.job_ids
        times = found.times.get(job_id)
        if times is None:
            return replace(fit, forecast="no forecast: the job may not run now")
        return replace(
            fit,
            starts_s=None if times.start_s is None else asked_s + times.start_s,
            completes_s=None if times.completion_s is None else asked_s + times.completion_s,
            forecast=_words(found, job_id),
        )

    async def _with_job(
        self, copied: Callable[[], Awaitable[ControlCopy]], fact: JobsSubmitted
    ) -> Forecast | str:
        """Return the forecast with a further job, or why there is none."""
        try:
            asked = replace(await self._input(copied), fact=fact)
            return await self._replayed(asked)
        except BrokenExecutor:
            self._pool = None
            return "the replay died; the next question starts a new one"
        except LeaseholdError as error:
            return str(error)
        finally:
            self._tries_job = False

    async def _replayed(self, asked: ForecastInput) -> Forecast:
        packed = await asyncio.to_thread(asked.pack)
        return await asyncio.get_running_loop().run_in_executor(
            self._executor(), forecast_packed, packed
        )

    async def try_policy(
        self,
        copied: Callable[[], Awaitable[ControlCopy]],
        choice: PolicyChoice,
        *,
        time_dependent: bool,
    ) -> PolicyTrial:
        """Return what a policy would change in the next round."""
        if self._trial is not None:
            raise ConflictError("another policy is being tried; try again in a few seconds")
        self._trial = Trial()
        # If its caller leaves, it goes on to its end: until then no other one may begin.
        run = asyncio.create_task(self._run(self._trial, copied, choice, time_dependent))
        run.add_done_callback(_note_failure)
        return await asyncio.shield(run)

    async def _run(
        self,
        trial: Trial,
        copied: Callable[[], Awaitable[ControlCopy]],
        choice: PolicyChoice,
        time_dependent: bool,
    ) -> PolicyTrial:
        try:
            packed = await asyncio.to_thread((await self._input(copied)).pack)
            plain = replace(choice, parameters=dict(choice.parameters))  # a proxy is not packed
            return await asyncio.to_thread(trial.run, packed, plain, time_dependent)
        finally:
            self._trial = None

    async def _input(self, copied: Callable[[], Awaitable[ControlCopy]]) -> ForecastInput:
        control = await copied()
        now_s = max(self._clock.now_s(), control.engine.now_s)
        return ForecastInput(
            control=control, now_s=now_s, sources=self._sources, hardware=self._hardware
        )

    def _executor(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                max_workers=1, mp_context=context, initializer=_leave_signals_to_the_daemon
            )
        return self._pool

    def close(self) -> None:
        """Stop the processes."""
        if self._trial is not None:
            self._trial.stop()
        if self._making is not None:
            self._making.cancel()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _words(forecast: Forecast, job_id: str) -> str:
    """Return what the times of a job rest on, or why there are none."""
    times = forecast.times[job_id]
    if times.unknown:
        return f"unknown: {times.unknown}"
    if times.ending:
        return f"by a replay of the cluster from now on it does not complete: {times.ending}"
    if times.completion_s is not None:
        return "by a replay of the cluster from now on; no job joins, nothing fails"
    others = [o for o, entry in forecast.times.items() if entry.unknown and o != job_id]
    because = f"; it is unknown when {names_of(others)} will be done" if others else ""
    return f"unknown: the replay of the cluster from now on did not come to its end{because}"


def _note_failure(task: asyncio.Task[Any]) -> None:
    """Take notice of a task's failure, which nobody may wait for."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("a replay of the cluster failed", exc_info=error)


class Trial:
    """A policy that is tried in a process of its own, which is killed if it takes too long."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None

    def run(self, packed: bytes, choice: PolicyChoice, time_dependent: bool) -> PolicyTrial:
        """Return what the policy would change; it blocks.

        Raises:
            LeaseholdError: the trial cannot be made.
            ConflictError: it takes too long, or its process died.
        """
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe(duplex=False)
        question = (packed, choice, time_dependent)
        process = context.Process(target=_answer_trial, args=(there, question), daemon=True)
        process.start()
        self._process = process
        there.close()
        try:
            if not here.poll(TRIAL_S):
                raise ConflictError(
                    f"the trial of '{choice.name}' takes more than {TRIAL_S:g} s, and was stopped; "
                    "nothing was changed"
                )
            found = here.recv()
        except EOFError:
            raise ConflictError(f"the process that tried '{choice.name}' died") from None
        finally:
            here.close()
            process.kill()
            process.join()
        if isinstance(found, LeaseholdError):
            raise found
        assert isinstance(found, PolicyTrial)
        return found

    def stop(self) -> None:
        """Stop the process; ``run`` then raises."""
        if self._process is not None:
            self._process.kill()


def _answer_trial(there: Connection, question: tuple[bytes, PolicyChoice, bool]) -> None:
    _leave_signals_to_the_daemon()
    try:
        there.send(try_policy_packed(*question))
    except LeaseholdError as error:
        there.send(error)


def _leave_signals_to_the_daemon() -> None:
    """Ignore Ctrl-C in a terminal, which goes to the whole group: the daemon handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """End when the daemon has died; the pipes do not show it, as this process holds both ends."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)
