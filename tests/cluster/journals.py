"""Checks of journals of training jobs: each step once, never two attempts at a time."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

FEATURES, BATCH = 16, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of one rank, by its journal.

    Attributes:
        number: of the attempt.
        worker_type: on which it ran.
        first: its first step.
        last: its last step.
        began_s: when the first step began, on the machine's clock.
        ended_s: when the last one began.
        devices: that the kubelet has given it.
        mates: addresses of the others in its gang, as its sockets saw them.
    """

    number: int
    worker_type: str
    first: int
    last: int
    began_s: float
    ended_s: float
    devices: str
    mates: tuple[str, ...]


def check(folder: Path, *, steps: int, ranks: int = 1, lost: int = 0) -> list[Attempt]:
    """Fail unless a job has done every step exactly once; return the attempts of rank 0.

    Args:
        folder: of the job's journals and checkpoints.
        steps: of the whole job.
        ranks: members of its gang.
        lost: steps that may have been done a second time after a crash; not counted in the result.
    """
    with np.load(folder / "result.npz") as result:
        assert (result["times_done"] == 1).all(), result["times_done"]
        assert len(result["times_done"]) == steps
        np.testing.assert_allclose(result["weights"], _weights(steps, ranks), rtol=1e-9)
    everything = [_attempts(folder / f"journal-{rank}.jsonl") for rank in range(ranks)]
    for attempts in everything:
        again = 0
        for one, other in itertools.pairwise(attempts):
            assert one.number < other.number, "an older attempt after a newer one"
            assert one.ended_s < other.began_s, "two attempts at a time"
            assert other.first <= one.last + 1, "steps were left out"
            again += one.last + 1 - other.first
        assert attempts[0].first == 0
        assert attempts[-1].last == steps - 1
        assert again <= lost, f"{again} steps were done twice"
    return everything[0]


def _attempts(journal: Path) -> list[Attempt]:
    lines: list[dict[str, Any]] = [json.loads(line) for line in journal.read_text().splitlines()]
    attempts = []
    for number, group in itertools.groupby(lines, key=lambda line: int(line["attempt"])):
        own = list(group)
        done = [line["step"] for line in own]
        assert done == list(range(done[0], done[0] + len(done))), f"attempt {number}: {done}"
        attempts.append(
            Attempt(
                number=number,
                worker_type=own[0]["type"],
                first=done[0],
                last=done[-1],
                began_s=own[0]["began_s"],
                ended_s=own[-1]["began_s"],
                devices=own[0]["devices"],
                mates=tuple(own[0]["mates"]),
            )
        )
    return attempts


def _weights(steps: int, ranks: int) -> np.ndarray:
    """Train as train.py does, in one go."""
    truth = np.random.default_rng(0).normal(size=FEATURES)
    weights = np.zeros(FEATURES)
    for step in range(steps):
        total = np.zeros(FEATURES)
        for rank in range(ranks):
            inputs = np.random.default_rng((1, step, rank)).normal(size=(BATCH, FEATURES))
            total += inputs.T @ (inputs @ weights - inputs @ truth) / BATCH
        weights = weights - 0.1 * total / ranks
    return weights
