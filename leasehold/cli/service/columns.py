"""Tables as text: words are never broken, and only columns that say so are shortened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Between two columns.
_GAP: Final = 2
#: A column that may be shortened keeps so much.
_LEAST: Final = 12
_ELLIPSIS: Final = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column.

    Attributes:
        heading: what stands above it.
        cells: one for each row.
        right: whether it is flushed right, as numbers are.
        shortened: whether its cells end in an ellipsis where there is no room for them.
        whole: whether its cells stay on one line.
    """

    heading: str
    cells: tuple[str, ...]
    right: bool = False
    shortened: bool = False
    whole: bool = False

    @property
    def widest(self) -> int:
        """Return the width at which every cell stands on one line."""
        return max(map(_width, (self.heading, *self.cells)))

    @property
    def least(self) -> int:
        """Return the smallest width at which nothing is broken or shortened too much."""
        if self.shortened:
            return min(self.widest, max(_LEAST, _width(self.heading)))
        if self.right or self.whole:
            return self.widest
        words = [word for cell in (self.heading, *self.cells) for word in cell.split(" ")]
        return max(map(_width, words))


def column_of(heading: str, cells: Sequence[str], *, whole: bool = False) -> Column:
    """Make a column: ``>`` before its heading flushes right, ``~`` lets cells be shortened."""
    return Column(
        heading=heading.lstrip(">~"),
        cells=tuple(cells),
        right=heading.startswith(">"),
        shortened=heading.startswith("~"),
        whole=whole,
    )


def fitting(
    columns: Sequence[Column], spare: Sequence[str], *, width: int, wrapped: bool
) -> list[Column]:
    """Return the columns that say something and, as far as some can be spared, fit a width.

    Args:
        columns: all of them.
        spare: headings of those that may go, the first one first.
        width: of the terminal.
        wrapped: whether a row may take several lines.
    """
    kept = [column for column in columns if any(column.cells)]
    for heading in spare:
        room = (c.least if wrapped or c.shortened else c.widest for c in kept)
        if sum(room) + _GAP * (len(kept) - 1) <= width:
            break
        kept = [column for column in kept if column.heading != heading]
    return kept


def laid_out(columns: Sequence[Column], *, width: int) -> list[list[list[str]]]:
    """Return the rows, the headings first, as lines of cells that are padded to their columns.

    What cannot be made narrow enough is wider than the width: a broken id is of no use.
    """
    widths = _widths(columns, width)
    rows = zip(*((column.heading, *column.cells) for column in columns), strict=True)
    made = []
    for row in rows:
        parts = [
            [_shortened(cell, most)] if column.shortened or column.whole else _wrapped(cell, most)
            for column, cell, most in zip(columns, row, widths, strict=True)
        ]
        height = max(map(len, parts))
        lines = []
        for i in range(height):
            cells = [part[i] if i < len(part) else "" for part in parts]
            lines.append(
                [
                    " " * (most - _width(cell)) + cell
                    if column.right
                    else cell + " " * (most - _width(cell))
                    for column, cell, most in zip(columns, cells, widths, strict=True)
                ]
            )
        made.append(lines)
    return made


def _widths(columns: Sequence[Column], width: int) -> list[int]:
    """Return a width for each column: as little as it needs, and then room for what lacks least."""
    widths = [column.least for column in columns]
    left = width - sum(widths) - _GAP * (len(columns) - 1)
    lacking = sorted((column.widest - column.least, i) for i, column in enumerate(columns))
    for place, (lack, i) in enumerate(lacking):
        more = max(0, min(lack, left // (len(lacking) - place)))
        widths[i] += more
        left -= more
    return widths


def _wrapped(text: str, most: int) -> list[str]:
    """Break a text between words."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if _width(longer) <= most or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _shortened(text: str, most: int) -> str:
    from rich.cells import set_cell_size  # noqa: PLC0415 - keeps the start quick

    return text if _width(text) <= most else set_cell_size(text, most - 1) + _ELLIPSIS


def _width(text: str) -> int:
    from rich.cells import cell_len  # noqa: PLC0415 - keeps the start quick

    return cell_len(text)
