"""What requests hold and what answers say; plain dictionaries, as they are sent.

Written from the OpenAPI document: change the schemas in ``api``, then run ``make client-forms``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - read at run time
from typing import Any, Literal, TypeAlias, TypedDict

#: What happened. Every kind that is written is here: a test goes through the sources.
EventKind: TypeAlias = Literal[
    "job_submitted",
    "job_admitted",
    "job_refused",
    "job_changed",
    "job_held",
    "job_released",
    "job_requeued",
    "job_preempted",
    "job_interrupted",
    "job_avoids_node",
    "job_keeps_nothing",
    "job_retried",
    "job_completed",
    "job_failed",
    "job_cancelled",
    "job_exec",
    "cancel_requested",
    "hold_requested",
    "release_requested",
    "requeue_requested",
    "time_limit",
    "job_idle",
    "job_busy",
    "idle_limit",
    "lease_granted",
    "lease_launched",
    "first_step",
    "lease_waits",
    "lease_overdue",
    "progress_off",
    "lease_ended",
    "node_joined",
    "node_changed",
    "workers_approved",
    "workers_refused",
    "node_suspected",
    "node_avoided",
    "node_quarantined",
    "node_tried_again",
    "node_slow",
    "node_fast_again",
    "node_silent",
    "node_lost",
    "node_returned",
    "node_cordon",
    "node_drain",
    "node_drained",
    "node_uncordon",
    "node_removed",
    "workers_failed",
    "workers_recovered",
    "agent_stopped",
    "agent_died",
    "agent_enrolled",
    "policy_changed",
    "policy_warning",
    "allocation_failed",
    "project_changed",
    "budget_warning",
    "budget_spent",
    "budget_free",
    "reservation_made",
    "reservation_deleted",
    "reservation_ended",
    "reservation_released",
    "reservation_short",
    "throughputs_declared",
    "throughputs_forgotten",
    "token_created",
    "token_revoked",
    "token_renewed",
    "token_reused",
    "enrolment_created",
    "webhook_created",
    "webhook_deleted",
    "webhook_failing",
    "webhook_paused",
    "webhook_resumed",
    "restored",
]

#: Kinds of facts.
FactKind: TypeAlias = Literal[
    "job_arrived",
    "job_ended",
    "job_cancelled",
    "job_held",
    "job_released",
    "job_requeued",
    "job_deferred",
    "weight_changed",
    "deadline_changed",
    "progress_reported",
    "lease_ended",
    "lease_failed",
    "lease_lost",
    "time_limit",
    "out_of_memory",
    "idle",
    "retries_spent",
    "start_late",
    "dependency_ended",
    "quota_freed",
    "budget_spent",
    "budget_freed",
    "node_joined",
    "node_reported",
    "node_silent",
    "node_ordered",
    "agent_died",
    "lease_expired",
    "workers_lost",
    "workers_drained",
    "workers_cordoned",
    "workers_returned",
    "workers_retired",
    "share_changed",
    "quota_changed",
    "reservation_changed",
    "policy_changed",
    "policy_answered",
    "policy_failed",
    "policy_late",
    "throughputs_changed",
    "restarts_measured",
    "lengths_revised",
    "round",
    "wait_over",
    "request",
    "restarted",
    "restored",
]

#: What decided, beside the fact.
Ground: TypeAlias = Literal[
    "turn",
    "overdue",
    "full_time",
    "left_over",
    "faster",
    "elsewhere",
    "moved",
    "behind",
    "shorter",
    "served_less",
    "lent",
    "ahead",
    "no_share",
    "quota",
    "no_fit",
]

#: What becomes of the part of a quota that its project does not ask for.
IdleQuota: TypeAlias = Literal["keep", "lend", "share"]

#: An action on a job.
JobAction: TypeAlias = Literal["cancel", "hold", "release", "requeue"]

#: The states of a job.
JobStatus: TypeAlias = Literal[
    "waiting", "running", "held", "completed", "cancelled", "failed", "refused"
]

#: An action on a node.
NodeAction: TypeAlias = Literal["cordon", "drain", "uncordon"]

#: What a token allows, each of the first four including those above it.
Role: TypeAlias = Literal["viewer", "user", "operator", "admin", "agent", "metrics"]

#: What a line of history is about.
SubjectKind: TypeAlias = Literal[
    "job",
    "node",
    "policy",
    "project",
    "reservation",
    "throughputs",
    "scheduler",
    "token",
    "enrolment",
    "webhook",
]

#: How a message looks.
Template: TypeAlias = Literal["json", "slack"]

#: A problem with a pod, or with making it.
Trouble: TypeAlias = Literal[
    "image",
    "image_name",
    "configuration",
    "start",
    "out_of_memory",
    "evicted",
    "disrupted",
    "node_down",
    "node_refused",
    "no_resources",
    "tainted",
    "cordoned",
    "volume",
    "affinity",
    "unschedulable",
    "not_bound",
    "not_started",
    "gated",
    "quota",
    "admission",
    "own_container",
    "pod_security",
    "webhook_down",
    "permission",
    "namespace",
    "name_taken",
    "time_limit",
    "disk",
    "left_unasked",
    "api_down",
    "other",
]

#: By what use is added up.
UsageKey: TypeAlias = Literal["project", "owner", "job_type", "worker_type", "job", "day"]

#: Why a job waits, in order of precedence: what the user must change comes first.
WaitReason: TypeAlias = Literal[
    "held",
    "dependency",
    "quota",
    "budget",
    "no_throughput",
    "no_workers",
    "too_large",
    "workers_out",
    "reservation",
    "backoff",
    "stopping",
    "no_allocation",
    "no_share",
    "idling",
    "placement",
    "turn",
]


class ActOptions(TypedDict, total=False):
    """The optional fields of ``ActIn``.

    Attributes:
        ids: job ids; or give 'selector'
        selector: which jobs; or give 'ids'
        reason: why, in words; the history keeps it
        dry_run: change nothing; return the outcome for each
    """

    ids: Sequence[str] | None
    selector: SelectorIn | None
    reason: str
    dry_run: bool


class ActIn(ActOptions):
    """What to do to many jobs.

    Attributes:
        action: what to do
    """

    action: JobAction


class Acted(TypedDict):
    """The result of an action on one job.

    Attributes:
        job_id: the job
        changed: whether anything changed
        error: why the action failed; empty otherwise
        code: `not_found`, `conflict`, `invalid`, `quota` or empty
    """

    job_id: str
    changed: bool
    error: str
    code: str


class Alive(TypedDict):
    """The process answers."""

    status: str


class Allocation(TypedDict):
    """The allocation in force.

    Attributes:
        policy: the policy that gave it
        computed_s: when it was taken over; null before the first
        solve_s: seconds that the solver took; null before the first
        shares: job id -> worker type -> fraction of time
        received: job id -> worker type -> fraction of time received since the allocation began
    """

    policy: str
    computed_s: float | None
    solve_s: float | None
    shares: dict[str, dict[str, float | None]]
    received: dict[str, dict[str, float | None]]


class ArrayIn(TypedDict):
    """An array: as many jobs as ``count``, named ``name[0]``, ``name[1]``, ...

    Attributes:
        count: jobs of the array
    """

    count: int


class Attempt(TypedDict):
    """One lease of a job.

    Attributes:
        lease_id: unique
        job_id: its job
        attempt: 1 for the job's first lease
        worker_type: the type of its workers; empty if they are of several types
        workers: worker indices
        nodes: names of the nodes that they are on
        start_s: when it was granted
        deadline_s: until when it holds
        ended_s: when it ended; null while it holds
        end_reason: why it ended; null while it holds
        steps_done: the job's safe steps when it ended
        exit_code: the exit code of the job's process; null if it has not exited
        message: what the agent said about the end
        launches: on nodes that measure it: those that run pods
    """

    lease_id: int
    job_id: str
    attempt: int
    worker_type: str
    workers: list[int]
    nodes: list[str]
    start_s: float
    deadline_s: float
    ended_s: float | None
    end_reason: str | None
    steps_done: float
    exit_code: int | None
    message: str
    launches: list[Launch]


class AttemptPage(TypedDict):
    """A page of leases, newest first.

    Attributes:
        next_before: give it as 'before' for the next page; null if this one is not full
    """

    attempts: list[Attempt]
    next_before: int | None


class Attempts(TypedDict):
    """A job's leases, oldest first."""

    attempts: list[Attempt]


class BatchFit(TypedDict):
    """Whether the jobs of a batch could run."""

    jobs: list[FitItem]


class BatchIn(TypedDict):
    """Jobs to submit at once; each stands for itself."""

    jobs: Sequence[JobIn]


class BatchLimitsOptions(TypedDict, total=False):
    """The optional fields of ``BatchLimitsIn``.

    Attributes:
        least_per_worker: samples per worker and pass at least
    """

    least_per_worker: int


class BatchLimitsIn(BatchLimitsOptions):
    """Between what a job may choose its batch; it counts steps of the initial one.

    Attributes:
        initial: samples per step of the batch by which steps count
        most: samples per step at most
        most_per_worker: samples per worker and pass at most, by memory
    """

    initial: int
    most: int
    most_per_worker: int


class Batch(TypedDict):
    """The result of a batch or an array."""

    jobs: list[SubmittedItem]


class Budget(TypedDict):
    """A project's use of its budget of this month.

    Attributes:
        used_gpu_hours: worker-hours under leases
        used_usd: their cost, by current prices
        part: the larger used part of the two budgets
        state: `ok`, `warned` or `spent`. If it is spent, the project's jobs get no workers beyond
            this round
        month_end_s: when the next month begins
    """

    used_gpu_hours: float
    used_usd: float
    part: float
    state: str
    month_end_s: float


class BulkChangeIn(TypedDict, total=False):
    """What to change of many jobs.

    Attributes:
        weight: importance
        deadline_s: due time, seconds since the Unix epoch
        ids: job ids; or give 'selector'
        selector: which jobs; or give 'ids'
    """

    weight: float | None
    deadline_s: float | None
    ids: Sequence[str] | None
    selector: SelectorIn | None


class Bulk(TypedDict):
    """The result of an action on many jobs.

    Attributes:
        truncated: whether more jobs match than one request may act on
    """

    matched: int
    changed: int
    failed: int
    truncated: bool
    jobs: list[Acted]


class Cause(TypedDict):
    """The cause of a command or an effect: a fact, and the deciding ground if jobs were compared.

    Attributes:
        fact: the kind of the fact
        subject: the job, node, policy or person that it is about; empty for none
        ground: the reason of the choice among jobs; null if the fact alone decides
        rival: the job that is to have the workers; empty for none, or several
        lag_s: seconds by which a job would lag behind its share at the end of the round: the job
            that is granted workers, else the rival; null if nothing was compared
        gain: how many times as fast a job that moves will be; null if it does not move
        worker_type: the type to which the job moves; empty if it does not move
        round: the round in which it was decided; 0 if that does not matter
        text: the same in words; may be empty
    """

    fact: FactKind
    subject: str
    ground: Ground | None
    rival: str
    lag_s: float | None
    gain: float | None
    worker_type: str
    round: int
    text: str


class ChangeIn(TypedDict, total=False):
    """What to change; ``deadline_s`` null takes the deadline away.

    Attributes:
        weight: importance
        deadline_s: due time, seconds since the Unix epoch
    """

    weight: float | None
    deadline_s: float | None


class Changed(TypedDict):
    """How many figures changed."""

    changed: int


class ClaimOptions(TypedDict, total=False):
    """The optional fields of ``ClaimIn``.

    Attributes:
        sub_path: a folder of the volume to mount instead of all of it
    """

    read_only: bool
    sub_path: str


class ClaimIn(ClaimOptions):
    """A volume claim in the job's pods.

    Attributes:
        path: its mount point
    """

    claim: str
    path: str


class Cluster(TypedDict):
    """The cluster in figures.

    Attributes:
        round_number: the number of the current round
        round_ends_s: when it ends; null while nothing is active
        round_length_s: seconds of a round
        workers: worker type -> workers known
        in_service: worker type -> workers that may be granted
        busy: worker type -> workers under leases
        utilisation: busy over in service; 0 without workers
        jobs: status -> active jobs
        waiting: reason -> waiting jobs
        prices: worker type -> USD of one worker for an hour, if it has a price
    """

    round_number: int
    round_ends_s: float | None
    round_length_s: float
    workers: dict[str, int]
    in_service: dict[str, int]
    busy: dict[str, int]
    utilisation: float
    jobs: dict[str, int]
    waiting: dict[str, int]
    prices: dict[str, float]


class Dues(TypedDict):
    """The workers that a project's jobs are due together, without workers that two jobs share.

    Attributes:
        due_workers: workers on average over time that the allocation gives them
        received_workers: workers on average that they have had since the allocation came in force;
            null if no time has passed since
        owed_worker_s: worker-seconds that they were due since then, less those received; null if no
            time has passed since. A job that came later counts from its submission
        mean_rho: mean of their `rho`; null if it is unknown for all jobs
        worst_rho: the largest `rho` of them; null if it is unknown for all jobs
    """

    due_workers: float
    received_workers: float | None
    owed_worker_s: float | None
    mean_rho: float | None
    worst_rho: float | None


class EnrolmentIn(TypedDict, total=False):
    """A one-time secret to make, with which an agent obtains its token.

    Attributes:
        node: the only node that may use it; null for any
        ttl_s: seconds for which it can be used
        workers: how many workers of each type the node may have; null for those that it reports
            first
    """

    node: str | None
    ttl_s: float
    workers: Mapping[str, Any] | None


class Enrolment(TypedDict):
    """A one-time secret for an agent, which is shown this once.

    Attributes:
        node: the only node that may use it; empty for any
        created_s: when it was created
        expires_s: until when it can be used
        workers: worker type -> how many the node may have; null for those of its first report
    """

    node: str
    created_s: float
    expires_s: float
    workers: dict[str, int] | None
    secret: str


class Event(TypedDict):
    """One line of history.

    Attributes:
        event_id: given by the store; grows in the order in which lines become visible
        at_s: when it happened
        kind: what happened, in snake case
        subject_kind: `job`, `node`, `policy`, `token` and others
        subject: the job's, node's or policy's name
        actor: the user that did it; empty for the scheduler itself
        data: further figures; plain JSON values
        cause: null if an earlier release wrote the line
    """

    event_id: int
    at_s: float
    kind: str
    subject_kind: str
    subject: str
    actor: str
    data: dict[str, Any]
    cause: Cause | None


class EventPage(TypedDict):
    """Lines of history.

    Attributes:
        last_event_id: how far was read: give it as 'after' (or 'before')
    """

    events: list[Event]
    last_event_id: int


class ExecOptions(TypedDict, total=False):
    """The optional fields of ``ExecIn``.

    Attributes:
        stdin: its input, in base64; 256 KiB at most
        rank: beside which process of a gang; the first one by default
        node: the same by the name of its node
        timeout_s: after so long it is ended
    """

    stdin: str
    rank: int | None
    node: str | None
    timeout_s: float


class ExecIn(ExecOptions):
    """A command to run inside a running job.

    Attributes:
        command: with its arguments; looked for on the job's PATH
    """

    command: Sequence[str]


class Exec(TypedDict):
    """A command that has been ordered."""

    exec_id: str
    node: str


class ExecOutput(TypedDict):
    """What a command has printed since, and how it ended."""

    pieces: list[ExecPiece]
    next: int
    done: bool
    exit_code: int | None
    problem: str


class ExecPiece(TypedDict):
    """Output of a command; `data` in base64."""

    stream: Literal["out", "err"]
    data: str


class Explanation(TypedDict):
    """Why a job has its status.

    Attributes:
        job_id: the job
        status: its status
        reason: the first reason that holds; null while it runs or has ended
        also: further reasons that hold, in order of precedence
        message: the reason in words, with figures
        unblocks: the remedy
        trouble: the trouble that keeps its pod from starting, or ended its last one; null if there
            is no trouble
        position: its place among the waiting jobs, 1 for the next; null if it waits for no turn
        waiting: jobs that wait for their turn
        ahead: up to ten jobs right before it in the queue, in the order of the queue
        starts_s: when it is expected to start; null if it runs or the time is unknown
        completes_s: when it is expected to complete; null if unknown
        forecast: the method of the forecast, or why there is no time
        stderr_tail: the last lines that a failed job wrote to its standard error: 20 lines and 4 kB
            at most. A pod has one stream for both outputs, so its lines are of both
        granted: why it was given the lease that it holds; null if it holds no lease
        ended: why its lease is ending, or its last one ended; null if its lease continues
        quotas: the quotas that keep it waiting
        plan: the plan of the lease that it holds, as its launch got it; empty without a plan
        configurations: the ways in which it could run, the fastest first, if it gives its model
    """

    job_id: str
    status: JobStatus
    reason: WaitReason | None
    also: list[WaitReason]
    message: str
    unblocks: str
    trouble: Trouble | None
    position: int | None
    waiting: int
    ahead: list[JobAhead]
    starts_s: float | None
    completes_s: float | None
    forecast: str
    stderr_tail: str
    granted: Cause | None
    ended: Cause | None
    quotas: list[QuotaInTheWay]
    plan: str
    configurations: list[FitConfiguration]


class FieldProblem(TypedDict):
    """The fault of one field.

    Attributes:
        field: its path, as in `scale_factor.0`; empty for the request as a whole
        value: the given value, which answers shorten
        problem: the fault, and the right form
    """

    field: str
    value: Any
    problem: str


class FitConfiguration(TypedDict):
    """One way in which a job could run.

    Attributes:
        worker_type: the type of the workers; of a mixed gang as in `1 x a100 + 1 x v100`
        count: workers that the job holds
        steps_per_s: steps/s of the whole job
        source: the source of that figure: `measured`, `declared`, `estimated` or `assumed`
        workers_in_service: workers that it could be given if they were idle, without cordoned ones
        workers_idle: those of them that are idle
        locality: `consolidated` if the workers must lie on one node, else `any`
        plan: the plan of its launch, from a source of configurations; empty without a plan
        workers: worker type -> workers of it; two types if the gang is mixed
    """

    worker_type: str
    count: int
    steps_per_s: float | None
    source: str
    workers_in_service: int
    workers_idle: int
    locality: str
    plan: str
    workers: dict[str, int]


class FitItem(TypedDict):
    """Whether one job of a batch could run."""

    index: int
    fit: Fit | None
    error: Problem | None


class Fit(TypedDict):
    """Whether and where a job could run.

    Attributes:
        fits: whether some configuration fits the cluster as it is
        reason: why it cannot run, or cannot start yet; null if it could start now
        message: the reason as text
        configurations: the ways in which it could run, the fastest first
        starts_s: when it would start, by a replay; null if that was not asked, or is not known
        completes_s: when it would complete
        forecast: what these times rest on, or why there are none; empty if they were not asked
        pod: the pod of rank 0, if the job says something about pods
    """

    fits: bool
    reason: WaitReason | None
    message: str
    configurations: list[FitConfiguration]
    starts_s: float | None
    completes_s: float | None
    forecast: str
    pod: dict[str, Any] | None


class HoldingChange(TypedDict):
    """A job that would hold other workers in the next round.

    Attributes:
        job_id: the job
        project: its project
        before: worker type -> workers under the policy in force; empty if none
        after: the same under the other policy
    """

    job_id: str
    project: str
    before: dict[str, int]
    after: dict[str, int]


class JobAhead(TypedDict):
    """A job before another one in the queue.

    Attributes:
        job_id: its id; empty if the reader may not see its project
        project: its project; empty if the reader may not see it
        is_planned: whether it has workers in the next round
        lag_s: seconds by which it lags behind its share; negative if it is ahead
    """

    job_id: str
    project: str
    is_planned: bool
    lag_s: float


class JobOptions(TypedDict, total=False):
    """The optional fields of ``JobIn``.

    Attributes:
        project: its project, for quotas; 'default', or the token's project
        env: environment variables
        secret_env: environment variables that are kept encrypted and never shown
        working_dir: absolute path on the node
        upload: hash of uploaded code that it is started in, instead of a working_dir
        image: container image
        scale_factor: workers at once, or a list of counts
        min_workers: fewest workers that it can run on, in place of scale_factor; 1 if max_workers
            is given
        max_workers: most workers that it can run on
        worker_types: types that it may run on; none for any
        total_steps: steps until it is complete
        duration_s: estimate of its run time in seconds, if it counts no steps; it may run longer
        job_type: key into the throughput table
        throughputs: worker type -> steps/s at its scale factor, if known
        model: its model, from which the service finds plans and steps/s, instead of throughputs
        weight: importance: 2 is due twice the share
        deadline_s: due time, seconds since the Unix epoch
        deadline_in_s: due so many seconds from now
        max_run_time_s: seconds for which it may hold workers in all
        preemptible: whether others may have its workers before it is done
        min_run_time_s: seconds for which a lease is not taken back for another job
        max_failures: failures of its own that are retried
        retry_oom: whether running out of memory is retried
        max_out_of_memory: times that running out of memory is retried; null: they count as failures
            alone
        max_node_faults: times that it is retried after its node failed; null for any number
        max_image_failures: times that it is retried after its image could not be pulled; null for
            any number
        max_preemptions: times that it may be preempted; null for any number
        checkpoint_dir: folder of its state
        labels: free key-value pairs
        entity: entity that its share is accounted to
        depends_on: ids of jobs that have to complete first
        array: submit so many copies
        notice_s: seconds of notice before SIGTERM; the operator's if left out
        grace_s: seconds from SIGTERM to SIGKILL; the operator's if left out
        restart_s: seconds of work that a change of workers costs
        restarts: worker type, or type and count (`v100:8`) -> seconds that a change to them costs
        progress_regex: searched in its output; group 'steps' (or 1) counts its steps
        progress_file: file; its last number counts the checkpointed steps
        memory_bytes: limit of host memory in bytes
        cpus: limit of processor cores
        batch: range in which it may choose its batch, in samples
        space_sharing: whether it may share workers
        mixed_gangs: whether it may run on workers of two types at once
        kubernetes: its settings for pods
        client_id: your own id, by which a repeated submission is recognised
        held: whether it is held until you release it
    """

    project: str | None
    env: Mapping[str, Any]
    secret_env: Mapping[str, Any]
    working_dir: str | None
    upload: str | None
    image: str | None
    scale_factor: int | Sequence[int]
    min_workers: int | None
    max_workers: int | None
    worker_types: Sequence[str]
    total_steps: float | None
    duration_s: float | None
    job_type: str | None
    throughputs: Mapping[str, Any]
    model: Mapping[str, Any] | None
    weight: float
    deadline_s: float | None
    deadline_in_s: float | None
    max_run_time_s: float | None
    preemptible: bool
    min_run_time_s: float
    max_failures: int
    retry_oom: bool
    max_out_of_memory: int | None
    max_node_faults: int | None
    max_image_failures: int | None
    max_preemptions: int | None
    checkpoint_dir: str | None
    labels: Mapping[str, Any]
    entity: str | None
    depends_on: Sequence[str]
    array: ArrayIn | None
    notice_s: float | None
    grace_s: float | None
    restart_s: float
    restarts: Mapping[str, Any]
    progress_regex: str | None
    progress_file: str | None
    memory_bytes: int | None
    cpus: float | None
    batch: BatchLimitsIn | None
    space_sharing: bool
    mixed_gangs: bool
    kubernetes: KubernetesIn | None
    client_id: str | None
    held: bool


class JobIn(JobOptions):
    """A job to submit.

    Attributes:
        name: its name
        command: program and arguments, as a list; no shell sees it
    """

    name: str
    command: Sequence[str]


class Job(TypedDict):
    """A job.

    Attributes:
        job_id: unique
        number: the order of submission; unique, never reused
        name: the name that the user gave it
        project: its project, for quota and permissions
        owner: its owner
        job_type: key into the throughput table
        status: its state
        reason: why it waits, failed or was refused; a code
        entity: the entity that its share is accounted to
        scale_factor: workers that it holds at once
        weight: its importance
        total_steps: steps until it is complete; seconds if it has only a duration; null if neither
            is given
        steps_done: steps that are safe; of a job that has only a duration and reports nothing, the
            seconds of it that are done
        attempts: leases that it has had
        failures: failures of its own
        submitted_s: when it was submitted, in seconds since the Unix epoch like all times
        started_s: when it first ran; null before
        finished_s: when it ended; null before
        deadline_s: by when it should be complete; null if it has no deadline
        updated_s: when it last changed
        labels: free key-value pairs
        lease_id: its lease; null if it holds no workers
        worker_type: the type of its workers, `a100 + v100` if it holds both; empty without workers
        workers: how many workers it holds
        nodes: the nodes of its workers
        lease_deadline_s: until when its lease holds; null if it holds no workers
        lease_start_s: since when it has held them; null if it holds none
        allocation: worker type -> fraction of time that the policy gives it
        share: its effective throughput over that of a 1/n share; null if unknown
        rho: finish-time fairness: the JCT that it heads for if the allocation stays, over its JCT
            on a 1/n share of the present jobs; null if unknown
        gpu_use: part of recent time in which its GPUs computed; null if it is not measured
        idle_since_s: since when its GPUs have hardly computed; null if they compute, or are not
            measured
        position: its place among the jobs that wait for their turn, 1 for the next; null if it
            waits for no turn
        ran_s: seconds for which it has held workers, waits left out
        since_s: since when it has its status; null if it is too long ago to be known
    """

    job_id: str
    number: int
    name: str
    project: str
    owner: str
    job_type: str
    status: JobStatus
    reason: str
    entity: str
    scale_factor: int
    weight: float
    total_steps: float | None
    steps_done: float
    attempts: int
    failures: int
    submitted_s: float
    started_s: float | None
    finished_s: float | None
    deadline_s: float | None
    updated_s: float
    labels: dict[str, str]
    lease_id: int | None
    worker_type: str
    workers: int
    nodes: list[str]
    lease_deadline_s: float | None
    lease_start_s: float | None
    allocation: dict[str, float | None]
    share: float | None
    rho: float | None
    gpu_use: float | None
    idle_since_s: float | None
    position: int | None
    ran_s: float
    since_s: float | None


class JobPage(TypedDict):
    """A page of jobs.

    Attributes:
        next_cursor: give it as 'cursor' for the next page
    """

    jobs: list[Job]
    next_cursor: str | None


class JobWithSpec(TypedDict):
    """A job with its specification.

    Attributes:
        job_id: unique
        number: the order of submission; unique, never reused
        name: the name that the user gave it
        project: its project, for quota and permissions
        owner: its owner
        job_type: key into the throughput table
        status: its state
        reason: why it waits, failed or was refused; a code
        entity: the entity that its share is accounted to
        scale_factor: workers that it holds at once
        weight: its importance
        total_steps: steps until it is complete; seconds if it has only a duration; null if neither
            is given
        steps_done: steps that are safe; of a job that has only a duration and reports nothing, the
            seconds of it that are done
        attempts: leases that it has had
        failures: failures of its own
        submitted_s: when it was submitted, in seconds since the Unix epoch like all times
        started_s: when it first ran; null before
        finished_s: when it ended; null before
        deadline_s: by when it should be complete; null if it has no deadline
        updated_s: when it last changed
        labels: free key-value pairs
        lease_id: its lease; null if it holds no workers
        worker_type: the type of its workers, `a100 + v100` if it holds both; empty without workers
        workers: how many workers it holds
        nodes: the nodes of its workers
        lease_deadline_s: until when its lease holds; null if it holds no workers
        lease_start_s: since when it has held them; null if it holds none
        allocation: worker type -> fraction of time that the policy gives it
        share: its effective throughput over that of a 1/n share; null if unknown
        rho: finish-time fairness: the JCT that it heads for if the allocation stays, over its JCT
            on a 1/n share of the present jobs; null if unknown
        gpu_use: part of recent time in which its GPUs computed; null if it is not measured
        idle_since_s: since when its GPUs have hardly computed; null if they compute, or are not
            measured
        position: its place among the jobs that wait for their turn, 1 for the next; null if it
            waits for no turn
        ran_s: seconds for which it has held workers, waits left out
        since_s: since when it has its status; null if it is too long ago to be known
    """

    job_id: str
    number: int
    name: str
    project: str
    owner: str
    job_type: str
    status: JobStatus
    reason: str
    entity: str
    scale_factor: int
    weight: float
    total_steps: float | None
    steps_done: float
    attempts: int
    failures: int
    submitted_s: float
    started_s: float | None
    finished_s: float | None
    deadline_s: float | None
    updated_s: float
    labels: dict[str, str]
    lease_id: int | None
    worker_type: str
    workers: int
    nodes: list[str]
    lease_deadline_s: float | None
    lease_start_s: float | None
    allocation: dict[str, float | None]
    share: float | None
    rho: float | None
    gpu_use: float | None
    idle_since_s: float | None
    position: int | None
    ran_s: float
    since_s: float | None
    spec: dict[str, Any]


class KubernetesIn(TypedDict, total=False):
    """A job's settings for its pods; used if its nodes run pods.

    Attributes:
        requests: resource name -> quantity; limits are cpus and memory_bytes
        volumes: volume claims, such as that of the checkpoints
        tolerations: taints that its pods tolerate
        service_account: the account that its pods run as
        image_pull_secrets: names of Secrets
        runtime_class: RuntimeClass
        shm_bytes: most that /dev/shm may hold
        launch: start the command once per worker, or per node (torchrun)
        force_delete: whether a pod on a node that is long gone is deleted by force
        template: a pod in Kubernetes' words, merged over the pod made from the job
    """

    requests: Mapping[str, str]
    volumes: Sequence[ClaimIn]
    tolerations: Sequence[Mapping[str, Any]]
    service_account: str
    image_pull_secrets: Sequence[str]
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"]
    runtime_class: str
    shm_bytes: int | None
    launch: Literal["per-worker", "per-node"]
    force_delete: bool
    template: Mapping[str, Any]


class Launch(TypedDict):
    """How a lease's pod was launched on a node.

    Attributes:
        image_s: seconds for its image, most of them the pull
        launch_s: seconds from its being placed to its start
        ready_s: seconds from its being placed until it was ready
        devices: the node's names of its accelerators; may be empty
    """

    node: str
    image_s: float | None
    launch_s: float | None
    ready_s: float | None
    devices: list[str]


class Lease(TypedDict):
    """A lease in force.

    Attributes:
        lease_id: unique
        job_id: the job that holds it
        project: the job's project
        attempt: 1 for the job's first lease
        worker_type: the type of its workers, `a100 + v100` if it has both
        workers: worker indices
        nodes: names of their nodes
        start_s: when it was granted
        deadline_s: until when it holds, unless it is extended
        state: `granted`, `running` or `stopping`
        steps_done: the job's newest known count of steps
        owner: the job's owner
        gpu_use: part of recent time in which its GPUs computed; null if it is not measured
        idle_since_s: since when its GPUs have hardly computed; null if they compute, or are not
            measured
    """

    lease_id: int
    job_id: str
    project: str
    attempt: int
    worker_type: str
    workers: list[int]
    nodes: list[str]
    start_s: float
    deadline_s: float
    state: str
    steps_done: float
    owner: str
    gpu_use: float | None
    idle_since_s: float | None


class Leases(TypedDict):
    """The leases in force."""

    leases: list[Lease]


class NewToken(TypedDict):
    """A new token with its secret, which is shown this once.

    Attributes:
        token_id: public name for lists and for revoking it
        subject: the user or agent that it stands for
        role: viewer, user, operator, admin, agent or metrics
        projects: projects that it is confined to; empty for all
        created_s: when it was created
        expires_s: when it ends; null if it does not end
        revoked_s: when it was revoked; null if it was not
        last_used_s: when it was last used; null if it was not
        replaces: id of the token that it renewed; `enrolment` if an enrolment gave it
        replaced_s: when its own successor was first used; null if it has none
    """

    token_id: str
    subject: str
    role: str
    projects: list[str]
    created_s: float
    expires_s: float | None
    revoked_s: float | None
    last_used_s: float | None
    replaces: str
    replaced_s: float | None
    token: str


class NewWebhook(TypedDict):
    """A new webhook with the secret of its signatures, which is shown this once.

    Attributes:
        name: its name for people
        on: kinds of lines of history
        project: only events of this project's jobs and of the project; null for all
        template: the format of messages
        place: scheme and host of the address; the rest is secret
        created_s: when it was created
        actor: the user that created it
        cursor: id of the last line of history that was delivered or skipped
        delivered: number of delivered messages
        delivered_s: when the last one was delivered, or null
        failures: failed tries in a row
        failing_since_s: when the first of these failed, or null
        problem: the problem of the last failed try
        next_s: when it is tried again, or null
        paused_s: since when it sends nothing, or null
        state: ok, failing or paused
    """

    name: str
    on: list[str]
    project: str | None
    template: Template
    place: str
    created_s: float
    actor: str
    cursor: int
    delivered: int
    delivered_s: float | None
    failures: int
    failing_since_s: float | None
    problem: str
    next_s: float | None
    paused_s: float | None
    state: str
    secret: str


class NodeAttempts(TypedDict):
    """A page of the leases that had workers of a node, newest first.

    Attributes:
        next_before: give it as 'before' for the next page; null if this one is not full
    """

    attempts: list[Attempt]
    next_before: int | None


class Node(TypedDict):
    """A node.

    Attributes:
        name: unique
        state: `ready`, `cordoned`, `draining`, `drained`, `lost`, `silent` (it has missed its
            reports, and gets nothing new) or `unknown` (it has not reported since the scheduler
            started)
        reason: why it is cordoned, drained or lost
        last_seen_s: when it last reported, or null
        address: the address of rank 0 of its jobs
        version: the version of its agent
        workers: its workers, by local index
        approved: worker type -> how many it may have; null if it may have any
        refused: worker type -> how many it reports beyond that
    """

    name: str
    state: str
    reason: str
    last_seen_s: float | None
    address: str
    version: str
    workers: list[Worker]
    approved: dict[str, int] | None
    refused: dict[str, int]


class NodeReasonIn(TypedDict, total=False):
    """Why something is done to a node.

    Attributes:
        reason: in words; shown beside the node
    """

    reason: str


class Nodes(TypedDict):
    """Every node."""

    nodes: list[Node]


class PairOptions(TypedDict, total=False):
    """The optional fields of ``PairIn``.

    Attributes:
        scale_factor: workers that the two jobs share
    """

    scale_factor: int


class PairIn(PairOptions):
    """The cost of sharing workers for two jobs.

    Attributes:
        part: speed of the job of `job_type` while they share, over its speed alone
        with_part: the same figure for the job of `with_job_type`
    """

    job_type: str
    with_job_type: str
    worker_type: str
    part: float
    with_part: float


class Pair(TypedDict):
    """How much two jobs slow down if they share workers.

    Attributes:
        job_type: the job type of one job
        with_job_type: the job type of the other
        scale_factor: workers that they share
        worker_type: hardware class
        part: speed of the one while they share, over its speed alone
        with_part: the same for the other job
    """

    job_type: str
    with_job_type: str
    scale_factor: int
    worker_type: str
    part: float
    with_part: float


class PlannedLease(TypedDict):
    """A lease of the next round.

    Attributes:
        job_id: the job that holds it
        project: the job's project
        worker_type: the type of its workers; empty if they are of several types
        workers: worker indices
        nodes: names of their nodes
        begins_s: latest time at which its workers are free
        ends_s: when it ends unless it is extended
        goes_on: whether the job keeps workers that it holds now
    """

    job_id: str
    project: str
    worker_type: str
    workers: list[int]
    nodes: list[str]
    begins_s: float
    ends_s: float
    goes_on: bool


class PlannedRound(TypedDict):
    """The plan of the next round.

    Attributes:
        round_number: the number of the next round; null until it is planned
        begins_s: when that round begins; null until it is planned
        ends_s: end of the last planned round; null while nothing is active
        leases: those that continue, then those that wait for workers to become free
    """

    round_number: int | None
    begins_s: float | None
    ends_s: float | None
    leases: list[PlannedLease]


class Policies(TypedDict):
    """Every policy."""

    policies: list[PolicySummary]


class PolicyDetails(TypedDict):
    """A policy with its program."""

    name: str
    summary: str
    time_dependent: bool
    origin: str
    parameters: list[PolicyParameter]
    description: str


class PolicyOptions(TypedDict, total=False):
    """The optional fields of ``PolicyIn``.

    Attributes:
        parameters: as on the command line; numbers and booleans may be JSON's
        agnostic: whether differences of worker types are ignored
        space_sharing: whether two jobs may share workers
    """

    parameters: Mapping[str, Any]
    agnostic: bool
    space_sharing: bool


class PolicyIn(PolicyOptions):
    """A policy to put in force.

    Attributes:
        name: see GET /v1/policies
    """

    name: str


class Policy(TypedDict):
    """The policy in force.

    Attributes:
        name: the name of the policy
        parameters: name -> value as text, of those that were set
        agnostic: whether it is hidden from the policy that worker types differ
        space_sharing: whether two jobs may share workers
        since_s: since when it is in force
        actor: the user that put it in force
        last_solve_s: seconds that its last answer took; null before the first
        last_failure: why it gave no answer the last time; empty if it gave one
        last_round: the quality of the last planned round; null before the first since the start
    """

    name: str
    parameters: dict[str, str]
    agnostic: bool
    space_sharing: bool
    since_s: float
    actor: str
    last_solve_s: float | None
    last_failure: str
    last_round: Round | None


class PolicyParameter(TypedDict):
    """A parameter of a policy.

    Attributes:
        name: as users write it
        type: in words: `float`, `float, optional`, `numbers separated by commas`
        default: the value if the user gives no other
        range: the allowed values in words, or empty
        help: one sentence
    """

    name: str
    type: str
    default: Any
    range: str
    help: str


class PolicySummary(TypedDict):
    """A policy that could be put in force."""

    name: str
    summary: str
    time_dependent: bool
    origin: str
    parameters: list[PolicyParameter]


class PolicyTrial(TypedDict):
    """What another policy would change in the next round.

    Attributes:
        changes: jobs that would hold other workers, by id; empty if it gives no answer
        same: how many jobs would hold the same
        note: why the policy gives no answer; empty if it gives one
    """

    changes: list[HoldingChange]
    same: int
    note: str


class Problem(TypedDict):
    """An error (RFC 9457).

    Attributes:
        type: urn:leasehold:problem:CODE
        detail: the problem, the value, and the remedy
        instance: path of the request
        errors: every bad field
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[FieldProblem]


class ProjectIn(TypedDict, total=False):
    """A project's limits to set.

    Attributes:
        weight: share relative to other projects
        inner_policy: among its own jobs
        max_workers: workers that its jobs may hold at once; null for any number
        max_workers_of: worker type -> workers of it that its jobs may hold at once; if left out, it
            stays as set, like the next three
        max_workers_per_user: workers that the jobs of each of its users may hold; null for any
            number
        max_workers_per_user_of: worker type -> workers of it that the jobs of each of its users may
            hold
        idle_quota: use of the part of `max_workers` and `max_workers_of` that its jobs do not ask
            for: `keep` it idle; `lend` it to projects that share, until its jobs ask; or `share`:
            lend it, and use workers that others lend
        max_jobs: jobs that have not ended; null for any number
        entities: entities besides itself that its jobs may name; null for any; if left out, it
            stays as set
        job_types: patterns of job types besides `PROJECT/*` that its jobs may name; null for any;
            if left out, it stays as set
        max_job_weight: largest weight of one of its jobs; null for any; if left out, it stays as
            set
        budget_gpu_hours: worker-hours that it may use in a calendar month of UTC; null for any; if
            left out, it stays as set
        budget_usd: largest cost of these in USD; null for any; if left out, it stays as set
        budget_warning: part of a budget from which on it is warned of; null for 0.8; if left out,
            it stays as set
    """

    weight: float
    inner_policy: Literal["fairness", "fifo"]
    max_workers: int | None
    max_workers_of: Mapping[str, Any]
    max_workers_per_user: int | None
    max_workers_per_user_of: Mapping[str, Any]
    idle_quota: IdleQuota
    max_jobs: int | None
    entities: Sequence[str] | None
    job_types: Sequence[str] | None
    max_job_weight: float | None
    budget_gpu_hours: float | None
    budget_usd: float | None
    budget_warning: float | None


class ProjectLimits(TypedDict):
    """The limits of a project.

    Attributes:
        project: its name
        weight: its share relative to other projects, if the policy uses entities
        inner_policy: `fairness` or `fifo` among its own jobs
        max_workers: workers that its jobs may hold at once; null for any number
        max_jobs: how many active jobs it may have; null for any number
        entities: entities besides itself that its jobs may be accounted to; null for any
        job_types: patterns (`*`, `?`, `[...]`) of the job types besides `project/...` that its jobs
            may name; null for any
        max_job_weight: largest weight of one of its jobs; null for any
        max_workers_of: worker type -> workers of it that its jobs may hold at once; missing types
            have no limit of their own
        max_workers_per_user: workers that the jobs of each of its users may hold at once; null for
            any number
        max_workers_per_user_of: worker type -> workers of it that the jobs of each user may hold
        idle_quota: how other projects may use the part of `max_workers` and `max_workers_of` that
            its jobs leave free
        budget_gpu_hours: worker-hours that it may use in a calendar month of UTC; null for any
        budget_usd: the cost that it may cause in a calendar month of UTC; null for any
        budget_warning: part of a budget at which a warning is given; null for 0.8
    """

    project: str
    weight: float
    inner_policy: str
    max_workers: int | None
    max_jobs: int | None
    entities: list[str] | None
    job_types: list[str] | None
    max_job_weight: float | None
    max_workers_of: dict[str, int]
    max_workers_per_user: int | None
    max_workers_per_user_of: dict[str, int]
    idle_quota: IdleQuota
    budget_gpu_hours: float | None
    budget_usd: float | None
    budget_warning: float | None


class Project(TypedDict):
    """A project with its limits and its use.

    Attributes:
        limits: its limits
        active_jobs: its jobs that have not ended
        admitted_workers: workers that its admitted jobs ask for
        running_workers: workers that its jobs hold
        usage_worker_s: worker-seconds of the entity of its name that have not faded; null if the
            policy has no half-life
        effective_weight: that entity's weight, adjusted for its use; null if the policy has no
            half-life
        budget: its use of its budget; null if it has no budget
        dues: the workers that its jobs are due; null if no job of it waits for workers or holds
            them
    """

    limits: ProjectLimits
    active_jobs: int
    admitted_workers: int
    running_workers: int
    usage_worker_s: float | None
    effective_weight: float | None
    budget: Budget | None
    dues: Dues | None


class Projects(TypedDict):
    """Projects."""

    projects: list[Project]


class QuotaInTheWay(TypedDict):
    """A quota that keeps a job waiting.

    Attributes:
        project: the project that has it
        owner: the user, if it is a quota of each user; else empty
        worker_type: the type of the workers; empty for all
        limit: workers, as it was set
        allowed: workers that may be held now: the limit, and workers that others lend
        shared: whether several projects lend each other these workers, or may hold them together
        held: workers held of it now
        asks: workers that the job asks for, in its fastest configuration
        missing: by how many workers it would have to be larger for the job to run
        gain_steps_per_s: steps/s at which the job could then run at once, on idle workers; 0 if too
            few are idle
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


class Ready(TypedDict):
    """Whether requests can be served.

    Attributes:
        problems: problems; callers without a token see why it is not ready, without details
    """

    ready: bool
    leading: bool
    version: str
    problems: list[str]


class ReasonIn(TypedDict, total=False):
    """Why something is done to a job.

    Attributes:
        reason: in words; the history keeps it
    """

    reason: str


class ReservationOptions(TypedDict, total=False):
    """The optional fields of ``ReservationIn``.

    Attributes:
        project: the project with the jobs that may use them
        user: the user with the jobs that may use them
        job: the id of the only job that may use them
    """

    project: str | None
    user: str | None
    job: str | None


class ReservationIn(ReservationOptions):
    """Workers to reserve; at least one of project, user and job names the owner.

    Attributes:
        name: unique among reservations
        worker_type: of the workers
        workers: how many
        from_s: when the window begins, Unix seconds
        until_s: when it ends, Unix seconds
    """

    name: str
    worker_type: str
    workers: int
    from_s: float
    until_s: float


class Reservation(TypedDict):
    """A reservation, its state and its workers.

    Attributes:
        reservation: the reservation as it was made
        state: `planned`, `in force` or, until it is deleted, `over`
        assigned: workers assigned to it; fewer than it asks for if there are no more
        used: how many of them its owner's jobs hold now
        nodes: node -> how many of them
    """

    reservation: ReservationRule
    state: str
    assigned: int
    used: int
    nodes: dict[str, int]


class ReservationRule(TypedDict):
    """Workers of a type that only its owner's jobs may use from one time to another.

    Attributes:
        name: unique
        worker_type: the type of the workers
        workers: how many workers
        from_s: when the window begins
        until_s: when the window ends
        project: the project with the jobs that may use them; empty for any
        user: the user with these jobs; empty for any
        job: the only job; empty for any
    """

    name: str
    worker_type: str
    workers: int
    from_s: float
    until_s: float
    project: str
    user: str
    job: str


class Reservations(TypedDict):
    """Reservations."""

    reservations: list[Reservation]


class Round(TypedDict):
    """The quality of the last planned round.

    Attributes:
        gap: largest part of the best value that another choice of whole workers could have gained;
            null for policies with rounds that follow the allocation by lag alone
        fluid_gap: the same if workers could be divided
        behind_rounds: by how many rounds the job or pair furthest behind the allocation was behind
            at the end
        off_rounds: the mean distance from the allocation then, in rounds
        candidates: configurations and pairs that could run
    """

    gap: float | None
    fluid_gap: float | None
    behind_rounds: float
    off_rounds: float
    candidates: int


class SelectorIn(TypedDict, total=False):
    """Which jobs are meant: those that pass every field that is given; at least one is.

    Attributes:
        status: any of these; none: jobs that have not ended
        project: any of these
        job_type: any of these
        name: any of these; that of an array means its elements
        owner: exactly this
        labels: every one of these
    """

    status: Sequence[JobStatus]
    project: Sequence[str]
    job_type: Sequence[str]
    name: Sequence[str]
    owner: str | None
    labels: Mapping[str, Any]


class SignInCode(TypedDict):
    """A one-time code for the page.

    Attributes:
        path: path and query to open below the scheduler's address
        valid_s: seconds for which it is valid; 0 without tokens
    """

    path: str
    valid_s: float


class SubmittedItem(TypedDict):
    """The result for one job of a batch or an array.

    Attributes:
        index: position in the request
        array_index: position in its array
    """

    index: int
    array_index: int | None
    job_id: str
    created: bool
    error: Problem | None


class Submitted(TypedDict):
    """One job that was submitted.

    Attributes:
        created: false if the client id was known already
    """

    job_id: str
    created: bool


class ThroughputOptions(TypedDict, total=False):
    """The optional fields of ``ThroughputIn``.

    Attributes:
        scale_factor: workers of the job
    """

    scale_factor: int


class ThroughputIn(ThroughputOptions):
    """A declared throughput.

    Attributes:
        steps_per_s: steps/s of the whole job; 0 if it does not run
    """

    job_type: str
    worker_type: str
    steps_per_s: float


class Throughput(TypedDict):
    """The known throughput of a job type on a worker type.

    Attributes:
        job_type: the job type
        scale_factor: workers of the job
        worker_type: hardware class
        steps_per_s: steps/s of the whole job, the figure for policies
        source: `measured`, `declared`, `estimated` or `assumed`
        declared: the declared steps/s, or null
        measured: the measured steps/s, or null
        deviation: relative standard error of the figure, or null
        samples: how many periods were measured
    """

    job_type: str
    scale_factor: int
    worker_type: str
    steps_per_s: float | None
    source: str
    declared: float | None
    measured: float | None
    deviation: float | None
    samples: int


class ThroughputsIn(TypedDict, total=False):
    """Throughputs to declare.

    Attributes:
        throughputs: speeds of jobs alone
        pairs: costs of sharing workers
    """

    throughputs: Sequence[ThroughputIn]
    pairs: Sequence[PairIn]


class Throughputs(TypedDict):
    """The known throughputs."""

    throughputs: list[Throughput]
    pairs: list[Pair]


class TokenOptions(TypedDict, total=False):
    """The optional fields of ``TokenIn``.

    Attributes:
        projects: projects that it is confined to; none for all
        ttl_s: seconds until it expires; null for never
    """

    projects: Sequence[str]
    ttl_s: float | None


class TokenIn(TokenOptions):
    """A token to make.

    Attributes:
        subject: user, or node for role agent
    """

    subject: str
    role: Role


class Token(TypedDict):
    """A bearer token. Its secret is never stored, only a hash.

    Attributes:
        token_id: public name for lists and for revoking it
        subject: the user or agent that it stands for
        role: viewer, user, operator, admin, agent or metrics
        projects: projects that it is confined to; empty for all
        created_s: when it was created
        expires_s: when it ends; null if it does not end
        revoked_s: when it was revoked; null if it was not
        last_used_s: when it was last used; null if it was not
        replaces: id of the token that it renewed; `enrolment` if an enrolment gave it
        replaced_s: when its own successor was first used; null if it has none
    """

    token_id: str
    subject: str
    role: str
    projects: list[str]
    created_s: float
    expires_s: float | None
    revoked_s: float | None
    last_used_s: float | None
    replaces: str
    replaced_s: float | None


class Tokens(TypedDict):
    """Every token."""

    tokens: list[Token]


class UploadOptions(TypedDict, total=False):
    """The optional fields of ``UploadIn``.

    Attributes:
        project: its project; 'default', or the token's project
    """

    project: str | None


class UploadIn(UploadOptions):
    """Code that jobs of a project are started in.

    Attributes:
        archive: a tar file that gzip has compressed, in base64
    """

    archive: str


class Upload(TypedDict):
    """Code that is kept for a project's jobs.

    Attributes:
        digest: the value of a job's 'upload'
        size_bytes: packed
        created: whether it was not there before
    """

    project: str
    digest: str
    size_bytes: int
    created: bool


class UsageOfGroup(TypedDict):
    """Use of one group; keys outside the query are null.

    Attributes:
        project: the project of the jobs
        owner: the owner of the jobs
        job_type: the type of the jobs
        worker_type: the type of the workers
        job: the id of the job
        day_s: the start of the day of UTC
        leases: how many held workers in the window; one that does so on two days counts on both
        worker_us: microseconds, times the workers held. A worker that two jobs share counts for
            both
        worker_s: `worker_us` in seconds
        gpu_used_s: GPU-seconds of computing: utilisation times time; null if not measured
        gpu_measured_s: GPU-seconds that were measured
    """

    project: str | None
    owner: str | None
    job_type: str | None
    worker_type: str | None
    job: str | None
    day_s: float | None
    leases: int
    worker_us: int
    worker_s: float
    gpu_used_s: float | None
    gpu_measured_s: float


class Usage(TypedDict):
    """The use in a window."""

    since_s: float
    until_s: float
    worker_s: float
    gpu_used_s: float | None
    gpu_measured_s: float
    usage: list[UsageOfGroup]


class Version(TypedDict):
    """The program's version."""

    version: str
    api: str


class WebhookOptions(TypedDict, total=False):
    """The optional fields of ``WebhookIn``.

    Attributes:
        project: only events of its jobs and itself; null for all events
        template: json, or slack for Slack's incoming webhooks
    """

    project: str | None
    template: Template


class WebhookIn(WebhookOptions):
    """A webhook to make.

    Attributes:
        name: by which it is listed, tested and deleted; unique in its project
        url: the address that it sends to, https://host/path; stored encrypted and never shown
        on: kinds of events; dots may stand for underscores
    """

    name: str
    url: str
    on: Sequence[EventKind]


class Webhook(TypedDict):
    """A webhook, without its secrets.

    Attributes:
        name: its name for people
        on: kinds of lines of history
        project: only events of this project's jobs and of the project; null for all
        template: the format of messages
        place: scheme and host of the address; the rest is secret
        created_s: when it was created
        actor: the user that created it
        cursor: id of the last line of history that was delivered or skipped
        delivered: number of delivered messages
        delivered_s: when the last one was delivered, or null
        failures: failed tries in a row
        failing_since_s: when the first of these failed, or null
        problem: the problem of the last failed try
        next_s: when it is tried again, or null
        paused_s: since when it sends nothing, or null
        state: ok, failing or paused
    """

    name: str
    on: list[str]
    project: str | None
    template: Template
    place: str
    created_s: float
    actor: str
    cursor: int
    delivered: int
    delivered_s: float | None
    failures: int
    failing_since_s: float | None
    problem: str
    next_s: float | None
    paused_s: float | None
    state: str


class WebhookResumeIn(TypedDict, total=False):
    """How a webhook goes on.

    Attributes:
        skip: skip events until now
    """

    skip: bool


class WebhookTest(TypedDict):
    """What became of a test message."""

    delivered: bool
    status: int | None
    problem: str


class Webhooks(TypedDict):
    """Webhooks by name."""

    webhooks: list[Webhook]


class WhoAmI(TypedDict):
    """The owner of the token and its rights.

    Attributes:
        subject: the name; it stands as actor in the history of the request's changes
        role: its permissions
        projects: projects that it is confined to; empty for all
        token_id: the id of its token; empty without a token
        expires_s: when its token ends, seconds since the Unix epoch; null if it does not end
    """

    subject: str
    role: str
    projects: list[str]
    token_id: str
    expires_s: float | None


class Worker(TypedDict):
    """A worker.

    Attributes:
        index: the scheduler's number
        local_index: the node's number
        worker_type: its hardware class
        in_service: whether it may be granted
        problem: why it may not be granted, as far as the worker itself is the cause
        shareable: whether two jobs could hold it, if only its node is considered
        jobs: ids of the jobs on it
    """

    index: int
    local_index: int
    worker_type: str
    in_service: bool
    problem: str
    shareable: bool
    jobs: list[str]


class WorkersIn(TypedDict):
    """The workers that a node may have.

    Attributes:
        workers: how many of each worker type; no others
    """

    workers: Mapping[str, Any]


class SubmitJobsQuery(TypedDict, total=False):
    """What the query of ``submit_jobs`` may hold.

    Attributes:
        dry_run: change nothing; return where it could run
        forecast: with dry_run, of one job: also when it would start and complete
    """

    dry_run: bool | None
    forecast: bool | None


class ListJobsQuery(TypedDict, total=False):
    """What the query of ``list_jobs`` may hold.

    Attributes:
        status: any of these
        project: any of these
        job_type: any of these
        name: any of these
        owner: the job's owner
        label: key=value; every one of these
        called: its name, or its array's, or the beginning of its id
        sort: order; '-' puts the largest first
        limit: most items of one page
        cursor: next_cursor of the page before
    """

    status: JobStatus | Sequence[JobStatus] | None
    project: str | Sequence[str] | None
    job_type: str | Sequence[str] | None
    name: str | Sequence[str] | None
    owner: str | None
    label: str | Sequence[str] | None
    called: str | None
    sort: (
        Literal[
            "submitted",
            "-submitted",
            "updated",
            "-updated",
            "name",
            "-name",
            "weight",
            "-weight",
            "finished",
            "-finished",
            "deadline",
            "-deadline",
        ]
        | None
    )
    limit: int | None
    cursor: str | None


class ListJobEventsQuery(TypedDict, total=False):
    """What the query of ``list_job_events`` may hold.

    Attributes:
        after: only event ids above it
        limit: most items of one page
    """

    after: int | None
    limit: int | None


class ExplainJobQuery(TypedDict, total=False):
    """What the query of ``explain_job`` may hold.

    Attributes:
        forecast: whether start and end are forecast
    """

    forecast: bool | None


class ReadExecQuery(TypedDict, total=False):
    """What the query of ``read_exec`` may hold.

    Attributes:
        after: number of the first piece
        wait_s: how long to wait for one
    """

    after: int | None
    wait_s: float | None


class FindUploadQuery(TypedDict, total=False):
    """What the query of ``find_upload`` may hold.

    Attributes:
        project: its project, as of a job
    """

    project: str | None


class ReadLogQuery(TypedDict, total=False):
    """What the query of ``read_log`` may hold.

    Attributes:
        follow: go on until the job has ended
        tail_bytes: only the last bytes of each stream
        stream: which
        attempt: the attempt; the newest by default
        attempts: all: every attempt that is kept; not together with attempt
        since: ATTEMPT/NODE/STREAM/OFFSET: known until there
    """

    follow: bool | None
    tail_bytes: int | None
    stream: Literal["out", "err", "both"] | None
    attempt: int | None
    attempts: Literal["newest", "all"] | None
    since: str | Sequence[str] | None


class ListEventsQuery(TypedDict, total=False):
    """What the query of ``list_events`` may hold.

    Attributes:
        subject_kind: about what
        subject: id or name
        kind: any of these
        actor: the acting user
        since_s: at that time or later
        until_s: before that time
        project: only this project's
        after: only event ids above it
        before: only event ids below it
        descending: newest first
        limit: most events of one page
    """

    subject_kind: SubjectKind | None
    subject: str | None
    kind: EventKind | Sequence[EventKind] | None
    actor: str | None
    since_s: float | None
    until_s: float | None
    project: str | None
    after: int | None
    before: int | None
    descending: bool | None
    limit: int | None


class ListNodeAttemptsQuery(TypedDict, total=False):
    """What the query of ``list_node_attempts`` may hold.

    Attributes:
        before: only ids below it
        limit: most items of one page
    """

    before: int | None
    limit: int | None


class ListLeasesQuery(TypedDict, total=False):
    """What the query of ``list_leases`` may hold.

    Attributes:
        idle: only those with GPUs that hardly compute, the longest idle first
    """

    idle: bool | None


class ListClusterAttemptsQuery(TypedDict, total=False):
    """What the query of ``list_cluster_attempts`` may hold.

    Attributes:
        since_s: only leases that held workers after that time
        until_s: only leases that began before that time
        node: with workers of any of these nodes
        before: only ids below it
        limit: most items of one page
    """

    since_s: float | None
    until_s: float | None
    node: str | Sequence[str] | None
    before: int | None
    limit: int | None


class ListThroughputsQuery(TypedDict, total=False):
    """What the query of ``list_throughputs`` may hold.

    Attributes:
        job_type: only this one
        worker_type: only this one
    """

    job_type: str | None
    worker_type: str | None


class ForgetThroughputsQuery(TypedDict, total=False):
    """What the query of ``forget_throughputs`` may hold.

    Attributes:
        job_type: the job type with the figures to forget
    """

    job_type: str | None


class ShowUsageQuery(TypedDict, total=False):
    """What the query of ``show_usage`` may hold.

    Attributes:
        by: add up by these
        since_s: at that time or later
        until_s: before that time
        project: only this project's
    """

    by: UsageKey | Sequence[UsageKey] | None
    since_s: float | None
    until_s: float | None
    project: str | None


class TestWebhookQuery(TypedDict, total=False):
    """What the query of ``test_webhook`` may hold.

    Attributes:
        project: of the webhook, if several projects have the name
    """

    project: str | None


class ResumeWebhookQuery(TypedDict, total=False):
    """What the query of ``resume_webhook`` may hold.

    Attributes:
        project: of the webhook, if several projects have the name
    """

    project: str | None


class DeleteWebhookQuery(TypedDict, total=False):
    """What the query of ``delete_webhook`` may hold.

    Attributes:
        project: of the webhook, if several projects have the name
    """

    project: str | None
