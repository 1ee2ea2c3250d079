"""Output that is written completely or not at all.

Files and folders are written under a temporary name beside their place, and renamed when they are
complete. So neither a crash nor a full disk leaves a partial one.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Lists the files that Leasehold wrote; a folder with other files is never replaced.
MANIFEST = "manifest.json"


@contextmanager
def staged_file(path: Path) -> Iterator[IO[str]]:
    """Yield a text file to write to; it replaces ``path`` if the block ends well.

    Raises:
        InputError: ``path`` is a folder, or its folder cannot be written to.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(_unwritable(path, error)) from error
    staged = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="") as file:
            yield file
        staged.chmod(0o666 & ~_umask())
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)


@contextmanager
def staged_directory(path: Path, *, kind: str) -> Iterator[Path]:
    """Yield an empty folder to write to; it replaces ``path`` if the block ends well.

    An empty folder at ``path`` is used, and one that an earlier run wrote is replaced.

    Args:
        path: the place of the output.
        kind: the kind of output, for the manifest: "simulation", "comparison".

    Raises:
        InputError: ``path`` is a file, holds anything that Leasehold did not write, or cannot be
            written.
    """
    path = path.absolute()
    check_replaceable(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not inside `path`: a rename is atomic only within one file system.
        staged = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise InputError(_unwritable(path, error)) from error
    try:
        yield staged
        _write_manifest(staged, kind, files=_files(staged))
        staged.chmod(0o777 & ~_umask())
        _put_in_place(staged, path)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def claim_directory(path: Path, *, kind: str) -> None:
    """Create a folder that several runs add to, or reuse one of the same kind.

    Raises:
        InputError: ``path`` is a file, holds anything else, or cannot be written.
    """
    if path.is_dir() and any(path.iterdir()) and _manifest(path).get("kind") != kind:
        raise InputError(
            f"{path} is not empty and holds no earlier {kind}; name a folder that is new or empty"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        _write_manifest(path, kind, files=())
    except OSError as error:
        raise InputError(_unwritable(path, error)) from error


def check_replaceable(path: Path) -> None:
    """Check that a folder can be written to ``path``, and destroys no other files.

    Raises:
        InputError: it cannot, or it would; the message names the file in the way.
    """
    place = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=place):  # a file system may be read-only, and root may all
            pass
    except OSError as error:
        raise InputError(_unwritable(path, error)) from error
    if not path.exists():
        return
    if not path.is_dir():
        raise InputError(f"{path} is a file; name a folder that is new or empty")
    present = _files(path)
    strange = sorted(present - _listed(path) - {MANIFEST})
    if strange:
        raise InputError(
            f"{path} holds {strange[0]}{_and_more(len(strange) - 1)}, which Leasehold did not "
            "write; name a folder that is new, empty, or an earlier result"
        )


def _and_more(count: int) -> str:
    return f" and {count} more" if count else ""


def _unwritable(path: Path, error: OSError) -> str:
    return f"cannot write {path}: {error.strerror}; name a place that can be written to"


def _files(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if not file.is_dir()}


def _listed(folder: Path) -> set[str]:
    """Return the files that the folder's manifest lists."""
    files = _manifest(folder).get("files")
    return set(files) if isinstance(files, list) else set()


def _manifest(folder: Path) -> dict[str, object]:
    """Return the folder's manifest; empty without one of Leasehold's."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    ours = isinstance(manifest, dict) and manifest.get("program") == "leasehold"
    return manifest if ours else {}


def _write_manifest(folder: Path, kind: str, *, files: Iterable[str]) -> None:
    manifest = {"program": "leasehold", "kind": kind, "format": 1, "files": sorted(files)}
    with staged_file(folder / MANIFEST) as file:
        file.write(json.dumps(manifest, indent=2) + "\n")


def _put_in_place(staged: Path, path: Path) -> None:
    """Rename; an earlier result is moved aside first, and back if the rename fails."""
    if not path.exists():
        staged.rename(path)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    path.replace(aside)  # onto the empty folder just made
    try:
        staged.rename(path)
    except OSError:
        aside.rename(path)
        raise
    shutil.rmtree(aside)


def _umask() -> int:
    """Return the process's umask; temporary files are private until they are in place."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
