"""A node to test on: a short state folder, a link through files, and waiting for conditions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent.clock import lease_clock_s
from agent.process.remnants import lease_folders, list_processes
from agent.settings import AgentSettings
from leasehold_testing import ON_PATH
from leasehold_testing.file_link import FileLink
from leasehold_testing.local_agent import local_agent
from scheduler.domain.lease_life import LeasePhase
from scheduler.protocol.desired import Desired, DesiredLease
from scheduler.protocol.reports import report_from_dict

QUICK = AgentSettings(margin_s=0.2, report_every_s=0.2, report_least_s=0.01, tick_s=0.1)


def processes_of(lease):
    """Return the processes that have this lease's folder in their environment."""
    return [pid for pid in sorted(list_processes()) if str(lease) in lease_folders(pid)]


AGENT_PROGRAM = """
import asyncio, sys
from pathlib import Path
from agent.settings import AgentSettings
from leasehold_testing.file_link import FileLink
from leasehold_testing.local_agent import local_agent
settings = AgentSettings(margin_s=0.2, report_every_s=0.2, report_least_s=0.01, tick_s=0.1)
folder = Path(sys.argv[1])
async def main():
    agent = local_agent(node="n1", link=FileLink(folder=folder), workers="v100:4",
                  state_dir=folder / "state", settings=settings)
    await agent.run()
asyncio.run(main())
"""


class Node:
    """A node with the test as its scheduler."""

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

    def report(self, file="report.json"):
        try:
            return report_from_dict(json.loads((self.folder / file).read_text()))
        except FileNotFoundError:
            return None

    def of(self, lease_id, file="report.json"):
        """The newest report of one lease."""
        report = self.report(file)
        found = [r for r in report.leases if r.lease_id == lease_id] if report else []
        return found[0] if found else None

    def ended(self, lease_id):
        """The report of a lease's end, also if later reports lack the lease."""
        return self.of(lease_id, f"ended-{lease_id}.json")

    def runs(self, lease_id):
        found = self.of(lease_id)
        return found is not None and found.state is LeasePhase.RUNNING

    def log(self, lease_id, stream="stdout.0"):
        path = self.state_dir / "logs" / str(lease_id) / f"{stream}.log"
        return path.read_text() if path.exists() else ""

    def processes_of(self, lease_id):
        return processes_of(self.state_dir / "leases" / str(lease_id))

    def start_agent(self):
        process = subprocess.Popen(
            [sys.executable, "-c", ON_PATH + AGENT_PROGRAM, str(self.folder)]
        )
        self.processes.append(process)
        return process

    @contextlib.asynccontextmanager
    async def agent(self, *, groups=None, confinement=None, **settings):
        """An agent in this process."""
        agent = local_agent(
            node="n1",
            link=FileLink(folder=self.folder),
            workers="v100:4",
            state_dir=self.state_dir,
            settings=replace(QUICK, **settings),
            groups=groups,
            confinement=confinement,
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
def node(new_node):
    return new_node(Node, Path(tempfile.mkdtemp(prefix="lh-")))  # short: a socket's path is


@pytest.fixture
def plain_node():
    """The class of ``node``, for tests that need more of it."""
    return Node


@pytest.fixture
def new_node():
    """Make a node that is cleared away in the end: new_node(class, folder)."""
    made = []

    def make(kind, folder):
        made.append(kind(folder))
        return made[-1]

    yield make
    for node in made:
        for process in node.processes:
            process.kill()
            process.wait()
        for lease in (node.folder / "state" / "leases").glob("*"):
            for pid in processes_of(lease):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
        shutil.rmtree(node.folder, ignore_errors=True)


class Scheduler:
    """A scheduler that speaks the agents' four routes over real HTTP, and misbehaves on request."""

    def __init__(self, port=0):
        import socket
        import threading

        import uvicorn
        from starlette.applications import Starlette
        from starlette.routing import Route

        self.revision, self.term, self.leases, self.published_s = 0, 1, (), lease_clock_s()
        self.reports, self.logs, self.headers, self.requests = [], {}, [], []
        self.tokens, self.secrets = {"lh_good"}, {"lhe_once"}
        self.faults = []  # of the next requests: a status, a location, "cut", a delay, or bytes
        routes = [
            Route("/v1/agent/enrol", self._enrol, methods=["POST"]),
            Route("/v1/agent/desired", self._desired),
            Route("/v1/agent/report", self._report, methods=["POST"]),
            Route("/v1/agent/logs/{lease}/{stream}", self._log, methods=["PUT"]),
        ]
        app = Starlette(
            routes=[Route(r.path, self._faulty(r.endpoint), methods=r.methods) for r in routes]
        )
        self.socket = socket.create_server(("127.0.0.1", port))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        config = uvicorn.Config(
            app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],))
        self.thread.start()

    def want(self, *leases):
        self.leases, self.published_s = leases, lease_clock_s()
        self.revision += 1

    def close(self):
        self.server.should_exit = True
        self.thread.join(10)
        self.socket.close()

    def _faulty(self, handle):
        from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

        async def cut():
            yield b"{"
            raise RuntimeError("cut")

        async def answer(request):
            body = await request.body()
            self.requests.append((request.method, request.url.path))
            self.headers.append(request.headers)
            fault = self.faults.pop(0) if self.faults else None
            if isinstance(fault, float):
                await asyncio.sleep(fault)
            if isinstance(fault, str) and fault != "cut":
                return RedirectResponse(fault + request.url.path, 307)
            if isinstance(fault, int):
                return JSONResponse({"title": "no", "detail": f"told to say {fault}"}, fault)
            if isinstance(fault, bytes):
                return Response(fault)
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            if "enrol" not in request.url.path and self.tokens and token not in self.tokens:
                return JSONResponse({"detail": "unknown token"}, 401)
            reply = await handle(request, body)
            return (
                StreamingResponse(cut(), headers={"content-length": "99"})
                if fault == "cut"
                else reply
            )

        return answer

    async def _enrol(self, request, body):
        from starlette.responses import JSONResponse

        message = json.loads(body)
        if message["secret"] not in self.secrets:
            return JSONResponse({"detail": "no such enrolment"}, 401)
        self.secrets.remove(message["secret"])
        self.tokens.add(f"lh_{message['node']}")
        return JSONResponse({"token": f"lh_{message['node']}", "token_id": "t1"})

    async def _desired(self, request, body):
        from starlette.responses import JSONResponse

        from scheduler.protocol.desired import to_dict

        asked_s, query = lease_clock_s(), request.query_params
        while (self.term, self.revision) <= (int(query["term"]), int(query["revision"])):
            if lease_clock_s() - asked_s > float(query["wait_s"]) or self.server.should_exit:
                break
            await asyncio.sleep(0.01)
        age_s = lease_clock_s() - self.published_s
        leases = tuple(replace(x, remaining_s=x.remaining_s - age_s) for x in self.leases)
        held_s = lease_clock_s() - asked_s
        desired = Desired(term=self.term, revision=self.revision, held_s=held_s, leases=leases)
        return JSONResponse(to_dict(desired))

    async def _report(self, request, body):
        from starlette.responses import Response

        self.reports.append(report_from_dict(json.loads(body)))
        return Response(status_code=204)

    async def _log(self, request, body):
        from starlette.responses import JSONResponse

        key = (int(request.path_params["lease"]), request.path_params["stream"])
        stored = self.logs.setdefault(key, b"")
        if int(request.query_params["offset"]) == len(stored):
            self.logs[key] = stored + body
        return JSONResponse({"next_offset": len(self.logs[key])})

    def of(self, lease_id):
        """The newest report of one lease, of the newest report that has it."""
        for report in reversed(self.reports):
            for lease in report.leases:
                if lease.lease_id == lease_id:
                    return lease
        return None

    def ended(self, lease_id):
        found = self.of(lease_id)
        return found if found is not None and found.state is LeasePhase.ENDED else None


@pytest.fixture
def start_scheduler():
    started = []

    def start(**options):
        started.append(Scheduler(**options))
        return started[-1]

    yield start
    for scheduler in started:
        scheduler.close()


@pytest.fixture
def scheduler(start_scheduler):
    return start_scheduler()
