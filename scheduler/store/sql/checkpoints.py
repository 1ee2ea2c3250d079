"""Checkpoints: SQLite's write-ahead log is moved into its database outside the commits."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from scheduler.errors import StoreError
from scheduler.store.sql.databases import translate_errors

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

#: The shortest time in seconds between two moves.
EVERY_S: Final = 1.0
#: How often a move is repeated at once if commits took place during it.
PASSES: Final = 3


class WalCheckpoints:
    """Moves the log in a thread of its own.

    A move waits for the disk, and a commit should not: a user that submits a job waits for it.
    Moves that fall behind do no harm: the writer moves the log itself when it is long.

    Args:
        engine: connections of any SQLite database.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._running: Future[None] | None = None
        self._due_s = 0.0

    def soon(self) -> None:
        """Begin a move, unless one is running or ended just now."""
        now_s = time.monotonic()
        if now_s < self._due_s or (self._running is not None and not self._running.done()):
            return
        self._due_s = now_s + EVERY_S
        self._running = self._thread.submit(self._move)

    def close(self) -> None:
        """Wait for the end of a move."""
        self._thread.shutdown()

    def _move(self) -> None:
        try:
            with translate_errors(), self._engine.connect() as connection:
                raw = connection.connection.cursor()
                for _ in range(PASSES):
                    busy, pages, moved = raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                    if busy or moved >= pages:
                        break
        except StoreError:
            return  # the writer will move the log, or report the problem
