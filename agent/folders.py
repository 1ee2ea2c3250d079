"""State folders: closed to other users, and distinguished from copies."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from pathlib import Path

_log = logging.getLogger("leasehold.state")

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def private_folder(path: Path, *, marker: str) -> None:
    """Create a folder that only its owner can enter, or restrict an existing one of ours.

    People create folders by hand, with the usual mode. A folder that holds other files keeps its
    mode, with a warning.

    Args:
        path: the folder.
        marker: a file in it that shows that it is ours.

    Raises:
        OSError: it cannot be created.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = path.stat()
    mode = status.st_mode
    # A volume that was given to our group is not ours to close.
    if not mode & _OTHERS or status.st_uid != os.geteuid():
        return
    try:
        if (path / marker).exists() or not any(path.iterdir()):
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
            return
        why = "it holds other things"
    except OSError as error:
        why = str(error.strerror)
    _log.warning(
        "others can enter %s, which holds secrets, and its mode was left as it is: %s; "
        "run `chmod go= %s` unless others need it",
        path,
        why,
        path,
    )


def boot_id() -> str:
    """Return the kernel's id of the current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def place_of(lock: Path) -> str:
    """Return MACHINE/BOOT/FOLDER of a folder, from the file that its user locks.

    Two processes that run at once never share a place, unless one is a snapshot of a whole machine:
    a copy of the folder has another lock file, and another machine has another boot.
    """
    if not lock.exists():
        lock.touch(mode=0o600)
    boot, status = boot_id(), lock.stat()
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = ""
    # machine-id(5) says that the id itself must not be exposed.
    digest = hashlib.sha256(f"leasehold {machine or boot}".encode()).hexdigest()
    return f"{digest[:16]}/{boot}/{status.st_dev:x}-{status.st_ino:x}"
