"""The whole agent over a fake cluster: wanted leases become pods, and are reported."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import time
from dataclasses import replace
from pathlib import Path

from kubernetes.aio import client as package

from agent.client_settings import ClientSettings
from agent.kubernetes.backend import KubernetesBackend
from agent.kubernetes.client import KubernetesClient
from agent.kubernetes.node.workers import NodeInventory
from agent.kubernetes.pods.pods import PodSettings
from agent.loop import Agent
from agent.settings import AgentSettings
from leasehold_testing.file_link import FileLink
from scheduler.protocol.desired import Desired
from scheduler.protocol.reports import report_from_dict

_spec = importlib.util.spec_from_file_location("fake_api2", Path(__file__).with_name("fake_api.py"))
fake_api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake_api)


def test_a_job_runs_is_preempted_and_resumes_in_another_pod(tmp_path, make_lease, make_node):
    link = FileLink(folder=tmp_path)

    def reported(lease_id):
        try:
            report = report_from_dict(json.loads((tmp_path / "report.json").read_text()))
        except FileNotFoundError:
            return None
        return next((r for r in report.leases if r.lease_id == lease_id), None)

    async def until(condition):
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end
            await asyncio.sleep(0.02)

    async def main():
        api = fake_api.FakeApi(make_node())
        async with fake_api.Running(api) as running:
            client = KubernetesClient(
                package.ApiClient(package.Configuration(host=running.url)),
                settings=ClientSettings(watch_s=2),
            )
            inventory = NodeInventory(instance="leasehold")

            def make_backend(endpoint, on_change):
                return KubernetesBackend(
                    node="n1", client=client, inventory=inventory, endpoint=endpoint,
                    on_change=on_change, state_dir=tmp_path / "state", settings=PodSettings(),
                )  # fmt: skip

            agent = Agent(
                node="n1",
                link=link,
                inventory=inventory,
                state_dir=tmp_path / "state",
                settings=AgentSettings(margin_s=0.2, report_every_s=0.2, report_least_s=0.01),
                make_backend=make_backend,
                listen=("127.0.0.1", 0),
            )
            task = asyncio.ensure_future(agent.run())
            first = make_lease(1, job_id="train", workers=(0, 1), remaining_s=30.0)
            link.publish(Desired(revision=1, leases=(first,)))
            await until(lambda: "train-1-0" in api.pods)
            api.run("train-1-0")
            await until(lambda: (r := reported(1)) and r.state == "running")
            link.publish(Desired(revision=2, leases=(replace(first, notice_in_s=0.0),)))
            await until(lambda: reported(1).state == "stopping")
            api.finish("train-1-0", 75)
            await until(lambda: reported(1).reason == "released")
            second = replace(first, lease_id=2, token=2, attempt=2, workers=(2,))
            link.publish(Desired(revision=3, leases=(second,)))
            await until(lambda: "train-2-0" in api.pods and "train-1-0" not in api.pods)
            api.run("train-2-0")
            api.finish("train-2-0", 0)
            await until(lambda: (r := reported(2)) and r.reason == "completed")
            link.publish(Desired(revision=4, leases=()))
            await until(lambda: not api.pods)
            report = report_from_dict(json.loads((tmp_path / "report.json").read_text()))
            assert {w.sharing for w in report.workers} == {"exclusive"}
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await client.close()

    asyncio.run(main())
