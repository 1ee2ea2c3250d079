"""Requests of users to the scheduler, and their results: frozen values."""

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
    """An action on a job."""

    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    REQUEUE = "requeue"  #: stop and wait again; a job that has ended is taken up again


class NodeAction(enum.StrEnum):
    """An action on a node."""

    CORDON = "cordon"  #: nothing new starts there; running jobs continue
    DRAIN = "drain"  #: cordon, and make running jobs leave with notice
    UNCORDON = "uncordon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One job to submit.

    Attributes:
        spec: the job.
        client_id: the client's own id, which marks a repeated submission; empty: none.
        owner: the submitting user; client ids are unique per owner.
        job_id: the id of the job; empty: control makes one.
        held: whether it is held from the start.
    """

    spec: JobSpec
    client_id: str = ""
    owner: str
    job_id: str = ""
    held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """The result of a submission.

    Attributes:
        job_id: the job; empty if it was refused.
        created: False if the client id was known and this is the job of the earlier request.
        refusal: why it can never run, or why the client id clashes; empty if it was accepted.
        code: ``refused``, ``invalid``, ``conflict``, ``quota``, ``unavailable`` or empty.
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
        reason: why it cannot run, or cannot start yet; None if it could start now.
        message: the reason as text.
        configurations: the ways in which it could run, the fastest first.
        starts_s: when it would start, by a replay; None if that was not asked, or is not known.
        completes_s: when it would complete.
        forecast: what these times rest on, or why there are none; empty if they were not asked.
    """

    fits: bool
    reason: WaitReason | None
    message: str
    configurations: tuple[FitConfiguration, ...]
    starts_s: float | None = None
    completes_s: float | None = None
    forecast: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitConfiguration:
    """One way in which a job could run.

    If the job must not span nodes, the counted workers are those of one node. Of a mixed gang only
    workers that it could hold are counted.

    Attributes:
        worker_type: the type of the workers; of a mixed gang as in ``1 x a100 + 1 x v100``.
        count: workers that the job holds.
        steps_per_s: steps/s of the whole job.
        source: the source of that figure: ``measured``, ``declared``, ``estimated`` or ``assumed``.
        workers_in_service: workers that it could be given if they were idle, without cordoned ones.
        workers_idle: those of them that are idle.
        locality: ``consolidated`` if the workers must lie on one node, else ``any``.
        plan: the plan of its launch, from a source of configurations; empty without a plan.
        workers: worker type -> workers of it; two types if the gang is mixed.
    """

    worker_type: str
    count: int
    steps_per_s: float
    source: str
    workers_in_service: int
    workers_idle: int
    locality: str = ANYWHERE
    plan: str = ""
    workers: Mapping[str, int] = field(default_factory=dict)  # answers copy it; a proxy cannot be


@dataclass(frozen=True, slots=True, kw_only=True)
class Acted:
    """The result of an action on one job.

    Attributes:
        job_id: the job.
        changed: whether anything changed.
        error: why the action failed; empty otherwise.
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
    """The limits of a project.

    Attributes:
        project: its name.
        weight: its share relative to other projects, if the policy uses entities.
        inner_policy: ``fairness`` or ``fifo`` among its own jobs.
        max_workers: workers that its jobs may hold at once; None for any number.
        max_workers_of: worker type -> workers of it that its jobs may hold at once; missing types
            have no limit of their own.
        max_workers_per_user: workers that the jobs of each of its users may hold at once; None for
            any number.
        max_workers_per_user_of: worker type -> workers of it that the jobs of each user may hold.
        idle_quota: how other projects may use the part of ``max_workers`` and ``max_workers_of``
            that its jobs leave free.
        max_jobs: how many active jobs it may have; None for any number.
        entities: entities besides itself that its jobs may be accounted to; None for any.
        job_types: patterns (``*``, ``?``, ``[...]``) of the job types besides ``project/...`` that
            its jobs may name; None for any.
        max_job_weight: largest weight of one of its jobs; None for any.
        budget_gpu_hours: worker-hours that it may use in a calendar month of UTC; None for any.
        budget_usd: the cost that it may cause in a calendar month of UTC; None for any.
        budget_warning: part of a budget at which a warning is given; None for 0.8.
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
        """The project's limits as quotas."""
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
