"""PyTorch and the Trainer under a real agent: preempted, resumed, and the same result to the bit.

Runs in an environment of its own, since PyTorch takes gigabytes: ``make test-torch``.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from leasehold_testing.lease_node import LeaseNode
from scheduler.domain.lease_life import EndReason
from scheduler.protocol.desired import DesiredLease

JOBS = Path(__file__).resolve().parents[2] / "examples" / "jobs"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make test-torch"
)


def lease(folder, job, steps, number, *, notice=False):
    return DesiredLease(
        lease_id=number,
        attempt=number,
        token=number,
        job_id="job",
        command=(sys.executable, str(JOBS / job), "--step-s", "0.05"),
        env={"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "OMP_NUM_THREADS": "1"},
        working_dir=str(folder),
        checkpoint_dir=str(folder / "checkpoints"),
        workers=(0,),
        total_steps=steps,
        remaining_s=120.0,
        notice_in_s=0.0 if notice else None,
        notice_s=10.0,
        grace_s=10.0,
    )


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
        node = LeaseNode(folder)
        asked = functools.partial(lease, folder, job, steps)
        asyncio.run(asyncio.wait_for(_preempt_twice(node, asked, steps, first), 280))
        expected = re.search(r"^done: .*", whole, re.MULTILINE)[0]
        assert expected in node.log(3)


async def _preempt_twice(node, asked, steps, first):
    node.want(asked(1))
    async with node.serving():
        await node.until(1, lambda r: r.steps_live > first)
        node.want(asked(1, notice=True))  # announced
        one = await node.ended(1)
        assert (one.reason, one.exit_code) == (EndReason.RELEASED, 75), node.log(1)
        assert 0 < one.steps_done < steps
        node.want(asked(2))
        await node.until(2, lambda r: r.steps_live > one.steps_done)
        node.want()  # gone: SIGTERM at once
        two = await node.ended(2)
        assert two.reason is EndReason.CANCELLED, node.log(2)
        assert two.exit_code == 75, node.log(2)
        assert one.steps_done < two.steps_done < steps
        node.want(asked(3))
        three = await node.ended(3)
        assert (three.reason, three.steps_done) == (EndReason.COMPLETED, steps), node.log(3)
