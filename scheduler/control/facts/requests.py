"""What people ask of the scheduler, and what becomes of it: frozen values."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from scheduler.domain.configuration import ANYWHERE
from scheduler.domain.quota import IdleQuota, Quota

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.facts.reasons import WaitReason
    from scheduler.domain.jobs.spec import JobSpec


class JobAction(enum.StrEnum):
    """What can be done to a job."""

    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    REQUEUE = "requeue"  #: stop and wait anew; an ended job is taken up again


class NodeAction(enum.StrEnum):
    """What can be done to a node."""

    CORDON = "cordon"  #: nothing new starts there; what runs goes on
    DRAIN = "drain"  #: cordon, and let what runs leave with notice
    UNCORDON = "uncordon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One job to submit.

    Attributes:
        spec: the job.
        client_id: the client's own id, by which a repeated submission is recognised; empty: none.
        owner: who submits it; client ids are unique per owner.
        job_id: the id that the job is to have; empty: one is made.
        held: whether it is held from the start.
    """

    spec: JobSpec
    client_id: str = ""
    owner: str
    job_id: str = ""
    held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What became of a submission.

    Attributes:
        job_id: the job; empty where it was refused.
        created: False where the client id was known and this is the job of the earlier request.
        refusal: why it can never run, or why the client id clashes; empty where it was taken.
        code: ``refused``, ``invalid``, ``conflict``, ``quota`` or empty.
    """

    job_id: str = ""
    created: bool = False
    refusal: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether and where a job could run.

    Attributes:
        fits: whether some configuration fits the cluster as it is.
        reason: why not, or why not yet; None where it could start now.
        message: in words.
        configurations: worker type, count, steps/s, where the figure comes from, how many workers
            are in service (cordoned ones left out) and idle, of one node where it must not span
            nodes, and its locality and plan; fastest first. A mixed gang's worker type is in words,
            and only workers that it could hold count as in service and idle.
    """

    fits: bool
    reason: WaitReason | None
    message: str
    configurations: tuple[FitConfiguration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitConfiguration:
    """One way in which a job could run; see ``Fit``."""

    worker_type: str
    count: int
    steps_per_s: float
    source: str
    workers_in_service: int
    workers_idle: int
    locality: str = ANYWHERE
    plan: str = ""
    workers: Mapping[str, int] = field(default_factory=dict)  # answers copy it, which no proxy can


@dataclass(frozen=True, slots=True, kw_only=True)
class Acted:
    """What became of an action on one job.

    Attributes:
        job_id: which.
        changed: whether anything changed.
        error: why it could not be done; empty otherwise.
        code: ``not_found``, ``conflict``, ``invalid``, ``quota`` or empty.
    """

    job_id: str
    changed: bool = False
    error: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChoice:
    """A policy to put in force; parameters as text, as on the command line."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    agnostic: bool = False
    space_sharing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectLimits:
    """What a project may have.

    Attributes:
        project: its name.
        weight: its share relative to other projects, where the policy heeds entities.
        inner_policy: ``fairness`` or ``fifo`` among its own jobs.
        max_workers: workers that its jobs may hold at once; None for any number.
        max_workers_of: worker type -> workers of it, likewise; types that are missing have no
            limit of their own.
        max_workers_per_user: workers that the jobs of each of its users may hold at once; None for
            any number.
        max_workers_per_user_of: worker type -> workers of it, likewise.
        idle_quota: what becomes of what its jobs do not ask for of ``max_workers`` and
            ``max_workers_of``.
        max_jobs: jobs that it may have that have not ended; None for any number.
        entities: entities besides itself that its jobs may be accounted to; None for any.
        job_types: patterns (``*``, ``?``, ``[...]``) of the job types besides ``project/...`` that
            its jobs may name; None for any.
        max_job_weight: largest weight of one of its jobs; None for any.
        budget_gpu_hours: worker-hours that it may use in a calendar month of UTC; None for any.
        budget_usd: likewise what they may cost.
        budget_warning: part of a budget from which on it is warned of; None for 0.8.
    """

    project: str
    weight: float = 1.0
    inner_policy: str = "fairness"
    max_workers: int | None = None
    max_jobs: int | None = None
    entities: tuple[str, ...] | None = None
    job_types: tuple[str, ...] | None = None
    max_job_weight: float | None = None
    max_workers_of: Mapping[str, int] = field(default_factory=dict)
    max_workers_per_user: int | None = None
    max_workers_per_user_of: Mapping[str, int] = field(default_factory=dict)
    idle_quota: IdleQuota = IdleQuota.KEEP
    budget_gpu_hours: float | None = None
    budget_usd: float | None = None
    budget_warning: float | None = None

    @property
    def quotas(self) -> tuple[Quota, ...]:
        """What its jobs may hold at once."""
        whole = {"": self.max_workers, **self.max_workers_of}
        each = {"": self.max_workers_per_user, **self.max_workers_per_user_of}
        return (
            *(
                Quota(project=self.project, limit=most, worker_type=name, idle=self.idle_quota)
                for name, most in sorted(whole.items())
                if most is not None
            ),
            *(
                Quota(project=self.project, limit=most, worker_type=name, each_user=True)
                for name, most in sorted(each.items())
                if most is not None
            ),
        )
