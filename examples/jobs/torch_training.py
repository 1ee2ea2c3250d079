"""PyTorch under a lease: a small network with dropout, on a CPU, in seconds.

However often it is preempted, it ends with the same weights to the last bit.
By itself: python torch_training.py --steps 300 --checkpoint-dir torch-job
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from leasehold import LeaseIterator
from leasehold.torch import TrainingState

if TYPE_CHECKING:
    from collections.abc import Iterator

FEATURES = 16
BATCH = 64


def batches(first: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield batches from step ``first`` on; each has a generator of its own."""
    truth = torch.randn(FEATURES, 1, generator=torch.Generator().manual_seed(0))
    step = first
    while True:
        inputs = torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(1 + step))
        yield inputs, torch.sin(inputs @ truth)
        step += 1


def main() -> int:
    """Train, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, help="of the whole job; the scheduler says otherwise")
    parser.add_argument("--step-s", type=float, default=0.0, help="least time that a step takes")
    parser.add_argument("--checkpoint-dir", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 32),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.1),
        torch.nn.Linear(32, 1),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
    state = TrainingState(model=model, optimizer=optimizer, more={"schedule": schedule})
    steps = LeaseIterator(
        batches,
        total_steps=options.steps,
        checkpoint_dir=options.checkpoint_dir,
        save=state.save,
        load=state.load,
        checkpoint_every_s=1.0,
    )
    loss = torch.zeros(())
    for inputs, targets in steps:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        schedule.step()
        if steps.step % 50 == 0:
            print(f"step {steps.step} loss {loss.item():.4f}")
        time.sleep(options.step_s)
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]
    print(f"done: {steps.step} steps, loss {loss.item()!r}, weights {digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
