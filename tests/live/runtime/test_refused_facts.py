"""If a fact cannot be stored, its sender gets a refusal; the scheduler leads on."""

import asyncio
import contextlib
import sqlite3
from dataclasses import replace

import pytest

from leasehold_testing.inline_solver import InlineSolver
from leasehold_testing.links import FakeAgent, ServiceLink
from leasehold_testing.memory_store import MemoryStore
from leasehold_testing.stage import check_state
from leasehold_testing.work import work
from planner.knowledge import LearnedKnowledge
from policies.answering import PolicyAnswerer
from scheduler.clock import WallClock
from scheduler.control.facts.requests import JobAction, Submission
from scheduler.domain.facts import events as ev
from scheduler.domain.jobs.spec import JobSpec
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.errors import (
    InputError,
    NotLeadingError,
    StoreError,
    TurnFailedError,
    UnstorableError,
)
from scheduler.protocol.bounds import MOST_COUNT
from scheduler.protocol.reports import LeaseReport
from scheduler.runtime.driver import restart_driver
from scheduler.runtime.service import LiveService
from scheduler.runtime.settings import RuntimeSettings
from scheduler.store.sql.store import SqlStore
from scheduler.views.metrics import Metrics
from simulator.world.nodes import SimulatedNode, SimulatedWorld


def make(store, folder):
    return LiveService(
        store=store,
        clock=WallClock(),
        solver=InlineSolver(PolicyAnswerer()),
        knowledge=LearnedKnowledge,
        settings=RuntimeSettings(tick_s=0.02),
        metrics=Metrics(),
        state_dir=folder,
        holder="one",
        ttl_s=60.0,
    )


async def until(condition, seconds=60.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  the observed state has no event
            await asyncio.sleep(0.01)


async def again(call):
    """Retry like clients and agents if a call is refused while the state is loaded."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await call()
            except NotLeadingError:
                await asyncio.sleep(0)  # while all writes are refused, it leads for moments only


async def submit(service, name):
    (result,) = await again(lambda: service.submit([a_job(name)], actor="me"))
    return result


async def tell(service, report):
    await again(lambda: service.report(report, address="127.0.0.1", version="test"))


def a_job(name):
    spec = JobSpec(name=name, command=("x",), total_steps=1e6, notice_s=0.1, grace_s=0.1)
    return Submission(spec=spec, owner="me", job_id=name)


@pytest.fixture
def store(tmp_path):
    store = SqlStore.open(f"sqlite:///{tmp_path}/store.db")
    yield store
    store.close()


def test_an_exit_code_of_64_bits_is_refused_and_what_came_with_it_is_done(store, tmp_path, caplog):
    async def story():
        service = make(store, tmp_path)
        run = asyncio.create_task(service.run())
        await until(lambda: service.health().leading)
        world = SimulatedWorld(now_s=WallClock().now_s, rate=lambda *_: 1.0)
        node = SimulatedNode("n0", ("v100",), world)
        agent = FakeAgent(node, ServiceLink(service, "n0", wait_s=0.1))
        await agent.tell()
        await service.submit([a_job("one")], actor="me")
        await until(lambda: bool(service.leases()))
        await agent.ask()
        node.act()
        report = node.report()
        (lease,) = report.leases
        ended = replace(lease, state=LeasePhase.ENDED, reason=EndReason.FAILED, exit_code=2**63 + 3)
        bad = replace(report, sequence=report.sequence + 1, leases=(ended,))
        results = await asyncio.gather(
            submit(service, "two"),
            tell(service, bad),
            submit(service, "three"),
            return_exceptions=True,
        )
        assert isinstance(results[1], UnstorableError)
        assert [result.created for result in (results[0], results[2])] == [True, True]
        assert store.job("one").status.value == "running"
        assert {store.job(name).status.value for name in ("two", "three")} == {"waiting"}
        await tell(service, node.report())
        for _ in range(3):
            with pytest.raises(UnstorableError):
                await tell(service, replace(bad, sequence=10**6))
        honest = replace(ended, exit_code=1)
        last = replace(bad, sequence=10**6 + 1, leases=(honest,))
        await tell(service, last)
        (attempt, *_) = store.attempts("one")
        assert (attempt.end_reason.value, attempt.exit_code) == ("failed", 1)
        assert "nothing of a turn is stored" in caplog.text
        assert "exit_code is a number of more than 64 bits" in caplog.text
        check_state(service.driver.control.state)
        assert not run.done()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    asyncio.run(story())


REFUSING = """
create table trap (armed int);
insert into trap values (1);
create trigger spring before insert on journal when (select armed from trap)
begin select raise(abort, 'no room for this'); end;
"""


def test_after_a_refused_write_agents_keep_their_leases_and_get_new_ones(store, tmp_path):
    async def story():
        service = make(store, tmp_path)
        run = asyncio.create_task(service.run())
        await until(lambda: service.health().leading)
        world = SimulatedWorld(now_s=WallClock().now_s, rate=lambda *_: 1.0)
        node = SimulatedNode("n0", ("v100", "v100"), world)
        agent = asyncio.create_task(
            FakeAgent(node, ServiceLink(service, "n0", wait_s=0.1)).run(
                report_every_s=0.1, retry_s=0.05
            )
        )
        await until(lambda: bool(service.nodes()))
        await submit(service, "runs")
        for n in range(20):  # each change of the node's set counts its revision up
            await submit(service, f"short{n}")
            await again(lambda n=n: service.act([f"short{n}"], JobAction.CANCEL, actor="me"))
        await until(lambda: store.job("runs").status.value == "running")
        (lease,) = node.report().leases
        await asyncio.to_thread(sql, tmp_path, REFUSING)
        with pytest.raises(StoreError, match="the database refused: no room for this"):
            await submit(service, "refused")
        await until(lambda: any("no room for this" in p for p in service.health().problems))
        await asyncio.to_thread(sql, tmp_path, "update trap set armed = 0")
        await submit(service, "later")
        await until(lambda: store.job("later").status.value == "running")
        await until(lambda: len(node.report().leases) == 2)
        assert lease.lease_id in {held.lease_id for held in node.report().leases}
        assert [row.end_reason for row in store.attempts("runs")] == [None]
        await until(lambda: not service.health().problems)
        assert b"leasehold_turns_failed_total 0" not in service.metrics()
        for task in (agent, run):
            task.cancel()
        await asyncio.gather(agent, run, return_exceptions=True)

    asyncio.run(story())


def sql(folder, script):
    """Run statements in the database behind the scheduler's back."""
    with contextlib.closing(sqlite3.connect(folder / "store.db", timeout=30)) as connection:
        connection.executescript(script)


def test_a_fact_that_the_engine_cannot_take_is_refused_to_who_told_it(tmp_path):
    async def story():
        service = make(MemoryStore(), tmp_path)
        run = asyncio.create_task(service.run())
        await until(lambda: service.health().leading)
        wrong = ev.LeaseEnded(lease_id=1, reason="failed", steps_done=float("nan"))
        results = await asyncio.gather(
            service.driver.tell(work(lambda turn: turn.emit(wrong))),
            submit(service, "one"),
            return_exceptions=True,
        )
        assert isinstance(results[0], Exception)
        assert results[1].created
        check_state(service.driver.control.state)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    asyncio.run(story())


def test_where_nothing_can_be_stored_any_more_the_scheduler_ends_in_the_end(tmp_path, monkeypatch):
    class Refusing(MemoryStore):
        tries = 0

        def commit(self, entry, *, token):
            self.tries += 1
            raise UnstorableError("nothing can be stored")

    monkeypatch.setattr(restart_driver, "MOST_RESTORES", 3)

    async def story():
        store = Refusing()
        service = make(store, tmp_path)
        async with asyncio.timeout(60):
            with pytest.raises(TurnFailedError, match="nothing can be stored"):
                await service.run()
        assert store.tries == 4

    asyncio.run(story())


def test_a_specification_that_no_agent_could_be_told_is_refused(live):
    async def story(stage):
        for value in (10**30, float("nan"), "half \ud800", [[]] * 3 + [{"a": object()}]):
            submission = Submission(
                spec=stage.spec(kubernetes={"template": {"a": value}}), owner="me"
            )
            (result,) = await stage.submit(submission)
            assert (result.created, result.code) == (False, "invalid")
            assert "64 bits" in result.refusal

    live(story)


def test_a_stored_job_that_no_agent_can_be_told_fails_and_the_others_run(live):
    async def story(stage):
        stage.add_node("n1", "k80")
        await stage.settle()
        await stage.job("bad", held=True, max_failures=0, worker_types=("v100",))
        for jobs in (stage.state.jobs, stage.driver.view.jobs):  # as an earlier release stored it
            record = jobs.by_id["bad"]
            record.spec = replace(record.spec, kubernetes={"template": {"a": 10**30}})
        await stage.job("good", worker_types=("k80",))
        await stage.act(JobAction.RELEASE, "bad")
        await stage.wait(20)
        assert stage.status("good") == "completed"
        assert stage.status("bad") == "failed"
        assert "cannot be sent to node 'n0'" in stage.store.attempts("bad")[0].message

    live(story)


def test_nobody_has_done_more_steps_than_a_job_has(live):
    async def story(stage):
        await stage.job(total_steps=100.0)
        await stage.wait(0.5)
        (lease,) = stage.state.leases.by_id.values()
        absurd = LeaseReport(
            lease_id=lease.lease.lease_id,
            token=lease.lease.token,
            state=LeasePhase.RUNNING,
            steps_done=MOST_COUNT,
            steps_live=MOST_COUNT,
        )
        report = stage.node("n0").report()
        bad = replace(report, sequence=report.sequence + 1, leases=(absurd,))
        await stage.do(stage.service.report(bad, address="127.0.0.1", version="test"))
        assert lease.steps_live == lease.steps_done == 100.0

    live(story)


def test_a_cluster_has_so_many_worker_types_and_no_more(live, monkeypatch):
    monkeypatch.setattr("scheduler.control.nodes.reports.MOST_TYPES", 3)

    async def story(stage):
        report = stage.node("n0").report()
        worker = report.workers[0]
        kinds = tuple(replace(worker, index=i, worker_type=f"new{i}") for i in range(3))
        bad = replace(report, node="n9", workers=kinds)
        with pytest.raises(InputError, match="at most 3"):
            await stage.do(stage.service.report(bad, address="127.0.0.1", version="test"))
        fits = replace(bad, workers=kinds[:2])
        await stage.do(stage.service.report(fits, address="127.0.0.1", version="test"))
        assert {node.name for node in stage.service.nodes()} == {"n0", "n9"}

    live(story)


def test_a_node_whose_workers_change_twice_at_once_joins_once_and_then_as_it_is(live):
    async def story(stage):
        report = stage.node("n0").report()
        worker = report.workers[0]
        first = replace(report, sequence=50, workers=(replace(worker, worker_type="k80"),))
        second = replace(report, sequence=51, workers=(replace(worker, worker_type="p100"),))
        service = stage.service
        await stage.do(
            asyncio.gather(
                *(service.report(r, address="127.0.0.1", version="") for r in (first, second))
            )
        )
        last = replace(second, sequence=52)
        await stage.do(service.report(last, address="127.0.0.1", version=""))
        assert stage.state.nodes.by_name["n0"].types == ("p100",)

    live(story)


def test_a_node_that_tells_no_address_keeps_the_one_that_is_known(live):
    async def story(stage):
        report = stage.node("n0").report()
        await stage.do(stage.service.report(replace(report, sequence=50), address="", version=""))
        assert stage.state.nodes.by_name["n0"].address == "n0"

    live(story)
