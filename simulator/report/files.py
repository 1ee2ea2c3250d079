"""The files of one simulation. Equal inputs and seed give equal bytes.

Figures that differ from run to run (``Summary.TIMINGS``) are not in them: they go to the terminal
and to ``--json``. Columns: docs/reference/simulate-output.md.
"""

from __future__ import annotations

import csv
import json
from dataclasses import fields
from typing import TYPE_CHECKING

from simulator.forecast_score import SubmissionForecast
from simulator.report.chrome_trace import write_chrome_trace
from simulator.report.page import write_report
from simulator.result import JobOutcome, LeaseSpan
from simulator.staging import staged_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from simulator.result import SimulationResult


def write_result(
    result: SimulationResult, out_dir: Path, *, report: bool = False, chrome_trace: bool = False
) -> None:
    """Write a folder with the summary, jobs, leases and series, whole or not at all.

    Args:
        result: the result to write.
        out_dir: new, empty, or an earlier result, which is replaced.
        report: also write ``report.html``, and ``runs.json`` for the page of a scheduler.
        chrome_trace: also write ``trace.json`` for Perfetto.

    Raises:
        InputError: the folder holds a file that Leasehold did not write, or cannot be written.
    """
    with staged_directory(out_dir, kind="simulation") as folder:
        write_files(result, folder)
        if report:
            write_report([result], folder / "report.html", runs=folder / "runs.json")
        if chrome_trace:
            write_chrome_trace(result, folder / "trace.json")


def write_files(result: SimulationResult, folder: Path) -> None:
    """Write the files into an existing folder."""
    summary = {**result.summary.to_dict(timings=False), "settings": dict(result.settings)}
    text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
    (folder / "summary.json").write_text(text, encoding="utf-8")
    _write_jobs(result, folder / "jobs.csv")
    _write_leases(result, folder / "leases.csv")
    _write_series(result, folder / "series.csv")
    _write_allocations(result, folder / "allocations.csv")
    if result.forecasts:
        _write_forecasts(result, folder / "forecasts.csv")


def _write_jobs(result: SimulationResult, path: Path) -> None:
    names = [f.name for f in fields(JobOutcome)]
    rows = ([*(getattr(job, name) for name in names), job.jct_s] for job in result.jobs)
    _write_csv(path, [*names, "jct_s"], rows)


def _write_forecasts(result: SimulationResult, path: Path) -> None:
    names = [f.name for f in fields(SubmissionForecast)]
    rows = ([*(getattr(x, n) for n in names), x.error, x.held] for x in result.forecasts)
    _write_csv(path, [*names, "error", "held"], rows)


def _write_leases(result: SimulationResult, path: Path) -> None:
    names = [f.name for f in fields(LeaseSpan)]
    rows = ([getattr(lease, name) for name in names] for lease in result.leases)
    _write_csv(path, names, rows)


def _write_series(result: SimulationResult, path: Path) -> None:
    series = result.series
    header = ["time_s", "waiting", "running", *(f"busy_{name}" for name in result.worker_types)]
    columns = [series.time_s.tolist(), series.waiting.tolist(), series.running.tolist()]
    rows = ([*head, *busy] for *head, busy in zip(*columns, series.busy.tolist(), strict=True))
    _write_csv(path, header, rows)


def _write_allocations(result: SimulationResult, path: Path) -> None:
    x = result.allocations
    header = [
        "time_s",
        *(f"workers_{name}" for name in result.worker_types),
        *(f"job_type_{name}" for name in x.by_job_type),
    ]
    rows = (
        [time_s, *share, *by_type]
        for time_s, share, by_type in zip(
            x.time_s.tolist(), x.share.tolist(), x.share_by_job_type.tolist(), strict=True
        )
    )
    _write_csv(path, header, rows)


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([_field(value) for value in row] for row in rows)


def _field(value: object) -> object:
    """None becomes an empty field, a bool true or false; several workers are joined by spaces."""
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, tuple) else value
