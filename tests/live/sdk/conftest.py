"""An agent's endpoint in a thread, and processes under leases of its own making."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from agent.clock import lease_clock_s
from agent.endpoint.endpoint import Endpoint, Tenant


class Host:
    """Serves one lease at a time, as an agent does."""

    def __init__(self, folder):
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.endpoint = Endpoint(folder / "s")
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.call(self.endpoint.open())
        self.processes = []

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    def lease(self, token):
        tenant = Tenant(lease_id=token, secret=f"secret-{token}")

        async def admit():
            self.endpoint.admit(tenant)

        self.call(admit())
        return tenant

    def notify(self, tenant, leave_in_s=5.0):
        async def notify():
            self.endpoint.notify(tenant.lease_id, lease_clock_s() + leave_in_s)

        self.call(notify())

    def environment(self, tenant, *, total_steps=None, rank=0, world_size=1):
        told = {
            "LEASEHOLD_ENDPOINT": self.endpoint.path,
            "LEASEHOLD_SECRET": tenant.secret,
            "LEASEHOLD_FENCING_TOKEN": tenant.lease_id,
            "LEASEHOLD_CHECKPOINT_DIR": self.folder / "checkpoints",
            "LEASEHOLD_PROGRESS_FILE": self.folder / "progress.json",
            "LEASEHOLD_NOTICE_FILE": self.folder / "notice.json",
            "LEASEHOLD_TOTAL_STEPS": total_steps,
            "RANK": rank,
            "WORLD_SIZE": world_size,
        }
        return {k: str(v) for k, v in told.items() if v is not None}

    def start(self, program, tenant, **told):
        process = subprocess.Popen(
            [sys.executable, "-u", *program],
            env=os.environ | self.environment(tenant, **told),
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )
        self.processes.append(process)
        return process

    @staticmethod
    def until(condition, seconds=20.0):
        end_s = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > end_s:
                pytest.fail("the condition did not come to hold in time")
            time.sleep(0.005)
        return value

    def close(self):
        for process in self.processes:
            process.kill()
            process.communicate()
        self.call(self.endpoint.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def host():
    folder = Path(tempfile.mkdtemp(prefix="lh-"))  # short: a socket's path has a limit
    host = Host(folder)
    yield host
    host.close()
    shutil.rmtree(folder, ignore_errors=True)
