"""PyTorch's DistributedDataParallel under a lease, started by torchrun: one process per GPU.

Preempted, it leaves after the same step everywhere, with that step saved, and goes on from there.
On two processors instead, by itself:

    torchrun --nproc-per-node 2 train_ddp.py --steps 300 --checkpoint-dir ddp-job
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leasehold import LeaseIterator
from leasehold.torch import TrainingState

if TYPE_CHECKING:
    from collections.abc import Iterator

FEATURES = 16
BATCH = 64


def batches(first: int) -> Iterator[tuple[Any, Any]]:
    """Yield this rank's batches from step ``first`` on; each has a generator of its own."""
    import torch  # noqa: PLC0415 - so that this file can be read without it

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    truth = torch.randn(FEATURES, 1, generator=torch.Generator().manual_seed(0))
    step = first
    while True:
        seed = 1 + step * size + rank
        inputs = torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(seed))
        yield inputs, torch.sin(inputs @ truth)
        step += 1


def train(options: argparse.Namespace, device: str) -> None:
    """Train to the end of the job or of the lease, and print what came of it."""
    import torch  # noqa: PLC0415 - as above

    torch.manual_seed(0)
    layers = (torch.nn.Linear(FEATURES, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    model = torch.nn.Sequential(*layers).to(device)
    shared = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(shared.parameters(), lr=1e-3)
    # The checkpoint has the model that DDP wraps: it can be loaded with another number of
    # processes.
    state = TrainingState(model=model, optimizer=optimizer)
    steps = LeaseIterator(
        batches,
        total_steps=options.steps,
        checkpoint_dir=options.checkpoint_dir,
        save=state.save,
        load=state.load,
        checkpoint_every_s=60.0,
        on_notice="stop",  # torchrun makes 1 of every exit code but 0, of 75, too
    )
    rank = int(os.environ["RANK"])
    loss = torch.zeros(())
    for inputs, targets in steps:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(shared(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
        if rank == 0 and steps.step % 50 == 0:
            print(f"step {steps.step} loss {loss.item():.4f}")
        time.sleep(options.step_s)
    weights = torch.cat([p.detach().flatten().cpu() for p in model.parameters()])
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]
    what = "left early" if steps.left_early else "done"
    print(f"{what}: rank {rank}, {steps.step} steps, weights {digest}")


def main() -> int:
    """Join the gang, train, and leave it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, help="of the whole job; the scheduler says otherwise")
    parser.add_argument("--step-s", type=float, default=0.0, help="least time that a step takes")
    parser.add_argument("--checkpoint-dir", type=Path)
    options = parser.parse_args()
    import torch  # noqa: PLC0415 - as above

    device = f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu"
    if device != "cpu":
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("nccl" if device != "cpu" else "gloo")
    try:
        train(options, device)
    finally:
        torch.distributed.destroy_process_group()
    return 0  # after a notice, too: the scheduler runs a job again that has steps left


if __name__ == "__main__":
    sys.exit(main())
