"""One run of a workload on the live cluster: submits jobs as they come and notes what happens."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cluster import TRAINING, DemoError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cluster import LiveCluster
    from workload import Work

#: Between two looks at the cluster.
LOOK_S = 0.25
_ENDS = ("job_completed", "job_failed", "job_cancelled", "job_refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A line of the cluster's history about a job.

    Attributes:
        at_s: seconds since the first submission.
        kind: such as ``lease_granted``.
        job_id: the job.
        data: further figures.
    """

    at_s: float
    kind: str
    job_id: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """What became of a job.

    Attributes:
        work: the submitted job.
        job_id: its id.
        status: how it ended.
        submitted_s: when the scheduler took it in, seconds since the Unix epoch.
        jct_s: seconds from there to its completion; None if it did not complete.
        attempts: its leases as the scheduler knows them, oldest first.
        trail: what its processes say of each lease, all ranks.
        promised_s: worker type -> seconds that the policy's answers gave it, summed up over time.
    """

    work: Work
    job_id: str
    status: str
    submitted_s: float
    jct_s: float | None
    attempts: tuple[dict[str, Any], ...]
    trail: tuple[dict[str, Any], ...]
    promised_s: dict[str, float]

    def received_s(self) -> dict[str, float]:
        """Return worker type -> seconds under lease."""
        result: dict[str, float] = {}
        for attempt in self.attempts:
            kind = attempt["worker_type"]
            result[kind] = result.get(kind, 0.0) + attempt["ended_s"] - attempt["start_s"]
        return result

    def faults(self) -> list[str]:
        """Return faults: a job that failed, a step that was lost or done twice."""
        name, total = self.work.name, self.work.total_steps
        found = [] if self.status == "completed" else [f"{name} is {self.status}"]
        found += [
            f"{name}: attempt {a['attempt']} {a['end_reason']}: {a['message']}"
            for a in self.attempts
            if a["end_reason"] not in {"released", "completed"}
        ]
        main = sorted((t for t in self.trail if t["rank"] == 0), key=lambda t: t["lease"])
        found += [f"{name}: a step was not done once" for t in self.trail if not t["each_once"]]
        at = 0
        for line in main:
            if line["first"] is not None and line["first"] != at:
                found.append(f"{name}: lease {line['lease']} began at {line['first']}, not {at}")
            at = line["steps"]
        if self.status == "completed" and at != total:
            found.append(f"{name}: completed with {at} of {total} steps")
        return found


@dataclass(kw_only=True)
class LiveRun:
    """Runs a workload to its end.

    Args:
        cluster: where.
        work: what, in order of arrival.
        folder: for checkpoints and trails; every node sees it.
        tell: called with every event and the name of its job.
        most_s: the run is given up after so long.
    """

    cluster: LiveCluster
    work: Sequence[Work]
    folder: Path
    tell: Callable[[Event, str], None] = lambda _event, _name: None
    most_s: float = 240.0
    ids: dict[str, Work] = field(default_factory=dict, init=False)
    _ended: set[str] = field(default_factory=set, init=False)
    _promised: dict[str, dict[str, float]] = field(default_factory=dict, init=False)
    _after: int = field(default=0, init=False)
    _origin_s: float = field(default=0.0, init=False)

    def run(self) -> list[Lived]:
        """Submit, wait until all jobs have ended, and say what became of them.

        Raises:
            DemoError: a process has ended, or the run takes too long.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._after = self.cluster.get("/v1/events", descending=True, limit=1)["last_event_id"]
        waiting = list(self.work)
        begin_s = looked_s = time.monotonic()
        self._origin_s = time.time()
        while len(self._ended) < len(self.work):
            now_s = time.monotonic() - begin_s
            if now_s > self.most_s:
                left = [w.name for i, w in self.ids.items() if i not in self._ended]
                raise DemoError(f"after {self.most_s:g} s these jobs have not ended: {left}")
            due = [work for work in waiting if work.arrival_s <= now_s]
            if due:
                waiting = waiting[len(due) :]
                ids = self.cluster.submit([self._spec(work) for work in due])
                self.ids.update(zip(ids, due, strict=True))
            self._take_events()
            self._take_allocation(time.monotonic() - looked_s)
            looked_s = time.monotonic()
            next_s = waiting[0].arrival_s + begin_s if waiting else float("inf")
            time.sleep(max(min(next_s - time.monotonic(), LOOK_S), 0.0))
            self.cluster.check()
        return [self._lived(job_id, work) for job_id, work in self.ids.items()]

    def _spec(self, work: Work) -> dict[str, Any]:
        folder, times = self.folder / work.name, self.cluster.times
        folder.mkdir()
        command = [sys.executable, str(TRAINING), "--trail", str(folder / "trail")]
        for worker_type, pace in work.job_type.paces.items():
            command += ["--pace", f"{worker_type}={pace}"]
        return {
            "name": work.name,
            "command": command,
            "env": {"OPENBLAS_NUM_THREADS": "1"},
            "scale_factor": work.job_type.scale_factor,
            "total_steps": work.total_steps,
            "job_type": work.job_type.name,
            "throughputs": dict(work.job_type.paces),
            "checkpoint_dir": str(folder / "checkpoints"),
            "notice_s": times.notice_s,
            "grace_s": times.grace_s,
            "restart_s": times.restart_s,
        }

    def _take_events(self) -> None:
        page = self.cluster.get("/v1/events", after=self._after, limit=500, subject_kind="job")
        self._after = max(self._after, page["last_event_id"])
        for line in page["events"]:
            if line["subject"] in self.ids:
                if line["kind"] in _ENDS:
                    self._ended.add(line["subject"])
                self.tell(
                    Event(
                        at_s=line["at_s"] - self._origin_s,
                        kind=line["kind"],
                        job_id=line["subject"],
                        data=line["data"],
                    ),
                    self.ids[line["subject"]].name,
                )

    def _take_allocation(self, elapsed_s: float) -> None:
        """Add up the policy's promises; an answer holds until the next look."""
        for job_id, shares in self.cluster.get("/v1/allocation")["shares"].items():
            sums = self._promised.setdefault(job_id, {})
            for worker_type, share in shares.items():
                sums[worker_type] = sums.get(worker_type, 0.0) + share * elapsed_s

    def _lived(self, job_id: str, work: Work) -> Lived:
        row = self.cluster.get(f"/v1/jobs/{job_id}")
        trail = self.folder / work.name / "trail"
        lines = trail.read_text().splitlines() if trail.exists() else []
        done = row["status"] == "completed"
        return Lived(
            work=work,
            job_id=job_id,
            status=row["status"],
            submitted_s=row["submitted_s"],
            jct_s=row["finished_s"] - row["submitted_s"] if done else None,
            attempts=tuple(self.cluster.get(f"/v1/jobs/{job_id}/attempts")["attempts"]),
            trail=tuple(json.loads(line) for line in lines),
            promised_s=self._promised.get(job_id, {}),
        )
