"""The output of jobs, as agents send it: one file per attempt, node and stream."""

from __future__ import annotations

import re
import shutil
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scheduler.errors import InputError
from scheduler.logs.output import STREAMS, LogChunk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
#: Hidden files beside the streams' own, which the previous release ignores: one for a stream that
#: will get an end mark, and one for a stream that has it.
_OPEN, _END = "open", "end"
_MARK = re.compile(r"\.(.+)@(out|err)\.(open|end)")
#: Bytes that are read from a file at once.
PIECE_BYTES = 256 * 2**10


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One stream of one attempt on one node.

    Attributes:
        path: the file; its first byte is the stream's byte ``start``.
        attempt: of the job.
        node: the node that it was written on.
        stream: ``out`` or ``err``.
        start: bytes that were dropped before the file's first one.
    """

    path: Path
    attempt: int
    node: str
    stream: str
    start: int

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self.start + self.path.stat().st_size

    @property
    def key(self) -> str:
        """The stream's name among those of the job."""
        return f"{self.attempt}/{self.node}/{self.stream}"

    def span(self, tail_bytes: int | None) -> LogSpan:
        """Return all of it, or its last bytes."""
        end = self.end
        start = self.start if tail_bytes is None else max(self.start, end - tail_bytes)
        return LogSpan(file=self, start=start, end=end)

    def chunk(self, offset: int, data: bytes) -> LogChunk:
        """Return a piece of it."""
        return LogChunk(
            stream=self.stream,
            node=self.node,
            attempt=self.attempt,
            offset=offset,
            data=data,
            kept_from=self.start,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpan:
    """A part of a stream.

    Attributes:
        file: the stream.
        start: offset of its first byte.
        end: offset after its last byte.
    """

    file: LogFile
    start: int
    end: int


class LogBook:
    """Keeps output, the newest ``most_bytes`` of each stream.

    Args:
        folder: the folder; created when needed.
        most_bytes: of a stream on a node in an attempt; at twice that size the older half is
            dropped.
    """

    def __init__(self, folder: Path, *, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._lock = threading.Lock()

    def append(
        self,
        job_id: str,
        attempt: int,
        node: str,
        stream: str,
        *,
        offset: int,
        data: bytes,
        end_mark: bool | None = None,
    ) -> int:
        """Store a piece; returns the offset to continue from.

        A piece that begins before the end of the stored output is cut. One that begins after it is
        dropped, unless nothing is stored: then the beginning is permanently lost.

        Args:
            job_id: the job.
            attempt: of the job.
            node: the node that it was written on.
            stream: ``out`` or ``err``.
            offset: of the first byte.
            data: the bytes.
            end_mark: True: nothing follows, which counts if all output before it is stored; False:
                more may follow, and a mark will; None: the agent sends no marks.

        Raises:
            InputError: a name cannot be that of a file.
        """
        folder = self._folder_of(job_id) / str(attempt)
        with self._lock:
            file = self._find(folder, attempt, node, stream)
            if file is None:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                file = self._new(folder, attempt, node, stream, offset)
                if end_mark is False:
                    _mark(folder, node, stream, _OPEN)
            end = file.end
            if offset > end:
                return end
            fresh = data[end - offset :]
            if fresh:
                with file.path.open("ab") as handle:
                    handle.write(fresh)
            end += len(fresh)
            if end_mark and end == offset + len(data):
                _mark(folder, node, stream, _END)
            if end - file.start > 2 * self._most_bytes:
                self._drop_half(file, folder)
            return end

    def spans(
        self, job_id: str, *, attempt: int | None, stream: str, tail_bytes: int | None
    ) -> tuple[LogSpan, ...]:
        """Return the stored parts of an attempt's streams, those without output left out.

        Args:
            job_id: the job.
            attempt: of the job; None for the newest.
            stream: ``out``, ``err`` or ``both``.
            tail_bytes: only the last bytes of each stream; None for all.
        """
        while True:
            try:
                found = [
                    file.span(tail_bytes)
                    for file in self.files(job_id, attempt=attempt, stream=stream)
                ]
            except FileNotFoundError:
                continue  # its older half was dropped meanwhile; the rest has another name
            return tuple(span for span in found if span.start < span.end)

    def next_of(self, job_id: str, span: LogSpan, at: int) -> LogChunk | None:
        """Return a span's next piece from an offset, of bounded size; None if nothing is left."""
        chunk = self.piece(span.file, at)
        if chunk is None:  # its older half was dropped meanwhile; the rest has another name
            files = self.files(job_id, attempt=span.file.attempt, stream=span.file.stream)
            same = (file for file in files if file.key == span.file.key)
            chunk = next((self.piece(file, at) for file in same), None)
        if chunk is None or chunk.offset >= span.end:
            return None
        return replace(chunk, data=chunk.data[: span.end - chunk.offset])

    def read(
        self, job_id: str, *, attempt: int | None, stream: str, tail_bytes: int | None
    ) -> tuple[LogChunk, ...]:
        """Return the spans' output at once."""
        found: list[LogChunk] = []
        for span in self.spans(job_id, attempt=attempt, stream=stream, tail_bytes=tail_bytes):
            at = span.start
            while at < span.end and (chunk := self.next_of(job_id, span, at)) is not None:
                found.append(chunk)
                at = chunk.offset + len(chunk.data)
        return tuple(found)

    def piece(self, file: LogFile, since: int) -> LogChunk | None:
        """Return a stream's next piece from an offset, of bounded size; None if there is none.

        The piece begins later if the output at the offset is not kept any more.
        """
        since = max(since, file.start)
        try:
            with self._lock, file.path.open("rb") as handle:
                handle.seek(since - file.start)
                data = handle.read(PIECE_BYTES)
        except FileNotFoundError:
            return None  # its older half was dropped meanwhile; the next read finds the rest
        return file.chunk(since, data) if data else None

    def marks(self, job_id: str, attempt: int) -> dict[tuple[str, str], bool]:
        """Return whether the end mark has come, by (node, stream), for agents that send marks."""
        found: dict[tuple[str, str], bool] = {}
        for name in _names(self._folder_of(job_id) / str(attempt)):
            if marked := _MARK.fullmatch(name):
                key = marked[1], marked[2]
                found[key] = found.get(key, False) or marked[3] == _END
        return found

    def attempts(self, job_id: str) -> list[int]:
        """Return the attempts with stored output, ascending."""
        folder = self._folder_of(job_id)
        return sorted(int(path.name) for path in _entries(folder) if path.name.isdecimal())

    def files(self, job_id: str, *, attempt: int | None, stream: str) -> list[LogFile]:
        """Return the files of an attempt, by default the newest, by node and stream."""
        folder = self._folder_of(job_id)
        if attempt is None:
            attempt = max(self.attempts(job_id), default=0)
        found = []
        for path in sorted(_entries(folder / str(attempt))):
            node, _, rest = path.name.rpartition("@")
            kind, _, start = rest.partition(".")
            if kind in STREAMS and stream in {kind, "both"}:
                found.append(
                    LogFile(path=path, attempt=attempt, node=node, stream=kind, start=int(start))
                )
        return found

    def forget(self, job_id: str) -> None:
        """Drop a job's output."""
        shutil.rmtree(self._folder_of(job_id), ignore_errors=True)

    def jobs(self) -> Iterator[str]:
        """Yield the ids of the jobs that have output."""
        for shelf in _entries(self._folder):
            for folder in _entries(shelf):
                yield folder.name

    def _folder_of(self, job_id: str) -> Path:
        """Return a job's folder; on one of many shelves, since folders of 100,000 are slow."""
        return self._folder / _safe(job_id)[-2:] / job_id

    def _find(self, folder: Path, attempt: int, node: str, stream: str) -> LogFile | None:
        for path in _entries(folder):
            if path.name.startswith(f"{_safe(node)}@{stream}."):
                start = int(path.name.rpartition(".")[2])
                return LogFile(path=path, attempt=attempt, node=node, stream=stream, start=start)
        return None

    @staticmethod
    def _new(folder: Path, attempt: int, node: str, stream: str, start: int) -> LogFile:
        if stream not in STREAMS:
            raise InputError(f"log stream is {stream!r}; it must be one of {', '.join(STREAMS)}")
        path = folder / f"{_safe(node)}@{stream}.{start}"
        path.touch(mode=0o600)
        return LogFile(path=path, attempt=attempt, node=node, stream=stream, start=start)

    def _drop_half(self, file: LogFile, folder: Path) -> None:
        with file.path.open("rb") as handle:
            handle.seek(-self._most_bytes, 2)
            kept = handle.read()
        start = file.end - len(kept)
        fresh = folder / f".{file.node}@{file.stream}"
        fresh.write_bytes(kept)
        fresh.rename(folder / f"{file.node}@{file.stream}.{start}")
        file.path.unlink()


def _mark(folder: Path, node: str, stream: str, what: str) -> None:
    (folder / f".{node}@{stream}.{what}").touch(mode=0o600)
    if what == _END:
        (folder / f".{node}@{stream}.{_OPEN}").unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    return [folder / name for name in _names(folder) if not name.startswith(".")]


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _safe(name: str) -> str:
    if not _SAFE.fullmatch(name):
        raise InputError(f"{name!r} cannot name a log; letters, digits, '.', '_' and '-' can")
    return name
