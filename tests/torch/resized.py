"""Some steps of a small DDP job on CPU, from a checkpoint to the next; see test_resizing."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from leasehold import GlobalBatches
from leasehold.torch import TrainingState, backward

FEATURES, SAMPLES = 8, 200


def main(folder: Path, first: int, last: int, paces: list[float]) -> None:
    """Train from step ``first`` to ``last``; rank 0 leaves losses and state in the folder."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    inputs = torch.randn(SAMPLES, FEATURES, dtype=torch.float64)
    targets = torch.tanh(inputs[:, :1] - inputs[:, 1:2])
    layers = (torch.nn.Linear(FEATURES, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    model = torch.nn.Sequential(*layers).double()
    shared = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(shared.parameters(), lr=5e-2)
    state = TrainingState(model=model, optimizer=optimizer)
    if first:
        state.load(folder)
    batches = GlobalBatches(total=SAMPLES, size=24, most_per_pass=5, paces=paces)

    def loss_of(samples: tuple[int, ...]) -> torch.Tensor:
        rows = list(samples)
        if paces:  # a slow worker
            time.sleep(0.002 * len(rows) / paces[batches.rank])
        return torch.nn.functional.mse_loss(shared(inputs[rows]), targets[rows])

    losses = []
    for batch in batches(first):
        if batch.step == last:
            break
        optimizer.zero_grad()
        loss = torch.tensor(backward(shared, batch, loss_of), dtype=torch.float64)
        torch.distributed.all_reduce(loss)
        losses.append(float(loss) / batches.world_size)
        optimizer.step()
    if batches.rank == 0:
        state.save(folder)
        (folder / f"losses.{first}.json").write_text(json.dumps(losses))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    # All is written. One process in hundreds dies of threads of gloo while the interpreter ends.
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
