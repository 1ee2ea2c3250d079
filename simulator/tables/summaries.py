"""Tables of summaries, for the terminal and for notebooks."""

from __future__ import annotations

import html
from typing import IO, TYPE_CHECKING

from simulator.tables.columns import COLUMNS, TIMING_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from simulator.result import Summary
    from simulator.tables.columns import FigureColumn

#: The most important first: a narrow terminal shows as many as fit, the report shows all.
_KEYS = (
    "jobs_completed",
    "average_jct_s",
    "p95_jct_s",
    "makespan_s",
    "rho_mean",
    "rho_max",
    "utilisation",
    "cost_usd",
    "slo_violations",
    "cpu_s",
    "preemptions",
    "solve_median_s",
)
#: Width for output to a file or a pipe, which needs no limit.
_UNBOUNDED = 240


def print_summaries(
    summaries: Sequence[Summary], *, file: IO[str] | None = None, timings: bool = True
) -> None:
    """Print a table with a row per run; the best figures are bold and starred.

    Args:
        summaries: of the runs, in the order of the rows.
        file: the output; stdout by default.
        timings: whether to show the figures that differ from run to run.
    """
    from rich.console import Console  # noqa: PLC0415  only when something is shown

    console = Console(file=file, force_jupyter=False)  # it would print beside the file
    if not console.is_terminal:
        console = Console(file=file, width=_UNBOUNDED, force_jupyter=False)
    columns = _shown(summaries, timings=timings)
    table = _table(summaries, columns)
    # Measured with room to spare, because a measure is never wider than the console.
    roomy = console.options.update(max_width=_UNBOUNDED)
    while len(columns) > 1 and console.measure(table, options=roomy).maximum > console.width:
        columns = columns[:-1]
        table = _table(summaries, columns)
    console.print(table)
    if any(column.best(summaries) for column in columns):
        console.print("* best of its column", highlight=False)


def summaries_html(summaries: Sequence[Summary]) -> str:
    """Return that table without timings as HTML, for notebooks; the best figures are bold."""
    columns = _shown(summaries, timings=False)
    best = [column.best(summaries) for column in columns]
    units = [f" ({column.unit})" if column.unit else "" for column in columns]
    head = "".join(
        f'<th title="{html.escape(column.meaning)}">{column.title}{unit}</th>'
        for column, unit in zip(columns, units, strict=True)
    )
    rows = []
    for i, summary in enumerate(summaries):
        cells = "".join(
            f"<td><b>{column.text(summary)}</b></td>"
            if i in winners
            else f"<td>{column.text(summary)}</td>"
            for column, winners in zip(columns, best, strict=True)
        )
        rows.append(f'<tr><th scope="row">{html.escape(summary.policy)}</th>{cells}</tr>')
    body = "".join(rows)
    return f"<table><thead><tr><th>policy</th>{head}</tr></thead><tbody>{body}</tbody></table>"


def _table(summaries: Sequence[Summary], columns: Sequence[FigureColumn]) -> Table:
    from rich.table import Table  # noqa: PLC0415 - keeps the start quick
    from rich.text import Text  # noqa: PLC0415 - keeps the start quick

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("policy", no_wrap=True)
    for column in columns:
        table.add_column(_heading(column), justify="right", no_wrap=True)
    best = [column.best(summaries) for column in columns]
    for i, summary in enumerate(summaries):
        cells = [
            Text(f"{column.text(summary)}*", style="bold")
            if i in winners
            else Text(f"{column.text(summary)} ")
            for column, winners in zip(columns, best, strict=True)
        ]
        table.add_row(Text(summary.policy), *cells)
    return table


def _shown(summaries: Sequence[Summary], *, timings: bool) -> list[FigureColumn]:
    """Return the columns to show; without cost and missed SLOs if they are 0 in all runs."""
    every = {column.key: column for column in (*COLUMNS, *(TIMING_COLUMNS if timings else ()))}
    idle = {
        key
        for key in ("cost_usd", "slo_violations")
        if all(not getattr(summary, key) for summary in summaries)
    }
    return [every[key] for key in _KEYS if key in every and key not in idle]


def _heading(column: FigureColumn) -> str:
    """Two lines, the last word or the unit below, and a blank under the star."""
    first, _, second = column.title.partition(" ")
    unit = f"({column.unit})" if column.unit else ""
    return f"{first} \n{' '.join(part for part in (second, unit) if part)} "
