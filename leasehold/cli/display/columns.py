"""Tables as text that fit a terminal: cells wrap, and words are shortened as the last resort.

In a file or a pipe they are as wide as they need to be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Spaces between two columns.
_GAP: Final = 2
#: Least width of a shortened column.
_LEAST: Final = 12
#: Least width if that is still too wide.
_BAREST: Final = 6
#: Unbreakable parts: words, and parts of lists.
_PIECE: Final = re.compile(r"[^ ,]+,*|,+")
_ELLIPSIS: Final = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column.

    Attributes:
        heading: text above the column.
        cells: one for each row.
        right: whether it is flushed right, as numbers are.
        shortened: whether its cells get an ellipsis if there is no room for them.
        whole: whether its cells stay on one line.
        broken: whether its cells may go on in the next line anywhere, so that nothing is lost.
    """

    heading: str
    cells: tuple[str, ...]
    right: bool = False
    shortened: bool = False
    whole: bool = False
    broken: bool = False

    @property
    def widest(self) -> int:
        """Return the width at which every cell fits on one line."""
        return max(map(_width, (self.heading, *self.cells)))

    @property
    def least(self) -> int:
        """Return the smallest width at which no word is broken or shortened too much."""
        if self.shortened or self.broken:
            return min(self.widest, max(_LEAST, self.heading_least))
        if self.right or self.whole:
            return self.narrow
        return max(_longest(cell) for cell in (self.heading, *self.cells))

    @property
    def narrow(self) -> int:
        """Return the width at which each cell, but not the heading, fits on one line."""
        return max(self.heading_least, *map(_width, self.cells), 0)

    @property
    def heading_least(self) -> int:
        """Return the width of the heading's longest word."""
        return _longest(self.heading)

    def barest(self, kept: int) -> int:
        """Return the width that keeps this much of its cells; figures are shown whole."""
        return self.least if self.right else min(self.least, max(kept, self.heading_least))


def column_of(heading: str, cells: Sequence[str], *, whole: bool = False) -> Column:
    """Make a column: ``>`` before its heading flushes right, ``~`` lets its cells be shortened.

    ``=`` lets them be broken.
    """
    return Column(
        heading=heading.lstrip(">~="),
        cells=tuple(cells),
        right=heading.startswith(">"),
        shortened=heading.startswith("~"),
        whole=whole,
        broken=heading.startswith("="),
    )


def fit_columns(
    columns: Sequence[Column], spare: Sequence[str], *, width: int, wrapped: bool
) -> list[Column]:
    """Return the columns that have content; drop spare ones until the rest fits a width.

    Args:
        columns: all of them.
        spare: headings of columns that may be dropped, the first one first.
        width: of the terminal.
        wrapped: whether a row may take several lines.
    """
    kept = [column for column in columns if any(column.cells)]
    for heading in spare:
        room = (c.least if wrapped or c.shortened or c.broken else c.narrow for c in kept)
        if sum(room) + _GAP * (len(kept) - 1) <= width:
            break
        kept = [column for column in kept if column.heading != heading]
    return kept


def laid_out(columns: Sequence[Column], *, width: int) -> list[list[list[str]]]:
    """Return the rows, the headings first, as lines of cells that are padded to their columns.

    Figures are never cut: many of them may be wider than the width.
    """
    widths = _widths(columns, width)
    rows = zip(*((column.heading, *column.cells) for column in columns), strict=True)
    made = []
    for place, row in enumerate(rows):
        parts = [
            _wrapped(cell, most) if place == 0 else _lines(column, cell, most)
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
    """Return a width per column: its least width, then more for those that lack the least."""
    widths = _capped(columns, width - _GAP * (len(columns) - 1))
    left = width - sum(widths) - _GAP * (len(columns) - 1)
    lacking = sorted((column.widest - widths[i], i) for i, column in enumerate(columns))
    for place, (lack, i) in enumerate(lacking):
        more = max(0, min(lack, left // (len(lacking) - place)))
        widths[i] += more
        left -= more
    return widths


def _capped(columns: Sequence[Column], room: int) -> list[int]:
    """Return the least widths; if there is no room for them, the widest ones shrink."""
    widths = [column.least for column in columns]
    for kept in (_LEAST, _BAREST):
        barest = [column.barest(kept) for column in columns]
        while sum(widths) > room:
            able = [i for i, least in enumerate(barest) if widths[i] > least]
            if not able:
                break
            widths[max(able, key=lambda i: widths[i])] -= 1
    return widths


def _lines(column: Column, cell: str, most: int) -> list[str]:
    """Return a cell as lines that fit its column."""
    if column.shortened:
        return [_shortened(cell, most)]
    if column.whole:
        return [_bridged(cell, most)]
    if column.broken:
        return [part for line in _wrapped(cell, most, whole=True) for part in _cut(line, most)]
    return _wrapped(cell, most)


def _wrapped(text: str, most: int, *, whole: bool = False) -> list[str]:
    """Break a text between words and behind commas; words that are too long lose their middle."""
    lines = [""]
    for word in text.split(" "):
        gap = " " if lines[-1] else ""
        for piece in _PIECE.findall(word) or [""]:
            if _width(lines[-1] + gap + piece) <= most:
                lines[-1] += gap + piece
            else:
                shown = piece if whole else _bridged(piece, most)
                lines[len(lines) - (not lines[-1]) :] = [shown]
            gap = ""
    return lines


def _cut(text: str, most: int) -> list[str]:
    """Break a text wherever the width is used up."""
    from rich.cells import chop_cells  # noqa: PLC0415 - keeps the start quick

    return chop_cells(text, max(most, 2)) or [""]


def _shortened(text: str, most: int) -> str:
    from rich.cells import set_cell_size  # noqa: PLC0415 - keeps the start quick

    return text if _width(text) <= most else set_cell_size(text, most - 1) + _ELLIPSIS


def _bridged(text: str, most: int) -> str:
    """Drop a text's middle, since names of one array or fleet differ at their ends."""
    from rich.cells import set_cell_size  # noqa: PLC0415 - keeps the start quick

    if _width(text) <= most:
        return text
    end = (most - 1) // 2
    tail = text[-end:]
    while _width(tail) > end:
        tail = tail[1:]
    return set_cell_size(text, most - 1 - _width(tail)) + _ELLIPSIS + tail


def _longest(text: str) -> int:
    """Return the width of a text's longest part that is not broken."""
    return max((_width(piece) for piece in _PIECE.findall(text)), default=0)


def _width(text: str) -> int:
    from rich.cells import cell_len  # noqa: PLC0415 - keeps the start quick

    return cell_len(text)
