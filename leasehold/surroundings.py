"""The agent's information for a job's process, passed through its environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.checkpoints import ADOPT_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The lease that this process runs under; the defaults mean no lease.

    Attributes:
        endpoint: socket of the agent's local endpoint, or ``tcp://host:port``.
        secret: authenticates the process at the endpoint.
        notice_file: exists while the job must leave.
        progress_file: file with the steps for an agent that is away.
        token: fencing token of the lease.
        rank: of this process in the gang.
        world_size: processes in the gang.
        checkpoint_dir: folder of the job's state.
        total_steps: steps of the whole job.
        job_id: of the job.
        adopts: id of the job with the checkpoints that this job continues from, or empty.
    """

    endpoint: Path | str | None = None
    secret: str = ""
    notice_file: Path | None = None
    progress_file: Path | None = None
    token: int = 0
    rank: int = 0
    world_size: int = 1
    checkpoint_dir: Path | None = None
    total_steps: int | None = None
    job_id: str = ""
    adopts: str = ""

    @property
    def leased(self) -> bool:
        """Whether the process runs under a lease."""
        return self.endpoint is not None

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Surroundings:
        """Read the environment; ``os.environ`` by default."""
        env = os.environ if environment is None else environment

        def path(name: str) -> Path | None:
            return Path(env[name]) if env.get(name) else None

        endpoint = env.get("LEASEHOLD_ENDPOINT", "")
        return cls(
            endpoint=endpoint if "://" in endpoint else path("LEASEHOLD_ENDPOINT"),
            secret=env.get("LEASEHOLD_SECRET", ""),
            notice_file=path("LEASEHOLD_NOTICE_FILE"),
            progress_file=path("LEASEHOLD_PROGRESS_FILE"),
            token=int(env.get("LEASEHOLD_FENCING_TOKEN", "0")),
            rank=int(env.get("RANK", "0")),
            world_size=int(env.get("WORLD_SIZE", "1")),
            checkpoint_dir=path("LEASEHOLD_CHECKPOINT_DIR"),
            total_steps=int(env["LEASEHOLD_TOTAL_STEPS"])
            if env.get("LEASEHOLD_TOTAL_STEPS")
            else None,
            job_id=env.get("LEASEHOLD_JOB_ID", ""),
            adopts=env.get(ADOPT_VARIABLE, ""),
        )
