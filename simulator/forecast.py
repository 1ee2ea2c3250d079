"""The forecast: when each job starts and completes, by replaying the live state from now on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.registry import make_policy
from scheduler.domain import events as ev
from scheduler.domain.allocation import Allocation
from scheduler.domain.job import ALMOST_DONE, Job
from scheduler.errors import LeaseholdError
from simulator.failures import FailureModel
from simulator.overheads import Overheads
from simulator.run import Simulation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain import commands as do
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.problem import Problem
    from scheduler.engine.settings import EngineSettings

#: No configuration, no pair.
_NONE = -1
#: What the timers of jobs that wait after a failure begin with.
_RETRY = "retry "
_MONTH_S = 30 * 86400.0
#: Work after which a replay returns what it has, as ``Replay.work`` counts it: five seconds of one
#: core where solves are hard, one where they are easy. Counted, and not timed, so that equal states
#: have equal forecasts however busy the machine is.
MOST_WORK = 40_000
#: What a question to the policy weighs beside a moment of the replay (0.3 ms): for itself, and for
#: each so many jobs in it. Measured with 10 to 1,000 jobs: 2 to 16 ms under policies that solve.
_QUESTION, _JOBS_PER_UNIT = 10, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastJob:
    """An active job as it is now; times are relative to now.

    Attributes:
        job_id: unique.
        job_type: key.
        profile: row of the tables.
        scale_factor: of the job.
        total_steps: steps in all.
        steps_done: so far.
        age_s: seconds since it was submitted, >= 0.
        weight: its importance.
        deadline_in_s: seconds until its deadline, negative when it has passed, or None.
        entity: to whom it is accounted.
        restart_s: seconds of work that starting on workers costs it.
        attained_worker_s: worker-seconds received so far.
        attempts: leases so far.
        configuration: the one that it runs in alone now; -1 if it waits or shares.
        pair: row of the believed table's pairs that it runs in now; -1 if it waits or runs alone.
        partner: id of the job that it shares workers with now, or empty.
        safe_steps: what is left of it after a preemption, where it saves nothing on the way; None
            for a job that checkpoints when it has to leave.
        speed: how fast it was seen to be, over what the table says of its configuration.
        unknown: why nobody knows when it will be done; empty where its length and its throughput
            are known. It then goes on for ever, and is taken for nearly done once it has done all
            of ``total_steps``, as in the live service.
        retry_in_s: seconds until it may start again after a failure; 0 if it may at once.
    """

    job_id: str
    job_type: str
    profile: int
    scale_factor: int = 1
    total_steps: float
    steps_done: float = 0.0
    age_s: float = 0.0
    weight: float = 1.0
    deadline_in_s: float | None = None
    entity: str = ""
    restart_s: float = 0.0
    attained_worker_s: float = 0.0
    attempts: int = 0
    configuration: int = _NONE
    pair: int = _NONE
    partner: str = ""
    safe_steps: float | None = None
    speed: float = 1.0
    unknown: str = ""
    retry_in_s: float = 0.0

    @property
    def runs(self) -> bool:
        """Whether it holds workers now."""
        return self.configuration != _NONE or self.pair != _NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastInput:
    """The live state. Plain values, so that it can go to another process.

    Left out, and so approximated: credits (whoever runs has received what it was due), which of a
    type's workers are held, leases that are being stopped, and whatever the policy remembers
    between its answers.

    Attributes:
        cluster: all workers, in service or not.
        out_of_service: workers that cannot be granted, cordoned ones on which nothing runs among
            them.
        jobs: that run or wait for workers, in order of arrival; not those that are kept from it.
        table: the best estimates of throughputs.
        believed: what policy and engine are told, if something else. Same profiles and
            configurations.
        policy: its name.
        parameters: of the policy, as text.
        settings: of the engine.
        round_left_s: seconds until the current round ends; None while no round runs.
    """

    cluster: Cluster
    out_of_service: tuple[int, ...] = ()
    jobs: tuple[ForecastJob, ...]
    table: ConfigurationTable
    believed: ConfigurationTable | None = None
    policy: str
    parameters: tuple[tuple[str, str], ...] = ()
    settings: EngineSettings
    round_left_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """When a job starts and completes, in seconds from now.

    Attributes:
        start_s: its first lease from now on; 0 if it runs. None if it was not reached.
        completion_s: when its last step is done. None if it was not reached.
        unknown: why nobody knows the latter; see ``ForecastJob``.
    """

    start_s: float | None
    completion_s: float | None
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What will happen if no job comes, nothing fails and the throughputs are right.

    Attributes:
        times: job id -> when, for every job asked about.
        reached_s: how far the replay went, in seconds from now.
        complete: whether every job completed in it whose end can be known.
        work: that it took; see ``Replay.work``.
        note: why it ended early; empty if it did not.
    """

    times: Mapping[str, JobTimes]
    reached_s: float
    complete: bool
    work: int
    note: str = ""


def forecast(
    state: ForecastInput, *, limit_s: float = _MONTH_S, most_work: int = MOST_WORK
) -> Forecast:
    """Replay the live state in the simulator.

    Args:
        state: the live state.
        limit_s: how far to look ahead, in simulated seconds.
        most_work: work after which it returns what it has; see ``Replay.work``.

    Raises:
        InputError: two jobs have one id, or a job is wrong.
        LeaseholdError: the policy is unknown, or its parameters are wrong.
    """
    if not state.jobs:
        return Forecast(times={}, reached_s=0.0, complete=True, work=0)
    replay = Replay(state)
    note = ""
    try:
        replay.enter()
        while replay.to_go:
            if replay.reached_s > limit_s:
                note = f"looked {limit_s:.0f} s ahead"
                break
            if replay.work >= most_work:
                note = f"stopped after {replay.work} units of work"
                break
            replay.step()
    except LeaseholdError as error:
        note = str(error)
    times = replay.times()
    return Forecast(
        times=times,
        reached_s=replay.reached_s,
        complete=all(e.completion_s is not None or e.unknown for e in times.values()),
        work=replay.work,
        note=note,
    )


class Replay(Simulation):
    """A simulation that begins in the middle.

    The engine is told what happened until now: all jobs are submitted and those that wait are held;
    the first question is answered by what runs, so that these get their leases; then the others are
    released and the policy is asked. The clock is shifted so that the oldest job arrived at 0.
    """

    def __init__(self, state: ForecastInput) -> None:
        settings = state.settings
        left_s = state.round_left_s
        #: seconds of the current round that are over.
        self._passed_s = 0.0
        if left_s is not None:
            self._passed_s = min(
                max(settings.round_length_s - left_s, 0.0), settings.round_length_s
            )
        self._origin_s = max(self._passed_s, *(job.age_s for job in state.jobs))
        self._state = state
        self._entering = False
        #: what was done so far: moments at which something happened, and questions to the policy,
        #: which weigh more the more jobs they are about.
        self.work = 0
        self._unknown = {job.job_id: job.unknown for job in state.jobs if job.unknown}
        super().__init__(
            cluster=state.cluster,
            jobs=[_job(job, self._origin_s) for job in state.jobs],
            profiles=[job.profile for job in state.jobs],
            table=state.table,
            believed=state.believed,
            policy=make_policy(state.policy, dict(state.parameters)),
            settings=settings,
            overheads=Overheads(),
            failures=FailureModel(),
        )
        self._safe_steps[:] = [job.steps_before for job in self._jobs]
        for i, job in enumerate(state.jobs):
            if job.safe_steps is not None:
                self._most_left[i] = job.safe_steps / job.speed
        # Who goes on for ever is never taken for complete, as in the live service.
        endless = [i for i, job in enumerate(state.jobs) if job.unknown]
        self._most_told[endless] = ALMOST_DONE * self._total_steps[endless]
        self._total_steps[endless] = math.inf

    @property
    def to_go(self) -> int:
        """Jobs that have not ended, and of which it can be known when they will."""
        active = self._engine.jobs.number_of
        return self._ledger.to_go - sum(job_id in active for job_id in self._unknown)

    @property
    def reached_s(self) -> float:
        """How far the clock is, in seconds from now."""
        return self._now - self._origin_s

    def enter(self) -> None:
        """Bring the engine to where the live one is."""
        jobs, begin_s = self._state.jobs, self._origin_s - self._passed_s
        self._now = self._origin_s
        self._next_job = len(self._jobs)
        lost = self._state.out_of_service
        waiting = [job.job_id for job in jobs if not job.runs]
        facts: list[ev.Event] = [ev.WorkersLost(workers=lost)] if lost else []
        facts += [
            ev.JobSubmitted(job=job, profile=profile)
            for job, profile in zip(self._jobs, self._profiles, strict=True)
        ]
        facts += [ev.JobHeld(job_id=job_id) for job_id in waiting]
        self._entering = True
        self._settle(facts, begin_s)
        self._entering = False
        self._overheads["launch_s"] = [job.restart_s for job in self._jobs]
        self._take_service_over()
        later = {j.job_id: j.retry_in_s for j in jobs if not j.runs and j.retry_in_s > 0.0}
        self._timers |= {f"{_RETRY}{j}": self._origin_s + wait_s for j, wait_s in later.items()}
        facts = [ev.JobReleased(job_id=job_id) for job_id in waiting if job_id not in later]
        facts.append(ev.ConfigurationsChanged(table=self._engine.table))  # asks the policy anew
        self._settle(facts, self._origin_s)

    def step(self) -> None:
        """Jump to the next moment at which something happens."""
        self.work += 1
        self._step()

    def times(self) -> dict[str, JobTimes]:
        """Return when each job starts and completes, as far as that is known by now."""
        result = dict.fromkeys(
            (job.job_id for job in self._state.jobs), JobTimes(start_s=None, completion_s=None)
        )
        for job_id, start_s, end_s in self._ledger.times():
            result[job_id] = JobTimes(
                unknown=self._unknown.get(job_id, ""),
                start_s=None if start_s is None else max(start_s - self._origin_s, 0.0),
                completion_s=None if end_s is None else end_s - self._origin_s,
            )
        return result

    def _take_service_over(self) -> None:
        """Give the jobs the service of their past, which no event tells."""
        table = self._engine.jobs
        for job in self._state.jobs:
            number = table.number_of.get(job.job_id)
            if number is not None:
                record = table.record(table.row_of(number))
                since_s = record["workers_held"] * self._passed_s  # accrues on the way to now
                record["attained_worker_s"] = job.attained_worker_s - since_s

    def _answer(self, command: do.ComputeAllocation) -> ev.Event:
        if not self._entering:
            self.work += _QUESTION + len(command.problem.job_number) // _JOBS_PER_UNIT
            return super()._answer(command)
        self._timers.pop("grace", None)
        return ev.AllocationComputed(
            generation=command.generation,
            job_number=command.problem.job_number,
            allocation=self._running(command.problem),
        )

    def _running(self, problem: Problem) -> Allocation:
        """Return the allocation under which just what runs now runs."""
        number_of = self._engine.jobs.number_of
        position = {number: row for row, number in enumerate(problem.job_number.tolist())}
        row_of = {
            job.job_id: position[number_of[job.job_id]]
            for job in self._state.jobs
            if number_of.get(job.job_id) in position
        }
        x = np.zeros(problem.throughput.shape)
        shared: dict[tuple[int, ...], int] = {}
        for job in self._state.jobs:
            row, partner = row_of.get(job.job_id), row_of.get(job.partner)
            if row is None:
                continue
            if job.configuration != _NONE:
                x[row, job.configuration] = 1.0
            elif partner is not None:
                order = sorted((row, partner), key=lambda n: (int(problem.profile[n]), n))
                shared[tuple(order)] = job.pair
        return Allocation(
            x=x,
            pair_jobs=np.array(list(shared), dtype=np.int64).reshape(-1, 2),
            pair_index=np.array(list(shared.values()), dtype=np.int64),
            pair_x=np.ones(len(shared)),
        )

    def _due(self, now: float) -> list[ev.Event]:
        return [_released(event) for event in super()._due(now)]


def _released(event: ev.Event) -> ev.Event:
    """Return the release of the job whose wait after a failure is over, or the event itself."""
    if isinstance(event, ev.TimerFired) and event.timer.startswith(_RETRY):
        return ev.JobReleased(job_id=event.timer.removeprefix(_RETRY))
    return event


def _job(job: ForecastJob, origin_s: float) -> Job:
    return Job(
        job_id=job.job_id,
        job_type=job.job_type,
        # Who is twice as fast as the table says has half as much to do.
        total_steps=job.total_steps / job.speed,
        scale_factor=job.scale_factor,
        arrival_s=origin_s - job.age_s,
        weight=job.weight,
        deadline_s=None if job.deadline_in_s is None else origin_s + job.deadline_in_s,
        entity=job.entity,
        restart_s=job.restart_s,
        attempts_before=job.attempts,
        steps_before=min(job.steps_done, job.total_steps) / job.speed,
    )
