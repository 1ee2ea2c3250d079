"""Jobs as they are submitted, selected and changed."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, create_model, model_validator

from api.schemas.fields import (
    AbsolutePath,
    ClientId,
    Flag,
    Form,
    JobId,
    Labels,
    Moment,
    ProjectName,
    Reason,
    Samples,
    SomeSeconds,
    Weight,
    type_of,
)
from api.schemas.filters import selector_fields
from planner.learning.goodput import BatchLimits, splits_of
from scheduler.control.facts.requests import JobAction
from scheduler.domain.jobs.fields import Asked, Number, Word
from scheduler.domain.jobs.job import counts_between
from scheduler.domain.jobs.spec import JOB_FIELDS
from scheduler.errors import InputError

#: Largest array, and most jobs that one request may name.
MOST_JOBS = 1000
#: Longest command, in characters of all arguments: what Linux takes, with room for variables.
LONGEST_COMMAND = 1_000_000


class ArrayIn(Form):
    """An array: as many jobs as ``count``, named ``name[0]``, ``name[1]``, ..."""

    count: Annotated[int, Field(strict=True, ge=1, le=MOST_JOBS, description="jobs of the array")]


class ClaimIn(Form):
    """A volume claim in the job's pods."""

    claim: Annotated[str, Field(min_length=1, max_length=253)]
    path: AbsolutePath = Field(description="its mount point")
    read_only: Flag = False
    sub_path: Annotated[str, Field(max_length=4096)] = Field(
        "", description="a folder of the volume to mount instead of all of it"
    )


class KubernetesIn(Form):
    """A job's settings for its pods; used if its nodes run pods."""

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
        {}, description="a pod in Kubernetes' words, merged over the pod made from the job"
    )


class BatchLimitsIn(Form):
    """Between what a job may choose its batch; it counts steps of the initial one."""

    initial: Samples = Field(description="samples per step of the batch by which steps count")
    most: Samples = Field(description="samples per step at most")
    least_per_worker: Samples = Field(1, description="samples per worker and pass at least")
    most_per_worker: Samples = Field(description="samples per worker and pass at most, by memory")

    @model_validator(mode="after")
    def _leaves_something(self) -> Self:
        try:
            BatchLimits(**dict(self))
        except InputError as error:
            raise ValueError(str(error)) from None
        return self


_STAND_FOR_THE_SAME = (("total_steps", "duration_s"), ("deadline_s", "deadline_in_s"))


def given_twice(job: Mapping[str, Any]) -> str:
    """Say which fields of a job stand for the same, and are both given; empty if none are."""
    return "; ".join(
        f"give {a} or {b}, not both"
        for a, b in _STAND_FOR_THE_SAME
        if job.get(a) is not None and job.get(b) is not None
    )


def _counts_disagree(job: Mapping[str, Any], given: Collection[str]) -> str:
    """Return the problem with a job's worker counts; empty if they are valid.

    Args:
        job: the values of its fields.
        given: names of the fields that were given.
    """
    least, most = job.get("min_workers"), job.get("max_workers")
    if least is None and most is None:
        return ""
    if "scale_factor" in given:
        return "give scale_factor, or min_workers and max_workers, not both"
    if most is None:
        return f"min_workers is {least}, without max_workers; give both, or scale_factor {least}"
    if least is not None and least > most:
        return f"min_workers is {least} and max_workers {most}; the first is at most the second"
    return ""


def _batch_fits_none(job: Mapping[str, Any]) -> str:
    """Say that no batch fits any worker count of a job; empty if one does, or none is asked for."""
    asked, most = job["batch"], job.get("max_workers")
    if asked is None:
        return ""
    counts = job["scale_factor"]
    if most is not None:
        counts = counts_between(job.get("min_workers") or 1, most)
    limits = BatchLimits(**dict(asked))
    if any(splits_of(limits, count) for count in counts):
        return ""
    return (
        f"no batch from {limits.initial} to {limits.most} samples gives each of "
        f"{' or '.join(map(str, counts))} workers {limits.least_per_worker} to "
        f"{limits.most_per_worker} per pass; widen batch, or allow other worker counts"
    )


def _model_disagrees(job: Mapping[str, Any]) -> str:
    """Return the fields that a job must or must not give beside a model; empty if all is well."""
    if job["model"] is None:
        return ""
    if job["total_steps"] is None:
        return "model needs total_steps, in steps of its batch; give both"
    others = (name for name in ("throughputs", "batch", "mixed_gangs") if job[name])
    return "; ".join(f"give model or {name}, not both: its plans say it" for name in others)


def _array(value: Any) -> Any:
    return {"count": value} if isinstance(value, int) and not isinstance(value, bool) else value


class UploadIn(Form):
    """Code that jobs of a project are started in."""

    project: ProjectName | None = Field(
        None, description="its project; 'default', or the token's project"
    )
    archive: Annotated[str, Field(max_length=2**30)] = Field(
        description="a tar file that gzip has compressed, in base64"
    )


class JobForm(Form):
    """What the fields of a job say together; they are added below."""

    if TYPE_CHECKING:
        command: list[str]
        env: dict[str, str]
        secret_env: dict[str, str]
        upload: str | None
        working_dir: str | None
        total_steps: float | None
        batch: BatchLimitsIn | None
        mixed_gangs: bool
        model: str | None
        throughputs: dict[str, float]

    @model_validator(mode="after")
    def _agree(self) -> Self:
        wrong = given_twice(vars(self)) or _counts_disagree(vars(self), self.model_fields_set)
        if wrong := wrong or _model_disagrees(vars(self)):
            raise ValueError(wrong)
        if both := ", ".join(sorted(self.env.keys() & self.secret_env.keys())):
            raise ValueError(f"{both}: give a variable in env or in secret_env, not in both")
        if self.upload and self.working_dir:
            raise ValueError("give upload or working_dir, not both: it starts in its upload")
        if self.batch is not None and self.total_steps is None:
            raise ValueError("batch needs total_steps, in steps of the initial batch; give both")
        if self.batch is not None and self.mixed_gangs:
            raise ValueError(
                "give batch or mixed_gangs, not both: the batch is chosen for workers of one type"
            )
        if unfit := _batch_fits_none(vars(self)):
            raise ValueError(unfit)
        if not self.command[0].strip():
            raise ValueError("command begins with an empty text; name a program")
        if sum(map(len, self.command)) > LONGEST_COMMAND:
            raise ValueError(f"command is longer than {LONGEST_COMMAND} characters")
        return self


#: Fields of a request that are not part of a specification -> type and field; behind the one named.
_BESIDE: Mapping[str, Mapping[str, tuple[Any, Any]]] = {
    "deadline_s": {
        "deadline_in_s": (
            SomeSeconds | None,
            Field(None, description="due so many seconds from now"),
        )
    },
    "depends_on": {
        "array": (
            Annotated[ArrayIn | None, BeforeValidator(_array)],
            Field(None, description="submit so many copies"),
        )
    },
    "kubernetes": {
        "client_id": (
            ClientId | None,
            Field(None, description="your own id, by which a repeated submission is recognised"),
        ),
        "held": (Flag, Field(False, description="whether it is held until you release it")),
    },
}


#: Fields that have a form of their own.
_FORMS: Mapping[Word | Number, type[Form]] = {Word.PODS: KubernetesIn, Word.BATCH: BatchLimitsIn}


def _declared() -> dict[str, tuple[Any, Any]]:
    """Return the fields of a request: type and field by name."""
    made: dict[str, tuple[Any, Any]] = {}
    for known in JOB_FIELDS:
        made[known.name] = _field_of(known)
        made |= _BESIDE.get(known.name, {})
    return made


def _field_of(known: Asked) -> tuple[Any, Any]:
    kind = _FORMS[known.kind] if known.kind in _FORMS else type_of(known.kind)
    if known.needed:
        return kind, Field(description=known.help)
    default = known.default
    # A text that is not given is empty in a specification, and null in a request.
    unsaid = default is None or default == ""
    if known.by_caller or known.kind in _FORMS or unsaid:
        return kind | None, Field(None, description=known.help)
    if isinstance(default, tuple):
        default = list(default)
    elif isinstance(default, Mapping):
        default = dict(default)
    return kind, Field(default, description=known.help)


if TYPE_CHECKING:

    class JobIn(JobForm):
        """What code names of a job; the others are read by the names in ``JOB_FIELDS``."""

        project: str | None
        depends_on: list[str]
        deadline_in_s: float | None
        min_workers: int | None
        max_workers: int | None
        array: ArrayIn | None
        client_id: str | None
        held: bool

else:
    JobIn = create_model(
        "JobIn",
        __base__=JobForm,
        __module__=__name__,
        __doc__="""A job to submit.

    Give ``total_steps`` if the job counts steps, or ``duration_s`` if it does not.
    """,
        **_declared(),
    )


class BatchIn(Form):
    """Jobs to submit at once; each stands for itself."""

    jobs: Annotated[list[JobIn], Field(min_length=1, max_length=MOST_JOBS)]


class LooseBatch(Form):
    """The outside of a batch; its jobs are read one by one."""

    jobs: Annotated[list[Any], Field(min_length=1, max_length=MOST_JOBS)]


class SelectorForm(Form):
    """What the fields of a selector say together; they are added below."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not any(value for _, value in self):
            raise ValueError("is empty and would mean every job; give at least one field")
        return self


if TYPE_CHECKING:

    class SelectorIn(SelectorForm):
        """What code names of a selector; the others are read by the names in ``FILTERS``."""

        project: list[str]
        labels: Mapping[str, str]

else:
    SelectorIn = create_model(
        "SelectorIn",
        __base__=SelectorForm,
        __module__=__name__,
        __doc__="Which jobs are meant: those that pass every field that is given; at least one is.",
        **selector_fields(),
        labels=(Labels, Field({}, description="every one of these")),
    )


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
    dry_run: bool = Field(False, description="change nothing; return the outcome for each")


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
