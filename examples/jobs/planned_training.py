"""A small transformer that carries out the plan of each lease, on CPUs, in seconds.

Preempted from one plan to another, it learns as if it were left alone.
By itself: python planned_training.py --steps 100 --checkpoint-dir planned-job
On two processors: torchrun --nproc-per-node 2 planned_training.py --pipeline 2 --steps 100
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from leasehold import GlobalBatches, LeaseIterator, Plan
from leasehold.torch import PlannedState, apply

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS, LENGTH, WIDTH, HEADS, BLOCKS = 32, 12, 16, 4, 4
SAMPLES, BATCH = 1000, 8
#: How workers share the matrices of a layer, if the plan says that they do.
TENSOR = {
    "*.words": "rows",
    "*.query": "columns",
    "*.key": "columns",
    "*.value": "columns",
    "*.out": "rows",
    "*.up": "columns",
    "*.down": "rows",
    f"{BLOCKS + 2}": "columns",  # the last layer
}


class Embedding(nn.Module):
    """Words and places."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return (B, LENGTH, WIDTH)."""
        embedded: torch.Tensor = self.words(tokens) + self.places
        return embedded


class Block(nn.Module):
    """Attention and two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_dense = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return (B, LENGTH, WIDTH)."""
        normal = self.before_attention(inputs)
        query, key, value = (
            # -1: a worker that shares the matrices has some of the heads.
            made.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for made in (self.query(normal), self.key(normal), self.value(normal))
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        inputs = inputs + self.out(mixed.transpose(1, 2).flatten(2))
        dense: torch.Tensor = self.down(functional.gelu(self.up(self.before_dense(inputs))))
        return inputs + dense


def make_model() -> nn.Sequential:
    """Return the model, with the same weights in each process."""
    torch.manual_seed(0)
    blocks = (Block() for _ in range(BLOCKS))
    return nn.Sequential(Embedding(), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS))


def model_and_sample() -> tuple[nn.Module, torch.Tensor]:
    """Return the model and one sample, for ``leasehold plan planned_training:model_and_sample``."""
    return make_model(), torch.zeros(1, LENGTH, dtype=torch.int64)


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean over words."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_data() -> torch.Tensor:
    """Return sequences in which a word mostly is the sum of the two before it."""
    data = torch.randint(WORDS, (SAMPLES, LENGTH + 1), generator=torch.Generator().manual_seed(1))
    for i in range(2, LENGTH + 1):
        follows = (data[:, i - 1] + data[:, i - 2]) % WORDS
        data[:, i] = torch.where(data[:, i] % 4 > 0, follows, data[:, i])
    return data


def train(
    plan: Plan, *, total_steps: int | None = None, checkpoint_dir: Path | None = None
) -> Iterator[tuple[int, float, float]]:
    """Train under a plan; yield number, loss and norm of the gradients of each step."""
    planned = apply(make_model(), plan, loss=loss_of, tensor=TENSOR)
    optimizer = torch.optim.AdamW(planned.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
    state = PlannedState(planned=planned, optimizer=optimizer, more={"schedule": schedule})
    data = make_data()

    def load(samples: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = data[list(samples)]
        return chosen[:, :-1], chosen[:, 1:]

    steps = LeaseIterator(
        GlobalBatches(total=SAMPLES, size=BATCH, **planned.shares),
        total_steps=total_steps,
        checkpoint_dir=checkpoint_dir,
        checkpoint_every_s=1.0,
        **state.hooks,
    )
    for batch in steps:
        loss = planned.backward(batch, load)
        norm = planned.clip_gradients(0.5)
        optimizer.step()
        schedule.step()
        yield batch.step + 1, loss, norm


def main() -> int:
    """Train under the plan of the lease, and print the losses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, help="of the whole job; the scheduler says otherwise")
    parser.add_argument("--step-s", type=float, default=0.0, help="least time that a step takes")
    parser.add_argument("--checkpoint-dir", type=Path)
    parser.add_argument("--tensor", type=int, default=1, help="if there is no lease")
    parser.add_argument("--pipeline", type=int, default=1, help="if there is no lease")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = int(os.environ.get("WORLD_SIZE", "1")) // (options.tensor * options.pipeline)
    plan = Plan.current(Plan(tensor=options.tensor, pipeline=options.pipeline, data=data))
    is_first = os.environ.get("RANK", "0") == "0"
    try:
        for step, loss, norm in train(
            plan, total_steps=options.steps, checkpoint_dir=options.checkpoint_dir
        ):
            if is_first:
                print(f"step {step} loss {loss:.9g} norm {norm:.9g}", flush=True)
            time.sleep(options.step_s)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
