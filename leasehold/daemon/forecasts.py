"""When jobs start and complete: the live state, replayed in the simulator in another process."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from scheduler.control.progress import keeps_steps, own_speed, steps_now
from scheduler.control.submitting import names_of
from scheduler.domain.job import ALMOST_DONE
from scheduler.domain.ways import Source
from scheduler.engine.jobs import HELD, NONE
from scheduler.errors import LeaseholdError
from simulator.forecast import Forecast, ForecastInput, ForecastJob, JobTimes, forecast

if TYPE_CHECKING:
    from scheduler.control.jobs import JobRecord
    from scheduler.control.leases import LiveLease
    from scheduler.control.view import View
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.runtime.clock import Clock
    from scheduler.runtime.contract import Explanation

#: A forecast answers every question of the next seconds; one that took longer to make, of as long.
FRESH_S = 5.0
#: So long a question waits for a forecast; clients wait for 30 s by default.
PATIENCE_S = 20.0


class SimulatedForecaster:
    """The contract of ``scheduler.runtime.service.Forecaster``.

    Args:
        clock: the daemon's time.
        patience_s: how long a question waits for a replay, which goes on for the next one.
    """

    def __init__(self, clock: Clock, *, patience_s: float = PATIENCE_S) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._pool: ProcessPoolExecutor | None = None
        #: the replay under way, for all who ask meanwhile.
        self._making: asyncio.Task[None] | None = None
        self._made_s = -np.inf
        self._fresh_until_s = -np.inf
        self._forecast: Forecast | None = None
        self._problem = ""

    async def add_times(self, view: View, explanation: Explanation) -> Explanation:
        """Return the explanation with expected times, or with the reason why there are none."""
        now_s = self._clock.now_s()
        if self._making is None and now_s > self._fresh_until_s:
            question = forecast_input(view, now_s)
            self._making = asyncio.create_task(self._make(question, now_s))
        if (making := self._making) is not None:
            await asyncio.wait({making}, timeout=self._patience_s)
            if not making.done():
                words = "no forecast yet: the replay takes its time; ask again in a while"
                return replace(explanation, forecast=words)
            making.result()
        if self._forecast is None:
            return replace(explanation, forecast=f"no forecast: {self._problem}")
        times = self._forecast.times.get(explanation.job_id)
        if times is None:
            return replace(explanation, forecast="no forecast: the job may not run at present")
        starts, completes = times.start_s, times.completion_s
        running = explanation.reason is None
        return replace(
            explanation,
            starts_s=None if running or starts is None else self._made_s + starts,
            completes_s=None if completes is None else self._made_s + completes,
            forecast=self._words(explanation.job_id, times),
        )

    def _words(self, job_id: str, times: JobTimes) -> str:
        assert self._forecast is not None
        if times.unknown:
            return f"unknown: {times.unknown}"
        if times.completion_s is not None:
            return "by a replay of the cluster from now on; no job joins, nothing fails"
        others = [o for o, entry in self._forecast.times.items() if entry.unknown and o != job_id]
        because = f"; nobody knows when {names_of(others)} will be done" if others else ""
        return f"unknown: the replay of the cluster from now on did not come to its end{because}"

    async def _make(self, question: ForecastInput, now_s: float) -> None:
        found, problem = None, ""
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._executor(), forecast, question
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
        """Let go of the process."""
        if self._making is not None:
            self._making.cancel()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _leave_signals_to_the_daemon() -> None:
    """Let Ctrl-C in a terminal, which goes to the whole group, be the daemon's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """End when the daemon has died; the pipes do not tell, since this process holds both ends."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def forecast_input(view: View, now_s: float) -> ForecastInput:
    """Return the live state as plain values, times relative to now."""
    engine, choice = view.engine, view.policy.choice
    cordoned = engine.cordoned & ~engine.held
    table = view.knowledge.table(
        engine.cluster,
        space_sharing=choice.space_sharing,
        exclusive=view.nodes.exclusive,
    )
    may_run = (engine.jobs["status"] != HELD) & (engine.jobs["retry_at_s"] < np.inf)
    rows, sources = np.flatnonzero(may_run).tolist(), _Sources(view)
    jobs = tuple(_job(view, table, sources, row, now_s) for row in rows)
    left_s = None if engine.round_end_s is None else max(engine.round_end_s - now_s, 0.0)
    return ForecastInput(
        cluster=engine.cluster,
        out_of_service=tuple(np.flatnonzero(~engine.in_service | cordoned).tolist()),
        jobs=jobs,
        table=table,
        believed=engine.table if choice.agnostic else None,
        policy=choice.name,
        parameters=tuple(choice.parameters.items()),
        settings=engine.settings,
        round_left_s=left_s,
    )


def _job(
    view: View, table: ConfigurationTable, sources: _Sources, row: int, now_s: float
) -> ForecastJob:
    engine = view.engine
    jobs = engine.jobs
    record = jobs.record(row)
    job = jobs.job_of[int(record["number"])]
    live = view.leases.by_id.get(int(record["lease"]))
    known = view.jobs.by_id.get(job.job_id)
    steps = float(record["steps_done"])
    if live is not None:
        steps = max(steps, steps_now(view, live, now_s=now_s))
    entry = int(record["pair"])
    partner = ""
    if entry != NONE:
        others = set(engine.pairs.numbers[entry].tolist()) - {int(record["number"])}
        partner = "".join(jobs.job_of[n].job_id for n in others if n in jobs.job_of)
    speed = (
        0.0
        if known is None or live is None or entry != NONE
        else _speed(view, sources, known, live)
    )
    expected = table.throughput[int(record["profile"]), max(int(record["configuration"]), 0)]
    return ForecastJob(
        job_id=job.job_id,
        job_type=job.job_type,
        profile=int(record["profile"]),
        scale_factor=job.scale_factor,
        total_steps=job.total_steps,
        steps_done=min(steps, job.total_steps),
        age_s=max(now_s - job.arrival_s, 0.0),
        weight=float(record["weight"]),
        deadline_in_s=None if np.isinf(record["deadline_s"]) else record["deadline_s"] - now_s,
        entity=job.entity,
        restart_s=float(record["restart_s"]),
        attained_worker_s=float(record["attained_worker_s"]),
        attempts=int(record["attempts"]),
        configuration=int(record["configuration"]),
        pair=NONE if entry == NONE else int(engine.pairs.index[entry]),
        partner=partner,
        safe_steps=None if known is None or keeps_steps(known, live) else known.steps_done,
        speed=speed / float(expected) if speed > 0.0 and expected > 0.0 else 1.0,
        unknown="" if known is None else _unknown(sources, known, steps, speed=speed),
        retry_in_s=max(float(record["retry_at_s"]) - now_s, 0.0),
    )


def _speed(view: View, sources: _Sources, record: JobRecord, live: LiveLease) -> float:
    """Return the steps/s by which a running job's end is forecast; 0 for what the table says.

    What a job has reported itself says more of it than what is known of its type, but for the
    first moments of a type that has been measured often.
    """
    if record.spec.total_steps is None:
        return 0.0
    speed, stretch_s = own_speed(live)
    short = stretch_s < view.settings.measure_least_s
    return 0.0 if short and Source.MEASURED in sources.of(record.profile) else speed


def _unknown(sources: _Sources, record: JobRecord, steps: float, *, speed: float) -> str:
    """Say why nobody knows when a job will be done; empty if that can be worked out."""
    spec = record.spec
    if spec.total_steps is not None:
        if speed > 0.0 or sources.of(record.profile) - {Source.ASSUMED}:
            return ""
        return (
            f"nobody knows how fast job type '{spec.type_key}' runs; its first report of progress "
            "tells, or declared throughputs"
        )
    if spec.duration_s is None:
        return "it says neither how many steps it takes nor how long"
    if steps >= ALMOST_DONE * spec.duration_s:
        return f"it takes longer than the {spec.duration_s:g} s that it said"
    return ""


class _Sources:
    """Where the figures come from of how fast jobs are, where they could run; by profile."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._known: dict[int, set[Source]] = {}

    def of(self, profile: int) -> set[Source]:
        """Return them for the jobs of a profile, of which there may be thousands."""
        if profile not in self._known:
            view = self._view
            found = view.knowledge.ways(view.knowledge.key(profile), view.engine.cluster)
            self._known[profile] = {way.estimate.source for way in found}
        return self._known[profile]
