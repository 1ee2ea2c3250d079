"""``leasehold advise``: loads small enough to work the best cluster out by hand.

The test of Ctrl-C replays in processes, the others in threads.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

#: Job type ``b`` runs on the fast worker only.
THROUGHPUTS = """\
job_type,scale_factor,worker_type,steps_per_s
a,1,slow,1
a,1,fast,4
a,1,free,1
b,1,fast,4
"""
CLUSTER = """\
worker_types:
  slow: {cost_usd_per_hour: 1}
  fast: {cost_usd_per_hour: 2}
nodes:
"""


def write_inputs(folder, jobs, workers):
    """Write a trace of jobs (type: number) of 3,600 steps that arrive at once, and a cluster.

    Return the arguments of the command.
    """
    rows = [f"{kind},3600,0\n" for kind, number in jobs.items() for _ in range(number)]
    (folder / "trace.csv").write_text("job_type,total_steps,arrival_s\n" + "".join(rows))
    (folder / "throughputs.csv").write_text(THROUGHPUTS)
    nodes = [
        f"  - {{name: {kind}, count: {number}, workers: {{{kind}: 1}}}}\n"
        for kind, number in workers.items()
    ]
    (folder / "cluster.yaml").write_text(CLUSTER + "".join(nodes))
    return [
        "advise", "trace.csv", "--throughputs", "throughputs.csv", "--cluster", "cluster.yaml",
        "--policy", "fifo", "--out", "out",
    ]  # fmt: skip


@pytest.fixture
def advise(leasehold, tmp_path):
    """Return a function that runs the command for jobs and workers, both type: number."""

    def run(jobs, workers, *more):
        return leasehold(*write_inputs(tmp_path, jobs, workers), *more)

    return run


@pytest.mark.usefixtures("replays_in_threads")
def test_the_advice_is_in_the_table_the_json_and_the_report(advise, tmp_path):
    jobs, workers = {"b": 4}, {"slow": 1, "fast": 1}
    ran = advise(jobs, workers, "--budget", "4", "--replays", "5", "-j", "1")
    assert ran.code == 0, ran.err
    # A fast worker completes a job every 900 s: on average after 2250 s. Two take 1350 s, and are
    # within the budget without the slow worker, which no job can use.
    assert ran.out.splitlines()[0] == (
        "Best cluster with at most 4.00 USD per hour: fast:2 (-1 slow, +1 fast), 4.00 USD per "
        "hour, mean JCT 0.375 h"
    )
    rows = [line.split() for line in ran.out.splitlines()[3:6]]
    # The present cluster comes first, since the first one of the others is cheaper and as fast.
    assert rows == [
        ["slow:1,fast:1", "unchanged", "3.00", "0.625", "0.962", "50%", "0"],
        ["fast:1", "-1", "slow", "2.00", "0.625", "0.962", "100%", "0"],
        ["fast:2", "-1", "slow,", "+1", "fast", "4.00", "0.375", "0.500", "100%", "0"],
    ]
    assert ran.out.splitlines()[-1] == "report: out/report.html"
    first = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    assert set(first) == {"manifest.json", "report.html", "advice.json"}
    assert b"fast:2 (-1 slow, +1 fast)" in first["report.html"]

    again = advise(jobs, workers, "--budget", "4", "--replays", "5", "-j", "2", "--json")
    shown = json.loads(again.out)
    assert shown == json.loads(first["advice.json"])
    assert shown["advice"] == {
        "cluster": "fast:2",
        "changes": {"slow": -1, "fast": 1},
        "usd_per_hour": 4.0,
        "mean_jct_s": pytest.approx(1350.0),
        "p95_jct_s": pytest.approx(1800.0),
        "utilisation": pytest.approx(1.0),
        "unfinished": 0,
    }
    assert shown["present"]["mean_jct_s"] == pytest.approx(2250.0)
    # A cluster without the fast worker completes no job.
    assert {c["cluster"]: c["mean_jct_s"] for c in shown["replayed"]}["slow:1"] is None
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == first


@pytest.mark.usefixtures("replays_in_threads")
def test_a_target_that_no_cluster_reaches_names_the_nearest_one(advise):
    ran = advise({"b": 2}, {"fast": 1}, "--target", "10s", "--replays", "1")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0] == (
        "No replayed cluster completes every job with a mean JCT of at most 0.003 h. The nearest "
        "is fast:1 (unchanged), 2.00 USD per hour, mean JCT 0.375 h"
    )


@pytest.mark.usefixtures("replays_in_threads")
def test_a_type_without_a_price_in_the_file_has_the_bundled_one(advise, tmp_path, monkeypatch):
    monkeypatch.setattr("traces.cluster.read_prices", lambda: {"fast": 7.0})
    monkeypatch.setattr(
        sys.modules[__name__],
        "CLUSTER",
        CLUSTER.replace("fast: {cost_usd_per_hour: 2}", "fast: {}"),
    )
    ran = advise({"b": 1}, {"fast": 1}, "--replays", "1", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["present"]["usd_per_hour"] == 7.0


@pytest.mark.usefixtures("fragile", "replays_in_threads")
def test_a_cluster_whose_replay_fails_is_named_and_the_others_are_reported(advise):
    ran = advise({"b": 1}, {"fast": 1}, "--policy", "fragile", "--replays", "2", "--json")
    assert ran.code == 1
    shown = json.loads(ran.out)
    assert [c["cluster"] for c in shown["frontier"]] == ["fast:1"]
    assert list(shown["failed"]) == ["slow:1,fast:1"]
    assert "failed: slow:1,fast:1: at 0 s, policy 'fragile' failed with RuntimeError" in ran.err


@pytest.mark.usefixtures("fragile", "replays_in_threads")
def test_nothing_is_written_if_the_replay_of_the_present_cluster_fails(advise, tmp_path):
    ran = advise({"b": 1}, {"fast": 2}, "--policy", "fragile")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("failed: fast:2: at 0 s, policy 'fragile' failed") == 1
    assert not (tmp_path / "out").exists()


def test_ctrl_c_reports_the_clusters_replayed_so_far(tmp_path):
    process = subprocess.Popen(
        [
            sys.executable, "-m", "leasehold",
            *write_inputs(tmp_path, {"a": 3}, {"slow": 1, "fast": 1}),
            "--replays", "400", "-j", "1",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )  # fmt: skip
    assert "slow:1,fast:1" in process.stderr.readline()  # the present cluster
    assert "average JCT" in process.stderr.readline()  # a cluster of the first step
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "interrupted after" in err
    assert "clusters were replayed with 3 jobs." in out
    assert json.loads((tmp_path / "out" / "advice.json").read_text())["present"]["unfinished"] == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--budget", "0"), "--budget is 0; give USD per hour, above 0"),
        (("--budget", "much"), "--budget is 'much'; give a number"),
        (("--budget", "4", "--target", "1h"), "--budget 4 and --target 1h exclude each other"),
        (("--target", "soon"), "--target is 'soon'; give seconds, or a span such as 45s"),
        (("--target", "0"), "--target is '0'; give a span above 0, such as 6h"),
        (("--metric", "p50"), "--metric is 'p50'; give mean or p95"),
        (("--types", "h100"), "--types names worker type 'h100', which is not in the throughput"),
        (("--types", "free"), "--types names worker type 'free', which has no price; give its"),
        (("--cluster", "free:2"), "--cluster names worker type 'free', which has no price"),
        (("--replays", "0"), "--replays is '0'; give 1 or more"),
        (("--param", "x"), "--param is 'x'; give KEY=VALUE"),
        (("--policy", "fiffo"), "no policy is named 'fiffo' (did you mean 'fifo'?)"),
        (("--window", "5:9"), "window is 5:9, but the trace has 1 jobs"),
        (("--out", "trace.csv"), "trace.csv is a file; name a folder that is new or empty"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(advise, tmp_path, more, message):
    ran = advise({"a": 1}, {"slow": 1}, *more)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "out").exists()
