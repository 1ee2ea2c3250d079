"""Intervals for completion times: futures drawn from the past, and errors of past forecasts.

Each job's completion is replayed at its submission without rounds (``fluid``) in several futures.
They differ in the jobs that are still to come: days of the past, drawn with replacement (the moving
block bootstrap of Kuensch 1989), as far ahead as the past goes back. The mean of the futures is the
forecast. Their quantiles are the interval, widened by the errors of earlier forecasts known at the
submission (conformal calibration: Vovk et al. 2005; of quantiles, Romano et al. 2019).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.errors import SolveError
from simulator.forecast.fluid import Arrivals, completion_s
from simulator.forecast_score import SubmissionForecast
from simulator.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from policies.base import Policy
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.jobs.job import Job
    from scheduler.domain.problem import Problem
    from simulator.request import ForecastOptions, SimulationRequest
    from simulator.result import SimulationResult
    from simulator.simulation import Simulation

#: Length of a piece of the past; all of the past if that is shorter.
_BLOCK_S: Final = 86_400.0
#: Jobs that must have come before future arrivals are drawn.
_LEAST_PAST: Final = 5
#: Forecasts that determine the widening: at most the last 200, and at least 20.
_MOST_SCORED, _LEAST_SCORED = 200, 20
#: Most questions to the policy in one future.
_MOST_QUESTIONS: Final = 50_000


def run_with_forecasts(
    simulation: Simulation,
    jobs: Sequence[Job],
    profiles: Sequence[int],
    request: SimulationRequest,
    progress: Callable[[Progress], None] | None = None,
) -> SimulationResult:
    """Run a simulation, and forecast the completion of some of its jobs at their submission.

    Args:
        simulation: the simulation before its start.
        jobs: its jobs, in order of arrival.
        profiles: the row of the table for each.
        request: its request.
        progress: called with the progress of the run, then of the forecasts.
    """
    first, beyond = request.window or (0, len(jobs))
    measured = range(first, min(beyond, len(jobs)))
    many = min(request.forecasts.jobs, len(measured))
    chosen = {measured[i * len(measured) // many] for i in range(many)}
    submissions = Submissions(jobs, profiles, sorted(chosen))
    simulation.watch = submissions.note
    result = simulation.run(until_s=request.until_s)

    def report(done: int, of: int) -> None:
        if progress is not None:
            progress(Progress(now_s=result.summary.makespan_s, jobs_done=done, jobs=of))

    ended = {job.job_id: job.end_s for job in result.jobs}
    ends_s = [ended.get(job.job_id) for job in jobs]
    forecasts = submissions.forecasts(ends_s, request.make_policy, request.forecasts, report)
    return replace(result, forecasts=forecasts)


class Futures:
    """Futures of one job at its submission.

    Attributes:
        completion: (F,) seconds from submission to completion, ascending; fewer than requested if
            some futures did not reach it.
        alone_s: the same if no further job comes; None if the replay did not reach it.
    """

    def __init__(
        self,
        problem: Problem,
        policy: Policy,
        number: int,
        past: Arrivals,
        *,
        futures: int,
        rng: np.random.Generator,
    ) -> None:
        """Replay the futures.

        Args:
            problem: the active jobs, including the new one.
            policy: in force.
            number: of the new job.
            past: all arrivals up to now, in order.
            futures: number of futures.
            rng: for the draws.
        """

        def ends(arrivals: Iterator[Arrivals]) -> float | None:
            try:
                at_s = completion_s(
                    problem, policy, number, arrivals, most_questions=_MOST_QUESTIONS
                )
            except SolveError:
                return None
            return None if at_s is None else at_s - submitted_s

        (row,) = np.flatnonzero(problem.job_number == number)
        submitted_s = problem.now_s - float(problem.age_s[row])
        self.alone_s = ends(iter(()))
        found = [ends(draw_futures(past, problem.now_s, rng)) for _ in range(futures)]
        self.completion: FloatArray = np.sort([one for one in found if one is not None])


def draw_futures(past: Arrivals, now: float, rng: np.random.Generator) -> Iterator[Arrivals]:
    """Yield possible future arrivals: consecutive pieces of the past.

    They end as far ahead as the past goes back: it says nothing about later times, and the rate of
    a few minutes would flood the cluster for weeks.
    """
    span_s = now - float(past.arrival_s[0]) if len(past) else 0.0
    if len(past) < _LEAST_PAST or span_s <= 0:
        return
    length_s = min(_BLOCK_S, span_s)
    offset_s = now
    while offset_s < now + span_s:
        begin = now - length_s - rng.uniform(0.0, span_s - length_s)
        low = int(np.searchsorted(past.arrival_s, begin))
        chosen = np.arange(low, int(np.searchsorted(past.arrival_s, begin + length_s, "right")))
        at_s = past.arrival_s[chosen] - begin
        if length_s == span_s:  # only one piece fits, so it begins anywhere
            at_s = (at_s + rng.uniform(0.0, length_s)) % length_s
            order = np.argsort(at_s, kind="stable")
            chosen, at_s = chosen[order], at_s[order]
        yield past.again(chosen, offset_s + at_s)
        offset_s += length_s


class Calibration:
    """The widening of intervals, learned from forecasts of jobs that have ended."""

    def __init__(self, confidence: float) -> None:
        #: probability that may lie beyond each of the bounds.
        self._beyond = (1.0 - confidence) / 2.0
        #: (ended at, ln of low over actual, ln of actual over high) of each promise.
        self._missed: list[tuple[float, float, float]] = []

    def quantiles(self, completion: FloatArray, slack_s: float) -> tuple[float, float]:
        """Return the bounds by the futures alone.

        Args:
            completion: (F,) seconds to completion.
            slack_s: widens the interval on either side, since leases begin with rounds; the lower
                bound keeps at least half of its value.
        """
        low, high = np.quantile(
            completion, (self._beyond, 1.0 - self._beyond), method="inverted_cdf"
        )
        return max(float(low) - slack_s, float(low) / 2.0), float(high) + slack_s

    def widened(self, low_s: float, high_s: float, now: float) -> tuple[float, float]:
        """Return bounds widened by the errors of the forecasts that have ended by ``now``."""
        known = sorted(one for one in self._missed if one[0] <= now)[-_MOST_SCORED:]
        if len(known) < _LEAST_SCORED:
            return low_s, high_s
        missed = np.array(known)[:, 1:]
        rank = min(1.0, math.ceil((len(known) + 1) * (1.0 - self._beyond)) / len(known))
        below, above = np.quantile(missed, rank, axis=0, method="inverted_cdf")
        return low_s * math.exp(-max(below, 0.0)), high_s * math.exp(max(above, 0.0))

    def learn(self, low_s: float, high_s: float, actual_s: float, *, ended_s: float) -> None:
        """Add the errors of the futures' interval for a job that has ended."""
        self._missed.append((ended_s, math.log(low_s / actual_s), math.log(actual_s / high_s)))


class Submissions:
    """The problems at the submission of chosen jobs, recorded while a simulation runs."""

    def __init__(self, jobs: Sequence[Job], profiles: Sequence[int], chosen: Iterable[int]) -> None:
        """Watch for jobs.

        Args:
            jobs: in order of arrival.
            profiles: the row of the table for each.
            chosen: positions of the jobs to forecast.
        """
        self._jobs, self._profiles = jobs, profiles
        self._waited = {jobs[i].job_id: i for i in chosen}
        #: position -> the first problem that has the job, and the job's number in it.
        self._noted: dict[int, tuple[Problem, int]] = {}

    def note(self, problem: Problem, job_of: Mapping[int, Job]) -> None:
        """Record the problem of a question if it is the first one with a chosen job."""
        for number in problem.job_number[::-1].tolist():
            position = self._waited.pop(job_of[number].job_id, None)
            if position is not None:
                self._noted[position] = (problem, number)
            if not self._waited:
                break

    def forecasts(
        self,
        ends_s: Sequence[float | None],
        make_policy: Callable[[], Policy],
        options: ForecastOptions,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[SubmissionForecast, ...]:
        """Forecast each of the jobs as of its submission.

        Args:
            ends_s: when each job of the simulation completed; None if it did not.
            make_policy: returns a new policy.
            options: number of futures, and confidence of the intervals.
            progress: called with the number of finished forecasts, and their total.
        """
        calibration, policy = Calibration(options.confidence), make_policy()
        everything = self._arrivals()
        found = []
        for done, (position, (problem, number)) in enumerate(sorted(self._noted.items())):
            if progress is not None:
                progress(done, len(self._noted))
            job, end_s = self._jobs[position], ends_s[position]
            known = int(np.searchsorted(everything.arrival_s, problem.now_s, side="right"))
            futures = Futures(
                problem,
                policy,
                number,
                everything.part(0, known),
                futures=options.futures,
                rng=np.random.default_rng((options.seed, position)),
            )
            if not len(futures.completion) or futures.alone_s is None:
                continue
            low_s, high_s = calibration.quantiles(futures.completion, problem.round_length_s)
            bounds = calibration.widened(low_s, high_s, problem.now_s)
            actual_s = None if end_s is None else end_s - job.arrival_s
            if end_s is not None and actual_s is not None:
                calibration.learn(low_s, high_s, actual_s, ended_s=end_s)
            found.append(
                SubmissionForecast(
                    job_id=job.job_id,
                    submitted_s=job.arrival_s,
                    jct_s=float(futures.completion.mean()),
                    low_s=bounds[0],
                    high_s=bounds[1],
                    alone_s=futures.alone_s,
                    actual_s=actual_s,
                )
            )
        return tuple(found)

    def _arrivals(self) -> Arrivals:
        jobs = self._jobs
        return Arrivals(
            arrival_s=np.array([job.arrival_s for job in jobs]),
            profile=np.array(self._profiles, dtype=np.int64),
            scale_factor=np.array([job.scale_factor for job in jobs], dtype=np.int64),
            total_steps=np.array([job.total_steps for job in jobs]),
            weight=np.array([job.weight for job in jobs]),
            entity=np.zeros(len(jobs), dtype=np.int64),
        )
