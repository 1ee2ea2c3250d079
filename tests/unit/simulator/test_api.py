"""The Python API on traces small enough for a computation by hand."""

from __future__ import annotations

import csv
import json
import math
import sys
import types
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
from typer.testing import CliRunner

import leasehold
from leasehold.cli.main import app
from policies.base import Policy
from policies.greedy import serve_in_order
from policies.parameters import parameter
from scheduler.errors import InputError, ParameterError
from simulator.api import (
    Cluster,
    ThroughputTable,
    Trace,
    generate_trace,
    read_cluster,
    read_throughputs,
    read_trace,
    simulate,
)

TRACE = "job_id,job_type,total_steps,arrival_s\nlong,A,300,0\nshort,A,100,0\n"
TABLE = "job_type,scale_factor,worker_type,steps_per_s\nA,1,t4,1\n"


@dataclass(frozen=True, kw_only=True)
class ByLength(Policy):
    """The shortest job first, or the longest."""

    name: ClassVar[str] = "by_length"
    longest: bool = parameter(False, help="Turn the order around.")

    def allocate(self, problem):
        sign = -1.0 if self.longest else 1.0
        return serve_in_order(problem, np.argsort(sign * problem.total_steps))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "table.csv").write_text(TABLE)
    return tmp_path


@pytest.fixture
def inputs(files):
    table = read_throughputs(files / "table.csv")
    return {
        "trace": read_trace(files / "trace.csv", throughputs=table),
        "throughputs": table,
        "cluster": read_cluster("t4:1"),
        "progress": False,
    }


def jct_s(result):
    return dict(zip(result.jobs["job_id"], result.jobs["jct_s"].tolist(), strict=True))


def test_values_and_files_and_names_of_bundled_files_are_all_inputs(files, inputs):
    assert isinstance(inputs["trace"], Trace)
    assert isinstance(inputs["throughputs"], ThroughputTable)
    assert isinstance(inputs["cluster"], Cluster)
    by_value = simulate(policy="fifo", **inputs)
    by_file = simulate(
        files / "trace.csv", throughputs=files / "table.csv", cluster="t4:1", policy="fifo"
    )
    assert jct_s(by_value) == jct_s(by_file) == pytest.approx({"long": 300, "short": 400})
    assert (
        len(simulate("bundled", throughputs="bundled", cluster="bundled", policy="fifo").jobs) == 60
    )


@pytest.mark.parametrize(
    ("policy", "label", "jcts"),
    [
        (ByLength, "by_length", {"short": 100, "long": 400}),
        (ByLength(), "by_length", {"short": 100, "long": 400}),
        (ByLength(longest=True), "by_length:longest=true", {"long": 300, "short": 400}),
    ],
)
def test_a_policy_of_ones_own_runs_as_a_class_and_as_an_object(inputs, policy, label, jcts):
    result = simulate(policy=policy, **inputs)
    assert result.policy == label
    assert jct_s(result) == pytest.approx(jcts)


def test_options_stand_in_the_name_or_beside_it(inputs):
    by_name = simulate(policy="alpha_fairness:alpha=2+packed", **inputs)
    beside = simulate(policy="alpha_fairness:alpha=2", space_sharing=True, **inputs)
    assert by_name.policy == beside.policy == "alpha_fairness:alpha=2+packed"


@dataclass(frozen=True, kw_only=True)
class Remembering(Policy):
    """Keeps the times at which it was asked."""

    name: ClassVar[str] = "remembering"
    seen: list[float] = field(default_factory=list, init=False)

    def allocate(self, problem):
        self.seen.append(problem.now_s)
        return serve_in_order(problem, np.arange(problem.jobs))


def test_what_a_policy_remembers_of_one_run_does_not_reach_the_next(inputs):
    policy = Remembering()
    simulate(policy=policy, **inputs)
    assert policy.seen == []


def test_tables_hold_what_the_files_hold(inputs, tmp_path):
    result = simulate(policy="max_min_fairness", **inputs)
    result.write(tmp_path / "out")
    for name in ("jobs", "leases", "series", "allocations"):
        with (tmp_path / "out" / f"{name}.csv").open(newline="") as file:
            header, *rows = csv.reader(file)
        table = getattr(result, name)
        assert list(table) == header
        assert len(table) == len(rows) > 1
        for column, texts in zip(header, zip(*rows, strict=True), strict=True):
            if table[column].dtype == float:
                assert table[column].tolist() == pytest.approx(
                    [float(text) if text else math.nan for text in texts], nan_ok=True
                )
    assert (tmp_path / "out" / "report.html").is_file()
    assert result.jobs["scale_factor"].dtype == np.int64
    assert result.jobs["measured"].dtype == bool
    assert np.isnan(result.jobs["deadline_s"]).all()
    assert result.leases["workers"][0] == (0,)
    assert result.jobs.rows()[0]["job_id"] == "long"


def test_a_table_is_read_only_and_names_its_columns(inputs):
    jobs = simulate(policy="fifo", **inputs).jobs
    with pytest.raises(ValueError, match="read-only"):
        jobs["jct_s"][0] = 0.0
    with pytest.raises(ParameterError, match="no column is named 'jct'; there are job_id, "):
        jobs["jct"]
    assert repr(jobs).startswith("Table of 2 rows: job_id, ")
    assert jobs._repr_html_().count("<tr>") == 3


def test_pandas_gets_the_columns_or_is_named(inputs, monkeypatch):
    jobs = simulate(policy="fifo", **inputs).jobs
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ParameterError, match="pip install pandas"):
        jobs.to_pandas()
    stand_in = types.ModuleType("pandas")
    stand_in.DataFrame = dict
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    assert jobs.to_pandas()["jct_s"].tolist() == jobs["jct_s"].tolist()
    assert type(jobs.columns) is dict  # pandas takes other mappings for a single column
    assert list(jobs.columns) == list(jobs)


def test_the_figures_are_those_of_the_command(files):
    command = ["simulate", "trace.csv", "--throughputs", "table.csv", "--cluster", "t4:1"]
    arguments = [str(files / word) if word.endswith(".csv") else word for word in command]
    ran = CliRunner().invoke(app, [*arguments, "--policy", "fifo", "--json"])
    result = simulate(
        files / "trace.csv", throughputs=files / "table.csv", cluster="t4:1", policy="fifo"
    )
    told = json.loads(ran.stdout)
    assert result.summary.to_dict(timings=False).items() <= told.items()


FIFO = {"policy": "fifo"}


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        (["--policy", "fifoo"], {"policy": "fifoo"}),
        (["--policy", "fifo", "--param", "depth=3"], {"policy": "fifo:depth=3"}),
        (["--policy", "fifo", "--round-length", "-1"], FIFO | {"round_length_s": -1.0}),
        (["--policy", "fifo", "--seed", "-1"], FIFO | {"seed": -1}),
        (["--policy", "fifo", "--window", "5:9"], FIFO | {"window": (5, 9)}),
        (["--policy", "fifo", "--overheads", "no.yaml"], FIFO | {"overheads": "no.yaml"}),
        (["--policy", "fifo", "--failures", "no.yaml"], FIFO | {"failures": "no.yaml"}),
        (["--policy", "fifo", "--cluster", "t5:1"], FIFO | {"cluster": "t5:1"}),
        (["--policy", "fifo", "--cluster", "t4"], FIFO | {"cluster": "t4"}),
        (["--policy", "fifo", "--throughputs", "no.csv"], FIFO | {"throughputs": "no.csv"}),
    ],
)
def test_what_is_refused_is_refused_in_the_words_of_the_command(files, flags, arguments):
    given = {"throughputs": files / "table.csv", "cluster": "t4:1", **arguments}
    usual = ["--throughputs", str(files / "table.csv"), "--cluster", "t4:1"]
    ran = CliRunner().invoke(app, ["simulate", str(files / "trace.csv"), *usual, *flags])
    with pytest.raises(InputError) as raised:
        simulate(files / "trace.csv", **given)
    assert str(raised.value) == str(ran.exception)
    assert type(raised.value) is type(ran.exception)


def test_what_is_no_policy_or_no_one_policy_is_refused(inputs):
    with pytest.raises(ParameterError, match=r"policy is missing; .*leasehold\.read_service"):
        simulate(**inputs)
    with pytest.raises(ParameterError, match="policy is 'fifo,allox'; name one, or use compare"):
        simulate(policy="fifo,allox", **inputs)
    with pytest.raises(ParameterError, match=r"policy is 3; give a name"):
        simulate(policy=3, **inputs)


SERVICE_TRACE = "job_id,job_type,total_steps,arrival_s,depends_on\none,A,300,0,\ntwo,A,100,0,one\n"


def test_a_service_is_replayed_as_it_is_configured(files):
    (files / "trace.csv").write_text(SERVICE_TRACE)
    (files / "leasehold.toml").write_text(
        "[engine]\nround_length_s = 60\n[policy]\nname = 'max_min_fairness'\n"
    )
    where = {"throughputs": files / "table.csv", "cluster": "t4:2", "progress": False}
    service = leasehold.read_service(files / "leasehold.toml")
    result = simulate(files / "trace.csv", service=service, **where)
    # The second job waits for the first one, though a worker is free.
    started = dict(zip(result.jobs["job_id"], result.jobs["start_s"].tolist(), strict=True))
    ended = dict(zip(result.jobs["job_id"], result.jobs["end_s"].tolist(), strict=True))
    assert started["two"] >= ended["one"] >= 300.0
    assert result.summary.profile == "leasehold.toml"
    assert result.policy == "max_min_fairness"
    with pytest.raises(InputError, match="`leasehold simulate --config FILE`"):
        simulate(files / "trace.csv", policy="fifo", **where)
    for more in ({"policy": "fifo"}, {"agnostic": True}, {"round_length_s": 60.0}):
        (name,) = more
        with pytest.raises(ParameterError, match=f"{name} and service: the configuration says it"):
            simulate(files / "trace.csv", service=service, **more, **where)
    with pytest.raises(ParameterError, match=r"service is 'x'; read it: .*read_service"):
        simulate(files / "trace.csv", service="x", **where)


def test_a_plot_needs_what_it_draws(inputs):
    result = simulate(policy="fifo", record=False, **inputs)
    assert "<svg" in result.plot("jct").svg
    with pytest.raises(ParameterError, match="'queue' needs the series over time; run with record"):
        result.plot("queue")
    with pytest.raises(ParameterError, match="plot kind is 'pie'; known are jct, rho"):
        result.plot("pie")


def test_a_plot_is_kept_as_a_file_and_as_a_figure_of_plotly(inputs, tmp_path):
    drawn = simulate(policy="fifo", **inputs).plot("allocation")
    drawn.save(tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_text() == drawn.svg == drawn._repr_svg_()
    (area,) = drawn.to_plotly().data
    assert (area.name, area.stackgroup) == ("t4", "x")
    assert repr(drawn) == "Plot allocation of t4"


def test_generated_traces_run(inputs):
    trace = generate_trace("gavel", jobs=5, throughputs=read_throughputs("bundled"), seed=3)
    result = simulate(trace, throughputs="bundled", cluster="bundled", policy="fifo")
    assert result.summary.jobs_completed == 5
    assert "5 of 5 jobs completed" in repr(result)
    assert "average" in str(result)


@pytest.mark.parametrize(("arguments", "said"), [
    ({"window": (2,)}, r"window is \(2,\); give two whole numbers \(A, B\)"),
    ({"window": (0.5, 1)}, "window's start is 0.5; it must be a whole number >= 0"),
    ({"window": "2"}, "window is '2'; give A:B, two whole numbers"),
    ({"until_s": "5"}, "until is '5' s; it must be a number > 0"),
    ({"until_s": math.nan}, "until is nan s; it must be a number > 0"),
    ({"round_length_s": math.inf}, "round length is inf s; it must be a number > 0"),
    ({"seed": 1.5}, "seed is 1.5; it must be a whole number >= 0"),
    ({"seed": True}, "seed is True; it must be a whole number >= 0"),
    ({"cluster": "t4:1", "workers_per_node": 2.5}, "workers_per_node is 2.5; it must be a whole"),
    ({"overheads": None}, "overheads is None; give the path of a file"),
    ({"failures": 3}, "failures is 3; give the path of a file"),
    ({"trace": None}, "trace is None; give the path of a file, or 'bundled'"),
    ({"throughputs": {}}, "throughputs is {}; give the path of a file, or 'bundled'"),
    ({"cluster": {"t4": 1}}, "cluster is {'t4': 1}; give the path of a file, a spec such as"),
])  # fmt: skip
def test_arguments_of_another_kind_are_named_with_their_values(inputs, arguments, said):
    with pytest.raises(InputError, match=f"^{said}"):
        simulate(**{"policy": "fifo", **inputs, **arguments})


@pytest.mark.parametrize(("arguments", "said"), [
    ({"jobs": "3"}, "jobs is '3'; it must be a whole number >= 1"),
    ({"seed": -1}, "seed is -1; it must be a whole number >= 0"),
    ({"rate_per_hour": "4"}, "rate_per_hour is '4'; it must be a number > 0"),
    ({"throughputs": None}, "throughputs is None; give the path of a file, or 'bundled'"),
])  # fmt: skip
def test_a_generator_names_the_argument_that_it_cannot_use(arguments, said):
    with pytest.raises(InputError, match=f"^{said}"):
        generate_trace("gavel", **{"jobs": 3, "throughputs": "bundled", **arguments})


def test_windows_and_tables_are_written_as_on_the_command_line(inputs):
    by_text = simulate(policy="fifo", window="1:2", **inputs).jobs
    assert by_text["measured"].tolist() == [False, True]
    made = generate_trace("gavel", jobs=3, throughputs="bundled")
    assert (
        made.jobs == generate_trace("gavel", jobs=3, throughputs=read_throughputs("bundled")).jobs
    )
