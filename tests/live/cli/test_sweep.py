"""``leasehold sweep``: the grid, its cells, and continuing it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import plotly.graph_objects as go
import pytest

from leasehold.cli.local.sweep import parse_rates, parse_seeds
from scheduler.errors import InputError, ParameterError
from simulator.many.sweep import CellResult, CellStore, SweepCell, curves_by_policy
from simulator.report.sweep_page import _figure, write_sweep_report
from simulator.request import SimulationRequest
from simulator.result import Summary
from simulator.staging import claim_directory

THROUGHPUTS = """\
job_type,scale_factor,worker_type,steps_per_s
A,1,v100,4
A,1,t4,1
B,1,v100,2
B,1,t4,1
"""


@pytest.fixture
def sweep(tmp_path):
    """Return a runner of sweeps over two seeds, in a folder of their own."""
    (tmp_path / "throughputs.csv").write_text(THROUGHPUTS)

    def run(*more):
        arguments = (
            "sweep", "--throughputs", "throughputs.csv", "--cluster", "v100:2,t4:2",
            "--policies", "fifo", "--rates", "4", "--seeds", "0:2", "--jobs", "8",
            "--round-length", "3600", "--out", "out", *more,
        )  # fmt: skip
        return subprocess.run(
            [sys.executable, "-m", "leasehold", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=200,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )

    return run


def test_a_stopped_sweep_runs_only_what_is_missing(sweep, tmp_path):
    first = sweep()
    assert first.returncode == 0, first.stderr
    assert first.stderr.count("average JCT") == 2
    assert first.stdout.splitlines()[-1] == "report: out/report.html"
    cells = tmp_path / "out" / "cells"
    lost = min(cells.iterdir())
    whole, table = lost.read_bytes(), (tmp_path / "out" / "sweep.csv").read_bytes()
    lost.write_bytes(whole[: len(whole) // 2])  # what no run of ours leaves behind

    second = sweep("--json")
    assert "1 of 2 cells were finished before" in second.stderr
    assert second.stderr.count("average JCT") == 1
    assert lost.read_bytes() == whole
    assert (tmp_path / "out" / "sweep.csv").read_bytes() == table
    shown = json.loads(second.stdout)["cells"]
    assert [(c["rate_per_hour"], c["seed"]) for c in shown] == [(4, 0), (4, 1)]
    # The table of the first run shows the mean of the figures that the second one lists.
    jct = [c["average_jct_s"] / 3600 for c in shown]
    assert f"{sum(jct) / 2:,.2f} ({min(jct):,.2f} to {max(jct):,.2f})" in first.stdout


def test_a_folder_of_something_else_is_refused(sweep, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    ran = sweep()
    assert ran.returncode == 2
    assert "out is not empty and holds no earlier sweep" in ran.stderr


def test_a_folder_is_taken_up_by_its_own_kind_only(tmp_path):
    claim_directory(tmp_path / "out", kind="sweep")
    (tmp_path / "out" / "cell").write_text("")
    claim_directory(tmp_path / "out", kind="sweep")
    with pytest.raises(InputError, match="no earlier study"):
        claim_directory(tmp_path / "out", kind="study")


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1,1", "inf", "1;2"])
def test_rates_that_make_no_sense_are_refused(text):
    with pytest.raises(ParameterError, match="--rates"):
        parse_rates(text)


@pytest.mark.parametrize("text", ["", "1:1", "-1", "x", "1,1", "1:2:3"])
def test_seeds_that_make_no_sense_are_refused(text):
    with pytest.raises(ParameterError, match="--seeds"):
        parse_seeds(text)


def test_rates_and_seeds_are_lists_or_ranges():
    assert parse_rates("0.5, 2") == [0.5, 2.0]
    assert parse_seeds("3,1") == [3, 1]
    assert parse_seeds("2:5") == [2, 3, 4]


def _summary(average_jct_s: float) -> Summary:
    numbers = {f: 1 for f in Summary.__dataclass_fields__ if f != "TIMINGS"}
    texts = {"policy": "fifo", "cluster": "t4:1", "window": "all"}
    return Summary(**{**numbers, **texts, "average_jct_s": average_jct_s})


@pytest.fixture
def cell(tmp_path):
    (tmp_path / "trace.csv").write_text("a trace")
    (tmp_path / "table.csv").write_text("a table")
    request = SimulationRequest(
        trace=str(tmp_path / "trace.csv"),
        throughputs=str(tmp_path / "table.csv"),
        cluster="t4:1",
        policy="fifo",
    )
    return SweepCell(rate_per_hour=1.0, seed=0, request=request)


def test_a_cell_is_found_again_by_what_it_was_made_from(cell, tmp_path):
    store = CellStore(tmp_path / "cells", version="1")
    assert store.find(cell) is None
    put = store.put(cell, _summary(10.0))
    again = CellStore(tmp_path / "cells", version="1")
    assert again.find(cell) == put
    for change in ({"seed": 1}, {"params": {"a": "1"}}, {"round_length_s": 60.0}):
        assert again.find(replace(cell, request=replace(cell.request, **change))) is None
    assert CellStore(tmp_path / "cells", version="2").find(cell) is None


def test_a_file_counts_by_its_content_and_not_by_its_place(cell, tmp_path):
    CellStore(tmp_path / "cells", version="1").put(cell, _summary(10.0))
    moved = tmp_path / "elsewhere.csv"
    moved.write_text("a trace")
    same = replace(cell, request=replace(cell.request, trace=str(moved)))
    assert CellStore(tmp_path / "cells", version="1").find(same) is not None
    (tmp_path / "table.csv").write_text("another table")
    assert CellStore(tmp_path / "cells", version="1").find(cell) is None


RESULTS = [
    CellResult(policy=policy, rate_per_hour=rate, seed=seed, figures={"average_jct_s": jct})
    for policy, rate, seed, jct in [
        ("fifo", 2.0, 0, 3600.0),
        ("fifo", 1.0, 0, 1800.0),
        ("fifo", 2.0, 1, 7200.0),
        ("allox", 1.0, 0, 900.0),
        ("allox", 2.0, 0, None),
    ]
]


def test_a_curve_has_mean_and_range_over_the_seeds_in_order_of_rate():
    fifo = curves_by_policy(RESULTS, "average_jct_s")["fifo"]
    assert [(p.rate_per_hour, p.mean, p.low, p.high, p.seeds) for p in fifo] == [
        (1.0, 1800.0, 1800.0, 1800.0, 1),
        (2.0, 5400.0, 3600.0, 7200.0, 2),
    ]


def test_an_unknown_figure_leaves_a_gap():
    allox = curves_by_policy(RESULTS, "average_jct_s")["allox"]
    assert [p.rate_per_hour for p in allox] == [1.0]


def test_plotly_accepts_the_figures_and_the_page_shows_the_means(tmp_path):
    figure = go.Figure(_figure(RESULTS, "average_jct_s", "average JCT (hours)", 1 / 3600))
    assert figure.data[1].y == (0.5, 1.5)
    write_sweep_report(RESULTS, tmp_path / "report.html", subtitle="two <policies>")
    page = (tmp_path / "report.html").read_text()
    assert "two &lt;policies&gt;" in page
    assert 'title="1.00 to 2.00, 2 seeds">1.50</td>' in page
