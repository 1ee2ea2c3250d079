"""A node to test on: a short state folder, a link through files, and waiting for conditions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent.desired import Desired, DesiredLease, LeaseState, report_from_dict
from agent.inventory import declared
from agent.loop import Agent, AgentSettings
from agent.remnants import find_remnants
from agent.testing import FileLink

QUICK = AgentSettings(margin_s=0.2, report_every_s=0.2, report_least_s=0.01, tick_s=0.1)

AGENT_PROGRAM = """
import asyncio, sys
from pathlib import Path
from agent.inventory import declared
from agent.loop import Agent, AgentSettings
from agent.testing import FileLink
settings = AgentSettings(margin_s=0.2, report_every_s=0.2, report_least_s=0.01, tick_s=0.1)
folder = Path(sys.argv[1])
async def main():
    agent = Agent(node="n1", link=FileLink(folder=folder), inventory=declared("v100:4"),
                  state_dir=folder / "state", settings=settings)
    await agent.run()
asyncio.run(main())
"""


class Node:
    """A node whose scheduler is the test."""

    def __init__(self, folder):
        self.folder, self.state_dir, self.revision = folder, folder / "state", 0
        self.processes = []

    def lease(self, lease_id, program, **more):
        """A lease that runs a Python program given as text."""
        command = (sys.executable, "-c", program)
        known = {
            "attempt": 1,
            "token": lease_id,
            "job_id": f"job-{lease_id}",
            "command": command,
            "working_dir": str(self.folder),
            "workers": (0,),
            "remaining_s": 30.0,
            "notice_s": 1.0,
            "grace_s": 1.0,
        }
        return DesiredLease(lease_id=lease_id, **(known | more))

    def want(self, *leases):
        self.revision += 1
        FileLink(folder=self.folder).publish(Desired(revision=self.revision, leases=leases))

    def report(self):
        try:
            return report_from_dict(json.loads((self.folder / "report.json").read_text()))
        except FileNotFoundError:
            return None

    def of(self, lease_id):
        """The newest report of one lease."""
        report = self.report()
        found = [r for r in report.leases if r.lease_id == lease_id] if report else []
        return found[0] if found else None

    def ended(self, lease_id):
        found = self.of(lease_id)
        return found if found is not None and found.state is LeaseState.ENDED else None

    def runs(self, lease_id):
        found = self.of(lease_id)
        return found is not None and found.state is LeaseState.RUNNING

    def log(self, lease_id, stream="stdout.0"):
        path = self.state_dir / "logs" / str(lease_id) / f"{stream}.log"
        return path.read_text() if path.exists() else ""

    def processes_of(self, lease_id):
        return find_remnants(self.state_dir / "leases" / str(lease_id))

    def start_agent(self):
        process = subprocess.Popen([sys.executable, "-c", AGENT_PROGRAM, str(self.folder)])
        self.processes.append(process)
        return process

    @contextlib.asynccontextmanager
    async def agent(self, **settings):
        """An agent in this process."""
        agent = Agent(
            node="n1",
            link=FileLink(folder=self.folder),
            inventory=declared("v100:4"),
            state_dir=self.state_dir,
            settings=replace(QUICK, **settings),
        )
        task = asyncio.create_task(agent.run())
        try:
            yield agent
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @staticmethod
    async def until(condition, seconds=20.0):
        """Wait until a condition holds, and return its value."""
        end_s = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > end_s:
                pytest.fail("the condition did not come to hold in time")
            await asyncio.sleep(0.01)
        return value


@pytest.fixture
def node():
    folder = Path(tempfile.mkdtemp(prefix="lh-"))  # short: a socket's path has a limit
    node = Node(folder)
    yield node
    for process in node.processes:
        process.kill()
        process.wait()
    for lease in (folder / "state" / "leases").glob("*"):
        for pid in find_remnants(lease):
            with contextlib.suppress(ProcessLookupError):
                import os

                os.kill(pid, 9)
    shutil.rmtree(folder, ignore_errors=True)
