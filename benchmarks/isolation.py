"""How many seconds it costs to launch a job under a user and in namespaces of its own.

Starts supervisors as the agent does, in turn with and without a cell, and takes the time from
there to the first thing that the job does. Needs root and bubblewrap.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import agent.process.supervisor
from agent.process.cells.confinement import Confinement, find_confinement
from agent.process.lease_files import LeaseFolder
from scheduler.protocol.desired import DesiredLease

UID = 1_900_000_000


def launch(state_dir: Path, number: int, confinement: Confinement | None) -> tuple[float, float]:
    """Return the seconds until a job begins, and those of processors that its lease takes in all.

    Args:
        state_dir: as of an agent.
        number: of the lease.
        confinement: how it is kept apart; None: not at all.
    """
    lease = DesiredLease(
        lease_id=number, attempt=1, token=number, job_id="j", command=("/bin/date", "+%s.%N"),
        working_dir="/", workers=(0,), remaining_s=60.0, uid=UID, owner="o", project="p",
    )  # fmt: skip
    folder = LeaseFolder(state_dir / "leases" / str(number))
    folder.path.mkdir(parents=True)
    began_s, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    log = str(folder.path / "stdout")
    told: dict[str, object] = {
        "command": list(lease.command),
        "cwd": lease.working_dir,
        "checkpoint_dir": None,
        "processes": [{"env": {}, "stdout": log, "stderr": log}],
        "log_bytes": 1 << 20,
        "log_backups": 1,
    }
    if confinement is not None:
        confinement.furnish(folder.path, UID, socket="jobs.sock")
        told["cell"] = confinement.cell(lease, folder.path, ("/dev/nvidia0",))
    orders = {"deadline_s": time.clock_gettime(time.CLOCK_BOOTTIME) + 60, "grace_s": 1}
    folder.write("control.json", orders | {"margin_s": 1, "terminate": False, "kill": False})
    folder.write("launch.json", told)
    lock = folder.open_lock()
    assert lock is not None
    program = [sys.executable, "-I", "-S", agent.process.supervisor.__file__]
    subprocess.run([*program, str(folder.path), str(lock)], pass_fds=(lock,), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    ending = json.loads((folder.path / "exit.json").read_text())
    assert ending["code"] == 0, ending
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(Path(log).read_text()) - began_s, spent_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=100, help="of each kind")
    parser.add_argument("--json", action="store_true", help="print an object instead of a table")
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {"off": [], "on": []}
    with tempfile.TemporaryDirectory() as name:
        state_dir = Path(name)
        confinement = find_confinement("required", state_dir)
        assert confinement is not None
        confinement.door.mkdir()
        for number in range(1, 2 * options.launches, 2):
            found["off"].append(launch(state_dir, number, None))
            found["on"].append(launch(state_dir, number + 1, confinement))
    figures = {
        kind: {
            name: {"median": statistics.median(values), "p95": sorted(values)[-len(values) // 20]}
            for name, values in (
                ("until_it_runs_s", [until_s for until_s, _ in runs]),
                ("cpu_s", [cpu_s for _, cpu_s in runs]),
            )
        }
        for kind, runs in found.items()
    }
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    print(
        f"{'isolation':<10}{'until it runs, ms':>20}{'p95':>8}{'cpu ms of a lease':>20}{'p95':>8}"
    )
    for kind, names in figures.items():
        cells = [f"{1000 * one[k]:.1f}" for one in names.values() for k in ("median", "p95")]
        print(f"{kind:<10}{cells[0]:>20}{cells[1]:>8}{cells[2]:>20}{cells[3]:>8}")


if __name__ == "__main__":
    main()
