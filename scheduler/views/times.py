"""Spans and moments of time as people write and read them."""

from __future__ import annotations

import math
import re
import time
from datetime import datetime
from typing import Final

from scheduler.domain.jobs.fields import LATEST_S
from scheduler.errors import InputError

#: Seconds -> words for them, the largest first; ``M`` alone could be months.
_WORDS: Final = {
    604_800.0: "w week weeks",
    86_400.0: "d day days",
    3600.0: "h hr hrs hour hours",
    60.0: "m min mins minute minutes",
    1.0: "s sec secs second seconds",
}
_UNITS: Final = {word: seconds for seconds, words in _WORDS.items() for word in words.split()}
_PIECE: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([a-zA-Z]*)")
#: A bare number of this size, some four months, is rather a date, or a time since the epoch.
_NO_SPAN: Final = 1e7
#: A bare number that may be meant as a year.
_YEAR: Final = re.compile(r"(19|20)\d\d")


def parse_span(text: str, *, name: str) -> float:
    """Return seconds: ``90``, ``45s``, ``10min``, ``1h30m``, ``2 days``.

    Args:
        text: the user's text; a bare number means seconds. Units come once each, the largest first.
        name: of the option or field, for the message.

    Raises:
        InputError: the text is not a span.
    """
    rest, seconds, smallest = text.strip(), 0.0, math.inf
    bare = _PIECE.fullmatch(rest)
    if bare and not bare[2]:
        return float(bare[1])
    while rest:
        piece = _PIECE.match(rest)
        unit = None if piece is None or piece[2] == "M" else _UNITS.get(piece[2].lower())
        if piece is None or unit is None or unit >= smallest:
            break
        seconds, smallest = seconds + float(piece[1]) * unit, unit
        rest = rest[piece.end() :].strip()
    else:
        if text.strip():
            return seconds
    raise InputError(f"{name} is '{text}'; give seconds, or a span such as 45s, 10m, 1h30m or 2d")


def parse_moment(text: str, *, now_s: float, name: str) -> float:
    """Return seconds since the epoch: a span from now, or an ISO 8601 time.

    A time without a zone is local time.

    Args:
        text: ``2h``, ``2026-08-01T18:00``, ``2026-08-01 18:00+02:00``.
        now_s: start of a span.
        name: of the option or field, for the message.

    Raises:
        InputError: it is neither.
    """
    found_s = _moment(text, now_s, 1.0, name)
    if found_s is None:
        raise InputError(
            f"{name} is '{text}'; give a span from now such as 2h, or a time such as "
            "2026-08-01T18:00+02:00"
        )
    return found_s


def parse_past(text: str, *, now_s: float, name: str) -> float:
    """Return seconds since the epoch: a span before now, or an ISO 8601 time; never below 0.

    Raises:
        InputError: it is neither.
    """
    found_s = _moment(text, now_s, -1.0, name)
    if found_s is None:
        raise InputError(
            f"{name} is '{text}'; give a span before now such as 2h, or a time such as "
            "2026-08-01T18:00+02:00"
        )
    return max(found_s, 0.0)


def _moment(text: str, now_s: float, sign: float, name: str) -> float | None:
    """Return seconds since the epoch of a span from now, or of a time; None for other text.

    Raises:
        InputError: it is later than the largest possible time.
    """
    try:
        span_s = parse_span(text, name=name)
    except InputError:
        try:
            found_s = _timestamp(text.strip(), name)
        except (ValueError, OverflowError):
            return None
    else:
        if span_s >= _NO_SPAN and text.strip()[-1].isdigit():
            raise InputError(
                f"{name} is '{text}', which could be seconds from now, seconds since 1970, or a "
                "date; give a span such as 2h, or a time such as 2026-08-01T18:00+02:00"
            )
        if _YEAR.fullmatch(text.strip()):
            raise InputError(
                f"{name} is '{text}', which could be seconds or a year; give {text.strip()}s, or "
                "a time such as 2026-08-01T18:00+02:00"
            )
        found_s = now_s + sign * span_s
    if found_s > LATEST_S:
        raise InputError(f"{name} is '{text}'; give a time before {format_given_time(LATEST_S)}")
    return found_s


def _timestamp(text: str, name: str) -> float:
    """Return seconds since the epoch of an ISO 8601 time.

    Raises:
        ValueError: it is none.
        InputError: the local zone has no such time, or has it twice, since clocks were changed.
    """
    given = datetime.fromisoformat(text)
    found_s = given.timestamp()
    if given.tzinfo is None:
        later_s = given.replace(fold=1).timestamp()
        if datetime.fromtimestamp(found_s) != given:  # noqa: DTZ006 - the local zone is meant
            raise InputError(
                f"{name} is '{text}', and clocks here skip that time; give another one, or one "
                f"with its zone such as {format_given_time(found_s)}"
            )
        if later_s != found_s:
            raise InputError(
                f"{name} is '{text}', and clocks here show that time twice; give "
                f"{format_given_time(found_s)} or {format_given_time(later_s)}"
            )
    return found_s


def parse_deadline(text: str, *, name: str) -> dict[str, float]:
    """Return the field of a job with its deadline; a span counts from now.

    A time rather than ``deadline_in_s``, because a request that is sent again has to be the same.

    Raises:
        InputError: it is neither a span nor a time.
    """
    return {"deadline_s": parse_moment(text, now_s=time.time(), name=name)}


def format_given_time(at_s: float) -> str:
    """Write a time as people give it: ``2026-08-01T18:00:00+02:00``, in the local zone."""
    return datetime.fromtimestamp(at_s).astimezone().isoformat(timespec="seconds")


def format_span(seconds: float | None) -> str:
    """Write a span with its two largest units: ``45s``, ``3m20s``, ``2h05m``, ``3d04h``."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    sign, whole = ("-" if seconds < -0.5 else ""), round(abs(seconds))
    if whole < 60:
        return f"{sign}{whole}s"
    minutes, s = divmod(whole, 60)
    if minutes < 60:
        return f"{sign}{minutes}m{s:02d}s"
    hours, m = divmod(minutes, 60)
    if hours < 24:
        return f"{sign}{hours}h{m:02d}m"
    days, h = divmod(hours, 24)
    return f"{sign}{days}d{h:02d}h"


def format_ago(at_s: float | None, now_s: float) -> str:
    """Write how long ago something was, or, with ``in``, when it will be."""
    if at_s is None:
        return ""
    return (
        f"in {format_span(at_s - now_s)}"
        if at_s > now_s + 1
        else format_span(max(now_s - at_s, 0.0))
    )


def format_moment(at_s: float | None) -> str:
    """Write a time in the local zone, to the second."""
    if at_s is None:
        return ""
    return datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def format_when(at_s: float | None, now_s: float) -> str:
    """Write a time in the local zone, and how far it is from now."""
    if at_s is None:
        return ""
    past = "" if at_s > now_s + 1 else " ago"
    return f"{format_moment(at_s)} ({format_ago(at_s, now_s)}{past})"


def format_clock(at_s: float) -> str:
    """Write the time of day in the local zone."""
    return datetime.fromtimestamp(at_s).astimezone().strftime("%H:%M:%S")
