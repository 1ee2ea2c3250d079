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

from scheduler.engine.jobs import HELD, NONE
from scheduler.errors import LeaseholdError
from simulator.forecast import Forecast, ForecastInput, ForecastJob, forecast

if TYPE_CHECKING:
    from scheduler.runtime.clock import Clock
    from scheduler.runtime.protocol import Explanation
    from scheduler.runtime.state import LiveState

#: A forecast answers every question of the next seconds.
FRESH_S = 5.0


class SimulatedForecaster:
    """The contract of ``scheduler.runtime.service.Forecaster``.

    Args:
        clock: the daemon's time.
        budget_s: of wall-clock time for one replay.
    """

    def __init__(self, clock: Clock, *, budget_s: float = 5.0) -> None:
        self._clock = clock
        self._budget_s = budget_s
        self._pool: ProcessPoolExecutor | None = None
        self._lock = asyncio.Lock()
        self._made_s = -np.inf
        self._forecast: Forecast | None = None
        self._problem = ""

    async def add_times(self, state: LiveState, explanation: Explanation) -> Explanation:
        """Return the explanation with expected times, or with the reason why there are none."""
        async with self._lock:
            now_s = self._clock.now_s()
            if now_s - self._made_s > FRESH_S:
                await self._make(state, now_s)
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
            forecast=self._words(completes),
        )

    def _words(self, completes: float | None) -> str:
        if completes is None:
            return "the replay of the cluster from now on did not come to the job's end"
        return "by a replay of the cluster from now on; no job joins, nothing fails"

    async def _make(self, state: LiveState, now_s: float) -> None:
        question = forecast_input(state, now_s)
        self._made_s = now_s
        try:
            self._forecast = await asyncio.get_running_loop().run_in_executor(
                self._executor(), _forecast, question, self._budget_s
            )
        except BrokenExecutor:
            self._forecast, self._pool = None, None
            self._problem = "the replay died; the next question starts a new one"
        except LeaseholdError as error:
            self._forecast, self._problem = None, str(error)

    def _executor(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                max_workers=1, mp_context=context, initializer=_leave_signals_to_the_daemon
            )
        return self._pool

    def close(self) -> None:
        """Let go of the process."""
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


def _forecast(question: ForecastInput, budget_s: float) -> Forecast:
    return forecast(question, budget_s=budget_s)


def forecast_input(state: LiveState, now_s: float) -> ForecastInput:
    """Return the live state as plain values, times relative to now."""
    engine, choice = state.engine, state.policy.choice
    cordoned = engine.cordoned & ~engine.book.held()
    table = state.catalogue.table(
        engine.cluster.type_names,
        state.estimator,
        space_sharing=choice.space_sharing,
        exclusive=state.nodes.exclusive,
    )
    jobs = tuple(
        _job(state, row, now_s)
        for row in range(len(engine.jobs))
        if engine.jobs["status"][row] != HELD
    )
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


def _job(state: LiveState, row: int, now_s: float) -> ForecastJob:
    engine = state.engine
    jobs = engine.jobs
    record = jobs.record(row)
    job = jobs.job_of[int(record["number"])]
    live = state.leases.by_id.get(int(record["lease"]))
    steps = float(record["steps_done"]) if live is None else live.steps_live
    entry = int(record["pair"])
    partner = ""
    if entry != NONE:
        others = set(engine.pairs.numbers[entry].tolist()) - {int(record["number"])}
        partner = "".join(jobs.job_of[n].job_id for n in others if n in jobs.job_of)
    return ForecastJob(
        job_id=job.job_id,
        job_type=job.job_type,
        profile=int(record["profile"]),
        scale_factor=job.scale_factor,
        total_steps=job.total_steps,
        steps_done=min(max(steps, float(record["steps_done"])), job.total_steps),
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
    )
