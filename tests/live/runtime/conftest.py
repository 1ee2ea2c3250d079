"""A service on a stage, and short words for what tests say to it."""

import asyncio
from dataclasses import replace

import pytest

from leasehold_testing.faults import ShakyStore
from leasehold_testing.stage import Stage
from scheduler.control.facts.requests import PolicyChoice, Submission
from scheduler.domain.jobs.spec import JobSpec
from scheduler.engine.settings import EngineSettings
from scheduler.operator_settings import LearningSettings
from scheduler.runtime.settings import RuntimeSettings
from scheduler.store.queries import HistoryQuery

#: Without a band, so that the order of jobs follows from shares alone.
ENGINE = EngineSettings(
    round_length_s=10.0,
    plan_lead_s=4.0,
    behind_rounds=1.0,
    ahead_rounds=0.0,
    retry_backoff_s=2.0,
    refuse_what_cannot_fit=False,
)
SETTINGS = RuntimeSettings(
    engine=ENGINE,
    policy=PolicyChoice(name="fifo"),
    margin_s=1.0,
    node_timeout_s=12.0,
    learning=LearningSettings(least_s=2.0),
)


class Story(Stage):
    """A stage with the words of tests."""

    def spec(self, name="job", **values):
        usual = {
            "command": ("train",),
            "total_steps": 5.0,
            "throughputs": {"v100": 1.0, "k80": 1.0},
            "notice_s": 1.0,
            "grace_s": 1.0,
        }
        return JobSpec(name=name, **usual | values)

    async def job(self, name="job", *, owner="me", client_id="", held=False, **values):
        """Submit a job under its own name; returns its id."""
        (result,) = await self.submit(
            Submission(
                spec=self.spec(name, **values),
                owner=owner,
                job_id=name,
                client_id=client_id,
                held=held,
            )
        )
        assert result.created, result
        return result.job_id

    async def act(self, action, *names, **how):
        return await self.do(self.service.act(list(names), action, actor="boss", **how))

    async def wait(self, seconds, *, tick_s=0.5):
        await self.run(self.clock.now_s() + seconds, tick_s=tick_s)

    async def restart(self):
        await self.crash()
        await self.start()
        await self.settle()

    def row(self, name="job"):
        return self.store.job(name)

    def status(self, name="job"):
        return self.store.job(name).status.value

    def ends(self, name="job"):
        """Return how the job's leases ended, oldest first; None for one in force."""
        rows = self.store.attempts(name)
        return [None if row.end_reason is None else row.end_reason.value for row in rows]

    def history(self, *kinds):
        return self.store.history(HistoryQuery(kinds=kinds, limit=1000))

    def kinds(self, subject):
        """Return the kinds of all lines of history about a subject."""
        return [row.kind for row in self.store.history(HistoryQuery(subject=subject, limit=1000))]

    async def explanation(self, name="job"):
        return await self.service.explain(self.row(name))


@pytest.fixture
def live(tmp_path, monkeypatch):
    """Return a function that runs a story: nodes, settings, and events."""
    monkeypatch.setattr("scheduler.runtime.driver.driver.COMMIT_RETRY_LEAST_S", 0.0)

    def play(story, *, nodes=None, engine=None, store=None, box=None, **settings):
        async def happen():
            chosen = replace(SETTINGS, engine=replace(ENGINE, **engine or {}), **settings)
            stage = Story(tmp_path, chosen, store=store or ShakyStore(), box=box)
            for name, types in (nodes if nodes is not None else {"n0": ("v100",)}).items():
                stage.add_node(name, *types)
            await stage.start()
            await stage.settle()
            await stage.wait(0.5)
            await story(stage)
            stage.verify()

        asyncio.run(happen())

    return play
