"""``leasehold compare``: a small trace through real processes."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys

import pytest

TRACE = "job_id,job_type,total_steps,scale_factor,arrival_s\n" + "".join(
    f"j{i},{'AB'[i % 2]},{3600 + 100 * i},1,{60 * i}\n" for i in range(12)
)
THROUGHPUTS = """\
job_type,scale_factor,worker_type,steps_per_s
A,1,fast,4
A,1,slow,1
B,1,fast,2
B,1,slow,1
"""


def _leasehold(*arguments, cwd) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leasehold", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "throughputs.csv").write_text(THROUGHPUTS)
    return tmp_path


def _compare(folder, policies, *more, cluster="fast:2,slow:2"):
    return _leasehold(
        "compare", "trace.csv", "--throughputs", "throughputs.csv", "--cluster", cluster,
        "--policies", policies, "--out", "out", *more, cwd=folder,
    )  # fmt: skip


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """Return the same comparison run twice, as a table and as JSON: (folder, process) each."""
    runs = []
    for more in ((), ("--json",)):
        folder = tmp_path_factory.mktemp("compare")
        (folder / "trace.csv").write_text(TRACE)
        (folder / "throughputs.csv").write_text(THROUGHPUTS)
        runs.append((folder, _compare(folder, "fifo,fifo+agnostic", "--chrome-trace", *more)))
    return runs


def test_it_ends_with_a_table_and_the_path_of_the_report(twice):
    folder, ran = twice[0]
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "report: out/report.html"
    assert (folder / "out" / "report.html").stat().st_size > 1_000_000
    for policy in ("fifo", "fifo+agnostic"):
        assert f"\n{policy} " in ran.stdout
        events = json.loads((folder / "out" / policy / "trace.json").read_text())["traceEvents"]
        assert any(event["ph"] == "X" for event in events)
    # A line per policy on stderr, in the order of their ends.
    assert [line[:5] for line in ran.stderr.splitlines()] == ["[1/2]", "[2/2]"]


def test_json_is_one_object_and_agrees_with_the_files(twice):
    folder, ran = twice[1]
    shown = json.loads(ran.stdout)
    assert set(shown) == {"results", "failed", "report"}
    for summary in shown["results"]:
        with (folder / "out" / summary["policy"] / "jobs.csv").open() as file:
            jct = [float(row["jct_s"]) for row in csv.DictReader(file)]
        assert summary["jobs_completed"] == len(jct) == 12
        assert summary["average_jct_s"] == pytest.approx(sum(jct) / len(jct))


def test_equal_inputs_give_equal_bytes(twice):
    first, second = (
        {p.relative_to(folder): p.read_bytes() for p in (folder / "out").rglob("*") if p.is_file()}
        for folder, _ in twice
    )
    assert len(first) == 16
    assert first == second


def test_bad_input_is_one_line_and_leaves_nothing(folder):
    (folder / "trace.csv").write_text(TRACE.replace("3700,1,60", "-3700,1,60"))
    ran = _compare(folder, "fifo,isolated")
    assert ran.returncode == 2
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("leasehold: trace.csv:3:")
    assert "total_steps" in last
    assert "-3700" in last
    assert not (folder / "out").exists()


def test_an_unknown_policy_is_refused_before_anything_runs(folder):
    ran = _compare(folder, "fifo,fiffo")
    assert ran.returncode == 2
    assert ran.stderr.startswith("leasehold: no policy is named 'fiffo' (did you mean 'fifo'?)")
    assert ran.stderr.count("\n") == 1


def test_a_foreign_folder_is_refused_before_anything_runs(folder):
    (folder / "out").mkdir()
    (folder / "out" / "notes.txt").write_text("mine")
    ran = _compare(folder, "fifo")
    assert ran.returncode == 2
    assert "out holds notes.txt, which Leasehold did not write" in ran.stderr
    assert "[1/1]" not in ran.stderr


def test_help_names_every_option(folder):
    ran = _leasehold("compare", "--help", cwd=folder)
    for option in ("--throughputs", "--policies", "--window", "--out", "--json", "--processes"):
        assert option in ran.stdout
