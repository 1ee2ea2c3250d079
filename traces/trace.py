"""Traces: jobs as files state them and as runs replay them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from scheduler.domain.jobs.job import LARGEST_GANG, Job
from scheduler.domain.jobs.spec import DEFAULT_PROJECT, JobSpec
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Checkpoint folder of a job of a trace; a replay writes no files.
CHECKPOINTS: Final = "/{job_id}"
#: Fields of a job that the service and its replays use, and a run of the engine alone does not.
CONDITIONS: Final = ("project", "depends_on", "array_index", "max_run_time_s", "retry_oom")
_USUAL: Final = (DEFAULT_PROJECT, (), None, None, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob(JobSpec):
    """A job of a trace: its specification, its id, and when it arrives.

    If a file lacks ids, job types or numbers of steps, ``traces.complete`` fills them in.

    Attributes:
        job_id: unique id; if it is empty, the position in the file becomes the id.
        arrival_s: when the job is submitted, seconds since the start of the trace.
        slo: deadline as a multiple of the duration on the reference worker type, in place of
            ``deadline_s``; None in a trace that has been read.
        line: 1-based line of the file; 0 if there is no file.
    """

    job_id: str = ""
    arrival_s: float = 0.0
    slo: float | None = None
    line: int = field(default=0, compare=False)
    name: str = ""
    command: tuple[str, ...] = ("replay",)
    array_index: int | None = None
    checkpoint_dir: str | None = CHECKPOINTS  # most jobs of traces save their work

    def __post_init__(self) -> None:
        """Refuse worker counts that do not ascend."""
        counts = self.scale_factors
        if (
            not counts
            or counts[0] < 1
            or counts[-1] > LARGEST_GANG
            or (len(counts) > 1 and tuple(sorted(set(counts))) != counts)
        ):
            raise InputError(
                f"job field 'scale_factors' has the value {counts!r}: it must ascend from at least "
                f"1 to at most {LARGEST_GANG}"
            )

    @property
    def checkpoints(self) -> bool:
        """Whether the job saves its work when it must leave its workers."""
        return self.checkpoint_dir is not None

    @property
    def has_conditions(self) -> bool:
        """Whether one of the fields ``CONDITIONS`` is set."""
        return any(getattr(self, n) != usual for n, usual in zip(CONDITIONS, _USUAL, strict=True))

    def fill_in(self, **values: object) -> None:
        """Set values that a file leaves out, before anything else holds the job.

        ``dataclasses.replace`` takes five times as long with so many fields.
        """
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def engine_job(self) -> Job:
        """Return the job as a run of the engine alone sees it.

        Raises:
            InputError: a field has a value that no job can have; names field and value.
        """
        return Job(
            job_id=self.job_id,
            job_type=self.job_type,
            total_steps=self.total_steps or 0.0,
            scale_factor=self.scale_factor,
            arrival_s=self.arrival_s,
            weight=self.weight,
            deadline_s=self.deadline_s,
            entity=self.entity,
            max_failures=self.max_failures,
            restart_s=self.restart_s,
            restarts=self.restarts,
            preemptible=self.preemptible,
            min_run_time_s=self.min_run_time_s,
            checkpoints=self.checkpoints,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTrace:
    """The jobs of a file as its lines state them.

    Attributes:
        jobs: in the order of the file.
        relative: whether arrivals count from the earliest one.
        size_field: the file's name of the worker count, for messages.
        notes: the file's remarks about itself.
    """

    jobs: list[TraceJob]
    relative: bool = False
    size_field: str = "scale_factor"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A workload.

    Attributes:
        jobs: sorted by arrival; if some arrive together, they keep the order of the file.
        source: the file, or the generator's name.
        format: as in ``traces.formats.format_names``, or ``generated``.
        notes: remarks for readers of results: how job types were drawn, which worker type durations
            refer to, and the sources of the figures.
    """

    jobs: tuple[TraceJob, ...]
    source: str = ""
    format: str = ""
    notes: tuple[str, ...] = ()

    @property
    def scale_factors(self) -> tuple[int, ...]:
        """The worker counts in use, ascending."""
        return tuple(sorted({count for job in self.jobs for count in job.scale_factors}))

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.jobs[-1].arrival_s - self.jobs[0].arrival_s if self.jobs else 0.0

    @property
    def conditions(self) -> Mapping[str, TraceJob]:
        """The old name of some fields of the jobs: the jobs that set them, by id."""
        _warn_of_conditions()
        return {job.job_id: job for job in self.jobs if job.has_conditions}


def __getattr__(name: str) -> Any:
    """Return ``Conditions``, the old name of some fields of a job."""
    if name != "Conditions":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    _warn_of_conditions()
    return SimpleNamespace


def _warn_of_conditions() -> None:
    warnings.warn(
        "conditions go with the release after 0.3.0; a traces.trace.TraceJob has their fields",
        DeprecationWarning,
        stacklevel=3,
    )
