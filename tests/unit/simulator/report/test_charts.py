"""Figures of the report, against direct computations; plotly itself validates their form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.report import charts
from simulator.report.charts import TimeUnit, _averaged
from simulator.result import Series

HOURS = TimeUnit(name="hours", seconds=3600)


@pytest.mark.parametrize(
    "figure",
    [
        lambda r: charts.jct_distribution(r, HOURS),
        charts.rho_distribution,
        lambda r: charts.utilisation(r, HOURS),
        lambda r: charts.queue_length(r, HOURS),
        lambda r: charts.allocation_by_worker_type(r[0], HOURS),
        lambda r: charts.allocation_by_job_type(r[0], HOURS),
    ],
    ids=["jct", "rho", "utilisation", "queue", "by_worker_type", "by_job_type"],
)
def test_plotly_accepts_the_figure(results, figure):
    go.Figure(figure(results))  # raises on any unknown attribute or value


def test_half_of_the_jobs_are_complete_at_the_median(result_of):
    result = result_of(jobs=41)
    line = charts.jct_distribution([result], HOURS)["data"][0]
    x, y = np.array(line["x"]), np.array(line["y"])
    assert x[np.searchsorted(y, 0.5)] * 3600 == pytest.approx(result.summary.p50_jct_s, rel=1e-5)
    assert y[0] == 0
    assert y[-1] == 1


def test_jobs_that_never_complete_keep_the_line_below_one(result_of):
    result = result_of(jobs=10)
    lost = tuple(replace(job, end_s=None, rho=None) for job in result.jobs[:4])
    line = charts.jct_distribution([replace(result, jobs=lost + result.jobs[4:])], HOURS)["data"][0]
    assert line["y"][-1] == pytest.approx(0.6)


def test_jobs_outside_the_window_are_not_counted(result_of):
    result = result_of(jobs=10)
    jobs = tuple(replace(job, measured=i >= 8) for i, job in enumerate(result.jobs))
    line = charts.rho_distribution([replace(result, jobs=jobs)])["data"][0]
    assert len(line["x"]) == 3  # two jobs, and the point at 0 %


def test_a_policy_has_the_same_line_in_every_figure(results):
    figures = [
        charts.jct_distribution(results, HOURS),
        charts.rho_distribution(results),
        charts.utilisation(results, HOURS),
        charts.queue_length(results, HOURS),
    ]
    for i, result in enumerate(results):
        lines = [figure["data"][i] for figure in figures]
        assert {line["name"] for line in lines} == {result.summary.policy}
        assert len({(line["line"]["color"], line["line"]["dash"]) for line in lines}) == 1


def test_24_policies_are_told_apart():
    styles = [charts.policy_line(i) for i in range(24)]
    assert len({(s["color"], s["dash"]) for s in styles}) == 24


def test_small_job_types_are_summed_and_nothing_is_lost(result_of):
    result = result_of(jobs=30)
    figure = charts.allocation_by_job_type(result, HOURS)
    assert figure["data"][-1]["name"] == "3 others"
    drawn = np.sum([trace["y"] for trace in figure["data"]], axis=0)
    assert drawn[:-1] == pytest.approx(result.allocations.share_by_job_type.sum(axis=1), rel=1e-5)


@given(steps=st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 50)), min_size=5, max_size=40))
def test_averaging_keeps_the_integral(steps):
    lengths, values = np.array(steps).T
    time_s = np.append(0.0, lengths.cumsum())
    edges, mean = _averaged(time_s[:-1], values[:, None], float(time_s[-1]), points=5)
    assert len(edges) == 6
    area = (np.diff(edges) * mean[:-1, 0]).sum()
    assert area == pytest.approx((lengths * values).sum(), rel=1e-9)
    assert mean.max() <= values.max() * (1 + 1e-6)


def test_few_samples_are_drawn_as_they_are():
    edges, mean = _averaged(np.array([0.0, 5.0]), np.array([[1.0], [3.0]]), 7.0)
    assert edges.tolist() == [0.0, 5.0, 7.0]
    assert mean[:, 0].tolist() == [1.0, 3.0, 3.0]


def test_an_empty_run_has_empty_lines(result_of):
    result = result_of(jobs=2)
    nothing = Series(
        time_s=np.empty(0),
        busy=np.empty((0, 3), dtype=np.int64),
        waiting=np.empty(0, dtype=np.int64),
        running=np.empty(0, dtype=np.int64),
    )
    empty = replace(
        result,
        jobs=(),
        series=nothing,
        summary=replace(result.summary, makespan_s=float("nan")),
    )
    assert charts.utilisation([empty], HOURS)["data"][0]["x"] == []
    assert charts.jct_distribution([empty], HOURS)["data"][0]["x"] == []


@pytest.mark.parametrize(
    ("seconds", "name"), [(600, "minutes"), (86400, "hours"), (30 * 86400, "days")]
)
def test_times_are_shown_in_a_readable_unit(seconds, name):
    assert TimeUnit.for_span(seconds).name == name
