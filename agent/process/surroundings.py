"""The environment of a job's processes: what they inherit, and what they are told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scheduler.protocol.desired import DesiredLease

#: What a job inherits of the agent's environment, which may hold the agent's credentials.
INHERITED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "LD_LIBRARY_PATH", "CUDA_HOME",
)  # fmt: skip


def process_environment(
    lease: DesiredLease,
    position: int,
    *,
    devices: Mapping[str, str],
    folder: Path,
    socket: Path,
    secret: str,
) -> dict[str, str]:
    """Return the environment of one process.

    Args:
        lease: the lease that it runs under.
        position: of the process among those on this node.
        devices: the variables that show it its workers.
        folder: the lease's folder.
        socket: of the local endpoint.
        secret: what the process proves itself with there.
    """
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
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
        "LEASEHOLD_ENDPOINT": socket,
        "LEASEHOLD_SECRET": secret,
        "LEASEHOLD_NOTICE_FILE": folder / "notice.json",
        "LEASEHOLD_PROGRESS_FILE": folder / "progress.json",
        "LEASEHOLD_LEASE_FOLDER": folder,
    }
    plain = {name: str(value) for name, value in told.items() if value is not None}
    return {"PYTHONUNBUFFERED": "1"} | inherited | dict(lease.env) | dict(devices) | plain
