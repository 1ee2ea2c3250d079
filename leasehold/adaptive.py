"""Adaptive batches: choose the batch size while a job runs, by its measured value and speed.

A larger batch processes more samples per second, but each sample contributes less. How much less
follows from the noise of the gradients, which a job can measure. So the job chooses the batch that
learns fastest on its workers, and counts its progress in steps of its initial batch.

This module does not need PyTorch. ``leasehold.torch.AdaptiveTraining`` measures;
``AdaptiveBatches`` keeps the figures, decides and distributes the samples. Symbols: N workers, b
samples per worker and pass, m samples per step, m0 the initial batch.

Source: Pollux (Qiao et al., OSDI 2021, section 3).
"""

from __future__ import annotations

import itertools
import json
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from leasehold.batches import GlobalBatches
from leasehold.gradient_noise import GradientNoise, gain
from leasehold.step_times import StepTimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from leasehold.batches import RankBatch
    from leasehold.gradient_noise import GradientNorms

#: Seconds of training between two choices of the batch.
RETUNE_EVERY_S = 30.0
#: The batch changes only if learning becomes faster by this factor: figures are noisy, and a new
#: size needs allocation and compilation.
LEAST_IMPROVEMENT = 1.05
#: A batch is tried if it is at most this many times the largest that the job has ever run.
_EXPLORED = 2
#: Variable with the limits of a job's batch, as submitted: a JSON object.
BATCH_VARIABLE = "LEASEHOLD_BATCH"
_LIMITS = ("initial", "most", "least_per_worker", "most_per_worker")
#: How the candidates for the batch are spaced: by the fourth root of two.
_PER_DOUBLING = 4


# The planner has the same class, and a test compares both: the SDK is a distribution of its own.
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Limits of a job's batch.

    Attributes:
        initial: m0, samples per step of the batch by which steps are counted.
        most: samples per step at most; equal to ``initial`` if the batch may not change.
        least_per_worker: samples per worker and pass at least.
        most_per_worker: samples per worker and pass at most: as many as fit into memory.

    Raises:
        ValueError: no batch is within the limits; it names field and value.
    """

    initial: int
    most: int
    least_per_worker: int = 1
    most_per_worker: int

    def __post_init__(self) -> None:
        """Refuse limits that no batch meets."""
        for low, high in (("initial", "most"), ("least_per_worker", "most_per_worker")):
            if not 1 <= getattr(self, low) <= getattr(self, high):
                raise ValueError(
                    f"batch limits: '{low}' is {getattr(self, low)}; it must be at least 1 and at "
                    f"most '{high}', {getattr(self, high)}"
                )

    @property
    def candidates(self) -> tuple[int, ...]:
        """Batches to choose from, ascending, four to a doubling."""
        steps = int(_PER_DOUBLING * math.log2(self.most / self.initial) + 1e-9)
        grid = {round(self.initial * 2.0 ** (i / _PER_DOUBLING)) for i in range(steps + 1)}
        return tuple(sorted(grid | {self.most}))

    def split(self, batch: int, workers: int) -> tuple[int, int] | None:
        """Return samples per worker and pass, and accumulation; None if the batch does not fit.

        A single worker accumulates beyond the initial batch, since there are no other gradients
        that show the noise. The scheduler assumes the same split.
        """
        each = math.ceil(batch / workers)
        passes = math.ceil(each / self.most_per_worker)
        if workers == 1 and batch > self.initial:
            passes = max(passes, 2)
        per_pass = min(math.ceil(each / passes), self.most // (workers * passes))
        fits = self.least_per_worker <= per_pass <= self.most_per_worker
        return (per_pass, passes - 1) if fits else None

    def sizes(self, workers: int) -> tuple[int, ...]:
        """Return the possible batches on this number of workers, ascending.

        These are the candidates, rounded up to equal passes; the initial batch does not change.

        Raises:
            ValueError: no batch fits.
        """
        found = {size for m in self.candidates if (size := self._fill(m, workers)) is not None}
        if not found:
            raise ValueError(
                f"no batch from {self.initial} to {self.most} samples gives each of {workers} "
                f"workers {self.least_per_worker} to {self.most_per_worker} per pass; widen the "
                "limits, or allow the job other worker counts"
            )
        return tuple(sorted(found))

    def _fill(self, batch: int, workers: int) -> int | None:
        split = self.split(batch, workers)
        if split is None:
            return None
        shares = workers * (split[1] + 1)
        if batch == self.initial and batch >= shares * self.least_per_worker:
            return batch
        return max(batch, shares * split[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMeasurement:
    """The measurements of all processes in a step; each process must get the same values.

    Attributes:
        pass_s: seconds of a pass without an exchange.
        last_pass_s: seconds of the last pass, which ends with the exchange of gradients.
        norms: of the gradients; None if there was nothing to compare.
        next_size: samples of the next step; the result of ``AdaptiveBatches.propose`` in rank 0.
    """

    pass_s: float
    last_pass_s: float
    norms: GradientNorms | None
    next_size: int


class Figures(TypedDict):
    """A job's measurements in plain numbers; see ``AdaptiveBatches.figures``."""

    noise_scale_samples: float | None
    grad_sqr: float
    grad_var: float
    batch_samples: int
    initial_batch_samples: int
    gain: float
    progress_steps: float
    step_times: list[tuple[int, float, float, float]]


class AdaptiveBatches:
    """Global batches of variable size; give them to a ``LeaseIterator`` as its data.

    Every sample comes once per epoch, in the order of ``GlobalBatches``, for all sizes and numbers
    of processes. A step counts as the number of steps of the initial batch that it is worth, so
    ``total_steps`` keeps its meaning. Position and figures belong to the state of the job: save
    them, alone or as part of ``leasehold.torch.AdaptiveTraining``.

    Args:
        total: samples of the data.
        limits: of the batch; by default LEASEHOLD_BATCH, the limits at submission.
        seed: of the order.
        rank: of this process; RANK by default.
        world_size: processes; WORLD_SIZE by default.
        worker_type: of this process; LEASEHOLD_WORKER_TYPE by default.
        retune_every_s: seconds of training between two choices of the batch.

    Attributes:
        size: m, samples of the present step.
        progress: completed steps of the initial batch, with a fraction.
        position: processed samples, over all epochs.
        noise: of the gradients.
        times: of passes and exchanges.

    Raises:
        ValueError: a value cannot be used, there are no limits, or no batch fits the number of
            processes.
    """

    def __init__(
        self,
        *,
        total: int,
        limits: BatchLimits | None = None,
        seed: int = 0,
        rank: int = -1,
        world_size: int = 0,
        worker_type: str | None = None,
        retune_every_s: float = RETUNE_EVERY_S,
    ) -> None:
        limits = _limits_told() if limits is None else limits
        largest = GlobalBatches(
            total=total,
            size=limits.most,
            most_per_pass=limits.most_per_worker,
            seed=seed,
            rank=rank,
            world_size=world_size,
        )
        if largest.paces:
            raise ValueError(
                "the batch is chosen for workers of one type, and these are of several; submit the "
                "job without the field 'mixed_gangs', or use GlobalBatches"
            )
        self.rank, self.world_size = largest.rank, largest.world_size
        self.limits = limits
        self._total, self._seed = total, seed
        self._sizes = limits.sizes(self.world_size)
        self._retune_every_s = retune_every_s
        self._since_choice_s = 0.0
        if worker_type is None:
            worker_type = os.environ.get("LEASEHOLD_WORKER_TYPE", "")
        self.noise = GradientNoise(initial=limits.initial)
        self.times = StepTimes(worker_type=worker_type, workers=self.world_size)
        self.size = self._next_size = self._sizes[0]
        self.progress = 0.0
        self.position = 0
        self._largest = 0
        self._timed_size = 0  # the first step of a size allocates and compiles
        self._worth: float | None = None  # of the present step; None between two steps

    @property
    def passes(self) -> int:
        """Passes of the present step."""
        split = self.limits.split(self.size, self.world_size)
        assert split is not None
        return split[1] + 1

    @property
    def per_worker(self) -> float:
        """Samples per worker and pass of the present step, on average."""
        return self.size / (self.world_size * self.passes)

    @property
    def gain(self) -> float:
        """How many steps of the initial batch the present step is worth, at least 1."""
        return gain(self.limits.initial, self.noise.scale_samples, self.size)

    @property
    def figures(self) -> Figures:
        """The measurements, for users and for the scheduler; times are of this process's lease.

        ``noise_scale_samples`` is None before the first measurement. ``step_times`` has workers,
        samples per worker and pass, seconds of a pass, and of the pass that exchanges.
        """
        return {
            "noise_scale_samples": self.noise.scale_samples if self.noise.known else None,
            "grad_sqr": self.noise.sqr,
            "grad_var": self.noise.variance,
            "batch_samples": self.size,
            "initial_batch_samples": self.limits.initial,
            "gain": self.gain,
            "progress_steps": self.progress,
            "step_times": self.times.measured,
        }

    def __call__(self, step: int) -> Iterator[RankBatch]:
        """Yield this process's batches from a step on, without end.

        Raises:
            ValueError: the state is not that of ``step``.
        """
        if math.floor(self.progress) < step:
            raise ValueError(
                f"{step} steps are done, and the state of the batches is that after "
                f"{math.floor(self.progress)}; save and load it with the job's state, such as "
                "TrainingState(more={'adaptive': training})"
            )
        while True:
            self._worth = 1.0
            yield self._at(self.position)
            self._finish()

    def propose(self) -> int:
        """Return the size of the next step; rank 0's result applies to all processes."""
        if not self._choice_due:
            return self.size
        now, rates = self._steps_per_s(self.size), {m: self._steps_per_s(m) for m in self._tried()}
        best = max(rates, key=lambda m: rates[m], default=self.size)
        return best if rates.get(best, 0.0) > LEAST_IMPROVEMENT * now else self.size

    def record(self, measured: StepMeasurement) -> None:
        """Record the measurement of the present step, before the next one begins."""
        if self._choice_due:
            self._since_choice_s = 0.0
        if measured.norms is not None:
            self.noise.observe(measured.norms)
        self._worth = self.gain
        self._next_size = measured.next_size
        self._largest = max(self._largest, self.size)
        if self.size == self._timed_size:
            self.times.add(
                self.per_worker, pass_s=measured.pass_s, last_pass_s=measured.last_pass_s
            )
        self._timed_size = self.size
        self._since_choice_s += (self.passes - 1) * measured.pass_s + measured.last_pass_s

    def whole_steps(self) -> int:
        """End the present step; return how many more whole steps are done. The rest is kept."""
        before = math.floor(self.progress)
        self._finish()
        return math.floor(self.progress) - before

    def state_dict(self) -> dict[str, Any]:
        """Return position, progress and figures, in types that load safely."""
        return {
            "progress": self.progress,
            "position": self.position,
            "size": self._next_size,
            "largest": self._largest,
            "world_size": self.world_size,
            "since_choice_s": self._since_choice_s,
            "noise": self.noise.state_dict(),
            "times": self.times.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, even with another number of processes."""
        self.progress, self.position = state["progress"], state["position"]
        self._largest = state["largest"]
        self._since_choice_s = state["since_choice_s"]
        if state["world_size"] != self.world_size:  # choose again as soon as a time is known
            self._since_choice_s = self._retune_every_s
        self.noise.load_state_dict(state["noise"])
        self.times.load_state_dict(state["times"])
        smaller = [m for m in self._sizes if m <= state["size"]]
        self.size = self._next_size = smaller[-1] if smaller else self._sizes[0]
        self._timed_size, self._worth = 0, None

    @property
    def _choice_due(self) -> bool:
        due = self._since_choice_s >= self._retune_every_s
        return due and self.noise.known and bool(self.times.measured)

    def _at(self, position: int) -> RankBatch:
        each = math.ceil(self.size / self.world_size)
        batches = GlobalBatches(
            total=self._total,
            size=self.size,
            most_per_pass=math.ceil(each / self.passes),
            seed=self._seed,
            rank=self.rank,
            world_size=self.world_size,
        )
        return batches.beginning_at(position, step=math.floor(self.progress))

    def _finish(self) -> None:
        """Count the present step, if it is not counted yet."""
        if self._worth is not None:
            self.position += self.size
            self.progress += self._worth
            self.size, self._worth = self._next_size, None

    def _tried(self) -> tuple[int, ...]:
        """Return the possible sizes: not far beyond the largest that the job has run.

        For a single worker, two passes of the initial batch count as run. They take twice as long
        as one, so twice the size would gain nothing, and the batch would never grow.
        """
        doubled = 2 * self.limits.initial if self.world_size == 1 else 0
        most = _EXPLORED * max(self._largest, self.size, doubled)
        return tuple(itertools.takewhile(lambda m: m <= most, self._sizes))

    def _steps_per_s(self, size: int) -> float:
        """Return the goodput of a size, in steps of the initial batch."""
        split = self.limits.split(size, self.world_size)
        assert split is not None
        passes = split[1] + 1
        worth = gain(self.limits.initial, self.noise.scale_samples, size)
        return worth / self.times.iteration_s(size / (self.world_size * passes), passes)


def _limits_told() -> BatchLimits:
    """Return the limits that the job was submitted with."""
    text = os.environ.get(BATCH_VARIABLE, "")
    if not text:
        raise ValueError(
            "there are no limits of the batch; give limits=BatchLimits(...), or submit the job "
            f"with the field 'batch', which sets {BATCH_VARIABLE}"
        )
    try:
        told = json.loads(text)
        return BatchLimits(**{name: int(told[name]) for name in _LIMITS if name in told})
    except (TypeError, KeyError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{BATCH_VARIABLE} is {text[:200]!r}, which cannot be read: {error}; leave the "
            "variable as the agent has set it, or give limits=BatchLimits(...)"
        ) from error
