"""The order of the queue of waiting jobs, and the jobs right before one of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from scheduler.domain.jobs.job import Job
from scheduler.engine.tables.jobs import HELD, RUNNING, JobTable
from scheduler.views.explain import WaitingJobs
from scheduler.views.queue_order import describe_ahead, order_waiting_jobs
from scheduler.views.types import JobAhead

NOW_S = 100.0


def make_view(lags: dict[str, float], planned: tuple[str, ...] = ()) -> Any:
    """Return a view of jobs in order of submission, each with its lag in seconds."""
    table = JobTable(width=2)
    for number, (job_id, lag_s) in enumerate(lags.items()):
        job = Job(job_id=job_id, job_type="any", total_steps=10.0)
        table.add(job, number=number, profile=0, entity=0)
        table.credit_s[number] = (lag_s, -200.0)
    numbers = tuple(table.number_of[job_id] for job_id in planned)
    records = {job_id: SimpleNamespace(project=f"project-{job_id}") for job_id in lags}
    return SimpleNamespace(
        engine=SimpleNamespace(jobs=table, now_s=NOW_S, planned=numbers),
        jobs=SimpleNamespace(by_id=records),
    )


def test_planned_jobs_are_first_then_those_furthest_behind_then_the_oldest() -> None:
    view = make_view({"a": 5.0, "b": 20.0, "c": -3.0, "d": 5.0, "e": -9.0}, planned=("c", "d"))
    assert order_waiting_jobs(view) == ["d", "c", "b", "a", "e"]


def test_each_job_in_the_queue_has_its_position_and_no_other_has_one() -> None:
    view = make_view({"a": 5.0, "b": 20.0, "c": -3.0})
    view.engine.jobs["status"][0] = RUNNING
    assert WaitingJobs(view).positions == {"b": 1, "c": 2}


def test_jobs_that_run_are_held_or_wait_for_a_retry_or_a_budget_are_not_in_the_queue() -> None:
    view = make_view(dict.fromkeys("abcdef", 1.0))
    table = view.engine.jobs
    table["status"][0], table["status"][1] = RUNNING, HELD
    table["retry_at_s"][2:4] = (NOW_S + 0.1, NOW_S)
    table["unfunded"][4] = 1
    assert order_waiting_jobs(view) == ["d", "f"]
    assert order_waiting_jobs(make_view({})) == []


def test_a_job_ahead_has_project_plan_and_lag() -> None:
    view = make_view({"a": 5.0, "b": -2.0, "c": -4.0}, planned=("b",))
    assert describe_ahead(view, ["b", "a"]) == (
        JobAhead(job_id="b", project="project-b", is_planned=True, lag_s=-2.0),
        JobAhead(job_id="a", project="project-a", is_planned=False, lag_s=5.0),
    )
    assert describe_ahead(view, []) == ()


def test_of_many_jobs_ahead_the_last_ten_are_described() -> None:
    names = [f"job-{n}" for n in range(15)]
    view = make_view(dict.fromkeys(names, 0.0))
    assert [one.job_id for one in describe_ahead(view, names[:12])] == names[2:12]
