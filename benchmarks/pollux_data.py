"""Measurements of Pollux's applications: step times, gradient noise, and the jobs."""

from __future__ import annotations

import csv
from collections import defaultdict
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np
from jct import shared_data
from scipy.interpolate import LinearNDInterpolator

from planner.learning.goodput import BatchLimits, StepTime, noise_scale
from scheduler.domain.configuration import ANYWHERE, CONSOLIDATED, Configuration, Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.domain.arrays import FloatArray

NODES, PER_NODE = 16, 4
#: Worker counts: parts of a node, then whole nodes.
COUNTS = (1, 2, *range(4, NODES * PER_NODE + 1, 4))


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a file of the data."""
    with (shared_data().parent / "pollux" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


class Application:
    """Measurements of an application."""

    def __init__(self, name: str) -> None:
        """Read it."""
        mine = next(row for row in rows("applications") if row["application"] == name)
        self.name = name
        self.limits = BatchLimits(
            initial=int(mine["init_batch_samples"]),
            most=int(mine["max_batch_samples"]),
            least_per_worker=int(mine["min_batch_per_gpu_samples"]),
            most_per_worker=int(mine["max_batch_per_gpu_samples"]),
        )
        self._read_epochs()
        self._read_times()
        self._rates: dict[tuple[str, int], float] = {}

    def _read_epochs(self) -> None:
        found: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
        for row in rows("validation"):
            if row["application"] == self.name:
                figures = (float(row[key]) for key in ("progress_steps", "grad_sqr", "grad_var"))
                found[int(row["batch_size_samples"])].append(tuple(figures))
        self.batches = np.array(sorted(found), dtype=float)
        each = np.array([found[int(batch)] for batch in self.batches])  # (B, E, 3)
        #: (E,) steps of the initial batch at which each epoch ends.
        self.ends = each[:, :, 0].min(axis=0)
        self._sqr, self._var = each[:, :, 1], each[:, :, 2]

    def _read_times(self) -> None:
        by_place: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        for row in rows("placements"):
            if row["application"] == self.name:
                figures = (float(row[k]) for k in ("batch_per_gpu_samples", "step_s", "sync_s"))
                by_place[row["placement"]].append(tuple(figures))
        self._placements = {place: np.array(sorted(some)).T for place, some in by_place.items()}
        by_size: dict[tuple[int, int, float], list[tuple[float, float]]] = defaultdict(list)
        for place, (batch, step_s, sync_s) in self._placements.items():
            for b, step, sync in zip(batch, step_s, sync_s, strict=True):
                by_size[len(place), sum(map(int, place)), b].append((step, sync))
        for row in rows("scalability"):
            if row["application"] == self.name:
                key = int(row["nodes"]), int(row["gpus"]), float(row["batch_per_gpu_samples"])
                by_size[key].append((float(row["step_s"]), float(row["sync_s"])))
        self._points = np.array(list(by_size))
        self._values = np.array([np.mean(some, axis=0) for some in by_size.values()])

    @cached_property
    def _between(self) -> LinearNDInterpolator:
        return LinearNDInterpolator(self._points, self._values)

    def step_s(self, place: str, batch: FloatArray, passes: FloatArray) -> FloatArray:
        """Return (n,) seconds of an iteration at a placement.

        Args:
            place: workers on each node, as digits, rotated to the smallest.
            batch: (n,) per worker and pass.
            passes: (n,) before the last.
        """
        if place in self._placements:
            at, step, sync = self._placements[place]
            step, sync = np.interp(batch, at, step), np.interp(batch, at, sync)
        else:
            nodes, workers = min(len(place), NODES), sum(map(int, place))
            sizes = np.column_stack((np.full((len(batch), 2), (nodes, workers)), batch))
            step, sync = self._between(sizes).T
        return step + passes * (step - sync)

    def gain(self, epoch: int, batch: FloatArray) -> FloatArray:
        """Return (n,) steps of the initial batch that a step of each total batch is worth."""
        sqr = np.interp(batch, self.batches, self._sqr[:, epoch])
        var = np.interp(batch, self.batches, self._var[:, epoch])
        return (var + sqr) / (var * self.limits.initial / batch + sqr)

    def splits(self, workers: int) -> tuple[FloatArray, FloatArray]:
        """Return batches per worker and pass, and passes before the last, to choose from."""
        found = [self.limits.split(batch, workers) for batch in self.limits.candidates]
        pairs = sorted({pair for pair in found if pair is not None})
        return tuple(np.array(pairs, dtype=float).reshape(-1, 2).T)

    def rates(self, place: str, epoch: int, batch: FloatArray, passes: FloatArray) -> FloatArray:
        """Return (n,) steps of the initial batch per second at batches, see ``step_s``."""
        total = sum(map(int, place)) * batch * (passes + 1.0)
        return self.gain(epoch, total) / self.step_s(place, batch, passes)

    def best(self, place: str, epoch: int) -> float:
        """Return steps of the initial batch per second at the best batch; 0 if none fits."""
        key = place, epoch
        if key not in self._rates:
            batch, passes = self.splits(sum(map(int, place)))
            worth = self.rates(place, epoch, batch, passes) if len(batch) else np.zeros(1)
            self._rates[key] = float(np.nanmax(worth))
        return self._rates[key]

    def step_times(self) -> list[StepTime]:
        """Return all that was measured on up to four nodes."""
        return [
            StepTime(
                nodes=len(place),
                workers=sum(map(int, place)),
                batch_per_worker=float(b),
                pass_s=float(step - sync),
                last_pass_s=float(step),
            )
            for place, figures in self._placements.items()
            for b, step, sync in figures.T
        ]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Worker counts at which it can run."""
        return tuple(n for n in COUNTS if len(self.splits(n)[0]) and (n == 1 or self.name != "ncf"))

    def noise(self, epoch: int, batch: float) -> float:
        """Return the gradient noise scale that is measured at a total batch, samples."""
        sqr, var = (np.interp(batch, self.batches, of[:, epoch]) for of in (self._sqr, self._var))
        return float(noise_scale(self.limits.initial, sqr, var))

    def epoch_at(self, steps: float) -> int:
        """Return the epoch that runs after so many steps."""
        return min(int(np.searchsorted(self.ends, steps, side="right")), len(self.ends) - 1)

    def profile(self, rates: Mapping[int, float]) -> Profile:
        """Return the ways in which it can run, at rates by worker count."""
        return Profile(
            job_type=self.name,
            scale_factor=1,
            configurations=tuple(
                Configuration(
                    demand=(count,),
                    throughput=rates.get(count, 0.0),
                    locality=CONSOLIDATED if count <= PER_NODE else ANYWHERE,
                )
                for count in self.counts
            ),
        )

    @cache  # noqa: B019  applications live as long as the process
    def known(self, epoch: int) -> Profile:
        """Return the ways in which it can run in an epoch, and how fast it really is there."""
        return self.profile({n: self.best(packed(n), epoch) for n in self.counts})


def packed(count: int) -> str:
    """Return the placement of workers on as few nodes as possible."""
    full, rest = divmod(count, PER_NODE)
    return (str(rest) if rest else "") + str(PER_NODE) * full


@cache
def application(name: str) -> Application:
    """Return the measurements of an application."""
    return Application(name)


@cache
def place_of(workers: tuple[int, ...]) -> str:
    """Return workers on each node, as digits, rotated to the smallest."""
    counts: dict[int, int] = defaultdict(int)
    for worker in workers:
        counts[worker // PER_NODE] += 1
    digits = "".join(str(counts[node]) for node in sorted(counts))
    return min(digits[i:] + digits[:i] for i in range(len(digits)))


def jobs_of(load: str, workload: int) -> list[dict[str, str]]:
    """Return the jobs of a workload, in order of arrival."""
    mine = [r for r in rows("workloads") if r["load"] == load and int(r["workload"]) == workload]
    return sorted(mine, key=lambda row: float(row["arrival_s"]))
