"""A job with a changing batch, as DDP on CPU or alone; see test_adaptive."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from leasehold import AdaptiveBatches, BatchLimits, GlobalBatches, LeaseIterator
from leasehold.torch import AdaptiveTraining, backward

FEATURES, SAMPLES = 10, 20_000
#: From the first weights, 0, to the true ones.
DISTANCE = 2.0


class Clock:
    """Stands still but for passes: 0.5 s and 5 ms per sample, so that large batches pay."""

    def __init__(self, pace=1.0):
        self.now_s, self.pace = 0.0, pace

    def __call__(self):
        return self.now_s

    def spend(self, samples):
        self.now_s += (0.5 + 0.005 * samples) / self.pace


def draw(sigma):
    """Return inputs and targets of a linear regression with errors of this deviation."""
    draws = torch.Generator().manual_seed(5)
    inputs = torch.randn(SAMPLES, FEATURES, generator=draws, dtype=torch.float64)
    truth = torch.randn(FEATURES, generator=draws, dtype=torch.float64)
    truth *= DISTANCE / truth.norm()
    errors = torch.randn(SAMPLES, generator=draws, dtype=torch.float64)
    return inputs, inputs @ truth + sigma * errors


def digest(model):
    """Return a text that changes with any bit of the weights."""
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()


def main(folder: Path, fields: dict) -> None:
    """Train; leave in the folder what this process saw."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    inputs, targets = draw(fields["sigma"])
    layers = [torch.nn.Linear(FEATURES, 1, bias=False)]
    if fields.get("deep"):
        layers = [torch.nn.Linear(FEATURES, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)]
    else:
        torch.nn.init.zeros_(layers[0].weight)
    model = torch.nn.Sequential(*layers).double()
    shared = DistributedDataParallel(model, bucket_cap_mb=0.0001 if fields.get("deep") else 25)
    optimizer = torch.optim.SGD(model.parameters(), lr=fields["lr"], momentum=0.5)
    limits = BatchLimits(**fields["limits"])
    batches = AdaptiveBatches(total=SAMPLES, limits=limits, retune_every_s=20.0)
    clock = Clock(pace=1.0 + 2.0 * batches.rank)  # rank 1 would choose at other times

    def loss_of(samples):
        rows = list(samples)
        clock.spend(len(rows))
        return 0.5 * (shared(inputs[rows])[:, 0] - targets[rows]).square().mean()

    losses, sizes = [], []
    if fields.get("plain"):
        data = GlobalBatches(
            total=SAMPLES, size=limits.initial, most_per_pass=limits.most_per_worker
        )
        for batch in LeaseIterator(data, total_steps=fields["steps"]):
            optimizer.zero_grad()
            losses.append(backward(shared, batch, loss_of))
            optimizer.step()
    else:
        training = AdaptiveTraining(
            module=shared, optimizer=optimizer, batches=batches, clock=clock
        )
        for batch in LeaseIterator(batches, total_steps=fields["steps"]):
            sizes.append(batches.size)
            losses.append(training.backward(batch, loss_of))
            training.step()
    seen = {
        "losses": losses,
        "sizes": sizes,
        "weights": digest(model),
        "state": batches.state_dict(),
        "figures": batches.figures,
    }
    (folder / f"rank.{batches.rank}.json").write_text(json.dumps(seen))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    # All is written. One process in hundreds dies of threads of gloo while the interpreter ends.
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
