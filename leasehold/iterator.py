"""The loop of a training job: counts steps, keeps checkpoints, and leaves on a notice."""

from __future__ import annotations

import itertools
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar, cast, runtime_checkable

from leasehold.channel import Channel
from leasehold.checkpoints import Checkpoints, ForeignCheckpointsError, StaleLeaseError
from leasehold.gang import Gang, clear_older
from leasehold.learning import HasFigures, learning_of
from leasehold.surroundings import Surroundings

T = TypeVar("T")

#: Exit code of a job that left early and asks for another run (EX_TEMPFAIL).
LEFT_EARLY = 75
#: Seconds between the first two reports of the job's measurements, doubled each time; the maximum.
LEARNING_FIRST_S, LEARNING_MOST_S = 1.0, 30.0


@runtime_checkable
class CountsSteps(Protocol):
    """Data with items that are not one step each, such as ``AdaptiveBatches``."""

    def whole_steps(self) -> int:
        """Return how many whole steps the last item completes; at least 1.

        The rest counts for the next item, and belongs to the state of the data. All processes of a
        gang must return the same.
        """
        ...


class LeaseIterator(Generic[T]):
    """Iterates over training steps, under a lease or without one.

    A step is done when the next item is requested. When the lease ends, the present step is
    finished, a checkpoint is written, and the process exits with code 75. After a restart it
    continues after that step. Without Leasehold it is a plain iterator that also keeps checkpoints.

    In a gang (WORLD_SIZE > 1) every process has an iterator; rank 0 writes the checkpoints, all
    load them, and all leave after the same step. With ``agree`` all write them together.

    Example:
        ::

            for batch in LeaseIterator(batches, total_steps=1000, save=save, load=load):
                train(batch)

    Args:
        data: the items. A sequence or an iterable is one epoch, repeated as often as needed. A
            sequence is entered at the right place; an iterable is read up to it. A function is
            called with the number of steps done and returns an iterator from there. If an item is
            worth several steps, see ``CountsSteps``. The ``figures`` of data such as
            ``AdaptiveBatches`` are reported to the scheduler.
        total_steps: steps of the whole job; else LEASEHOLD_TOTAL_STEPS, else one epoch.
        checkpoint_dir: folder of the checkpoints, on storage that every node sees; by default
            LEASEHOLD_CHECKPOINT_DIR. Without either no checkpoint is kept, which a lease refuses.
        save: writes the job's state into an empty folder.
        load: reads it back from such a folder.
        agree: returns rank 0's answer to a yes-or-no question in every process. Give it if ``save``
            is a collective operation: then every process calls ``save``, after the same step and
            with the same folder, and it must return on rank 0 only after all have written. See
            ``leasehold.torch.PlannedState``. Regular checkpoints must be on in all or in none.
        checkpoint_every_s: seconds between regular checkpoints; None for no regular ones.
        keep: how many checkpoints are kept.
        on_notice: ``exit`` leaves by SystemExit(75) after the checkpoint; ``stop`` ends the
            iteration, and the program goes on with ``left_early`` true.
        report_every_s: seconds between two reports to the agent.
        surroundings: the agent's information for this process; by default from the environment.

    Attributes:
        step: steps done, since the job's first start.
        left_early: the iteration ended because the lease ends.

    Raises:
        ValueError: the number of steps or the checkpoint folder is missing.
        ForeignCheckpointsError: on iteration: the folder holds another job's checkpoints.
    """

    def __init__(
        self,
        data: Sequence[T] | Iterable[T] | Callable[[int], Iterator[T]],
        *,
        total_steps: int | None = None,
        checkpoint_dir: str | Path | None = None,
        save: Callable[[Path], object] | None = None,
        load: Callable[[Path], object] | None = None,
        agree: Callable[[bool], bool] | None = None,
        checkpoint_every_s: float | None = 300.0,
        keep: int = 2,
        on_notice: Literal["exit", "stop"] = "exit",
        report_every_s: float = 1.0,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._told = surroundings or Surroundings.read()
        self._data = data
        self.total_steps = _total_steps(data, total_steps, self._told)
        self._save, self._load, self._agree = save, load, agree
        folder = Path(checkpoint_dir) if checkpoint_dir else self._told.checkpoint_dir
        if folder is None and save is not None and self._told.leased:
            raise ValueError(
                "save is given, but no place for checkpoints; "
                "give checkpoint_dir or set LEASEHOLD_CHECKPOINT_DIR"
            )
        self._checkpoints = (
            None
            if folder is None
            else Checkpoints(
                folder=folder,
                token=self._told.token,
                keep=keep,
                job_id=self._told.job_id,
                adopts=self._told.adopts,
            )
        )
        self._checkpoint_every_s = checkpoint_every_s
        self._exits = on_notice == "exit"
        self.step = 0
        self.left_early = False
        self._saved_step = 0
        self._saved_s = 0.0
        self._learning_due_s, self._learning_every_s = -math.inf, LEARNING_FIRST_S
        #: looked at once: Python 3.11 takes 20 us for it.
        self._counts = data if isinstance(data, CountsSteps) else None
        self._learns = self._told.leased and not self._told.rank and isinstance(data, HasFigures)
        self._channel = Channel(self._told, report_every_s=report_every_s)
        self._gang = self._make_gang(folder)

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step >= self.total_steps

    def __iter__(self) -> Iterator[T]:
        if self._told.leased:
            self._channel.take_sigterm()
        process = os.getpid()
        try:
            self._resume()
            yield from self._steps()
        finally:
            if os.getpid() == process:  # a forked child may end the loop, too
                if self._gang is not None:
                    self._gang.close(finished_step=self.total_steps if self.finished else None)
                self._channel.close()
        if self.left_early and self._exits:
            raise SystemExit(LEFT_EARLY)

    def checkpoint(self) -> None:
        """Write a checkpoint now, unless this step has one.

        Only rank 0 writes. With ``agree`` all do: then every process calls this after the same
        step.

        Raises:
            StaleLeaseError: a later attempt of the job has begun.
        """
        self._saved_s = time.monotonic()
        checkpoints, save, agree = self._checkpoints, self._save, self._agree
        if checkpoints is None or save is None or (self._told.rank and agree is None):
            return
        if self.step > self._saved_step:
            if agree is None:
                checkpoints.save(self.step, save)
            else:
                self._save_together(checkpoints, save, agree)
            self._note_saved()

    def _save_together(
        self,
        checkpoints: Checkpoints,
        save: Callable[[Path], object],
        agree: Callable[[bool], bool],
    ) -> None:
        if self._told.rank:
            if not agree(True):
                raise RuntimeError("rank 0 could not begin a checkpoint; its output says why")
            save(checkpoints.half(0))
            return
        begun = False

        def write(folder: Path) -> None:
            nonlocal begun
            begun = agree(True)
            save(folder)

        try:
            checkpoints.save(self.step, write, writer=0)
        finally:
            if not begun:
                agree(False)

    def _steps(self) -> Iterator[T]:
        channel, gang = self._channel, self._gang
        items = _items(self._data, self.step)
        while self.step < self.total_steps:
            if not gang.may_begin(self.step + 1) if gang is not None else channel.noticed:
                self.left_early = True
                break
            yield next(items)
            self.step = min(self.step + self._steps_of_item(), self.total_steps)
            channel.steps_live = self.step
            if time.monotonic() >= self._learning_due_s:
                self._tell_learning()
            if self._is_due():
                self.checkpoint()
        self._tell_learning()
        self.checkpoint()

    def _is_due(self) -> bool:
        """Return whether a regular checkpoint is due; the same in all processes that write it."""
        if self._checkpoint_every_s is None:
            return False
        due = time.monotonic() - self._saved_s >= self._checkpoint_every_s
        return due if self._agree is None else self._agree(due)

    def _tell_learning(self) -> None:
        """Pass rank 0's measurements to the channel, if they are new."""
        if not self._learns:
            return
        learning = learning_of(cast("HasFigures", self._data).figures)
        if learning is not None:
            self._learning_due_s = time.monotonic() + self._learning_every_s
            self._learning_every_s = min(2 * self._learning_every_s, LEARNING_MOST_S)
            if learning != self._channel.learning:
                self._channel.learning = learning

    def _steps_of_item(self) -> int:
        return 1 if self._counts is None else self._counts.whole_steps()

    def _resume(self) -> None:
        """Find the first step, load the state, and begin to report."""
        if self._told.rank == 0 and self._checkpoints is not None and self._save is not None:
            self._checkpoints.claim()
            clear_older(self._checkpoints.folder, self._told.token)
        if self._gang is not None:
            # All processes load at the same time: a load may be a collective operation.
            self.step = self._gang.agree_on_start(self._newest_step)
            self._gang.start(self.step)
            if self.step and self._load is not None and self._checkpoints is not None:
                self._load(self._checkpoints.at(self.step))
        else:
            self.step = self._load_newest()
        self._saved_s = time.monotonic()
        self._channel.steps_live = self.step
        self._note_saved()
        if self._told.leased:
            self._channel.start()

    def _newest_step(self) -> int:
        if self._checkpoints is None or self._load is None:
            return 0
        self._checkpoints.check_owner()
        return self._checkpoints.newest()

    def _load_newest(self) -> int:
        """Load the newest checkpoint that can be read; return its steps, 0 without a checkpoint.

        Raises:
            Exception: the error of the newest one, if none can be read.
        """
        if self._checkpoints is None or self._load is None:
            return 0
        self._checkpoints.check_owner()
        unreadable: dict[int, Exception] = {}
        for step in self._checkpoints.steps():
            try:
                self._load(self._checkpoints.at(step))
            except Exception as error:  # `load` is the user's; it may raise anything
                if not _is_of_the_checkpoint(error):
                    raise
                unreadable[step] = error
            else:
                self._leave_aside(unreadable, step)
                return step
        if unreadable:
            raise next(iter(unreadable.values()))
        return 0

    def _leave_aside(self, unreadable: Mapping[int, Exception], step: int) -> None:
        """Tell of newer checkpoints that could not be read; rank 0 sets them aside."""
        for newer, error in unreadable.items():
            warnings.warn(
                f"the checkpoint after {newer} steps cannot be read ({type(error).__name__}: "
                f"{error}); the job continues from the one after {step} steps",
                RuntimeWarning,
                stacklevel=2,
            )
            if self._checkpoints is not None and self._save is not None and not self._told.rank:
                self._checkpoints.set_aside(newer)

    def _note_saved(self) -> None:
        self._saved_step = self._channel.steps_done = self.step
        self._channel.leave_steps()

    def _make_gang(self, folder: Path | None) -> Gang | None:
        if not self._told.leased or self._told.world_size < 2:
            return None
        if folder is None:
            raise ValueError(
                "a gang agrees on its last step through the checkpoint folder; "
                "give checkpoint_dir or set LEASEHOLD_CHECKPOINT_DIR"
            )
        return Gang(
            folder / f"gang-{self._told.token}",
            rank=self._told.rank,
            world_size=self._told.world_size,
            noticed=lambda: self._channel.noticed,
        )


def _is_of_the_checkpoint(error: Exception) -> bool:
    """Return whether an error of ``load`` may be due to the checkpoint, and not to anything else.

    Lack of memory, a device, and a file server that does not answer say nothing about it.
    """
    if isinstance(error, StaleLeaseError | ForeignCheckpointsError | MemoryError):
        return False
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        return False
    words = f"{type(error).__name__} {error}"
    return not any(word in words for word in ("OutOfMemory", "CUDA", "HIP", "NCCL", "cuDNN"))


def _total_steps(data: object, given: int | None, told: Surroundings) -> int:
    if given is not None:
        return given
    if told.total_steps is not None:
        return told.total_steps
    try:
        return len(data)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(
            "the number of steps is unknown; give total_steps, or submit the job with it"
        ) from None


def _items(
    data: Sequence[T] | Iterable[T] | Callable[[int], Iterator[T]], step: int
) -> Iterator[T]:
    """Yield items from step ``step`` on, epoch after epoch."""
    if callable(data):
        yield from data(step)
    elif isinstance(data, Sequence):
        for number in itertools.count(step):
            yield data[number % len(data)]
    else:
        yield from itertools.islice(_epochs(data), step, None)
    raise ValueError("the data ended before total_steps were done; give more data or fewer steps")


def _epochs(data: Iterable[T]) -> Iterator[T]:
    while True:
        empty = True
        for item in data:
            empty = False
            yield item
        if empty:
            return
