"""``simulator.api.compare``: policies in processes, those of the caller's own program too."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from policies.base import Policy
from policies.greedy import serve_in_order
from policies.parameters import parameter
from scheduler.errors import InputError, LeaseholdError, ParameterError
from simulator.api import Variant, compare, read_trace, simulate

TRACE = "job_id,job_type,total_steps,arrival_s\nlong,A,300,0\nshort,A,100,0\n"
TABLE = "job_type,scale_factor,worker_type,steps_per_s\nA,1,t4,1\n"


@dataclass(frozen=True, kw_only=True)
class Broken(Policy):
    """Raises."""

    name: ClassVar[str] = "broken"

    def allocate(self, problem):
        raise RuntimeError("out of cheese")


@dataclass(frozen=True, kw_only=True)
class Locked(Policy):
    """Cannot be sent anywhere."""

    name: ClassVar[str] = "locked"
    lock: object = parameter(None, help="A lock.")

    def allocate(self, problem):
        return serve_in_order(problem, np.arange(problem.jobs))


@pytest.fixture
def inputs(tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "table.csv").write_text(TABLE)
    return {
        "trace": tmp_path / "trace.csv",
        "throughputs": tmp_path / "table.csv",
        "cluster": "t4:1",
        "progress": False,
    }


def test_a_comparison_has_the_results_of_single_runs(inputs):
    names = ["fifo", "max_min_fairness"]
    runs = compare(policies=[*names, Variant(policy="fifo", agnostic=True)], **inputs)
    assert list(runs) == [*names, "fifo+agnostic"]
    assert len(runs) == 3
    for name in names:
        alone = simulate(policy=name, **inputs)
        assert runs[name].jobs.rows()[1]["jct_s"] == alone.jobs.rows()[1]["jct_s"]
        assert runs[name].summary.to_dict(timings=False) == alone.summary.to_dict(timings=False)
    assert runs.summaries["policy"].tolist() == list(runs)
    assert [line["name"] for line in runs.plot("queue").figure["data"]] == list(runs)
    assert str(runs).splitlines()[2].startswith("fifo ")
    assert runs._repr_html_().count("<tr>") == 4
    with pytest.raises(ParameterError, match="no run of 'allox'; there are fifo, "):
        runs["allox"]
    with pytest.raises(ParameterError, match="'allocation' is of one run"):
        runs.plot("allocation")


def test_one_text_lists_policies_as_the_command_takes_them(inputs, tmp_path):
    runs = compare(policies="fifo,alpha_fairness:alpha=2+packed", **inputs)
    assert list(runs) == ["fifo", "alpha_fairness:alpha=2+packed"]
    runs.write_report(tmp_path / "report.html")
    assert "alpha_fairness:alpha=2+packed" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ([], "no policies given"),
        (["fifo", "fifo"], "policy 'fifo' is listed twice; name it once"),
        (["fifo", "fifoo"], "no policy is named 'fifoo'"),
    ],
)
def test_bad_lists_are_refused_before_anything_runs(inputs, policies, message):
    with pytest.raises(InputError, match=message):
        compare(policies=policies, **inputs)


def test_a_bad_input_of_all_is_raised_once(inputs):
    with pytest.raises(InputError, match=r"nowhere\.csv"):
        compare(policies=["fifo", "allox"], **{**inputs, "throughputs": "nowhere.csv"})


def test_a_run_that_fails_takes_no_other_with_it(inputs):
    with pytest.warns(UserWarning, match="the run of 'broken' failed: .*out of cheese"):
        runs = compare(policies=["fifo", Broken], **inputs)
    assert list(runs) == ["fifo"]
    assert "out of cheese" in runs.failed["broken"]
    assert "failed: broken: " in str(runs)
    with pytest.raises(ParameterError, match="the run of 'broken' failed"):
        runs["broken"]
    with pytest.raises(LeaseholdError, match=r"broken: .*out of cheese"):
        compare(policies=[Broken], **inputs)


def test_a_policy_of_a_module_that_no_path_leads_to_is_sent_whole(inputs, tmp_path):
    file = tmp_path / "elsewhere.py"
    file.write_text(
        "from policies.built_in.fifo import Fifo\nclass Mine(Fifo):\n    name = 'mine'\n"
    )
    spec = importlib.util.spec_from_file_location("elsewhere", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["elsewhere"] = module
    try:
        spec.loader.exec_module(module)
        runs = compare(policies=[module.Mine], **inputs)
    finally:
        del sys.modules["elsewhere"]
    assert list(runs) == ["mine"]


def test_what_cannot_be_sent_to_a_process_is_named(inputs):
    with pytest.raises(ParameterError, match=r"policy 'locked.*cannot be sent to a process.*lock"):
        compare(policies=[Locked(lock=threading.Lock())], **inputs)


SCRIPT = '''
from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from policies.base import Policy
from policies.greedy import serve_in_order
from policies.parameters import parameter
from simulator.api import compare, read_throughputs, read_trace

SIGN = -1.0


def turned(values):
    return SIGN * values


class Order:
    def of(self, problem):
        return np.argsort(turned(problem.total_steps))


@dataclass(frozen=True, kw_only=True)
class Longest(Policy):
    """The longest job first."""

    name: ClassVar[str] = "longest"
    power: float = parameter(1.0, gt=0.0, help="Of nothing.")
    shares: Mapping[str, float] = parameter(MappingProxyType({}), help="Of nobody.")
    plain: int = 0

    def allocate(self, problem):
        return serve_in_order(problem, Order().of(problem))


folder = sys.argv[1]
table = read_throughputs(f"{folder}/table.csv")
trace = read_trace(f"{folder}/trace.csv", throughputs=table)
runs = compare(
    trace, [Longest, Longest(power=2.0), Longest(shares={"a": 1.0}, plain=3)],
    throughputs=table, cluster="t4:1", processes=2,
)
for label in runs:
    print(label, runs[label].jobs["jct_s"].round().tolist())
'''


def test_a_script_needs_no_guard_and_its_own_policies_run(inputs, tmp_path):
    (tmp_path / "study.py").write_text(textwrap.dedent(SCRIPT))
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "study.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=_paths(),
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "longest [300.0, 400.0]",
        "longest:power=2.0 [300.0, 400.0]",
        "longest:shares=a:1.0,plain=3 [300.0, 400.0]",
    ]


def _paths() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_traces_cross_to_processes_as_values(inputs):
    trace = read_trace("bundled", limit=4)
    where = {"throughputs": "bundled", "cluster": "bundled", "progress": False}
    runs = compare(trace, ["fifo"], **where)
    assert runs["fifo"].jobs["job_id"].tolist() == [job.job_id for job in trace.jobs]
