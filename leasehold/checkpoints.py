"""Checkpoints in a folder: written aside and renamed, so that each one is complete.

``checkpoint_dir/step-000000000120/`` is a complete checkpoint with files of the job. The
newest is the one with the most steps. Files and folders with other names belong to the user.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


#: Holds the id of the job that owns the checkpoints in the folder.
OWNER_FILE = ".leasehold-job"
#: Is in each checkpoint that this module has written; the module removes no others.
WRITTEN_FILE = ".leasehold-checkpoint"
#: Variable with the id of a job; this job may take over its checkpoints.
ADOPT_VARIABLE = "LEASEHOLD_TAKE_CHECKPOINTS_OF"


class StaleLeaseError(RuntimeError):
    """A later attempt of this job has begun; this one must leave its checkpoints alone."""


class ForeignCheckpointsError(RuntimeError):
    """The checkpoints in the folder are those of another job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The checkpoints of one job.

    Attributes:
        folder: folder of the checkpoints; on storage that every node of the job sees.
        token: fencing token of this attempt; 0 outside a lease, without fencing.
        keep: how many checkpoints are kept.
        job_id: id of the owner; empty outside a lease, without an owner.
        adopts: id of a job; this job continues from its checkpoints; empty: no job.
    """

    folder: Path
    token: int = 0
    keep: int = 2
    job_id: str = ""
    adopts: str = ""

    def claim(self) -> None:
        """Mark this attempt as the writer, and remove unfinished files of earlier attempts.

        Raises:
            StaleLeaseError: a later attempt has claimed the folder.
            ForeignCheckpointsError: the folder is another job's.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._own()
        self.check()
        marker = self.folder / f".token-{self.token:020d}"
        marker.touch()
        for older in self.folder.glob(".token-*"):
            if older.name < marker.name:
                older.unlink(missing_ok=True)
        for half in self.folder.glob(".half-*"):
            written = re.fullmatch(r"\.half-(\d+)-\d+", half.name)
            if written and (int(written[1]) < self.token or not self.token):
                shutil.rmtree(half, ignore_errors=True)

    def check_owner(self) -> None:
        """Check that the checkpoints belong to this job, or to the job that it continues from.

        Folders of the previous release name no job; they count as this job's.

        Raises:
            ForeignCheckpointsError: they belong to another job.
        """
        owner = self._owner()
        if self.job_id and owner not in ("", self.job_id, self.adopts):
            raise ForeignCheckpointsError(
                f"{self.folder} holds the checkpoints of job '{owner}', and this is job "
                f"'{self.job_id}'; give each job a folder of its own, such as "
                f"--checkpoint-dir DIR/{{job_id}}. To go on from those checkpoints, submit with "
                f"--env {ADOPT_VARIABLE}={owner}"
            )

    def claimed_s(self) -> float:
        """Return when a job first claimed the folder, in seconds since the epoch; inf if never."""
        try:
            return (self.folder / OWNER_FILE).stat().st_mtime
        except FileNotFoundError:
            return math.inf

    def _own(self) -> None:
        """Write this job's id into the folder; if two jobs do so at once, the second is refused."""
        if not self.job_id:
            return
        marker, mine = self.folder / OWNER_FILE, self.folder / f"{OWNER_FILE}-{self.token}"
        mine.write_text(self.job_id)
        _flush(mine)
        try:
            self.check_owner()
            if self.adopts and self._owner() == self.adopts:
                mine.replace(marker)
            with contextlib.suppress(FileExistsError):
                _place(mine, marker)
            self.check_owner()
        finally:
            mine.unlink(missing_ok=True)

    def _owner(self) -> str:
        try:
            return (self.folder / OWNER_FILE).read_text().strip()
        except FileNotFoundError:
            return ""

    def check(self) -> None:
        """Check that no later attempt has begun.

        Raises:
            StaleLeaseError: a later attempt has begun.
        """
        markers = (re.fullmatch(r"\.token-(\d+)", p.name) for p in self.folder.glob(".token-*"))
        newest = max((int(marker[1]) for marker in markers if marker), default=0)
        if self.token and newest > self.token:
            raise StaleLeaseError(
                f"the attempt with token {newest} has taken over {self.folder}; this one has "
                f"token {self.token} and stops writing"
            )

    def newest(self) -> int:
        """Return the steps of the newest whole checkpoint, 0 without a checkpoint."""
        return next(iter(self.steps()), 0)

    def steps(self) -> list[int]:
        """Return the steps of all whole checkpoints, the newest first."""
        return [step for step, _ in reversed(self._whole())]

    def set_aside(self, step: int) -> None:
        """Rename a checkpoint that cannot be read to ``unreadable-...``, if this module wrote it.

        It would count as the newest one, and older ones would be removed. One is kept so.
        """
        path = self.at(step)
        if (path / WRITTEN_FILE).exists():
            for earlier in self.folder.glob("unreadable-step-*"):
                if (earlier / WRITTEN_FILE).exists():
                    shutil.rmtree(earlier, ignore_errors=True)
            with contextlib.suppress(OSError):
                path.rename(path.with_name(f"unreadable-{path.name}-{self.token}"))

    def at(self, step: int) -> Path:
        """Return the folder of the checkpoint after ``step`` steps."""
        return self.folder / f"step-{step:012d}"

    def half(self, writer: int) -> Path:
        """Return the folder of a checkpoint that is being written.

        Args:
            writer: the process that writes; 0 if several do.
        """
        return self.folder / f".half-{self.token}-{writer}"

    def save(
        self, step: int, write: Callable[[Path], object], *, writer: int | None = None
    ) -> Path:
        """Write a checkpoint with ``write``, and put it in place atomically.

        Args:
            step: steps done.
            write: called with an empty folder.
            writer: see ``half``; by default this process.

        Raises:
            StaleLeaseError: a later attempt has begun.
        """
        self.check()
        half = self.half(os.getpid() if writer is None else writer)
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir()
        write(half)
        (half / WRITTEN_FILE).touch()
        for path in (*half.rglob("*"), half):
            _flush(path)
        self.check()
        final = self.at(step)
        if final.exists():  # the same step, by an attempt that was cut off: the same state
            shutil.rmtree(half)
        else:
            half.replace(final)
        _flush(self.folder)
        mine = [path for _, path in self._whole() if (path / WRITTEN_FILE).exists()]
        for older in mine[: -self.keep]:
            shutil.rmtree(older, ignore_errors=True)
        return final

    def _whole(self) -> list[tuple[int, Path]]:
        found = self.folder.glob("step-*")
        named = ((int(p.name[5:]), p) for p in found if p.name[5:].isdecimal())
        return sorted((step, path) for step, path in named if path == self.at(step))


def _place(file: Path, marker: Path) -> None:
    """Put a file in place atomically, unless the target exists.

    Raises:
        FileExistsError: the target exists.
    """
    try:
        os.link(file, marker)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        with marker.open("x") as new:
            new.write(file.read_text())


def _flush(path: Path) -> None:
    """Write a file or folder through to the disk, if the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
