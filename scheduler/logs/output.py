"""The output of jobs for callers: the wanted part, its pieces, and whether it is complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

#: The names of the streams.
STREAMS = ("out", "err")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWanted:
    """The wanted part of a job's output.

    Attributes:
        attempt: only this one's; None for the attempts that ``every`` selects.
        every: all attempts that are kept; otherwise the newest one and later ones.
        stream: ``out``, ``err`` or ``both``.
        node: only of this node, for ``read_log``; empty for all.
        from_byte: only from this offset on, for ``read_log``.
        tail_bytes: only the last bytes of each stream that exists; None for all.
        follow: whether to continue until the job has ended and its output is complete.
        since: ``ATTEMPT/NODE/STREAM`` -> offset up to which the reader has it already.
    """

    attempt: int | None = None
    every: bool = False
    stream: str = "both"
    node: str = ""
    from_byte: int = 0
    tail_bytes: int | None = None
    follow: bool = False
    since: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams by name."""
        return STREAMS if self.stream == "both" else (self.stream,)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """A piece of a job's output.

    Attributes:
        stream: ``out`` or ``err``.
        node: the node that it was written on.
        attempt: of the job.
        offset: of the first byte, since the attempt's start.
        data: the bytes; empty if only the offset is reported.
        kept_from: offset of the first byte that is still kept; earlier ones are dropped.
    """

    stream: str
    node: str
    attempt: int
    offset: int
    data: bytes
    kept_from: int = 0

    @property
    def key(self) -> str:
        """The stream's name among those of the job."""
        return f"{self.attempt}/{self.node}/{self.stream}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog:
    """The stored output of an attempt, read in pieces as a client takes them.

    Attributes:
        first: for each stream with output its first piece, without the bytes.
        pieces: the output up to the moment of the request, stream by stream. Output that is dropped
            while it is read is left out.
    """

    first: tuple[LogChunk, ...]
    pieces: AsyncIterator[LogChunk]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGap:
    """A stream of an ended lease without an end mark.

    Attributes:
        attempt: of the job.
        node: the node that it was written on.
        stream: ``out`` or ``err``.
        told: whether missing output would be known; False if the node's agent is of a release
            that marks no ends, so that the stored output may be complete.
    """

    attempt: int
    node: str
    stream: str
    told: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """Whether the output that was read is complete.

    Attributes:
        complete: True if the leases have ended and every stream came to its end mark; False if more
            may come or output is missing; None if it cannot be known.
        missing: streams of ended leases without which it is not complete.
    """

    complete: bool | None = True
    missing: tuple[LogGap, ...] = ()


class Outputs(Protocol):
    """Output of jobs, for people. Raises ``NotLeadingError`` if this process does not lead.

    The leader that received output keeps it; another process would return nothing.
    """

    async def log_end(self, job_id: str, wanted: LogWanted) -> LogEnd:
        """Return whether the stored output is complete; waits a little if more is on its way."""
        ...

    async def read_log(self, job_id: str, wanted: LogWanted) -> StoredLog:
        """Return the output so far of one attempt, by default the newest; all nodes of a gang."""
        ...

    def follow_log(self, job_id: str, wanted: LogWanted) -> AsyncIterator[LogChunk | LogEnd]:
        """Yield output as it comes, through later attempts; then, whether it is complete.

        Without ``wanted.follow`` that is the stored output. Raises at once if this process does not
        lead, and later if it ceases to lead.
        """
        ...
