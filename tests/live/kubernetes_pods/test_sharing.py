"""Space sharing from end to end: a live service, an agent, and the pods on a fake cluster."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import time
from pathlib import Path

import pytest
from kubernetes.aio import client as package

from agent.client_settings import ClientSettings
from agent.kubernetes.backend import KubernetesBackend
from agent.kubernetes.client import KubernetesClient
from agent.kubernetes.node.workers import NodeInventory
from agent.kubernetes.pods.pods import PodSettings
from agent.loop import Agent
from agent.settings import AgentSettings
from leasehold_testing.inline_solver import InlineSolver
from leasehold_testing.links import ServiceLink
from leasehold_testing.memory_store import MemoryStore
from planner.knowledge import LearnedKnowledge
from policies.answering import PolicyAnswerer
from scheduler.clock import WallClock
from scheduler.control.facts.requests import PolicyChoice, Submission
from scheduler.domain.jobs.spec import JobSpec
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.engine.settings import EngineSettings
from scheduler.runtime.service import LiveService
from scheduler.runtime.settings import RuntimeSettings
from scheduler.views.metrics import Metrics

_spec = importlib.util.spec_from_file_location("fake_api3", Path(__file__).with_name("fake_api.py"))
fake_api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake_api)

TYPE = "v100-sxm2-16gb"
ONE, OTHER = ("a", 1), ("b", 1)
#: Each of two jobs is three quarters as fast as alone while they share.
FIGURES = ThroughputTable(
    isolated={ONE: {TYPE: 1.0}, OTHER: {TYPE: 1.0}},
    shared={(ONE, OTHER): {TYPE: (0.75, 0.75)}, (OTHER, ONE): {TYPE: (0.75, 0.75)}},
)
SETTINGS = RuntimeSettings(
    engine=EngineSettings(round_length_s=5.0, plan_lead_s=2.5, refuse_what_cannot_fit=False),
    policy=PolicyChoice(name="max_min_fairness", space_sharing=True),
    tick_s=0.1,
)


class Cluster:
    """One node with one GPU, and two jobs that would gain by sharing it."""

    def __init__(self, folder, service, api):
        self.folder, self.service, self.api = folder, service, api

    async def submit(self, name):
        spec = JobSpec(
            name=name, command=("train",), total_steps=1000.0, job_type=name,
            image="team/train:1", notice_s=0.0, grace_s=1.0,
        )  # fmt: skip
        given = Submission(spec=spec, owner="me", job_id=name)
        (result,) = await self.service.submit([given], actor="me")
        assert result.created, result

    def names(self):
        return sorted(name.partition("-")[0] for name in self.api.pods)

    async def until(self, condition, most_s=60.0):
        end = time.monotonic() + most_s
        while not condition():
            assert time.monotonic() < end, (self.names(), self.service.nodes())
            await asyncio.sleep(0.05)


def make_agent(folder, service, url, sharing):
    client = KubernetesClient(
        package.ApiClient(package.Configuration(host=url)), settings=ClientSettings(watch_s=2)
    )
    inventory = NodeInventory(instance="leasehold", sharing=sharing)

    def make_backend(endpoint, on_change):
        return KubernetesBackend(
            node="n1", client=client, inventory=inventory, endpoint=endpoint,
            on_change=on_change, state_dir=folder / "agent", settings=PodSettings(),
            node_every_s=0.5,
        )  # fmt: skip

    agent = Agent(
        node="n1",
        link=ServiceLink(service, "n1", wait_s=0.5),
        inventory=inventory,
        state_dir=folder / "agent",
        settings=AgentSettings(report_every_s=0.2, report_least_s=0.01),
        make_backend=make_backend,
        listen=("127.0.0.1", 0),
    )
    return agent, client


@pytest.fixture
def share(tmp_path, make_node):
    """Let two jobs meet on a node of one GPU; its resource counts it ``replicas`` times."""

    def run(scene, *, replicas=1, labels=None, sharing=None):
        async def main():
            node = make_node(replicas)
            node["metadata"]["labels"] |= labels or {}
            store, api = MemoryStore(), fake_api.FakeApi(node)
            token = store.acquire_leadership("me", now_s=time.time(), ttl_s=1e9)
            service = LiveService(
                store=store, clock=WallClock(), solver=InlineSolver(PolicyAnswerer()),
                knowledge=LearnedKnowledge, settings=SETTINGS, metrics=Metrics(),
                state_dir=tmp_path, holder="me",
            )  # fmt: skip
            driver = await service.begin(token.token)
            async with fake_api.Running(api) as running:
                agent, client = make_agent(tmp_path, service, running.url, sharing or {})
                tasks = [asyncio.ensure_future(work) for work in (driver.run(), agent.run())]
                cluster = Cluster(tmp_path, service, api)
                try:
                    await cluster.until(service.nodes)
                    await service.declare_throughputs(
                        tuple(FIGURES.alone()), pairs=tuple(FIGURES.sharing()), actor="me"
                    )
                    await cluster.submit("a")
                    await cluster.submit("b")
                    await scene(cluster)
                finally:
                    for task in tasks:
                        task.cancel()
                        with contextlib.suppress(asyncio.CancelledError):
                            await task
                    await client.close()

        asyncio.run(main())

    return run


def test_on_an_exclusive_node_two_jobs_take_turns(share):
    async def scene(cluster):
        await cluster.until(lambda: len(cluster.names()) == 1)
        state = cluster.service.driver.control.state
        assert state.policy.choice.space_sharing
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            assert not state.engine.table.has_pairs
            assert len(cluster.service.leases()) <= 1
            await asyncio.sleep(0.05)

    share(scene)


@pytest.mark.parametrize("mode", ["time-slicing", "mps"])
def test_on_a_node_that_shares_a_pairs_pods_ask_for_the_shared_resource(share, mode):
    labels = {"nvidia.com/gpu.sharing-strategy": mode, "nvidia.com/gpu.replicas": "2"}

    async def scene(cluster):
        await cluster.until(lambda: cluster.names() == ["a", "b"])
        assert cluster.service.driver.control.state.engine.table.has_pairs
        assert {lease.workers for lease in cluster.service.leases()} == {(0,)}
        for pod in cluster.api.pods.values():
            (container,) = pod["spec"]["containers"]
            assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
            assert "runtimeClassName" not in pod["spec"]

    share(scene, replicas=2, labels=labels)


def test_where_devices_are_visible_a_pairs_pods_name_the_device(share):
    async def scene(cluster):
        await cluster.until(lambda: cluster.names() == ["a", "b"])
        for pod in cluster.api.pods.values():
            (container,) = pod["spec"]["containers"]
            assert "resources" not in container or not container["resources"]
            env = {v["name"]: v.get("value") for v in container["env"]}
            assert env["NVIDIA_VISIBLE_DEVICES"] == "0"
            assert pod["spec"]["runtimeClassName"] == "nvidia"

    share(scene, sharing={TYPE: "visible"})


def test_a_node_that_begins_to_share_is_seen_to_while_the_agent_lives(share):
    async def scene(cluster):
        await cluster.until(lambda: len(cluster.names()) == 1)
        node = cluster.api.nodes["n1"]
        node["metadata"]["labels"] |= {
            "nvidia.com/gpu.sharing-strategy": "time-slicing",
            "nvidia.com/gpu.replicas": "2",
        }
        for part in ("capacity", "allocatable"):
            node["status"][part]["nvidia.com/gpu"] = "2"
        await cluster.until(
            lambda: cluster.service.driver.control.state.engine.table.has_pairs, 20.0
        )

    share(scene)
