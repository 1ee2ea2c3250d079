"""Checked reading of decoded JSON: every error names the field by its path and its value."""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from scheduler.errors import InputError
from scheduler.protocol.bounds import (
    LATEST_S,
    LONGEST_MESSAGE,
    LONGEST_TEXT,
    MOST_COUNT,
    MOST_ITEMS,
    clean_text,
    is_printable,
    is_storable,
    plain_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

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

    def name(self, name: str, *, longest: int) -> str:
        """Read a text in one line and without control characters."""
        value = self.text(name, longest=longest)
        if not is_printable(value):
            raise self.refuse(name, "a text without control characters")
        return value

    def words(self, name: str, *, longest: int = LONGEST_MESSAGE) -> str:
        """Read a text for people; characters that are too many or not printable are cut."""
        value = self.data.get(name, "")
        if not isinstance(value, str):
            raise self.refuse(name, "a text")
        return clean_text(value, longest)

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

    def integers(
        self, name: str, *, most: int = MOST_ITEMS, at_most: int = MOST_COUNT
    ) -> tuple[int, ...]:
        """Read a list of integers >= 0."""
        values = self._list(name, most)
        found = tuple(v for v in values if _whole(v) and 0 <= v <= at_most)
        if len(found) < len(values):
            raise self.refuse(name, f"a list of integers >= 0 and <= {at_most}")
        return found

    def texts(
        self, name: str, *, most: int = MOST_ITEMS, longest: int = LONGEST_TEXT
    ) -> tuple[str, ...]:
        """Read a list of texts without NUL."""
        values = self._list(name, most)
        found = tuple(
            v for v in values if isinstance(v, str) and len(v) <= longest and is_storable(v)
        )
        if len(found) < len(values):
            raise self.refuse(name, f"a list of texts of {longest} characters at most, without NUL")
        return found

    def sayings(self, name: str) -> tuple[str, ...]:
        """Read a list of texts for people, or nothing; see ``words``."""
        values = () if self.data.get(name) is None else self._list(name, MOST_ITEMS)
        found = tuple(clean_text(v) for v in values if isinstance(v, str))
        if len(found) < len(values):
            raise self.refuse(name, "a list of texts")
        return found

    def environment(self, name: str) -> dict[str, str]:
        """Read environment variables: names without ``=``, no NUL anywhere."""
        value = self.data.get(name)
        if (
            not isinstance(value, dict)
            or len(value) > MOST_ITEMS
            or not all(
                isinstance(k, str)
                and isinstance(v, str)
                and k
                and "=" not in k
                and is_storable(k + v)
                for k, v in value.items()
            )
            or any(len(k) + len(v) > LONGEST_TEXT for k, v in value.items())
        ):
            raise self.refuse(
                name,
                f"an object of at most {MOST_ITEMS} texts, its names without '=', "
                f"each of {LONGEST_TEXT} characters at most",
            )
        return dict(value)

    def secrets(self, name: str) -> dict[str, str]:
        """Read environment variables; the error quotes none of them."""
        try:
            return self.environment(name)
        except InputError:
            what = f"{self.where(name)} must be an object of texts"
            raise InputError(what) from None

    def json(self, name: str) -> dict[str, object]:
        """Read an object of any values that can be stored and sent on."""
        value = self.data.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not plain_json(value):
            raise self.refuse(name, "an object of plain JSON values, with numbers of 64 bits")
        return value

    def objects(self, name: str, *, most: int = MOST_ITEMS) -> tuple[Reader, ...]:
        """Read a list of objects."""
        return tuple(
            Reader.of(item, f"{self.where(name)}[{position}]")
            for position, item in enumerate(self._list(name, most))
        )

    def _list(self, name: str, most: int) -> Sequence[object]:
        value = self.data.get(name)
        if not isinstance(value, list | tuple):
            raise self.refuse(name, "a list")
        if len(value) > most:
            raise self.refuse(name, f"a list of {most} elements at most")
        return value


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
