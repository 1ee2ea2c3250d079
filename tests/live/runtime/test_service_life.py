"""A process leads, loses the leadership, stands by, and leads again."""

import asyncio
import itertools
import threading
import time
import zlib
from dataclasses import replace

import orjson
import pytest

from leasehold_testing.faults import Fault, ShakyStore
from leasehold_testing.inline_solver import InlineSolver
from leasehold_testing.links import FakeAgent, ServiceLink
from leasehold_testing.memory_store import MemoryStore
from leasehold_testing.stage import canonical, check_state
from leasehold_testing.work import work
from planner.knowledge import LearnedKnowledge
from policies.answering import PolicyAnswerer
from scheduler.clock import WallClock
from scheduler.control.facts.requests import Submission
from scheduler.domain.jobs.spec import JobSpec
from scheduler.errors import (
    CodecError,
    NotLeadingError,
    OutcomeUnknownError,
    StartingError,
    StoreFullError,
    StoreUnavailableError,
)
from scheduler.runtime import service as service_module
from scheduler.runtime.driver import driver as driver_module
from scheduler.runtime.driver import restart_driver
from scheduler.runtime.driver.snapshots import recover_state
from scheduler.runtime.driver.takeover import Takeover
from scheduler.runtime.service import LiveService
from scheduler.runtime.settings import RuntimeSettings
from scheduler.store.protocol import Snapshot
from scheduler.views.metrics import Metrics
from simulator.world.nodes import SimulatedNode, SimulatedWorld

PORTS = {"knowledge": LearnedKnowledge, "time_dependent": lambda _: False}
SETTINGS = RuntimeSettings(tick_s=0.02)


def make(store, folder, holder="one", ttl_s=0.6, clock=None):
    return LiveService(
        store=store,
        clock=clock or WallClock(),
        solver=InlineSolver(PolicyAnswerer()),
        knowledge=LearnedKnowledge,
        settings=SETTINGS,
        metrics=Metrics(),
        state_dir=folder,
        holder=holder,
        address=f"http://{holder}",
        ttl_s=ttl_s,
    )


async def until(condition, seconds=30.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  the observed state has no event
            await asyncio.sleep(0.01)


async def stop(*tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_scheduler_that_recovers_names_no_leader(tmp_path, monkeypatch):
    # The database names it as soon as it has the lead, before it can answer.
    async def story():
        one = make(MemoryStore(), tmp_path, ttl_s=60.0)
        seen = []
        take_over = Takeover.driver

        async def slow(takeover, token, suspects):
            health = one.health()
            seen.append((health.leading, health.leader_address, one.leader_known()))
            with pytest.raises(StartingError, match="recovering"):
                one.nodes()
            return await take_over(takeover, token, suspects)

        monkeypatch.setattr(Takeover, "driver", slow)
        task = asyncio.create_task(one.run())
        await until(lambda: one.health().leading)
        assert seen == [(False, "", False)]
        assert one.health().leader_address == "http://one"
        assert one.leader_known()
        await stop(task)
        await one.stop()

    asyncio.run(story())


def test_a_standby_takes_over_and_nodes_and_jobs_go_with_it(tmp_path):
    async def story():
        store = MemoryStore()
        # Long enough that a busy machine does not lose the lead before it is given up.
        one, two = make(store, tmp_path, ttl_s=6.0), make(store, tmp_path, "two", ttl_s=6.0)
        assert not one.health().ready
        with pytest.raises(StartingError, match="the planning of rounds is compiled"):
            one.nodes()
        first = asyncio.create_task(one.run())
        await until(lambda: one.health().leading)
        second = asyncio.create_task(two.run())
        await until(lambda: two.health().leader_address == "http://one")
        assert two.health().problems == ("another scheduler leads",)
        with pytest.raises(NotLeadingError):
            two.nodes()

        clock = WallClock()
        world = SimulatedWorld(now_s=clock.now_s, rate=lambda *_: 40.0)
        node = SimulatedNode("n0", ("v100",), world)
        link = ServiceLink(one, "n0", wait_s=0.2)
        agent = asyncio.create_task(FakeAgent(node, link).run(report_every_s=0.1, retry_s=0.05))
        await until(lambda: [n.state for n in one.nodes()] == ["ready"])
        spec = a_job()
        (job,) = await one.submit([Submission(spec=spec, owner="me")], actor="me")
        await until(lambda: bool(node.runs))

        turned = asyncio.create_task(one.until_turned())
        await asyncio.sleep(0)  # it waits now
        await stop(first)
        await one.stop()
        await asyncio.wait_for(turned, 30.0)
        await until(lambda: two.health().leading)
        link.service = two
        await until(lambda: store.job(job.job_id).status.value == "completed")
        assert [row.attempt for row in store.attempts(job.job_id)] == [1]
        assert world.completions == {job.job_id: 1}
        await stop(agent, second)

    asyncio.run(story())


def a_job():
    return JobSpec(name="job", command=("x",), total_steps=40.0, notice_s=0.1, grace_s=0.1)


def test_a_leader_that_is_overthrown_stands_by_and_leads_again(tmp_path):
    async def story():
        store = MemoryStore()
        service = make(store, tmp_path)
        run = asyncio.create_task(service.run())
        await until(lambda: service.health().leading)
        waiting = asyncio.create_task(service.desired("n0", after=(10**12, 0), wait_s=30.0))
        await asyncio.sleep(0.05)
        store.acquire_leadership("usurper", now_s=WallClock().now_s() + 100.0, ttl_s=-99.5)
        await until(lambda: not service.health().leading)
        with pytest.raises(NotLeadingError):
            await waiting
        await until(lambda: service.health().leading)
        await stop(run)

    asyncio.run(story())


class Full(MemoryStore):
    """A store with a disk that is full on request: nothing is written, everything can be read."""

    full = False

    def _room(self):
        if self.full:
            raise StoreFullError("the database's disk is full; make room")

    def commit(self, entry, *, token):
        self._room()
        return super().commit(entry, token=token)

    def renew_leadership(self, token, **arguments):
        self._room()
        return super().renew_leadership(token, **arguments)

    def acquire_leadership(self, holder, **arguments):
        self._room()
        return super().acquire_leadership(holder, **arguments)


def test_a_full_disk_is_named_to_whoever_asks_and_the_leader_comes_back_with_room(tmp_path):
    async def story():
        store = Full()
        service = make(store, tmp_path)
        run = asyncio.create_task(service.run())
        await until(lambda: service.health().leading)
        store.full = True
        item = Submission(spec=a_job(), owner="me")
        under_way = asyncio.create_task(service.submit([item], actor="me"))
        with pytest.raises(StoreFullError, match="disk is full"):
            await under_way
        await until(lambda: not service.health().leading)
        assert any("disk is full" in problem for problem in service.health().problems)
        with pytest.raises(StoreFullError, match="disk is full"):
            await service.submit([item], actor="me")
        with pytest.raises(StoreFullError):
            service.nodes()
        store.full = False
        await until(lambda: service.health().leading)
        (job,) = await service.submit([item], actor="me")
        assert job.created
        await stop(run)

    asyncio.run(story())


def test_a_disk_with_room_for_renewals_alone_is_named_to_all_who_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(driver_module, "COMMIT_RETRY_MOST_S", 0.05)
    monkeypatch.setattr(driver_module, "REFUSE_AFTER_S", 0.05)
    monkeypatch.setattr(driver_module, "ANSWER_AFTER_S", 0.3)
    tried, go_on, room = threading.Event(), threading.Event(), threading.Event()

    def fault_of(entry):
        if room.is_set() or not entry.projections.jobs:
            return None
        tried.set()
        assert go_on.wait(60.0)
        return Fault.FULL

    async def story():
        store = ShakyStore(fault_of)
        service = make(store, tmp_path, ttl_s=60.0)
        run = asyncio.create_task(service.run())
        await until(lambda: service.health().leading)
        driver = service.driver

        def submit(name):
            item = Submission(spec=a_job(), owner="me", client_id=name, job_id=name)
            return asyncio.create_task(service.submit([item], actor="me"))

        in_turn = submit("large")
        await until(tried.is_set)
        queued = submit("queued")
        report = SimulatedNode("n0", ("v100",), SimulatedWorld(now_s=WallClock().now_s)).report()
        told = asyncio.create_task(service.report(report, address="127.0.0.1", version="test"))
        own = []
        await until(lambda: driver._told and driver._patient)
        driver.soon(work(lambda turn: own.append(turn.now_s)))
        assert service.health().ready
        go_on.set()
        for refused in (queued, told):
            with pytest.raises(StoreFullError, match="disk is full"):
                await refused
        with pytest.raises(OutcomeUnknownError, match="not known yet"):
            await in_turn
        with pytest.raises(StoreFullError, match="disk is full"):
            await submit("late")
        health = service.health()
        assert (health.leading, health.ready) == (True, False)
        assert any("disk is full" in problem for problem in health.problems)
        assert service.nodes() == ()

        room.set()
        await until(lambda: service.health().ready)
        await until(lambda: bool(own))
        assert service.health().problems == ()
        assert service.driver is driver
        created = [(await submit(name))[0].created for name in ("large", "queued", "late")]
        assert created == [False, True, True]
        await service.report(report, address="127.0.0.1", version="test")
        assert [node.name for node in service.nodes()] == ["n0"]
        await stop(run)

    asyncio.run(story())


@pytest.mark.parametrize("asked", ["load", "head"])
def test_a_start_waits_for_the_database(tmp_path, caplog, monkeypatch, asked):
    """The database may go away at each query while the service loads its state."""
    sleep = asyncio.sleep
    monkeypatch.setattr(service_module.asyncio, "sleep", lambda _s: sleep(0.01))

    async def story():
        store = MemoryStore()
        times = itertools.count()
        answer = getattr(store, asked)

        def away():
            if next(times) < 2:
                raise StoreUnavailableError("away")
            return answer()

        setattr(store, asked, away)
        service = make(store, tmp_path)
        run = asyncio.create_task(service.run())
        async with asyncio.timeout(60.0):
            while not service.health().leading:
                assert not run.done()
                await sleep(0.01)
        assert "cannot be loaded" in caplog.text
        await stop(run)

    asyncio.run(story())


def test_a_scheduler_that_loads_its_state_is_not_ready_however_long_it_takes(tmp_path):
    late_s = [0.0]
    clock = WallClock(
        wall=lambda: time.time() + late_s[0], steady=lambda: time.monotonic() + late_s[0]
    )

    async def story():
        class Slow(MemoryStore):
            def load(self):
                late_s[0] += 60.0  # the leadership has run out long ago
                seen.append(service.health())
                return super().load()

        seen = []
        service = make(Slow(), tmp_path, clock=clock)
        run = asyncio.create_task(service.run())
        while not seen:
            assert not run.done()
            await asyncio.sleep(0.0)
        assert not seen[0].ready
        assert "recovering" in seen[0].problems
        await stop(run)

    asyncio.run(story())


def test_a_graceful_end_writes_a_snapshot_from_which_the_next_start_goes_on(live):
    async def story(stage):
        await stage.job("a", total_steps=60.0)
        await stage.job("b", depends_on=("a",))
        await stage.wait(13)
        before = canonical(stage.state)
        await stage.driver.write_snapshot()
        assert stage.store.load().entries == ()
        assert canonical(stage.recovered()) == before
        await stage.restart()
        assert canonical(stage.state) == before

    live(story)


class Slow(MemoryStore):
    """A store that is slow with entries of new jobs."""

    def __init__(self):
        super().__init__()
        self.came, self.go_on = threading.Event(), threading.Event()

    def commit(self, entry, *, token):
        if entry.projections.jobs:
            self.came.set()
            assert self.go_on.wait(60.0)
        return super().commit(entry, token=token)


async def jobs_of_the_next_start(store, folder):
    service = make(store, folder, "next")
    run = asyncio.create_task(service.run())
    await until(lambda: service.health().leading)
    check_state(service.driver.control.state)
    found = list(service.driver.control.state.engine.jobs.number_of)
    await stop(run)
    await service.stop()
    return found


def test_who_ends_while_an_entry_is_on_its_way_waits_for_it_before_the_last_snapshot(tmp_path):
    async def story():
        store = Slow()
        service = make(store, tmp_path, ttl_s=60.0)
        run = asyncio.create_task(service.run())
        await until(lambda: service.health().leading)
        item = Submission(spec=a_job(), owner="me", client_id="a", job_id="a")
        submitting = asyncio.create_task(service.submit([item], actor="me"))
        await until(store.came.is_set)
        ending = asyncio.create_task(stop(run))
        await asyncio.sleep(0.05)
        store.go_on.set()
        await ending
        (answer,) = await submitting
        assert answer.created
        await service.stop()
        left = store.load()
        assert left.entries == ()
        assert left.snapshot.sequence == store.head().sequence
        assert await jobs_of_the_next_start(store, tmp_path) == ["a"]

    asyncio.run(story())


def test_what_could_not_be_committed_before_the_end_is_in_no_snapshot(tmp_path, monkeypatch):
    monkeypatch.setattr(restart_driver, "LAST_TURN_S", 0.1)

    async def story():
        store = ShakyStore(lambda entry: Fault.AWAY_BEFORE if entry.projections.jobs else None)
        service = make(store, tmp_path, ttl_s=60.0)
        run = asyncio.create_task(service.run())
        await until(lambda: service.health().leading)
        item = Submission(spec=a_job(), owner="me", client_id="a", job_id="a")
        submitting = asyncio.create_task(service.submit([item], actor="me"))
        await until(lambda: service.driver._failure is not None)
        await stop(run)
        with pytest.raises(StoreUnavailableError):
            await submitting
        await service.stop()
        store.fault_of = lambda _: None
        assert await jobs_of_the_next_start(store, tmp_path) == []

    asyncio.run(story())


def test_a_snapshot_that_cannot_be_written_is_written_another_time(live, caplog):
    async def story(stage):
        write = stage.store.write_snapshot

        def away(snapshot, *, token):
            raise StoreUnavailableError("away")

        stage.store.write_snapshot = away
        await stage.job(total_steps=60.0)
        await stage.wait(3)
        assert "no snapshot could be written" in caplog.text
        stage.store.write_snapshot = write
        await stage.wait(40)
        assert stage.store.load().snapshot is not None
        assert canonical(stage.recovered()) == canonical(stage.state)

    live(story, snapshot_entries=3)


def test_an_open_question_is_asked_again_as_it_was(live):
    async def story(stage):
        class Silent(InlineSolver):
            async def solve(self, policy, problem):
                await asyncio.Event().wait()

        await stage.job("a", total_steps=60.0)
        stage.driver._solver = Silent(PolicyAnswerer())
        await stage.job("b")
        question = stage.state.leases.question
        assert question is not None
        await stage.driver.write_snapshot()
        generation = stage.state.engine.generation
        await stage.restart()
        assert stage.state.engine.generation == generation
        assert stage.state.leases.question is None
        assert stage.state.policy.newest_number == 1

    live(story)


@pytest.mark.parametrize("state", [b"nonsense", b""])
def test_a_damaged_snapshot_is_refused(state):
    store = ShakyStore()
    broken = replace(store.load(), snapshot=Snapshot(sequence=0, state=state))
    with pytest.raises(CodecError, match="damaged"):
        recover_state(
            store,
            broken,
            SETTINGS,
            knowledge=LearnedKnowledge,
            time_dependent=lambda _: False,
            term=1,
            now_s=0.0,
        )


def test_a_snapshot_of_a_newer_release_is_refused():
    store = ShakyStore()
    state = zlib.compress(orjson.dumps({"shell": {"version": 99}}))
    newer = replace(store.load(), snapshot=Snapshot(sequence=0, state=state))
    with pytest.raises(CodecError, match="version 99"):
        recover_state(
            store,
            newer,
            SETTINGS,
            knowledge=LearnedKnowledge,
            time_dependent=lambda _: False,
            term=1,
            now_s=0.0,
        )
