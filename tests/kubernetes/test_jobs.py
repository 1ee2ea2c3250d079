"""Jobs on a real API server: each agent under its own account with the rights of the chart."""

from __future__ import annotations

from fake_nodes import FakeNode
from installation import JOBS, eventually
from proof import check
from scenes import await_steps, two_nodes


def two_types():
    return [
        FakeNode(name="ada", address="127.0.10.1", gpus=1),
        FakeNode(name="bert", address="127.0.10.2", gpus=1, product="Tesla-K80"),
    ]


def test_jobs_run_to_their_ends_over_rounds_and_preemptions(live, chart_plane):
    kubelets, made = live(two_types())
    # A job that begins after the next round was planned has its worker for a round and a half.
    jobs = {made.submit(f"job-{n}", steps=260): 260 for n in range(4)}
    for job in jobs:
        made.await_end(job, limit_s=180)
    check(kubelets, steps=jobs)
    assert sum(len(kubelets.runs_of(job)) > 1 for job in jobs) >= 2, "nothing was preempted"
    assert {run.node for run in kubelets.runs} == {"ada", "bert"}
    assert not [run for run in kubelets.runs if run.forced], "somebody had to be killed"
    api = chart_plane.api()
    eventually("no pod is left", lambda: not api.pods(JOBS))
    api.close()


def test_a_gang_over_two_nodes_finds_and_leaves_one_another(live):
    kubelets, made = live(two_nodes())
    gang = made.submit("gang", steps=100, scale_factor=2)
    await_steps(kubelets, gang)
    single = made.submit("single", steps=60)
    for job in (gang, single):
        made.await_end(job, limit_s=150)
    check(kubelets, steps={gang: 100, single: 60})
    runs = kubelets.runs_of(gang)
    for attempt in {run.attempt for run in runs}:
        members = [run for run in runs if run.attempt == attempt]
        assert {(m.node, m.rank) for m in members} in (
            {("ada", 0), ("bert", 1)}, {("ada", 1), ("bert", 0)},
        )  # fmt: skip
