"""What people are shown of jobs, nodes, leases, shares and the service: values of one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.facts.requests import (
        ProjectLimits,
    )
    from scheduler.domain.facts.causes import Cause
    from scheduler.domain.facts.reasons import WaitReason
    from scheduler.domain.facts.troubles import Trouble
    from scheduler.domain.jobs.job import JobStatus
    from scheduler.domain.reservation import Reservation
    from scheduler.views.dues import Dues


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """What is known of an active job beyond its stored row.

    Attributes:
        status: where it stands now.
        reason: why it waits; None while it runs.
        steps_done: newest count that is known.
        lease_id: its lease, or None.
        worker_type: what it runs on, or empty.
        workers: how many.
        nodes: where.
        deadline_s: until when its lease holds, or None.
        allocation: worker type -> fraction of time that the policy gives it.
        share: its effective throughput over that of a 1/n share; None where that is unknown.
        rho: the JCT that it heads for if X stays as it is, over its JCT in a 1/n share; None if
            that is unknown.
        gpu_use: share of the time in which its GPUs computed of late; None: nobody measures it.
        idle_since_s: since when they hardly do; None where they do, or nobody measures it.
    """

    status: JobStatus
    reason: WaitReason | None
    steps_done: float
    lease_id: int | None
    worker_type: str
    workers: int
    nodes: tuple[str, ...]
    deadline_s: float | None
    allocation: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    share: float | None = None
    rho: float | None = None
    gpu_use: float | None = None
    idle_since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaInTheWay:
    """A quota that keeps a job waiting.

    Attributes:
        project: whose it is.
        owner: the user, where it is a quota of each; else empty.
        worker_type: of which workers; empty for all.
        limit: workers, as it was set.
        allowed: that may be held at present: the limit, and what others lend.
        shared: whether it is what several projects lend each other, or may hold together.
        held: workers held of it now.
        asks: that the job asks for, in the way in which it would run fastest.
        missing: by how many workers it would have to be larger for the job to run.
        gain_steps_per_s: steps/s at which the job could then run at once, on workers that are idle;
            0 where none are.
    """

    project: str
    owner: str
    worker_type: str
    limit: int
    allowed: int
    shared: bool
    held: int
    asks: int
    missing: int
    gain_steps_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAhead:
    """A job before another one in the queue.

    Attributes:
        job_id: its id; empty if the reader may not see its project.
        project: its project; empty likewise.
        is_planned: whether it has workers in the next round.
        lag_s: seconds by which it lags behind its share; negative if it is ahead.
    """

    job_id: str
    project: str
    is_planned: bool
    lag_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job is where it is.

    Attributes:
        job_id: which.
        status: where it stands.
        reason: the first reason that holds; None while it runs or has ended.
        also: further reasons that hold, in order of precedence.
        message: in words, with figures.
        unblocks: what would unblock it.
        trouble: what keeps its pod from starting, or ended its last one; None where nothing did.
        position: its place among the waiting jobs, 1 for the next; None where it waits for no turn.
        waiting: jobs that wait for their turn.
        ahead: up to ten jobs right before it in the queue, in the order of the queue.
        starts_s: when it is expected to start; None where it runs or nobody knows.
        completes_s: when it is expected to complete; None where nobody knows.
        forecast: how the times were found, or why there are none.
        stderr_tail: the last lines that a failed job wrote to its standard error.
        granted: why it was given the lease that it holds; None where it holds none.
        ended: why its lease is coming to an end, or its last one has ended; None where it goes on.
        quotas: that keep it waiting.
    """

    job_id: str
    status: JobStatus
    reason: WaitReason | None
    also: tuple[WaitReason, ...] = ()
    message: str
    unblocks: str = ""
    trouble: Trouble | None = None
    position: int | None = None
    waiting: int = 0
    ahead: tuple[JobAhead, ...] = ()
    starts_s: float | None = None
    completes_s: float | None = None
    forecast: str = ""
    stderr_tail: str = ""
    granted: Cause | None = None
    ended: Cause | None = None
    quotas: tuple[QuotaInTheWay, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker.

    Attributes:
        index: the scheduler's number.
        local_index: the node's number.
        worker_type: its hardware class.
        in_service: whether it may be granted.
        problem: why not, as far as the worker itself is the cause.
        shareable: whether two jobs could hold it, as far as its node goes.
        jobs: ids of the jobs on it.
    """

    index: int
    local_index: int
    worker_type: str
    in_service: bool
    problem: str = ""
    shareable: bool = True
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node.

    Attributes:
        name: unique.
        state: ``ready``, ``cordoned``, ``draining``, ``drained``, ``lost``, ``silent``
            (it has missed its reports, and gets nothing new) or ``unknown`` (the scheduler has
            started and not heard of it yet).
        reason: why it is cordoned, drained or lost.
        last_seen_s: when it last reported, or None.
        address: where its jobs' rank 0 can be reached.
        version: of its agent.
        workers: by local index.
        approved: worker type -> how many it may have; None where it may have any.
        refused: worker type -> how many it reports beyond that.
    """

    name: str
    state: str
    reason: str
    last_seen_s: float | None
    address: str
    version: str
    workers: tuple[WorkerView, ...]
    approved: Mapping[str, int] | None = None
    refused: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """A lease in force."""

    lease_id: int
    job_id: str
    project: str
    attempt: int
    worker_type: str
    workers: tuple[int, ...]
    nodes: tuple[str, ...]
    start_s: float
    deadline_s: float
    state: str  #: ``granted``, ``running``, ``stopping``
    steps_done: float
    owner: str = ""
    gpu_use: float | None = None  #: see ``LiveJob``
    idle_since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLeaseView:
    """A lease of the next round.

    Attributes:
        job_id: the job that holds it.
        project: of the job.
        worker_type: of the workers; empty if they are of several types.
        workers: worker indices.
        nodes: names of their nodes.
        begins_s: latest time at which its workers are free.
        ends_s: when it ends unless it is extended.
        goes_on: whether the job keeps workers that it holds now.
    """

    job_id: str
    project: str
    worker_type: str
    workers: tuple[int, ...]
    nodes: tuple[str, ...]
    begins_s: float
    ends_s: float
    goes_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """The plan of the next round.

    Attributes:
        round_number: of the next round; None until it is planned.
        begins_s: start of that round; None until it is planned.
        ends_s: end of the last planned round; None while nothing is active.
        leases: those that go on, then those that wait for workers to become free.
    """

    round_number: int | None
    begins_s: float | None
    ends_s: float | None
    leases: tuple[PlannedLeaseView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationView:
    """The allocation in force.

    Attributes:
        policy: whose answer it is.
        computed_s: when it was taken over; None before the first.
        solve_s: how long the solver took.
        shares: job id -> worker type -> fraction of time.
        received: job id -> worker type -> fraction of time received since the allocation began.
    """

    policy: str
    computed_s: float | None
    solve_s: float | None
    shares: Mapping[str, Mapping[str, float]]
    received: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster in figures.

    Attributes:
        round_number: of the current round.
        round_ends_s: when it ends; None while nothing is active.
        round_length_s: the scheduling quantum.
        workers: worker type -> workers known.
        in_service: worker type -> workers that may be granted.
        busy: worker type -> workers under leases.
        utilisation: busy over in service; 0 without workers.
        jobs: status -> active jobs.
        waiting: reason -> waiting jobs.
    """

    round_number: int
    round_ends_s: float | None
    round_length_s: float
    workers: Mapping[str, int]
    in_service: Mapping[str, int]
    busy: Mapping[str, int]
    utilisation: float
    jobs: Mapping[str, int]
    waiting: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """How good the last planned round was, see ``scheduler.engine.rounds.certificate``.

    Attributes:
        gap: part of the best value that another choice of whole workers could have gained at most;
            None for policies whose rounds follow X by lag alone.
        fluid_gap: the same if workers could be divided.
        behind_rounds: by how many rounds what was furthest behind X was so at its end.
        off_rounds: how far from X things were then, on average.
        candidates: configurations and pairs that could run.
    """

    gap: float | None
    fluid_gap: float | None
    behind_rounds: float
    off_rounds: float
    candidates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView:
    """The policy in force.

    Attributes:
        last_round: how good the last planned round was; None before the first since the start.
    """

    name: str
    parameters: Mapping[str, str]
    agnostic: bool
    space_sharing: bool
    since_s: float
    actor: str
    last_solve_s: float | None
    last_failure: str
    last_round: RoundView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetView:
    """What a project has used of its budget of this month.

    Attributes:
        used_gpu_hours: worker-hours under leases.
        used_usd: what they cost, by the prices of now.
        part: the largest of what was used over what may be.
        state: ``ok``, ``warned`` or ``spent``; the project's jobs wait where it is spent.
        month_end_s: when the next month begins.
    """

    used_gpu_hours: float
    used_usd: float
    part: float
    state: str
    month_end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectView:
    """A project with its limits and what it uses.

    Attributes:
        limits: what it may have.
        active_jobs: that have not ended.
        admitted_workers: that its admitted jobs ask for.
        running_workers: under leases.
        usage_worker_s: worker-seconds of the entity of its name that have not faded; None where the
            policy has no half-life.
        effective_weight: what that entity's weight counts for; None likewise.
        budget: what it has used of its budget; None where it has none.
        dues: what X gives its jobs and what they have received; None without jobs in the engine.
    """

    limits: ProjectLimits
    active_jobs: int
    admitted_workers: int
    running_workers: int
    usage_worker_s: float | None = None
    effective_weight: float | None = None
    budget: BudgetView | None = None
    dues: Dues | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedView:
    """A reservation.

    Attributes:
        reservation: what was asked for.
        state: ``planned``, ``in force`` or, until it is forgotten, ``over``.
        assigned: workers that it is to have; fewer than it asks for where there are no more.
        used: those of them that its owner's jobs hold now.
        nodes: where they are: node -> how many.
    """

    reservation: Reservation
    state: str
    assigned: int
    used: int
    nodes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairView:
    """What sharing workers costs two jobs.

    Attributes:
        job_type: of one job.
        with_job_type: of the other.
        scale_factor: workers that they share.
        worker_type: hardware class.
        part: speed of the one while they share, over its speed alone.
        with_part: likewise of the other.
    """

    job_type: str
    with_job_type: str
    scale_factor: int
    worker_type: str
    part: float
    with_part: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputView:
    """What is known of a job type on a worker type.

    Attributes:
        job_type: key.
        scale_factor: workers.
        worker_type: hardware class.
        steps_per_s: what policies are told.
        source: ``measured``, ``declared``, ``estimated`` or ``assumed``.
        declared: as declared, or None.
        measured: as measured, or None.
        deviation: relative standard deviation of what was measured, or None.
        samples: stretches that were measured.
    """

    job_type: str
    scale_factor: int
    worker_type: str
    steps_per_s: float
    source: str
    declared: float | None
    measured: float | None
    deviation: float | None
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the daemon is.

    Attributes:
        ready: whether requests can be served.
        leading: whether this process schedules.
        leader_address: where writes are to be sent; empty where unknown.
        problems: what is wrong, in words.
        started_s: when the process started.
        version: of the program.
    """

    ready: bool
    leading: bool
    leader_address: str
    problems: tuple[str, ...]
    started_s: float
    version: str
