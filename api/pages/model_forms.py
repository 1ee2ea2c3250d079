"""Forms of a page from the bodies of the REST interface: a field for each, and their values."""

from __future__ import annotations

import csv
import enum
import io
import types
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic_core import PydanticUndefined

from scheduler.errors import InputError
from scheduler.views.times import format_span, parse_moment, parse_span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel


class Kind(enum.StrEnum):
    """How a value is written."""

    TEXT = "text"
    NUMBER = "number"
    FLAG = "flag"
    CHOICE = "choice"
    LIST = "list"  #: separated by commas; ``none`` if an empty list differs from null
    PAIRS = "pairs"  #: NAME=NUMBER, separated by commas
    SPAN = "span"  #: ``45s``, ``2d``
    MOMENT = "moment"  #: a span from now, or a time with its zone


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """A field of a form.

    Attributes:
        name: as in the body.
        kind: how its value is written.
        help: a few words about it.
        needed: whether it must be given.
        takes_null: whether an empty field differs from an empty list.
        choices: its values, of a choice.
        value: what the form shows at first.
    """

    name: str
    kind: Kind
    help: str
    needed: bool
    takes_null: bool = False
    choices: tuple[str, ...] = ()
    value: str = ""


#: Text for an empty list, if that differs from null.
_EMPTY = "none"
#: Words of clauses that are about a body in JSON.
_OF_JSON = ("null", "left out", "Unix seconds")
#: Fields that are times -> how they are written.
_TIMES: Mapping[str, Kind] = {
    "ttl_s": Kind.SPAN,
    **dict.fromkeys(("from_s", "until_s", "deadline_s"), Kind.MOMENT),
}


def fields_of(
    model: type[BaseModel],
    values: Mapping[str, Any] | None = None,
    *,
    words: Mapping[str, str] | None = None,
) -> list[FormField]:
    """Return the fields of a form for a body.

    Args:
        model: the body.
        values: what the form shows at first; texts as they were written.
        words: field -> words about it, in place of the body's own.
    """
    given = values or {}
    found = []
    for name, field in model.model_fields.items():
        kind, choices = _kind_of(name, field.annotation)
        default = None if field.default is PydanticUndefined else field.default
        found.append(
            FormField(
                name=name,
                kind=kind,
                help=(words or {}).get(name) or _without_json(field.description or ""),
                takes_null=_takes_null(field.annotation),
                needed=field.is_required(),
                choices=choices,
                value=write_value(
                    given.get(name, default), kind, takes_null=_takes_null(field.annotation)
                ),
            )
        )
    return found


def _without_json(text: str) -> str:
    """Return a description without its clauses that are about JSON."""
    clauses = [part for part in text.split("; ") if not any(word in part for word in _OF_JSON)]
    return "; ".join(clauses)


def read_values(model: type[BaseModel], form: Mapping[str, str], *, now_s: float) -> dict[str, Any]:
    """Return the values of a form, for the body to check.

    Empty fields are null, or empty. Fields that the form does not have are left out; a flag is then
    false.

    Args:
        model: the body.
        form: name -> text.
        now_s: the time.

    Raises:
        InputError: a time or a pair cannot be read.
    """
    made: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kind, _ = _kind_of(name, field.annotation)
        text = form.get(name, "").strip()
        if kind is Kind.FLAG:
            made[name] = bool(text)
        elif name not in form:
            continue  # the form does not have it
        elif text:
            is_empty = kind is Kind.LIST and text == _EMPTY and _takes_null(field.annotation)
            made[name] = [] if is_empty else _read(kind, name, text, now_s)
        elif field.is_required():
            continue  # the body names it
        elif kind in {Kind.LIST, Kind.PAIRS} and not _takes_null(field.annotation):
            made[name] = [] if kind is Kind.LIST else {}
        elif _takes_null(field.annotation):
            made[name] = None
    return made


def write_value(value: Any, kind: Kind = Kind.TEXT, *, takes_null: bool = False) -> str:
    """Write a value as a form shows it; a text is one that was written before."""
    if isinstance(value, str):
        return value
    if value is None or value is False:
        return ""
    if kind is Kind.SPAN:
        return format_span(value)
    if kind is Kind.MOMENT:
        return datetime.fromtimestamp(value, UTC).isoformat()
    if isinstance(value, Mapping):
        value = [f"{name}={count}" for name, count in value.items()]
    elif isinstance(value, float) and value == int(value):
        value = int(value)
    if isinstance(value, list | tuple | set | frozenset):
        return _write_list(map(str, value)) or (_EMPTY if takes_null else "")
    return "on" if value is True else str(value)


def _read(kind: Kind, name: str, text: str, now_s: float) -> Any:
    if kind is Kind.NUMBER:
        return _number(text)
    if kind is Kind.LIST:
        return _read_list(text)
    if kind is Kind.SPAN:
        return parse_span(text, name=name)
    if kind is Kind.MOMENT and zone_of(text) is False:
        raise InputError(
            f"{name} is '{text[:80]}', without a zone, which this page does not know; write "
            f"{text[:80]}+00:00 for UTC, or a span from now such as 2h"
        )
    if kind is Kind.MOMENT:
        return parse_moment(text, now_s=now_s, name=name)
    if kind is Kind.PAIRS:
        made: dict[str, Any] = {}
        for part in _read_list(text):
            key, sign, count = part.rpartition("=")
            if not sign:
                raise InputError(f"{name} has '{part[:80]}'; give NAME=NUMBER, such as v100=4")
            if key.strip() in made:
                raise InputError(f"{name} has '{key.strip()[:80]}' twice; give it once")
            made[key.strip()] = _number(count)
        return made
    return text


def zone_of(text: str) -> bool | None:
    """Return whether a time names its zone; None if the text is no time, but a span."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return None


def _write_list(parts: Iterable[str]) -> str:
    """Write texts with commas between them; one with a comma is quoted, as in CSV."""
    made = []
    for part in parts:
        out = io.StringIO()
        csv.writer(out, lineterminator="").writerow([part])
        made.append(out.getvalue())
    return ", ".join(made)


def _read_list(text: str) -> list[str]:
    rows = csv.reader([" ".join(text.splitlines())], skipinitialspace=True)
    return [part.strip() for row in rows for part in row if part.strip()]


def _number(text: str) -> Any:
    """Return a number; a text that is none stays, so that the body names its field."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _kind_of(name: str, annotation: Any) -> tuple[Kind, tuple[str, ...]]:
    kind = _bare(annotation)
    if name in _TIMES:
        return _TIMES[name], ()
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return Kind.CHOICE, tuple(str(one.value) for one in kind)
    if get_origin(kind) is Literal:
        return Kind.CHOICE, tuple(map(str, get_args(kind)))
    origin = get_origin(kind) or kind
    by_type = {bool: Kind.FLAG, int: Kind.NUMBER, float: Kind.NUMBER, list: Kind.LIST}
    return (by_type | {dict: Kind.PAIRS}).get(origin, Kind.TEXT), ()


def _bare(annotation: Any) -> Any:
    """Return a type without its notes, and without null."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in {Union, types.UnionType}:
            annotation = next(one for one in get_args(annotation) if one is not type(None))
        else:
            return annotation


def _takes_null(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _takes_null(get_args(annotation)[0])
    is_union = get_origin(annotation) in {Union, types.UnionType}
    return is_union and type(None) in get_args(annotation)
