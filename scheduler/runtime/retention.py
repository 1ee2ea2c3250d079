"""Retention: drops jobs that ended long ago, their output and code, and old history."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

from scheduler.errors import StoreUnavailableError

if TYPE_CHECKING:
    from scheduler.clock import Clock
    from scheduler.logs.logbook import LogBook
    from scheduler.runtime.settings import RuntimeSettings
    from scheduler.store.protocol import Store

_log = logging.getLogger("leasehold.retention")

EVERY_S = 600.0
#: Rows that one transaction drops, so that others need not wait long.
AT_ONCE = 500
DAY_S = 86_400.0


class Retention:
    """Drops data that is older than the operator wants to keep."""

    def __init__(
        self, store: Store, logs: LogBook, clock: Clock, settings: RuntimeSettings
    ) -> None:
        self._store = store
        self._logs = logs
        self._clock = clock
        self._settings = settings

    async def run(self) -> None:
        """Drop old data every ten minutes, until cancelled."""
        while True:
            try:
                forgotten = await asyncio.to_thread(self.forget, self._clock.now_s())
            except StoreUnavailableError as error:
                _log.warning("old jobs could not be forgotten: %s", error)
            else:
                if forgotten:
                    _log.info("%d old jobs were forgotten", forgotten)
            await self._clock.sleep_until(self._clock.now_s() + EVERY_S)

    def forget(self, now_s: float) -> int:
        """Drop data that is too old now; returns the number of dropped jobs."""
        jobs = 0
        if math.isfinite(self._settings.finished_days):
            before_s = now_s - self._settings.finished_days * DAY_S
            while forgotten := self._store.prune_finished(before_s, limit=AT_ONCE):
                jobs += forgotten
        if math.isfinite(self._settings.history_days):
            before_s = now_s - self._settings.history_days * DAY_S
            while self._store.prune_history(before_s, limit=AT_ONCE):
                pass
        before_s = now_s - self._settings.uploads.keep_s
        while self._store.drop_uploads(before_s=before_s, now_s=now_s):
            pass
        if jobs:
            for job_id in list(self._logs.jobs()):
                if self._store.job(job_id) is None:
                    self._logs.forget(job_id)
        return jobs
