"""Forms of a page from the bodies of the REST interface: a field for each, and their values."""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic_core import PydanticUndefined

from scheduler.errors import InputError
from scheduler.views.times import format_span, parse_moment, parse_span

if TYPE_CHECKING:
    from pydantic import BaseModel


class Kind(enum.StrEnum):
    """How a value is written."""

    TEXT = "text"
    NUMBER = "number"
    FLAG = "flag"
    CHOICE = "choice"
    LIST = "list"  #: separated by commas or spaces
    PAIRS = "pairs"  #: NAME=NUMBER, separated by commas or spaces
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
        choices: its values, of a choice.
        value: what the form shows at first.
    """

    name: str
    kind: Kind
    help: str
    needed: bool
    choices: tuple[str, ...] = ()
    value: str = ""


#: Fields that are times -> how they are written.
_TIMES: Mapping[str, Kind] = {"ttl_s": Kind.SPAN, "from_s": Kind.MOMENT, "until_s": Kind.MOMENT}


def fields_of(
    model: type[BaseModel],
    values: Mapping[str, Any] | None = None,
    *,
    without: tuple[str, ...] = (),
) -> list[FormField]:
    """Return the fields of a form for a body.

    Args:
        model: the body.
        values: what the form shows at first; texts as they were written.
        without: fields that the form does not have.
    """
    given = values or {}
    found = []
    for name, field in model.model_fields.items():
        if name in without:
            continue
        kind, choices = _kind_of(name, field.annotation)
        default = None if field.default is PydanticUndefined else field.default
        found.append(
            FormField(
                name=name,
                kind=kind,
                help=field.description or "",
                needed=field.is_required(),
                choices=choices,
                value=write_value(given.get(name, default), kind),
            )
        )
    return found


def read_values(model: type[BaseModel], form: Mapping[str, str], *, now_s: float) -> dict[str, Any]:
    """Return the values of a form, for the body to check. Empty fields are null, or empty.

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
        elif text:
            made[name] = _read(kind, name, text, now_s)
        elif kind in {Kind.LIST, Kind.PAIRS} and not _takes_null(field.annotation):
            made[name] = [] if kind is Kind.LIST else {}
        elif _takes_null(field.annotation):
            made[name] = None
    return made


def write_value(value: Any, kind: Kind = Kind.TEXT) -> str:
    """Write a value as a form shows it; a text is one that was written before."""
    if kind is Kind.SPAN and isinstance(value, float):
        return format_span(value)
    if value is None or value is False:
        return ""
    if value is True:
        return "on"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={count:g}" for name, count in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _read(kind: Kind, name: str, text: str, now_s: float) -> Any:
    if kind is Kind.NUMBER:
        return _number(text)
    if kind is Kind.LIST:
        return text.replace(",", " ").split()
    if kind is Kind.SPAN:
        return parse_span(text, name=name)
    if kind is Kind.MOMENT:
        return parse_moment(text, now_s=now_s, name=name)
    if kind is Kind.PAIRS:
        pairs = [part.partition("=") for part in text.replace(",", " ").split()]
        if wrong := next((key for key, sign, _ in pairs if not sign), None):
            raise InputError(f"{name} has '{wrong}'; give NAME=NUMBER, such as v100=4")
        return {key: _number(count) for key, _, count in pairs}
    return text


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
