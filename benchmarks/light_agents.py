"""Many agents in one process that start nothing: they speak the protocol, and time passes.

Each polls for its desired set, reports every ten seconds and at once when something changed. A
lease "runs" at the speed of the throughput table; its job is complete after a random time, and
leaves a moment after a notice. A line is written for each desired set received.

Usage: python benchmarks/light_agents.py PLAN.json  (written by service_load.py)
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson
import uvloop
from http_line import Line

REPORT_EVERY_S = 10.0
#: Changes within this time go into one report.
GATHER_S = 0.02
#: How long a job takes to leave, at least and at most.
LEAVE_S = (0.1, 2.0)


@dataclass(slots=True)
class Held:
    """A lease that "runs".

    Attributes:
        report: its part of the node's report.
        begun_s: when it began.
        base: steps of the job then.
        rate: steps per second.
        end: the timer of its end.
    """

    report: dict[str, Any]
    begun_s: float
    base: float
    rate: float
    end: asyncio.TimerHandle | None = None


class LightAgent:
    """One node."""

    def __init__(self, plan: dict[str, Any], node: dict[str, Any], out: IO[str]) -> None:
        self.name: str = node["name"]
        self._type: str = node["worker_type"]
        self._mean_s: float = plan["mean_run_s"]
        self._rates: dict[str, float] = plan["rates"][self._type]
        self._out = out
        self._rng = random.Random(self.name)  # noqa: S311
        headers = {
            "Authorization": f"Bearer {node['token']}",
            "X-Leasehold-Address": "127.0.0.1",
            "X-Leasehold-Agent": "0",
        }
        self._poller = Line(plan["host"], plan["port"], headers)
        self._reporter = Line(plan["host"], plan["port"], headers)
        self._workers = [
            {"index": i, "worker_type": self._type, "problem": ""} for i in range(plan["workers"])
        ]
        self._held: dict[int, Held] = {}
        self._position = 0, 0
        self._sequence = 0
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Poll and report until cancelled."""
        await asyncio.sleep(2 * self._rng.random())
        await asyncio.gather(_ever(self._poll), _ever(self._report))

    async def _poll(self) -> None:
        term, revision = self._position
        target = f"/v1/agent/desired?term={term}&revision={revision}&wait_s=30"
        status, body = await self._poller.ask("GET", target)
        if status != 200:
            raise OSError(f"{self.name} was answered {status}: {body[:200]!r}")
        now_s = time.time()
        desired = orjson.loads(body)
        position = desired["term"], desired["revision"]
        if position <= self._position:
            return
        self._position = position
        self._adopt(desired["leases"], now_s)
        self._news.set()

    def _adopt(self, leases: list[dict[str, Any]], now_s: float) -> None:
        wanted = {lease["lease_id"] for lease in leases}
        for lease_id in [i for i in self._held if i not in wanted]:
            if self._held[lease_id].report["state"] == "ended":
                del self._held[lease_id]
            else:
                self._end(lease_id, "cancelled")
        new = leaving = 0
        furthest_s = 0.0
        for lease in leases:
            furthest_s = max(furthest_s, now_s + lease["remaining_s"])
            if lease["notice_in_s"] is not None:
                leaving += 1
                self._leave(lease)
            elif lease["lease_id"] not in self._held:
                new += 1
                self._start(lease)
        self._out.write(f"{now_s:.4f},{self.name},{furthest_s:.2f},{leaving},{new}\n")

    def _start(self, lease: dict[str, Any]) -> None:
        lease_id: int = lease["lease_id"]
        report = {
            "lease_id": lease_id,
            "token": lease["token"],
            "state": "running",
            "reason": None,
            "exit_code": None,
            "steps_done": 0,
            "steps_live": 0,
            "started_s": time.time(),
            "message": "",
        }
        job_type = lease["env"].get("TYPE")  # none: a job of loop_cost.py
        rate = self._rates.get(f"{job_type}/{lease['world_size']}", 1.0)
        held = Held(report, time.monotonic(), lease["steps_done"], rate)
        self._held[lease_id] = held
        loop = asyncio.get_running_loop()
        if lease["world_size"] == len(lease["workers"]):
            run_s = self._rng.expovariate(1.0 / self._mean_s)
            held.end = loop.call_later(run_s, self._end, lease_id, "completed")

    def _leave(self, lease: dict[str, Any]) -> None:
        held = self._held.get(lease["lease_id"])
        if held is None:
            self._start(lease)
            held = self._held[lease["lease_id"]]
        if held.report["state"] == "running":
            held.report["state"] = "stopping"
            if held.end is not None:
                held.end.cancel()
            held.end = asyncio.get_running_loop().call_later(
                self._rng.uniform(*LEAVE_S), self._end, lease["lease_id"], "released"
            )

    def _end(self, lease_id: int, reason: str) -> None:
        held = self._held.get(lease_id)
        if held is None or held.report["state"] == "ended":
            return
        if held.end is not None:
            held.end.cancel()
        self._step(held)
        held.report.update(state="ended", reason=reason)
        self._news.set()

    @staticmethod
    def _step(held: Held) -> None:
        if held.report["state"] != "ended":
            steps = int(held.base + held.rate * (time.monotonic() - held.begun_s))
            held.report.update(steps_done=steps, steps_live=steps)

    async def _report(self) -> None:
        for held in self._held.values():
            self._step(held)
        self._sequence += 1
        self._news.clear()
        report = {
            "node": self.name,
            "incarnation": 1.0,
            "sequence": self._sequence,
            "term": self._position[0],
            "revision": self._position[1],
            "workers": self._workers,
            "leases": [held.report for held in self._held.values()],
        }
        status, body = await self._reporter.ask("POST", "/v1/agent/report", orjson.dumps(report))
        if status != 204:
            raise OSError(f"{self.name} was answered {status}: {body[:200]!r}")
        wait_s = REPORT_EVERY_S * self._rng.uniform(0.9, 1.1)
        try:
            await asyncio.wait_for(self._news.wait(), wait_s)
        except TimeoutError:
            return
        await asyncio.sleep(GATHER_S)


async def _ever(step: Any) -> None:
    while True:
        try:
            await step()
        except (OSError, asyncio.IncompleteReadError) as error:
            print(error, file=sys.stderr, flush=True)
            await asyncio.sleep(1.0)


async def main(plan: dict[str, Any]) -> None:
    with Path(plan["out"]).open("w", buffering=1 << 16) as out:  # noqa: ASYNC230
        agents = [LightAgent(plan, node, out) for node in plan["nodes"]]
        await asyncio.gather(*(agent.run() for agent in agents), _flush(out))


async def _flush(out: IO[str]) -> None:
    while True:
        await asyncio.sleep(1.0)
        out.flush()


if __name__ == "__main__":
    uvloop.run(main(json.loads(Path(sys.argv[1]).read_text())))
