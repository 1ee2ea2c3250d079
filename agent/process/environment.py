"""The environment of a job's processes: inherited variables, and those of the lease."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.domain.jobs.trace_ids import TRACEPARENT, traceparent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scheduler.protocol.desired import DesiredLease

#: The variables that a job inherits from the agent, which may hold credentials in others.
INHERITED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "LD_LIBRARY_PATH", "CUDA_HOME",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The files that a job shares with the agent.

    Attributes:
        folder: the lease's, which identifies its processes; see ``agent.process.remnants``.
        socket: of the local endpoint.
        told: the folder of the job's notice to leave.
        own: the folder of the job's steps.
        user: name of the job's user; empty: the agent's.
    """

    folder: Path
    socket: Path
    told: Path
    own: Path
    user: str = ""


def process_environment(
    lease: DesiredLease,
    position: int,
    *,
    devices: Mapping[str, str],
    places: Places,
    secret: str,
) -> dict[str, str]:
    """Return the environment of one process, without the job's secret variables.

    The result is written to a file; the secrets go to the supervisor through a pipe of memory.

    Args:
        lease: the lease that it runs under.
        position: of the process among those on this node.
        devices: the variables that show it its workers.
        places: the files that it shares with the agent.
        secret: the process identifies itself with it to the endpoint.
    """
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    if user := places.user:
        inherited |= {"HOME": "/tmp", "USER": user, "LOGNAME": user, "SHELL": "/bin/sh"}  # noqa: S108
        inherited.pop("TMPDIR", None)
    for name in lease.secret_env:
        inherited.pop(name, None)
    told = {
        "RANK": lease.rank + position,
        "WORLD_SIZE": lease.world_size,
        "LOCAL_RANK": lease.local_ranks[position],
        "LOCAL_WORLD_SIZE": len(lease.local_ranks),
        "MASTER_ADDR": lease.master_addr,
        "MASTER_PORT": lease.master_port,
        "LEASEHOLD_JOB_ID": lease.job_id,
        "LEASEHOLD_LEASE_ID": lease.lease_id,
        "LEASEHOLD_ATTEMPT": lease.attempt,
        "LEASEHOLD_FENCING_TOKEN": lease.token,
        "LEASEHOLD_STEPS_DONE": lease.steps_done,
        "LEASEHOLD_TOTAL_STEPS": lease.total_steps,
        "LEASEHOLD_CHECKPOINT_DIR": lease.checkpoint_dir,
        "LEASEHOLD_GRACE_S": lease.grace_s,
        "LEASEHOLD_PLAN": lease.plan or None,
        "LEASEHOLD_ENDPOINT": places.socket,
        "LEASEHOLD_SECRET": secret,
        "LEASEHOLD_NOTICE_FILE": places.told / "notice.json",
        "LEASEHOLD_PROGRESS_FILE": places.own / "progress.json",
        "LEASEHOLD_LEASE_FOLDER": places.folder,
    }
    plain = {name: str(value) for name, value in told.items() if value is not None}
    given = {"PYTHONUNBUFFERED": "1", TRACEPARENT: traceparent(lease.job_id, lease.attempt)}
    return given | inherited | dict(lease.env) | dict(devices) | plain
