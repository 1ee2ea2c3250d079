"""Hugging Face's Trainer under a lease: a tiny GPT-2 with random weights, on a CPU, in seconds.

Nothing is downloaded. However often it is preempted, it ends with the same weights.
By itself: python huggingface_training.py --steps 40 --checkpoint-dir hf-job
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from leasehold.huggingface import LeaseCallback

VOCABULARY, LENGTH, SEQUENCES = 64, 16, 256


class Sequences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sequences that count upwards, each from a place of its own."""

    def __len__(self) -> int:
        return SEQUENCES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(LENGTH) * (1 + index % 3) + index) % VOCABULARY
        return {"input_ids": tokens, "labels": tokens}


class Slow(TrainerCallback):  # type: ignore[misc] - its base ships no types
    """Makes each step take its time, so that there is something to preempt."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Wait."""
        time.sleep(self.step_s)


def main() -> int:
    """Train, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    told = os.environ.get("LEASEHOLD_TOTAL_STEPS", "40")
    parser.add_argument("--steps", type=int, default=int(told))
    parser.add_argument("--step-s", type=float, default=0.0)
    folder = os.environ.get("LEASEHOLD_CHECKPOINT_DIR", "hf-job")
    parser.add_argument("--checkpoint-dir", type=Path, default=Path(folder))
    options = parser.parse_args()
    set_seed(0)
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=LENGTH,
            n_embd=32,
            n_layer=2,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    lease = LeaseCallback()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(options.checkpoint_dir),
            max_steps=options.steps,
            per_device_train_batch_size=8,
            learning_rate=1e-3,
            save_steps=20,
            save_total_limit=2,
            logging_steps=10,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=0,
        ),
        train_dataset=Sequences(),
        callbacks=[Slow(options.step_s), lease],
    )
    trainer.train(resume_from_checkpoint=lease.checkpoint(options.checkpoint_dir))
    lease.exit_if_left_early()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]
    print(f"done: {trainer.state.global_step} steps, weights {digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
