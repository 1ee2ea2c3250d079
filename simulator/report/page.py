"""One self-contained HTML page about one or more runs.

The page needs no network: plotly's script is embedded once. Equal results give equal bytes.
"""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from simulator.report import charts
from simulator.report.html_table import render_cell, render_heading, render_row, render_table
from simulator.report.runs import runs_document, write_runs
from simulator.staging import staged_file
from simulator.tables.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from simulator.result import SimulationResult

_PLACEHOLDER: Final = re.compile(r"\{\{(\w+)\}\}")


def write_report(
    results: Sequence[SimulationResult],
    path: Path,
    *,
    title: str = "Leasehold report",
    runs: Path | None = None,
) -> None:
    """Write the page, whole or not at all.

    Args:
        results: at least one; the order decides colours and the order of the table.
        path: the file; an existing one is replaced.
        title: heading of the page.
        runs: a further file, for the runs as JSON; None for no such file.

    Raises:
        ValueError: no results.
        InputError: the file cannot be written.
    """
    document = runs_document(results)
    page = render_report(results, title=title, document=document)
    with staged_file(path) as file:
        file.write(page)
    if runs is not None:
        write_runs(document, runs)


def render_report(
    results: Sequence[SimulationResult],
    *,
    title: str = "Leasehold report",
    document: Mapping[str, Any] | None = None,
) -> str:
    """Return the page as text; see ``write_report``.

    Args:
        results: at least one.
        title: heading of the page.
        document: that of ``runs_document``, if it is there already.
    """
    if not results:
        raise ValueError("a report needs at least one result")
    return fill_page(
        "report.html",
        {
            "title": html.escape(title),
            "subtitle": _subtitle(results),
            "summary_table": _summary_table(results),
            "meanings": _meanings(),
            "settings_table": _settings_table(results),
            "policy_options": _policy_options(results),
            "runs_title": "The run, round by round"
            if len(results) == 1
            else "Two policies side by side",
            "runs_view": _read_shared("runs.html"),
            "runs_script": _read_shared("runs.js"),
            "runs": _script_json(document or runs_document(results)),
        },
        _figures(results),
    )


def fill_page(template: str, texts: Mapping[str, str], data: object) -> str:
    """Return the page frame with a template of ``assets/``, texts and data filled in.

    Args:
        template: file name of the main part.
        texts: HTML by placeholder.
        data: what ``page.js`` draws, as JSON.
    """
    from plotly.offline import get_plotlyjs  # noqa: PLC0415  5 MB that only reports need

    values = {
        **texts,
        "style": _read_shared("site.css") + _read_asset("page.css"),
        "script": _read_asset("page.js"),
        "plotly": get_plotlyjs(),
        "data": _script_json(data),
    }
    page = _read_asset("frame.html").replace("{{main}}", _read_asset(template))
    # One pass, so that braces inside a value are left alone.
    return _PLACEHOLDER.sub(lambda match: values[match[1]], page)


def _read_asset(name: str) -> str:
    return files("simulator.report").joinpath("assets", name).read_text(encoding="utf-8")


def _read_shared(name: str) -> str:
    """Return what the page of a scheduler has, too."""
    return files("scheduler.views").joinpath("assets", name).read_text(encoding="utf-8")


def _script_json(data: object) -> str:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c")  # a job's name must not end the script element


def _figures(results: Sequence[SimulationResult]) -> dict[str, Any]:
    unit, jct_unit = charts.time_units(results)
    return {
        "figures": {
            "jct": charts.jct_distribution(results, jct_unit),
            "rho": charts.rho_distribution(results),
            "utilisation": charts.utilisation(results, unit),
            "queue": charts.queue_length(results, unit),
        },
        "allocations": {
            "worker_type": [charts.allocation_by_worker_type(r, unit) for r in results],
            "job_type": [charts.allocation_by_job_type(r, unit) for r in results],
        },
    }


def _subtitle(results: Sequence[SimulationResult]) -> str:
    first = results[0].summary
    trace = PurePath(results[0].settings.get("trace", "")).name
    parts = [
        f"trace <b>{html.escape(trace)}</b>" if trace else "",
        f"cluster <b>{html.escape(first.cluster)}</b>",
        f"{first.jobs:,} jobs measured (window {html.escape(first.window)})",
        f"seed {first.seed}",
    ]
    return " &middot; ".join(part for part in parts if part)


def _summary_table(results: Sequence[SimulationResult]) -> str:
    summaries = [r.summary for r in results]
    best = {column.key: column.best(summaries) for column in COLUMNS}
    headings = (render_heading(c.title, unit=c.unit, meaning=c.meaning) for c in COLUMNS)
    rows = (
        render_row(
            summary.policy,
            (render_cell(c.text(summary), best=i in best[c.key]) for c in COLUMNS),
            colour=charts.policy_line(i)["color"],
        )
        for i, summary in enumerate(summaries)
    )
    return render_table("policy", headings, rows)


def _meanings() -> str:
    return "".join(f"<dt>{c.title}</dt><dd>{html.escape(c.meaning)}</dd>" for c in COLUMNS)


def _settings_table(results: Sequence[SimulationResult]) -> str:
    keys = list(dict.fromkeys(key for r in results for key in r.settings))
    rows = []
    for key in keys:
        values = list(dict.fromkeys(r.settings.get(key, "") for r in results))
        shown = values[0] if len(values) == 1 else " | ".join(v or "-" for v in values)
        rows.append(
            f'<tr><th scope="row">{html.escape(key)}</th><td>{html.escape(shown)}</td></tr>'
        )
    return "".join(rows)


def _policy_options(results: Sequence[SimulationResult]) -> str:
    return "".join(
        f'<option value="{i}">{html.escape(r.summary.policy)}</option>'
        for i, r in enumerate(results)
    )
