"""An API server that is killed, forgets, fails, throttles and loses answers."""

from __future__ import annotations

import time

import pytest
from installation import JOBS, eventually
from proof import check
from scenes import PODS, await_steps, one_node, two_nodes


def test_jobs_outlive_a_restart_of_the_api_server(live, chart_plane):
    kubelets, made = live(two_nodes())
    jobs = {made.submit(f"job-{n}", steps=150): 150 for n in range(3)}
    await_steps(kubelets, next(iter(jobs)))
    for kill in (True, False):
        chart_plane.stop_api_server(kill=kill)
        time.sleep(2.0)
        chart_plane.start_api_server()
        time.sleep(2.0)
    for job in jobs:
        made.await_end(job, limit_s=90)
    check(kubelets, steps=jobs)
    assert all(agent.alive for agent in made.agents.values())


def test_a_watch_that_has_expired_is_begun_anew(live, admin, chart_plane, proxy):
    kubelets, made = live([one_node()], api_url=proxy.url)
    job = made.submit("long", steps=150)
    await_steps(kubelets, job)
    proxy.cut = True
    proxy.break_streams()
    (pod,) = admin.pods(JOBS)
    admin.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds=1)
    eventually("it is gone", lambda: not admin.pods(JOBS))
    chart_plane.stop_api_server()
    chart_plane.start_api_server()  # its memory of what happened begins now
    chart_plane.forget_history()
    proxy.cut = False
    made.await_end(job, limit_s=90)
    check(kubelets, steps={job: 150})
    assert proxy.expired >= 1, "no watch was told that its version is too old"
    assert len(kubelets.runs_of(job)) >= 2


@pytest.mark.parametrize(
    ("status", "every"), [(500, 3), (429, 3), (-1, 4)], ids=["500s", "throttling", "lost answers"]
)
def test_failing_requests_change_nothing(live, proxy, status, every):
    kubelets, made = live(two_nodes(), api_url=proxy.url)
    proxy.fail_with, proxy.fail_every = status, every
    jobs = {made.submit(f"job-{n}", steps=60): 60 for n in range(4)}
    for job in jobs:
        made.await_end(job, limit_s=120)
    proxy.fail_every = 0
    check(kubelets, steps=jobs)
    assert status == -1 or proxy.answered[status] >= 5
