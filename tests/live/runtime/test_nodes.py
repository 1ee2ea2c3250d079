"""Nodes join, change, fall silent, come back, and are cordoned, drained and removed."""

import asyncio
from dataclasses import replace

import pytest

from scheduler.control.facts.requests import JobAction, NodeAction, PolicyChoice
from scheduler.control.state.nodes import CHANGES_WITHIN_S, MOST_CHANGES
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.lease_life import EndReason
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.errors import ConflictError, NotFoundError
from scheduler.operator_settings import LearningSettings
from scheduler.protocol.reports import LEAVING, NodeReport, WorkerReport
from simulator.world.nodes import Mishap

CORDON, DRAIN, UNCORDON = NodeAction


async def order(stage, name, action):
    return await stage.do(stage.service.node_action(name, action, reason="because", actor="boss"))


def states(stage):
    return {node.name: node.state for node in stage.service.nodes()}


def test_nodes_join_with_their_workers_and_are_known_after_a_restart(live):
    async def story(stage):
        assert states(stage) == {"n0": "ready", "n1": "ready"}
        view = stage.service.cluster()
        assert dict(view.workers) == {"v100": 1, "k80": 2}
        await stage.crash()
        await stage.start()
        assert states(stage) == {"n0": "unknown", "n1": "unknown"}
        await stage.settle()
        await stage.wait(1)
        assert states(stage) == {"n0": "ready", "n1": "ready"}
        assert len(stage.history("node_joined")) == 2

    live(story, nodes={"n0": ("v100",), "n1": ("k80", "k80")})


def test_a_silent_node_is_lost_and_its_job_runs_elsewhere_after_the_margin(live):
    async def story(stage):
        await stage.job(total_steps=40.0, throughputs={"v100": 4.0, "k80": 1.0})
        assert stage.row().status.value == "running"
        await stage.wait(2)
        stage.links["n0"].cut = True
        granted = stage.service.leases()[0]
        while stage.ends() != ["lost", None]:
            await stage.wait(0.5)
        # The workers were granted again only after deadline and margin, when the node had ended it.
        assert stage.clock.now_s() > granted.deadline_s + 1.0
        assert not any(run.end is None for run in stage.node("n0").runs.values())
        await stage.wait(5)
        assert states(stage)["n0"] == "lost"
        stage.links["n0"].cut = False
        await stage.wait(1)
        assert states(stage)["n0"] == "ready"
        assert [row.kind for row in stage.history("node_lost", "node_returned")] == [
            "node_lost",
            "node_returned",
        ]
        await stage.wait(60)
        assert stage.status() == "completed"
        assert stage.row().failures == 0
        assert not stage.world.overlaps

    live(story, nodes={"n0": ("v100",), "n1": ("k80",)})


def test_after_a_restart_nodes_have_their_time_to_tell_how_leases_ended(live):
    async def story(stage):
        await stage.job(total_steps=6.0)
        await stage.crash()
        await stage.wait(11)  # the job completes, the lease's deadline and the margin pass
        stage.links["n0"].cut = True
        await stage.start()
        await stage.wait(10)
        assert stage.ends() == [None]  # 12 s of silence are allowed from the start on
        stage.links["n0"].cut = False
        await stage.wait(1)
        assert stage.ends() == ["completed"]
        assert stage.status() == "completed"

    live(story)


def test_a_node_that_never_comes_back_after_a_restart_loses_its_leases(live):
    async def story(stage):
        await stage.job(total_steps=50.0)
        await stage.crash()
        stage.links["n0"].cut = True
        await stage.wait(20)
        await stage.start()
        await stage.wait(11)
        assert stage.ends() == [None]
        # The lease was extended meanwhile; the node may have received it.
        await stage.run_until(lambda: stage.ends() == ["lost"], at_most_s=30.0)
        assert states(stage) == {"n0": "lost"}
        await stage.restart()
        assert states(stage) == {"n0": "lost"}
        assert (await stage.explanation()).reason is WaitReason.WORKERS_OUT

    live(story)


def test_a_node_with_other_workers_is_another_one_under_the_same_name(live):
    async def story(stage):
        await stage.job(total_steps=20.0)
        await stage.wait(2)
        stage.node("n0").wipe()
        stage.node("n0").worker_types = ("k80", "k80")
        await stage.wait(2)
        assert stage.ends()[0] == "lost"
        (node,) = stage.service.nodes()
        assert [worker.worker_type for worker in node.workers] == ["k80", "k80"]
        assert [worker.index for worker in node.workers] == [1, 2]
        await stage.restart()
        await stage.wait(30)
        assert stage.status() == "completed"
        assert stage.store.attempts("job")[-1].worker_type == "k80"
        assert len(stage.history("node_changed")) == 1
        assert dict(stage.service.cluster().workers) == {"v100": 0, "k80": 2}

    live(story)


@pytest.mark.long
def test_a_node_whose_workers_change_all_the_time_is_refused_for_a_while(live, caplog):
    async def story(stage):
        node = stage.node("n0")

        def workers():
            return len(stage.state.engine.cluster.worker_type_of)

        async def change(times):
            for _ in range(times):
                node.worker_types = ("k80",) if node.worker_types == ("v100",) else ("v100",)
                await stage.wait(5)

        await stage.wait(5)
        await change(MOST_CHANGES)
        for _ in range(2):
            report = node.report()
            others = tuple(replace(worker, worker_type="k80") for worker in report.workers)
            again = replace(report, workers=others)
            with pytest.raises(ConflictError, match="have changed 16 times within an hour"):
                await stage.do(stage.service.report(again, address="127.0.0.1", version="t"))
        assert len(stage.history("node_changed")) == MOST_CHANGES
        assert workers() == 1 + MOST_CHANGES
        told = [r for r in caplog.records if "have changed 16 times" in r.getMessage()]
        assert len(told) == 1
        # Its last workers still count; more changes count when the first ones are an hour ago.
        await stage.wait(30)
        assert states(stage) == {"n0": "ready"}
        await stage.wait(CHANGES_WITHIN_S)
        await change(2)
        assert workers() == 3 + MOST_CHANGES

    live(story, nodes={"n0": ("v100",)})


def test_a_broken_worker_ends_its_job_as_lost_and_comes_back_when_repaired(live):
    async def story(stage):
        await stage.job(total_steps=30.0, max_failures=0)
        await stage.wait(3)
        stage.node("n0").problems[0] = "fell off the bus"
        await stage.wait(1)
        assert stage.ends()[0] == "lost"
        assert stage.row().failures == 0
        (node,) = stage.service.nodes()
        assert node.workers[0].problem == "fell off the bus"
        assert not node.workers[0].in_service
        await stage.restart()
        await stage.crash()
        stage.node("n0").problems.clear()  # while no client listens
        await stage.wait(1)
        await stage.start()
        await stage.settle()
        await stage.wait(0.5)
        assert stage.ends() == ["lost", None]
        stage.node("n0").problems[0] = "again"
        await stage.wait(1)
        stage.node("n0").problems.clear()
        await stage.wait(1)
        kinds = [row.kind for row in stage.history("workers_failed", "workers_recovered")]
        assert kinds == ["workers_failed", "workers_recovered"] * 2
        await stage.wait(40)
        assert stage.status() == "completed"

    live(story)


@pytest.mark.parametrize("nodes", [{"n0": ("v100",)}, {"n0": ("v100",), "n1": ("v100",)}])
def test_an_agent_that_is_stopped_with_its_jobs_is_no_fault_of_the_node(live, nodes):
    async def story(stage):
        await stage.job(total_steps=30.0, scale_factors=(len(nodes),), max_node_faults=0)
        await stage.wait(3)
        node = stage.node("n0")
        node.problems = {0: LEAVING}
        (run,) = node.runs.values()
        node._end(run, EndReason.RELEASED, exit_code=75)
        await stage.wait(1)
        assert stage.ends()[0] == "released"
        assert [row.kind for row in stage.history("agent_stopped", "workers_failed")] == [
            "agent_stopped"
        ]
        await stage.wait(10)
        assert stage.status() == "waiting"  # nothing is granted on a node that is being left
        node.problems.clear()
        await stage.wait(60)
        assert stage.status() == "completed"
        assert stage.ends() == ["released", "completed"]

    live(story, nodes=nodes)


def test_a_job_that_fails_because_its_worker_broke_has_not_failed(live):
    async def story(stage):
        from scheduler.domain.lease_life import EndReason
        from simulator.world.nodes import Mishap

        await stage.job(total_steps=30.0, max_failures=0)
        stage.world.mishaps["job"] = [Mishap(steps=3.0, end=EndReason.FAILED)]
        await stage.wait(2.9)
        stage.node("n0").problems[0] = "fell off the bus"
        stage.links["n0"].cut = True
        await stage.wait(0.5)
        stage.links["n0"].cut = False  # the failure and its cause arrive together
        await stage.wait(1)
        assert stage.ends() == ["lost"]
        assert (stage.status(), stage.row().failures) == ("waiting", 0)

    live(story)


def test_a_cordoned_node_keeps_its_job_and_gets_no_other(live):
    async def story(stage):
        await stage.job("a", total_steps=25.0)
        view = await order(stage, "n0", CORDON)
        assert (view.state, view.reason) == ("cordoned", "because")
        await stage.job("b")
        await stage.restart()
        await stage.wait(27)
        assert stage.ends("a") == ["completed"]
        assert stage.status("b") == "waiting"
        assert states(stage) == {"n0": "cordoned"}
        await order(stage, "n0", UNCORDON)
        await stage.wait(6)
        assert stage.status("b") == "completed"
        assert states(stage) == {"n0": "ready"}

    live(story)


def test_the_history_says_once_when_a_drained_node_is_empty(live):
    async def story(stage):
        await stage.job(total_steps=1000.0)
        await stage.wait(1)
        await order(stage, "n0", DRAIN)
        assert "node_drained" not in stage.kinds("n0"), "its job is leaving"
        await stage.wait(4)
        assert stage.kinds("n0").count("node_drained") == 1
        await stage.restart()
        await stage.wait(3)
        assert stage.kinds("n0").count("node_drained") == 1
        await order(stage, "n0", UNCORDON)
        await stage.wait(2)
        await order(stage, "n0", DRAIN)
        await stage.wait(4)
        assert stage.kinds("n0").count("node_drained") == 2
        assert stage.history("node_drained")[-1].subject == "n0"

    live(story)


def test_a_drained_node_lets_its_job_leave_with_a_checkpoint(live):
    async def story(stage):
        stage.world.leave_s = 0.4
        await stage.job(total_steps=9.0)
        await stage.wait(4)
        assert (await order(stage, "n0", DRAIN)).state == "draining"
        await stage.wait(1)
        assert states(stage) == {"n0": "drained"}
        assert stage.ends() == ["released"]
        assert stage.row().steps_done == 4
        await stage.restart()
        await stage.wait(20)
        assert states(stage) == {"n0": "drained"}
        assert stage.status() == "waiting"
        await order(stage, "n0", UNCORDON)
        await stage.wait(6)
        assert stage.status() == "completed"

    live(story)


def test_an_order_holds_when_a_node_was_lost_and_returns(live):
    async def story(stage):
        await order(stage, "n0", CORDON)
        stage.links["n0"].cut = True
        await stage.wait(14)
        assert states(stage) == {"n0": "lost"}
        stage.links["n0"].cut = False
        await stage.wait(1)
        assert states(stage) == {"n0": "cordoned"}
        await stage.job()
        await stage.wait(5)
        assert stage.status() == "waiting"

    live(story)


def test_only_a_node_that_is_gone_can_be_removed(live):
    async def story(stage):
        with pytest.raises(NotFoundError, match="no node 'x'"):
            await order(stage, "x", CORDON)
        with pytest.raises(ConflictError, match="still reports"):
            await stage.do(stage.service.remove_node("n0", actor="boss"))
        await stage.job(total_steps=50.0)
        with pytest.raises(ConflictError, match="holds leases"):
            await stage.do(stage.service.remove_node("n0", actor="boss"))
        stage.links["n0"].cut = True
        await stage.wait(30)
        assert states(stage) == {"n0": "lost"}
        await stage.do(stage.service.remove_node("n0", actor="boss"))
        assert states(stage) == {}
        await stage.restart()
        assert states(stage) == {}
        assert (await stage.explanation()).reason is WaitReason.NO_WORKERS
        stage.links["n0"].cut = False
        await stage.wait(60)
        assert states(stage) == {"n0": "ready"}
        assert stage.status() == "completed"

    live(story)


def test_an_agent_that_asks_before_its_node_is_known_hears_when_it_has_joined(live):
    async def story(stage):
        node = stage.add_node("n1", "k80")
        desired = await stage.service.desired("n1", after=(0, -1), wait_s=0.0)
        assert (desired.revision, desired.leases) == (0, ())
        asked = asyncio.ensure_future(stage.service.desired("n1", after=(1, 0), wait_s=60.0))
        await stage.settle()
        assert (await asked).revision > 0
        assert node.view.known

    live(story)


A, B = ("a", 1), ("b", 1)
#: On the v100 two jobs that share are each three quarters as fast as alone; the same on the k80.
SHARED = ThroughputTable(
    isolated={A: {"v100": 4.0, "k80": 1.0}, B: {"v100": 4.0, "k80": 1.0}},
    shared={(A, B): {"v100": (3.0, 3.0), "k80": (0.75, 0.75)}},
)
SHARING = {
    "policy": PolicyChoice(name="max_min_fairness", space_sharing=True),
    "learning": LearningSettings(learn=False),
}


def shareable(stage):
    """Return the worker types on which the table has pairs."""
    table = stage.state.engine.table
    return {table.worker_types[k] for row in table.pair_demand for k in row.nonzero()[0]}


async def submit_two(stage):
    declare = stage.service.declare_throughputs
    figures, pairs = tuple(SHARED.alone()), tuple(SHARED.sharing())
    await stage.do(declare(figures, pairs=pairs, actor="boss"))
    for name in ("a", "b"):
        await stage.job(name, job_type=name, throughputs={}, total_steps=400.0)


def test_jobs_share_workers_only_of_types_that_every_node_shares(live):
    async def story(stage):
        stage.world.pairs = True
        await submit_two(stage)
        assert shareable(stage) == {"v100", "k80"}
        stage.node("n0").sharing = "exclusive"
        await stage.wait(1)
        assert shareable(stage) == {"k80"}
        told = {node.name: [w.shareable for w in node.workers] for node in stage.service.nodes()}
        assert told == {"n0": [False], "n1": [True]}
        # What runs as a pair goes on until the next round, and no longer.
        await stage.wait(11)
        on_n0 = [lease for lease in stage.service.leases() if lease.nodes == ("n0",)]
        assert len(on_n0) <= 1
        await stage.restart()
        assert shareable(stage) == {"k80"}
        # Another v100 node that could share changes nothing while n0 cannot.
        stage.add_node("n2", "v100")
        await stage.wait(1)
        assert shareable(stage) == {"k80"}
        stage.node("n0").sharing = "mps"
        await stage.wait(1)
        assert shareable(stage) == {"v100", "k80"}

    live(story, nodes={"n0": ("v100",), "n1": ("k80",)}, **SHARING)


def test_a_new_leader_knows_from_the_start_which_nodes_cannot_share(live):
    async def story(stage):
        stage.node("n0").sharing = "exclusive"
        await stage.wait(1)
        await submit_two(stage)
        assert shareable(stage) == set()
        await stage.crash()
        stage.links["n0"].cut = True
        await stage.start()
        await stage.wait(1)
        assert stage.state.nodes.by_name["n0"].last_seen_s is None
        assert shareable(stage) == set()
        # A node that is removed has no say any more.
        await stage.wait(40)
        await stage.do(stage.service.remove_node("n0", actor="boss"))
        assert stage.state.nodes.exclusive == set()
        assert not [row for row in stage.store.settings() if row.key.startswith("exclusive/")]

    live(story, **SHARING)


def test_what_is_approved_and_which_workers_that_are_is_known_after_a_restart(live):
    async def story(stage):
        approve = stage.service.approve_workers("n0", {"v100": 1}, actor="boss")
        await stage.do(approve)
        await stage.wait(1)

        def seen():
            (node,) = stage.service.nodes()
            workers = [(worker.local_index, worker.worker_type) for worker in node.workers]
            return workers, dict(node.refused), dict(node.approved)

        expected = [(1, "v100")], {"k80": 2}, {"v100": 1}
        assert seen() == expected
        await stage.job(total_steps=40.0)
        await stage.wait(1)
        before = stage.ends()
        await stage.restart()
        await stage.wait(1)
        assert seen() == expected
        assert stage.ends() == before == [None], "its lease goes on, on the worker that it names"
        desired = await stage.service.desired("n0", after=(0, 0), wait_s=0.0)
        assert [lease.workers for lease in desired.leases] == [(1,)]
        assert len(stage.history("node_changed")) == 1

    live(story, nodes={"n0": ("k80", "v100", "k80")})


def test_a_quarantine_and_what_a_job_has_spent_are_known_after_a_restart(live):
    async def story(stage):
        for name in ("one", "two"):
            stage.world.mishaps[name] = [Mishap(steps=2.0, end=EndReason.LOST)]
            await stage.job(name, total_steps=400.0, max_node_faults=5)
            while "lost" not in stage.ends(name):
                await stage.wait(1)
            await stage.act(JobAction.HOLD, name)  # the next one gets its place
            await stage.wait(15)
        (node,) = (node for node in stage.service.nodes() if "quarantined" in node.reason)
        assert node.state == "cordoned"
        (line,) = stage.history("node_quarantined")
        assert {one["job"] for one in line.data["evidence"]} == {"one", "two"}
        metrics = stage.service.metrics().decode()
        assert 'leasehold_nodes_doubted{state="quarantined"} 1.0' in metrics
        explained = (await stage.explanation("one")).message
        assert "node fault" in explained
        await stage.restart()
        await stage.wait(1)
        assert states(stage)[node.name] == "cordoned"
        assert (await stage.explanation("one")).message.split("; retries used")[1] == (
            explained.split("; retries used")[1]
        )
        await order(stage, node.name, UNCORDON)
        assert states(stage)[node.name] == "ready"

    nodes = {f"n{n}": ("v100",) for n in range(5)}
    live(story, nodes=nodes, quarantine_after=2)


def test_the_metrics_count_how_often_agents_stood_still(live):
    async def story(stage):
        stage.links["n0"].cut = True
        told = NodeReport(
            node="n0",
            incarnation=stage.node("n0").incarnation,
            sequence=10**6,
            term=stage.state.term,
            revision=10**6,
            workers=(WorkerReport(index=0, worker_type="v100"),),
            leases=(),
            stalls=3,
        )
        for _ in range(2):
            await stage.do(stage.service.report(told, address="a", version="v"))
        metrics = stage.service.metrics().decode()
        assert "leasehold_agent_event_loop_stalls_total 3.0" in metrics

    live(story, nodes={"n0": ("v100",)})


def test_a_request_for_news_is_a_sign_of_life_when_it_comes_not_when_it_is_answered(live):
    async def story(stage):
        await stage.wait(1)
        stage.links["n0"].cut = True  # its agent is killed while the scheduler holds its request
        asked_s = stage.clock.now_s()
        held = asyncio.ensure_future(stage.service.desired("n0", after=(10**9, 0), wait_s=8.0))
        await stage.wait(20)
        await held
        seen_s = stage.state.nodes.by_name["n0"].last_seen_s
        assert asked_s - 1.0 <= seen_s <= asked_s + 1.0

    live(story, nodes={"n0": ("v100",)})
