"""Another control decides the same as a daemon with real processes, on the same facts."""

import asyncio
import dataclasses
import shutil
import tempfile
from pathlib import Path

import httpx

from agent.link.http_link import HttpLink, LinkSettings
from agent.settings import AgentSettings
from api.app import create_app
from api.settings import ApiSettings
from leasehold_testing.inline_solver import InlineSolver
from leasehold_testing.local_agent import local_agent
from leasehold_testing.memory_store import MemoryStore
from planner.knowledge import LearnedKnowledge
from policies.answering import PolicyAnswerer
from scheduler.clock import WallClock
from scheduler.control.control import Control
from scheduler.control.facts.requests import JobAction, PolicyChoice, ProjectLimits, Submission
from scheduler.domain.codec import encode
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.jobs.spec import JobSpec
from scheduler.engine.settings import EngineSettings
from scheduler.operator_settings import LearningSettings
from scheduler.runtime.driver import takeover
from scheduler.runtime.service import LiveService
from scheduler.runtime.settings import RuntimeSettings
from scheduler.store.queries import JobQuery
from scheduler.views.metrics import Metrics

SETTINGS = RuntimeSettings(
    engine=EngineSettings(
        round_length_s=4.0, plan_lead_s=2.5, retry_backoff_s=0.2, refuse_what_cannot_fit=False
    ),
    notice_s=0.2,
    grace_s=0.3,
    learning=LearningSettings(least_s=0.2),
)


#: The message of a program if a GPU has no memory left.
OUT_OF_MEMORY = "echo 'torch.cuda.OutOfMemoryError: CUDA out of memory.' >&2; exit 1"


class Recorder(Control):
    """Keeps the facts of each decision, and the decision."""

    def __init__(self, state):
        super().__init__(state)
        self.term = state.term
        self.log = []
        self._facts = []

    def transaction(self, now_s, wall_s=None):
        self._facts = []
        self._now_s = now_s
        return super().transaction(now_s, wall_s)

    def take(self, transaction, fact):
        self._facts.append(fact)
        super().take(transaction, fact)

    def decide(self, transaction):
        decision = super().decide(transaction)
        self.log.append((tuple(self._facts), self._now_s, decision))
        return decision


def told(decision):
    return (
        decision.now_s,
        [encode(event) for event in decision.events],
        [encode(command) for command in decision.commands],
        decision.rows,
        decision.told,
    )


async def work(service):
    """Have some jobs run, fail, wait for one another, and be cancelled under two policies."""
    specs = {
        "quick": {"command": ("true",)},
        "failing": {"command": ("sh", "-c", "exit 3"), "max_failures": 1},
        "hungry": {"command": ("sh", "-c", OUT_OF_MEMORY), "max_failures": 2},
        "starved": {"command": ("sh", "-c", OUT_OF_MEMORY), "retry_oom": False},
        "long": {"command": ("sleep", "60")},
        "limited": {"command": ("sleep", "60"), "max_run_time_s": 1.0},
        "after": {"command": ("true",), "depends_on": ("quick",)},
        "narrow": {"command": ("sleep", "0.3"), "project": "p"},
        "narrower": {"command": ("sleep", "0.3"), "project": "p"},
    }
    await service.set_project(ProjectLimits(project="p", max_workers=1), actor="op")
    items = [
        Submission(spec=JobSpec(name=name, duration_s=1.0, **spec), owner="me", job_id=name)
        for name, spec in specs.items()
    ]
    assert all(result.created for result in await service.submit(items, actor="me"))

    async def only(*names):
        await until(lambda: set(service.live(list(specs))) == set(names))

    await only("long")
    await service.set_policy(PolicyChoice(name="fifo"), actor="op")
    await service.act(["long"], JobAction.CANCEL, actor="me")
    await only()


async def until(holds):
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.02)


async def run(folder, monkeypatch):
    made = []
    monkeypatch.setattr(takeover, "Control", lambda state: made.append(Recorder(state)) or made[-1])
    store = MemoryStore()
    service = LiveService(
        store=store,
        clock=WallClock(),
        solver=InlineSolver(PolicyAnswerer()),
        knowledge=LearnedKnowledge,
        settings=SETTINGS,
        metrics=Metrics(),
        state_dir=folder,
        holder="recorded",
        ttl_s=600.0,
    )
    app = create_app(service, ApiSettings(max_wait_s=0.2, auth=False, hosts=frozenset({"a"})))
    leading = asyncio.create_task(service.run())
    await until(lambda: service.health().leading)
    link = HttpLink(
        servers=("http://a",),
        node="n0",
        token=lambda: "",
        settings=LinkSettings(wait_s=1.0),
        transport=httpx.ASGITransport(app),
    )
    agent = local_agent(
        node="n0",
        link=link,
        workers="v100:2",
        state_dir=folder / "agent",
        settings=AgentSettings(margin_s=0.2, report_every_s=0.5, report_least_s=0.05),
    )
    serving = asyncio.create_task(agent.run())
    try:
        await work(service)
    finally:
        await agent.stop_jobs(most_s=20.0)
        for task in (serving, leading):
            task.cancel()
        await asyncio.gather(serving, leading, return_exceptions=True)
        await link.close()
    return made[0], {row.job_id: row for row in store.jobs(JobQuery(limit=50)).rows}


def test_recorded_facts_of_real_processes_give_the_same_decisions_again(monkeypatch):
    folder = Path(tempfile.mkdtemp(prefix="lh-"))  # short, for a socket has to fit
    try:
        recorded, rows = asyncio.run(run(folder, monkeypatch))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ends = {job_id: (row.status, row.reason) for job_id, row in rows.items()}
    assert ends["quick"][0] is ends["after"][0] is ends["narrower"][0] is JobStatus.COMPLETED
    assert ends["failing"][0] is JobStatus.FAILED
    assert ends["hungry"][0] is JobStatus.FAILED
    assert rows["hungry"].failures == 3, "the last one counts, too"
    assert ends["starved"] == (JobStatus.FAILED, "out_of_memory")
    assert rows["starved"].attempts == 1
    assert ends["limited"] == (JobStatus.FAILED, "time_limit")
    assert ends["long"][0] is JobStatus.CANCELLED

    other = Control.new(SETTINGS, knowledge=LearnedKnowledge(), now_s=0.0, term=recorded.term)
    assert len(recorded.log) > 20
    assert recorded.view.policy.choice.name == "fifo"
    for facts, now_s, first in recorded.log:
        second = other.handle(*facts, now_s=now_s)
        other.publish(second)
        assert told(second) == told(dataclasses.replace(first))
