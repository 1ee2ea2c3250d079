"""The fuzzed parts: a real scheduler behind its REST application, and a real agent that it leads.

The scheduler keeps its state in SQLite and has three nodes that the fuzzer speaks for; on the
fourth a real agent runs processes, to which the fuzzer speaks as a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

import httpx

from agent.link.http_link import HttpLink, LinkSettings
from agent.settings import AgentSettings
from api.app import create_app, stop_waiting
from api.auth.tokens import hash_secret, new_secret
from api.settings import ApiSettings
from leasehold_testing.inline_solver import InlineSolver
from leasehold_testing.local_agent import local_agent
from leasehold_testing.stage import check_state
from leasehold_testing.work import work
from planner.knowledge import LearnedKnowledge
from policies.answering import PolicyAnswerer
from scheduler.clock import WallClock
from scheduler.control.facts.requests import PolicyChoice, Submission
from scheduler.domain.jobs.spec import JobSpec
from scheduler.engine.settings import EngineSettings
from scheduler.runtime.service import LiveService
from scheduler.runtime.settings import RuntimeSettings
from scheduler.store.rows import TokenRow
from scheduler.store.sql.store import SqlStore
from scheduler.views.metrics import Metrics

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.runtime.driver.driver import Driver

#: Nodes that the fuzzer speaks for, and the one that has an agent.
NODES, REAL = ("f0", "f1", "f2"), "real"
#: Jobs for the fuzzer's nodes that are kept waiting or running.
JOBS = 12
LASTING = (sys.executable, "-S", "-c", "import time; time.sleep(1e6)")
_SETTINGS = RuntimeSettings(
    engine=EngineSettings(
        round_length_s=20.0, plan_lead_s=5.0, retry_backoff_s=0.5, refuse_what_cannot_fit=False
    ),
    policy=PolicyChoice(name="fifo"),
    notice_s=0.5,
    grace_s=0.5,
    tick_s=0.05,
    refuse_unfit=False,
)


class World:
    """A scheduler and an agent.

    Args:
        folder: a short path, for a socket has to fit.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = SqlStore.open(f"sqlite:///{folder}/store.db")
        self.service = LiveService(
            store=self.store,
            clock=WallClock(),
            solver=InlineSolver(PolicyAnswerer()),
            knowledge=LearnedKnowledge,
            settings=_SETTINGS,
            metrics=Metrics(),
            state_dir=folder,
            holder="fuzzed",
            ttl_s=600.0,
        )
        self.app = create_app(self.service, ApiSettings(max_wait_s=0.2))
        self.secrets = {node: self._token(node) for node in (*NODES, REAL)}
        self.endpoint = folder / "agent" / "jobs.sock"
        self.driver: Driver | None = None
        self._jobs = 0
        self._tasks: list[asyncio.Task[Any]] = []

    def _token(self, node: str) -> str:
        secret = new_secret()
        row = TokenRow(
            token_id=node,
            secret_hash=hash_secret(secret),
            subject=node,
            role="agent",
            created_s=1.0,
        )
        self.store.add_token(row)
        return secret

    async def begin(self) -> None:
        """Let the scheduler lead and the agent run a job on each of its workers."""
        self._tasks.append(asyncio.create_task(self.service.run()))
        async with asyncio.timeout(60):
            while not self.service.health().leading:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
        self.driver = self.service.driver
        link = HttpLink(
            servers=("http://fuzzed",),
            node=REAL,
            token=lambda: self.secrets[REAL],
            settings=LinkSettings(wait_s=1.0),
            transport=httpx.ASGITransport(self.app),
        )
        self._link = link
        agent = local_agent(
            node=REAL,
            link=link,
            workers="v100:2",
            state_dir=self.folder / "agent",
            settings=AgentSettings(margin_s=0.2, report_every_s=0.5, report_least_s=0.05),
        )
        self.agent = agent
        self._tasks.append(asyncio.create_task(agent.run()))
        for _ in range(2):
            await self._submit("v100")
        async with asyncio.timeout(60):
            while len(self.job_secrets()) < 2:
                self.check_alive()
                await asyncio.sleep(0.05)

    async def end(self) -> None:
        """Stop everything, and leave no process behind."""
        with contextlib.suppress(TimeoutError):
            await self.agent.stop_jobs(most_s=20.0)
        stop_waiting(self.app)
        for task in reversed(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.close()
        self.store.close()

    async def top_up(self) -> None:
        """Keep jobs there that the fuzzer's nodes can be given."""
        active = len(self.service.driver.control.state.jobs) - 2  # those of the agent
        for _ in range(JOBS - active):
            await self._submit("fz-a", "fz-b")

    async def _submit(self, *worker_types: str) -> None:
        self._jobs += 1
        spec = JobSpec(
            name=f"job{self._jobs}",
            command=LASTING,
            total_steps=1e15,
            worker_types=worker_types,
            throughputs=dict.fromkeys(worker_types, 1.0),
            max_failures=50,
        )
        submission = Submission(spec=spec, owner="fuzzer")
        (result,) = await self.service.submit([submission], actor="fuzzer")
        if not result.created:
            raise AssertionError(result.refusal)

    def job_secrets(self) -> list[str]:
        """Return the secrets of the processes under the agent's leases."""
        found = []
        for path in (self.folder / "agent" / "leases").glob("*/lease.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                if (path.parent / "running.json").exists():
                    found.append(json.loads(path.read_text())["secret"])
        return found

    async def ask(
        self, method: str, path: str, node: str, body: bytes = b"", query: str = ""
    ) -> int:
        """Make a request as a node's agent; returns the status of the answer."""
        status = 0
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.sleep(3600)
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]

        headers = [
            (b"authorization", b"Bearer " + self.secrets[node].encode()),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("fuzzed", 80),
        }
        await self.app(scope, receive, send)
        return status

    def check_alive(self) -> None:
        """Make sure that no part has ended.

        Raises:
            AssertionError: a part has; from its error, if there is one.
        """
        for task in self._tasks:
            if task.done():
                raise AssertionError("the scheduler or the agent has ended") from task.exception()

    async def check(self) -> None:
        """Make sure that all is well: no part has ended, nothing was reloaded, states agree.

        Raises:
            AssertionError: it is not.
            InvariantError: a state contradicts itself.
        """
        self.check_alive()
        if self.service.driver is not self.driver:
            raise AssertionError("a turn failed, and the state was loaded again")
        state = self.driver.control.state
        await self.driver.tell(work(lambda _draft: check_state(state)))  # between two turns
