"""The output of jobs, as agents send it: one file per attempt, node and stream."""

from __future__ import annotations

import re
import shutil
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.errors import InputError
from scheduler.runtime.protocol import LogChunk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STREAMS = ("out", "err")
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
#: Bytes that are read from a file at once.
PIECE_BYTES = 256 * 2**10


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One stream of one attempt on one node.

    Attributes:
        path: the file; its first byte is the stream's byte ``start``.
        attempt: of the job.
        node: where it was written.
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
        """Offset behind the last byte."""
        return self.start + self.path.stat().st_size


class LogBook:
    """Keeps output, the newest ``most_bytes`` of each stream.

    Args:
        folder: where; made when needed.
        most_bytes: of a stream on a node in an attempt; when twice that is reached the older half
            is dropped.
    """

    def __init__(self, folder: Path, *, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._lock = threading.Lock()

    def append(
        self, job_id: str, attempt: int, node: str, stream: str, *, offset: int, data: bytes
    ) -> int:
        """Store a piece; returns the offset to go on from.

        A piece that begins before what is stored is cut, one that begins behind it is dropped,
        unless nothing is stored: then the beginning is gone for good.

        Raises:
            InputError: a name cannot be that of a file.
        """
        folder = self._folder_of(job_id) / str(attempt)
        with self._lock:
            file = self._find(folder, attempt, node, stream)
            if file is None:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                file = self._new(folder, attempt, node, stream, offset)
            end = file.end
            if offset > end:
                return end
            fresh = data[end - offset :]
            if fresh:
                with file.path.open("ab") as handle:
                    handle.write(fresh)
            end += len(fresh)
            if end - file.start > 2 * self._most_bytes:
                self._drop_half(file, folder)
            return end

    def read(
        self, job_id: str, *, attempt: int | None, stream: str, tail_bytes: int | None
    ) -> tuple[LogChunk, ...]:
        """Return what is stored, of the newest attempt unless told; ``stream`` may be ``both``."""
        while True:
            files = self.files(job_id, attempt=attempt, stream=stream)
            try:
                return tuple(
                    _chunk(file, offset, data)
                    for file in files
                    for offset, data in _read(file, tail_bytes)
                )
            except FileNotFoundError:
                continue  # its older half was dropped meanwhile; the rest has another name

    def read_on(
        self, job_id: str, *, attempt: int | None, stream: str, seen: dict[str, int]
    ) -> list[LogChunk]:
        """Return what has come since ``seen`` (path -> offset), and bring that up to date."""
        chunks = []
        for file in self._since(job_id, attempt=attempt, stream=stream, seen=seen):
            key = f"{file.attempt}/{file.node}/{file.stream}"
            since = max(seen.get(key, 0), file.start)
            try:
                with self._lock, file.path.open("rb") as handle:
                    handle.seek(since - file.start)
                    data = handle.read(PIECE_BYTES)
            except FileNotFoundError:
                continue  # its older half was dropped meanwhile; the next look finds the rest
            if data:
                chunks.append(_chunk(file, since, data))
            seen[key] = since + len(data)
        return chunks

    def _since(
        self, job_id: str, *, attempt: int | None, stream: str, seen: dict[str, int]
    ) -> list[LogFile]:
        """Return the files to read on; the tail of an attempt comes before the next attempt."""
        if attempt is not None:
            return self.files(job_id, attempt=attempt, stream=stream)
        begun = [int(key.partition("/")[0]) for key in seen]
        there = self._attempts(job_id)
        newest = there[-1:] if not begun else [number for number in there if number >= max(begun)]
        return [
            file for number in newest for file in self.files(job_id, attempt=number, stream=stream)
        ]

    def _attempts(self, job_id: str) -> list[int]:
        folder = self._folder_of(job_id)
        return sorted(int(path.name) for path in _entries(folder) if path.name.isdecimal())

    def files(self, job_id: str, *, attempt: int | None, stream: str) -> list[LogFile]:
        """Return the files of an attempt, by node and stream; of the newest one unless told."""
        folder = self._folder_of(job_id)
        if attempt is None:
            attempt = max(self._attempts(job_id), default=0)
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


def _chunk(file: LogFile, offset: int, data: bytes) -> LogChunk:
    return LogChunk(
        stream=file.stream,
        node=file.node,
        attempt=file.attempt,
        offset=offset,
        data=data,
        kept_from=file.start,
    )


def _read(file: LogFile, tail_bytes: int | None) -> Iterator[tuple[int, bytes]]:
    with file.path.open("rb") as handle:
        size = handle.seek(0, 2)
        at = 0 if tail_bytes is None else max(size - tail_bytes, 0)
        handle.seek(at)
        while data := handle.read(PIECE_BYTES):
            yield file.start + at, data
            at += len(data)


def _entries(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _safe(name: str) -> str:
    if not _SAFE.fullmatch(name):
        raise InputError(f"{name!r} cannot name a log; letters, digits, '.', '_' and '-' can")
    return name
