"""PyTorch and the Trainer under a real agent: preempted, resumed, and the same result to the bit.

Runs in an environment of its own, since PyTorch takes gigabytes: ``make test-torch``.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from agent.settings import AgentSettings
from leasehold_testing.file_link import FileLink
from leasehold_testing.local_agent import local_agent
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.protocol.desired import Desired, DesiredLease

JOBS = Path(__file__).resolve().parents[2] / "examples" / "jobs"
QUICK = AgentSettings(
    margin_s=0.2, report_every_s=0.2, progress_every_s=0.2, report_least_s=0.01, tick_s=0.1
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make test-torch"
)


class Link(FileLink):
    """Keeps the newest report of every lease, also of those that are soon forgotten."""

    __slots__ = ("kept",)

    def __init__(self, folder):
        super().__init__(folder=folder)
        object.__setattr__(self, "kept", {})

    async def report(self, report):
        self.kept.update({lease.lease_id: lease for lease in report.leases})
        await super().report(report)


class Node:
    """An agent with the test as scheduler."""

    def __init__(self, folder, job, steps):
        self.folder, self.job, self.steps, self.revision = folder, job, steps, 0
        self.link = Link(folder)

    def want(self, number=None, *, notice=False):
        self.revision += 1
        leases = () if number is None else (self._lease(number, notice=notice),)
        self.link.publish(Desired(revision=self.revision, leases=leases))

    def _lease(self, number, *, notice):
        return DesiredLease(
            lease_id=number,
            attempt=number,
            token=number,
            job_id="job",
            command=(sys.executable, str(JOBS / self.job), "--step-s", "0.05"),
            env={"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "OMP_NUM_THREADS": "1"},
            working_dir=str(self.folder),
            checkpoint_dir=str(self.folder / "checkpoints"),
            workers=(0,),
            total_steps=self.steps,
            remaining_s=120.0,
            notice_in_s=0.0 if notice else None,
            notice_s=10.0,
            grace_s=10.0,
        )

    async def until(self, number, condition):
        end_s = time.monotonic() + 90
        while time.monotonic() < end_s:
            if number in self.link.kept and condition(self.link.kept[number]):
                return self.link.kept[number]
            await asyncio.sleep(0.02)
        pytest.fail(f"did not come to hold; last {self.link.kept.get(number)}; {self.log(number)}")

    def log(self, number):
        logs = self.folder / "state" / "logs" / str(number)
        return "\n".join(f.read_text() for f in sorted(logs.glob("*.log")))

    async def ended(self, number):
        return await self.until(number, lambda r: r.state is LeasePhase.ENDED)

    @contextlib.asynccontextmanager
    async def serving(self):
        agent = local_agent(
            node="n1",
            link=self.link,
            workers="v100:1",
            state_dir=self.folder / "state",
            settings=QUICK,
        )
        task = asyncio.create_task(agent.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.mark.parametrize(
    ("job", "steps", "first"),
    [("torch_training.py", 120, 0), ("huggingface_training.py", 60, 20)],
)
def test_preempted_twice_the_result_is_that_of_an_undisturbed_run(job, steps, first):
    with tempfile.TemporaryDirectory(prefix="lh-") as text:
        folder = Path(text)
        whole = subprocess.run(
            [sys.executable, JOBS / job, "--steps", str(steps), "--checkpoint-dir", folder / "w"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        node = Node(folder, job, steps)
        asyncio.run(asyncio.wait_for(_preempt_twice(node, first), 280))
        expected = re.search(r"^done: .*", whole, re.MULTILINE)[0]
        assert expected in node.log(3)


async def _preempt_twice(node, first):
    node.want(1)
    async with node.serving():
        await node.until(1, lambda r: r.steps_live > first)
        node.want(1, notice=True)  # announced
        one = await node.ended(1)
        assert (one.reason, one.exit_code) == (EndReason.RELEASED, 75), node.log(1)
        assert 0 < one.steps_done < node.steps
        node.want(2)
        await node.until(2, lambda r: r.steps_live > one.steps_done)
        node.want()  # gone: SIGTERM at once
        two = await node.ended(2)
        assert two.reason is EndReason.CANCELLED, node.log(2)
        assert two.exit_code == 75, node.log(2)
        assert one.steps_done < two.steps_done < node.steps
        node.want(3)
        three = await node.ended(3)
        assert (three.reason, three.steps_done) == (EndReason.COMPLETED, node.steps), node.log(3)
