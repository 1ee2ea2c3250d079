"""Values of jobs, nodes, leases, shares and the service for people, at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.facts.requests import (
        FitConfiguration,
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
    """The live state of an active job, beyond its stored row.

    Attributes:
        status: its status now.
        reason: why it waits; None while it runs.
        steps_done: newest known count.
        lease_id: its lease; None if it holds no workers.
        worker_type: the type of its workers, ``a100 + v100`` if it holds both; empty without
            workers.
        workers: how many workers it holds.
        nodes: the nodes of its workers.
        lease_deadline_s: until when its lease holds; None if it holds no workers.
        lease_start_s: since when it has held them; None if it holds none.
        allocation: worker type -> fraction of time that the policy gives it.
        share: its effective throughput over that of a 1/n share; None if unknown.
        rho: finish-time fairness: the JCT that it heads for if the allocation stays, over its JCT
            on a 1/n share of the present jobs; None if unknown.
        gpu_use: part of recent time in which its GPUs computed; None if it is not measured.
        idle_since_s: since when its GPUs have hardly computed; None if they compute, or are not
            measured.
        position: its place among the jobs that wait for their turn, 1 for the next; None if it
            waits for no turn.
    """

    status: JobStatus
    reason: WaitReason | None
    steps_done: float
    lease_id: int | None
    worker_type: str
    workers: int
    nodes: tuple[str, ...]
    lease_deadline_s: float | None
    lease_start_s: float | None = None
    allocation: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    share: float | None = None
    rho: float | None = None
    gpu_use: float | None = None
    idle_since_s: float | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaInTheWay:
    """A quota that keeps a job waiting.

    Attributes:
        project: the project that has it.
        owner: the user, if it is a quota of each user; else empty.
        worker_type: the type of the workers; empty for all.
        limit: workers, as it was set.
        allowed: workers that may be held now: the limit, and workers that others lend.
        shared: whether several projects lend each other these workers, or may hold them together.
        held: workers held of it now.
        asks: workers that the job asks for, in its fastest configuration.
        missing: by how many workers it would have to be larger for the job to run.
        gain_steps_per_s: steps/s at which the job could then run at once, on idle workers; 0 if too
            few are idle.
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
        project: its project; empty if the reader may not see it.
        is_planned: whether it has workers in the next round.
        lag_s: seconds by which it lags behind its share; negative if it is ahead.
    """

    job_id: str
    project: str
    is_planned: bool
    lag_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job has its status.

    Attributes:
        job_id: the job.
        status: its status.
        reason: the first reason that holds; None while it runs or has ended.
        also: further reasons that hold, in order of precedence.
        message: the reason in words, with figures.
        unblocks: the remedy.
        trouble: the trouble that keeps its pod from starting, or ended its last one; None if there
            is no trouble.
        position: its place among the waiting jobs, 1 for the next; None if it waits for no turn.
        waiting: jobs that wait for their turn.
        ahead: up to ten jobs right before it in the queue, in the order of the queue.
        starts_s: when it is expected to start; None if it runs or the time is unknown.
        completes_s: when it is expected to complete; None if unknown.
        forecast: the method of the forecast, or why there is no time.
        stderr_tail: the last lines that a failed job wrote to its standard error: 20 lines and 4 kB
            at most. A pod has one stream for both outputs, so its lines are of both.
        granted: why it was given the lease that it holds; None if it holds no lease.
        ended: why its lease is ending, or its last one ended; None if its lease continues.
        quotas: the quotas that keep it waiting.
        plan: the plan of the lease that it holds, as its launch got it; empty without a plan.
        configurations: the ways in which it could run, the fastest first, if it gives its model.
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
    plan: str = ""
    configurations: tuple[FitConfiguration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedStarts:
    """When waiting jobs will start, by a replay of the cluster.

    Attributes:
        made_s: when the replay began; None without one.
        start_s: job -> its start; jobs whose start is not known are left out.
    """

    made_s: float | None = None
    start_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker.

    Attributes:
        index: the scheduler's number.
        local_index: the node's number.
        worker_type: its hardware class.
        in_service: whether it may be granted.
        problem: why it may not be granted, as far as the worker itself is the cause.
        shareable: whether two jobs could hold it, if only its node is considered.
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
            (it has missed its reports, and gets nothing new) or ``unknown`` (it has not reported
            since the scheduler started).
        reason: why it is cordoned, drained or lost.
        last_seen_s: when it last reported, or None.
        address: the address of rank 0 of its jobs.
        version: the version of its agent.
        workers: its workers, by local index.
        approved: worker type -> how many it may have; None if it may have any.
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
    """A lease in force.

    Attributes:
        lease_id: unique.
        job_id: the job that holds it.
        project: the job's project.
        attempt: 1 for the job's first lease.
        worker_type: the type of its workers, ``a100 + v100`` if it has both.
        workers: worker indices.
        nodes: names of their nodes.
        start_s: when it was granted.
        deadline_s: until when it holds, unless it is extended.
        state: ``granted``, ``running`` or ``stopping``.
        steps_done: the job's newest known count of steps.
        owner: the job's owner.
        gpu_use: part of recent time in which its GPUs computed; None if it is not measured.
        idle_since_s: since when its GPUs have hardly computed; None if they compute, or are not
            measured.
    """

    lease_id: int
    job_id: str
    project: str
    attempt: int
    worker_type: str
    workers: tuple[int, ...]
    nodes: tuple[str, ...]
    start_s: float
    deadline_s: float
    state: str
    steps_done: float
    owner: str = ""
    gpu_use: float | None = None
    idle_since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLeaseView:
    """A lease of the next round.

    Attributes:
        job_id: the job that holds it.
        project: the job's project.
        worker_type: the type of its workers; empty if they are of several types.
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
        round_number: the number of the next round; None until it is planned.
        begins_s: when that round begins; None until it is planned.
        ends_s: end of the last planned round; None while nothing is active.
        leases: those that continue, then those that wait for workers to become free.
    """

    round_number: int | None
    begins_s: float | None
    ends_s: float | None
    leases: tuple[PlannedLeaseView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationView:
    """The allocation in force.

    Attributes:
        policy: the policy that gave it.
        computed_s: when it was taken over; None before the first.
        solve_s: seconds that the solver took; None before the first.
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
        round_number: the number of the current round.
        round_ends_s: when it ends; None while nothing is active.
        round_length_s: seconds of a round.
        workers: worker type -> workers known.
        in_service: worker type -> workers that may be granted.
        busy: worker type -> workers under leases.
        utilisation: busy over in service; 0 without workers.
        jobs: status -> active jobs.
        waiting: reason -> waiting jobs.
        prices: worker type -> USD of one worker for an hour, if it has a price.
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
    prices: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """The quality of the last planned round.

    ``scheduler.engine.rounds.certificate`` computes it.

    Attributes:
        gap: largest part of the best value that another choice of whole workers could have gained;
            None for policies with rounds that follow the allocation by lag alone.
        fluid_gap: the same if workers could be divided.
        behind_rounds: by how many rounds the job or pair furthest behind the allocation was behind
            at the end.
        off_rounds: the mean distance from the allocation then, in rounds.
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
        name: the name of the policy.
        parameters: name -> value as text, of those that were set.
        agnostic: whether it is hidden from the policy that worker types differ.
        space_sharing: whether two jobs may share workers.
        since_s: since when it is in force.
        actor: the user that put it in force.
        last_solve_s: seconds that its last answer took; None before the first.
        last_failure: why it gave no answer the last time; empty if it gave one.
        last_round: the quality of the last planned round; None before the first since the start.
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
class HoldingChange:
    """A job that would hold other workers in the next round.

    Attributes:
        job_id: the job.
        project: its project.
        before: worker type -> workers under the policy in force; empty if none.
        after: the same under the other policy.
    """

    job_id: str
    project: str
    before: Mapping[str, int]
    after: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTrial:
    """What another policy would change in the next round.

    Attributes:
        changes: jobs that would hold other workers, by id; empty if it gives no answer.
        same: how many jobs would hold the same.
        note: why the policy gives no answer; empty if it gives one.
    """

    changes: tuple[HoldingChange, ...]
    same: int
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetView:
    """A project's use of its budget of this month.

    Attributes:
        used_gpu_hours: worker-hours under leases.
        used_usd: their cost, by current prices.
        part: the larger used part of the two budgets.
        state: ``ok``, ``warned`` or ``spent``. If it is spent, the project's jobs get no workers
            beyond this round.
        month_end_s: when the next month begins.
    """

    used_gpu_hours: float
    used_usd: float
    part: float
    state: str
    month_end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectView:
    """A project with its limits and its use.

    Attributes:
        limits: its limits.
        active_jobs: its jobs that have not ended.
        admitted_workers: workers that its admitted jobs ask for.
        running_workers: workers that its jobs hold.
        usage_worker_s: worker-seconds of the entity of its name that have not faded; None if the
            policy has no half-life.
        effective_weight: that entity's weight, adjusted for its use; None if the policy has no
            half-life.
        budget: its use of its budget; None if it has no budget.
        dues: the workers that its jobs are due; None if no job of it waits for workers or holds
            them.
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
    """A reservation, its state and its workers.

    Attributes:
        reservation: the reservation as it was made.
        state: ``planned``, ``in force`` or, until it is deleted, ``over``.
        assigned: workers assigned to it; fewer than it asks for if there are no more.
        used: how many of them its owner's jobs hold now.
        nodes: node -> how many of them.
    """

    reservation: Reservation
    state: str
    assigned: int
    used: int
    nodes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairView:
    """How much two jobs slow down if they share workers.

    Attributes:
        job_type: the job type of one job.
        with_job_type: the job type of the other.
        scale_factor: workers that they share.
        worker_type: hardware class.
        part: speed of the one while they share, over its speed alone.
        with_part: the same for the other job.
    """

    job_type: str
    with_job_type: str
    scale_factor: int
    worker_type: str
    part: float
    with_part: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputView:
    """The known throughput of a job type on a worker type.

    Attributes:
        job_type: the job type.
        scale_factor: workers of the job.
        worker_type: hardware class.
        steps_per_s: steps/s of the whole job, the figure for policies.
        source: ``measured``, ``declared``, ``estimated`` or ``assumed``.
        declared: the declared steps/s, or None.
        measured: the measured steps/s, or None.
        deviation: relative standard error of the figure, or None.
        samples: how many periods were measured.
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
    """The health of the daemon.

    Attributes:
        ready: whether requests can be served.
        leading: whether this process schedules.
        leader_address: the address for writes; empty if unknown.
        problems: current problems, in words.
        started_s: when the process started.
        version: of the program.
    """

    ready: bool
    leading: bool
    leader_address: str
    problems: tuple[str, ...]
    started_s: float
    version: str
