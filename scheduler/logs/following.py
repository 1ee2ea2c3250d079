"""Reading a job's output to its end: over attempts, and until every stream has its end mark.

A job ends before the last of its output arrives: agents send it in the background. They mark the
end of each stream, and a reader that follows a job's output stops at the last mark. A reader checks
for marks before it reads pieces, so all output before a mark is read after the mark was seen.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from scheduler.domain.lease import nonce_of
from scheduler.errors import NotFoundError, StoreUnavailableError
from scheduler.logs.output import LogChunk, LogEnd, LogGap, LogWanted, StoredLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from scheduler.clock import Clock
    from scheduler.control.state.leases import LiveLease
    from scheduler.domain.rows import AttemptRow, JobRow
    from scheduler.logs.logbook import LogBook, LogFile, LogSpan
    from scheduler.store.protocol import Store

#: The wait between two reads of a log that is followed.
FOLLOW_S: Final = 0.25
#: How long to wait for an end mark after the lease's end, the last piece, or a start of the
#: scheduler. Agents retry at least every 30 s, and agents of the previous release send no marks.
MARK_WAIT_S: Final = 45.0
#: How long a reader that does not follow waits for the rest of a job that has just ended.
SETTLE_S: Final = 5.0
#: While an attempt's lease may still hold, the store is read at one in so many reads of the files.
_SELDOM: Final = 8
#: How much of a failed job's output an explanation quotes.
LAST_LINES: Final = 20
LAST_BYTES: Final = 4096


@dataclass(slots=True, kw_only=True)
class Reading:
    """A reader's position in a job's output. Its methods read files; call them in a thread.

    Attributes:
        book: the store of output.
        job_id: the job.
        wanted: the wanted part of its output.
    """

    book: LogBook
    job_id: str
    wanted: LogWanted
    _offsets: dict[str, int] = field(default_factory=dict, init=False)
    _first: int = field(default=0, init=False)

    def begin(self) -> list[LogChunk]:
        """Find where to begin; for a tail, returns empty pieces with the offsets."""
        wanted = self.wanted
        self._offsets = dict(wanted.since)
        begun = [int(key.partition("/")[0]) for key in wanted.since]
        if wanted.attempt is None and not wanted.every:
            self._first = min(begun) if begun else max(self._attempts(), default=1)
        while wanted.tail_bytes is not None:
            try:
                return [
                    self._from(file, max(file.end - wanted.tail_bytes, file.start))
                    for attempt in self._attempts()
                    for file in self.book.files(self.job_id, attempt=attempt, stream=wanted.stream)
                    if file.key not in wanted.since
                ]
            except FileNotFoundError:
                continue  # its older half was dropped meanwhile; the rest has another name
        return []

    def covers(self, attempt: int) -> bool:
        """Return whether an attempt is among the wanted ones."""
        return attempt >= self._first and self.wanted.attempt in {None, attempt}

    def read(self) -> list[LogChunk]:
        """Return new output since the last call, at most the next piece of each stream."""
        chunks = []
        for attempt in self._attempts():
            for file in self.book.files(self.job_id, attempt=attempt, stream=self.wanted.stream):
                chunk = self.book.piece(file, self._offsets.get(file.key, 0))
                if chunk is not None:
                    chunks.append(chunk)
                    self._offsets[file.key] = chunk.offset + len(chunk.data)
        return chunks

    def gaps(self, row: AttemptRow) -> list[LogGap]:
        """Return the streams of an attempt without an end mark."""
        marks = self.book.marks(self.job_id, row.attempt)
        known = {node for node, _ in marks}
        files = self.book.files(self.job_id, attempt=row.attempt, stream="both")
        silent = set(row.nodes) - known - {file.node for file in files}
        return [
            LogGap(
                attempt=row.attempt, node=node, stream=stream, told=node in silent or node in known
            )
            for node in row.nodes
            for stream in self.wanted.streams
            if not marks.get((node, stream))
        ]

    def _attempts(self) -> list[int]:
        return [number for number in self.book.attempts(self.job_id) if self.covers(number)]

    def _from(self, file: LogFile, offset: int) -> LogChunk:
        self._offsets[file.key] = offset
        return file.chunk(offset, b"")


class OutputReader:
    """Reads output for clients of the leader.

    Args:
        book: the store of output.
        store: the store of leases.
        clock: the time.
    """

    def __init__(self, book: LogBook, store: Store, clock: Clock) -> None:
        self._book = book
        self._store = store
        self._clock = clock
        #: since when agents could send to this process.
        self.leading_since_s = -math.inf

    async def append(
        self,
        live: LiveLease | None,
        node: str,
        lease_id: int,
        stream: str,
        *,
        offset: int,
        data: bytes,
        end: bool | None,
        nonce: str = "",
    ) -> int:
        """Store output of a lease; see ``scheduler.runtime.contract.Agents``.

        Raises:
            NotFoundError: there was no such lease on the node, or it has been dropped.
        """
        if live is not None:
            job_id, attempt, nodes = live.lease.job_id, live.lease.attempt, live.nodes
            known = live.lease.nonce
        else:
            row = await asyncio.to_thread(self._store.attempt, lease_id)
            if row is None:
                raise NotFoundError(f"there is no lease {lease_id}")
            job_id, attempt, nodes = row.job_id, row.attempt, row.nodes
            known = nonce_of(job_id, attempt, row.start_s)
        if node not in nodes:
            raise NotFoundError(f"there is no lease {lease_id} on node '{node}'")
        if nonce not in {"", known}:
            raise NotFoundError(f"lease {lease_id} is another one of that number")
        append = self._book.append
        return await asyncio.to_thread(
            append, job_id, attempt, node, stream, offset=offset, data=data, end_mark=end
        )

    async def read(self, job_id: str, wanted: LogWanted) -> StoredLog:
        """Return the output so far of one attempt, by default the newest."""
        spans = await asyncio.to_thread(
            self._book.spans,
            job_id,
            attempt=wanted.attempt,
            stream=wanted.stream,
            tail_bytes=wanted.tail_bytes,
        )
        spans = tuple(
            replace(span, start=max(span.start, wanted.from_byte))
            for span in spans
            if wanted.node in {"", span.file.node} and wanted.from_byte < span.end
        )
        first = tuple(span.file.chunk(span.start, b"") for span in spans)
        return StoredLog(first=first, pieces=self._pieces(job_id, spans))

    async def _pieces(self, job_id: str, spans: tuple[LogSpan, ...]) -> AsyncIterator[LogChunk]:
        for span in spans:
            at: int | None = span.start
            while at is not None and at < span.end:
                chunk = await asyncio.to_thread(self._book.next_of, job_id, span, at)
                at = None if chunk is None else chunk.offset + len(chunk.data)
                if chunk is not None:
                    yield chunk

    async def follow(
        self, job_id: str, wanted: LogWanted, *, is_active: Callable[[], bool]
    ) -> AsyncIterator[LogChunk | LogEnd]:
        """Yield the stored output, new output if wanted, and finally whether it is complete.

        Args:
            job_id: the job.
            wanted: the wanted part of its output.
            is_active: returns whether the job may still run; raises if this process does not lead.
        """
        if not wanted.follow:
            await self.end(job_id, wanted, is_active=is_active)  # on its way: waits a little
        reading = Reading(book=self._book, job_id=job_id, wanted=wanted)
        for chunk in await asyncio.to_thread(reading.begin):
            yield chunk
        looks, fresh_s = 0, -math.inf
        while True:
            is_due = wanted.attempt is not None and looks % _SELDOM == 0
            end, over = LogEnd(complete=False), not wanted.follow
            if not is_active() or is_due:
                end, over = await self._end(reading, since_s=fresh_s)
            chunks = await asyncio.to_thread(reading.read)
            for chunk in chunks:
                yield chunk
            if chunks:
                fresh_s = self._clock.now_s() if looks else fresh_s
                continue
            looks += 1
            if over or not wanted.follow:
                yield end
                return
            await asyncio.sleep(FOLLOW_S)

    async def end(self, job_id: str, wanted: LogWanted, *, is_active: Callable[[], bool]) -> LogEnd:
        """Return whether the output is complete; waits a little for a job that has just ended."""
        reading = Reading(book=self._book, job_id=job_id, wanted=wanted)
        await asyncio.to_thread(reading.begin)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SETTLE_S
        while True:
            running = is_active()
            if running and wanted.attempt is None:
                return LogEnd(complete=False)
            end, over = await self._end(reading, wait_s=SETTLE_S)
            if over or loop.time() > until_s or (running and not end.missing):
                return end
            await asyncio.sleep(FOLLOW_S)

    async def last_words(self, row: JobRow, *, is_active: Callable[[], bool]) -> str:
        """Return the last lines of a job's standard error in its last attempt.

        If it ran in pods, which have one stream for both, of its whole output.
        """
        wanted = LogWanted(attempt=row.attempts, tail_bytes=LAST_BYTES)
        await self.end(row.job_id, wanted, is_active=is_active)
        return await asyncio.to_thread(self._last_words, row)

    def _last_words(self, row: JobRow) -> str:
        for stream in ("err", "out") if row.spec.get("image") else ("err",):
            found: dict[str, bytes] = {}
            for chunk in self._book.read(
                row.job_id, attempt=row.attempts, stream=stream, tail_bytes=LAST_BYTES
            ):
                found[chunk.node] = found.get(chunk.node, b"") + chunk.data
            if found := {node: text for node, text in found.items() if text.strip()}:
                return _joined(found)
        return ""

    async def _end(
        self, reading: Reading, *, since_s: float = -math.inf, wait_s: float = MARK_WAIT_S
    ) -> tuple[LogEnd, bool]:
        """Return the missing parts, and whether nothing is left to wait for."""
        try:
            rows = await asyncio.to_thread(self._store.attempts, reading.job_id)
        except StoreUnavailableError:
            return LogEnd(complete=False), False
        rows = tuple(row for row in rows if reading.covers(row.attempt))
        if any(row.ended_s is None for row in rows):
            return LogEnd(complete=False), False
        missing = await asyncio.to_thread(self._missing, reading, rows)
        if not missing:
            return LogEnd(), True
        behind = {gap.attempt for gap in missing}
        last_s = max(row.ended_s or 0.0 for row in rows if row.attempt in behind)
        over = self._clock.now_s() - max(last_s, since_s, self.leading_since_s) >= wait_s
        complete = False if any(gap.told for gap in missing) else None
        return LogEnd(complete=complete, missing=tuple(missing)), over

    @staticmethod
    def _missing(reading: Reading, rows: tuple[AttemptRow, ...]) -> list[LogGap]:
        return [gap for row in rows for gap in reading.gaps(row)]


def _joined(found: dict[str, bytes]) -> str:
    """Join the last lines of nodes, an equal part of each; with headings if there are several."""
    each = max(LAST_LINES // len(found) - 1, 1) if len(found) > 1 else LAST_LINES
    size = max(LAST_BYTES // len(found), 1)
    lines = []
    for node, text in found.items():
        if len(found) > 1:
            lines.append(f"==> {node} <==")
        lines += text[-size:].decode("utf-8", errors="replace").splitlines()[-each:]
    return "\n".join(lines[-LAST_LINES:])
