"""The numpy example under the agent: preempted in every way, each step counted once."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from scheduler.domain.lease_life import EndReason

JOB = Path(__file__).resolve().parents[3] / "examples" / "jobs" / "numpy_training.py"
STEPS = 900


def test_steps_count_once_over_notices_vanished_leases_and_a_killed_agent(node):
    async def main():
        steps_done = [0]

        def lease(number, step_s=0.004, **more):
            return node.lease(
                number,
                "",
                command=(sys.executable, str(JOB), "--step-s", str(step_s)),
                job_id="numpy",
                attempt=number,
                total_steps=STEPS,
                steps_done=steps_done[-1],
                checkpoint_dir=str(node.folder / "checkpoints"),
                **more,
            )

        async def end(number):
            report = await node.until(lambda: node.ended(number))
            assert report.steps_done >= steps_done[-1]
            steps_done.append(report.steps_done)
            return report

        agent = node.start_agent()
        node.want(lease(1))
        await node.until(lambda: node.of(1) and node.of(1).steps_live > 0)
        node.want(lease(1, notice_in_s=0.0, remaining_s=20.0))  # announced
        assert (await end(1)).reason is EndReason.RELEASED
        assert node.of(1).exit_code == 75

        node.want(lease(2))
        await node.until(lambda: node.of(2) and node.of(2).steps_live > steps_done[-1])
        node.want()  # gone: SIGTERM at once
        assert (await end(2)).reason is EndReason.CANCELLED

        slow_s = 0.1  # it does not end before the next agent is there
        node.want(lease(3, slow_s))
        await node.until(lambda: node.runs(3) and node.of(3).steps_live >= steps_done[-1])
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        (node.folder / "report.json").unlink()
        node.start_agent()
        await node.until(lambda: node.runs(3))
        node.want(lease(3, slow_s, notice_in_s=0.0, remaining_s=20.0))
        await end(3)

        node.want(lease(4, remaining_s=60.0))
        assert (await end(4)).reason is EndReason.COMPLETED
        assert steps_done == sorted(steps_done)
        assert steps_done[-1] == STEPS
        assert f"{STEPS} steps, each once: True" in node.log(4)

    asyncio.run(asyncio.wait_for(main(), 50))
