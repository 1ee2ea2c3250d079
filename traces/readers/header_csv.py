"""CSV files with a header: rows by field name, with errors that name the line."""

from __future__ import annotations

import csv
import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.errors import TraceError
from traces.files import Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderCsv:
    """A CSV file.

    Attributes:
        path: for messages.
        header: column names, in order.
        rows: (line, fields) of every row that is not blank; as many fields as columns.
        comments: lines before the header that start with ``#``, without the sign.
    """

    path: str
    header: tuple[str, ...]
    rows: list[tuple[int, list[str]]]
    comments: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, *, path: str) -> HeaderCsv:
        """Split the text into rows.

        Raises:
            TraceError: a row has too few or too many fields, or a quote does not end.
        """
        lines = text.split("\n")
        first = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
        comments = tuple(line[1:].strip() for line in lines[:first])
        numbered = _split(lines[first:], path, first)
        header = tuple(field.strip() for field in next(numbered, (0, []))[1])
        rows = [(i, fields) for i, fields in numbered if fields]
        for i, fields in rows:
            if len(fields) != len(header):
                Line(path, i).columns(fields, len(header), "the header")
        return cls(path=path, header=header, rows=rows, comments=comments)

    def require(
        self, required: tuple[str, ...], *, optional: tuple[str, ...] | None = None
    ) -> dict[str, int]:
        """Return the position of each column.

        Args:
            required: columns that must be there.
            optional: columns that are allowed; None allows any.

        Raises:
            TraceError: a column is missing, unknown or there twice, or no row follows.
        """
        shown, line = ",".join(self.header), len(self.comments) + 1
        known = tuple(dict.fromkeys((*required, *(self.header if optional is None else optional))))
        for column in self.header:
            if column not in known:
                hint = f"unknown column{suggest_name(column, known)}; known are {', '.join(known)}"
                raise TraceError(hint, path=self.path, line=line, field=column)
            if self.header.count(column) > 1:
                hint = "the column is there twice; keep one"
                raise TraceError(hint, path=self.path, line=line, field=column, value=shown)
        for column in required:
            if column not in self.header:
                hint = f"column '{column}' is missing; the header needs {','.join(required)}"
                raise TraceError(hint, path=self.path, line=line, field=column, value=shown)
        if not self.rows:
            raise TraceError("no row follows the header; give at least one", path=self.path)
        return {column: i for i, column in enumerate(self.header)}


def columns_of(header: str) -> frozenset[str]:
    """Return the names of the columns of a header's line."""
    return frozenset(field.strip() for field in header.split(","))


def _split(lines: list[str], path: str, skipped: int) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((f"{line}\n" for line in lines), strict=True)
    while True:
        line = skipped + reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            problem = f"the line is corrupt: {error}; check its quotes"
            raise TraceError(problem, path=path, line=line) from error
        if fields is None:
            return
        yield line, fields


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a suggestion for a name that is close to a known one, or that lacks its unit.

    Args:
        name: as it was written.
        known: the known names.
    """
    names = list(known)
    with_unit = [other for other in names if other.rpartition("_")[0] == name]
    near = with_unit or difflib.get_close_matches(name, names, n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""
