"""Log lines for a call that fails for a while: at the beginning, seldom after that, at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

#: The second line comes after so long, the next after twice as long, and so on, up to the maximum.
AGAIN_S: Final = 10.0
AGAIN_MOST_S: Final = 600.0


class OutageLog:
    """Logs failures of one kind of call that is tried again until it succeeds.

    Args:
        log: the logger.
        text: what fails, such as "the leadership could not be renewed".
        now: seconds on a clock that does not run backwards.
    """

    def __init__(self, log: logging.Logger, text: str, *, now: Callable[[], float]) -> None:
        self._log, self._text, self._now = log, text, now
        self._since_s: float | None = None
        self._due_s = self._pause_s = 0.0

    def failed(self, error: Exception) -> None:
        """Log a failure, unless one was logged just now."""
        now_s = self._now()
        if self._since_s is None:
            self._since_s = now_s
            self._pause_s = AGAIN_S
        elif now_s < self._due_s:
            return
        else:
            self._pause_s = min(2.0 * self._pause_s, AGAIN_MOST_S)
        self._due_s = now_s + self._pause_s
        self._log.warning("%s, trying again: %s", self._text, error)

    def over(self) -> None:
        """Note a success; log it if it was the first one after failures."""
        if self._since_s is None:
            return
        self._log.info("over after %.0f s: %s", self._now() - self._since_s, self._text)
        self._since_s = None
