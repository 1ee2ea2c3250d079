"""Jobs of a trace that give their model: they run under plans, as in the service."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from planner.estimates import Estimates
from planner.estimation.estimator import Estimator
from planner.planned import Planned
from planner.plans.document import write_model
from scheduler.domain.sources import ConfigurationSource
from scheduler.domain.throughputs.ways import CatalogueKey
from scheduler.errors import InputError
from scheduler.views.model_files import load_model
from traces.bundle import resolve
from traces.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from planner.plans.hardware import Hardware
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import Configuration
    from scheduler.domain.sources import SharedWay
    from traces.trace import Trace, TraceJob


def read_models(path: str) -> dict[str, str]:
    """Return job type -> model, see ``JobSpec.model``, of a file.

    Args:
        path: of YAML that maps job types to models, each as the field ``model`` of a job file; or
            ``bundled``.

    Raises:
        InputError: the file, or one that it names, cannot be used.
    """
    path = resolve(path, usual="models")
    document = read_yaml(path)
    if not isinstance(document, dict):
        raise InputError(f"{path} is {document!r}; it must map job types to models")
    found = {}
    for name, model in document.items():
        if not isinstance(name, str):
            raise InputError(f"{path} has the job type {name!r}, which is no text; quote it")
        place = f"{path}: {name}"
        found[name] = write_model(load_model(model, Path(path).parent, place=place), place=place)
    return found


def with_models(trace: Trace, models: Mapping[str, str]) -> Trace:
    """Return a trace whose jobs of some types give their models.

    Raises:
        InputError: such a job has no number of steps.
    """
    jobs = tuple(
        _with_model(job, models[job.job_type]) if job.job_type in models else job
        for job in trace.jobs
    )
    return replace(trace, jobs=jobs) if models else trace


def _with_model(job: TraceJob, model: str) -> TraceJob:
    if job.total_steps is None:
        raise InputError(
            f"job '{job.job_id}' of type '{job.job_type}' has no total_steps; a job with a model "
            "needs them"
        )
    return replace(job, model=model)


def misfits(trace: Trace, cluster: Cluster, hardware: Hardware) -> list[tuple[TraceJob, str]]:
    """Return the jobs whose model fits on none of their workers, and why."""
    planned = Planned(Estimator(), hardware)
    plans = Estimates(Estimator(), planned=planned)
    keys = [(CatalogueKey.of(job), job) for job in trace.jobs if job.model]
    lost = {
        key
        for key in dict(keys)
        if not any(way.throughput > 0.0 for way in plans.ways(key, cluster))
    }
    return [(job, planned.misfit(key)) for key, job in keys if key in lost]


def plannable(cluster: Cluster, hardware: Hardware) -> list[str]:
    """Return the worker types of a cluster for which models can be planned."""
    return [name for name in cluster.type_names if hardware.has(name)]


class PlannedJobs(ConfigurationSource):
    """Another source, and the fastest plans of jobs that give their model; predictions are true.

    Args:
        others: the source for all other jobs.
        hardware: accelerators; the bundled catalogue by default.
    """

    def __init__(self, others: ConfigurationSource, hardware: Hardware | None = None) -> None:
        self._others = others
        self._plans = Estimates(Estimator(), planned=Planned(Estimator(), hardware))

    def ways(self, key: CatalogueKey, cluster: Cluster) -> tuple[Configuration, ...]:
        """Return the ways in which a job runs alone."""
        if not key.model:
            return self._others.ways(key, cluster)
        ways = self._plans.ways(key, cluster)
        return tuple(replace(way, doubt=0.0) for way in ways if way.throughput > 0.0)

    def shared(
        self,
        one: CatalogueKey,
        other: CatalogueKey,
        cluster: Cluster,
        exclusive: Collection[str] = (),
    ) -> tuple[SharedWay, ...]:
        """Return the answer of the other source; planned jobs do not share."""
        if one.model or other.model:
            return ()
        return self._others.shared(one, other, cluster, exclusive)

    def may_share(self, key: CatalogueKey) -> bool:
        """Return the answer of the other source; planned jobs do not share."""
        return not key.model and self._others.may_share(key)

    def revision(self, key: CatalogueKey, cluster: Cluster) -> object:
        """Return the revision of the other source; plans do not change."""
        return cluster.type_names if key.model else self._others.revision(key, cluster)
