"""Output of commands: JSON or tables on stdout, remarks on stderr."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import typer

from leasehold.cli.display.columns import column_of, fit_columns, laid_out
from scheduler.logs.terminal_text import fit_for_terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, RenderableType
    from rich.text import Text

#: If the output goes to a file or a pipe, it is complete.
_UNBOUNDED: Final = 1_000_000
#: Control characters that JSON need not escape, and directions of writing.
_ACTIVE: Final = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
#: How a status or state is shown.
STYLES: Final = {
    "running": "green",
    "ready": "green",
    "completed": "dim",
    "cancelled": "dim",
    "failed": "red",
    "refused": "red",
    "lost": "red",
    "silent": "yellow",
    "held": "yellow",
    "cordoned": "yellow",
    "draining": "yellow",
    "drained": "yellow",
    "unknown": "yellow",
}


def print_json(value: object) -> None:
    """Print one JSON document."""
    typer.echo(_escaped(json.dumps(value, indent=2, ensure_ascii=False)))


def print_json_line(value: object) -> None:
    """Print one JSON document as a line and flush it, for continuous output."""
    typer.echo(_escaped(json.dumps(value, ensure_ascii=False)))
    sys.stdout.flush()


def _escaped(text: str) -> str:
    """Escape characters in strings that JSON allows but a terminal acts upon."""
    return _ACTIVE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_remark(text: str) -> None:
    """Print a remark on stderr, apart from the result."""
    sys.stderr.write(f"leasehold: {fit_for_terminal(text)}\n")
    sys.stderr.flush()


def console() -> Console:
    """Return a console for stdout that cuts nothing if stdout is not a terminal."""
    from rich.console import Console  # noqa: PLC0415  0.1 s to import

    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_UNBOUNDED)


def print_shown(*what: RenderableType) -> None:
    """Print tables and lines of text."""
    shown = console()
    for item in what:
        line = fit_for_terminal(item) if isinstance(item, str) else item
        shown.print(line, markup=False, soft_wrap=True)


def print_text(text: str) -> None:
    """Print lines of text; on a terminal, lines that are too long are wrapped."""
    found = console()
    if found.is_terminal:
        text = "\n".join(part for line in text.splitlines() for part in _folded(line, found.width))
    typer.echo(text)


def _folded(line: str, width: int) -> list[str]:
    import textwrap  # noqa: PLC0415 - keeps the start quick

    indent = line[: len(line) - len(line.lstrip(" "))]
    folded = textwrap.wrap(
        line,
        max(width, 20),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return folded or [""]


def table(
    headings: Iterable[str],
    rows: Iterable[Sequence[Any]],
    *,
    spare: Sequence[str] | None = None,
    wrapped: bool = False,
) -> Text:
    """Make a table; ``>`` before a heading: numbers, ``~``: its cells are shortened first.

    A cell is text or a number; a status gets its colour. Users' text is never read as markup.
    ``=`` before a heading: long words of its cells are broken; other cells lose their middle if the
    terminal is too narrow. Piped output is complete.

    Args:
        headings: of the columns.
        rows: their cells.
        spare: if given, columns without content in any row are left out. If the terminal is still
            too narrow, columns of these names are dropped, from the first on.
        wrapped: whether a row may take several lines before any column is spared.
    """
    from rich.text import Text  # noqa: PLC0415 - keeps the start quick

    cells = [[plain_cell(cell) for cell in row] for row in rows]
    columns = [
        column_of(heading, [row[i] for row in cells], whole=i == 0)
        for i, heading in enumerate(headings)
    ]
    width = console().width
    if spare is not None and cells:
        columns = fit_columns(columns, spare, width=width, wrapped=wrapped)
    made = Text(no_wrap=True, overflow="ignore")
    for place, row in enumerate(laid_out(columns, width=width)):
        for line in row:
            text = "  ".join(line).rstrip()
            if made:
                made.append("\n")
            begin = len(made)
            made.append(text, style="bold" if place == 0 else None)
            at = begin
            for cell in line if place else ():
                if style := STYLES.get(cell.strip()):
                    made.stylize(style, at, at + len(cell.rstrip()))
                at += len(cell) + 2
    return made


def plain_cell(value: object) -> str:
    """Write a cell: no control characters, so that a job's name cannot paint the terminal."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return format_number(value)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))


def format_number(value: float | None) -> str:
    """Write a figure with three digits or, if it is large, as a whole number."""
    if value is None:
        return ""
    if float(value).is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def format_percent(fraction: float | None) -> str:
    """Write a fraction as a percentage."""
    return "" if fraction is None else f"{fraction:.0%}"


def format_pairs(mapping: dict[str, Any] | None) -> str:
    """Write a mapping on one line; empty values are left out."""
    given = ((key, _in_words(value)) for key, value in (mapping or {}).items())
    return " ".join(f"{key}={text}" for key, text in given if text)


def _in_words(value: object) -> str:
    """Write a value of any structure; for a list of mappings, the last one and the count."""
    if isinstance(value, dict):
        return ",".join(f"{plain_cell(key)}:{_in_words(part)}" for key, part in value.items())
    if not isinstance(value, list | tuple):
        return plain_cell(value)
    if value and isinstance(value[-1], dict):
        last = format_pairs(value[-1])
        return f"({last})" if len(value) == 1 else f"{len(value)}, the last: ({last})"
    return ",".join(map(_in_words, value))
