"""Global batches: the same samples in each step for any number of processes.

A job that may run at several worker counts trains the same way if a step means the same at each
count. So the samples of a step depend only on the step. The processes share them. Each process
runs its share in as many passes as its memory requires, with one optimiser step after all passes.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import random
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


#: Steps/s of the worker of each rank if they are of several types: a JSON list.
PACES_VARIABLE = "LEASEHOLD_PACES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """The samples that a process computes in one pass.

    Attributes:
        samples: their numbers in the data, 0 to N - 1.
        weight: multiply the mean loss of these samples by it. With gradients summed over the
            passes and averaged over the processes, as DDP does, each sample counts the same.
    """

    samples: tuple[int, ...]
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBatch:
    """The work of one process in one step of the optimiser.

    Attributes:
        step: number of the step, from 0.
        passes: one after another; gradients are exchanged in the last one.
    """

    step: int
    passes: tuple[Pass, ...]

    @property
    def samples(self) -> tuple[int, ...]:
        """All samples of this process."""
        return tuple(itertools.chain.from_iterable(part.samples for part in self.passes))


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalBatches:
    """Global batches of shuffled data; give it to a ``LeaseIterator`` as its data.

    Every sample comes once per epoch, in an order that depends on the seed and the epoch, not on
    the processes. If the number of samples is not a multiple of the batch, a batch holds the end of
    an epoch and the beginning of the next.

    Example:
        ::

            batches = GlobalBatches(total=len(data), size=256, most_per_pass=32)
            for batch in LeaseIterator(batches, total_steps=1000, save=save, load=load):
                for part in batch.passes:
                    loss = part.weight * loss_of(part.samples)

    Attributes:
        total: samples of the data.
        size: samples of a step, over all processes.
        most_per_pass: samples that fit into a worker's memory at once.
        seed: of the order.
        rank: of this process; RANK by default.
        world_size: processes; WORLD_SIZE by default.
        paces: speed of each process, in any unit; shares are in proportion. By default
            LEASEHOLD_PACES if it has a figure for each process, as in a mixed gang; else all are
            equal.

    Raises:
        ValueError: a field cannot be used; the message names the field and its value.
    """

    total: int
    size: int
    most_per_pass: int
    seed: int = 0
    rank: int = -1
    world_size: int = 0
    paces: Sequence[float] = ()

    def __post_init__(self) -> None:
        """Fill in defaults from the environment, and refuse unusable values."""
        told = {"rank": ("RANK", "0"), "world_size": ("WORLD_SIZE", "1")}
        for name, least in (("rank", 0), ("world_size", 1)):
            if getattr(self, name) < least:
                variable, usual = told[name]
                object.__setattr__(self, name, int(os.environ.get(variable, usual)))
        if not self.paces:
            object.__setattr__(self, "paces", _paces_of_environment(self.world_size))
        for name in ("total", "size", "most_per_pass"):
            if getattr(self, name) < 1:
                raise ValueError(f"'{name}' is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"'rank' is {self.rank}; there are {self.world_size} processes")
        if self.size < self.world_size:
            raise ValueError(
                f"'size' is {self.size}, so that some of {self.world_size} processes would have no "
                "sample; give a larger one, or allow the job fewer workers"
            )
        if self.paces and len(self.paces) != self.world_size:
            raise ValueError(
                f"'paces' has {len(self.paces)} figures; there are {self.world_size} processes"
            )
        if any(not (math.isfinite(pace) and pace > 0) for pace in self.paces):
            raise ValueError(f"'paces' is {tuple(self.paces)}; all must be above 0")

    @property
    def shares(self) -> tuple[int, ...]:
        """Samples of each process in a step; they sum to ``size``, and each has at least one."""
        paces = tuple(self.paces) or (1.0,) * self.world_size
        left = self.size - self.world_size  # each has one
        exact = [left * pace / sum(paces) for pace in paces]
        shares = [math.floor(part) for part in exact]
        by_rest = sorted(
            range(self.world_size), key=lambda rank: (shares[rank] - exact[rank], rank)
        )
        for rank in by_rest[: left - sum(shares)]:
            shares[rank] += 1
        return tuple(1 + share for share in shares)

    @property
    def accumulation(self) -> int:
        """Passes of a step: as many as the process with the largest share needs."""
        return math.ceil(max(self.shares) / self.most_per_pass)

    def at(self, step: int) -> RankBatch:
        """Return this process's batch in a step."""
        return self.beginning_at(step * self.size, step=step)

    def beginning_at(self, position: int, *, step: int) -> RankBatch:
        """Return this process's batch in a step that begins at a sample position.

        Args:
            position: samples before it, over all epochs.
            step: number of the step.
        """
        shares, passes = self.shares, self.accumulation
        begin = position + sum(shares[: self.rank])
        cuts = [begin + shares[self.rank] * number // passes for number in range(passes + 1)]
        parts = tuple(
            Pass(
                samples=tuple(map(self._sample, range(low, high))),
                weight=(high - low) * self.world_size / self.size,
            )
            for low, high in itertools.pairwise(cuts)
            if high > low
        )
        return RankBatch(step=step, passes=parts)

    def __call__(self, step: int) -> Iterator[RankBatch]:
        """Yield this process's batches from a step on, without end."""
        return map(self.at, itertools.count(step))

    def _sample(self, position: int) -> int:
        epoch, place = divmod(position, self.total)
        return _order(self.total, self.seed, epoch)[place]


def _paces_of_environment(world_size: int) -> tuple[float, ...]:
    """Return the paces of a mixed gang of so many processes; empty without such a gang."""
    text = os.environ.get(PACES_VARIABLE, "")
    if not text:
        return ()
    try:
        paces = tuple(float(pace) for pace in json.loads(text))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{PACES_VARIABLE} is {text[:200]!r}, which cannot be read: {error}; leave the "
            "variable as the agent has set it, or give paces=[...]"
        ) from error
    return paces if len(paces) == world_size else ()


@lru_cache(maxsize=2)
def _order(total: int, seed: int, epoch: int) -> list[int]:
    """Return the order of the samples in an epoch."""
    order = list(range(total))
    random.Random(f"{seed}.{epoch}").shuffle(order)  # noqa: S311 - no secret
    return order
