"""Keep secrets out of the logs."""

from __future__ import annotations

import logging
import re

#: Advice says ``Bearer TOKEN``, which is no secret.
_SECRET = re.compile(
    r"(\blhe?_|\beyJ)[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)*|(\bbearer\s+)(?!(?-i:TOKEN)(?![^\s\"',;]))[^\s\"',;]+",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """Return a text with every token and enrolment secret masked."""
    return _SECRET.sub(lambda found: (found[1] or found[2]) + "***", text)


class RedactingFilter(logging.Filter):
    """Masks secrets in the messages and tracebacks of log records.

    A logger's filter sees only that logger's records; put it on handlers to cover all.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, cleaned."""
        record.msg, record.args = redact(record.getMessage()), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redact(record.exc_text)
        return True


def redact_loggers(*names: str) -> None:
    """Put the filter on loggers that do not have it yet."""
    for name in names:
        logger = logging.getLogger(name)
        if not any(isinstance(known, RedactingFilter) for known in logger.filters):
            logger.addFilter(RedactingFilter())
