"""Read text with clear errors, and write files atomically."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from scheduler.errors import TraceError
from scheduler.unreadable import not_text

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the file's text.

    Raises:
        TraceError: the file cannot be read, is empty, or is not UTF-8.
    """
    name = os.fspath(path)
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise TraceError(
            f"cannot be read: {error.strerror}; give the path of a readable file", path=name
        ) from error
    if not raw.strip():
        raise TraceError("the file is empty; give one with at least one entry", path=name)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(
            f"this is {not_text(raw)}",
            path=name,
            line=raw.count(b"\n", 0, error.start) + 1,
        ) from error


@contextlib.contextmanager
def atomic_writer(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Open a file that appears under its name only if the block ends without an error.

    Raises:
        TraceError: the folder cannot be written to.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        stream = temporary.open("x", encoding="utf-8", newline="")
    except OSError as error:
        raise TraceError(
            f"cannot be written: {error.strerror}; give a path in a writable folder",
            path=os.fspath(path),
        ) from error
    try:
        with stream:
            yield stream
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file, for reading its fields with errors that name it.

    Attributes:
        path: the file.
        number: 1-based line.
    """

    path: str
    number: int

    def fail(self, problem: str, *, field: str | None = None, value: object = None) -> NoReturn:
        """Raise the error that names file, line, field and value."""
        raise TraceError(problem, path=self.path, line=self.number, field=field, value=value)

    def number_in(
        self,
        text: str,
        field: str,
        *,
        at_least: float = 0.0,
        above: float | None = None,
    ) -> float:
        """Return a finite float within bounds.

        Args:
            text: the text in the file.
            field: its name.
            at_least: smallest allowed value.
            above: if given, the value must be greater than this.
        """
        try:
            value = float(text)
        except ValueError:
            self.fail("this is not a number; give one such as 3600 or 0.5", field=field, value=text)
        if above is not None and not above < value < float("inf"):
            self.fail(f"it must be a finite number > {above:g}", field=field, value=text)
        if not at_least <= value < float("inf"):
            self.fail(f"it must be a finite number >= {at_least:g}", field=field, value=text)
        return value

    def integer_in(self, text: str, field: str, *, at_least: int = 0) -> int:
        """Return an integer that is at least ``at_least``."""
        try:
            value = int(text)
        except ValueError:
            self.fail("this is not a whole number; give one such as 4", field=field, value=text)
        if value < at_least:
            self.fail(f"it must be >= {at_least}", field=field, value=text)
        return value

    def columns(self, fields: list[str], expected: int, layout: str) -> None:
        """Refuse a line if it does not have the expected number of columns."""
        if len(fields) != expected:
            self.fail(
                f"the line has {len(fields)} columns; {layout} has {expected}",
                value=shorten(fields),
            )


def shorten(fields: list[str], length: int = 80) -> str:
    """Return a line's fields as one short text for a message."""
    text = " | ".join(fields)
    return text if len(text) <= length else text[: length - 3] + "..."
