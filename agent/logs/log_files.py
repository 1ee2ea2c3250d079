"""Reading a lease's output by its offset since the lease began, over the rotation of its files.

The supervisor writes ``stdout.0.log`` and moves it aside to ``.1``, ``.2`` and so on. Before a file
is moved for the first time, and after each move, the supervisor stores in ``.stdout.0.log.index``
the offset at which each file begins, by inode. Names change while a reader reads, inodes do not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.logs.job_output import SPOILT, NotRegularError, open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: The streams of a lease by the scheduler's names, and the prefixes of their files.
STREAMS = {"out": "stdout", "err": "stderr"}

#: The longest index.
INDEX_BYTES = 65536
#: The longest nonce.
NONCE_BYTES = 256

#: The mark, in a lease's folder of logs, that the scheduler has all of it.
SENT = ".sent"
#: The file, in the same folder, with the nonce of the lease.
NONCE = ".nonce"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """Bytes of a stream.

    Attributes:
        offset: bytes of the stream before it; later than asked for if older output is no longer
            kept.
        data: empty if nothing follows yet.
    """

    offset: int
    data: bytes


def make_log_folder(logs_dir: Path, lease_id: int, nonce: str) -> None:
    """Create the folder of a lease's output; that of another lease of its number is emptied.

    Args:
        logs_dir: a folder per lease.
        lease_id: the lease.
        nonce: of the lease; empty if the scheduler sends none.

    Raises:
        OSError: it cannot be created.
    """
    folder = logs_dir / str(lease_id)
    if folder.exists() and nonce and nonce_in(folder) != nonce:
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True, mode=0o700)
    if nonce:
        (folder / NONCE).write_text(nonce)


def nonce_in(folder: Path) -> str:
    """Return the nonce of the lease with output in a folder; empty if it was not stored."""
    try:
        return read_regular(folder / NONCE, NONCE_BYTES).decode()
    except SPOILT:
        return ""


def stream_file(folder: Path, stream: str) -> Path | None:
    """Return the file that holds a lease's stream; None while nothing was written.

    If several processes run on this node it is their common file of lines.

    Args:
        folder: the lease's folder of logs.
        stream: ``out`` or ``err``.
    """
    together = folder / f"{STREAMS[stream]}.log"
    if together.exists():
        return together
    alone = sorted(p for p in folder.glob(f"{STREAMS[stream]}.*.log"))
    return alone[0] if alone else None


def read_piece(path: Path, offset: int, most_bytes: int) -> LogPiece:
    """Return up to ``most_bytes`` from ``offset`` on.

    Output counts as gone only after two passes with the same index, since the files may be moved
    meanwhile.

    Args:
        path: of the stream's newest file.
        offset: bytes of the stream to leave out.
        most_bytes: the most bytes to return.
    """
    piece = LogPiece(offset=offset, data=b"")
    for _ in range(3):
        before = _index(path)
        piece = _read(path, before, offset, most_bytes)
        if piece.offset == offset or _index(path) == before:
            break
    return piece


def end_of(path: Path) -> int | None:
    """Return the length of a stream so far; None if it is not known at the moment.

    Args:
        path: of the stream's newest file.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    index = _index(path)
    start = index.get(status.st_ino) if index else 0
    return None if start is None else start + status.st_size


def _read(path: Path, index: Mapping[int, int], offset: int, most_bytes: int) -> LogPiece:
    later: tuple[int, Path] | None = None
    for file in _files(path):
        try:
            with open_regular(file) as opened:
                status = os.fstat(opened.fileno())
                start = index.get(status.st_ino) if index else 0
                if start is None:
                    continue  # just begun: the index names it in a moment
                if start <= offset < start + status.st_size:
                    opened.seek(offset - start)
                    return LogPiece(offset=offset, data=opened.read(most_bytes))
        except (FileNotFoundError, NotRegularError):
            continue  # just moved: found under its new name by the next pass; or put by the job
        if start > offset and status.st_size and (later is None or start < later[0]):
            later = (start, file)
    if later is None:
        return LogPiece(offset=offset, data=b"")
    return LogPiece(offset=later[0], data=b"")


def _files(path: Path) -> list[Path]:
    """Return the stream's files, newest first."""
    older = re.compile(re.escape(path.name) + r"\.(\d+)")
    matches = ((older.fullmatch(p.name), p) for p in path.parent.glob(f"{path.name}.*"))
    return [path, *(p for _, p in sorted((int(m[1]), p) for m, p in matches if m))]


def _index(path: Path) -> dict[int, int]:
    """Return the start of each file, by inode; empty before the first rotation."""
    try:
        data = json.loads(read_regular(path.with_name(f".{path.name}.index"), INDEX_BYTES))
        return {int(inode): int(start) for inode, start in data.items()}
    except (*SPOILT, AttributeError):
        return {}
