"""A daemon for tests of what stands on it: the ``Service`` protocol in memory, without an engine.

It is simple and the same on every run: jobs wait until a test lets them run, refusals
follow from counts of workers, and history is written as the real one writes it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import orjson

from leasehold_testing.hooks import FakeHooks
from leasehold_testing.memory_store import MemoryStore
from leasehold_testing.service_settings import FakeSettings
from leasehold_testing.service_values import ACTIVE, live_job, plain_spec, spec_digest, wait_reason
from scheduler.clock import WallClock
from scheduler.control.facts.requests import (
    Acted,
    Fit,
    FitConfiguration,
    JobAction,
    NodeAction,
    Submitted,
)
from scheduler.control.facts.specs import missed_deadline
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import EndReason
from scheduler.domain.rows import AttemptRow, HistoryRow, IdempotencyRow, JobRow, Projections
from scheduler.errors import ConflictError, NotFoundError
from scheduler.protocol.desired import Desired, to_dict
from scheduler.runtime.execs import Execs
from scheduler.store.filters import JobFilter
from scheduler.store.protocol import Entry
from scheduler.store.queries import MAX_LIMIT, JobQuery
from scheduler.views.dues import DuesPage, JobDues
from scheduler.views.queue_order import MOST_AHEAD
from scheduler.views.types import (
    AllocationView,
    ClusterView,
    ExpectedStarts,
    Explanation,
    Health,
    JobAhead,
    LeaseView,
    LiveJob,
    NodeView,
    PlannedLeaseView,
    PlanView,
    PolicyView,
    WorkerView,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.control.facts.requests import Submission
    from scheduler.domain.jobs.spec import JobSpec
    from scheduler.domain.throughputs.ways import Way
    from scheduler.protocol.reports import NodeReport

_AFTER = {
    JobAction.CANCEL: JobStatus.CANCELLED,
    JobAction.HOLD: JobStatus.HELD,
    JobAction.RELEASE: JobStatus.WAITING,
    JobAction.REQUEUE: JobStatus.WAITING,
}
_STATES = {
    NodeAction.CORDON: "cordoned",
    NodeAction.DRAIN: "draining",
    NodeAction.UNCORDON: "ready",
}
#: The problem of one that is not ready.
AWAY = "the database is away: no route to 10.0.0.7"


class FakeService(FakeSettings):
    """The ``Service`` protocol over a ``MemoryStore``; see ``scheduler.runtime.contract``.

    Args:
        workers: workers of type ``v100`` on the one node ``alpha``; larger gangs are refused.
        now_s: its clock, which a test may set.
    """

    def __init__(self, *, workers: int = 8, now_s: float = 1_000_000.0) -> None:
        super().__init__()
        self.now_s = now_s
        self.problems: tuple[str, ...] = ()
        self.leader_address = ""  #: of another process, if this one does not lead
        #: raised by each change, if set.
        self.failure: Exception | None = None
        self.workers = workers
        self.leading, self.ready, self.reason = True, True, ""  #: of the last action
        self.reports: list[tuple[NodeReport, str, str]] = []
        self.readers = 0  #: how many asked to wait for a new round
        self.enrolled = False  #: whether the last report was of an enrolled agent
        self.approved: dict[str, dict[str, int]] = {}
        self.wanted: dict[str, Desired] = {}
        self._store = MemoryStore()
        leader = self._store.acquire_leadership("fake", now_s=now_s, ttl_s=1e9)
        assert leader is not None
        self._token = leader.token
        self._sequence = self._number = 0
        self._leases: dict[str, LeaseView] = {}
        self._nodes = {"alpha": self._node("alpha")}
        self._news = asyncio.Event()
        self.webhooks = FakeHooks(self)
        self.execs = Execs(
            WallClock(), view=self._no_view, wake=lambda _nodes: None, note=self.note
        )
        self._policy = PolicyView(
            name="max_min_fairness",
            parameters={},
            agnostic=False,
            space_sharing=False,
            since_s=now_s,
            actor="",
            last_solve_s=0.01,
            last_failure="",
        )

    def _no_view(self) -> Any:
        """Refuse commands beside jobs: nothing runs here."""
        raise ConflictError("nothing runs on the fake daemon")

    @property
    def store(self) -> MemoryStore:
        """The store."""
        return self._store

    # -- jobs -------------------------------------------------------------------------------------

    async def submit(
        self, submissions: Sequence[Submission], *, actor: str
    ) -> tuple[Submitted, ...]:
        """Take jobs in; a gang larger than the cluster is refused."""
        self._may_write()
        return tuple(self._take(submission, actor) for submission in submissions)

    def _take(self, submission: Submission, actor: str) -> Submitted:
        spec, digest = submission.spec, spec_digest(submission.spec)
        if spec.scale_factor > self.workers:
            words = f"needs {spec.scale_factor} workers, and there are {self.workers}"
            return Submitted(refusal=words, code="refused")
        key = None
        if submission.client_id:
            key = self._store.jobs_of_keys(submission.owner, [submission.client_id]).get(
                submission.client_id
            )
        if key is not None and key.digest != digest:
            words = f"client id '{submission.client_id}' stands for another job, '{key.job_id}'"
            return Submitted(job_id=key.job_id, refusal=words, code="conflict")
        if key is not None:
            return Submitted(job_id=key.job_id)
        if late := missed_deadline(spec.deadline_s, now_s=self.now_s):
            return Submitted(refusal=late, code="invalid")
        if submission.job_id and self._store.job(submission.job_id) is not None:
            return Submitted(refusal=f"job id '{submission.job_id}' is taken", code="conflict")
        self._number += 1
        job_id = submission.job_id or f"job-{self._number}"
        keys: tuple[IdempotencyRow, ...] = ()
        if submission.client_id:
            keys = (
                IdempotencyRow(
                    scope=submission.owner,
                    key=submission.client_id,
                    job_id=job_id,
                    digest=digest,
                    created_s=self.now_s,
                ),
            )
        row = self._row(submission, job_id)
        self._commit("job_submitted", job_id, actor, jobs=(row,), idempotency=keys)
        return Submitted(job_id=job_id, created=True)

    def _row(self, submission: Submission, job_id: str) -> JobRow:
        spec = submission.spec
        return JobRow(
            job_id=job_id,
            number=self._number,
            name=spec.name,
            project=spec.project,
            owner=submission.owner,
            job_type=spec.type_key,
            status=JobStatus.HELD if submission.held else JobStatus.WAITING,
            entity=spec.account,
            scale_factor=spec.scale_factor,
            weight=spec.weight,
            total_steps=spec.total_steps or spec.duration_s or 1.0,
            submitted_s=self.now_s,
            deadline_s=spec.deadline_s,
            updated_s=self.now_s,
            labels=spec.labels,
            spec=plain_spec(spec),
        )

    async def fit(self, spec: JobSpec, *, owner: str = "", forecast: bool = False) -> Fit:
        """Return whether the gang fits the one node."""
        fits = spec.scale_factor <= self.workers
        way = FitConfiguration(
            worker_type="v100",
            count=spec.scale_factor,
            steps_per_s=1.0,
            source="assumed",
            workers_in_service=self.workers,
            workers_idle=self.workers,
        )
        return Fit(
            fits=fits,
            reason=None if fits else WaitReason.TOO_LARGE,
            message="it fits" if fits else f"there are {self.workers} workers",
            configurations=(way,) if fits else (),
            starts_s=self.now_s + 2400.0 if forecast and fits else None,
            forecast="by a replay" if forecast and fits else "",
        )

    async def act(
        self, job_ids: Sequence[str], action: JobAction, *, actor: str, **how: Any
    ) -> tuple[Acted, ...]:
        """Set the status that follows from an action."""
        self._may_write()
        return tuple(self._act(job_id, action, actor, **how) for job_id in job_ids)

    def _act(
        self, job_id: str, action: JobAction, actor: str, reason: str = "", *, dry_run: bool = False
    ) -> Acted:
        row = self._store.job(job_id)
        if row is None:
            return Acted(job_id=job_id, error=f"there is no job '{job_id}'", code="not_found")
        status = _AFTER[action]
        if row.status is status:
            return Acted(job_id=job_id)
        if row.status not in ACTIVE and action is not JobAction.REQUEUE:
            return Acted(job_id=job_id, error=f"job '{job_id}' has ended", code="conflict")
        if action is JobAction.RELEASE and row.status is not JobStatus.HELD:
            return Acted(job_id=job_id, error=f"job '{job_id}' is not held", code="conflict")
        if dry_run:
            return Acted(job_id=job_id, changed=True)
        self._leases.pop(job_id, None)
        ended_s, self.reason = None if status in ACTIVE else self.now_s, reason
        self._replace(row, f"{action.value}_requested", actor, status=status, finished_s=ended_s)
        return Acted(job_id=job_id, changed=True)

    async def change(
        self,
        job_ids: Sequence[str],
        *,
        actor: str,
        weight: float | None = None,
        deadline_s: float | None = None,
        clear_deadline: bool = False,
    ) -> tuple[Acted, ...]:
        """Change weight or deadline."""
        self._may_write()
        found = []
        for job_id in job_ids:
            row = self._store.job(job_id)
            if row is None:
                found.append(
                    Acted(job_id=job_id, error=f"there is no job '{job_id}'", code="not_found")
                )
                continue
            if row.status not in ACTIVE:
                words = f"job '{job_id}' has ended"
                found.append(Acted(job_id=job_id, error=words, code="conflict"))
                continue
            if late := missed_deadline(deadline_s, now_s=self.now_s):
                found.append(Acted(job_id=job_id, error=late, code="invalid"))
                continue
            due_s = None if clear_deadline else deadline_s or row.deadline_s
            chosen = weight or row.weight
            if (chosen, due_s) == (row.weight, row.deadline_s):
                found.append(Acted(job_id=job_id))
                continue
            self._replace(row, "job_changed", actor, weight=chosen, deadline_s=due_s)
            found.append(Acted(job_id=job_id, changed=True))
        return tuple(found)

    def live(self, job_ids: Sequence[str]) -> Mapping[str, LiveJob]:
        """Return the views of jobs that a test has let run, and of those that wait."""
        found = {}
        for job_id in job_ids:
            row, lease = self._store.job(job_id), self._leases.get(job_id)
            if row is not None and row.status in ACTIVE and self.leading:
                found[job_id] = live_job(row, lease)
        return found

    def starts(self, job_ids: Sequence[str]) -> ExpectedStarts:
        """Return that each waiting job starts in an hour."""
        if not self.leading:
            return ExpectedStarts()
        return ExpectedStarts(
            made_s=self.now_s, start_s=dict.fromkeys(job_ids, self.now_s + 3600.0)
        )

    async def ways(self, row: JobRow) -> tuple[Way, ...]:
        """Return none."""
        return ()

    async def explain(self, row: JobRow, *, forecast: bool = True) -> Explanation:
        """Say that a waiting job waits for its turn, and that a held one is held."""
        waits = row.status is JobStatus.WAITING
        waiting = self._waiting()
        before = [other for other in waiting if waits and other.number < row.number]
        return Explanation(
            job_id=row.job_id,
            status=row.status,
            reason=wait_reason(row),
            message="other jobs go first" if waits else "it does not wait",
            position=len(before) + 1 if waits else None,
            waiting=len(waiting),
            ahead=tuple(
                JobAhead(job_id=one.job_id, project=one.project, is_planned=False, lag_s=90.0)
                for one in before[-MOST_AHEAD:]
            ),
            starts_s=self.now_s + 60.0 if forecast and waits else None,
            forecast="" if forecast else "not asked for",
        )

    def _waiting(self) -> tuple[JobRow, ...]:
        """Return the waiting jobs, oldest first."""
        where = JobFilter(statuses=(JobStatus.WAITING,))
        return self._store.jobs(JobQuery(where=where, descending=False, limit=MAX_LIMIT)).rows

    # -- cluster ----------------------------------------------------------------------------------

    def nodes(self) -> tuple[NodeView, ...]:
        """Return the nodes, with the jobs on them."""
        return tuple(
            dataclasses.replace(
                node,
                workers=tuple(
                    dataclasses.replace(worker, jobs=self._jobs_on(worker.index))
                    for worker in node.workers
                ),
            )
            for _, node in sorted(self._nodes.items())
        )

    def _jobs_on(self, worker: int) -> tuple[str, ...]:
        return tuple(job for job, lease in sorted(self._leases.items()) if worker in lease.workers)

    async def node_action(
        self, name: str, action: NodeAction, *, reason: str, actor: str
    ) -> NodeView:
        """Set the state that follows from an action."""
        self._may_write()
        node = self._named(name)
        self._nodes[name] = dataclasses.replace(node, state=_STATES[action], reason=reason)
        self._note(f"node_{action.value}", "node", name, actor, {"reason": reason})
        return self._nodes[name]

    async def approve_workers(
        self, name: str, workers: Mapping[str, int], *, actor: str, by: str = "operator"
    ) -> None:
        """Keep the approved workers."""
        self._may_write()
        self.approved[name] = dict(workers)
        if name in self._nodes:
            self._nodes[name] = dataclasses.replace(self._nodes[name], approved=dict(workers))
        data = {"approved": dict(workers), "by": by}
        self._note("workers_approved", "node", name, actor, data)

    async def remove_node(self, name: str, *, actor: str) -> None:
        """Forget a node that is draining or lost."""
        self._may_write()
        if self._named(name).state not in {"draining", "drained", "lost"}:
            raise ConflictError(f"node '{name}' still reports; drain it first")
        del self._nodes[name]
        self._note("node_removed", "node", name, actor, {})

    def leases(self) -> tuple[LeaseView, ...]:
        """Return the leases that a test has granted."""
        return tuple(sorted(self._leases.values(), key=lambda lease: lease.lease_id))

    def plan(self) -> PlanView:
        """Return a next round in which every lease goes on."""
        begins_s = self.now_s + 60.0
        leases = tuple(
            PlannedLeaseView(
                job_id=lease.job_id,
                project=lease.project,
                worker_type=lease.worker_type,
                workers=lease.workers,
                nodes=lease.nodes,
                begins_s=begins_s,
                ends_s=begins_s + 60.0,
                goes_on=True,
            )
            for lease in self.leases()
        )
        return PlanView(round_number=2, begins_s=begins_s, ends_s=begins_s + 60.0, leases=leases)

    def cluster(self) -> ClusterView:
        """Return the cluster in figures."""
        counts = {"v100": self.workers}
        busy = len({worker for lease in self._leases.values() for worker in lease.workers})
        return ClusterView(
            round_number=1,
            round_ends_s=self.now_s + 60.0,
            round_length_s=60.0,
            workers=counts,
            in_service=counts,
            busy={"v100": busy},
            utilisation=busy / max(self.workers, 1),
            jobs={"running": len(self._leases)},
            waiting={},
        )

    def allocation(self) -> AllocationView:
        """Return all of the time for running jobs."""
        shares = {job_id: {"v100": 1.0} for job_id in self._leases}
        return AllocationView(
            policy=self._policy.name,
            computed_s=self.now_s,
            solve_s=0.01,
            shares=shares,
            received=shares,
        )

    def jobs_behind(self, *, projects: frozenset[str], first: int, count: int) -> DuesPage:
        """Return a page of the jobs of ``allocation``."""
        found = self.allocation()
        jobs = []
        for job in {**found.shares, **found.received}:
            row = self._store.job(job)
            if row is not None and (not projects or row.project in projects):
                due, received = found.shares.get(job, {}), found.received.get(job, {})
                jobs.append(JobDues(job_id=job, due=due, received=received))
        jobs.sort(key=lambda one: -one.behind)
        return DuesPage(
            policy=found.policy,
            computed_s=found.computed_s,
            solve_s=found.solve_s,
            count=len(jobs),
            jobs=tuple(jobs[first : first + count]),
        )

    # -- agents -----------------------------------------------------------------------------------

    async def desired(
        self,
        node: str,
        *,
        after: tuple[int, int],
        wait_s: float,
        hindrance: str = "",
        instance: str = "",
    ) -> Desired:
        """Return the ``wanted`` that a test has set; wait while that is not newer."""
        found = self.wanted.get(node, Desired(term=1, revision=1, leases=()))
        if (found.term, found.revision) <= after:
            await self._wait(wait_s)
            found = self.wanted.get(node, found)
        return found

    async def desired_json(
        self,
        node: str,
        *,
        after: tuple[int, int],
        wait_s: float,
        hindrance: str = "",
        instance: str = "",
    ) -> bytes:
        """Return the same as JSON."""
        return orjson.dumps(to_dict(await self.desired(node, after=after, wait_s=wait_s)))

    async def report(
        self, report: NodeReport, *, address: str, version: str, enrolled: bool = False
    ) -> None:
        """Keep a report in ``reports``."""
        self._may_write()
        self.enrolled = enrolled
        self.reports.append((report, address, version))

    # -- the rest ---------------------------------------------------------------------------------

    async def until_calm(self) -> None:
        """Count the reader."""
        self.readers += 1

    def health(self) -> Health:
        """Say how it is."""
        return Health(
            ready=self.ready,
            leading=self.leading,
            leader_address=self.leader_address,
            problems=self.problems if self.ready else (AWAY, *self.problems),
            started_s=self.now_s,
            version="0.0.0",
        )

    async def note(
        self, kind: str, subject_kind: str, subject: str, *, actor: str, data: Mapping[str, Any]
    ) -> None:
        """Append a line of history."""
        self._note(kind, subject_kind, subject, actor, data)

    async def wait_for_history(self, after_id: int, *, wait_s: float) -> int:
        """Return the newest event id, as soon as it is above ``after_id`` or after ``wait_s``."""
        if self._store.head().event_id <= after_id:
            await self._wait(wait_s)
        return self._store.head().event_id

    def metrics(self) -> bytes:
        """Return one figure."""
        return b"# TYPE leasehold_jobs gauge\nleasehold_jobs %d\n" % self._number

    # -- what tests do to it ----------------------------------------------------------------------

    def run(self, job_id: str, *, nodes: tuple[str, ...] = ("alpha",)) -> LeaseView:
        """Let a job run: grant it a lease."""
        row = self._store.job(job_id)
        assert row is not None
        lease_id = 1 + sum(len(self._store.attempts(f"job-{n}")) for n in range(self._number + 1))
        attempt = AttemptRow(
            lease_id=lease_id,
            job_id=job_id,
            attempt=row.attempts + 1,
            token=lease_id,
            worker_type="v100",
            workers=tuple(range(row.scale_factor)),
            nodes=nodes,
            start_s=self.now_s,
            deadline_s=self.now_s + 60.0,
        )
        self._leases[job_id] = LeaseView(
            lease_id=lease_id,
            job_id=job_id,
            project=row.project,
            attempt=attempt.attempt,
            worker_type="v100",
            workers=attempt.workers,
            nodes=nodes,
            start_s=attempt.start_s,
            deadline_s=attempt.deadline_s,
            state="running",
            steps_done=0.0,
        )
        running = dataclasses.replace(
            row, status=JobStatus.RUNNING, attempts=attempt.attempt, started_s=self.now_s
        )
        self._commit("lease_granted", job_id, "", jobs=(running,), attempts=(attempt,))
        return self._leases[job_id]

    def finish(self, job_id: str) -> None:
        """Let a job complete, and its lease end."""
        self._end(job_id, JobStatus.COMPLETED, EndReason.COMPLETED, {})

    def fail(
        self, job_id: str, message: str, *, exit_code: int | None = None, reason: str = ""
    ) -> None:
        """Let a job fail finally, and its lease end."""
        ended = {"message": message, "exit_code": exit_code}
        self._end(job_id, JobStatus.FAILED, EndReason.FAILED, ended, why=reason)

    def _end(
        self,
        job_id: str,
        status: JobStatus,
        reason: EndReason,
        ended: Mapping[str, Any],
        *,
        why: str = "",
    ) -> None:
        row = self._store.job(job_id)
        assert row is not None
        self._leases.pop(job_id, None)
        now_s, held = self.now_s, self._store.attempts(job_id)
        attempts = tuple(
            dataclasses.replace(a, ended_s=now_s, end_reason=reason, **ended)
            for a in held
            if a.ended_s is None
        )
        row = dataclasses.replace(row, status=status, reason=why, finished_s=now_s, updated_s=now_s)
        self._commit(f"job_{status.value}", job_id, "", jobs=(row,), attempts=attempts)

    def _may_write(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _named(self, name: str) -> NodeView:
        if name not in self._nodes:
            raise NotFoundError(f"there is no node '{name}'")
        return self._nodes[name]

    def _node(self, name: str) -> NodeView:
        return NodeView(
            name=name,
            state="ready",
            reason="",
            last_seen_s=self.now_s,
            address="",
            version="",
            workers=tuple(
                WorkerView(index=i, local_index=i, worker_type="v100", in_service=True)
                for i in range(self.workers)
            ),
        )

    def _replace(self, row: JobRow, kind: str, actor: str, **changes: Any) -> None:
        changed = dataclasses.replace(row, updated_s=self.now_s, **changes)
        self._commit(kind, row.job_id, actor, jobs=(changed,))

    def _commit(self, kind: str, job_id: str, actor: str, **rows: Any) -> None:
        self._sequence += 1
        line = HistoryRow(
            at_s=self.now_s, kind=kind, subject_kind="job", subject=job_id, actor=actor
        )
        projections = Projections(history=(line,), **rows)
        entry = Entry(sequence=self._sequence, now_s=self.now_s, events=(), projections=projections)
        self._store.commit(entry, token=self._token)
        self._tell()

    def _note(
        self, kind: str, subject_kind: str, subject: str, actor: str, data: Mapping[str, Any]
    ) -> None:
        line = HistoryRow(
            at_s=self.now_s,
            kind=kind,
            subject_kind=subject_kind,
            subject=subject,
            actor=actor,
            data=data,
        )
        self._store.append_history((line,))
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _wait(self, wait_s: float) -> None:
        try:
            await asyncio.wait_for(self._news.wait(), wait_s)
        except TimeoutError:
            return
