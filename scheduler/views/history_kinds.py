"""Kinds of lines of history, and kinds of their subjects."""

from __future__ import annotations

import enum


class SubjectKind(enum.StrEnum):
    """What a line of history is about."""

    JOB = "job"
    NODE = "node"
    POLICY = "policy"
    PROJECT = "project"
    RESERVATION = "reservation"
    THROUGHPUTS = "throughputs"
    SCHEDULER = "scheduler"
    TOKEN = "token"  # noqa: S105 - a word
    ENROLMENT = "enrolment"
    WEBHOOK = "webhook"


class EventKind(enum.StrEnum):
    """What happened. Every kind that is written is here: a test goes through the sources."""

    JOB_SUBMITTED = "job_submitted"
    JOB_ADMITTED = "job_admitted"  #: passed to the policy
    JOB_REFUSED = "job_refused"
    JOB_CHANGED = "job_changed"  #: its weight or deadline
    JOB_HELD = "job_held"
    JOB_RELEASED = "job_released"
    JOB_REQUEUED = "job_requeued"
    JOB_PREEMPTED = "job_preempted"
    JOB_INTERRUPTED = "job_interrupted"  #: its workers went away
    JOB_AVOIDS_NODE = "job_avoids_node"  #: it could not be started there, or has failed there
    JOB_KEEPS_NOTHING = "job_keeps_nothing"  #: it has lost its work several times in a row
    JOB_RETRIED = "job_retried"  #: it failed and will be tried again
    JOB_COMPLETED = "job_completed"
    JOB_FAILED = "job_failed"
    JOB_CANCELLED = "job_cancelled"
    JOB_EXEC = "job_exec"  #: a user runs a command beside it
    CANCEL_REQUESTED = "cancel_requested"
    HOLD_REQUESTED = "hold_requested"
    RELEASE_REQUESTED = "release_requested"
    REQUEUE_REQUESTED = "requeue_requested"
    TIME_LIMIT = "time_limit"
    JOB_IDLE = "job_idle"  #: it holds GPUs and does not use them
    JOB_BUSY = "job_busy"  #: it uses them again
    IDLE_LIMIT = "idle_limit"  #: it is ended because it idled
    LEASE_GRANTED = "lease_granted"
    LEASE_LAUNCHED = "lease_launched"
    FIRST_STEP = "first_step"  #: the first step that was reported under a lease
    LEASE_WAITS = "lease_waits"  #: something keeps it from starting
    LEASE_OVERDUE = "lease_overdue"  #: it does not run in time
    PROGRESS_OFF = "progress_off"  #: its steps cannot be read, and why
    LEASE_ENDED = "lease_ended"
    NODE_JOINED = "node_joined"
    NODE_CHANGED = "node_changed"  #: its workers
    WORKERS_APPROVED = "workers_approved"  #: the workers that a node may have
    WORKERS_REFUSED = "workers_refused"  #: workers that it reports beyond those
    NODE_SUSPECTED = "node_suspected"  #: jobs fail there, but it is needed
    NODE_AVOIDED = "node_avoided"  #: jobs fail there; nothing new starts there for a while
    NODE_QUARANTINED = "node_quarantined"  #: the same until an operator uncordons it
    NODE_TRIED_AGAIN = "node_tried_again"  #: it was avoided for long enough
    NODE_SLOW = "node_slow"  #: relative to others of its type
    NODE_FAST_AGAIN = "node_fast_again"
    NODE_SILENT = "node_silent"
    NODE_LOST = "node_lost"
    NODE_RETURNED = "node_returned"
    NODE_CORDON = "node_cordon"
    NODE_DRAIN = "node_drain"
    NODE_DRAINED = "node_drained"  #: its last lease is over
    NODE_UNCORDON = "node_uncordon"
    NODE_REMOVED = "node_removed"
    WORKERS_FAILED = "workers_failed"
    WORKERS_RECOVERED = "workers_recovered"
    AGENT_STOPPED = "agent_stopped"  #: together with its jobs, which leave in time
    AGENT_DIED = "agent_died"  #: silent for too long, or started again without having been stopped
    AGENT_ENROLLED = "agent_enrolled"
    POLICY_CHANGED = "policy_changed"
    POLICY_WARNING = "policy_warning"
    ALLOCATION_FAILED = "allocation_failed"
    PROJECT_CHANGED = "project_changed"
    BUDGET_WARNING = "budget_warning"  #: most of a project's budget of the month is used
    BUDGET_SPENT = "budget_spent"  #: all of it; its jobs wait
    BUDGET_FREE = "budget_free"  #: it has room again
    RESERVATION_MADE = "reservation_made"
    RESERVATION_DELETED = "reservation_deleted"
    RESERVATION_ENDED = "reservation_ended"  #: its window has passed
    RESERVATION_RELEASED = "reservation_released"  #: the only job that it was for has ended
    RESERVATION_SHORT = "reservation_short"  #: of workers; 0 if it has them all again
    THROUGHPUTS_DECLARED = "throughputs_declared"
    THROUGHPUTS_FORGOTTEN = "throughputs_forgotten"
    TOKEN_CREATED = "token_created"  # noqa: S105 - a word
    TOKEN_REVOKED = "token_revoked"  # noqa: S105 - a word
    TOKEN_RENEWED = "token_renewed"  # noqa: S105 - a word
    TOKEN_REUSED = "token_reused"  # noqa: S105 - a word; after its renewal: it may be stolen
    ENROLMENT_CREATED = "enrolment_created"
    WEBHOOK_CREATED = "webhook_created"
    WEBHOOK_DELETED = "webhook_deleted"
    WEBHOOK_FAILING = "webhook_failing"  #: its receiver has not taken a message several times
    WEBHOOK_PAUSED = "webhook_paused"  #: nothing is sent until a user resumes it
    WEBHOOK_RESUMED = "webhook_resumed"
    RESTORED = "restored"  #: the scheduler started on a backup
