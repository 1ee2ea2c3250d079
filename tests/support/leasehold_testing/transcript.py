"""The actions of a decider, as lines of text that people can read and files can keep."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from scheduler.domain.facts import commands as do

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

#: ``LEASEHOLD_GOLDEN=write`` rewrites golden files; check the difference before you keep it.
WRITE = "LEASEHOLD_GOLDEN"


def transcript(commands: Iterable[do.Command]) -> list[str]:
    """Return a line for each command.

    Figures have six digits, so that processors that differ in the last bits write the same.
    """
    return [_line(command) for command in commands]


def fields(data: Mapping[str, object]) -> str:
    """Return ``name=value`` for each entry, in order of the names."""
    return " ".join(f"{name}={_value(data[name])}" for name in sorted(data))


def check_golden(path: Path, lines: list[str]) -> None:
    """Compare lines with a golden file, or write it if the environment asks for that.

    Raises:
        AssertionError: a line differs; it names the first one.
    """
    if os.environ.get(WRITE) == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    expected = path.read_text(encoding="utf-8").splitlines()
    for number, (one, other) in enumerate(zip(lines, expected, strict=False), start=1):
        assert one == other, f"{path.name}:{number}"
    assert len(lines) == len(expected), f"{path.name} has {len(expected)} lines, not {len(lines)}"


def _line(command: do.Command) -> str:
    match command:
        case do.ComputeAllocation():
            jobs = len(command.problem.job_number)
            return f"compute generation={command.generation} jobs={jobs}"
        case do.GrantLease(lease=lease):
            workers = ",".join(map(str, lease.workers))
            until = _value(lease.deadline_s)
            return f"grant {lease.lease_id} job={lease.job_id} workers={workers} until={until}"
        case do.ExtendLeases():
            ids = ",".join(map(str, command.lease_ids.tolist()))
            return f"extend {ids} until={_value(command.deadline_s)}"
        case do.RevokeLease():
            by = _value(command.by_s)
            return f"revoke {command.lease_id} by={by} reason={command.reason}"
        case do.SetTimer():
            return f"timer {command.timer} at={_value(command.at_s)}"
        case do.RecordEvent():
            return (
                f"record {command.kind} {command.subject} at={_value(command.at_s)} "
                f"{fields(command.data)}"
            ).rstrip()


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
