"""Retry while the scheduler is away: backoff, and when to give up."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_DELAY_S: Final = 5.0


def delay_s(tries: int, *, at_least_s: float = 0.0) -> float:
    """Return a backoff that grows with each try, with jitter."""
    backoff = min(0.1 * 2.0 ** min(tries, 10), _LONGEST_DELAY_S)
    return at_least_s + backoff * random.uniform(0.5, 1.0)  # noqa: S311 - spreads, hides nothing


class Outage:
    """A period without an answer, or only with answers that there is no leader yet.

    The caller has reached the scheduler before, so silence means that it restarts.

    Args:
        most_s: how long to retry; None for no limit.
        tell: called once with the error, at the second failure in a row.
    """

    def __init__(
        self,
        *,
        most_s: float | None = None,
        tell: Callable[[Exception], object] | None = None,
    ) -> None:
        self._most_s = most_s
        self._tell = tell
        self._began_s: float | None = None
        self._tries = 0

    def over(self) -> None:
        """Record that the scheduler has answered."""
        self._began_s, self._tries = None, 0

    def delay_s(self, error: Exception | None, *, at_least_s: float = 0.0) -> float:
        """Return how long to wait before the next try.

        Args:
            error: error of the last try; None if an answer ended too early.
            at_least_s: wait that the scheduler asked for.

        Raises:
            Exception: the error, if that was the last try.
            EOFError: that was the last try, and there is no error.
        """
        now_s = time.monotonic()
        self._began_s = now_s if self._began_s is None else self._began_s
        if self._most_s is not None and now_s - self._began_s >= self._most_s:
            raise error or EOFError
        if error is not None and self._tries == 1 and self._tell is not None:
            self._tell(error)
        found_s = delay_s(self._tries, at_least_s=at_least_s)
        self._tries += 1
        return found_s
