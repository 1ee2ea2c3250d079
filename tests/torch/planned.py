"""The example of planned training under each of some plans, or without any; see test_planned."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "jobs"))

from planned_training import BATCH, SAMPLES, loss_of, make_data, make_model, train

from leasehold import GlobalBatches, Plan


def train_plainly(steps: int) -> list[tuple[int, float, float]]:
    """Train in a plain loop without anything of ``leasehold.torch``."""
    model, data = make_model(), make_data()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
    batches = GlobalBatches(total=SAMPLES, size=BATCH, most_per_pass=BATCH, rank=0, world_size=1)
    found = []
    for step in range(steps):
        optimizer.zero_grad()
        chosen = data[list(batches.at(step).samples)]
        loss = loss_of(model(chosen[:, :-1]), chosen[:, 1:])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        found.append((step + 1, float(loss.detach()), float(norm)))
    return found


def main(plans: list[dict[str, object]], steps: int, result: Path) -> None:
    """Train; rank 0 leaves the steps of each plan in a file. An empty plan is no plan."""
    torch.set_num_threads(1)
    found = [
        list(train(Plan.read(json.dumps(plan)), total_steps=steps))
        if plan
        else train_plainly(steps)
        for plan in plans
    ]
    if os.environ["RANK"] == "0":
        result.write_text(json.dumps(found))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    # All is written. One process in hundreds dies of threads of gloo while the interpreter ends.
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
