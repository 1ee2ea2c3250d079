"""GPU use of a lease: nodes' reports, added up for the ledger.

Nodes report sums since their agent began to measure, so a report that is lost or repeated changes
nothing. A restarted agent begins at 0. A restarted scheduler continues from its stored sums: the
last report of each member of a gang is stored with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.domain.rows import LeaseUse

if TYPE_CHECKING:
    from scheduler.control.state.leases import LiveLease, Member
    from scheduler.protocol.gpu_use import GpuUse

_US: Final = 1_000_000


def add_reported_use(
    live: LiveLease, member: Member, told: GpuUse, now_s: float
) -> LeaseUse | None:
    """Return the GPU use of a lease after a report of one of its nodes.

    A node's figures are cut to the GPUs and the time that it has had of the lease.

    Args:
        live: the lease, with its use so far.
        member: the member on the node.
        told: the report of the node's agent.
        now_s: its time.
    """
    before = live.gpu or LeaseUse(lease_id=live.lease.lease_id)
    held_s = max(now_s - live.lease.start_s, 0.0)
    measured = int(min(told.measured_s, held_s * len(member.local)) * _US)
    used = min(int(min(told.used_s, held_s * len(member.local)) * _US), measured)
    marks = {rank: (was_used, was) for rank, was_used, was in before.gpu_marks}
    was_used, was = marks.get(member.rank, (0, 0))
    if (used, measured) == (was_used, was):
        return live.gpu
    if used < was_used or measured < was:
        was_used, was = 0, 0  # another agent has begun to measure
    marks[member.rank] = used, measured
    most = int(held_s * len(live.lease.workers) * _US)
    all_measured = min(before.gpu_measured_us + measured - was, most)
    return LeaseUse(
        lease_id=before.lease_id,
        gpu_used_us=min(before.gpu_used_us + used - was_used, all_measured),
        gpu_measured_us=all_measured,
        gpu_told_s=now_s,
        gpu_marks=tuple((rank, *sums) for rank, sums in sorted(marks.items())),
    )
