"""Step times of jobs with a variable batch, and the rates that follow from them.

A job reports how long its passes took at the placements and batches at which it ran. A model for
each job type is fitted to all of them, and gives the speed of learning at placements at which no
such job has run: see ``planner.learning.goodput``. Without measurements the model is optimistic, so
jobs are tried there; a job is offered at most twice as many workers as any of its type has run on.

Each job reports the noise of its own gradients.

Source: Pollux (Qiao et al., OSDI 2021, section 4.1), where each job learns by itself.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from planner.learning.goodput import (
    PARAMETERS,
    BestBatch,
    StepTime,
    ThroughputModel,
    best_batch,
    fit_throughput,
    rates_by_count,
)
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from planner.learning.goodput import BatchLimits

_VERSION: Final = 1
#: Most step times that are kept for a job type on a worker type; the oldest are dropped.
MOST_TIMES: Final = 64
#: Most pairs of job type and worker type that are kept.
MOST_REMEMBERED: Final = 4096

#: Weight of a new measurement beside the older ones of the same placement and batch.
_NEWEST = 0.3
#: If a measurement differs from the known value by more than this part, the model is fitted again;
#: a noise scale that differs by more replaces the known one.
_NEWS = 0.05
_TIME: Final = ("nodes", "workers", "batch_per_worker", "pass_s", "last_pass_s")
#: Workers offered, as a multiple of the largest run of the job type.
_GROWTH = 2


@dataclass(slots=True)
class _Measured:
    """Measurements of the jobs of a type on one worker type."""

    times: dict[tuple[int, int, float], StepTime] = field(default_factory=dict)
    model: ThroughputModel | None = None
    revision: int = 0
    #: (workers, whether on several nodes) of all times; follows the revision.
    runs: frozenset[tuple[int, bool]] = frozenset()

    @property
    def most_workers(self) -> int:
        """Workers of the largest run."""
        return max(workers for workers, _ in self.runs)

    def renew(self, revision: int) -> None:
        """Update the values that follow from the times."""
        self.revision = revision
        self.runs = frozenset((time.workers, time.nodes > 1) for time in self.times.values())


class BatchKnowledge:
    """Step times by job type and worker type, the fitted models, and noise."""

    def __init__(self) -> None:
        self._measured: dict[tuple[str, str], _Measured] = {}
        #: learner -> gradient noise scale, samples; see ``CatalogueKey``.
        self._noise: dict[str, float] = {}
        #: number of changes to the figures.
        self._learned = 0

    def observe(self, job_type: str, worker_type: str, time: StepTime) -> bool:
        """Add a job's measurement; return whether it changes the figures."""
        mine = self._measured.setdefault((job_type, worker_type), _Measured())
        at = time.nodes, time.workers, time.batch_per_worker
        before = mine.times.get(at)
        if before is None:
            if len(mine.times) == MOST_TIMES:
                del mine.times[next(iter(mine.times))]
            mine.times[at] = time
        else:
            now = replace(
                before,
                pass_s=before.pass_s * (time.pass_s / before.pass_s) ** _NEWEST,
                last_pass_s=before.last_pass_s * (time.last_pass_s / before.last_pass_s) ** _NEWEST,
            )
            mine.times[at] = now
            apart = abs(time.last_pass_s / before.last_pass_s - 1.0)
            if max(apart, abs(time.pass_s / before.pass_s - 1.0)) < _NEWS:
                return False
        mine.model = None
        self._learned += 1
        mine.renew(self._learned)
        return True

    def observe_noise(self, learner: str, noise: float) -> bool:
        """Store a job's gradient noise; return whether it has changed."""
        before = self._noise.get(learner)
        if before is not None and abs(noise - before) <= _NEWS * before:
            return False
        self._noise[learner] = noise
        return True

    def noise(self, learner: str) -> float:
        """Return a job's gradient noise scale; at first 0, at which larger batches gain nothing."""
        return self._noise.get(learner, 0.0)

    def forget(self, job_type: str) -> int:
        """Drop the step times of a job type; return how many there were."""
        gone = [key for key in self._measured if key[0] == job_type]
        return sum(len(self._measured.pop(key).times) for key in gone)

    def forget_oldest(self, active: Iterable[str]) -> None:
        """Drop job types if there are too many: the oldest ones without an active job."""
        beyond = len(self._measured) - MOST_REMEMBERED
        if beyond > 0:
            stay = set(active)
            for key in [key for key in self._measured if key[0] not in stay][:beyond]:
                del self._measured[key]

    def keep_noise(self, learners: Collection[str]) -> None:
        """Drop the noise of all jobs except some."""
        self._noise = {one: noise for one, noise in self._noise.items() if one in learners}

    def revision(self, job_type: str, worker_type: str) -> int:
        """Return a value that differs whenever ``rates`` may."""
        mine = self._measured.get((job_type, worker_type))
        return 0 if mine is None else mine.revision

    def placements(self, job_type: str, worker_type: str) -> frozenset[tuple[int, bool]]:
        """Return worker count, and whether it spanned several nodes, of all runs."""
        mine = self._measured.get((job_type, worker_type))
        return frozenset() if mine is None else mine.runs

    def model(self, job_type: str, worker_type: str) -> ThroughputModel | None:
        """Return the model of a job type on a worker type; None without a run there."""
        mine = self._measured.get((job_type, worker_type))
        if mine is None:
            return None
        if mine.model is None:
            mine.model = fit_throughput(list(mine.times.values()))
        return mine.model

    def rates(
        self,
        job_type: str,
        worker_type: str,
        limits: BatchLimits,
        noise: float,
        counts: Sequence[int],
        *,
        workers_per_node: int,
    ) -> dict[int, float]:
        """Return steps of the initial batch per second for each worker count to be offered.

        Args:
            job_type: of the job.
            worker_type: of the workers.
            limits: of the job's batch.
            noise: its gradient noise scale, samples.
            counts: worker counts at which it can run.
            workers_per_node: of that worker type.

        Returns:
            An empty dictionary if nothing was measured.
        """
        model = self.model(job_type, worker_type)
        if model is None:
            return {}
        most = _GROWTH * self._measured[job_type, worker_type].most_workers
        offered = [count for count in counts if count <= most]
        return rates_by_count(model, limits, noise, offered, workers_per_node=workers_per_node)

    def best(
        self,
        job_type: str,
        worker_type: str,
        limits: BatchLimits,
        noise: float,
        *,
        nodes: int,
        workers: int,
    ) -> tuple[int, int] | None:
        """Return samples per worker and pass, and accumulation, at which a job learns fastest.

        Without measurements this is its initial batch; None if no batch fits this many workers.
        """
        model = self.model(job_type, worker_type)
        if model is None:
            splits = (limits.split(batch, workers) for batch in limits.candidates)
            return next((split for split in splits if split is not None), None)
        found: BestBatch | None = best_batch(model, limits, noise, nodes=nodes, workers=workers)
        return None if found is None else (found.batch_per_worker, found.accumulation)

    # -- state ------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return all learned figures as plain JSON values."""
        return {
            "version": _VERSION,
            "measured": [
                [
                    *key,
                    None if mine.model is None else list(astuple(mine.model)),
                    [list(astuple(time)) for time in mine.times.values()],
                ]
                for key, mine in self._measured.items()
            ],
            "noise": [[learner, noise] for learner, noise in self._noise.items()],
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> BatchKnowledge:
        """Return the value that ``dump`` stored.

        Raises:
            InputError: the data are damaged, or of a newer release.
        """
        if data.get("version") != _VERSION:
            raise InputError(
                f"stored step times have version {data.get('version')!r}; this release reads "
                f"{_VERSION}; run the release that wrote them"
            )
        known = cls()
        try:
            for job_type, worker_type, model, times in data["measured"]:
                found = [StepTime(**dict(zip(_TIME, time, strict=True))) for time in times]
                mine = known._measured[job_type, worker_type] = _Measured(
                    times={(t.nodes, t.workers, t.batch_per_worker): t for t in found}
                )
                if model is not None:
                    mine.model = ThroughputModel(**dict(zip(PARAMETERS, model, strict=True)))
                known._learned += 1
                mine.renew(known._learned)
            known._noise.update(data["noise"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"stored step times are damaged: {error!r}") from error
        return known
