"""The example of torchrun on two nodes, with their environment: notice, SIGTERM, resumed."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from agent.clock import lease_clock_s
from agent.endpoint.endpoint import Endpoint, Tenant
from agent.kubernetes.pods.pods import PodPlace, PodSettings, PodWorker, build_pod
from leasehold_testing.ports import free_ports
from scheduler.protocol.desired import DesiredLease

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "train_ddp.py"
STEPS = 400

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make test-torch"
)


def environment(folder, attempt, node, *, ports):
    """The variables of a node's pod, but for the name of the other node and its own address."""
    lease = DesiredLease(
        lease_id=attempt,
        attempt=attempt,
        token=attempt,
        job_id="ddp",
        command=("torchrun", "train_ddp.py"),
        image="train",
        working_dir="",
        checkpoint_dir=str(folder),
        workers=(0,),
        rank=node,
        world_size=2,
        local_ranks=(0,),
        gang=(1, 1),
        node_rank=node,
        master_port=ports[0],
        total_steps=STEPS,
        remaining_s=60.0,
        kubernetes={"launch": "per-node"},
    )
    place = PodPlace(node="n", hostname="n", workers=(PodWorker(worker_type="cpu", resource=""),))
    settings = PodSettings(endpoint_host="127.0.0.1", endpoint_port=ports[1])
    pod = build_pod(lease, place, secret=f"secret-{node}", settings=settings)
    told = {v["name"]: v["value"] for v in pod["spec"]["containers"][0]["env"]}
    told |= dict.fromkeys(("PET_MASTER_ADDR", "MASTER_ADDR"), "127.0.0.1")
    return dict(os.environ) | told | {"OMP_NUM_THREADS": "1"}


class Gang:
    """Two torchruns, and the endpoint of their agents."""

    def __init__(self, folder):
        self.folder = folder
        self.tenants = []

    async def run(self, checkpoints, attempt, disturb=None):
        """Return both exit codes and the output."""
        endpoint = Endpoint(self.folder / "s", listen=("127.0.0.1", 0))
        self.tenants = [Tenant(lease_id=node, secret=f"secret-{node}") for node in range(2)]
        for tenant in self.tenants:
            endpoint.admit(tenant)
        await endpoint.open()
        ports = (*free_ports(1), endpoint.port)
        command = (sys.executable, "-m", "torch.distributed.run", PROGRAM, "--step-s", "0.02")
        started = [
            await asyncio.create_subprocess_exec(
                *command,
                env=environment(checkpoints, attempt, node, ports=ports),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            for node in range(2)
        ]
        try:
            if disturb is not None:
                await disturb(self, endpoint, started)
            texts = [(await process.communicate())[0].decode() for process in started]
        finally:
            for process in started:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            await endpoint.close()
        return [process.returncode for process in started], "\n".join(texts)

    async def trained(self, started):
        """Wait until steps were done in this attempt."""
        first = None
        while first is None or self.tenants[0].steps_live <= first:
            assert all(process.returncode is None for process in started)
            first = self.tenants[0].steps_live or None if first is None else first
            await asyncio.sleep(0.05)


async def notice(gang, endpoint, started):
    await gang.trained(started)
    endpoint.notify(1, lease_clock_s() + 30)  # one node hears of it, and both leave


async def terminate(gang, _endpoint, started):
    await gang.trained(started)
    for process in started:
        process.send_signal(signal.SIGTERM)


async def scene(folder):
    gang = Gang(folder)
    whole = await gang.run(folder / "whole", 1)
    assert whole[0] == [0, 0], whole[1]
    expected = sorted(re.findall(r"done: .*", whole[1]))
    assert len(expected) == 2
    assert len({line.rpartition(" ")[2] for line in expected}) == 1  # the same weights everywhere

    codes, text = await gang.run(folder / "c", 1, notice)
    assert codes == [0, 0], text
    left = [int(n) for n in re.findall(r"left early: rank \d, (\d+) steps", text)]
    assert len(left) == 2, text
    assert len(set(left)) == 1, text
    assert gang.tenants[0].steps_done == left[0] < STEPS

    codes, text = await gang.run(folder / "c", 2, terminate)
    assert all(codes), text  # torchrun says that it was asked to go; that counts as released
    again = [int(n) for n in re.findall(r"left early: rank \d, (\d+) steps", text)]
    assert len(again) == 2, text
    assert left[0] < again[0] == again[1] < STEPS

    codes, text = await gang.run(folder / "c", 3)
    assert codes == [0, 0], text
    assert sorted(re.findall(r"done: .*", text)) == expected


def test_torchrun_on_two_nodes_is_preempted_twice_and_ends_with_the_same_weights():
    with tempfile.TemporaryDirectory(prefix="lh-") as text:
        asyncio.run(asyncio.wait_for(scene(Path(text)), 280))
