"""A training loop with the SDK: linear regression by stochastic gradient descent, in seconds.

Under a lease it may be preempted at any step; the result is the same to the last bit, and the state
holds how often each step was done. By itself it runs just so: python numpy_training.py --steps 300
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from leasehold import LeaseIterator

if TYPE_CHECKING:
    from collections.abc import Iterator

FEATURES = 32
BATCH = 256


class Model:
    """The job's whole state."""

    def __init__(self) -> None:
        self.weights = np.zeros(FEATURES)
        self.times_done = np.zeros(0, dtype=np.int64)  # of each step

    def save(self, folder: Path) -> None:
        """Write the state into an empty folder."""
        np.savez(folder / "state.npz", weights=self.weights, times_done=self.times_done)

    def load(self, folder: Path) -> None:
        """Read it back."""
        with np.load(folder / "state.npz") as state:
            self.weights, self.times_done = state["weights"], state["times_done"]

    def train(self, step: int, inputs: np.ndarray, targets: np.ndarray) -> float:
        """Do one step and return the loss before it."""
        errors = inputs @ self.weights - targets
        self.weights -= 0.05 * inputs.T @ errors / len(targets)
        self.times_done[step] += 1
        return float(np.mean(errors**2))


def batches(first: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield batches from step ``first`` on; each has its own generator, so any may be first."""
    truth = np.random.default_rng(0).normal(size=FEATURES)
    step = first
    while True:
        random = np.random.default_rng((1, step))
        inputs = random.normal(size=(BATCH, FEATURES))
        yield step, inputs, inputs @ truth + 0.1 * random.normal(size=BATCH)
        step += 1


def main() -> int:
    """Train, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, help="of the whole job; the scheduler says otherwise")
    parser.add_argument("--step-s", type=float, default=0.01, help="least time that a step takes")
    parser.add_argument("--checkpoint-dir", type=Path)
    options = parser.parse_args()
    model = Model()
    steps = LeaseIterator(
        batches,
        total_steps=options.steps,
        checkpoint_dir=options.checkpoint_dir,
        save=model.save,
        load=model.load,
        checkpoint_every_s=1.0,
    )
    model.times_done = np.zeros(steps.total_steps, dtype=np.int64)
    for step, inputs, targets in steps:
        loss = model.train(step, inputs, targets)
        if step % 50 == 0:
            print(f"step {step} loss {loss:.4f}")
        time.sleep(options.step_s)
    once = bool((model.times_done == 1).all())
    length = float(model.weights @ model.weights)
    print(f"done: {steps.step} steps, each once: {once}, |w|^2 = {length!r}")
    return 0 if once else 1


if __name__ == "__main__":
    sys.exit(main())
