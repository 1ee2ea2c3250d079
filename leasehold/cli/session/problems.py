"""Convert the scheduler's problems to ``LeaseholdError``: one line each, a note per bad field."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli.session.wording import Wording, option_of, reword
from scheduler.domain.jobs.fields import LATEST_S
from scheduler.errors import (
    AdmissionError,
    AnswerError,
    ConflictError,
    InputError,
    LeaseholdError,
    NotFoundError,
    NotPermittedError,
    UnreachableError,
)
from scheduler.views.times import format_given_time, format_span

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Kinds of problems (the end of ``type``) that are not mistakes of the caller.
_REFUSALS: Final = frozenset({"refused", "quota"})
#: More bad fields than this are counted, not listed.
_MOST_FIELDS: Final = 50
#: Fields that are moments of time; other ones that end with ``_s`` are spans.
_MOMENTS: Final = frozenset({"deadline_s", "since_s", "until_s", "from_s"})
_BOUND: Final = re.compile(r"(must be (?:at least|at most|more than|less than) )([0-9.e+-]+)$")
#: In the scheduler's advice to programs.
_HEADER: Final = "Authorization: Bearer"
_BY_STATUS: Final[Mapping[int, type[LeaseholdError]]] = {
    400: InputError,
    401: NotPermittedError,
    403: NotPermittedError,
    404: NotFoundError,
    409: ConflictError,
    413: InputError,
    422: InputError,
    429: UnreachableError,
    307: UnreachableError,
    502: UnreachableError,
    503: UnreachableError,
    504: UnreachableError,
}


def error_of(
    status: int,
    problem: Mapping[str, Any],
    *,
    server: str,
    token: bool,
    wording: Wording = option_of,
) -> LeaseholdError:
    """Build the error for an answer.

    Args:
        status: of the answer, 400 or more (or a redirection, which is followed nowhere).
        problem: of the answer; without a title it does not come from a scheduler.
        server: the server that answered.
        token: whether a token was sent.
        wording: the user's names for the fields of the request.
    """
    named = "title" in problem
    if not named and _BY_STATUS.get(status) is UnreachableError:
        return UnreachableError(f"a proxy in front of {server} answered {status}")
    if not named:
        return AnswerError(
            f"{server} answered {status} and no problem that a scheduler would name; "
            "is that a Leasehold server?"
        )
    if status == 401 and (not token or _HEADER in str(problem.get("detail"))):
        return NotPermittedError(_about_token(server, sent=token))
    return problem_error({**problem, "status": status}, wording)


def _about_token(server: str, *, sent: bool) -> str:
    """Return how to give a token to the command line; the scheduler names the header of HTTP."""
    ways = "with --token-file FILE, in LEASEHOLD_TOKEN, or in client.toml"
    if not sent:
        return f"{server} needs a token, and none was given; give one {ways}"
    return f"{server} does not know the token: it is wrong, expired or revoked; give another {ways}"


def problem_error(problem: Mapping[str, Any], wording: Wording = option_of) -> LeaseholdError:
    """Build the error that a problem document describes."""
    kind = _BY_STATUS.get(problem.get("status", 500), AnswerError)
    # A job that can never run has valid fields; the cluster does not fit it.
    if str(problem.get("type", "")).rpartition(":")[2] in _REFUSALS:
        kind = AdmissionError
    error = kind(detail_of(problem, wording))
    for line in field_lines(problem, wording):
        error.add_note(line)
    return error


def detail_of(problem: Mapping[str, Any], wording: Wording = option_of) -> str:
    """Return the problem's detail, in the words of the command line."""
    words = [_word(entry, wording) for entry in _entries(problem)]
    if words:
        more = ", ..." if len(words) > 5 else ""
        return f"{', '.join(dict.fromkeys(words[:5]))}{more} cannot be used:"
    said = problem.get("detail") or problem.get("title") or "the request failed"
    return reword(str(said), wording)


def field_lines(problem: Mapping[str, Any], wording: Wording = option_of) -> list[str]:
    """Return one line per bad field of a problem or of a refused item."""
    entries = _entries(problem)
    lines = [_field_line(entry, wording) for entry in entries[:_MOST_FIELDS]]
    if len(entries) > _MOST_FIELDS:
        lines.append(f"... and {len(entries) - _MOST_FIELDS} more")
    return lines


def _entries(problem: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in problem.get("errors") or () if isinstance(entry, dict)]


def _word(entry: Mapping[str, Any], wording: Wording) -> str:
    # Here the name of an entry is wrong, not its value; the value repeats the name.
    field = str(entry.get("field") or "").removesuffix(".[key]")
    return wording(field) if field else "the request"


def _field_line(entry: Mapping[str, Any], wording: Wording) -> str:
    field = _word(entry, wording)
    said = reword(str(entry.get("problem") or "is wrong"), wording)
    # Of a rule about several fields the value is the whole request.
    if entry.get("value") is None or not entry.get("field"):
        return f"{field}: {said}"
    value, said = _as_typed(entry, said)
    return f"{field} is {value if len(value) <= 80 else value[:77] + '...'}: {said}"


def _as_typed(entry: Mapping[str, Any], said: str) -> tuple[str, str]:
    """Return a value and its fault, in the form in which users give such values."""
    value, root = entry["value"], str(entry["field"]).partition(".")[0]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return json.dumps(value, ensure_ascii=False), said
    form = _plain_number
    if root in _MOMENTS:
        form = _moment
    elif root.endswith("_s"):
        form = _span
    return form(value), _BOUND.sub(lambda found: found[1] + form(float(found[2])), said)


def _plain_number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:g}"


def _span(value: float) -> str:
    # Seconds are used while they are easy to read.
    return f"{_plain_number(value)}s" if value < 60 or value % 60 else format_span(value)


def _moment(value: float) -> str:
    return format_given_time(value) if 0.0 < value <= LATEST_S else _plain_number(value)
