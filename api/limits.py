"""Rate limits: one token bucket per caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.settings import RateLimit

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

    def take(self, caller: str, limit: RateLimit) -> float:
        """Take one request out of a caller's bucket.

        Returns:
            0.0 if there was one, else the seconds until there is.
        """
        now = self._monotonic()
        left = self._now_left(caller, limit, now)
        self._left.pop(caller, None)
        missing = 1.0 - left
        self._left[caller] = (left if missing > 0 else left - 1.0, now)
        if len(self._left) > MOST_BUCKETS:
            del self._left[next(iter(self._left))]
        return max(missing, 0.0) / limit.per_s

    def wait_s(self, caller: str, limit: RateLimit) -> float:
        """Return what ``take`` would return, and take nothing."""
        return max(1.0 - self._now_left(caller, limit, self._monotonic()), 0.0) / limit.per_s

    def _now_left(self, caller: str, limit: RateLimit, now: float) -> float:
        left, since = self._left.get(caller, (float(limit.burst), now))
        return min(float(limit.burst), left + (now - since) * limit.per_s)
