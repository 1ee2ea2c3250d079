"""What is known of the step times of jobs whose batch may change, and what follows from it.

A job tells how long its passes took at the placements and batches at which it ran. A model is
fitted to all of them, job type by job type, and says how fast such a job learns at placements at
which none has run: see ``planner.goodput``. Where nothing was measured the model is optimistic, so
jobs are tried there; a job is offered at most twice as many workers as any of its type has run on.

Source: Pollux (Qiao et al., OSDI 2021, section 4.1), where each job learns by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from planner.goodput import BestBatch, StepTime, best_batch, fit_throughput, rates_by_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.goodput import BatchLimits, ThroughputModel

#: Weight of a new measurement beside the older ones of the same placement and batch.
_NEWEST = 0.3
#: A measurement further from what is known than this part has the model fitted anew.
_NEWS = 0.05
#: Workers that are offered, in those on which jobs of the type have run.
_GROWTH = 2


@dataclass(slots=True)
class _Measured:
    """What the jobs of a type measured on one worker type."""

    times: dict[tuple[int, int, float], StepTime] = field(default_factory=dict)
    model: ThroughputModel | None = None
    most_workers: int = 0


class BatchKnowledge:
    """Step times by job type and worker type, and the models that are fitted to them."""

    def __init__(self) -> None:
        self._measured: dict[tuple[str, str], _Measured] = {}

    def observe(self, job_type: str, worker_type: str, time: StepTime) -> bool:
        """Take in what a job measured; returns whether that changes what is known."""
        mine = self._measured.setdefault((job_type, worker_type), _Measured())
        at = time.nodes, time.workers, time.batch_per_worker
        before = mine.times.get(at)
        if before is None:
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
        mine.most_workers = max(mine.most_workers, time.workers)
        mine.model = None
        return True

    def model(self, job_type: str, worker_type: str) -> ThroughputModel | None:
        """Return the model of a job type on a worker type; None if none has run there."""
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
        """Return steps of the initial batch per second by worker count, of those to be offered.

        Args:
            job_type: of the job.
            worker_type: on which.
            limits: of the job's batch.
            noise: its gradient noise scale, samples.
            counts: worker counts at which it can run.
            workers_per_node: of that type.

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

        That is its initial batch if nothing was measured; None if no batch fits so many workers.
        """
        model = self.model(job_type, worker_type)
        if model is None:
            splits = (limits.split(batch, workers) for batch in limits.candidates)
            return next((split for split in splits if split is not None), None)
        found: BestBatch | None = best_batch(model, limits, noise, nodes=nodes, workers=workers)
        return None if found is None else (found.batch_per_worker, found.accumulation)
