"""Trees of code that people upload: what one may be, and how it is unpacked.

A tree is a tar file of folders and regular files, compressed by gzip. Its author is not trusted:
the scheduler checks it before storing it, and an agent again before unpacking it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import zlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Files and folders of a tree, bytes of its files, and characters of a name.
MOST_ENTRIES: Final = 10_000
MOST_UNPACKED_BYTES: Final = 64 * 2**20
LONGEST_NAME: Final = 1000
#: Bytes of one part of it: what Linux takes.
LONGEST_PART: Final = 255
#: What tar may add to each entry: its head, what a long name takes, and the rest of a block.
_HEAD_BYTES: Final = 4096
#: Most bytes of metadata of one entry; they are read into memory as a whole.
_MOST_TOLD_BYTES: Final = 65_536


def digest_of(archive: bytes) -> str:
    """Return the hash by which a tree is known, hexadecimal SHA-256."""
    return hashlib.sha256(archive).hexdigest()


def check_tree(archive: bytes) -> None:
    """Look through a tree.

    Raises:
        InputError: it cannot be read, is too large, or has an entry that is neither a file nor a
            folder, or lies outside.
    """
    for _ in _entries(archive):
        pass


def unpack_tree(archive: bytes, folder: Path) -> None:
    """Unpack a tree that was looked through.

    Args:
        archive: the tree.
        folder: new; no other process may write there meanwhile.

    Raises:
        InputError: as ``check_tree``.
        OSError: the disk is full, say.
    """
    check_tree(archive)
    for tar, member in _entries(archive):  # each within the folder, in which there are no links
        path = folder / member.name
        content = tar.extractfile(member)
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            shutil.copyfileobj(content, file)
        path.chmod(_mode(member))


def _entries(archive: bytes) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yield what a tree holds, each entry checked; links and devices never come out of here."""
    files: set[PurePosixPath] = set()
    folders: set[PurePosixPath] = set()
    unpacked = 0
    try:
        with (
            gzip.GzipFile(fileobj=io.BytesIO(archive)) as packed,
            tarfile.open(  # type: ignore[call-overload]
                fileobj=_Bounded(packed), mode="r|", tarinfo=_Head
            ) as tar,
        ):
            for count, member in enumerate(tar, 1):
                path = _checked_path(member)
                unpacked += member.size
                if path in files or (member.isreg() and path in folders):
                    raise InputError(f"the upload has '{path}' twice")
                above = path.parent
                while above != PurePosixPath() and above not in folders:
                    if above in files:
                        raise InputError(f"the upload has '{above}' twice")
                    folders.add(above)
                    above = above.parent
                (files if member.isreg() else folders).add(path)
                entries = max(count, len(files) + len(folders))
                if entries > MOST_ENTRIES or unpacked > MOST_UNPACKED_BYTES:
                    raise InputError(_TOO_LARGE)
                yield tar, member
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise InputError(f"the upload is no tar file that gzip has compressed: {error}") from error
    except RecursionError as error:  # heads upon heads
        raise InputError(
            "the upload is an unreadable tar file: its headers nest too deep; pack it again"
        ) from error


def _mode(member: tarfile.TarInfo) -> int:
    """Return a file's rights: others write nothing, and execute no more than its owner."""
    mode = member.mode & 0o755 | 0o600
    return mode if mode & 0o100 else mode & ~0o111


_TOO_LARGE: Final = (
    f"the upload unpacks to more than {MOST_UNPACKED_BYTES} bytes, or {MOST_ENTRIES} files and "
    "folders; leave data and environments out"
)


def _checked_path(member: tarfile.TarInfo) -> PurePosixPath:
    path = PurePosixPath(member.name)
    shown = member.name[:200]
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise InputError(f"'{shown}' in the upload is neither a plain file nor a folder")
    if path.is_absolute() or ".." in path.parts or "\0" in member.name:
        raise InputError(f"'{shown}' in the upload lies outside of its folder")
    if member.isreg() and path == PurePosixPath():
        raise InputError(f"'{shown}' in the upload is a file without a name")
    if any(len(os.fsencode(part)) > LONGEST_PART for part in path.parts):
        raise InputError(f"'{shown}' in the upload has a name of more than {LONGEST_PART} bytes")
    if len(member.name) > LONGEST_NAME:
        raise InputError(f"'{shown}...' in the upload is longer than {LONGEST_NAME} characters")
    return path


#: Kinds of entries with metadata of the next entry, or of all entries.
_TELLING: Final = frozenset(
    {
        *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
        *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    }
)
_LONG_HEAD: Final = (
    f"the upload has more than {_MOST_TOLD_BYTES} bytes of metadata for a file; pack it "
    "with leasehold or GNU tar"
)


class _Head(tarfile.TarInfo):
    """The head of an entry with bounded metadata, since the metadata is read into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Head:
        """Return the head that a block holds.

        Raises:
            InputError: its metadata of the next entry is too long.
        """
        head = super().frombuf(buf, encoding, errors)
        if head.type in _TELLING and head.size > _MOST_TOLD_BYTES:
            raise InputError(_LONG_HEAD)
        return head


class _Bounded:
    """A stream that ends with an error if it is longer than the largest tree allowed."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream
        self._left = MOST_UNPACKED_BYTES + MOST_ENTRIES * _HEAD_BYTES

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise InputError(_TOO_LARGE)
        return data
