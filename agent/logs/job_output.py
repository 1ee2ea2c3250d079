"""Files between agents, supervisors and jobs: read with care, replaced in one step, rotated.

Standard library only: a supervisor loads it.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

#: The bytes at the end of stderr that are searched for memory errors.
TAIL_BYTES = 8192
#: A longer line is cut in the common file of several processes.
LINE_BYTES = 4096
#: Errors of reading a file that a job may have overwritten.
SPOILT = (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError)
#: The longest file of the agent's orders.
ORDERS_BYTES = 65536


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replace a file in one step, so that no reader sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


class NotRegularError(OSError):
    """The path is not a regular file."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file, or one that a link leads to, for reading.

    A job may put a FIFO or a device in the place of a file that the agent reads. Only regular files
    are opened, and no open waits for a writer.

    Raises:
        NotRegularError: it is not a regular file.
        OSError: it cannot be opened.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # opening a device may have effects
        raise NotRegularError(f"{path} is {_kind(path)}, no regular file")
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = open(os.open(path, flags), "rb")  # noqa: PTH123, SIM115 - of a descriptor
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # exchanged meanwhile
        file.close()
        raise NotRegularError(f"{path} is no regular file")
    return file


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Return the first bytes of a regular file, a bounded number; see ``open_regular``."""
    with open_regular(path) as file:
        return file.read(most_bytes)


def _kind(path: Path) -> str:
    mode = path.stat().st_mode
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


@dataclass(kw_only=True)
class RotatedLog:
    """A file that moves aside when it is full: ``name``, then ``name.1`` to ``name.n`` (oldest).

    ``.name.index`` holds the offset since the beginning at which each file begins, by inode. It is
    written before the first move; see ``agent.logs.log_files``.
    """

    path: Path
    max_bytes: int
    backups: int
    file: BinaryIO | None = None
    size: int = 0
    start: int = 0  # offset of the open file since the beginning
    starts: dict[Path, int] = field(default_factory=dict)  # of the files that are kept

    def write(self, data: bytes) -> None:
        """Append; output that a full disk refuses is dropped, the job continues."""
        with contextlib.suppress(OSError):
            if self.file is not None and self.size + len(data) > self.max_bytes and self.size:
                self._rotate()
            if self.file is None:
                self.file = self._open()
                self.size = self.file.tell()
            self.size += self.file.write(data) or 0

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self.file is not None:
            self.file.close()
        self.file = None

    def recall(self) -> None:
        """Continue from an earlier writer's end, by the index that it has left."""
        index: dict[str, int] = {}
        with contextlib.suppress(*SPOILT):
            index = json.loads(read_regular(self._index_file(), ORDERS_BYTES))
        for path in self._kept():
            with contextlib.suppress(*SPOILT):
                self.starts[path] = int(index[str(path.stat().st_ino)])
        self.start = self.starts.get(self.path, 0)

    def _kept(self) -> list[Path]:
        return [self.path, *(Path(f"{self.path}.{n}") for n in range(1, self.backups + 1))]

    def _index_file(self) -> Path:
        return self.path.with_name(f".{self.path.name}.index")

    def _open(self) -> BinaryIO:
        """Open the file to append; never waits, even if a FIFO without a reader is in its place."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        return open(os.open(self.path, flags, 0o666), "ab", buffering=0)  # noqa: PTH123

    def _rotate(self) -> None:
        self.close()
        kept = self._kept()
        self.starts[self.path] = self.start
        self.starts.pop(kept[-1], None)
        self._write_index()  # without the dropped file: a new one may get its inode
        for older, newer in zip(kept[:0:-1], kept[-2::-1], strict=True):
            if newer in self.starts:
                newer.replace(older)
                self.starts[older] = self.starts.pop(newer)
        if not self.backups:
            self.path.unlink()
        self.start += self.size
        self.file, self.size = self._open(), 0
        self.starts[self.path] = self.start
        self._write_index()

    def _write_index(self) -> None:
        inodes = {str(path.stat().st_ino): start for path, start in self.starts.items()}
        write_json(self._index_file(), inodes)


@dataclass(kw_only=True)
class Stream:
    """One output of one process."""

    pipe: BinaryIO
    log: RotatedLog
    together: RotatedLog | None = None  # the common file of several processes
    prefix: bytes = b""  # of this process's lines there
    tail: bytes = b""
    line: bytes = b""  # an unfinished line, for ``together``

    def pump(self) -> bool:
        """Copy the available output; return False at the end of the stream."""
        try:
            data = os.read(self.pipe.fileno(), 65536)
        except BlockingIOError:
            return True
        if not data:
            self._bring_together(b"\n" if self.line else b"")
            return False
        self._bring_together(data)
        self.log.write(data)
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        return True

    def _bring_together(self, data: bytes) -> None:
        """Write whole lines, and pieces of overlong ones, to the common log of all processes."""
        if self.together is None:
            return
        *lines, self.line = (self.line + data).split(b"\n")
        if len(self.line) > LINE_BYTES:
            lines, self.line = [*lines, self.line], b""
        if lines:
            self.together.write(b"".join(self.prefix + line + b"\n" for line in lines))
