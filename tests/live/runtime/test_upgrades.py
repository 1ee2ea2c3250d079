"""A scheduler of another version starts after one was killed: decisions stay."""

import pytest

from scheduler.control.facts.requests import JobAction, NodeAction, PolicyChoice
from scheduler.control.state.owners import Owners
from scheduler.domain.lease_life import EndReason
from scheduler.engine import engine, version
from scheduler.errors import StoreFullError
from simulator.world.nodes import Mishap

TWO = {"n0": ("v100",), "n1": ("v100",)}


@pytest.fixture
def upgrade(monkeypatch):
    """Return a function that puts a release in place of the killed one."""

    async def happen(stage):
        await stage.crash()
        monkeypatch.setattr(version, "DECIDER", version.DECIDER + 1)
        await stage.start()

    return happen


@pytest.fixture
def idle_rules(monkeypatch):
    """Return a function that puts rules in force under which no idle worker is granted."""

    def begin():
        monkeypatch.setattr(engine, "serve_idle_workers", lambda _state: None)

    return begin


def test_leases_stay_that_the_new_rules_would_not_have_granted(live, upgrade, idle_rules):
    async def story(stage):
        for name in ("one", "two"):
            await stage.job(name, total_steps=20.0)
        await stage.wait(4)
        before = {i: live.lease for i, live in stage.state.leases.by_id.items()}
        assert len(before) == 2
        idle_rules()
        assert not stage.recovered().leases.by_id, "a replay would have lost them"
        await upgrade(stage)
        assert {
            i: (live.lease.job_id, live.lease.workers, live.lease.token)
            for i, live in stage.state.leases.by_id.items()
        } == {i: (lease.job_id, lease.workers, lease.token) for i, lease in before.items()}
        await stage.settle()
        await stage.wait(30)
        assert [stage.status(name) for name in ("one", "two")] == ["completed"] * 2
        assert [stage.ends(name) for name in ("one", "two")] == [["completed"]] * 2

    live(story, nodes=TWO)


def test_an_upgrade_is_on_record_before_anything_is_decided(live, upgrade):
    async def story(stage):
        await stage.job(total_steps=20.0)
        await stage.wait(3)
        assert {entry.decider for entry in stage.store.load().entries} == {version.DECIDER}
        await upgrade(stage)
        assert not stage.store.load().entries
        await stage.settle()
        await stage.wait(2)
        assert {entry.decider for entry in stage.store.load().entries} == {version.DECIDER}
        await stage.restart()
        assert stage.ends() == [None]

    live(story)


def test_without_room_for_a_snapshot_all_is_taken_over_once_more(live, upgrade, monkeypatch):
    async def story(stage):
        await stage.job(total_steps=30.0)
        await stage.wait(3)
        with monkeypatch.context() as patch:
            patch.setattr(stage.store, "write_snapshot", _refuse)
            await upgrade(stage)
        await stage.settle()
        await stage.wait(2)
        deciders = [entry.decider for entry in stage.store.load().entries]
        assert len(set(deciders)) == 2
        await stage.restart()
        assert stage.ends() == [None]
        assert not stage.store.load().entries or deciders[-1] == version.DECIDER

    live(story)


def _refuse(*_, **__):
    raise StoreFullError("no room")


def test_what_was_asked_for_is_done(live, upgrade):
    """Orders that the killed release had taken in, and that were not carried out yet."""

    async def story(stage):
        nodes = {f"n{i}": ("v100",) for i in range(4)}
        for name in "abcd":
            await stage.job(name, total_steps=60.0)
        await stage.wait(3)
        where = {live.lease.job_id: live.nodes[0] for live in stage.state.leases.by_id.values()}
        assert sorted(where.values()) == sorted(nodes)
        for link in stage.links.values():
            link.cut = True
        await stage.act(JobAction.CANCEL, "a")
        await stage.act(JobAction.HOLD, "b")
        await stage.act(JobAction.REQUEUE, "c")
        await stage.do(
            stage.service.node_action(where["d"], NodeAction.DRAIN, reason="", actor="boss")
        )
        revoked = {live.lease.job_id: live.revoked for live in stage.state.leases.by_id.values()}
        await upgrade(stage)
        again = {live.lease.job_id: live.revoked for live in stage.state.leases.by_id.values()}
        assert again == revoked == {"a": "cancel", "b": "hold", "c": "requeue", "d": "drain"}
        for link in stage.links.values():
            link.cut = False
        await stage.settle()
        await stage.wait(6)
        assert (stage.status("a"), stage.status("b")) == ("cancelled", "held")
        assert stage.ends("b") == ["released"]
        assert stage.ends("c")[0] == "released"
        assert stage.ends("d")[0] == "released"

    live(story, nodes={f"n{i}": ("v100",) for i in range(4)})


def test_a_job_that_waits_after_a_failure_waits_on(live, upgrade):
    async def story(stage):
        stage.world.mishaps["job"] = [Mishap(steps=1.0, end=EndReason.FAILED)]
        await stage.job(total_steps=5.0)
        await stage.wait(2)
        assert stage.ends() == ["failed"]
        until_s = stage.state.engine.jobs["retry_at_s"].item()
        assert until_s > stage.clock.now_s()
        await upgrade(stage)
        assert stage.state.engine.jobs["retry_at_s"].item() == pytest.approx(until_s)
        await stage.settle()
        await stage.wait(12)
        assert stage.ends() == ["failed", "completed"]

    live(story, engine={"retry_backoff_s": 6.0})


def test_owed_s_are_those_of_the_last_snapshot(live, upgrade):
    async def story(stage):
        for name in ("one", "two"):
            await stage.job(name, total_steps=200.0)
        await stage.wait(14)
        await stage.do(stage.driver.write_snapshot())
        owed_s = stage.state.engine.jobs.credit_s.copy()
        assert owed_s.any()
        await stage.job("late", total_steps=200.0)
        await upgrade(stage)
        jobs = stage.state.engine.jobs
        assert jobs.credit_s[:2].tolist() == owed_s.tolist()
        assert not jobs.credit_s[2:].any()

    live(story, policy=PolicyChoice(name="max_min_fairness"))


def test_owners_of_the_release_before_get_their_uids_at_the_start(live, monkeypatch):
    async def story(stage):
        with monkeypatch.context() as before:
            before.setattr(Owners, "give", lambda *_: None)
            await stage.job("one", total_steps=20.0)
            await stage.wait(3)
            assert not stage.store.settings("uid/")
        await stage.crash()
        await stage.start()
        project, owner = next(iter(stage.state.owners.uids))
        uid = stage.state.settings.first_uid
        assert stage.state.owners.uids == {(project, owner): uid}
        told = [
            lease.uid
            for node in stage.state.nodes.by_name
            for lease in (await stage.service.desired(node, after=(0, -1), wait_s=0.0)).leases
        ]
        assert told == [uid]
        await stage.settle()
        await stage.wait(2)
        (row,) = stage.store.settings("uid/")
        assert (row.key, row.value) == (f"uid/{uid}", {"project": project, "owner": owner})
        await stage.restart()
        assert stage.state.owners.uids == {(project, owner): uid}
        assert stage.state.owners.unstored == ()

    live(story)
