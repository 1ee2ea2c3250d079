"""Urgency: who of those that X owes time must come first, and who of the others goes before whom.

Rounds follow X within a band. What is far behind is urgent and comes first, by how far it is
behind. Of all others, up to so far ahead of X, the job comes first that ends soonest: it leaves its
workers to the others for good, and nobody's time is counted anew for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.engine.jobs import JobTable

#: A job may be behind by a round, and by so many more for each round of work that it has left: who
#: ends soon has no time to make up for it.
GRANTED: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """How far what runs may depart from X.

    Attributes:
        round_s: length of a round.
        behind: rounds behind X from which on anything is urgent, however much it has left; >= 1.
        ahead: rounds ahead of X up to which a configuration may be.
    """

    round_s: float
    behind: float
    ahead: float

    @property
    def by_lag(self) -> bool:
        """Whether there is no band: who is further behind goes first."""
        return self.behind <= 1.0 and self.ahead <= 0.0

    @property
    def ahead_s(self) -> float:
        """Seconds ahead of X up to which a configuration may be."""
        return self.ahead * self.round_s

    def allowed_s(self, left_s: FloatArray) -> FloatArray:
        """Return (C,) by how many seconds something may be behind before it is urgent.

        Args:
            left_s: (C,) seconds of work that it has left.
        """
        own = self.round_s + GRANTED * left_s
        result: FloatArray = np.minimum(self.behind * self.round_s, own)
        return result


def time_left_s(jobs: JobTable, table: ConfigurationTable, *, by_lengths: bool) -> FloatArray:
    """Return (N,) seconds that each job is expected to go on where it is fastest.

    Args:
        jobs: the job table.
        table: configurations by profile.
        by_lengths: whether the policy may know how long jobs take. If not, a job is expected to go
            on for as long as it has run.
    """
    result: FloatArray
    if not by_lengths:
        result = jobs["attained_worker_s"] / np.maximum(jobs["scale_factor"], 1)
        return result
    fastest = table.throughput.max(axis=1, initial=0.0)[jobs["profile"]]
    result = jobs.steps_left() / np.maximum(fastest, 1e-300)
    return result
