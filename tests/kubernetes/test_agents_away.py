"""Agents that are killed, and events while no agent watches."""

from __future__ import annotations

import signal
import time

import pytest
from installation import JOBS, eventually
from proof import check
from scenes import ONE_ROUND, PODS, await_steps, one_node, two_nodes


def test_a_killed_agent_finds_its_pods_again(live):
    kubelets, made = live([one_node()], settings=ONE_ROUND)
    job = made.submit("long", steps=150)
    run = await_steps(kubelets, job)
    made.agents["ada"].end(signal.SIGKILL)
    time.sleep(1.0)
    made.start_agent("ada")
    made.await_end(job)
    check(kubelets, steps={job: 150})
    assert [r.uid for r in kubelets.runs_of(job)] == [run.uid], "it was not adopted"
    assert "adopted pod" in made.agents["ada"].text()


def test_an_agent_that_has_lost_its_files_finds_its_pods_by_their_labels(live):
    kubelets, made = live([one_node()], settings=ONE_ROUND)
    job = made.submit("long", steps=150)
    run = await_steps(kubelets, job)
    made.agents["ada"].end(signal.SIGKILL)
    (made.folder / "ada").rename(made.folder / "lost")  # an emptyDir goes with its pod
    made.start_agent("ada")
    made.await_end(job)
    check(kubelets, steps={job: 150})
    assert [r.uid for r in kubelets.runs_of(job)] == [run.uid]


def test_a_job_that_ends_while_its_agent_is_away_has_ended_well(live):
    kubelets, made = live([one_node()], settings=ONE_ROUND)
    job = made.submit("short", steps=40)
    await_steps(kubelets, job)
    made.agents["ada"].end(signal.SIGKILL)
    eventually("it has ended", lambda: not kubelets.running(job))
    made.start_agent("ada")
    made.await_end(job)
    check(kubelets, steps={job: 40})


def test_a_gang_goes_on_while_one_of_its_agents_is_away(live):
    # Two agents die within the gang's first minute; by default it would be held for that.
    kubelets, made = live(two_nodes(), settings=ONE_ROUND | {"engine.hold_after_deaths": 0})
    gang = made.submit("gang", steps=150, scale_factor=2)
    await_steps(kubelets, gang)
    for name in ("ada", "bert"):
        made.agents[name].end(signal.SIGKILL)
        made.start_agent(name)
    made.await_end(gang)
    check(kubelets, steps={gang: 150})
    assert {run.attempt for run in kubelets.runs_of(gang)} == {1}
    assert len(kubelets.runs_of(gang)) == 2


def test_a_pod_deleted_while_its_agent_is_away_is_missed_when_it_comes_back(live, admin):
    kubelets, made = live([one_node()], settings=ONE_ROUND)
    job = made.submit("long", steps=120)
    run = await_steps(kubelets, job)
    made.agents["ada"].end(signal.SIGKILL)
    admin.delete(f"{PODS}/{run.pod}", gracePeriodSeconds=1)
    eventually("it is gone", lambda: not admin.pods(JOBS))
    made.start_agent("ada")
    made.await_end(job)
    check(kubelets, steps={job: 120})
    assert made.job(job)["failures"] == 0


@pytest.mark.parametrize("lost", [False, True], ids=["with its files", "with none"])
def test_what_nobody_wants_any_more_is_swept_by_the_agent_that_comes_back(live, admin, lost):
    kubelets, made = live([one_node()], settings=ONE_ROUND)
    job = made.submit("unwanted", steps=10_000)
    await_steps(kubelets, job)
    made.agents["ada"].end(signal.SIGKILL)
    made.client.post(f"/v1/jobs/{job}/cancel").raise_for_status()
    if lost:
        (made.folder / "ada").rename(made.folder / "lost")
    assert admin.pods(JOBS), "it is still there"
    made.start_agent("ada")
    made.await_end(job, status="cancelled")
    eventually("its pod is gone", lambda: not admin.pods(JOBS))
    check(kubelets)
    assert len(kubelets.runs_of(job)) == 1


def test_a_scheduler_that_is_killed_goes_on_with_the_pods_that_it_finds(live):
    kubelets, made = live(two_nodes(), settings=ONE_ROUND)
    jobs = {made.submit(f"job-{n}", steps=150): 150 for n in range(2)}
    for job in jobs:
        await_steps(kubelets, job)
    made.scheduler.end(signal.SIGKILL)
    made.scheduler.start()
    for job in jobs:
        made.await_end(job)
    check(kubelets, steps=jobs)
    assert len(kubelets.runs) == 2, "what ran was let run"


def test_an_agent_that_is_told_to_leave_leaves_its_pods_to_the_next_one(live):
    """As when the DaemonSet rolls."""
    kubelets, made = live([one_node()], settings=ONE_ROUND)
    job = made.submit("long", steps=120)
    await_steps(kubelets, job)
    made.agents["ada"].end(signal.SIGTERM)
    made.start_agent("ada")
    made.await_end(job)
    check(kubelets, steps={job: 120})
    assert len(kubelets.runs_of(job)) == 1
