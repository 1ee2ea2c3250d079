"""Goodput: how fast a data-parallel job learns at a placement, and the batch that is best there.

All functions are pure. Symbols as in Pollux: K nodes, N workers, b samples per worker and pass, s
accumulation passes before the last, m = N b (s + 1) samples per step, m0 the initial batch.
Policies get the rate in steps of the initial batch: a job with a fixed batch has efficiency 1, and
its goodput is its throughput.

Source: Pollux (Qiao et al., OSDI 2021, section 3); AdaScale (Johnson et al., ICML 2020); the
gradient noise scale of McCandlish et al. (2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.arrays import FloatArray

#: Value for a part of the time without data: nearly free, so that it is tried.
FREE = 1e-8
#: Spacing of the candidates for the batch: the fourth root of two.
_PER_DOUBLING = 4
#: Bound on the noise; beside it no batch counts, samples.
_ENDLESS = 1e300

Samples = TypeVar("Samples", float, "FloatArray")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputModel:
    """Seconds of an iteration by placement and batch.

    T_grad = alpha_c + beta_c b. T_sync = 0 for one worker, alpha_r + beta_r (N - 2) on one node,
    alpha_n + beta_n (N - 2) across nodes. An iteration takes
    s T_grad + (T_grad^g + T_sync^g)^(1/g).

    Attributes:
        alpha_c: fixed seconds of a pass.
        beta_c: seconds per sample of a pass.
        alpha_n: seconds of the exchange of two workers on two nodes.
        beta_n: seconds for each further worker there.
        alpha_r: seconds of the exchange of two workers on one node.
        beta_r: seconds for each further worker there.
        gamma: 1 if computing and exchanging do not overlap; 10 if nearly all of it does.
    """

    alpha_c: float
    beta_c: float
    alpha_n: float = FREE
    beta_n: float = FREE
    alpha_r: float = FREE
    beta_r: float = FREE
    gamma: float = 1.0

    def pass_s(self, batch_per_worker: Samples) -> Samples:
        """Return the seconds of one pass without an exchange."""
        return self.alpha_c + self.beta_c * batch_per_worker

    def iteration_s(
        self, *, nodes: int, workers: int, batch_per_worker: float, accumulation: int = 0
    ) -> float:
        """Return the seconds of one step of the optimiser."""
        parameters = np.array([[getattr(self, name) for name in PARAMETERS]])
        last = _last_pass_s(
            parameters,
            np.array([float(nodes)]),
            np.array([float(workers)]),
            np.array([float(batch_per_worker)]),
        )
        return accumulation * self.pass_s(batch_per_worker) + float(last[0, 0])


#: Parameters of a model, in the order of its fields.
PARAMETERS = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """A job's measurement at one placement and batch.

    Attributes:
        nodes: nodes that it spanned.
        workers: workers that it held.
        batch_per_worker: samples per worker and pass.
        pass_s: seconds of a pass without an exchange.
        last_pass_s: seconds of the pass that ends with the exchange of gradients.
    """

    nodes: int
    workers: int
    batch_per_worker: float
    pass_s: float
    last_pass_s: float

    def __post_init__(self) -> None:
        """Refuse impossible values, naming field and value."""
        for name in ("nodes", "workers", "batch_per_worker", "pass_s", "last_pass_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"step time: field '{name}' is {value!r}; it must be > 0")


def fit_throughput(measured: Sequence[StepTime]) -> ThroughputModel:
    """Fit the model to a job's measurements.

    The fit minimises the root mean square error of the logarithms of both times, plus
    1e-3 (g - 1)^2 + 1e-2 ((beta_n / alpha_n)^2 + (beta_r / alpha_r)^2). A cost without data is
    taken as free, so that it is tried: the exchange across nodes without several nodes (but at
    least 1.1 times that on one node), the further workers without more than two. With only one
    batch half the time of a pass counts as fixed.

    Raises:
        InputError: nothing was measured.
    """
    from scipy.optimize import minimize  # noqa: PLC0415 - slow to import, seldom needed

    if not measured:
        raise InputError("step times: there are none; measure at least one")
    nodes, workers, batch, pass_s, last_s = (
        np.array([float(getattr(m, name)) for m in measured])
        for name in ("nodes", "workers", "batch_per_worker", "pass_s", "last_pass_s")
    )
    start, lower, upper = _bounds(nodes, workers, batch, pass_s)

    def error(x: FloatArray) -> tuple[float, FloatArray]:
        shifted = np.vstack((x, x + 1e-6 * np.eye(len(x))))  # the point, then each direction
        values = _errors(shifted, measured=(nodes, workers, batch, pass_s, last_s))
        return float(values[0]), (values[1:] - values[0]) / 1e-6

    found: Any = minimize(
        error, start, jac=True, method="L-BFGS-B", bounds=list(zip(lower, upper, strict=True))
    )
    values = _from_search(np.clip(found.x, lower, upper)[None, :])[0].tolist()
    model = dict(zip(PARAMETERS, values, strict=True))
    if not (nodes > 1).any():
        model["alpha_n"] = max(model["alpha_n"], 1.1 * model["alpha_r"])
        model["beta_n"] = max(model["beta_n"], 1.1 * model["beta_r"])
    return ThroughputModel(**model)


def noise_scale(initial_batch: float, grad_sqr: float, grad_var: float) -> float:
    """Return phi = m0 v / q, samples.

    Args:
        initial_batch: m0, the batch to which ``grad_var`` belongs.
        grad_sqr: q, the squared norm of the mean gradient.
        grad_var: v, the variance of the gradient of a batch of m0.
    """
    return initial_batch * grad_var / grad_sqr if grad_sqr > 0 else math.inf


def efficiency(initial_batch: float, noise: float, batch: Samples) -> Samples:
    """Return (phi + m0) / (phi + m): the worth of a sample relative to the initial batch."""
    finite = min(noise, _ENDLESS)
    return (finite + initial_batch) / (finite + batch)


def gain(initial_batch: float, noise: float, batch: Samples) -> Samples:
    """Return AdaScale's r: the number of steps of the initial batch that one step is worth."""
    return batch / initial_batch * efficiency(initial_batch, noise, batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Bounds of a job's batch.

    Attributes:
        initial: m0, samples per step of the batch by which steps are counted.
        most: most samples per step; equal to ``initial`` for a fixed batch.
        least_per_worker: least samples per worker and pass.
        most_per_worker: most samples per worker and pass: as many as fit into memory.
    """

    initial: int
    most: int
    least_per_worker: int = 1
    most_per_worker: int

    def __post_init__(self) -> None:
        """Refuse empty limits, naming field and value."""
        for low, high in (("initial", "most"), ("least_per_worker", "most_per_worker")):
            if not 1 <= getattr(self, low) <= getattr(self, high):
                raise InputError(
                    f"batch limits: field '{low}' is {getattr(self, low)}; it must be >= 1 and at "
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

        A single worker accumulates beyond the initial batch, since it has no other gradients to
        compare for the noise.
        """
        each = math.ceil(batch / workers)
        passes = math.ceil(each / self.most_per_worker)
        if workers == 1 and batch > self.initial:
            passes = max(passes, 2)
        per_pass = min(math.ceil(each / passes), self.most // (workers * passes))
        fits = self.least_per_worker <= per_pass <= self.most_per_worker
        return (per_pass, passes - 1) if fits else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BestBatch:
    """The batch at which a job learns fastest at a placement.

    Attributes:
        batch_per_worker: samples per worker and pass.
        accumulation: passes before the last.
        steps_per_s: goodput in steps of the initial batch.
    """

    batch_per_worker: int
    accumulation: int
    steps_per_s: float


@lru_cache(maxsize=4096)
def splits_of(limits: BatchLimits, workers: int) -> tuple[tuple[int, int], ...]:
    """Return samples per worker and pass, and accumulation, of each batch that fits."""
    found = (limits.split(batch, workers) for batch in limits.candidates)
    return tuple(split for split in found if split is not None)


def best_batch(
    model: ThroughputModel, limits: BatchLimits, noise: float, *, nodes: int, workers: int
) -> BestBatch | None:
    """Return the batch of the largest goodput; None if no batch fits this many workers.

    Args:
        model: the job's iteration times.
        limits: of its batch.
        noise: gradient noise scale, samples; with 0 a larger batch gains nothing.
        nodes: nodes that it spans.
        workers: workers that it holds.
    """
    splits = splits_of(limits, workers)
    if not splits:
        return None
    batch, step_s = _steps(model, limits, nodes, workers)
    rate = gain(limits.initial, noise, batch) / step_s
    at = int(rate.argmax())
    return BestBatch(
        batch_per_worker=splits[at][0], accumulation=splits[at][1], steps_per_s=float(rate[at])
    )


@lru_cache(maxsize=4096)
def _steps(
    model: ThroughputModel, limits: BatchLimits, nodes: int, workers: int
) -> tuple[FloatArray, FloatArray]:
    """Return samples and seconds of a step, for each way of ``splits_of``."""
    per_pass, before = np.array(splits_of(limits, workers), dtype=float).T
    parameters = np.array([[getattr(model, name) for name in PARAMETERS]])
    size = np.ones(len(per_pass))
    last_s = _last_pass_s(parameters, nodes * size, workers * size, per_pass)[0]
    batch = workers * per_pass * (before + 1.0)
    return batch, before * model.pass_s(per_pass) + last_s


def rates_by_count(
    model: ThroughputModel,
    limits: BatchLimits,
    noise: float,
    counts: Sequence[int],
    *,
    workers_per_node: int,
) -> dict[int, float]:
    """Return steps of the initial batch per second at each worker count, packed onto few nodes.

    A throughput table takes these rates for a job at several worker counts. Counts at which no
    batch fits are left out.
    """
    found = {
        n: best_batch(model, limits, noise, nodes=math.ceil(n / workers_per_node), workers=n)
        for n in counts
    }
    return {n: best.steps_per_s for n, best in found.items() if best is not None}


def _bounds(
    nodes: FloatArray, workers: FloatArray, batch: FloatArray, pass_s: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return start, lower and upper bounds of the search, see ``_from_search``."""
    free, most = math.log(FREE), math.log(100.0)
    scale = float(np.log(pass_s.mean()))
    each = scale - float(np.log(batch.mean()))
    start = np.array([scale, each, scale, scale - 3.0, scale, scale - 3.0, 1.5])
    lower = np.array([free] * 6 + [1.0])
    upper = np.array([most] * 6 + [10.0])
    fixed = {0: scale - math.log(2.0)} if len(np.unique(batch)) == 1 else {}
    if not (nodes > 1).any():
        fixed |= {2: free, 3: free}
    if not ((nodes == 1) & (workers > 1)).any():
        fixed |= {4: free, 5: free}
    if not (workers > 2).any():
        fixed |= {3: free, 5: free}
    for at, value in fixed.items():
        lower[at] = upper[at] = start[at] = value
    return np.clip(start, lower, upper), lower, upper


def _from_search(x: FloatArray) -> FloatArray:
    """Return (P, 7) parameters: the search uses logarithms of seconds."""
    result: FloatArray = np.concatenate((np.exp(x[:, :6]), x[:, 6:]), axis=1)
    return result


def _last_pass_s(
    parameters: FloatArray, nodes: FloatArray, workers: FloatArray, batch: FloatArray
) -> FloatArray:
    """Return (P, n) seconds of the pass that exchanges, for (P, 7) parameters."""
    a_c, b_c, a_n, b_n, a_r, b_r, g = (parameters[:, i : i + 1] for i in range(7))
    more = np.maximum(workers - 2.0, 0.0)
    sync = np.where(nodes > 1, a_n + b_n * more, a_r + b_r * more)
    sync = np.where(workers > 1, sync, 0.0)
    grad = a_c + b_c * batch
    larger = np.maximum(grad, sync)  # so that no power overflows
    result: FloatArray = larger * ((grad / larger) ** g + (sync / larger) ** g) ** (1.0 / g)
    return result


def _errors(x: FloatArray, *, measured: tuple[FloatArray, ...]) -> FloatArray:
    """Return (P,) the objective of the fit at (P, 7) points of the search."""
    nodes, workers, batch, pass_s, last_s = measured
    parameters = _from_search(x)
    grad = parameters[:, :1] + parameters[:, 1:2] * batch
    last = _last_pass_s(parameters, nodes, workers, batch)
    off = np.sqrt(np.mean(np.log(grad / pass_s) ** 2, axis=1) + 1e-12)
    off = off + np.sqrt(np.mean(np.log(last / last_s) ** 2, axis=1) + 1e-12)
    # If both are free, their ratio says nothing.
    ratio_n, ratio_r = (
        np.where(parameters[:, b] > 2 * FREE, parameters[:, b] / parameters[:, a], 0.0)
        for a, b in ((2, 3), (4, 5))
    )
    result: FloatArray = (
        off + 1e-3 * (parameters[:, 6] - 1.0) ** 2 + 1e-2 * (ratio_n**2 + ratio_r**2)
    )
    return result
