"""``leasehold traces``: its output, files and refusals."""

import json

import pytest
from typer.testing import CliRunner

from leasehold.cli.local.traces import app
from scheduler.errors import InputError, TraceError
from traces import read_throughputs, read_trace, write_throughputs
from traces.summary import summarise

RUN = CliRunner()


def call(*arguments) -> str:
    result = RUN.invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_inspect_shows_figures_as_json_and_as_tables(write):
    path = write("n.csv", "job_type,total_steps,arrival_s,entity\na,360,0,red\na,720,3600,\n")
    figures = json.loads(call("inspect", path, "--json"))
    assert figures["jobs"] == 2
    assert figures["arrivals_per_hour"] == 1.0
    assert figures["job_types"] == {"a": 2}
    assert figures["entities"] == {"red": 1}
    shown = call("inspect", path)
    assert "scale factor" in shown
    assert "red" in shown


def test_inspect_measures_work_on_the_reference_worker_type(write, table, tmp_path):
    write_throughputs(table, tmp_path / "table.csv")
    path = write("n.csv", "job_type,total_steps,arrival_s,scale_factor\na,3600,0,1\na,1800,0,2\n")
    figures = json.loads(call("inspect", path, "--throughputs", tmp_path / "table.csv", "--json"))
    # a does 10 steps/s alone and 18 on two v100: 360 s and 100 s, 360 + 200 worker-seconds.
    assert figures["reference_worker_type"] == "v100"
    assert figures["duration_mean_s"] == 230.0
    assert figures["worker_hours"] == pytest.approx(560 / 3600)
    assert figures["arrivals_per_hour"] is None
    assert figures["unknown_jobs"] == 0


def test_jobs_that_do_not_run_on_the_reference_are_counted(write, table):
    path = write("n.csv", "job_type,total_steps,arrival_s\nb,10,0\n")
    figures = summarise(read_trace(path), table, reference_worker_type="k80")
    assert figures["unknown_jobs"] == 1
    assert "worker_hours" not in figures


def test_convert_writes_a_native_trace_and_replaces_nothing_unasked(write, tmp_path):
    source = write("p.csv", "timestamp,duration,num_gpus\n2017-10-09 07:01:55,66.0,1\n")
    out = tmp_path / "out.jsonl"
    call("convert", source, out, "--throughputs", "bundled", "--reference", "a100")
    job = read_trace(out).jobs[0]
    steps_per_s = read_throughputs("bundled").steps_per_s(job.job_type, 1, "a100")
    assert job.total_steps == pytest.approx(66.0 * steps_per_s)
    again = ("convert", source, out, "--throughputs", "bundled")
    with pytest.raises(InputError, match="exists; give another name, or --force"):
        call(*again)
    call(*again, "--force")


def test_generate_is_deterministic(tmp_path):
    for name in ("a.csv", "b.csv"):
        call("generate", tmp_path / name, "--jobs", 30, "--rate", 2, "--multi", "--seed", 5)
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    figures = json.loads(
        call("generate", tmp_path / "c.csv", "--jobs", 3, "--kind", "philly", "--json")
    )
    assert figures["jobs"] == 3
    assert figures["written"].endswith("c.csv")


def test_bad_input_is_refused_and_leaves_nothing(write, tmp_path):
    bad = write("n.csv", "job_type,total_steps,arrival_s\na,-1,0\n")
    with pytest.raises(TraceError, match=r"n\.csv:2: field 'total_steps' value '-1'"):
        call("convert", bad, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
