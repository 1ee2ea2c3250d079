"""Jobs on a real API server: each agent under its own account with the rights of the chart."""

from __future__ import annotations

from fake_kubelets import FakeNode
from installation import JOBS, eventually
from proof import check


def two_types():
    return [
        FakeNode(name="ada", address="127.0.10.1", gpus=1),
        FakeNode(name="bert", address="127.0.10.2", gpus=1, product="Tesla-K80"),
    ]


def test_jobs_run_to_their_ends_over_rounds_and_preemptions(live, chart_plane):
    kubelets, made = live(two_types())
    jobs = {made.submit(f"job-{n}", steps=120): 120 for n in range(4)}
    for job in jobs:
        made.await_end(job, limit_s=120)
    check(kubelets, steps=jobs)
    assert sum(len(kubelets.runs_of(job)) > 1 for job in jobs) >= 2, "nothing was preempted"
    assert {run.node for run in kubelets.runs} == {"ada", "bert"}
    assert not [run for run in kubelets.runs if run.forced], "somebody had to be killed"
    api = chart_plane.api()
    eventually("no pod is left", lambda: not api.pods(JOBS))
    api.close()
