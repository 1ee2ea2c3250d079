"""Each wait for a pod has a bound, and a pod's end is reported only after a look at its node."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import time
from pathlib import Path

import pytest
from kubernetes.aio import client as package

from agent.client_settings import ClientSettings
from agent.kubernetes import backend as kubernetes_backend
from agent.kubernetes.backend import KubernetesBackend
from agent.kubernetes.client import KubernetesClient
from agent.kubernetes.node.watch import NodeWatch
from agent.kubernetes.node.workers import NodeInventory
from agent.kubernetes.pods.ends import StartBounds, look_at, stalled_launch
from agent.kubernetes.pods.pods import PodSettings
from agent.loop import Agent
from agent.reconcile import Kill, Terminate
from agent.settings import AgentSettings
from leasehold_testing.file_link import FileLink
from scheduler.domain.facts.troubles import trouble_of
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.errors import ParameterError
from scheduler.protocol.desired import Desired

_spec = importlib.util.spec_from_file_location("fake_api3", Path(__file__).with_name("fake_api.py"))
fake_api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake_api)

POD = "job1-1-0"
CORDONED = "the node is cordoned"
#: The agent does not look at the node by itself while a test lasts.
NEVER = {"node_every_s": 3600.0}


def evict(api, name=POD):
    """Do as `kubectl drain`: cordon, then evict."""
    api.nodes["n1"]["spec"]["unschedulable"] = True
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    api.pods[name]["metadata"]["deletionTimestamp"] = fake_api.now()
    api.status(name, conditions=[fake_api.holds("PodScheduled"), evicted])
    api.finish(name, 143)


async def running(stage, lease):
    stage.start(lease)
    await stage.pod()
    stage.api.run(POD)
    await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)


# -- the node is checked before an end is reported ----------------------------------------------


def test_the_end_of_an_evicted_pod_is_not_told_before_its_node_was_read(play, make_lease, failure):
    async def scene(stage):
        await running(stage, make_lease())
        assert stage.problems() == {}
        stage.api.fault("GET", "/nodes/n1", failure(503, "ServiceUnavailable", "busy"), times=6)
        evict(stage.api)

        def ended():
            report = stage.report()
            assert report.reason is None or not stage.api.faults, "told before the node was read"
            return report.reason is not None and report

        report = await stage.until(ended)
        assert (report.reason, report.reason_code) == (EndReason.LOST, "EvictionByEvictionAPI")
        assert stage.problems() == dict.fromkeys(range(4), CORDONED)

    play(scene, **NEVER)


def test_a_pod_that_somebody_deleted_is_not_told_before_its_node_was_read(play, make_lease):
    """An eviction that leaves no condition behind, as older ways to drain do."""

    async def scene(stage):
        await running(stage, make_lease())
        stage.api.nodes["n1"]["spec"]["unschedulable"] = True
        stage.api.pods[POD]["metadata"]["deletionTimestamp"] = fake_api.now()
        stage.api.finish(POD, 143)
        report = await stage.ended()
        assert (report.reason, report.message) == (
            EndReason.RELEASED,
            "another user has deleted the pod",
        )
        assert stage.problems()[0] == CORDONED

    play(scene, **NEVER)


def test_a_job_that_ends_by_itself_waits_for_no_look_at_the_node(play, make_lease):
    async def scene(stage):
        await running(stage, make_lease())
        looks = sum(path.endswith("/nodes/n1") for _, path, _ in stage.api.requests)
        stage.api.finish(POD, 1)
        assert (await stage.ended()).reason is EndReason.FAILED
        assert sum(path.endswith("/nodes/n1") for _, path, _ in stage.api.requests) == looks

    play(scene, **NEVER)


def test_a_node_that_cannot_be_read_holds_an_end_up_for_a_while_only(play, failure):
    async def scene(stage):
        troubles = []
        watch = NodeWatch(
            node="n1", client=stage.client, inventory=stage.inventory, on_change=lambda: None,
            on_trouble=lambda _name, trouble: troubles.append(trouble), look_most_s=0.2,
        )  # fmt: skip
        away = failure(503, "ServiceUnavailable", "busy")
        stage.api.fault("GET", "/nodes/n1", away, times=10_000)
        await watch.look()  # the scene's own limit stands against a look without an end
        assert stage.api.faults

    play(scene, **NEVER)


class EveryReport:
    """Keeps all reports that it hands on."""

    def __init__(self, link):
        self.link, self.reports = link, []
        self.desired, self.append_log = link.desired, link.append_log

    async def report(self, report):
        self.reports.append(report)
        await self.link.report(report)


def test_no_report_tells_an_eviction_without_the_cordon(tmp_path, make_lease, make_node):
    """The whole agent: the look at workers every 30 s is not what makes it so."""
    scheduler = FileLink(folder=tmp_path)
    link = EveryReport(scheduler)

    async def until(condition):
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, link.reports[-1:]
            await asyncio.sleep(0.02)

    def told(lease_id):
        return [r for r in link.reports for each in r.leases
                if each.lease_id == lease_id and each.state is LeasePhase.ENDED]  # fmt: skip

    async def main():
        api = fake_api.FakeApi(make_node())
        async with fake_api.Running(api) as server:
            client = KubernetesClient(
                package.ApiClient(package.Configuration(host=server.url)),
                settings=ClientSettings(watch_s=2),
            )
            inventory = NodeInventory(instance="leasehold")
            agent = Agent(
                node="n1", link=link, inventory=inventory, state_dir=tmp_path / "state",
                settings=AgentSettings(margin_s=0.2, report_least_s=0.01, health_every_s=3600),
                make_backend=lambda endpoint, on_change: KubernetesBackend(
                    node="n1", client=client, inventory=inventory, endpoint=endpoint,
                    on_change=on_change, state_dir=tmp_path / "state", settings=PodSettings(),
                    **NEVER,
                ),
                listen=("127.0.0.1", 0),
            )  # fmt: skip
            task = asyncio.ensure_future(agent.run())
            scheduler.publish(Desired(revision=1, leases=(make_lease(remaining_s=600.0),)))
            await until(lambda: POD in api.pods)
            api.run(POD)
            await until(lambda: [r.state for r in link.reports[-1].leases] == [LeasePhase.RUNNING])
            evict(api)
            await until(lambda: told(1))
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await client.close()

    asyncio.run(main())
    assert [[w.problem for w in report.workers] for report in told(1)] == [[CORDONED] * 4] * len(
        told(1)
    )


def test_a_worker_whose_pod_is_not_on_the_node_yet_is_out_of_service_with_the_cordon(
    play, make_lease
):
    async def scene(stage):
        await running(stage, make_lease())
        stage.api.places = False
        stage.start(make_lease(2, workers=(1,)))
        await stage.pod("job2-1-0")
        unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        unplaced["message"] = "0/2 nodes are available: 1 node(s) were unschedulable."
        stage.api.status("job2-1-0", conditions=[unplaced])
        await stage.until(lambda: stage.report(2).reason_code == "Unschedulable")
        stage.api.nodes["n1"]["spec"]["unschedulable"] = True
        await stage.until(lambda: stage.problems() == dict.fromkeys((1, 2, 3), CORDONED))

    play(scene, bounds=StartBounds(trouble_s=60.0))


# -- bounds of a launch -------------------------------------------------------------------------


def pending(*conditions, node="n1", init=()):
    spec = {"nodeName": node} if node else {}
    status = {"phase": "Pending", "conditions": [
        {"type": name, "status": status} for name, status in conditions]}  # fmt: skip
    status["initContainerStatuses"] = [{"state": {state: {}}} for state in init]
    return look_at({"spec": spec, "status": status})


BOUNDS = StartBounds(bind_s=10.0, prepare_s=100.0, image_s=1000.0)


@pytest.mark.parametrize(
    ("look", "word", "most_s"),
    [
        (pending(node=""), "NotBound", 10.0),
        (pending(("PodReadyToStartContainers", "False")), "NotStarted", 100.0),
        (pending(("PodReadyToStartContainers", "True")), "NotStarted", 1000.0),
        (pending(("PodScheduled", "True"), node=""), "NotStarted", 1000.0),  # an old kubelet
    ],
)
def test_each_step_of_a_launch_has_a_bound_of_its_own(look, word, most_s):
    assert stalled_launch(look, waited_s=most_s - 1, bounds=BOUNDS) is None
    found, message = stalled_launch(look, waited_s=most_s, bounds=BOUNDS)
    assert (found, message.endswith(f"after {most_s:g} s")) == (word, True)


def test_a_launch_gets_on_with_each_container_before_the_jobs():
    steps = [
        pending(node="").step,
        pending(("PodReadyToStartContainers", "False")).step,
        pending(("PodReadyToStartContainers", "True")).step,
        pending(init=("waiting", "waiting")).step,
        pending(init=("running", "waiting")).step,
        pending(init=("terminated", "waiting")).step,
        pending(init=("terminated", "running")).step,
    ]
    assert steps == [0, 1, 2, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["bind_s", "prepare_s", "image_s", "trouble_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_a_bound_is_a_number_of_seconds(name, value):
    with pytest.raises(ParameterError, match=name):
        StartBounds(**{name: value})


def test_a_pod_that_no_scheduler_looks_at_ends_its_lease_with_a_reason(play, make_lease):
    async def scene(stage):
        stage.api.places = False
        stage.api.hold_deleted = False
        stage.start(make_lease())
        report = await stage.ended()
        assert (report.reason, report.reason_code) == (EndReason.LOST, "NotBound")
        assert trouble_of(report.reason_code, report.message) == "not_bound"
        assert "no node has taken the pod" in report.message
        assert not stage.api.pods

    play(scene, bounds=StartBounds(bind_s=0.5))


def test_a_pod_whose_kubelet_does_nothing_ends_its_lease_with_a_reason(play, make_lease):
    async def scene(stage):
        stage.api.hold_deleted = False
        stage.start(make_lease())
        report = await stage.ended()
        assert (report.reason, report.reason_code) == (EndReason.LOST, "NotStarted")
        assert trouble_of(report.reason_code, report.message) == "not_started"

    play(scene, bounds=StartBounds(image_s=0.5))


def test_a_pod_that_does_not_go_away_keeps_its_worker_out_of_service(play, make_lease, monkeypatch):
    """As if the kubelet has died, and the agent on the node has not."""
    monkeypatch.setattr(kubernetes_backend, "STUCK_S", 0.2)

    async def scene(stage):
        await running(stage, make_lease(grace_s=1.0, workers=(2,)))
        stage.backend.perform(Terminate(lease_id=1, unwanted=True))
        stage.backend.perform(Kill(lease_id=1))
        await stage.until(lambda: set(stage.problems()) == {2})
        assert "does not go away" in stage.problems()[2]
        assert stage.report().reason is None
        stage.api.vanish(POD)
        await stage.ended()
        assert stage.problems() == {}

    play(scene, **NEVER)


def test_a_lease_gives_up_an_api_server_that_is_away_and_ends_when_it_is_back(
    play, make_lease, failure
):
    async def scene(stage):
        away = failure(503, "ServiceUnavailable", "etcd is away")
        stage.api.fault("POST", "/pods", away, times=10_000)
        stage.start(make_lease())
        await stage.until(lambda: stage.report().state is LeasePhase.STOPPING)
        report = await stage.ended()
        assert (report.reason, report.reason_code) == (EndReason.LOST, "ApiUnavailable")
        assert not stage.api.pods

    play(scene)
