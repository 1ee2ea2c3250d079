"""Becomes a process of a running job, and runs a command there. Standard library only.

Run as a script: ``python -I -S inside.py SPEC_FD``. It takes what it joins from the kernel, by one
of the job's own processes: namespaces and environment, including secret variables, which lie in no
file. As root's process it joins the control groups first; as the job's user it searches for the
command. The command is in the job's cell and ends with it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
#: Shells' exit codes for a command that cannot be run, or cannot be found.
NOT_RUN, NOT_FOUND = 126, 127


def main(spec: dict[str, Any]) -> int:
    """Run the command; the exit code is its own, or 128 and the number of a signal."""
    sys.path.append(str(Path(__file__).parents[2]))  # run with -I -S, Python finds no packages
    from agent.process.cells.cell import Cell  # noqa: PLC0415 - found only now
    from agent.process.inheritance import become_plain  # noqa: PLC0415 - found only now
    from agent.process.supervisor import start_ticks  # noqa: PLC0415 - found only now

    leader, ticks = spec["leader"], spec["ticks"]
    environment = dict(
        pair.split("=", 1)
        for pair in os.fsdecode(Path(f"/proc/{leader}/environ").read_bytes()).split("\0")
        if "=" in pair
    )
    cell = None
    if spec["cell"] is not None:
        cell = Cell.of(spec["cell"])
        cell.find(leader)
    if start_ticks(leader) != ticks:
        sys.stderr.write("leasehold: the job's process has ended\n")
        return NOT_RUN
    for folder in spec["groups"]:
        Path(folder, "cgroup.procs").write_text("0")
    if cell is None:
        pid = os.fork()
    else:
        with cell.bearing():
            pid = os.fork()
            if pid == 0:
                become_plain(own_user=True)
                _become(spec, cell, environment)
    if pid == 0:
        become_plain(own_user=False)
        _become(spec, None, environment)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.kill(pid, signal.SIGKILL))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _become(spec: dict[str, Any], cell: Any, environment: dict[str, str]) -> None:
    """Run the command in place of this process."""
    code = NOT_RUN
    try:
        os.setsid()
        if cell is None:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.chdir(spec["cwd"])
        else:
            cell.enter(spec["cwd"])
        os.execvpe(spec["command"][0], spec["command"], environment)  # noqa: S606 - as asked
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        code, why = _not_begun(spec["command"][0], environment, error)
        os.write(2, f"leasehold: {spec['command'][0]}: {why}\n".encode())
    except BaseException as error:  # noqa: BLE001 - our code must not run on as the job
        os.write(2, f"leasehold: {spec['command'][0]}: {error}\n".encode())
    finally:
        os._exit(code)


def _not_begun(program: str, environment: dict[str, str], error: OSError) -> tuple[int, str]:
    """Return the exit code and the message for a program that could not be run.

    If a folder of PATH cannot be entered by the job's user, or is no folder, ``execvpe`` reports
    that, while shells report that the program was not found.
    """
    missing = isinstance(error, FileNotFoundError)
    if not missing and "/" not in program:
        missing = not any(
            os.path.exists(os.path.join(folder, program))  # noqa: PTH110, PTH118 - as execvpe
            for folder in os.get_exec_path(environment)
        )
    if missing:
        return NOT_FOUND, os.strerror(errno.ENOENT)
    return NOT_RUN, error.strerror or str(error)


if __name__ == "__main__":
    os.setpgid(0, 0)
    with open(int(sys.argv[1]), "rb") as given:  # noqa: PTH123 - of a descriptor
        told = json.loads(given.read())
    sys.exit(main(told))
