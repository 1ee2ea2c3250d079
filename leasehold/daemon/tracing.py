"""Exports a trace of each job to an OpenTelemetry collector as its spans end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from scheduler.errors import LeaseholdError, MissingExtraError
from scheduler.store.queries import MAX_LIMIT, HistoryQuery
from scheduler.views.job_traces import SPAN_ENDS, spans_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from leasehold.config.settings import ServerConfig
    from leasehold.daemon.otlp import OtlpExporter
    from scheduler.domain.rows import HistoryRow
    from scheduler.runtime.service import LiveService
    from scheduler.store.protocol import Store
    from scheduler.views.job_traces import JobSpan

_log = logging.getLogger("leasehold.tracing")
#: Longest wait for new rows of the history, and the pause after an error of the store, in seconds.
_WAIT_S: Final = 15.0
#: Seconds between two reads of the history, so that spans are exported together.
_PAUSE_S: Final = 0.5


@contextlib.asynccontextmanager
async def exported_traces(
    config: ServerConfig, store: Store, service: LiveService
) -> AsyncIterator[None]:
    """Export traces within the context if the configuration names a collector.

    Raises:
        MissingExtraError: the packages for it are not installed.
    """
    if config.tracing.endpoint is None:
        yield
        return
    exporter = _exporter(config.tracing.endpoint, version=service.health().version)
    exporting = asyncio.create_task(_TraceExport(store, service, exporter).run())
    exporting.add_done_callback(_log_failure)
    try:
        yield
    finally:
        exporting.cancel()
        await asyncio.gather(exporting, return_exceptions=True)
        await asyncio.to_thread(exporter.close)


def _log_failure(exporting: asyncio.Task[None]) -> None:
    if not exporting.cancelled() and (error := exporting.exception()) is not None:
        _log.error("traces are not exported any more", exc_info=error)


def _exporter(endpoint: str, *, version: str) -> OtlpExporter:
    try:
        from leasehold.daemon.otlp import OtlpExporter  # noqa: PLC0415  an extra
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"tracing.endpoint needs more than is installed here (there is no module "
            f"'{error.name}'); get it by: pip install 'leasehold-scheduler[scheduler,tracing]'"
        ) from error
    return OtlpExporter(endpoint, version=version)


class _TraceExport:
    """Follows the history while this process leads, and exports ended spans.

    Spans that ended before it led are not exported.
    """

    def __init__(self, store: Store, service: LiveService, exporter: OtlpExporter) -> None:
        self._store = store
        self._service = service
        self._exporter = exporter
        #: Id of the last row of the history that was read.
        self._seen = 0

    async def run(self) -> None:
        """Export until cancelled."""
        while True:
            try:
                await self._export_news()
            except LeaseholdError as error:
                _log.warning("traces wait: %s", error)
                await asyncio.sleep(_WAIT_S)

    async def _export_news(self) -> None:
        if not self._service.health().leading:
            await self._service.until_turned()
            self._seen = (await asyncio.to_thread(self._store.head)).event_id
            return
        newest = await self._service.wait_for_history(self._seen, wait_s=_WAIT_S)
        if newest > self._seen:
            spans, self._seen = await asyncio.to_thread(self._ended_spans, self._seen)
            self._exporter.export(spans)
        await asyncio.sleep(_PAUSE_S)

    def _ended_spans(self, seen: int) -> tuple[list[JobSpan], int]:
        """Return the spans that ended after a row of the history, and the last row read."""
        head = self._store.head().event_id  # read first: no row up to it becomes visible later
        query = HistoryQuery(
            subject_kind="job", kinds=tuple(SPAN_ENDS), after_id=seen, limit=MAX_LIMIT
        )
        rows = self._store.history(query)
        last = rows[-1].event_id if len(rows) == MAX_LIMIT else head
        spans: list[JobSpan] = []
        for job_id in dict.fromkeys(row.subject for row in rows):
            job = self._store.job(job_id)
            if job is not None:
                ended = spans_of(job, self._history_of(job_id))
                spans += [span for span in ended if seen < span.ended_by <= last]
        return spans, last

    def _history_of(self, job_id: str) -> list[HistoryRow]:
        rows: list[HistoryRow] = []
        while True:
            after_id = rows[-1].event_id if rows else 0
            page = self._store.history(
                HistoryQuery(subject_kind="job", subject=job_id, after_id=after_id, limit=MAX_LIMIT)
            )
            rows += page
            if len(page) < MAX_LIMIT:
                return rows
