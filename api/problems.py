"""Errors as problem details (RFC 9457)."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, get_args

from starlette.exceptions import HTTPException

from api.answers import Answer, short_json
from api.patterns import IN_WORDS
from api.redaction import redact
from scheduler.domain.jobs.spec import JOB_FIELDS
from scheduler.errors import (
    AdmissionError,
    ConflictError,
    InputError,
    NotFoundError,
    NotLeadingError,
    OutcomeUnknownError,
    SequenceError,
    StaleLeaderError,
    StartingError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    UnstorableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Bad fields that one answer lists at most.
MOST_ERRORS = 100
#: Unknown fields for which one answer suggests another at most, and the longest of them.
MOST_SUGGESTED: Final = 5
_LONGEST_NEAR: Final = 40
#: Content type of every error.
PROBLEM = "application/problem+json"

_CODES = {
    400: "malformed",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    421: "misdirected",
    422: "invalid",
    429: "rate_limited",
    503: "unavailable",
}
#: Message to users about a full disk; the operator's log and /readyz name the place.
_FULL = (
    "the scheduler's database cannot be written, because its disk is full; nothing was done; an "
    "operator has to make room, then try again"
)
_UNKNOWN = (
    "it is not known yet whether this was stored; look later, or send it again under the same "
    "client id"
)
_SECRETS = {"secret", "token", "authorization"}
#: A field with secret values, for all names.
_HIDDEN = "secret_env"
_PLACES = {"body", "query", "path", "header"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    """The fault of one field.

    Attributes:
        field: its path, as in ``scale_factor.0``; empty for the request as a whole.
        value: the given value, which answers shorten.
        problem: the fault, and the right form.
    """

    field: str
    value: Any
    problem: str


class ProblemError(HTTPException):
    """A request that is refused with a problem document.

    Args:
        status: HTTP status.
        detail: the cause, the value, and the remedy.
        code: short name of the kind of problem; by status unless given.
        errors: the bad fields.
        headers: further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str = "",
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.code = code
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicError:
    """The public form of an error; the attributes are ``ProblemError``'s."""

    status: int
    detail: str
    code: str = ""
    errors: tuple[FieldProblem, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self, instance: str = "") -> dict[str, Any]:
        """Return the problem document."""
        code = self.code or _CODES.get(self.status, "error")
        return {
            "type": f"urn:leasehold:problem:{code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": redact(self.detail),
            "instance": instance,
            "errors": [
                {"field": e.field, "value": short_json(e.value), "problem": e.problem}
                for e in self.errors
            ],
        }

    def answer(self, instance: str = "") -> Answer:
        """Return the answer to the request that met it."""
        return Answer(
            self.document(instance), self.status, headers=self.headers, media_type=PROBLEM
        )


def fault_of(error: Exception) -> PublicError | None:
    """Return the public form of an error; None for a bug, which has no public details."""
    if isinstance(error, ProblemError):
        return PublicError(
            status=error.status_code,
            detail=error.detail,
            code=error.code,
            errors=error.errors,
            headers=error.headers or {},
        )
    if isinstance(error, HTTPException):
        return PublicError(
            status=error.status_code, detail=error.detail, headers=error.headers or {}
        )
    if isinstance(error, NotLeadingError):
        code = "starting" if isinstance(error, StartingError) else "not_leading"
        return PublicError(status=503, detail=str(error), code=code, headers={"Retry-After": "2"})
    if isinstance(error, StoreUnavailableError | SequenceError | StaleLeaderError):
        return _store_fault(error)
    statuses: tuple[tuple[type[Exception], int, str], ...] = (
        (NotFoundError, 404, ""),
        (ConflictError, 409, ""),
        (AdmissionError, 422, "refused"),
        (InputError, 422, ""),
        (UnstorableError, 422, "unstorable"),
    )
    for kind, status, code in statuses:
        if isinstance(error, kind):
            return PublicError(status=status, detail=str(error), code=code)
    return None


def _store_fault(error: StoreError) -> PublicError:
    cause = error.failure if isinstance(error, OutcomeUnknownError) else error
    full = isinstance(cause, StoreFullError)
    if cause is not error:
        why = "cannot be written, because its disk is full" if full else "cannot be used now"
        detail = f"the scheduler's database {why}; {_UNKNOWN}"
    elif full:
        detail = _FULL
    else:
        detail = "the store cannot be used at the moment; try again in some seconds"
    return PublicError(status=503, detail=detail, headers={"Retry-After": "10" if full else "2"})


def internal_error(request_id: str) -> PublicError:
    """Return the public form of a bug: the id under which the log has details."""
    return PublicError(
        status=500,
        detail=f"the scheduler failed at this request; see its log under '{request_id}'",
        code="internal",
    )


def rate_limited(wait_s: float, *, cause: str = "too many requests") -> ProblemError:
    """Return the refusal of a caller that asks too often, or sends too much."""
    seconds = max(1, math.ceil(wait_s))
    return ProblemError(
        429,
        f"{cause}; try again in {seconds} s",
        headers={"Retry-After": str(seconds)},
    )


#: Kinds of pydantic's errors -> message for users.
_SAID: Final[Mapping[str, str]] = {
    "extra_forbidden": "unknown field; leave it out",
    "missing": "is needed",
    "json_invalid": "is not JSON: {error}",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be names with values",
    "mapping_type": "must be names with values",
    "model_type": "must be names with values",
    "model_attributes_type": "must be names with values",
    "too_short": "must have at least {min_length} entries, and has {actual_length}",
    "too_long": "must have at most {max_length} entries, and has {actual_length}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "none_required": "must be left out",
}


#: If there are more known words than these, the one that may be meant is named before them.
_MOST_WORDS: Final = 12
#: Fields that hold one value or a list -> the form of their values.
_ONE_OR_MORE: Final = {"scale_factor": "must be a whole number, or a list of them"}
#: Option of ``leasehold submit``, or a usual word for it -> the field of a job.
_OF_OPTIONS: Final = {
    known.flag.strip("-").replace("-", "_"): known.name for known in JOB_FIELDS if known.flag
} | {
    "dependencies": "depends_on",
    "gpus": "scale_factor",
    "types": "worker_types",
    "worker_type": "worker_types",
}
#: What lists the things of a kind.
_LISTED: Final = {
    "job": "leasehold jobs --all",
    "node": "leasehold nodes",
    "policy": "leasehold policy list",
    "reservation": "leasehold reservation list",
    "token": "leasehold token list",
    "webhook": "leasehold webhook list",
}


def not_found(what: str, name: str) -> ProblemError:
    """Return the answer for a name that does not exist, or not for this caller."""
    return ProblemError(404, f"there is no {what} '{name}'; `{_LISTED[what]}` lists them")


def invalid_request(problems: Sequence[FieldProblem]) -> ProblemError:
    """Return the refusal of a request with bad fields."""
    names = ", ".join(f"'{p.field}'" if p.field else "the body" for p in problems[:5])
    more = ", ..." if len(problems) > 5 else ""
    return ProblemError(
        422, f"{names}{more} cannot be used; 'errors' says why", errors=problems[:MOST_ERRORS]
    )


def field_problems(errors: Iterable[Mapping[str, Any]], model: Any = None) -> list[FieldProblem]:
    """Convert pydantic's errors to field problems: path, value, fault.

    Args:
        errors: of one value.
        model: the type of that value, which names near an unknown one are taken from.
    """
    found: dict[str, FieldProblem] = {}
    suggested = 0
    for error in errors:
        path = list(error["loc"])
        if path and path[0] in _PLACES:
            del path[0]
        if error["type"] == "json_invalid":
            path = []
        name = ".".join(str(part) for part in path)
        words = _words(error, path)
        if error["type"] == "extra_forbidden" and suggested < MOST_SUGGESTED:
            suggested += 1
            known = names_at(model, path[:-1])
            meant = _OF_OPTIONS.get(str(path[-1]).replace("-", "_"), "")
            words = (
                f"unknown field; did you mean '{meant}'?"
                if meant in known
                else unknown("field", path[-1], known)
            )
        found.setdefault(name, FieldProblem(field=name, value=_value(error, path), problem=words))
    return list(found.values())


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """Return what is wrong with a name that is none of the known ones: the nearest of them."""
    text = str(name)
    near = difflib.get_close_matches(text, known, n=1) if len(text) <= _LONGEST_NEAR else []
    return f"unknown {what}; did you mean '{near[0]}'?" if near else f"unknown {what}; leave it out"


def names_at(model: Any, path: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of the fields at a path into a value of a type; none if it has no fields."""
    for part in (None, *path):
        fields = {} if part is None else getattr(model, "model_fields", {})
        if part in fields:
            model = fields[part].annotation
        while not hasattr(model, "model_fields") and get_args(model):  # "X | None", lists, mappings
            found = [one for one in get_args(model) if one is not type(None)]
            model = found[-1] if found else None
    fields = getattr(model, "model_fields", {})
    return tuple(one.alias or name for name, one in fields.items())


def _value(error: Mapping[str, Any], path: list[Any]) -> Any:
    if error["type"] in {"missing", "json_invalid"}:
        return None
    return "***" if _is_secret(path) else _blotted(error.get("input"))


def _blotted(value: Any) -> Any:
    """Return the given value with secret variables masked, for one job or many."""
    if isinstance(value, list):
        return [_blotted(item) for item in value]
    if isinstance(value, dict) and _HIDDEN in value:
        return value | {_HIDDEN: "***"}
    return {k: _blotted(v) for k, v in value.items()} if isinstance(value, dict) else value


def _is_secret(path: Sequence[Any]) -> bool:
    return bool(path) and (path[-1] in _SECRETS or _HIDDEN in path)


def _words(error: Mapping[str, Any], path: Sequence[Any]) -> str:
    if error["type"] == "string_type":
        hidden = _is_secret(path)
        return "must be text; put it in quotes" if hidden else _no_text(error.get("input"))
    if error["type"] == "string_too_short" and error.get("ctx", {}).get("min_length") == 1:
        return "must not be empty"
    if error["type"] == "string_pattern_mismatch":
        return IN_WORDS[error["ctx"]["pattern"]]
    ours = _SAID.get(error["type"])
    if error["type"] in {"enum", "literal_error"}:
        ours = _of_words(error)
    elif error["type"] == "list_type" and path:
        ours = _ONE_OR_MORE.get(path[-1], ours)
    if ours is not None:
        return ours.format_map(_Limits(error.get("ctx", {})))
    text = str(error["msg"])
    return text.removeprefix("Value error, ")


class _Limits(dict[str, Any]):
    """What pydantic says beside an error; a name that is not there stays empty."""

    def __missing__(self, key: str) -> str:
        return ""


def _of_words(error: Mapping[str, Any]) -> str:
    """Return the known words, after the one that may be meant if there are many."""
    words, given = re.findall(r"'([^']*)'", str(error["ctx"]["expected"])), error.get("input")
    if len(words) <= _MOST_WORDS or not isinstance(given, str) or len(given) > _LONGEST_NEAR:
        return "must be {expected}"
    near = difflib.get_close_matches(given.replace(".", "_"), words, n=1)
    return f"did you mean '{near[0]}'? It must be {{expected}}" if near else "must be {expected}"


def _no_text(value: Any) -> str:
    """Return advice to quote a value in YAML or JSON, so that it is text."""
    if isinstance(value, bool):
        words = '"true", "yes" or "on"' if value else '"false", "no" or "off"'
        return f"must be text; put it in quotes, such as {words}"
    if isinstance(value, int | float):
        return f'must be text; put it in quotes, such as "{str(value)[:40]}"'
    return "must be text"
