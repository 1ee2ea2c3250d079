"""Leases in force: deadlines, members on nodes, and how they end."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scheduler.domain.lease_life import ABRUPT, EndReason, LeasePhase, RevokeReason
from scheduler.domain.rows import LeaseUse
from scheduler.domain.throughputs.ways import workers_in_words
from scheduler.protocol.desired import LEFT_UNASKED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from scheduler.domain.facts import commands as do
    from scheduler.domain.facts.causes import Cause
    from scheduler.domain.lease import Lease
    from scheduler.domain.rows import AttemptRow
    from scheduler.protocol.gpu_use import GpuUse
    from scheduler.protocol.learning import Learning


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberEnd:
    """How the processes of a lease on one node ended.

    Attributes:
        reason: why.
        exit_code: of the first process that failed, if one did.
        message: the reason as text.
        reason_code: the reason as one word such as Kubernetes uses, else empty.
    """

    reason: EndReason
    exit_code: int | None = None
    message: str = ""
    reason_code: str = ""


@dataclass(slots=True, kw_only=True)
class Member:
    """The part of a lease on one node.

    Attributes:
        node: its name.
        local: local indices of the workers there.
        rank: global rank of its first process.
        wanted: whether the node is to hold it.
        seen: whether the node has reported it.
        ran: whether the node has reported its processes running.
        since: the node's revision with which ``wanted`` was published last.
        leave_by_s: by when it must leave because another part of the gang has left; None: it stays.
        end: how it ended; None before.
        trouble: what keeps it from starting, or its gang from meeting: a word such as Kubernetes
            uses, and a text.
        progress_problem: why the steps of its processes cannot be read; empty if they can.
        launched: whether the node has reported the times of its launch.
        untold: why it cannot be sent to the node; empty if it can.
        kept: whether its end is stored apart from the lease's, since its node forgets it.
    """

    node: str
    local: tuple[int, ...]
    rank: int
    wanted: bool = True
    seen: bool = False
    ran: bool = False
    since: int = 0
    leave_by_s: float | None = None
    end: MemberEnd | None = None
    trouble: tuple[str, str] = ("", "")
    progress_problem: str = ""
    launched: bool = False
    untold: str = ""
    kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartUse:
    """The GPU use of a member.

    Attributes:
        at_s: the time of its node's last report.
        told: that report, with sums since the agent began to measure.
        share: of the time between the last two reports in which the GPUs computed.
        idle_since_s: since when each report was below the bound; None if the last was not.
    """

    at_s: float
    told: GpuUse
    share: float
    idle_since_s: float | None = None


@dataclass(slots=True, kw_only=True)
class LiveLease:
    """A lease in force.

    Attributes:
        lease: as granted.
        cause: why it was granted.
        notice: why it was revoked; None if it was not.
        worker_type: of its workers; empty if they are of several types.
        members: by rank; the first one holds rank 0.
        deadline_s: its deadline, the end of a round.
        overtime_s: for how long after that its job may still be leaving, since its notice and grace
            are longer than the time by which rounds are planned ahead.
        promised_s: the latest deadline that a node may know: a revocation brings the deadline
            forward, and a node that is cut off does not receive it.
        revoked: the reason of its revocation; empty if it was not revoked.
        base_steps: the job's saved steps when it was granted.
        steps_done: the job's saved steps as last reported.
        steps_live: its steps as last reported, saved or not.
        counted: whether the job has reported any steps under this lease.
        running_s: when its processes were first seen running; None before. If that was before a
            restart, the end of its launch as its node reports it, or else its grant.
        restored: whether it may have run before a restart.
        suspected: whether it may have made an agent die.
        mark: (time, steps) from which the throughput is measured; None before the first report.
        plan: the plan of its configuration; empty if there is none.
        learned: whether its throughput is learned from; not if its configuration has a locality or
            a plan, which do not follow from its model, since that is another figure.
        told: (time, steps) of the first and of the newest report of progress under this lease; None
            before the first.
        uses: rank -> its GPU use, if nodes measure it; replaced, not changed.
        idle_told: whether the job was reported as idle.
        first_step_noted: whether the history has its first step, or a restart has made the time of
            that step unknown.
        launch_timed: whether its reports have shown how long its launch took, or a restart has made
            that unknown.
        launch_s: seconds from the grant to the job's first step; None if not known.
        gpu: its total GPU use; None if no node measures it. Replaced, not changed.
        learning: the job's measurements, as last taken in, if its batch may change.
        gang: (n,) worker type of each rank if they are of several types; else empty.
        paces: (n,) steps/s of each rank's worker, by which the ranks split a batch; empty if they
            are of one type. It is fixed for the lease, since all ranks must split alike.
    """

    lease: Lease
    cause: Cause
    notice: Cause | None = None
    worker_type: str
    members: tuple[Member, ...]
    deadline_s: float
    overtime_s: float = 0.0
    promised_s: float = 0.0
    revoked: str = ""
    base_steps: float = 0.0
    steps_done: float = 0.0
    steps_live: float = 0.0
    counted: bool = False
    running_s: float | None = None
    restored: bool = False
    suspected: bool = False
    mark: tuple[float, float] | None = None
    plan: str = ""
    learned: bool = True
    told: tuple[tuple[float, float], tuple[float, float]] | None = None
    uses: Mapping[int, PartUse] = field(default_factory=dict)
    idle_told: bool = False
    first_step_noted: bool = False
    launch_timed: bool = False
    launch_s: float | None = None
    gpu: LeaseUse | None = None
    learning: Learning | None = None
    gang: tuple[str, ...] = ()
    paces: tuple[float, ...] = ()

    @property
    def until_s(self) -> float:
        """Until when its workers are held, unless it is extended; its agents' deadline."""
        return self.deadline_s + self.overtime_s

    @property
    def kinds(self) -> Mapping[str, int]:
        """Worker type -> workers of it; empty if they are of unknown types."""
        if self.worker_type:
            return {self.worker_type: len(self.lease.workers)}
        return Counter(self.gang)

    @property
    def types_in_words(self) -> str:
        """Worker types as text: ``a100 + v100``."""
        return " + ".join(sorted(self.kinds))

    @property
    def workers_in_words(self) -> str:
        """Workers held, as text."""
        return workers_in_words(self.kinds) or f"{len(self.lease.workers)} x several types"

    @property
    def use(self) -> float | None:
        """Share of recent time in which its GPUs computed; None if it is not measured."""
        if not self.uses:
            return None
        parts = [
            (self.uses[m.rank].share, len(m.local)) for m in self.members if m.rank in self.uses
        ]
        return sum(share * n for share, n in parts) / sum(n for _, n in parts)

    @property
    def idle_since_s(self) -> float | None:
        """Since when all of its GPUs idle; None if one is used or not measured."""
        if len(self.uses) < len(self.members):
            return None
        since = [part.idle_since_s for part in self.uses.values()]
        return None if None in since else max(s for s in since if s is not None)

    @property
    def phase(self) -> LeasePhase:
        """Its phase while it is in force."""
        if self.revoked:
            return LeasePhase.STOPPING
        if self.running_s is not None:
            return LeasePhase.RUNNING
        seen = any(member.seen for member in self.members)
        return LeasePhase.STARTING if seen else LeasePhase.GRANTED

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of its nodes, by rank."""
        return tuple(member.node for member in self.members)

    @property
    def ended(self) -> bool:
        """Whether no processes are left anywhere."""
        return all(member.end is not None for member in self.members)

    @property
    def unstarted(self) -> tuple[int, ...]:
        """Numbers of its workers on nodes that reported a failed start.

        If the lease was revoked for not starting, the workers of all members that never ran.
        """
        return self._workers_of(
            member
            for member in self.members
            if not member.ran and member.end is not None and self._is_start_lost(member.end)
        )

    @property
    def failed(self) -> tuple[int, ...]:
        """Numbers of its workers on nodes on which its processes failed by themselves."""
        if self.revoked:
            return ()
        return self._workers_of(
            member
            for member in self.members
            if member.end is not None and member.end.reason.is_failure
        )

    @property
    def left_unasked(self) -> bool:
        """Whether processes of it left early although nothing had asked them to.

        If one of a gang had to leave, the others leave with it, perhaps before they are asked.
        """
        ends = [(m.end, m.leave_by_s) for m in self.members if m.end is not None]
        had_to = any(
            end.reason is EndReason.RELEASED and end.reason_code != LEFT_UNASKED and by_s is None
            for end, by_s in ends
        )
        left = any(end.reason_code == LEFT_UNASKED for end, _ in ends)
        return left and not had_to and not self.revoked

    def _workers_of(self, members: Iterable[Member]) -> tuple[int, ...]:
        return tuple(
            worker
            for member in members
            for worker in self.lease.workers[member.rank : member.rank + len(member.local)]
        )

    def _is_start_lost(self, end: MemberEnd) -> bool:
        if self.revoked == RevokeReason.NOT_STARTED:
            return end.reason is not EndReason.COMPLETED
        return end.reason is EndReason.LOST and bool(end.reason_code)

    def outcome(self) -> MemberEnd:
        """Return how the gang as a whole ended: the gravest end of its members."""
        ends = [member.end for member in self.members if member.end is not None]
        return max(ends, key=lambda end: end.reason.gravity)


@dataclass(slots=True, kw_only=True)
class LiveLeases:
    """Every lease in force, by id, by job and by node. A fold over the engine's commands.

    Attributes:
        by_id: leases in force.
        of_job: job id -> lease id.
        on_node: node -> ids of the leases that have members there.
        timers: the engine's timers.
        question: the engine's open question; None if it has none.
        starting: ids of the leases, in order of their grants, that may not run everywhere yet.
        earliest_s: no promised deadline is earlier than this; may be too early.
        changed: nodes with desired sets that have changed since this was last emptied.
        touched: ids of leases that have changed since this was last emptied.
        extended: ids of leases of which only the deadline has changed since then.
        stepped: ids of leases of which only steps and use have changed since then.
        used: ids of leases in force with measured GPUs.
        unstored_use: ids of leases in force with GPU use that is not stored yet.
    """

    by_id: dict[int, LiveLease] = field(default_factory=dict)
    of_job: dict[str, int] = field(default_factory=dict)
    on_node: dict[str, set[int]] = field(default_factory=dict)
    timers: dict[str, float] = field(default_factory=dict)
    question: do.ComputeAllocation | None = None
    starting: dict[int, None] = field(default_factory=dict)
    earliest_s: float = math.inf
    changed: set[str] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)
    extended: set[int] = field(default_factory=set)
    stepped: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)
    unstored_use: set[int] = field(default_factory=set)

    def grant(self, live: LiveLease) -> None:
        """Put a lease in force."""
        lease_id = live.lease.lease_id
        self.by_id[lease_id] = live
        self.touched.add(lease_id)
        self.starting[lease_id] = None
        self.note_use(live)
        self.of_job[live.lease.job_id] = lease_id
        live.promised_s = max(live.promised_s, live.until_s)
        self.earliest_s = min(self.earliest_s, live.promised_s)
        for member in live.members:
            self.on_node.setdefault(member.node, set()).add(lease_id)
            self.changed.add(member.node)

    def extend(self, command: do.ExtendLeases) -> None:
        """Extend deadlines."""
        for lease_id in command.lease_ids.tolist():
            live = self.by_id.get(lease_id)
            if live is not None:
                live.deadline_s = command.deadline_s
                live.promised_s = max(live.promised_s, live.until_s)
                self.extended.add(lease_id)
                self.changed.update(live.nodes)

    def revoke(self, command: do.RevokeLease, *, least_s: float) -> None:
        """Revoke a lease.

        Args:
            command: the engine's command.
            least_s: the earliest time by which the job can leave with a checkpoint.
        """
        live = self.by_id.get(command.lease_id)
        if live is None:
            return
        self.touched.add(command.lease_id)
        if not live.revoked or command.reason in ABRUPT:
            live.revoked, live.notice = command.reason.value, command.cause
        if command.reason in ABRUPT:
            for member in live.members:
                member.wanted = False
        else:
            by_s = max(command.by_s, least_s) - live.overtime_s
            live.deadline_s = min(live.deadline_s, by_s)
        self.changed.update(live.nodes)

    def stop_others(self, live: LiveLease) -> None:
        """End a gang everywhere because it ended badly on one of its nodes."""
        self.touched.add(live.lease.lease_id)
        for member in live.members:
            if member.end is None and member.wanted:
                member.wanted = False
                self.changed.add(member.node)

    def let_others_leave(self, live: LiveLease, *, by_s: float) -> None:
        """Make a gang leave everywhere because it has left one of its nodes."""
        self.touched.add(live.lease.lease_id)
        for member in live.members:
            if member.end is None and member.leave_by_s is None:
                member.leave_by_s = by_s
                self.changed.add(member.node)

    def end(self, lease_id: int) -> LiveLease | None:
        """Remove a lease from those in force."""
        live = self.by_id.pop(lease_id, None)
        if live is None:
            return None
        self.touched.add(lease_id)
        self.starting.pop(lease_id, None)
        self.used.discard(lease_id)
        self.unstored_use.discard(lease_id)
        if self.of_job.get(live.lease.job_id) == lease_id:
            del self.of_job[live.lease.job_id]
        for member in live.members:
            self.on_node.get(member.node, set()).discard(lease_id)
            self.changed.add(member.node)
        return live

    def note_use(self, live: LiveLease) -> None:
        """Note that the GPUs of a lease are measured, if they are."""
        if live.uses:
            self.used.add(live.lease.lease_id)

    def follow_steps(self, live: LiveLease, seen: LiveLease) -> None:
        """Copy steps and use of a lease to ``seen``, its copy in these leases."""
        seen.steps_done, seen.steps_live = live.steps_done, live.steps_live
        seen.counted, seen.mark, seen.told = live.counted, live.mark, live.told
        seen.first_step_noted = live.first_step_noted
        seen.launch_timed, seen.launch_s = live.launch_timed, live.launch_s
        if live.uses is not seen.uses:
            seen.uses, seen.gpu = live.uses, live.gpu
            self.note_use(seen)

    def restore_end(self, lease_id: int, node: str, end: MemberEnd) -> None:
        """Restore a member's end from before this process began, if the lease is in force."""
        live = self.by_id.get(lease_id)
        for member in () if live is None else live.members:
            if member.node == node:
                member.end, member.wanted, member.kept = end, False, True

    def restore_use(self, row: AttemptRow) -> None:
        """Restore the stored GPU use of a lease."""
        live = self.by_id.get(row.lease_id)
        if live is not None and row.gpu_told_s is not None:
            live.gpu = use_of(row)

    def take_uses(self) -> tuple[LeaseUse, ...]:
        """Return the GPU use that is not stored yet, and mark it as stored."""
        ids, self.unstored_use = sorted(self.unstored_use), set()
        return tuple(use for i in ids if (use := self.by_id[i].gpu) is not None)

    def held_by(self, node: str) -> Iterator[tuple[LiveLease, Member]]:
        """Yield the leases that have members on a node, by id."""
        for lease_id in sorted(self.on_node.get(node, ())):
            live = self.by_id[lease_id]
            for member in live.members:
                if member.node == node:
                    yield live, member

    def overdue(self, now_s: float, *, after_s: float) -> list[LiveLease]:
        """Return leases with a promised deadline more than ``after_s`` in the past."""
        if now_s <= self.earliest_s + after_s:
            return []
        self.earliest_s = min((live.promised_s for live in self.by_id.values()), default=math.inf)
        late = (live for live in self.by_id.values() if now_s > live.promised_s + after_s)
        return sorted(late, key=lambda live: live.lease.lease_id)


def use_of(row: AttemptRow) -> LeaseUse:
    """Return the GPU use in a stored lease."""
    return LeaseUse(
        lease_id=row.lease_id,
        gpu_used_us=row.gpu_used_us,
        gpu_measured_us=row.gpu_measured_us,
        gpu_told_s=row.gpu_told_s,
        gpu_marks=row.gpu_marks,
    )


def members_of(lease: Lease, node_of: Callable[[int], tuple[str, int]]) -> tuple[Member, ...]:
    """Split a lease's workers by node; ranks follow the order of the workers.

    Args:
        lease: the lease.
        node_of: worker index -> (node, local index).
    """
    by_node: dict[str, list[int]] = {}
    for worker in lease.workers:
        node, local = node_of(worker)
        by_node.setdefault(node, []).append(local)
    members = []
    rank = 0
    for node, local_indices in by_node.items():
        members.append(Member(node=node, local=tuple(local_indices), rank=rank))
        rank += len(local_indices)
    return tuple(members)
