"""``leasehold savings``: two jobs that are worked out by hand.

The first test replays in processes, the others in threads.
"""

from __future__ import annotations

import json

import pytest

TRACE = "job_id,job_type,total_steps,arrival_s\nx,a,3600,0\ny,a,3600,7200\n"
THROUGHPUTS = "job_type,scale_factor,worker_type,steps_per_s\na,1,slow,1\na,1,fast,4\n"
CLUSTER = """\
worker_types:
  slow: {cost_usd_per_hour: 1}
  fast: {cost_usd_per_hour: 3}
nodes:
  - {name: s, workers: {slow: 1}}
  - {name: f, workers: {fast: 1}}
"""


@pytest.fixture
def savings(leasehold, tmp_path):
    """Return a function that runs the command with a small trace."""
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "throughputs.csv").write_text(THROUGHPUTS)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)

    def run(*more, traces=("trace.csv",)):
        return leasehold(
            "savings", *traces, "--throughputs", "throughputs.csv", "--cluster", "cluster.yaml",
            "--policies", "fifo", "--overheads", "none", "--out", "out", *more,
        )  # fmt: skip

    return run


def test_the_savings_of_two_jobs_are_in_the_table_the_json_and_the_report(savings, tmp_path):
    """Each job takes 1 h on the slow worker, which is the first, and 0.25 h on the fast one."""
    ran = savings()
    assert ran.code == 0, ran.err
    rows = {line.split("  ")[0]: line.split() for line in ran.out.splitlines()}
    assert rows["plain queue"][2:] == ["2.00", "2.00", "1.00", "1.00", "0"]
    assert rows["fifo"][1:] == [
        "0.50", "1.50", "1.50", "0.50", "0.250", "75%", "0.250", "0",
    ]  # fmt: skip
    assert "- The queue is first come, first served, and never preempts a job." in ran.out
    assert "The trace is too short for intervals. The figures do not cover" in ran.out
    assert ran.out.splitlines()[-1] == "report: out/report.html"
    assert [line[:5] for line in ran.err.splitlines()] == ["[1/2]", "[2/2]"]
    first = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    assert set(first) == {"manifest.json", "report.html", "savings.json"}
    assert b"1.50" in first["report.html"]

    again = savings("--json")
    assert json.loads(again.out) == json.loads(first["savings.json"])
    queue, fifo = json.loads(again.out)["policies"]
    assert (queue["policy"], queue["saved"], fifo["policy"]) == ("plain queue", None, "fifo")
    assert fifo["saved"]["gpu_hours"] == {"value": pytest.approx(1.5), "low": None, "high": None}
    # The folder is replaced, and equal inputs give equal bytes.
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == first


@pytest.mark.usefixtures("replays_in_threads")
def test_several_traces_are_averaged(savings, tmp_path):
    (tmp_path / "other.csv").write_text(TRACE.replace("3600", "7200"))
    ran = savings("--json", traces=("trace.csv", "other.csv"))
    queue, fifo = json.loads(ran.out)["policies"]
    assert queue["gpu_hours"] == pytest.approx((2 + 4) / 2)
    assert fifo["gpu_hours"] == pytest.approx((0.5 + 1) / 2)
    assert "plain queue, other.csv" in ran.err


@pytest.mark.usefixtures("replays_in_threads")
def test_the_queue_lets_later_jobs_pass_unless_the_order_is_strict(savings, tmp_path):
    """The gang of two workers arrives while ``x`` runs; ``z`` arrives after the gang."""
    header, row = TRACE.splitlines()[:2]
    jobs = f"{header},scale_factor\n{row},1\ngang,a,3600,60,2\nz,a,3600,120,1\n"
    (tmp_path / "trace.csv").write_text(jobs)
    (tmp_path / "throughputs.csv").write_text(THROUGHPUTS + "a,2,slow,2\n")
    mean_s = []
    for options in ([], ["--strict-order"]):
        ran = savings("--json", "--cluster", "slow:2", *options)
        assert ran.code == 0, ran.err
        mean_s.append(json.loads(ran.out)["policies"][0]["mean_jct_s"])
    # The gang takes 1800 s. If z passes it: x ends at 3600 s, z at 3720 s, the gang at 5520 s.
    # Else the gang ends at 5400 s, and z at 9000 s.
    assert mean_s[0] == pytest.approx((3600 + 5520 - 60 + 3720 - 120) / 3)
    assert mean_s[1] == pytest.approx((3600 + 5400 - 60 + 9000 - 120) / 3)


@pytest.mark.usefixtures("replays_in_threads")
def test_a_job_that_can_never_run_is_left_out_and_counted(savings, tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE + "z,b,10,0\n")
    (tmp_path / "throughputs.csv").write_text(THROUGHPUTS + "b,1,other,1\n")
    ran = savings("--json")
    assert ran.code == 0, ran.err
    shown = json.loads(ran.out)
    assert shown["policies"][0]["jobs"] == 2
    assert shown["assumptions"][-1].startswith("1 of 3 jobs are left out: they did not complete")
    assert "job 'z' was refused" in ran.err


@pytest.mark.usefixtures("fragile", "replays_in_threads")
def test_a_policy_that_fails_is_named_and_the_others_are_compared(savings):
    ran = savings("--policies", "fragile")
    assert ran.code == 1
    labels = [line.split("  ")[0] for line in ran.out.splitlines()]
    assert labels[1:3] == ["plain queue", "fifo"]
    assert "failed: fragile: at 0 s, policy 'fragile' failed with RuntimeError" in ran.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--confidence", "1"), "--confidence is 1.0; it must be above 0 and below 1"),
        (("--confidence", "high"), "--confidence is 'high'; give a number"),
        (("--policies", "fiffo"), "no policy is named 'fiffo' (did you mean 'fifo'?)"),
        (("--policies", "fifo"), "policy 'fifo' is listed twice with the same options"),
        (("--seed", "-1"), "seed is -1; it must be a whole number >= 0"),
        (("--limit", "0"), "limit is 0; it must be a whole number >= 1"),
        (("--cluster", "slow:x"), "cluster spec 'slow:x': 'slow:x' is not type:count"),
        (("--cluster", "h100:1"), "worker type 'h100' of the cluster is not in the throughput"),
        (("--out", "trace.csv"), "trace.csv is a file; name a folder that is new or empty"),
        (("--out", "."), "cluster.yaml and 2 more, which Leasehold did not write"),
        (("missing.csv",), "missing.csv"),
        (("throughputs.csv",), "throughputs.csv"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(savings, tmp_path, more, message):
    before = sorted(tmp_path.iterdir())
    ran = savings(*more)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert sorted(tmp_path.iterdir()) == before
