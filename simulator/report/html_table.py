"""HTML tables of the report pages: one row for each policy or cluster."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def render_table(corner: str, headings: Iterable[str], rows: Iterable[str]) -> str:
    """Return the content of a table; ``corner`` is the heading of the first column."""
    head = "".join(headings)
    return f"<thead><tr><th>{corner}</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"


def render_heading(title: str, *, unit: str = "", meaning: str = "") -> str:
    """Return the heading of a column; the pointer over it shows the meaning."""
    shown_unit = f"<small>{unit}</small>" if unit else ""
    return f"<th{_tooltip(meaning)}>{title}{shown_unit}</th>"


def render_row(name: str, cells: Iterable[str], *, colour: str = "") -> str:
    """Return a row that begins with a name, after a dot of that colour."""
    dot = f'<i style="background:{colour}"></i>' if colour else ""
    return f'<tr><th scope="row">{dot}{html.escape(name)}</th>{"".join(cells)}</tr>'


def render_cell(text: str, *, best: bool = False, tooltip: str = "") -> str:
    """Return a cell; ``best`` marks it as the best of its column."""
    mark = ' class="best"' if best else ""
    return f"<td{mark}{_tooltip(tooltip)}>{html.escape(text)}</td>"


def _tooltip(text: str) -> str:
    return f' title="{html.escape(text)}"' if text else ""
