"""Checked reading of decoded JSON: every error names the field by its path and its value."""

from __future__ import annotations

import json
import re
import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import msgspec
from msgspec import inspect

from scheduler.domain.lease_life import LeasePhase
from scheduler.errors import InputError
from scheduler.protocol.bounds import (
    LATEST_S,
    LONGEST_TEXT,
    MOST_COUNT,
    clean_text,
    is_storable,
    plain_json,
)
from scheduler.protocol.fields import PHASES, WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

T = TypeVar("T")

#: msgspec's names of types, in words.
_NAMES = {
    "int": "an integer",
    "float": "a finite number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother = 2, 200, 200
_REPR.maxlist = _REPR.maxtuple = _REPR.maxdict = 6


def decode_json(text: str | bytes) -> object:
    """Return the value of a JSON text.

    Raises:
        InputError: it is malformed, or nested too deeply.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"this is not JSON that can be read: {clean_text(error, 200)}") from error


def short_form(value: object) -> str:
    """Return a value as an error may show it, however large or deep it is."""
    try:
        return _REPR.repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits
        return f"a value of type {type(value).__name__}"


def read_as(kind: type[T], data: object, path: str = "", *, sent: Collection[str] = ()) -> T:
    """Read decoded JSON as a value of a type, within the bounds that its fields state.

    Args:
        kind: a dataclass; ``scheduler.protocol.fields`` has the types of its fields.
        data: decoded JSON.
        path: of the value in its message.
        sent: fields that must be there although they have a default.

    Raises:
        InputError: a field is missing or wrong; names it.
    """
    for name in sent:
        if isinstance(data, dict) and name not in data:
            raise InputError(f"field '{path}{path and '.'}{name}' is missing")
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise InputError(_refusal(str(error), kind, data, path)) from None
    except UnicodeEncodeError as error:
        what = f"{path or 'message'} has the text {short_form(error.object)}"
        raise InputError(f"{what}; it must be without halves of characters") from None


def _refusal(what: str, kind: type[object], value: Any, path: str) -> str:
    """Return the words that name a field, its value and the allowed ones, from msgspec's."""
    what, _, place = what.partition(" - at ")
    info = inspect.type_info(kind)
    for name, position in re.findall(r"\.(\w+)|\[(\d+)\]", place):
        path = f"{path}{position and f'[{position}]'}{name and path and '.'}{name}"
        value = value[name or int(position)]
        info = _within(info, name or int(position))
    if absent := re.search("missing required field `(.*)`", what):
        return f"field '{path}{path and '.'}{absent[1]}' is missing"
    if isinstance(info, inspect.EnumType | inspect.LiteralType):
        one_of = info.values if isinstance(info, inspect.LiteralType) else info.cls
        one_of = PHASES if one_of is LeasePhase else one_of
        what = f"one of {', '.join(str(one) for one in one_of if one)}"
    what = re.sub(r"Expected `([^`]*)`|, got .*", lambda found: _in_words(found[1] or ""), what)
    for theirs, words in WORDS.items():
        what = what.replace(theirs, words)
    shown = "wrong" if "secret_env" in path else short_form(value)
    return f"field '{path or 'message'}' is {shown}; it must be {what}"


def _within(info: inspect.Type, place: str | int) -> inspect.Type:
    """Return the type of a field or an element."""
    if isinstance(info, inspect.DataclassType):
        info = next(field.type for field in info.fields if field.name == place)
    elif isinstance(info, inspect.TupleType):
        info = info.item_types[int(place)]
    elif isinstance(info, inspect.VarTupleType):
        info = info.item_type
    return info.types[0] if isinstance(info, inspect.UnionType) else info


def _in_words(types: str) -> str:
    return " or ".join(_NAMES.get(name, name) for name in types.split(" | ") if name)


@dataclass(frozen=True, slots=True)
class Reader:
    """One JSON object under a path such as ``leases[2]``.

    By default every value is read within the bounds of ``scheduler.protocol.bounds``.

    Attributes:
        data: the object.
        path: its path in the message, empty for the message itself.
    """

    data: Mapping[str, object]
    path: str = ""

    @classmethod
    def of(cls, value: object, path: str = "") -> Reader:
        """Take a decoded value that must be an object.

        Raises:
            InputError: it is not an object.
        """
        if not isinstance(value, dict):
            raise InputError(f"{path or 'message'} is {short_form(value)}; it must be an object")
        return cls(value, path)

    def where(self, name: str) -> str:
        """Return the full path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def refuse(self, name: str, must: str) -> InputError:
        """Return the error that names a field's value and the allowed values."""
        what = short_form(self.data[name]) if name in self.data else "missing"
        return InputError(f"field '{self.where(name)}' is {what}; it must be {must}")

    def integer(self, name: str, *, at_least: int = 0, at_most: int = MOST_COUNT) -> int:
        """Read an integer within bounds."""
        value = self.data.get(name)
        if not _whole(value) or not at_least <= value <= at_most:
            raise self.refuse(name, f"an integer >= {at_least} and <= {at_most}")
        return value

    def number(self, name: str, *, at_least: float = -LATEST_S, at_most: float = LATEST_S) -> float:
        """Read a finite number within bounds."""
        value = self.data.get(name)
        # NaN lies within no bounds, and an integer of a thousand digits is no float.
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.refuse(name, "a finite number")
        if not at_least <= value <= at_most:
            raise self.refuse(name, f"a finite number >= {at_least:g} and <= {at_most:g}")
        return float(value)

    def text(self, name: str, *, longest: int = LONGEST_TEXT) -> str:
        """Read a text that is not empty and can be an argument of a program."""
        value = self.data.get(name)
        if not isinstance(value, str) or not value or not is_storable(value):
            raise self.refuse(name, "a text without NUL and halves of characters, not empty")
        if len(value) > longest:
            raise self.refuse(name, f"a text of {longest} characters at most")
        return value

    def maybe(self, name: str, *, longest: int = LONGEST_TEXT) -> str:
        """Read a text that may be empty or missing."""
        return self.text(name, longest=longest) if self.data.get(name, "") != "" else ""

    def flag(self, name: str) -> bool:
        """Read true or false."""
        value = self.data.get(name)
        if not isinstance(value, bool):
            raise self.refuse(name, "true or false")
        return value

    def optional(self, name: str, read: Callable[[str], T]) -> T | None:
        """Read a field that may be null or missing."""
        return None if self.data.get(name) is None else read(name)

    def json(self, name: str) -> dict[str, object]:
        """Read an object of any values that can be stored and sent on."""
        value = self.data.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not plain_json(value):
            raise self.refuse(name, "an object of plain JSON values, with numbers of 64 bits")
        return value


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
