"""The forecast: when each job starts and completes, computed from a copy of control.

The engine goes on from its present state, and control's own rules decide about admission and time
limits (``scheduler.control.admission``). Columns of simulated workers replace the agents: a report
for every lease would take twenty times as long.
"""

from __future__ import annotations

import math
import pickle
from copyreg import dispatch_table
from dataclasses import dataclass, replace
from io import BytesIO
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.knowledge import LearnedKnowledge
from planner.registry import make_sources
from policies.registry import make_policy
from scheduler.control.admission import Admission
from scheduler.control.control import Control
from scheduler.control.facts.specs import engine_job
from scheduler.control.jobs.submit import names_of
from scheduler.control.jobs.table import restart_costs
from scheduler.control.leases.progress import keeps_steps, own_speed, steps_now
from scheduler.control.state.control_copy import copy_of, state_of
from scheduler.domain.jobs.job import ALMOST_DONE, JobStatus
from scheduler.domain.lease_life import EndReason, RevokeReason
from scheduler.domain.throughputs.ways import Source
from scheduler.engine.tables.jobs import HELD, NONE
from scheduler.errors import LeaseholdError
from simulator.forecast.standstill import Standstill
from simulator.simulation import Simulation
from simulator.world.beginning import Beginning, RunningLease
from simulator.world.failures import FailureModel
from simulator.world.overheads import Overheads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plans.hardware import Hardware
    from scheduler.control.facts.facts import Fact
    from scheduler.control.state.control_copy import ControlCopy
    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.leases import LiveLease
    from scheduler.control.state.state import ControlState
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.jobs.job import Job
    from scheduler.engine.engine import Engine

_MONTH_S = 30 * 86400.0
#: Work after which a replay returns its result so far, as ``Outlook.work`` counts it: five seconds
#: of one core with hard solves, one with easy ones. Work is counted, not timed, so that equal
#: states have equal forecasts on a busy machine too.
MOST_WORK = 40_000
#: Weight of a question to the policy relative to a moment of the replay (0.3 ms): a fixed part, and
#: one unit for this many jobs in it. Measured with 10 to 1,000 jobs: 2 to 16 ms under policies that
#: solve.
_QUESTION, _JOBS_PER_UNIT = 10, 20
#: Why a job ends without completing.
_ENDINGS = {
    "time_limit": "its time limit is over before it is done",
    "dependency_failed": "a job that it depends on does not complete",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForecastInput:
    """The input of a forecast.

    Attributes:
        control: a copy of control's state.
        now_s: the time; not before the copy's.
        sources: plugins that know further ways to run jobs, by the names of their entry points.
        hardware: accelerators for which models are planned; None for the bundled ones.
        fact: what control takes in first; None for nothing.
    """

    control: ControlCopy
    now_s: float
    sources: tuple[str, ...] = ()
    hardware: Hardware | None = None
    fact: Fact | None = None

    def taken_in(self) -> ForecastInput:
        """Return the state just after control has taken the fact in."""
        if self.fact is None:
            return self
        control = Control(state_of(self.control, self.knowledge()))
        control.handle(self.fact, now_s=self.now_s)
        return replace(self, control=copy_of(control.state), fact=None)

    def knowledge(self) -> LearnedKnowledge:
        """Return the knowledge of control."""
        return LearnedKnowledge(
            self.control.knowledge, sources=make_sources(self.sources), hardware=self.hardware
        )

    def pack(self) -> bytes:
        """Return the input as bytes for another process."""
        out = BytesIO()
        pickler = pickle.Pickler(out)
        pickler.dispatch_table = {**dispatch_table, **_REDUCE}
        pickler.dump(self)
        return out.getvalue()


def _reduce(mapping: Mapping[object, object]) -> tuple[Any, ...]:
    return _proxy, (dict(mapping),)


def _proxy(values: dict[object, object]) -> Mapping[object, object]:
    return MappingProxyType(values)


#: Types that the library cannot pickle.
_REDUCE: Mapping[type, Any] = {MappingProxyType: _reduce}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """When a job starts and completes, in seconds from now.

    Attributes:
        start_s: its first lease from now on; 0 if it runs. None if it was not reached.
        completion_s: when its last step is done. None if it was not reached.
        unknown: why ``completion_s`` cannot be known; empty otherwise.
        ending: why it will end without completing; empty otherwise.
    """

    start_s: float | None
    completion_s: float | None
    unknown: str = ""
    ending: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The future if no job comes, nothing fails and the throughputs are right.

    Attributes:
        times: job id -> times, for every job that has not ended and is not held.
        reached_s: end of the replay, in seconds from now.
        complete: whether every job with a knowable end has ended in it.
        work: its work; see ``Outlook.work``.
        note: why it ended early; empty if it did not.
    """

    times: Mapping[str, JobTimes]
    reached_s: float
    complete: bool
    work: int
    note: str = ""


def forecast_packed(
    packed: bytes, *, limit_s: float = _MONTH_S, most_work: int = MOST_WORK
) -> Forecast:
    """Do the same as ``forecast`` with the bytes of ``ForecastInput.pack``."""
    asked: ForecastInput = pickle.loads(packed)  # noqa: S301  this program's own
    return forecast(asked, limit_s=limit_s, most_work=most_work)


def forecast(
    asked: ForecastInput, *, limit_s: float = _MONTH_S, most_work: int = MOST_WORK
) -> Forecast:
    """Replay the decisions of control from now on.

    Args:
        asked: the input.
        limit_s: how far to look ahead, in simulated seconds.
        most_work: work after which it returns its result so far; see ``Outlook.work``.

    Raises:
        LeaseholdError: the policy is unknown, or its parameters are wrong.
    """
    outlook = Outlook(asked.taken_in())
    note = ""
    try:
        outlook.enter()
        while outlook.left and not note:
            note = outlook.reason_to_stop(limit_s, most_work)
            if outlook.stands_still():
                break
            if not note:
                outlook.step()
    except LeaseholdError as error:
        note = str(error)
    return Forecast(
        times=outlook.times(),
        reached_s=outlook.reached_s,
        complete=not outlook.left,
        work=outlook.work,
        note=note,
    )


class Outlook:
    """The engine's future from a copy of control on.

    Attributes:
        left: ids of the jobs that have not ended and have a knowable end.
    """

    def __init__(self, asked: ForecastInput) -> None:
        copied, self._now_s = asked.control, asked.now_s
        self._state = state = state_of(copied, asked.knowledge())
        self._admission = Admission(state)
        choice = state.policy.choice
        self._policy = make_policy(choice.name, choice.parameters)
        self._steps = 0
        self._prospects = _prospects(state, self._now_s)
        self._shown = [one for one in self._prospects if not one.held]
        self.left = {one.job.job_id for one in self._shown if not one.unknown}
        self._question = copied.question
        self._run = self._simulation(copied)
        self._standstill = Standstill(self._run, state.engine)
        #: job id -> why its end cannot be known, as the run has shown.
        self._found: dict[str, str] = {}

    def _simulation(self, copied: ControlCopy) -> Simulation:
        state, prospects = self._state, self._prospects
        return Simulation(
            cluster=state.engine.cluster,
            jobs=[one.job for one in prospects],
            profiles=[one.profile for one in prospects],
            table=_best_table(state),
            policy=self._policy,
            settings=state.engine.settings,
            overheads=Overheads(),
            failures=FailureModel(),
            beginning=Beginning(
                engine=state.engine,
                admission=self._admission,
                now_s=self._now_s,
                timers=copied.timers,
                held=_held(state, prospects, self._now_s),
                total_steps=np.array([one.total_steps for one in prospects]),
                safe_steps=np.array([one.safe_steps for one in prospects]),
                most_left=np.array(
                    [math.inf if one.saves else one.safe_steps for one in prospects]
                ),
                most_told=np.array([one.most_told for one in prospects]),
                launch_s=np.array([one.launch_s for one in prospects]),
                # A job that saves its work leaves at its notice; others work until they must leave.
                notice_s=np.array([0.0 if one.saves else math.inf for one in prospects]),
                pace=np.array([one.pace for one in prospects]),
            ),
        )

    @property
    def engine(self) -> Engine:
        """The engine, to be read only."""
        return self._state.engine

    @property
    def work(self) -> int:
        """Work so far: moments and questions, which weigh more the more jobs they have."""
        asked = _QUESTION * self._run.questions + self._run.jobs_asked // _JOBS_PER_UNIT
        return self._steps + asked

    @property
    def reached_s(self) -> float:
        """Time of the replay, in seconds from now."""
        return self._run.now_s - self._now_s

    @property
    def is_over(self) -> bool:
        """Whether nothing more can happen."""
        return self._run.is_over

    def enter(self) -> None:
        """Handle the immediate consequences of the present state."""
        self._run.enter(self._question)
        self._note_ends()

    def step(self) -> None:
        """Jump to the next event."""
        self._steps += 1
        self._run.step()
        self._note_ends()

    def _note_ends(self) -> None:
        self.left -= self._admission.ended.keys()

    def reason_to_stop(self, limit_s: float, most_work: int) -> str:
        """Return why the replay should stop; empty if it should go on."""
        if self.reached_s > limit_s:
            return f"looked {limit_s:.0f} s ahead"
        if self.work >= most_work:
            return f"stopped after {self.work} units of work"
        if self.left.isdisjoint(self._state.engine.jobs.number_of):
            return "the other jobs wait for some of which nobody knows when they will be done"
        return ""

    def stands_still(self) -> bool:
        """Return whether nothing will change; the ends of the other jobs are then unknowable."""
        if not self._standstill.reached(self.left):
            return False
        holders = self._standstill.holders
        whose = "whose end nobody knows" if len(holders) == 1 else "whose ends nobody knows"
        held = f"what it needs is held by {names_of(holders)}, {whose}"
        if not holders:
            held = "what it needs is not in service, and nobody knows when it will be"
        known = self._state.engine.jobs.number_of
        for job_id in self.left:
            self._found[job_id] = held
            if job_id not in known:
                waits = sorted(self._state.jobs.by_id[job_id].waits_for)
                self._found[job_id] = f"it waits for {names_of(waits)}, whose end nobody knows"
        self.left = set()
        return True

    def times(self) -> dict[str, JobTimes]:
        """Return when each job starts and completes, as far as it is known by now."""
        found = {job_id: rest for job_id, *rest in self._run.times()}
        return {one.job.job_id: self._times(one, *found[one.job.job_id]) for one in self._shown}

    def _times(self, one: _Prospect, start_s: float | None, end_s: float | None) -> JobTimes:
        record = self._admission.ended.get(one.job.job_id)
        ending = ""
        if record is not None and record.status is not JobStatus.COMPLETED:
            ending = _ENDINGS.get(record.reason, record.reason or record.status.value)
        if one.runs:
            start_s = self._now_s
        return JobTimes(
            start_s=None if start_s is None else start_s - self._now_s,
            completion_s=None if end_s is None else end_s - self._now_s,
            unknown=one.unknown or self._found.get(one.job.job_id, ""),
            ending=ending,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prospect:
    """The assumed truth about a job; see ``Beginning``.

    Attributes:
        job: the engine's job, present or future.
        profile: row of the table.
        held: whether a user holds it.
        runs: whether it holds workers that it is not about to give back.
        saves: whether some of its work outlives a lease that ends early; if not, it restarts.
        steps_done: by now.
        unknown: why its end cannot be known; empty otherwise. Unless the job only waits for others,
            it then never ends, and counts as nearly done once it has done all of its steps, as in
            the service.
    """

    job: Job
    profile: int
    held: bool
    runs: bool
    steps_done: float
    total_steps: float
    safe_steps: float
    saves: bool
    most_told: float
    launch_s: float
    pace: float
    unknown: str


def _best_table(state: ControlState) -> ConfigurationTable:
    """Return the best estimates of throughputs, independent of the policies' own table."""
    return state.knowledge.table(
        state.engine.present,
        space_sharing=state.policy.choice.space_sharing,
        exclusive=state.nodes.exclusive,
    )


def _prospects(state: ControlState, now_s: float) -> list[_Prospect]:
    """Return the assumed truth about each job, first the jobs that the engine knows."""
    table, sources = _best_table(state), _Sources(state)
    engine = state.engine
    found = [
        _active(state, table, sources, row, now_s)
        for row in range(len(engine.jobs))
        if engine.jobs.job_of[int(engine.jobs["number"][row])].job_id in state.jobs.by_id
    ]
    open_ended = {one.job.job_id for one in found if one.unknown or one.held}
    for record in state.jobs.parked():
        one = _parked(state, sources, record, open_ended)
        found.append(one)
        if one.unknown or one.held:
            open_ended.add(record.job_id)
    return found


def _active(
    state: ControlState, table: ConfigurationTable, sources: _Sources, row: int, now_s: float
) -> _Prospect:
    entry = state.engine.jobs.record(row)
    job = state.engine.jobs.job_of[int(entry["number"])]
    record = state.jobs.by_id[job.job_id]
    live = state.leases.by_id.get(int(entry["lease"]))
    steps, total = float(entry["steps_done"]), float(entry["total_steps"])
    if live is not None:
        steps = max(steps, steps_now(state, live, now_s=now_s))
    speed = 0.0
    if live is not None and int(entry["pair"]) == NONE:
        speed = _speed(state, sources, record, live)
    expected = float(table.throughput[int(entry["profile"]), max(int(entry["configuration"]), 0)])
    unknown = _unknown(sources, record, steps, speed=speed)
    return _Prospect(
        job=job,
        profile=int(entry["profile"]),
        held=int(entry["status"]) == HELD,
        runs=live is not None and not live.revoked,
        steps_done=min(steps, total),
        total_steps=math.inf if unknown else total,
        safe_steps=record.steps_done,
        saves=keeps_steps(record, live),
        most_told=ALMOST_DONE * total if unknown else math.inf,
        launch_s=float(entry["restart_s"]),
        pace=speed / expected if speed > 0.0 and expected > 0.0 else 1.0,
        unknown=unknown,
    )


def _parked(
    state: ControlState, sources: _Sources, record: JobRecord, open_ended: set[str]
) -> _Prospect:
    job = engine_job(
        record.spec,
        job_id=record.job_id,
        arrival_s=record.submitted_s,
        weight=record.weight,
        deadline_s=record.deadline_s,
        attempts=record.attempts,
        steps_done=record.steps_done,
        restarts=restart_costs(state, record.spec),
    )
    unknown = _unknown(sources, record, record.steps_done, speed=0.0)
    waits = sorted(record.waits_for & open_ended)
    because = f"it waits for job '{waits[0]}', whose end nobody knows" if waits else ""
    return _Prospect(
        job=job,
        profile=record.profile,
        held=record.status is JobStatus.HELD,
        runs=False,
        steps_done=record.steps_done,
        total_steps=math.inf if unknown else job.total_steps,
        safe_steps=record.steps_done,
        saves=keeps_steps(record, None),
        most_told=ALMOST_DONE * job.total_steps if unknown else math.inf,
        launch_s=job.usual_restart_s,
        pace=1.0,
        unknown=unknown or because,
    )


def _held(
    state: ControlState, prospects: list[_Prospect], now_s: float
) -> tuple[RunningLease, ...]:
    by_id = {one.job.job_id: one for one in prospects}
    return tuple(
        _lease(state, live, by_id[live.lease.job_id], now_s)
        for _, live in sorted(state.leases.by_id.items())
    )


def _lease(state: ControlState, live: LiveLease, one: _Prospect, now_s: float) -> RunningLease:
    launch_s = 0.0
    if live.running_s is None:
        launch_s = max(live.lease.start_s + one.launch_s - now_s, 0.0)
    over = None
    match live.revoked:
        case "":
            pass
        case RevokeReason.WORKER_LOST:
            over = live.promised_s + state.settings.margin_s, EndReason.LOST
        case RevokeReason.CANCEL:
            over = now_s, EndReason.CANCELLED
        case RevokeReason.OUTBID:
            over = live.deadline_s, EndReason.RELEASED
        case _:
            over = live.deadline_s, EndReason.CANCELLED
    return RunningLease(lease=live.lease, steps_done=one.steps_done, launch_s=launch_s, over=over)


def _speed(state: ControlState, sources: _Sources, record: JobRecord, live: LiveLease) -> float:
    """Return the steps/s for the forecast of a running job; 0 to use the table.

    A job's own reports are more precise than the figures of its type, except in the first moments
    of a type that has been measured often.
    """
    if record.spec.total_steps is None:
        return 0.0
    speed, stretch_s = own_speed(live)
    short = stretch_s < state.settings.learning.least_s
    return 0.0 if short and Source.MEASURED in sources.of(record.profile) else speed


def _unknown(sources: _Sources, record: JobRecord, steps: float, *, speed: float) -> str:
    """Return why a job's end cannot be known; empty if it can be computed."""
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
    """Sources of the throughputs in all ways that a job could run; by profile."""

    def __init__(self, state: ControlState) -> None:
        self._state = state
        self._known: dict[int, set[Source]] = {}

    def of(self, profile: int) -> set[Source]:
        """Return the sources for a profile; cached, since it may have thousands of jobs."""
        if profile not in self._known:
            knowledge = self._state.knowledge
            found = knowledge.ways(knowledge.key(profile), self._state.engine.present)
            self._known[profile] = {way.estimate.source for way in found}
        return self._known[profile]
