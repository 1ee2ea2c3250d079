"""The part of the fake service that keeps what jobs print."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from leasehold_testing.service_values import ACTIVE
from scheduler.errors import NotFoundError, NotLeadingError
from scheduler.logs.output import LogChunk, LogEnd, StoredLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from leasehold_testing.memory_store import MemoryStore
    from scheduler.logs.output import LogWanted, Outputs
    from scheduler.views.types import LeaseView


async def read_whole(service: Outputs, job_id: str, wanted: LogWanted) -> tuple[LogChunk, ...]:
    """Return the stored output of an attempt at once."""
    found = await service.read_log(job_id, wanted)
    return tuple([chunk async for chunk in found.pieces])


async def _each(chunks: Iterable[LogChunk]) -> AsyncIterator[LogChunk]:
    for chunk in chunks:
        yield chunk


class FakeOutput:
    """The ``Outputs`` protocol over pieces that a test puts into ``log``.

    Attributes:
        log: (job id, chunk), in the order of writing.
        ends: job id -> whether its output is all, once it has ended; by default it is.
        leading: whether it answers at all.
        refused: how often it did not.
    """

    leading: bool
    _store: MemoryStore
    _leases: dict[str, LeaseView]

    def __init__(self) -> None:
        self.log: list[tuple[str, LogChunk]] = []
        self.refused = 0
        self.ends: dict[str, LogEnd] = {}
        #: (lease, stream) -> whether its end was marked; None if its agent says nothing of ends.
        self.marks: dict[tuple[int, str], bool | None] = {}
        self._pieces: dict[tuple[int, str], bytes] = {}

    async def log_end(self, job_id: str, wanted: LogWanted) -> LogEnd:
        """Return the ``ends`` that a test has set."""
        self._must_lead()
        row = self._store.job(job_id)
        if row is not None and row.status in ACTIVE:
            return LogEnd(complete=False)
        return self.ends.get(job_id, LogEnd())

    async def read_log(self, job_id: str, wanted: LogWanted) -> StoredLog:
        """Return the ``log`` that a test has set."""
        self._must_lead()
        found = self._found(job_id, wanted)
        first: dict[str, LogChunk] = {}
        for chunk in found:
            first.setdefault(chunk.key, dataclasses.replace(chunk, data=b""))
        return StoredLog(first=tuple(first.values()), pieces=_each(found))

    def _found(self, job_id: str, wanted: LogWanted) -> tuple[LogChunk, ...]:
        chunks = [
            chunk
            for owner, chunk in self.log
            if owner == job_id
            and wanted.attempt in {None, chunk.attempt}
            and chunk.stream in wanted.streams
            and wanted.node in {"", chunk.node}
        ]
        if wanted.tail_bytes is None:
            cuts = ((c, max(wanted.from_byte - c.offset, 0)) for c in chunks)
            return tuple(
                dataclasses.replace(c, offset=c.offset + cut, data=c.data[cut:])
                for c, cut in cuts
                if cut < len(c.data)
            )
        ends: dict[tuple[int, str, str], int] = {}
        for c in chunks:
            ends[c.attempt, c.node, c.stream] = c.offset + len(c.data)
        cut = []
        for c in chunks:
            end = ends[c.attempt, c.node, c.stream]
            begin = end - wanted.tail_bytes
            left = min(max(begin - c.offset, 0), len(c.data))
            if left < len(c.data) or c.offset + left == end:
                cut.append(dataclasses.replace(c, offset=c.offset + left, data=c.data[left:]))
        return tuple(cut)

    def follow_log(self, job_id: str, wanted: LogWanted) -> AsyncIterator[LogChunk | LogEnd]:
        """Yield the content of ``log`` and later output, until the job has ended."""
        self._must_lead()
        return self._follow(job_id, wanted)

    async def _follow(self, job_id: str, wanted: LogWanted) -> AsyncIterator[LogChunk | LogEnd]:
        shown = 0
        while True:
            end = await self.log_end(job_id, wanted)
            self._must_lead()
            chunks = self._found(job_id, wanted)
            for chunk in chunks[shown:]:
                yield chunk
            row = self._store.job(job_id)
            over = row is None or row.status not in ACTIVE
            if not wanted.follow or (over and len(chunks) == shown):
                yield end
                return
            if len(chunks) == shown:
                await self._wait(1.0)
            shown = len(chunks)

    async def append_log(
        self,
        node: str,
        lease_id: int,
        stream: str,
        *,
        offset: int,
        data: bytes,
        end: bool | None = None,
        nonce: str = "",
    ) -> int:
        """Store output that follows the stored output."""
        known = {lease.lease_id: (job, lease) for job, lease in self._leases.items()}
        job_id, lease = known.get(lease_id, ("", None))
        if lease is None or node not in lease.nodes:
            raise NotFoundError(f"node '{node}' holds no lease {lease_id}")
        stored = self._pieces.get((lease_id, stream), b"")
        if offset == len(stored):
            stored += data
            chunk = LogChunk(
                stream=stream, node=node, attempt=lease.attempt, offset=offset, data=data
            )
            self.log += [(job_id, chunk)] if data else []
        self._pieces[lease_id, stream] = stored
        if offset + len(data) == len(stored):
            self.marks[lease_id, stream] = end
        return len(stored)

    def _must_lead(self) -> None:
        if not self.leading:
            self.refused += 1
            raise NotLeadingError

    async def _wait(self, wait_s: float) -> None:
        raise NotImplementedError
