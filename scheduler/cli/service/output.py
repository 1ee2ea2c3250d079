"""What commands print: JSON or tables on stdout, remarks on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, RenderableType
    from rich.table import Table

#: Where the output goes to a file or a pipe, nothing needs to be left out.
_UNBOUNDED: Final = 240
#: How a status or state is shown.
STYLES: Final = {
    "running": "green",
    "ready": "green",
    "completed": "dim",
    "cancelled": "dim",
    "failed": "red",
    "refused": "red",
    "lost": "red",
    "held": "yellow",
    "cordoned": "yellow",
    "draining": "yellow",
    "drained": "yellow",
    "unknown": "yellow",
}


def print_json(value: object) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: object) -> None:
    """Print one JSON document on a line of its own, at once: for output that goes on."""
    typer.echo(json.dumps(value, ensure_ascii=False))
    sys.stdout.flush()


def remark(text: str) -> None:
    """Say something that is not the result."""
    sys.stderr.write(f"leasehold: {text}\n")
    sys.stderr.flush()


def console() -> Console:
    """Return a console for stdout that leaves nothing out where nobody sees it."""
    from rich.console import Console  # noqa: PLC0415  0.1 s to import

    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_UNBOUNDED)


def print_shown(*what: RenderableType) -> None:
    """Print tables and lines of text."""
    shown = console()
    for item in what:
        shown.print(item, markup=False, soft_wrap=isinstance(item, str))


def table(headings: Iterable[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Make a table; headings that begin with ``>`` stand above numbers.

    A cell is text or a number; one that is a status gets its colour. What comes from users is
    never read as markup.
    """
    from rich.table import Table  # noqa: PLC0415 - keeps the start quick
    from rich.text import Text  # noqa: PLC0415 - keeps the start quick

    made = Table(box=None, pad_edge=False, header_style="bold")
    for i, heading in enumerate(headings):
        right = heading.startswith(">")
        made.add_column(
            heading.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=right or i == 0,
            overflow="ellipsis" if right else "fold",
        )
    for row in rows:
        made.add_row(*(Text(plain(cell), style=STYLES.get(str(cell), "")) for cell in row))
    return made


def plain(value: object) -> str:
    """Write a cell: no control characters, so that a job's name cannot paint the terminal."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))


def number(value: float | None) -> str:
    """Write a figure with three digits or, where it is large, as a whole number."""
    if value is None:
        return ""
    if float(value).is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percent(fraction: float | None) -> str:
    """Write a fraction as a percentage."""
    return "" if fraction is None else f"{fraction:.0%}"


def pairs(mapping: dict[str, Any] | None) -> str:
    """Write a mapping on one line; what is empty is left out."""
    given = ((key, plain(value)) for key, value in (mapping or {}).items())
    return " ".join(f"{key}={text}" for key, text in given if text)
