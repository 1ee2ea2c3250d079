"""Rows as the columns of their tables, and back."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import fields
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from scheduler.domain.codec import decode, encode
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import EndReason
from scheduler.domain.rows import (
    AttemptRow,
    HistoryRow,
    JobRow,
    JobState,
    LeaseUse,
    SettingRow,
)
from scheduler.errors import CodecError, UnstorableError
from scheduler.store.rows import EnrolmentRow, TokenRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import Row as SqlRow

    from scheduler.domain.facts.events import Event

R = TypeVar("R")

#: For values that orjson does not write exactly.
_ENCODER = json.JSONEncoder(
    separators=(",", ":"), allow_nan=False, ensure_ascii=False, default=dict
)
#: The range of a column of numbers.
_LEAST, _MOST = -(2**63), 2**63 - 1


def to_json(value: object, *, finite: bool = False) -> str:
    """Return compact JSON; mappings become objects.

    Args:
        value: the value to write.
        finite: whether all its numbers are known to be finite, which saves a check.

    Raises:
        UnstorableError: a number is not finite, a text has half a character, or JSON has no such
            type.
    """
    try:
        try:
            text = orjson.dumps(value, default=dict).decode()
        except TypeError:
            text = _ENCODER.encode(value)
            text.encode()  # Python accepts halves of characters, other programs do not
            return text
        # orjson writes null for numbers that are not finite; the other encoder refuses them.
        plain = finite or "null" not in text or orjson.loads(text) == value
        return text if plain else _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnstorableError(f"a value has no form as JSON: {str(error)[:200]}") from error


def events_to_json(events: tuple[Event, ...]) -> str:
    """Return the journal's form of an engine call's events.

    Raises:
        UnstorableError: an event has no JSON form.
    """
    try:
        # One by one: an event with large numbers takes the slow way alone.
        return f"[{','.join([to_json(encode(event), finite=True) for event in events])}]"
    except CodecError as error:
        raise UnstorableError(str(error)) from error


def events_from_json(text: str) -> tuple[Event, ...]:
    """Return the events of ``events_to_json``."""
    return tuple(decode(item) for item in json.loads(text))


def _labels_to_json(labels: Mapping[str, str]) -> str:
    texts = (*labels, *labels.values())  # they are also stored in a table of their own
    _check(("labels",) * len(texts), texts)
    return to_json(labels)


def _mapping(text: str) -> Mapping[str, Any]:
    return MappingProxyType(json.loads(text))


def _tuple(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


def _tuples(text: str) -> tuple[tuple[Any, ...], ...]:
    return () if text == "[]" else tuple(tuple(item) for item in json.loads(text))


def _end_reason(text: str | None) -> EndReason | None:
    return None if text is None else EndReason(text)


#: Row class -> column -> (to the column, from the column), if they differ.
_FORMS: Mapping[type, Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    JobRow: {
        "status": (str, JobStatus),
        "labels": (_labels_to_json, _mapping),
        "spec": (to_json, _mapping),
    },
    JobState: {"status": (str, JobStatus)},
    AttemptRow: {
        "workers": (to_json, _tuple),
        "nodes": (to_json, _tuple),
        "end_reason": (lambda reason: reason and str(reason), _end_reason),
        "gpu_marks": (to_json, _tuples),
    },
    LeaseUse: {"gpu_marks": (to_json, _tuples)},
    HistoryRow: {"data": (to_json, _mapping)},
    SettingRow: {"value": (to_json, json.loads)},
    TokenRow: {"projects": (to_json, _tuple)},
    EnrolmentRow: {"workers": (to_json, json.loads)},
}


def to_columns(row: Any) -> dict[str, Any]:
    """Return the values of the row's columns.

    Raises:
        UnstorableError: a value cannot be stored in every database.
    """
    kind = type(row)
    columns = {name: getattr(row, name) for name in columns_of(kind)}  # type: ignore[arg-type]
    for name, (there, _) in _FORMS.get(kind, {}).items():
        columns[name] = there(columns[name])
    _check(columns, columns.values())
    return columns


def to_values(kind: type, rows: Sequence[Any]) -> list[list[Any]]:
    """Return the values of the rows' columns, each row's in the order of ``columns_of``.

    Raises:
        UnstorableError: a value cannot be stored in every database.
    """
    names = columns_of(kind)
    pick = attrgetter(*names)
    forms = [(names.index(name), there) for name, (there, _) in _FORMS.get(kind, {}).items()]
    values = []
    for row in rows:
        columns = list(pick(row))
        for place, there in forms:
            columns[place] = there(columns[place])
        _check(names, columns)
        values.append(columns)
    return values


def _check(names: Iterable[str], values: Iterable[Any]) -> None:
    """Refuse values that one of the databases cannot hold; 0.1 us for a value.

    Raises:
        UnstorableError: a value cannot be stored; the message has its name.
    """
    for name, value in zip(names, values, strict=True):
        kind = type(value)
        if kind is float:
            if math.isfinite(value):
                continue
        elif kind is str:
            if value.isascii() and "\0" not in value:
                continue
        elif value is None or (kind is int and _LEAST <= value <= _MOST):
            continue
        _check_one(name, value)


def _check_one(name: str, value: Any) -> None:
    if isinstance(value, str):
        if "\0" in value:
            raise UnstorableError(f"{name} has a NUL in it; texts without can be stored")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UnstorableError(f"{name} has half a character in it: {error}") from error
    elif isinstance(value, int):
        if not _LEAST <= value <= _MOST:
            raise UnstorableError(f"{name} is a number of more than 64 bits; it cannot be stored")
    elif isinstance(value, float) and not math.isfinite(value):
        raise UnstorableError(f"{name} is {value!r}; only finite numbers can be stored")


@functools.cache
def columns_of(kind: type) -> tuple[str, ...]:
    """Return the names of the columns of a kind of row."""
    return tuple(field.name for field in fields(kind))


def from_columns(kind: type[R], columns: SqlRow[Any], *, ignore: int = 0) -> R:
    """Return the row of a table's columns; the first ``ignore`` columns are not the row's."""
    values = dict(zip(columns._fields[ignore:], columns[ignore:], strict=True))
    for name, (_, back) in _FORMS.get(kind, {}).items():
        values[name] = back(values[name])
    return kind(**values)
