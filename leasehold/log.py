"""The daemon's log on standard error: lines for people, or JSON objects for programs."""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import sys
import traceback
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Libraries that log every request or statement at ``info``.
_TALKATIVE = ("httpx", "httpcore", "alembic", "uvicorn")
#: Characters that a terminal acts upon.
_ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
#: Logs a line for every request; with a thousand agents that is a thousand a second.
_REQUESTS = "leasehold.access"


class LineFormatter(logging.Formatter):
    """``2026-11-21T05:38:04.123Z warning leasehold.driver: text``, in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line, with a traceback below it if there is one."""
        # A log line begins with its time; a job's text must not look like a log line.
        message = visible(record.getMessage()).replace("\n", "\n    ")
        head = f"{_time(record)} {record.levelname.lower()} {record.name}: {message}"
        return "\n".join([head, *map(visible, _trace(record))])


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ``time``, ``level``, ``logger``, ``message``.

    A record of a request carries its figures in ``request``, one of a failure its traceback in
    ``exception``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as an object."""
        fields: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if isinstance(request := getattr(record, "request", None), dict):
            fields["request"] = request
        if trace := _trace(record):
            fields["exception"] = "\n".join(trace)
        return visible(json.dumps(fields, ensure_ascii=False))


def visible(text: str) -> str:
    """Escape control characters and writing directions, except tabs and line ends.

    The text may come from jobs and unknown callers, and a terminal may show it.
    """
    return _ACTIVE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def set_up_logging(
    *,
    level: str = "info",
    as_json: bool = False,
    requests: bool = True,
    filters: Sequence[logging.Filter] = (),
    stream: IO[str] | None = None,
) -> None:
    """Send everything that is logged to one place; for composition roots, once.

    Args:
        level: least severity, in small letters.
        as_json: objects rather than lines.
        requests: whether every request is logged.
        filters: filters of the handler, so that they see the records of every logger.
        stream: standard error by default.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
    for one in filters:
        handler.addFilter(one)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger(_REQUESTS).setLevel(logging.NOTSET if requests else logging.WARNING)


def _time(record: logging.LogRecord) -> str:
    moment = dt.datetime.fromtimestamp(record.created, tz=dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(record.msecs):03d}Z"


def _trace(record: logging.LogRecord) -> list[str]:
    """Return the record's traceback; a filter may have written (and cleaned) it already."""
    if record.exc_text:
        return [record.exc_text]
    if record.exc_info and record.exc_info[0] is not None:
        return ["".join(traceback.format_exception(*record.exc_info)).rstrip()]
    return []
