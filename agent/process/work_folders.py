"""Default working directories of jobs: one of a job's own, or one with its code."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from agent.process.cells.confinement import discard_folder
from agent.trees import TREES

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from scheduler.protocol.desired import DesiredLease

#: The suffix of a folder with a lease's uploaded code; no job's own folder has a dot.
TREE = ".code"
#: Longest name of a folder that is made of a job's id.
LONGEST_NAME = 200


class WorkFolders:
    """The folders below ``work`` in the agent's folder.

    Args:
        state_dir: private folder of the agent.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self.folder = state_dir / "work"

    def clear(self, kept: Collection[str]) -> None:
        """Remove code of unknown leases, given the folders of known ones."""
        for path in self.folder.glob(f"*{TREE}"):
            if str(path) not in kept:  # the agent ended just before the lease was stored
                discard_folder(path, self._state_dir / "rubbish")

    def settled(self, lease: DesiredLease, uid: int | None) -> DesiredLease:
        """Return the lease with a working directory: a job that names none has one per node."""
        if lease.upload:
            return replace(lease, working_dir=str(self._place_tree(lease)))
        if lease.working_dir:
            return lease
        name = quote(lease.job_id, safe="").replace(".", "%2E")
        if len(name) > LONGEST_NAME:
            name = hashlib.sha256(name.encode()).hexdigest()
        folder = self.folder / name
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            if uid is not None:
                os.chown(folder, uid, uid)
        return replace(lease, working_dir=str(folder))

    def _place_tree(self, lease: DesiredLease) -> Path:
        """Return the folder with the code that a lease is started in, which is its own."""
        folder = self.folder / f"{lease.lease_id}{TREE}"
        (self._state_dir / TREES / str(lease.lease_id)).rename(folder)
        return folder

    def leave(self, folder: Path, others: Collection[str]) -> None:
        """Remove a job's own folder, unless it holds something, perhaps the job's state.

        The job's next lease may have been given the folder already without using it yet.
        """
        if folder.parent == self.folder and folder.name.endswith(TREE):
            discard_folder(folder, self._state_dir / "rubbish")
            return
        if folder.parent == self.folder and str(folder) not in others:
            with contextlib.suppress(OSError):
                folder.rmdir()
