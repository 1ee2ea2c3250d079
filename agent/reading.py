"""Checked reading of decoded JSON: every error names the field by its path and its value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reader:
    """One JSON object under a path such as ``leases[2]``.

    Attributes:
        data: the object.
        path: where it lies in the message, empty for the message itself.
    """

    data: Mapping[str, object]
    path: str = ""

    @classmethod
    def of(cls, value: object, path: str = "") -> Reader:
        """Take a decoded value that has to be an object.

        Raises:
            InputError: it is something else.
        """
        if not isinstance(value, dict):
            raise InputError(f"{path or 'message'} is {value!r}; it must be an object")
        return cls(value, path)

    def where(self, name: str) -> str:
        """Return the full path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def refuse(self, name: str, must: str) -> InputError:
        """Return the error that says what a field holds and what it must be."""
        shown = repr(self.data[name]) if name in self.data else "missing"
        return InputError(f"field '{self.where(name)}' is {shown}; it must be {must}")

    def integer(self, name: str, *, at_least: int = 0) -> int:
        """Read an integer that is not below a bound."""
        value = self.data.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise self.refuse(name, f"an integer >= {at_least}")
        return value

    def number(self, name: str, *, at_least: float = -math.inf) -> float:
        """Read a finite number that is not below a bound."""
        value = self.data.get(name)
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not math.isfinite(value)
            or value < at_least
        ):
            bound = "" if at_least == -math.inf else f" >= {at_least:g}"
            raise self.refuse(name, f"a finite number{bound}")
        return float(value)

    def text(self, name: str) -> str:
        """Read a text that is not empty and can be an argument of a program."""
        value = self.data.get(name)
        if not isinstance(value, str) or not value or "\0" in value:
            raise self.refuse(name, "a text without NUL, not empty")
        return value

    def flag(self, name: str) -> bool:
        """Read true or false."""
        value = self.data.get(name)
        if not isinstance(value, bool):
            raise self.refuse(name, "true or false")
        return value

    def optional(self, name: str, read: Callable[[str], T]) -> T | None:
        """Read a field that may be null or missing."""
        return None if self.data.get(name) is None else read(name)

    def integers(self, name: str) -> tuple[int, ...]:
        """Read a list of integers >= 0."""
        value = self.data.get(name)
        if not isinstance(value, list | tuple) or not all(
            isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in value
        ):
            raise self.refuse(name, "a list of integers >= 0")
        return tuple(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Read a list of texts without NUL."""
        value = self.data.get(name)
        if not isinstance(value, list | tuple) or not all(
            isinstance(v, str) and "\0" not in v for v in value
        ):
            raise self.refuse(name, "a list of texts without NUL")
        return tuple(value)

    def environment(self, name: str) -> dict[str, str]:
        """Read environment variables: names without ``=``, no NUL anywhere."""
        value = self.data.get(name)
        if not isinstance(value, dict) or not all(
            isinstance(k, str) and isinstance(v, str) and k and "=" not in k and "\0" not in k + v
            for k, v in value.items()
        ):
            raise self.refuse(name, "an object of texts, its names without '='")
        return dict(value)

    def objects(self, name: str) -> tuple[Reader, ...]:
        """Read a list of objects."""
        value = self.data.get(name)
        if not isinstance(value, list | tuple):
            raise self.refuse(name, "a list")
        return tuple(
            Reader.of(item, f"{self.where(name)}[{position}]")
            for position, item in enumerate(value)
        )
