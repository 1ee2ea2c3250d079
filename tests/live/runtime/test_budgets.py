"""Budgets of a month: a warning, a stop, and how far off it is."""

import contextlib
import functools
import re

import pytest

from scheduler.control.facts.requests import ProjectLimits
from scheduler.control.state.budget_state import month_of
from scheduler.domain.facts.reasons import WaitReason
from scheduler.store.sql.store import SqlStore
from scheduler.store.usage import UsageKey, UsageQuery


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def live(request, live, tmp_path, monkeypatch):
    """Let a story happen on each kind of store: use is read from the ledger."""
    monkeypatch.setattr(SqlStore, "server_s", lambda _: None)  # the story has a time of its own
    if request.param == "memory":
        yield live
        return
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/store.db"
    else:
        url = request.getfixturevalue("postgres").new_database()
    with contextlib.closing(SqlStore.open(url)) as store:
        yield functools.partial(live, store=store)


FOUR = {"n0": ("v100", "v100"), "n1": ("v100", "v100")}
#: Worker-seconds as GPU-hours.
S = 1 / 3600


async def budget(stage, worker_s, project="p", **values):
    limits = ProjectLimits(
        project=project,
        budget_gpu_hours=None if worker_s is None else worker_s * S,
        **values,
    )
    await stage.do(stage.service.set_project(limits, actor="boss"))


def used_s(stage, project="p"):
    """Return the worker-seconds that the ledger knows of."""
    query = UsageQuery(from_s=0.0, to_s=stage.clock.now_s(), by=(UsageKey.PROJECT,))
    found = {row.project: row.worker_s for row in stage.store.usage(query)}
    return found.get(project, 0.0)


def shown(stage, project="p"):
    return next(v for v in stage.service.projects() if v.limits.project == project)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("preemptible", [True, False])
def test_a_project_stops_within_a_round_of_its_budget(live, restarts, preemptible):
    async def story(stage):
        await budget(stage, 155.0)
        for i in range(3):
            await stage.job(f"job-{i}", project="p", total_steps=1e6, preemptible=preemptible)
        await stage.job("other", project="q", total_steps=1e6)
        for _ in range(8):
            await stage.wait(10)
            if restarts:
                await stage.restart()
        fit = await stage.service.fit(stage.spec(project="p"))
        assert (fit.fits, fit.reason) == (True, WaitReason.BUDGET)
        assert fit.message == "it fits, and waits, since the budget of project 'p' is spent"
        held = used_s(stage)
        # Three workers, rounds of 10 s: it is off by less than 30 worker-seconds.
        assert 155.0 - 30.0 < held < 155.0 + 30.0
        await stage.wait(40)
        assert used_s(stage) == held  # and nothing since
        assert [stage.row(f"job-{i}").reason for i in range(3)] == ["budget"] * 3
        assert stage.status("other") == "running"
        explanation = await stage.explanation("job-0")
        assert explanation.reason is WaitReason.BUDGET
        assert "of its budget of this month" in explanation.message
        (said,) = re.findall(r"used (\S+) of 0.0430556 GPU-hours", explanation.message)
        assert float(said) == pytest.approx(held * S, abs=1e-4)
        assert "the next month begins on 1970-02-01 (UTC)" in explanation.message
        view = shown(stage)
        assert view.budget.state == "spent"
        assert view.budget.used_gpu_hours == pytest.approx(held * S, abs=1e-9)
        kinds = [row.kind for row in stage.history("budget_warning", "budget_spent")]
        assert sorted(kinds) == ["budget_spent", "budget_warning"]
        # A new job waits for the same.
        await stage.job("late", project="p")
        assert stage.row("late").reason == "budget"

    live(story, nodes=FOUR)


def test_a_budget_that_is_used_up_within_a_round_is_spent_at_once(live):
    async def story(stage):
        await budget(stage, 3.0)
        await stage.job("job", project="p", total_steps=1e6)
        await stage.wait(2)
        assert shown(stage).budget.state == "ok"
        for _ in range(3):
            await stage.wait(1)
            budget_now = shown(stage).budget
            assert (budget_now.part >= 1.0) == (budget_now.state == "spent")
        assert budget_now.part > 1.0

    live(story, nodes=FOUR)


def test_a_raised_budget_lets_jobs_go_on_and_none_lifts_it(live):
    async def story(stage):
        await budget(stage, 30.0)
        await stage.job("job", project="p", total_steps=1e6)
        await stage.wait(60)
        assert stage.row("job").reason == "budget"
        await budget(stage, 80.0)
        await stage.wait(2)
        assert stage.status("job") == "running"
        await stage.wait(80)
        assert stage.row("job").reason == "budget"
        await stage.job("late", project="p", total_steps=1e6)
        await budget(stage, None)
        await stage.wait(2)
        assert (stage.status("job"), stage.status("late")) == ("running", "running")
        kinds = [row.kind for row in stage.history("budget_spent", "budget_free")]
        assert sorted(kinds) == ["budget_free"] * 2 + ["budget_spent"] * 2

    live(story, nodes=FOUR)


def test_what_was_used_before_there_was_a_budget_counts(live):
    async def story(stage):
        await stage.job("job", project="p", total_steps=1e6)
        await stage.job("done", project="p", total_steps=5.0)
        await stage.wait(40)
        held = used_s(stage)
        await budget(stage, 100.0)
        assert shown(stage).budget.used_gpu_hours == pytest.approx(held * S, abs=1e-9)
        await stage.wait(7)
        assert shown(stage).budget.used_gpu_hours == pytest.approx(used_s(stage) * S, abs=1e-9)
        await stage.restart()
        assert shown(stage).budget.used_gpu_hours == pytest.approx(used_s(stage) * S, abs=1e-9)

    live(story, nodes=FOUR)


def test_a_new_month_begins_at_nothing(live):
    async def story(stage):
        _, end_s = month_of(stage.clock.now_s())
        await stage.crash()
        stage.clock.advance(end_s - 100.0)
        await stage.start()
        await stage.settle()
        await stage.wait(1)
        await budget(stage, 30.0)
        await stage.job("job", project="p", total_steps=1e6)
        await stage.wait(80)
        assert stage.row("job").reason == "budget"
        await stage.wait(25)
        assert stage.status("job") == "running"
        assert shown(stage).budget.state == "ok"
        assert shown(stage).budget.used_gpu_hours * 3600 < 20

    live(story, nodes=FOUR)


def test_money_is_counted_by_the_prices_of_worker_types(live):
    async def story(stage):
        limits = ProjectLimits(project="p", budget_usd=0.05)
        await stage.do(stage.service.set_project(limits, actor="boss"))
        await stage.job("job", project="p", total_steps=1e6)
        await stage.wait(60)
        assert stage.row("job").reason == "budget"
        assert shown(stage).budget.used_usd == pytest.approx(0.05, abs=10 * S * 9)
        assert "USD" in (await stage.explanation()).message

    live(story, nodes=FOUR, prices={"v100": 9.0})


def test_without_a_budget_nothing_is_counted(live):
    async def story(stage):
        await stage.job("job", project="p")
        await stage.wait(10)
        assert stage.control.state.budgets.since_s is None
        assert all(v.budget is None for v in stage.service.projects())

    live(story, nodes=FOUR)
