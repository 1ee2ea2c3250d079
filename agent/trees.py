"""The code that leases are started in: fetched, checked and unpacked before they begin.

Each lease has a tree of its own, fetched for it: by its hash it is the same on every node and in
each attempt, and no job sees another job's changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scheduler.archive import digest_of, unpack_tree
from scheduler.errors import InputError
from scheduler.protocol.bounds import clean_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from agent.link.port import Link
    from scheduler.protocol.desired import DesiredLease

_log = logging.getLogger("leasehold.agent")

#: Folder in the agent's with the code of leases that will begin: a folder for each.
TREES: Final = "trees"
#: First and longest wait after code could not be fetched.
RETRY_LEAST_S, RETRY_MOST_S = 0.5, 10.0


class Trees:
    """Fetches code ahead of the leases that will begin.

    Args:
        link: to the scheduler.
        folder: private; a folder per lease.
        on_change: called when there is news of one.
        owner_of: returns the uid of a lease's job; None: the agent's.
    """

    def __init__(
        self,
        link: Link,
        folder: Path,
        on_change: Callable[[], None],
        owner_of: Callable[[DesiredLease], int | None] = lambda _lease: None,
    ) -> None:
        self._link, self._folder, self._on_change = link, folder, on_change
        self._owner_of = owner_of
        self._fetching: dict[int, asyncio.Task[None]] = {}
        #: lease -> why its code cannot be had; empty: it is here.
        self._found: dict[int, str] = {}

    def clear(self) -> None:
        """Remove the trees that an earlier agent has left."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def fault(self, lease: DesiredLease) -> str | None:
        """Return why a lease's code cannot be had, empty if it is here; None: it is coming."""
        lease_id = lease.lease_id
        if lease_id in self._found:
            return self._found[lease_id]
        if lease_id not in self._fetching:
            self._fetching[lease_id] = asyncio.create_task(self._fetch(lease))
        return None

    def keep(self, lease_ids: Collection[int]) -> None:
        """Drop leases that will not begin any more."""
        for lease_id in (self._fetching.keys() | self._found.keys()) - set(lease_ids):
            if (task := self._fetching.pop(lease_id, None)) is not None:
                task.cancel()
            self._found.pop(lease_id, None)
            shutil.rmtree(self._folder / str(lease_id), ignore_errors=True)

    async def _fetch(self, lease: DesiredLease) -> None:
        lease_id, wait_s = lease.lease_id, RETRY_LEAST_S
        while True:
            try:
                archive = await self._link.code(lease_id)
                await asyncio.to_thread(self._unpack, lease, archive)
                fault = ""
            except InputError as error:
                fault = clean_text(f"its uploaded code cannot be fetched: {error}")
            except OSError as error:  # the scheduler is away, or the disk is full
                _log.warning("the code of lease %d could not be brought: %s", lease_id, error)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_MOST_S)
                continue
            self._found[lease_id] = fault
            self._fetching.pop(lease_id, None)
            self._on_change()
            return

    def _unpack(self, lease: DesiredLease, archive: bytes) -> None:
        if digest_of(archive) != lease.upload:
            raise InputError(f"the scheduler sent another tree than {lease.upload}")
        folder = self._folder / str(lease.lease_id)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
        folder.mkdir(parents=True, mode=0o700)
        unpack_tree(archive, folder)
        if (uid := self._owner_of(lease)) is not None:
            for path, folders, files in os.walk(folder):  # no job reaches it so far: no links
                for name in (*folders, *files):
                    os.chown(Path(path, name), uid, uid, follow_symlinks=False)
            os.chown(folder, uid, uid)
