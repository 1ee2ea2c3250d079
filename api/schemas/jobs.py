"""Jobs as they are submitted, selected and changed."""

import json
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from api.schemas.fields import (
    AbsolutePath,
    AnyPath,
    Argument,
    ClientId,
    Flag,
    Form,
    Image,
    JobId,
    JobType,
    LabelKey,
    LabelValue,
    Moment,
    Name,
    Positive,
    ProjectName,
    Rate,
    Reason,
    Regex,
    Seconds,
    ShortSeconds,
    SomeSeconds,
    Subject,
    Variable,
    Weight,
    WorkerCounts,
    WorkerType,
)
from scheduler.control.requests import JobAction
from scheduler.domain.job import JobStatus

#: Largest array, and most jobs that one request may name.
MOST_JOBS = 1000
#: As much of a command in one text is split to show what it should look like.
_SHOWN_COMMAND = 200
#: Longest command, in characters of all arguments: what Linux takes, with room for variables.
LONGEST_COMMAND = 1_000_000

Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=64)]


class ArrayIn(Form):
    """An array: as many jobs as ``count``, named ``name[0]``, ``name[1]``, ..."""

    count: Annotated[int, Field(strict=True, ge=1, le=MOST_JOBS, description="jobs of the array")]


class ClaimIn(Form):
    """A volume claim in the job's pods."""

    claim: Annotated[str, Field(min_length=1, max_length=253)]
    path: AbsolutePath = Field(description="where it is mounted")
    read_only: Flag = False
    sub_path: Annotated[str, Field(max_length=4096)] = Field(
        "", description="a folder of the volume to mount instead of all of it"
    )


class KubernetesIn(Form):
    """What a job says about its pods; heeded where its nodes run pods."""

    requests: Annotated[dict[str, str], Field(max_length=32)] = Field(
        {}, description="resource name -> quantity; limits are cpus and memory_bytes"
    )
    volumes: Annotated[list[ClaimIn], Field(max_length=64)] = Field(
        [], description="volume claims, such as that of the checkpoints"
    )
    tolerations: Annotated[list[dict[str, Any]], Field(max_length=64)] = Field(
        [], description="taints that its pods tolerate"
    )
    service_account: Annotated[str, Field(max_length=253)] = Field(
        "", description="the account that its pods run as"
    )
    image_pull_secrets: Annotated[list[str], Field(max_length=16)] = Field(
        [], description="names of Secrets"
    )
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    runtime_class: Annotated[str, Field(max_length=253)] = Field("", description="RuntimeClass")
    shm_bytes: Annotated[int, Field(strict=True, ge=1, le=2**50)] | None = Field(
        None, description="most that /dev/shm may hold"
    )
    launch: Literal["per-worker", "per-node"] = Field(
        "per-worker", description="start the command once per worker, or per node (torchrun)"
    )
    force_delete: Flag = Field(
        False, description="whether a pod on a node that is long gone is deleted by force"
    )
    template: dict[str, Any] = Field(
        {}, description="a pod in Kubernetes' words, merged over what is made of the job"
    )


def given_twice(job: Mapping[str, Any]) -> str:
    """Say which fields of a job stand for the same, and are both given; empty if none are."""
    pairs = (("total_steps", "duration_s"), ("deadline_s", "deadline_in_s"))
    twice = ((a, b) for a, b in pairs if job.get(a) is not None and job.get(b) is not None)
    return "; ".join(f"give {a} or {b}, not both" for a, b in twice)


def _no_shell_line(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        words = shlex.split(value[:_SHOWN_COMMAND])
    except ValueError:  # a quote without its end
        words = []
    shown = json.dumps(words or ["python", "train.py"], ensure_ascii=False)
    raise ValueError(f"give a list of the program and its arguments, such as {shown}")


def _array(value: Any) -> Any:
    return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value


class JobIn(Form):
    """A job to submit.

    Give ``total_steps`` where the job counts steps, or ``duration_s`` where it does not.
    """

    name: Name = Field(description="what you call it")
    project: ProjectName | None = Field(
        None, description="whose quota it falls under; 'default', or the token's project"
    )
    command: Annotated[
        list[Argument], Field(min_length=1, max_length=1000), BeforeValidator(_no_shell_line)
    ] = Field(description="program and arguments, as a list; no shell sees it")
    env: Annotated[dict[Variable, Argument], Field(max_length=200)] = Field(
        {}, description="environment variables"
    )
    working_dir: AbsolutePath | None = Field(None, description="absolute path on the node")
    image: Image | None = Field(None, description="container image")
    scale_factor: WorkerCounts = Field([1], description="workers at once, or a list of counts")
    worker_types: Annotated[list[WorkerType], Field(max_length=64)] = Field(
        [], description="types that it may run on; none for any"
    )
    total_steps: Positive | None = Field(None, description="steps until it is complete")
    duration_s: SomeSeconds | None = Field(
        None, description="estimate of its run time in seconds, where it counts no steps"
    )
    job_type: JobType | None = Field(None, description="key into the throughput table")
    throughputs: Annotated[dict[WorkerType, Rate], Field(max_length=64)] = Field(
        {}, description="worker type -> steps/s at its scale factor, where known"
    )
    weight: Weight = Field(1.0, description="importance: 2 is due twice the share")
    deadline_s: Moment | None = Field(None, description="due time, seconds since the Unix epoch")
    deadline_in_s: SomeSeconds | None = Field(None, description="due so many seconds from now")
    max_run_time_s: SomeSeconds | None = Field(
        None, description="seconds for which it may hold workers in all"
    )
    max_failures: Annotated[int, Field(strict=True, ge=0, le=1000)] = Field(
        3, description="failures of its own that are retried"
    )
    retry_oom: Flag = Field(True, description="whether running out of memory is retried")
    checkpoint_dir: AbsolutePath | None = Field(None, description="where it keeps its state")
    labels: Labels = Field({}, description="free key-value pairs")
    entity: Subject | None = Field(None, description="whom its share is accounted to")
    depends_on: Annotated[list[JobId], Field(max_length=100)] = Field(
        [], description="ids of jobs that have to complete first"
    )
    array: Annotated[ArrayIn | None, BeforeValidator(_array)] = Field(
        None, description="submit so many copies"
    )
    notice_s: ShortSeconds | None = Field(
        None, description="seconds of notice before SIGTERM; the operator's where left out"
    )
    grace_s: ShortSeconds | None = Field(
        None, description="seconds from SIGTERM to SIGKILL; the operator's where left out"
    )
    restart_s: Seconds = Field(0.0, description="seconds of work that a change of workers costs")
    progress_regex: Regex | None = Field(
        None, description="searched in its output; group 'steps' (or 1) counts its steps"
    )
    progress_file: AnyPath | None = Field(
        None, description="file whose last number counts its checkpointed steps"
    )
    memory_bytes: Annotated[int, Field(strict=True, ge=2**20, le=2**50)] | None = Field(
        None, description="limit of host memory in bytes"
    )
    cpus: Annotated[float, Field(strict=True, gt=0, le=4096)] | None = Field(
        None, description="limit of processor cores"
    )
    space_sharing: Flag = Field(True, description="whether it may share workers")
    kubernetes: KubernetesIn | None = Field(None, description="what it says about its pods")
    client_id: ClientId | None = Field(
        None, description="your own id, by which a repeated submission is recognised"
    )
    held: Flag = Field(False, description="whether it is held until you release it")

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if both := given_twice(dict(self)):
            raise ValueError(both)
        if not self.command[0].strip():
            raise ValueError("command begins with an empty text; name a program")
        if sum(map(len, self.command)) > LONGEST_COMMAND:
            raise ValueError(f"command is longer than {LONGEST_COMMAND} characters")
        return self


class BatchIn(Form):
    """Jobs to submit at once; each stands for itself."""

    jobs: Annotated[list[JobIn], Field(min_length=1, max_length=MOST_JOBS)]


class LooseBatch(Form):
    """The outside of a batch, whose jobs are read one by one."""

    jobs: Annotated[list[Any], Field(min_length=1, max_length=MOST_JOBS)]


class SelectorIn(Form):
    """Which jobs are meant: those that pass every field that is given; at least one is."""

    status: Annotated[list[JobStatus], Field(max_length=16)] = Field(
        [], description="any of these; none: jobs that have not ended"
    )
    project: Annotated[list[ProjectName], Field(max_length=100)] = Field(
        [], description="any of these"
    )
    job_type: Annotated[list[JobType], Field(max_length=100)] = Field(
        [], description="any of these"
    )
    owner: Subject | None = Field(None, description="exactly this")
    labels: Labels = Field({}, description="every one of these")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.status or self.project or self.job_type or self.owner or self.labels):
            raise ValueError("is empty and would mean every job; give at least one field")
        return self


class Chosen(Form):
    """Jobs by id or by selector."""

    ids: Annotated[list[JobId], Field(min_length=1, max_length=MOST_JOBS)] | None = Field(
        None, description="job ids; or give 'selector'"
    )
    selector: SelectorIn | None = Field(None, description="which jobs; or give 'ids'")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.ids is None) == (self.selector is None):
            raise ValueError("give either ids or selector")
        return self


class ReasonIn(Form):
    """Why something is done to a job."""

    reason: Reason = Field("", description="in words; the history keeps it")


class ActIn(Chosen):
    """What to do to many jobs."""

    action: JobAction = Field(description="what to do")
    reason: Reason = Field("", description="why, in words; the history keeps it")
    dry_run: bool = Field(False, description="only tell what would become of each")


class ChangeIn(Form):
    """What to change; ``deadline_s`` null takes the deadline away."""

    weight: Weight | None = Field(None, description="importance")
    deadline_s: Moment | None = Field(None, description="due time, seconds since the Unix epoch")

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.weight is None and "deadline_s" not in self.model_fields_set:
            raise ValueError("changes nothing; give weight or deadline_s")
        return self

    @property
    def clears_deadline(self) -> bool:
        """Whether the deadline is to be taken away."""
        return self.deadline_s is None and "deadline_s" in self.model_fields_set


class BulkChangeIn(Chosen, ChangeIn):
    """What to change of many jobs."""


SortKey = Literal[
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
