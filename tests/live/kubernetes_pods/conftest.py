"""A node of a fake cluster, and an agent's backend on it that the test drives by hand."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import time
from pathlib import Path

import pytest
from kubernetes.aio import client as package

from agent.client_settings import ClientSettings
from agent.clock import lease_clock_s
from agent.endpoint.endpoint import Endpoint
from agent.kubernetes.backend import KubernetesBackend
from agent.kubernetes.client import KubernetesClient
from agent.kubernetes.node.workers import NodeInventory
from agent.kubernetes.pods.ends import StartBounds
from agent.kubernetes.pods.pods import PodSettings
from agent.reconcile import Start, WantedLease
from scheduler.protocol.desired import DesiredLease

_spec = importlib.util.spec_from_file_location("fake_api", Path(__file__).with_name("fake_api.py"))
fake_api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake_api)

QUICK = ClientSettings(request_s=2, connect_s=1, watch_s=2, retries=1, retry_least_s=0.01)


def node(gpus=4, **more):
    labels = {"kubernetes.io/hostname": "n1", "nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"}
    counts = {"nvidia.com/gpu": str(gpus), "cpu": "8"}
    return {
        "metadata": {"name": "n1", "labels": labels},
        "spec": {},
        "status": {"capacity": counts, "allocatable": dict(counts)},
    } | more


def lease(lease_id=1, **more):
    known = {
        "attempt": 1,
        "token": lease_id,
        "job_id": f"job{lease_id}",
        "command": ("python", "train.py"),
        "image": "team/train:1",
        "workers": (0,),
        "remaining_s": 60.0,
        "grace_s": 3.0,
        "working_dir": "",
    }
    return DesiredLease(lease_id=lease_id, **(known | more))


class Stage:
    """A backend on a fake cluster."""

    def __init__(self, api, url, folder, **settings):
        self.api, self.url, self.folder, self.settings = api, url, folder, settings
        self.changes = 0

    task: asyncio.Task[None] | None = None

    async def begin(self):
        configuration = package.Configuration(host=self.url)
        self.client = KubernetesClient(package.ApiClient(configuration), settings=QUICK)
        self.inventory = NodeInventory(instance="leasehold")
        self.endpoint = Endpoint(self.folder / "s", listen=("127.0.0.1", 0))
        await self.endpoint.open()
        self.backend = KubernetesBackend(
            node="n1",
            client=self.client,
            inventory=self.inventory,
            endpoint=self.endpoint,
            on_change=self.changed,
            state_dir=self.folder,
            **(
                {
                    "settings": PodSettings(),
                    "bounds": StartBounds(trouble_s=0.3),
                    "node_every_s": 0.1,
                }
                | self.settings
            ),
        )
        self.held = await self.backend.open()
        self.task = asyncio.ensure_future(self.backend.run())

    async def stop(self):
        if self.task is not None:  # it may have had to end before
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
        await self.endpoint.close()
        await self.client.close()

    def changed(self):
        self.changes += 1

    def problems(self):
        return self.backend.problems({})

    def start(self, wanted):
        until_s = lease_clock_s() + wanted.remaining_s
        self.backend.perform(Start(wanted=WantedLease(lease=wanted, deadline_s=until_s)))

    def report(self, lease_id=1):
        self.backend.held()
        found = [r for r in self.backend.reports() if r.lease_id == lease_id]
        return found[0] if found else None

    async def until(self, condition, most_s=30.0):
        end = time.monotonic() + most_s
        while not (found := condition()):
            assert time.monotonic() < end, self.backend.reports()
            await asyncio.sleep(0.01)
        return found

    async def pod(self, name="job1-1-0"):
        return await self.until(lambda: self.api.pods.get(name))

    async def ended(self, lease_id=1):
        return await self.until(lambda: (r := self.report(lease_id)) and r.reason and r)


@pytest.fixture
def play(tmp_path):
    """Run a scene: an asynchronous function of the stage."""

    def run(scene, *, gpus=4, **settings):
        async def main():
            api = fake_api.FakeApi(node(gpus))
            async with fake_api.Running(api) as running:
                stage = Stage(api, running.url, tmp_path, **settings)
                try:
                    await stage.begin()
                    async with asyncio.timeout(90):
                        await scene(stage)
                finally:
                    await stage.stop()

        asyncio.run(main())

    return run


@pytest.fixture
def make_lease():
    return lease


@pytest.fixture
def make_node():
    return node


@pytest.fixture
def failure():
    return fake_api.failure
