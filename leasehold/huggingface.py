"""Hugging Face's Trainer under a lease: progress, the notice, a checkpoint, and a clean exit.

    callback = LeaseCallback()
    trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.checkpoint(args.output_dir))
    callback.exit_if_left_early()

The Trainer keeps its checkpoints under its ``output_dir``: choose a folder that every node sees,
such as LEASEHOLD_CHECKPOINT_DIR. Transformers is imported when a callback is made, so this module
can be imported without it.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from pathlib import Path
from typing import Any

from leasehold.channel import Channel
from leasehold.checkpoints import Checkpoints
from leasehold.iterator import LEFT_EARLY
from leasehold.surroundings import Surroundings

#: The Trainer writes it last into a checkpoint's state; one without it is incomplete.
LAST_FILE = "trainer_state.json"
#: Written by the callback once the whole checkpoint is on the disk.
WHOLE_FILE = "leasehold.json"


class LeaseKeeper:
    """The callback without its base class: the Trainer's hooks by their names.

    Args:
        report_every_s: seconds between two reports to the agent.
        surroundings: the agent's information for this process; by default from the environment.

    Attributes:
        left_early: training stopped because the lease ends.
    """

    def __init__(
        self, *, report_every_s: float = 1.0, surroundings: Surroundings | None = None
    ) -> None:
        self._told = surroundings or Surroundings.read()
        self._channel = Channel(self._told, report_every_s=report_every_s)
        self.left_early = False

    def checkpoint(self, output_dir: str | Path) -> str | None:
        """Return the newest whole checkpoint; None for a start from the beginning.

        A checkpoint is whole if the callback has marked it. One that the Trainer wrote before the
        first attempt under a lease is whole too, if its state is complete. One with a state that is
        not JSON is passed over. This removes nothing.

        Raises:
            StaleLeaseError: a later attempt of the job has begun.
            ForeignCheckpointsError: the folder is another job's.
        """
        checkpoints = self._checkpoints(output_dir)
        if self._told.rank == 0:
            checkpoints.claim()
        else:
            checkpoints.check_owner()
        claimed_s = checkpoints.claimed_s()
        found = []
        for path in Path(output_dir).glob("checkpoint-*"):
            number = re.fullmatch(r"checkpoint-(\d+)", path.name)
            if number and _is_whole(path, claimed_s):
                found.append((int(number[1]), str(path)))
        return max(found)[1] if found else None

    def exit_if_left_early(self) -> None:
        """Exit with the code that asks for another run.

        Raises:
            SystemExit: training stopped because the lease ends.
        """
        if self.left_early:
            raise SystemExit(LEFT_EARLY)

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_more: Any) -> None:
        """Begin to report, and take SIGTERM as a notice."""
        if not self._told.leased:
            return
        self._note(state)
        self._channel.steps_done = state.global_step
        self._channel.start()
        self._channel.take_sigterm()

    def on_step_end(self, args: Any, state: Any, control: Any, **_more: Any) -> Any:
        """Count the step; after a notice, make the Trainer write a checkpoint and stop.

        Raises:
            StaleLeaseError: a later attempt of the job has begun; this one may not save.
        """
        self._note(state)
        if self._agreed(args) and state.global_step < state.max_steps:
            self.left_early = True
            control.should_save = control.should_training_stop = True
        if control.should_save:
            self._checkpoints(args.output_dir).check()
        return control

    def on_save(self, args: Any, state: Any, _control: Any, **_more: Any) -> None:
        """Mark the checkpoint as whole, and count its steps as safe."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and folder.is_dir():
            _flush(folder)
            (folder / WHOLE_FILE).write_text(json.dumps({"steps": state.global_step}))
            _flush(folder)
        self._channel.steps_done = state.global_step
        self._channel.leave_steps()

    def on_train_end(self, _args: Any, state: Any, _control: Any, **_more: Any) -> None:
        """Report a last time."""
        if not self._told.leased:
            return
        self._note(state)
        if state.global_step >= state.max_steps:
            self._channel.steps_done = state.global_step
        self._channel.close()

    def _checkpoints(self, output_dir: str | Path) -> Checkpoints:
        told = self._told
        return Checkpoints(
            folder=Path(output_dir), token=told.token, job_id=told.job_id, adopts=told.adopts
        )

    def _note(self, state: Any) -> None:
        self._channel.steps_live = state.global_step

    def _agreed(self, args: Any) -> bool:
        """Return whether to leave; in a gang, as soon as any process has a notice.

        The gang checks with one small collective operation per step, which all processes reach.
        """
        noticed = self._channel.noticed
        if self._told.world_size < 2 or not self._told.leased:
            return noticed
        torch = importlib.import_module("torch")
        if not torch.distributed.is_initialized():
            return noticed
        flag = torch.tensor([int(noticed)], device=args.device)
        torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
        return bool(flag.item())


def LeaseCallback(  # noqa: N802 - a class for users; its base is not importable here
    *, report_every_s: float = 1.0, surroundings: Surroundings | None = None
) -> Any:
    """Return a ``TrainerCallback`` that is a ``LeaseKeeper``; give it to the Trainer."""
    base = importlib.import_module("transformers").TrainerCallback
    made = type("LeaseCallback", (LeaseKeeper, base), {})
    return made(report_every_s=report_every_s, surroundings=surroundings)


def _is_whole(checkpoint: Path, claimed_s: float) -> bool:
    try:
        ended_s = (checkpoint / LAST_FILE).stat().st_mtime
        json.loads((checkpoint / LAST_FILE).read_bytes())
    except (OSError, ValueError):
        return False
    return (checkpoint / WHOLE_FILE).exists() or ended_s < claimed_s


def _flush(folder: Path) -> None:
    """Write a folder and the files in it through to the disk."""
    for path in (*folder.iterdir(), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
