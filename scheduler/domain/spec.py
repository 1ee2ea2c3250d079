"""What a user submits: a job with everything that a launch needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The project of jobs that name none.
DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job as submitted, every value checked by whoever read it.

    Attributes:
        name: what the user calls it.
        project: whose quota and permissions it falls under.
        command: program and arguments; never given to a shell.
        env: its own environment variables.
        working_dir: absolute path; empty for a folder of its own on the node.
        image: container image; empty where it runs as a local process.
        scale_factors: worker counts that it can run at, ascending; the first one counts as its
            scale factor.
        worker_types: types that it may run on; empty for any.
        total_steps: steps until it is complete, or None.
        duration_s: an estimate of its run time where it counts no steps, or None.
        job_type: key into the throughput table; empty: ``project/name``.
        throughputs: worker type -> steps/s of the whole job at its scale factor, as far as known.
        weight: its importance.
        deadline_s: by when it should be complete, seconds since the Unix epoch, or None.
        max_run_time_s: how long it may hold workers in all, or None.
        max_failures: failures of its own that are retried.
        retry_oom: whether running out of memory is retried like another failure.
        checkpoint_dir: where it keeps its state, or None.
        labels: free key-value pairs.
        entity: whom its share is accounted to; empty: the project.
        depends_on: ids of jobs that have to complete before it may run.
        array_index: its position in the array that it is a part of, or None.
        notice_s: how long before SIGTERM it is told; None for as long as the operator has set.
        grace_s: from SIGTERM to SIGKILL; None for as long as the operator has set.
        restart_s: seconds of work that a change of workers costs it.
        progress_regex: searched in its output; group ``steps`` (or 1) is the count of steps.
        progress_file: a file whose last number is the count of checkpointed steps.
        memory_bytes: limit of host memory, or None.
        cpus: limit of processor cores, or None.
        space_sharing: whether it may share workers with another job.
        kubernetes: what it says about its pods, as plain JSON values; empty: nothing. The fields
            are those of ``agent.kubernetes.pod_options.PodOptions``.
    """

    name: str
    project: str = DEFAULT_PROJECT
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    working_dir: str = ""
    image: str = ""
    scale_factors: tuple[int, ...] = (1,)
    worker_types: tuple[str, ...] = ()
    total_steps: float | None = None
    duration_s: float | None = None
    job_type: str = ""
    throughputs: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    weight: float = 1.0
    deadline_s: float | None = None
    max_run_time_s: float | None = None
    max_failures: int = 3
    retry_oom: bool = True
    checkpoint_dir: str | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    entity: str = ""
    depends_on: tuple[str, ...] = ()
    array_index: int | None = None
    notice_s: float | None = None
    grace_s: float | None = None
    restart_s: float = 0.0
    progress_regex: str | None = None
    progress_file: str | None = None
    memory_bytes: int | None = None
    cpus: float | None = None
    space_sharing: bool = True
    kubernetes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def scale_factor(self) -> int:
        """Workers that it holds in its first configuration."""
        return self.scale_factors[0]

    @property
    def type_key(self) -> str:
        """The job type under which its throughput is known or learned."""
        return self.job_type or f"{self.project}/{self.name}"

    @property
    def account(self) -> str:
        """The entity that its share is accounted to."""
        return self.entity or self.project
