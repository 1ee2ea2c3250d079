"""The output of jobs as callers see it: what is wanted, its pieces, and whether that is all."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

#: What a stream is called.
STREAMS = ("out", "err")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWanted:
    """What of a job's output somebody wants.

    Attributes:
        attempt: only this one's; None for those that follow from ``every``.
        every: all attempts that are kept; otherwise the newest one and those that come.
        stream: ``out``, ``err`` or ``both``.
        tail_bytes: only the last bytes of each stream that is there; None for all.
        follow: whether to go on until the job has ended and its output is whole.
        since: ``ATTEMPT/NODE/STREAM`` -> offset up to which it is known already.
    """

    attempt: int | None = None
    every: bool = False
    stream: str = "both"
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
        node: where it was written.
        attempt: of the job.
        offset: of the first byte, since the attempt's start.
        data: the bytes; empty where only the offset is told.
        kept_from: offset of the first byte that is still kept; what was before it is gone.
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
class LogGap:
    """A stream of a lease that has ended whose end has not come.

    Attributes:
        attempt: of the job.
        node: where it was written.
        stream: ``out`` or ``err``.
        told: whether it is known that something is missing; False where the node's agent is of a
            release that marks no ends, so that what is there may be all.
    """

    attempt: int
    node: str
    stream: str
    told: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """Whether what was read is all.

    Attributes:
        complete: True where the leases have ended and every stream came to its end mark; False
            where more may come or something is missing; None where nobody can know.
        missing: streams of leases that have ended without which it is not complete.
    """

    complete: bool | None = True
    missing: tuple[LogGap, ...] = ()


class Outputs(Protocol):
    """Output of jobs, for people. Raises ``NotLeadingError`` where this process does not lead.

    Output lies where it was sent, with the leader; another process would answer with nothing.
    """

    async def log_end(self, job_id: str, wanted: LogWanted) -> LogEnd:
        """Tell whether the output that is there is all; waits a little where it is on its way."""
        ...

    async def read_log(self, job_id: str, wanted: LogWanted) -> tuple[LogChunk, ...]:
        """Return output so far, of one attempt: the newest unless told; all nodes of a gang."""
        ...

    def follow_log(self, job_id: str, wanted: LogWanted) -> AsyncIterator[LogChunk | LogEnd]:
        """Yield output as it comes, through later attempts, and whether that is all at its end.

        Without ``wanted.follow`` that is what there is. Raises at once where this process does not
        lead, and later where it ceases to.
        """
        ...
