"""Jobs on a cluster on which everything goes wrong, and the proof that nothing came of it.

    python tests/chaos/soak.py --seed 1 2 3 --jobs 200 --agents 8 --minutes 4

Without options it is a small run of a minute.

Real schedulers, agents and job processes on this machine; between agents and schedulers lies a
proxy. All choices (jobs, faults, their moments) come from the seed; the machine's
timing does not, so the same seed gives a similar run and not the same one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

sys.path.append(str(Path(__file__).parents[1] / "support"))
from evidence import (
    Story,
    check_history,
    check_job,
    check_tokens,
    check_workers,
    closest_s,
    read_story,
)
from faults import Fault, draw_faults
from network import Wire
from processes import ROOT, Postgres, Program, Sqlite, agent, kill_node, scheduler

from leasehold_testing.ports import free_ports
from leasehold_testing.postgres import PrivatePostgres

TYPES = ("v100", "p100", "k80")
#: Steps per second of a job by worker type: a step sleeps for ``step_s`` on any worker.
SPEED = {"v100": 1.0, "p100": 0.7, "k80": 0.4}
#: Rounds as short as the agents' own margins allow.
SETTINGS: dict[str, Any] = {
    "engine.round_length_s": 4,
    "engine.plan_lead_s": 3,
    "engine.retry_backoff_s": 1,
    "engine.solve_grace_s": 0.3,
    # Agents die all the time, and leases are shorter than the minute in which a job is suspected.
    "engine.hold_after_deaths": 5,
    "engine.tick_s": 0.5,
    "leases.notice_s": 0.5,
    "leases.grace_s": 0.5,
    "leases.margin_s": 1,
    "leases.node_timeout_s": 8,
    "leadership.ttl_s": 3,
    "store.snapshot_entries": 100,
    "solver.deadline_s": 10,
    "server.rate_per_s": 10000,
    "server.rate_burst": 10000,
    "server.anonymous_rate_per_s": 10000,
    "server.anonymous_rate_burst": 10000,
}
#: A step of a job, and a long one of a slow job: longer than notice and grace together.
STEP_S, LONG_STEP_S = 0.1, 1.6
#: After everything is mended: how long the work that is left may take on top of itself.
DRAIN_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job to submit.

    Attributes:
        name: which is also its client's id.
        at_s: when, after the start.
        steps: how many.
        gang: workers at once.
        types: on which it may run; none for any.
        slow: whether it has steps that last longer than a job is given to leave.
        plain: whether it is a program that knows nothing of leases.
        again: whether the client submits it a second time, as if it had seen no answer.
    """

    name: str
    at_s: float
    steps: int
    gang: int
    types: tuple[str, ...]
    slow: bool
    plain: bool
    again: bool


def draw_orders(
    chance: random.Random, *, jobs: int, for_s: float, types: tuple[str, ...]
) -> list[Order]:
    """Draw the jobs of a run, most of them submitted in crowds, in its first two thirds."""
    crowds = [chance.uniform(0.0, 0.65 * for_s) for _ in range(1 + jobs // 30)]
    return sorted(
        (
            Order(
                name=f"soak-{number:03d}",
                at_s=chance.choice([*crowds, chance.uniform(0.0, 0.65 * for_s)]),
                steps=chance.randint(10, 60),
                gang=2 if chance.random() < 0.15 else 1,
                types=(chance.choice(types),) if chance.random() < 0.15 else (),
                plain=chance.random() < 0.25,
                slow=chance.random() < 0.1,
                again=chance.random() < 0.2,
            )
            for number in range(jobs)
        ),
        key=lambda order: order.at_s,
    )


@dataclass(kw_only=True)
class Soak:
    """One run.

    Attributes:
        options: of the command line.
        folder: where everything lies.
        counts: actions done, by name.
        problems: faults.
        remarks: no faults, but worth reading.
    """

    options: argparse.Namespace
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    schedulers: list[Program] = field(default_factory=list)
    agents: list[Program] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    mended: bool = False
    _drained: Counter[int] = field(default_factory=Counter)
    _down: Counter[str] = field(default_factory=Counter)
    _wounds: dict[int, list[Fault]] = field(default_factory=dict)

    async def run(self) -> bool:
        """Run, and return whether all was well."""
        options = self.options
        chance = random.Random(options.seed)
        self.database = Postgres() if options.database == "postgresql" else Sqlite(self.folder)
        self.client = httpx.AsyncClient(timeout=10.0, follow_redirects=True, trust_env=False)
        for_s = 60.0 * options.minutes
        orders = draw_orders(chance, jobs=options.jobs, for_s=for_s, types=self.types)
        try:
            await self._start(chance)
            faults = draw_faults(
                chance,
                for_s=for_s,
                agents=options.agents,
                schedulers=len(self.schedulers),
                databases=int(self.database.restartable),
            )
            self._began_s = time.monotonic()
            watching = asyncio.create_task(self._watch())
            submitting = asyncio.create_task(self._submit(orders))
            await asyncio.gather(*(self._inflict(fault) for fault in faults))
            await self._mend()
            await submitting
            jobs = await self._drain(orders)
            watching.cancel()
            self.figures["soaked_s"] = round(time.monotonic() - self._began_s, 1)
            await self._judge(orders, jobs)
            await self._end()
        finally:
            await self._close()
        self._read_logs()
        return not self.problems

    @property
    def types(self) -> tuple[str, ...]:
        """Worker types; each one is there at least twice."""
        return TYPES if self.options.agents >= 6 else TYPES[:2]

    # -- the cluster ------------------------------------------------------------------------------

    async def _start(self, chance: random.Random) -> None:
        several = 2 if self.options.database == "postgresql" else 1
        self.ports = free_ports(several)
        self.schedulers = [
            scheduler(number, port, self.database.url, self.folder, SETTINGS)
            for number, port in enumerate(self.ports)
        ]
        for program in self.schedulers:
            program.start()
        for number in range(self.options.agents):
            wire = Wire(targets=tuple(self.ports), chance=random.Random(chance.random()))
            await wire.open()
            self.wires.append(wire)
            # Mostly one worker each, so that most gangs lie on two nodes.
            kinds = self.types
            worker = f"{kinds[number % len(kinds)]}:{1 + (number % 4 == 0)}"
            self.agents.append(agent(f"node-{number}", worker, wire.ports, self.folder))
        await self._ask("GET", "/v1/cluster")
        for program in self.agents:
            program.start()
            await asyncio.sleep(0.3)
        while True:
            if len((await self._ask("GET", "/v1/nodes"))["nodes"]) == self.options.agents:
                return
            await asyncio.sleep(0.2)

    async def _watch(self) -> None:
        """Notice programs that end by themselves."""
        while True:
            for program in (*self.schedulers, *self.agents):
                if program.wanted and not program.alive:
                    code = program.process.returncode if program.process else None
                    if program.has_no_database:  # a supervisor of services tries again
                        self.counts["scheduler found no database"] += 1
                    else:
                        self.problems.append(f"{program.name} ended by itself with {code}")
                    program.start()
            await asyncio.sleep(0.5)

    async def _end(self) -> None:
        """Stop everything the regular way."""
        for program in (*self.agents, *self.schedulers):
            program.send(signal.SIGTERM)
        for program in (*self.agents, *self.schedulers):
            await _ended(program, at_most_s=20.0)
            if program.alive:
                self.problems.append(f"{program.name} did not stop within 20 s of SIGTERM")
            elif not program.stopped_well and program.process is not None:
                self.problems.append(f"{program.name} ended with {program.process.returncode}")

    async def _close(self) -> None:
        for program in (*self.agents, *self.schedulers):
            program.thaw()
            program.close()
        for wire in self.wires:
            await wire.close()
        await self.client.aclose()
        self.database.stop()

    # -- actions of a client ----------------------------------------------------------------------

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask one scheduler after the other until one answers."""
        until = time.monotonic() + 90.0
        last: object = None
        while time.monotonic() < until:
            for port in self.ports:
                try:
                    answer = await self.client.request(
                        method, f"http://127.0.0.1:{port}{path}", json=body
                    )
                except httpx.HTTPError as error:
                    last = error
                    continue
                if answer.is_success:
                    return answer.json()
                last = f"{answer.status_code} {answer.text}"
                if answer.status_code < 500:
                    raise RuntimeError(f"{method} {path}: {last}")
            await asyncio.sleep(0.3)
        raise TimeoutError(f"no scheduler answers {method} {path}: {last}")

    async def _submit(self, orders: list[Order]) -> None:
        for order in orders:
            await asyncio.sleep(max(0.0, self._began_s + order.at_s - time.monotonic()))
            for _ in range(1 + order.again):
                items = (await self._ask("POST", "/v1/jobs", {"jobs": [self._spec(order)]}))["jobs"]
                if items[0].get("error"):
                    self.problems.append(f"{order.name} was refused: {items[0]['error']}")
                self.counts["submissions"] += 1

    def _spec(self, order: Order) -> dict[str, Any]:
        folder = self.folder / "jobs" / order.name
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        return {
            "name": order.name,
            "client_id": order.name,
            "command": [
                sys.executable, "-S", str(Path(__file__).with_name("job.py")),
                str(folder / "evidence.jsonl"), "plain" if order.plain else "leased", str(STEP_S),
                str(LONG_STEP_S if order.slow else STEP_S),
            ],
            "env": {"PYTHONPATH": str(ROOT)},
            "working_dir": str(folder),
            "checkpoint_dir": str(folder / "checkpoints"),
            **({"progress_file": "progress"} if order.plain else {}),
            "scale_factor": order.gang,
            # Small clusters have two workers of the first type alone.
            "worker_types": list(order.types and self.types[:1] if order.gang > 1 else order.types),
            "total_steps": order.steps,
            "job_type": f"soak-{order.gang}",
            "throughputs": {name: round(speed / STEP_S, 3) for name, speed in SPEED.items()},
            "notice_s": 0.5,
            "grace_s": 0.5,
            "max_failures": 50,  # each one is a fault of ours; see what becomes of the job
        }  # fmt: skip

    # -- faults -----------------------------------------------------------------------------------

    async def _inflict(self, fault: Fault) -> None:
        await asyncio.sleep(max(0.0, self._began_s + fault.at_s - time.monotonic()))
        done = await getattr(self, f"_hurt_{fault.on}")(fault)
        self.counts[f"{fault.on} {fault.kind}" if done else "skipped"] += 1
        if done and self.options.verbose:
            at_s = time.monotonic() - self._began_s
            print(f"{at_s:7.2f} {fault.on} {fault.target} {fault.kind} {fault.for_s:.1f} s")

    async def _hurt_scheduler(self, fault: Fault) -> bool:
        return await self._hurt_program(self.schedulers[fault.target], fault)

    async def _hurt_agent(self, fault: Fault) -> bool:
        return await self._hurt_program(self.agents[fault.target], fault)

    async def _hurt_program(self, program: Program, fault: Fault) -> bool:
        if not program.alive or program.frozen or self._down[program.name]:
            return False
        self._down[program.name] = 1
        if fault.kind == "freeze":
            program.freeze()
            await asyncio.sleep(fault.for_s)
            program.thaw()
        elif fault.kind == "kill":
            program.kill()
            await asyncio.sleep(fault.for_s)
        elif fault.kind == "crash":
            self.counts["supervisors killed"] += kill_node(program, self.folder / program.name)
            await asyncio.sleep(fault.for_s)
        else:
            program.send(signal.SIGTERM)
            await _ended(program, at_most_s=30.0)
            if not program.stopped_well and program.process is not None:
                code = program.process.returncode
                self.problems.append(f"{program.name} ended with {code} after SIGTERM")
                program.kill()
            await asyncio.sleep(fault.for_s)
        program.start()
        self._down[program.name] = 0
        return True

    async def _hurt_network(self, fault: Fault) -> bool:
        wire = self.wires[fault.target]
        if fault.kind == "replay":
            await wire.replay(self.ports[int(fault.strength * len(self.ports))])
            return True
        self._wounds.setdefault(fault.target, []).append(fault)
        self._dress(fault.target)
        await asyncio.sleep(fault.for_s)
        self._wounds[fault.target].remove(fault)
        wire.heal()
        self._dress(fault.target)
        return True

    def _dress(self, number: int) -> None:
        """Bring a wire to what all of its faults together make of it."""
        wire, wounds = self.wires[number], self._wounds[number]
        kinds = {fault.kind for fault in wounds}
        strength = max((fault.strength for fault in wounds), default=0.0)
        wire.delay_s = 1.5 * strength if "slow" in kinds else 0.0
        wire.reset = 0.7 * strength if "reset" in kinds else 0.0
        wire.double = 0.9 if "double" in kinds else 0.0
        if kinds & {"cut", "deaf", "mute"}:
            refuse = any(fault.kind == "cut" and fault.strength < 0.4 for fault in wounds)
            both = "cut" in kinds
            wire.cut(up=both or "mute" in kinds, down=both or "deaf" in kinds, refuse=refuse)

    async def _hurt_database(self, fault: Fault) -> bool:
        if self._down["database"]:
            return False
        self._down["database"] = 1
        await asyncio.to_thread(self.database.restart)
        self._down["database"] = 0
        return True

    async def _hurt_operator(self, fault: Fault) -> bool:
        name = f"node-{fault.target}"
        order, _, unheard = fault.kind.partition(" ")
        self._drained[fault.target] += 1
        try:
            async with asyncio.TaskGroup() as both:
                if unheard:
                    cut = replace(fault, on="network", kind="cut", at_s=0.0)
                    both.create_task(self._hurt_network(cut))
                    await asyncio.sleep(0.05)
                await self._ask("POST", f"/v1/nodes/{name}/{order}", {"reason": "the soak test"})
                await asyncio.sleep(fault.for_s)
        finally:
            self._drained[fault.target] -= 1
        if not self._drained[fault.target]:
            await self._ask("POST", f"/v1/nodes/{name}/uncordon", {"reason": "the soak test"})
        return True

    async def _mend(self) -> None:
        """See to it that everything runs again."""
        for wire in self.wires:
            wire.heal()
        for program in (*self.schedulers, *self.agents):
            program.thaw()
            program.start()
        self.figures["faults_s"] = round(time.monotonic() - self._began_s, 1)

    # -- the end ----------------------------------------------------------------------------------

    async def _drain(self, orders: list[Order]) -> dict[str, Any]:
        """Wait until every job has ended; return them by name."""
        mended_s = time.monotonic()
        while True:
            jobs = await self._jobs()
            ended = {"completed", "failed", "cancelled", "refused"}
            left = [job for job in jobs if job["status"] not in ended]
            if not left and len(jobs) >= len(orders):
                break
            waited_s = time.monotonic() - mended_s
            if waited_s > DRAIN_S + self.options.jobs * 0.6:
                self.problems.append(f"{len(left)} jobs are left after {waited_s:.0f} s of peace")
                for job in left[:5]:
                    why = await self._ask("GET", f"/v1/jobs/{job['job_id']}/explain")
                    self.problems.append(f"  {job['name']}: {job['status']}: {json.dumps(why)}")
                break
            await asyncio.sleep(1.0)
        self.figures["drained_s"] = round(time.monotonic() - mended_s, 1)
        by_name = {job["name"]: job for job in jobs}
        if len(by_name) < len(jobs):
            self.problems.append(f"{len(jobs)} jobs of {len(by_name)} names: submitted twice")
        return by_name

    async def _jobs(self) -> list[Any]:
        jobs: list[Any] = []
        path = "/v1/jobs?limit=500"
        while True:
            page = await self._ask("GET", path)
            jobs += page["jobs"]
            if not page["next_cursor"]:
                return jobs
            path = f"/v1/jobs?limit=500&cursor={page['next_cursor']}"

    async def _judge(self, orders: list[Order], jobs: dict[str, Any]) -> None:
        """Compare the scheduler's record with the records of the processes."""
        stories: list[Story] = []
        leases = held_us = 0
        for order in orders:
            job = jobs.get(order.name)
            if job is None:
                self.problems.append(f"{order.name}: the scheduler has lost it")
                continue
            if job["status"] != "completed" or job["failures"]:
                self.problems.append(
                    f"{order.name}: {job['status']} with {job['failures']} failures "
                    f"({job['reason']})"
                )
            path = f"/v1/jobs/{job['job_id']}"
            attempts = (await self._ask("GET", f"{path}/attempts"))["attempts"]
            events = (await self._ask("GET", f"{path}/events?limit=1000"))["events"]
            events.sort(key=lambda event: event["event_id"])
            self.problems += check_history(order.name, attempts, events)
            failed = [a for a in attempts if a["end_reason"] == "failed"]
            self.problems += [f"{order.name}: {attempt}" for attempt in failed[:2]]
            story = read_story(order.name, order.steps, self.folder / "jobs" / order.name)
            stories.append(story)
            self.problems += check_job(story)
            known = {(a["lease_id"], a["attempt"]) for a in attempts}
            self.problems += [
                f"{run}: the scheduler knows of no such lease"
                for run in story.runs
                if (run.first.lease, run.first.attempt) not in known
            ]
            leases += len(attempts)
            held_us += sum(
                (int(a["ended_s"] * 1e6) - int(a["start_s"] * 1e6)) * len(a["workers"])
                for a in attempts
                if a["ended_s"] is not None
            )
            self.counts.update(f"lease {attempt['end_reason']}" for attempt in attempts)
        used = await self._ask("GET", "/v1/usage?by=project&by=owner&by=worker_type")
        if (told_us := sum(row["worker_us"] for row in used["usage"])) != held_us:
            self.problems.append(f"the ledger has {told_us} worker-us, the leases {held_us}")
        self.problems += check_workers(stories)
        self.problems += check_tokens(stories)
        done = sum(len(run.steps) for story in stories for run in story.runs if not run.first.rank)
        counted = sum(len(story.ledger) for story in stories)
        self.figures |= {
            "jobs": len(stories),
            "leases": leases,
            "worker_hours": round(held_us / 3.6e9, 3),
            "processes": sum(len(story.runs) for story in stories),
            "steps_counted": counted,
            "steps_lost": done - counted,
            "closest_s": round(closest_s(stories), 3),
        }

    def _read_logs(self) -> None:
        """Look for what programs complain of."""
        for program in (*self.schedulers, *self.agents):
            text = program.log.read_text(errors="replace")
            for sign in ("Traceback", "a step of the scheduler failed", "InvariantError"):
                if sign in text:
                    self.remarks.append(f"{program.log}: {text.count(sign)} x {sign}")
        for wire in self.wires:
            self.counts.update({f"message {kind}": n for kind, n in wire.counts.items()})
        self.figures["starts"] = {
            "schedulers": sum(p.starts for p in self.schedulers),
            "agents": sum(p.starts for p in self.agents),
        }


async def _ended(program: Program, *, at_most_s: float) -> None:
    until = time.monotonic() + at_most_s
    while True:
        if not program.alive or time.monotonic() > until:
            return
        await asyncio.sleep(0.05)


def main() -> int:
    """Run once for each seed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=0.6, help="for which things go wrong")
    there = "sqlite" if PrivatePostgres.find_programs() is None else "postgresql"
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default=there)
    parser.add_argument("--keep", type=Path, help="a new folder for logs and evidence")
    parser.add_argument("--verbose", action="store_true", help="tell of each fault")
    options = parser.parse_args()
    good = True
    for seed in options.seed:
        options.seed = seed
        folder = options.keep.absolute() / f"seed-{seed}" if options.keep else None
        if folder is not None:
            folder.mkdir(parents=True)
        place = folder or Path(tempfile.mkdtemp(prefix="lh-soak-"))
        soak = Soak(options=options, folder=place)
        well = asyncio.run(soak.run())
        good &= well
        print(json.dumps({"seed": seed, "well": well} | soak.figures))
        print("  " + ", ".join(f"{name} {count}" for name, count in sorted(soak.counts.items())))
        for line in (*soak.problems[:40], *soak.remarks):
            print(f"  ! {line}")
        sys.stdout.flush()
        if folder is None and well:
            shutil.rmtree(place, ignore_errors=True)
        elif not well:
            print(f"  everything lies in {place}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
