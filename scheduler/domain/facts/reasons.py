"""Why a job does not run: one enumeration for explanations, lists and metrics."""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class WaitReason(enum.StrEnum):
    """Why a job waits, in order of precedence: what the user must change comes first.

    The order of the members is the precedence: where several hold, the first one is the answer.
    """

    HELD = "held"  #: a user holds it; release it
    DEPENDENCY = "dependency"  #: jobs that it depends on have not completed
    QUOTA = "quota"  #: its project uses all that it may
    BUDGET = "budget"  #: its project has used up its budget of the month
    NO_THROUGHPUT = "no_throughput"  #: it runs on none of the cluster's worker types
    NO_WORKERS = "no_workers"  #: the cluster has no workers of its types
    TOO_LARGE = "too_large"  #: its gang is larger than the cluster
    WORKERS_OUT = (
        "workers_out"  #: enough workers exist, but too few are in service and not cordoned
    )
    RESERVATION = "reservation"  #: workers that it could have are kept for another owner
    BACKOFF = "backoff"  #: it failed, or was lost several times in a row; it is tried again later
    STOPPING = "stopping"  #: its last lease is coming to an end
    NO_ALLOCATION = "no_allocation"  #: the policy has not answered since it came
    NO_SHARE = "no_share"  #: the policy gives it no time now
    IDLING = "idling"  #: the policy keeps idle workers idle on purpose
    PLACEMENT = "placement"  #: its turn has come, but no workers fit it at the moment
    TURN = "turn"  #: other jobs go first for now; its turn comes


#: A bit for each reason, in order of precedence, for columns with several reasons of a job.
BITS: Final[Mapping[WaitReason, int]] = MappingProxyType(
    {reason: 1 << place for place, reason in enumerate(WaitReason)}
)


def reasons_in(bits: int) -> tuple[WaitReason, ...]:
    """Return the reasons of a column's bits, in order of precedence."""
    return tuple(reason for reason, bit in BITS.items() if bits & bit)
