"""The ways in which a job could run, and how well it is known how fast it would be there."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler.domain.configuration import ANYWHERE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.jobs.spec import JobSpec

#: What a job says of its batch, see ``planner.learning.goodput.BatchLimits``.
BATCH_LIMITS: Final = ("initial", "most", "least_per_worker", "most_per_worker")
#: Part of the sum of the rates that a mixed gang loses: parts of a batch are whole samples, passes
#: cannot be cut as finely as paces differ, and workers are not equally fast in every step.
MIXED_OVERHEAD: Final = 0.05


class Source(enum.StrEnum):
    """The origin of a throughput."""

    MEASURED = "measured"  #: jobs ran there, and that outweighs the declared figure
    DECLARED = "declared"  #: a user declared it
    ESTIMATED = "estimated"  #: inferred: other scale factors, worker types, job types
    ASSUMED = "assumed"  #: nothing is known of the job type: one step a second on one worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The known figures of a job type at a scale factor on a worker type.

    Attributes:
        steps_per_s: of the whole job; 0 if it was declared not to run.
        relative_deviation: standard deviation of its logarithm; about the relative one when small.
        source: its origin.
        samples: stretches measured.
        declared: as declared, or None.
        measured: steps/s as measured, without the declared figure; None if never run.
    """

    steps_per_s: float
    relative_deviation: float
    source: Source
    samples: int = 0
    declared: float | None = None
    measured: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueKey:
    """What the jobs of one profile have in common.

    Attributes:
        job_type: under which throughputs are known or learned.
        scale_factors: worker counts, ascending.
        worker_types: types that it may run on, sorted; empty for any.
        space_sharing: whether it may share workers.
        timed: whether its steps are seconds, one a second wherever it runs; nothing is learned.
        batch: (4,) initial and most samples per step, least and most per worker and pass, if the
            batch may change; else empty.
        learner: distinguishes jobs with variable batches, since each has its own noise of
            gradients. A later job may have that of a job that has ended.
        mixed_gangs: whether it may run on workers of two types at once.
        model: see ``JobSpec.model``; its digest alone if no active job has it.
    """

    job_type: str
    scale_factors: tuple[int, ...]
    worker_types: tuple[str, ...] = ()
    space_sharing: bool = True
    timed: bool = False
    batch: tuple[int, ...] = ()
    learner: str = ""
    mixed_gangs: bool = False
    model: str = ""

    @classmethod
    def of(cls, spec: JobSpec, learner: str = "") -> CatalogueKey:
        """Return the key of a job; ``learner`` counts only if its batch may change."""
        batch = spec.batch
        return cls(
            job_type=spec.type_key,
            scale_factors=tuple(sorted(set(spec.scale_factors))),
            worker_types=tuple(sorted(set(spec.worker_types))),
            space_sharing=spec.space_sharing and not (batch or spec.model),
            timed=spec.total_steps is None and not spec.throughputs,
            batch=tuple(batch[name] for name in BATCH_LIMITS) if batch else (),
            learner=learner if batch else "",
            mixed_gangs=spec.mixed_gangs and not (batch or spec.model),
            model=spec.model,
        )

    def allows(self, worker_type: str) -> bool:
        """Return whether its jobs may run on a worker type."""
        return not self.worker_types or worker_type in self.worker_types


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way in which a job could run alone.

    Attributes:
        workers: worker type -> workers held of it, at least one.
        estimate: how fast it would be.
        locality: see ``Configuration``.
        plan: see ``Configuration``.
    """

    workers: Mapping[str, int]
    estimate: Estimate
    locality: str = ANYWHERE
    plan: str = ""

    @property
    def count(self) -> int:
        """Workers held."""
        return sum(self.workers.values())

    @property
    def worker_type(self) -> str:
        """Hardware class; of several types what ``workers_in_words`` says of them."""
        names = tuple(self.workers)
        return names[0] if len(names) == 1 else workers_in_words(self.workers)


def workers_in_words(workers: Mapping[str, int]) -> str:
    """Return workers of some types as people read them: ``2 x a100 + 1 x v100``."""
    return " + ".join(f"{count} x {name}" for name, count in sorted(workers.items()))


def mixed_rate(workers: Mapping[str, int], alone: Mapping[str, float]) -> float:
    """Return steps/s of a mixed gang: what its workers do together, less an overhead.

    Args:
        workers: worker type -> workers held of it.
        alone: worker type -> steps/s of a gang of as many workers in all, of this type alone; 0 if
            the job does not run there.
    """
    if min(alone[name] for name in workers) <= 0.0:
        return 0.0
    count = sum(workers.values())
    together = sum(n * alone[name] / count for name, n in workers.items())
    return together * (1.0 - MIXED_OVERHEAD)


def declarations(spec: JobSpec) -> tuple[tuple[str, int, str, float], ...]:
    """Return what a job says of its throughputs: what ``Knowledge.declare`` takes."""
    return tuple(
        (spec.type_key, spec.scale_factor, worker_type, steps_per_s)
        for worker_type, steps_per_s in spec.throughputs.items()
    )
