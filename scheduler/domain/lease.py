"""Leases: the right to hold workers until a deadline."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.moved import moved_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.domain.arrays import IntArray


#: Hexadecimal digits of a lease's nonce.
NONCE_LENGTH: Final = 16


def nonce_of(job_id: str, attempt: int, start_s: float) -> str:
    """Return the nonce of a lease: it differs from every other lease's, even of the same number.

    Numbers repeat if a database loses its newest entries: in a failover, or by a power cut.
    """
    digest = hashlib.sha256(f"{job_id}\n{attempt}\n{start_s!r}".encode()).hexdigest()
    return digest[:NONCE_LENGTH]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right of one attempt of a job to hold concrete workers until a deadline.

    Two leases may name the same workers only where their jobs share them as a pair.

    Attributes:
        lease_id: running number, not reused but if the database loses entries; see ``nonce``.
        attempt: 1 for the job's first lease, and so on.
        job_number: the engine's number of the job.
        job_id: the job's name.
        profile: row of the configuration table.
        configuration: single configuration of that profile, -1 while it shares workers.
        workers: worker indices held, ascending.
        token: fencing token; grows with every lease on any worker.
        start_s: when it was granted.
        deadline_s: until when it holds unless extended.
    """

    lease_id: int
    attempt: int
    job_number: int
    job_id: str
    profile: int
    configuration: int
    workers: tuple[int, ...]
    token: int
    start_s: float
    deadline_s: float

    @property
    def nonce(self) -> str:
        """Its nonce, different from every other lease's; see ``nonce_of``."""
        return nonce_of(self.job_id, self.attempt, self.start_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leases:
    """Leases that are granted together, n of them, as columns; their ids follow one another.

    Attributes:
        first_id: id, and token, of the first one.
        attempt: (n,)
        job_number: (n,)
        job_ids: n names of jobs.
        profile: (n,)
        configuration: (n,)
        workers: n groups of worker indices, each ascending.
        start_s: of all of them.
        deadline_s: of all of them.
    """

    first_id: int
    attempt: IntArray
    job_number: IntArray
    job_ids: tuple[str, ...]
    profile: IntArray
    configuration: IntArray
    workers: tuple[tuple[int, ...], ...]
    start_s: float
    deadline_s: float

    @classmethod
    def of(cls, lease: Lease) -> Leases:
        """Return a single lease as columns."""
        return cls(
            first_id=lease.lease_id,
            attempt=np.array([lease.attempt]),
            job_number=np.array([lease.job_number]),
            job_ids=(lease.job_id,),
            profile=np.array([lease.profile]),
            configuration=np.array([lease.configuration]),
            workers=(lease.workers,),
            start_s=lease.start_s,
            deadline_s=lease.deadline_s,
        )

    def __len__(self) -> int:
        return len(self.workers)

    def __iter__(self) -> Iterator[Lease]:
        return (self.lease(lease_id) for lease_id in self.ids)

    @property
    def ids(self) -> range:
        """The leases' ids."""
        return range(self.first_id, self.first_id + len(self.workers))

    def lease(self, lease_id: int) -> Lease:
        """Return one of the leases."""
        i = lease_id - self.first_id
        return Lease(
            lease_id=lease_id,
            attempt=int(self.attempt[i]),
            job_number=int(self.job_number[i]),
            job_id=self.job_ids[i],
            profile=int(self.profile[i]),
            configuration=int(self.configuration[i]),
            workers=self.workers[i],
            token=lease_id,
            start_s=self.start_s,
            deadline_s=self.deadline_s,
        )


#: The enumerations were here in 0.2.0.
__getattr__ = moved_names(
    __name__,
    {name: f"scheduler.domain.lease_life.{name}" for name in ("EndReason", "RevokeReason")},
)
