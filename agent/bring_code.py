"""Runs before a job in its pod: fetches the job's code and unpacks it.

The node's agent gets the code from the scheduler, for this lease alone. It sends the code to a
connection that shows the lease's secret. The received tree is checked as by any agent, and is
accepted only if it has the lease's hash. Runs as the job's user, in a container of its own that
ends before the job begins. See docs/adr/0022.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final

from agent.guard import Term, ask
from scheduler.archive import digest_of, unpack_tree
from scheduler.errors import InputError

#: Exit codes: the code is not usable; it did not arrive before the lease was over.
UNUSABLE: Final = 65
LATE: Final = 75
#: Longest line of the agent, longest silence of it, and first and longest wait between two tries.
_LINE_BYTES, _SILENT_MOST_S, _LEAST_S, _MOST_S = 4096, 60.0, 0.25, 5.0


def fetch(endpoint: str, secret: str) -> bytes:
    """Return the code of a lease.

    Args:
        endpoint: of the agent, ``tcp://host:port``.
        secret: of the lease.

    Raises:
        OSError: the agent does not answer, or has no code to give now; the message says why.
    """
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    question = json.dumps({"secret": secret, "code": True}).encode() + b"\n"
    try:
        address = (host.strip("[]"), int(port))
        with (
            socket.create_connection(address, timeout=_SILENT_MOST_S) as connection,
            connection.makefile("rb") as answers,
        ):
            connection.sendall(question)
            while True:
                answer = json.loads(answers.readline(_LINE_BYTES))
                if "error" in answer:
                    raise OSError(str(answer["error"]))
                if "code_bytes" in answer:  # else it is a notice
                    size = int(answer["code_bytes"])
                    archive = answers.read(size)
                    if len(archive) < size:
                        raise OSError("the agent went away")
                    return archive
    except (ValueError, TypeError, KeyError) as error:
        raise OSError(f"the agent's answer makes no sense: {error}") from error


def unpack_code(archive: bytes, digest: str, folder: Path) -> None:
    """Unpack code into a folder, with the user's permissions for its group too.

    Args:
        archive: the tree.
        digest: its hash, from the lease.
        folder: the folder; files of an earlier try are removed.

    Raises:
        InputError: it is another tree, or cannot be used.
        OSError: the disk is full, say.
    """
    if digest_of(archive) != digest:
        raise InputError(f"the agent sent another tree than {digest}")
    for left in folder.iterdir():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()
    unpack_tree(archive, folder)
    for above, folders, files in os.walk(folder):
        for path in (Path(above, name) for name in (*folders, *files)):
            mode = path.stat().st_mode
            path.chmod(mode | (mode & 0o700) >> 3)


def main() -> int:
    """Bring the code: the hash and the folder are the arguments."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(LATE))
    digest, folder = sys.argv[1], Path(sys.argv[2])
    at = os.environ["LEASEHOLD_ENDPOINT"], os.environ["LEASEHOLD_SECRET"]
    term, wait_s, why = Term(float(os.environ["LEASEHOLD_DEADLINE_S"])), _LEAST_S, ""
    # The variable is from when the pod was made; the lease may have been renewed since.
    term.deadline_s = ask(*at) or term.deadline_s
    while term.holds():
        try:
            unpack_code(fetch(*at), digest, folder)
        except InputError as error:
            print(f"its uploaded code cannot be used: {error}", file=sys.stderr)
            return UNUSABLE
        except OSError as error:
            if str(error) != why:
                why = str(error)
                print(
                    f"its uploaded code cannot be fetched yet: {why}", file=sys.stderr, flush=True
                )
        else:
            return 0
        term.deadline_s = ask(*at) or term.deadline_s
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _MOST_S)
    with contextlib.suppress(OSError):
        print("its uploaded code was not brought before the lease was over", file=sys.stderr)
    return LATE


if __name__ == "__main__":
    sys.exit(main())
