"""The cost of a disk write for each answered submission: commits of SQLite with and without it.

``synchronous=FULL`` waits for the disk at each commit, ``NORMAL`` at checkpoints alone. Both are
measured in turn on one file system, as rounds of commits of one job, and of a hundred; the best
round counts.

    python benchmarks/commits.py [--folder FOLDER] [--rounds 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.rows import JobRow, Projections
from scheduler.store.protocol import Entry
from scheduler.store.sql.store import SqlStore

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Jobs of one commit.
SIZES = (1, 100)
COMMITS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Milliseconds of a commit.

    Attributes:
        jobs: that a commit stores.
        normal_ms: with ``synchronous=NORMAL``.
        full_ms: with ``synchronous=FULL``.
    """

    jobs: int
    normal_ms: float
    full_ms: float


class Commits:
    """Commits jobs to a database."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        leader = store.acquire_leadership("benchmark", now_s=time.time(), ttl_s=1e6)
        assert leader is not None
        self._token, self._sequence, self._number = leader.token, 0, 0

    def set_synchronous(self, mode: str) -> None:
        """Set when SQLite waits for the disk."""
        connection = self._store._writer.raw_connection()  # noqa: SLF001 - nothing else sets it
        connection.cursor().execute(f"PRAGMA synchronous = {mode}")
        connection.close()

    def time_ms(self, jobs: int) -> float:
        """Return the mean time of a commit."""
        began_s = time.perf_counter()
        for _ in range(COMMITS):
            self._sequence += 1
            rows = tuple(self._job() for _ in range(jobs))
            entry = Entry(
                sequence=self._sequence,
                now_s=float(self._sequence),
                events=(),
                projections=Projections(jobs=rows),
            )
            self._store.commit(entry, token=self._token)
        return (time.perf_counter() - began_s) / COMMITS * 1e3

    def _job(self) -> JobRow:
        self._number += 1
        return JobRow(
            job_id=f"job-{self._number}",
            number=self._number,
            name="train",
            project="p",
            owner="ann",
            job_type="train",
            status=JobStatus.WAITING,
            total_steps=1e5,
            submitted_s=1.0,
            updated_s=1.0,
            spec={"name": "train", "command": ["python", "train.py"]},
        )


def measured(folder: Path, rounds: int) -> list[Row]:
    """Return a row for each size."""
    with closing(SqlStore.open(f"sqlite:///{folder}/commits.db")) as store:
        commits = Commits(store)
        best = {(jobs, mode): float("inf") for jobs in SIZES for mode in ("NORMAL", "FULL")}
        for _ in range(rounds):
            for (jobs, mode), least_ms in best.items():
                commits.set_synchronous(mode)
                best[jobs, mode] = min(least_ms, commits.time_ms(jobs))
    return [
        Row(jobs=jobs, normal_ms=best[jobs, "NORMAL"], full_ms=best[jobs, "FULL"]) for jobs in SIZES
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where; a temporary folder by default")
    parser.add_argument("--rounds", type=int, default=5, help="of each kind")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        rows = measured(Path(folder), chosen.rounds)
    if chosen.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print(f"{'jobs':>5} {'NORMAL ms':>10} {'FULL ms':>8} {'ratio':>6}")
    for row in rows:
        ratio = row.full_ms / row.normal_ms
        print(f"{row.jobs:5d} {row.normal_ms:10.3f} {row.full_ms:8.3f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
