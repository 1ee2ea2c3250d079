"""Packing a folder of code for ``--upload``: the same files give the same bytes."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from scheduler.archive import MOST_ENTRIES, MOST_UNPACKED_BYTES
from scheduler.errors import InputError
from scheduler.unreadable import why_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: File in the folder with further patterns, one a line.
IGNORE_FILE: Final = ".leaseholdignore"
#: Patterns left out of every upload: large and not code of the user.
ALWAYS: Final = (
    *(".git", ".hg", ".svn", "__pycache__", "*.pyc", ".venv", "venv", "node_modules"),
    *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints", ".DS_Store"),
)


def pack(folder: Path, exclude: Sequence[str] = ()) -> bytes:
    """Pack a folder.

    A pattern with a slash is compared with the path within the folder, another one with each name.
    ``*`` stands for any text, as in ``fnmatch``. An excluded folder excludes its content.

    Args:
        folder: its files are packed, without times and owners.
        exclude: patterns besides those of ``IGNORE_FILE`` and ``ALWAYS``.

    Raises:
        InputError: it is not a folder, is unreadable, too large, or holds an unusable file.
    """
    if not folder.is_dir():
        raise InputError(f"--upload: {folder} is no folder; name one with -C")
    patterns = [*ALWAYS, *_ignored(folder), *(text.strip().strip("/") for text in exclude)]
    packed, size = io.BytesIO(), 0
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for count, path in enumerate(_taken(folder, folder, patterns), 1):
            size += _add(tar, path, path.relative_to(folder).as_posix(), top=folder)
            if count > MOST_ENTRIES or size > MOST_UNPACKED_BYTES:
                raise InputError(
                    f"--upload: {folder} holds more than {MOST_ENTRIES} files and folders, or "
                    f"{MOST_UNPACKED_BYTES // 2**20} MiB; leave some out with --exclude or "
                    f"{IGNORE_FILE}"
                )
    return packed.getvalue()


def _ignored(folder: Path) -> list[str]:
    try:
        lines = (folder / IGNORE_FILE).read_text().splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        why = why_unreadable(error)
        raise InputError(f"{folder / IGNORE_FILE} cannot be read: {why}") from error
    words = (line.strip().strip("/") for line in lines)
    return [word for word in words if word and not word.startswith("#")]


def _taken(folder: Path, top: Path, patterns: Sequence[str]) -> Iterator[Path]:
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"--upload: {folder} cannot be read: {error.strerror}") from error
    for path in paths:
        whole = path.relative_to(top).as_posix()
        if any(fnmatchcase(whole if "/" in one else path.name, one) for one in patterns):
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _taken(path, top, patterns)


def _add(tar: tarfile.TarFile, path: Path, name: str, *, top: Path) -> int:
    """Add a file or folder and return its size; a link to a file within counts as that file."""
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(top.resolve()) or (path.is_symlink() and real.is_dir()):
            raise InputError(
                f"--upload: {path} is a link out of the folder, or to a folder; leave it out with "
                f"--exclude {name}"
            )
        info = tarfile.TarInfo(name)
        status = os.stat(real)  # noqa: PTH116 - of the file read below
        if stat.S_ISDIR(status.st_mode):
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
            return 0
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"--upload: {path} is no plain file; leave it out: --exclude {name}")
        info.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        if status.st_size > MOST_UNPACKED_BYTES:
            raise InputError(f"--upload: {path} is too large; leave it out: --exclude {name}")
        content = real.read_bytes()
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    except (OSError, UnicodeEncodeError) as error:
        raise InputError(f"--upload: {path} cannot be read: {why_unreadable(error)}") from error
    return info.size
