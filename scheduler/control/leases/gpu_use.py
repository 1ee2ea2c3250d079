"""How much the GPUs of a lease have computed: what nodes tell of it, added up for the ledger.

Nodes tell sums since their agent began to look, so a report that is lost or comes twice changes
nothing. An agent that starts anew begins at 0, and a scheduler that does goes on from what it has
stored: what was told last by each part of a gang is stored with the sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.domain.rows import LeaseUse

if TYPE_CHECKING:
    from scheduler.control.state.leases import LiveLease, Member
    from scheduler.protocol.gpu_use import GpuUse

_US: Final = 1_000_000


def add_told(live: LiveLease, member: Member, told: GpuUse, now_s: float) -> LeaseUse | None:
    """Return what the GPUs of a lease have computed, after one of its nodes has told.

    No node is believed that it looked at more GPUs, or for longer, than it has had of the lease.

    Args:
        live: the lease, with what was known before.
        member: the part that lies on the node.
        told: what the node's agent tells.
        now_s: when.
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
        was_used, was = 0, 0  # another agent has begun to look
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
