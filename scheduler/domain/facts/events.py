"""Events: past facts, passed to the engine. Batches are arrays, so that a round costs no loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.domain.cluster import Node, WorkerType
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.jobs.job import Job
    from scheduler.domain.lease_life import EndReason
    from scheduler.domain.problem import Entity
    from scheduler.domain.quota import Quota
    from scheduler.domain.reservation import Reservation


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationsChanged:
    """The planner knows more profiles, or better throughputs. Old rows keep their index."""

    table: ConfigurationTable


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """A user submitted a job; ``profile`` is its row of the configuration table."""

    job: Job
    profile: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    """A user cancelled a job."""

    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHeld:
    """A user held a job: it does not run until it is released."""

    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased:
    """A user released a held job."""

    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeferred:
    """A waiting job may not run before a time, and may from then on; replaces an earlier time.

    Attributes:
        job_id: which; without effect on one that holds a lease.
        until_s: the time; infinite: until another deferral gives a time that has come.
    """

    job_id: str
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FundsChanged:
    """The budget of a project is spent, or has room again.

    Attributes:
        job_ids: its jobs.
        unfunded: whether they are granted and extended nothing from now on; leases go on until
            their round ends.
    """

    job_ids: tuple[str, ...]
    unfunded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightChanged:
    """A user changed a job's weight."""

    job_id: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineChanged:
    """A user changed a job's deadline; None removes it."""

    job_id: str
    deadline_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RestartsMeasured:
    """What a change of workers costs jobs is known better now.

    Attributes:
        job_ids: (n,) which; those that are not known (any more) are passed over.
        restart_s: (n,) seconds of work that a change of workers costs each.
        restarts: (n,) the same on some workers, see ``Job.restarts``; empty for none.
    """

    job_ids: tuple[str, ...]
    restart_s: FloatArray
    restarts: tuple[Mapping[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LengthsRevised:
    """Jobs are expected to be longer or shorter than before.

    Attributes:
        job_ids: (n,) ids; unknown ones are passed over.
        total_steps: (n,) steps that each is expected to have in all; at least the steps done.
    """

    job_ids: tuple[str, ...]
    total_steps: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequeued:
    """A running job gives its workers back and waits again; no failure.

    Without effect on a job that holds no lease, or one that is coming to an end already.

    Attributes:
        job_id: which.
        reason: of the revocation: ``requeue`` if a user asked for it.
    """

    job_id: str
    reason: str = "requeue"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityChanged:
    """A user set the weight or the inner policy of an entity, known or new."""

    entity: Entity


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasChanged:
    """A user set how many workers projects may hold at once.

    Attributes:
        quotas: all that are in force from now on.
        project: the project with changed quotas; empty if not a single one.
        owners: job id -> project and owner, of jobs from a release without quotas.
    """

    quotas: tuple[Quota, ...]
    project: str = ""
    owners: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationsChanged:
    """A user made or deleted a reservation, or the window of one has passed.

    Attributes:
        reservations: all that there are from now on.
        name: the one that has changed.
        members: reservation -> ids of the jobs that are there and may use its workers.
    """

    reservations: tuple[Reservation, ...]
    name: str
    members: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEntitled:
    """A job that is about to be submitted may use the workers of reservations.

    Attributes:
        job_id: which.
        reservations: their names.
    """

    job_id: str
    reservations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanged:
    """Another policy answers from now on, or the same one is to be asked again.

    A new question is asked in any case; an answer to an older one is dropped.

    Attributes:
        policy: its name, for the history.
        time_dependent: whether its answer changes with progress alone.
        record: whether the history is to say so; not after a restart, when the policy is the same
            and the answer to the open question will never come.
        usage_half_life_s: in which half of what entities have used is forgotten; 0 if the policy
            does not ask for it.
    """

    policy: str
    time_dependent: bool
    record: bool = True
    usage_half_life_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesJoined:
    """Nodes came into the cluster; their workers are in service and numbered on.

    A node may have the name of one with all workers retired. The workers of the old one keep their
    numbers for the history, and it is renamed ``NAME~retired-FIRST``, after its first
    worker, so that names stay unique.

    Attributes:
        nodes: in the order in which their workers are numbered.
        worker_types: types that the cluster did not have; appended to its own.
    """

    nodes: tuple[Node, ...]
    worker_types: tuple[WorkerType, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersRetired:
    """Workers are removed: their node was removed, or its workers changed.

    As if lost, but they never return and no longer count as what a job could one day run on.
    """

    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersDrained:
    """A user takes workers out of service; their jobs have time to checkpoint.

    The jobs are preempted, which is no failure, and run elsewhere.

    Attributes:
        workers: which.
        by_s: when the leases on them end at the latest; their deadlines, if these are earlier.
    """

    workers: tuple[int, ...]
    by_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersCordoned:
    """Nothing new is granted on these workers; leases that run there go on and are extended."""

    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersLost:
    """Workers went out of service; the leases on them are over."""

    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersReturned:
    """Workers came (back) into service after a loss, a drain or a cordon."""

    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProgressReported:
    """Steps done so far, as absolute counts, so that a repeated report changes nothing.

    Attributes:
        lease_ids: (n,) ascending.
        steps_done: (n,) of the jobs under those leases, since the jobs' first start.
    """

    lease_ids: IntArray
    steps_done: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkSaved:
    """Jobs that had lost their work have saved some of it; sent once for each lease.

    Attributes:
        lease_ids: (n,) under which they run; those that are not in force are passed over.
    """

    lease_ids: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEnded:
    """A lease is over and its workers are free (or lost).

    Attributes:
        lease_id: which.
        reason: why.
        steps_done: the job's steps that are safe (checkpointed), since its first start.
        unstarted: its workers on nodes that could not start its processes, for a reason of the
            node; the job avoids these nodes for a while.
        failed: its workers on nodes where its processes failed by themselves; the next
            try goes to other nodes, if it can.
        ran_s: for how long its processes were seen to run; None if that is not observed: since the
            lease was granted.
        left: whether its processes left although nothing asked them to; with RELEASED only.
    """

    lease_id: int
    reason: EndReason
    steps_done: float
    unstarted: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    ran_s: float | None = None
    left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeasesReleased:
    """Leases are over and their workers are free, as ``LeaseEnded`` for each, released.

    Attributes:
        lease_ids: (n,) in the order in which they ended, each once.
        steps_done: (n,) as in ``LeaseEnded``.
    """

    lease_ids: IntArray
    steps_done: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDied:
    """An agent died soon after these jobs had been started there, before they saved anything.

    One death may be chance. A user has to look at a job that was there each time.

    Attributes:
        node: its node.
        job_ids: jobs that may have caused it; jobs that have ended are skipped.
    """

    node: str
    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasesSkipped:
    """Lease ids up to ``last`` may have been given away by a later state that was lost.

    This happens after a restore of an old backup: nodes know leases that the engine does not.
    """

    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """A timer that the engine asked for came due."""

    timer: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllocationComputed:
    """A policy answered; ``job_number`` (N,) names the rows of the allocation."""

    generation: int
    job_number: IntArray
    allocation: Allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationFailed:
    """No answer could be had; the last good allocation stays in force."""

    generation: int
    reason: str


Event: TypeAlias = (
    ConfigurationsChanged
    | JobSubmitted
    | JobCancelled
    | JobHeld
    | JobReleased
    | JobDeferred
    | FundsChanged
    | WeightChanged
    | DeadlineChanged
    | RestartsMeasured
    | LengthsRevised
    | JobRequeued
    | EntityChanged
    | QuotasChanged
    | ReservationsChanged
    | JobEntitled
    | PolicyChanged
    | NodesJoined
    | WorkersRetired
    | WorkersDrained
    | WorkersCordoned
    | WorkersLost
    | WorkersReturned
    | ProgressReported
    | WorkSaved
    | LeaseEnded
    | LeasesReleased
    | AgentDied
    | LeasesSkipped
    | TimerFired
    | AllocationComputed
    | AllocationFailed
)
