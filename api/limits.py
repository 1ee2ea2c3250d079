"""Rate limits: one token bucket per caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from api.problems import rate_limited
from api.settings import RateLimit

if TYPE_CHECKING:
    from collections.abc import Callable

#: Requests of one node's agent. It sends the output of a stream once a second: 64 leases that print
#: to both streams make 128 requests a second.
NODE_REQUESTS: Final = RateLimit(per_s=500.0, burst=2000)
#: Kilobytes of one node's reports; the largest well-formed one has 5,400.
NODE_REPORTS_KB: Final = RateLimit(per_s=2000.0, burst=16_000)
#: Callers that are remembered; the longest silent one is forgotten first.
MOST_BUCKETS = 20_000


class Buckets:
    """Token buckets by caller.

    Args:
        monotonic: seconds on a clock that never runs backwards.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        #: caller -> requests left, and when that was; the caller seen last is the last one.
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, caller: str, limit: RateLimit, *, amount: float = 1.0) -> float:
        """Take one request, or another amount, out of a caller's bucket.

        Returns:
            0.0 if there was as much, else the seconds until there is.
        """
        now, amount = self._monotonic(), min(amount, float(limit.burst))
        left = self._now_left(caller, limit, now)
        self._left.pop(caller, None)
        missing = amount - left
        self._left[caller] = (left if missing > 0 else left - amount, now)
        if len(self._left) > MOST_BUCKETS:
            del self._left[next(iter(self._left))]
        return max(missing, 0.0) / limit.per_s

    def take_request_of_node(self, node: str) -> None:
        """Count a request of a node's agent.

        Raises:
            ProblemError: it sends too many.
        """
        if (wait_s := self.take(f"node {node}", NODE_REQUESTS)) > 0:
            raise rate_limited(wait_s)

    def take_report_of_node(self, node: str, size: int) -> None:
        """Count a report of a node's agent.

        Args:
            node: the node.
            size: bytes of the report.

        Raises:
            ProblemError: it sends too much.
        """
        amount = max(size / 1000.0, 1.0)
        if (wait_s := self.take(f"reports {node}", NODE_REPORTS_KB, amount=amount)) > 0:
            cause = f"more than {NODE_REPORTS_KB.per_s / 1000:.0f} MB of reports a second"
            raise rate_limited(wait_s, cause=cause)

    def wait_s(self, caller: str, limit: RateLimit) -> float:
        """Return what ``take`` would return, and take nothing."""
        return max(1.0 - self._now_left(caller, limit, self._monotonic()), 0.0) / limit.per_s

    def _now_left(self, caller: str, limit: RateLimit, now: float) -> float:
        left, since = self._left.get(caller, (float(limit.burst), now))
        return min(float(limit.burst), left + (now - since) * limit.per_s)
