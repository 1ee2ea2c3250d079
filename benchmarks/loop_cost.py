"""How long one well-formed request or message, as large as its bounds allow, holds the event loop.

Starts a real `leasehold serve` and an agent's endpoint for jobs, each with a probe in its event
loop, sends every kind of request some times, and ranks the kinds by the longest time for which the
loop stood still. Of several tries the shortest counts: a round may begin beside one of them.

Usage: python benchmarks/loop_cost.py [--jobs N] [--nodes N] [--tries N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from http_line import Line
from load_contents import fill, jobs
from service_load import Daemon, _batch, _start_agents

from agent.endpoint.endpoint import Endpoint, Tenant
from leasehold.daemon.process import watchdog
from scheduler.protocol import bounds
from scheduler.secret_box import new_key
from scheduler.store.sql.store import SqlStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: None of the kinds may hold the loop longer, on a quiet machine.
LIMIT_MS = 100.0
#: Stalls below this are not counted, and between two looks at the loop.
LEAST_S, EVERY_S = 0.01, 0.001
#: After an answer: the turn that a request causes comes a moment later.
SETTLE_S = 0.5
WORKERS = 8
SECRET = "s" * 64
#: Jobs that a kind adds are of this project; they are cancelled before the next kind.
PROJECT = "added"
#: Paths of kinds that undo one another.
TURNS = ("/v1/jobs:act",)


# -- the probe -------------------------------------------------------------------------------------


class Probe(watchdog.StallWatchdog):
    """A watchdog that keeps the longest stall and its place, and tells them on a socket.

    Each connection gets one line, after which the probe begins anew.
    """

    address = ""

    def __init__(self, **_: object) -> None:
        super().__init__(
            threshold_s=LEAST_S, interval_s=EVERY_S, log_every_s=0.0, on_stall=self._note
        )
        self._longest_s, self._place, self._candidate = 0.0, "", ""
        threading.Thread(target=self._answer, daemon=True).start()

    def _note(self, seconds: float) -> None:
        if seconds > self._longest_s:
            self._longest_s, self._place = seconds, self._candidate

    def _tell(self, begin: float, watched: int) -> None:  # noqa: ARG002 - the watchdog's
        frame = sys._current_frames().get(watched)  # noqa: SLF001 - there is no public way
        names: list[str] = []
        while frame is not None:
            file = frame.f_code.co_filename
            if "site-packages" not in file and "/lib/python" not in file:
                names.append(frame.f_code.co_qualname)
            frame = frame.f_back
        self._candidate = " < ".join(names[:3])

    def _answer(self) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(self.address)
            server.listen()
            while True:
                connection, _ = server.accept()
                with connection:
                    found = {"ms": round(1e3 * self._longest_s, 1), "place": self._place}
                    self._longest_s, self._place = 0.0, ""
                    connection.sendall(json.dumps(found).encode())


def longest(address: Path) -> dict[str, Any]:
    """Return a probe's longest stall since the last call."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(address))
        return dict(json.loads(client.makefile().read()))


def serve(address: str, arguments: list[str]) -> None:
    """Run `leasehold` with the probe in the place of its watchdog."""
    Probe.address = address
    setattr(watchdog, "StallWatchdog", Probe)  # noqa: B010 - a class, for mypy
    from leasehold.cli.main import main as leasehold  # noqa: PLC0415 - after the change above

    sys.argv = ["leasehold", *arguments]
    leasehold()


def listen(address: str, folder: str) -> None:
    """Run an agent's endpoint for jobs with one lease, beside the probe."""
    Probe.address = address

    async def run() -> None:
        endpoint = Endpoint(Path(folder) / "jobs.sock")
        endpoint.admit(Tenant(lease_id=1, secret=SECRET))
        await endpoint.open()
        Probe().start(asyncio.get_running_loop())
        await asyncio.Event().wait()

    asyncio.run(run())


# -- the kinds -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of request.

    Attributes:
        name: for people.
        method: of HTTP.
        path: target.
        body: makes the body of the next request.
        token: whose: ``admin`` or a node's name.
    """

    name: str
    method: str
    path: str
    body: Callable[[int], object] = lambda _: None
    token: str = "admin"  # noqa: S105 - a subject


def same(body: object, number: int) -> object:  # noqa: ARG001 - as the other bodies
    """Return one body for all requests."""
    return body


def big_job(number: int, **fields: object) -> dict[str, Any]:
    """Return a job."""
    job = {"name": f"big-{number}", "project": PROJECT, "command": ["true"], "duration_s": 60}
    return job | fields


def kinds(nodes: int, source: Iterator[dict[str, Any]]) -> Iterator[Kind]:
    """Yield every kind at its bounds.

    Args:
        nodes: how many there are.
        source: of jobs that were not submitted yet.
    """
    text = "x" * (bounds.LONGEST_TEXT - 1)
    rates = {f"made-up-{n}": 1.0 + n for n in range(64)}
    labels = {f"label-{n}": f"value-{n}" for n in range(64)}
    counts = list(range(1, 65))
    known = [f"old-{n:06}" for n in range(1, 1001)]

    def batch(**fields: object) -> Callable[[int], object]:
        own = fields | {"project": PROJECT}
        return lambda _: {"jobs": [next(source) | own for _ in range(1000)]}

    yield Kind("1,000 jobs", "POST", "/v1/jobs", batch())
    yield Kind("1,000 jobs with 64 labels", "POST", "/v1/jobs", batch(labels=labels))
    small = {f"V{n}": str(n) for n in range(150)}
    yield Kind("1,000 jobs with 150 variables", "POST", "/v1/jobs", batch(env=small))
    secret = {f"S{n}": "secret" for n in range(20)}
    yield Kind(
        "100 jobs with 20 secret variables",
        "POST",
        "/v1/jobs",
        lambda _: {
            "jobs": [next(source) | {"secret_env": secret, "project": PROJECT} for _ in range(100)]
        },
    )
    for dry in ("", "?dry_run=true"):
        how = " (dry run)" if dry else ""
        path = f"/v1/jobs{dry}"
        yield Kind(
            f"an array of 1,000{how}", "POST", path, lambda n: big_job(n, array={"count": 1000})
        )
        env = {f"V{n}": text for n in range(50)}
        yield Kind(f"6.5 MB of variables{how}", "POST", path, partial(big_job, env=env))
        yield Kind(
            f"rates on 64 made-up types{how}",
            "POST",
            path,
            lambda n: big_job(n, job_type=f"new-{n}", throughputs=rates),
        )
        yield Kind(f"64 counts{how}", "POST", path, partial(big_job, scale_factor=counts))
        yield Kind(f"1,000 dependencies{how}", "POST", path, partial(big_job, depends_on=known))
    regex = "(a{1,30}){1,30}(?P<steps>[0-9]{1,40})"
    yield Kind("a long expression", "POST", "/v1/jobs", partial(big_job, progress_regex=regex))
    template = {"metadata": {"annotations": {"note": text[:100_000]}}}
    pods = {"template": template, "requests": {"memory": "1Gi"}}
    yield Kind("a pod template", "POST", "/v1/jobs", partial(big_job, kubernetes=pods))
    words = ["x" * 900] * 1000
    yield Kind("a command of 0.9 MB", "POST", "/v1/jobs", partial(big_job, command=words))

    for name, query in (
        ("1,000 jobs", "limit=1000"),
        ("waiting jobs by name", "limit=1000&status=waiting&status=running&sort=name"),
        ("jobs by 20 labels", "&".join(f"label=team=t{n}" for n in range(20))),
        ("jobs by 100 names", "limit=1000&" + "&".join(f"name=train-{n}" for n in range(100))),
    ):
        yield Kind(f"list {name}", "GET", f"/v1/jobs?{query}")
    for name, path in (
        ("events", "/v1/events?limit=1000&descending=true"),
        ("events of 40 kinds", "/v1/events?limit=1000&kind=" + "&kind=".join(["job_failed"] * 40)),
        (
            "attempts of 200 nodes",
            "/v1/attempts?limit=1000&"
            + "&".join(f"node=node-{n:04}" for n in range(min(nodes, 200))),
        ),
        ("usage by everything", "/v1/usage?by=project&by=owner&by=job_type&by=worker_type&by=day"),
        ("usage by job", "/v1/usage?by=job&by=day"),
        ("the plan", "/v1/plan"),
        ("the leases", "/v1/leases"),
        ("the allocation", "/v1/allocation"),
        ("the throughputs", "/v1/throughputs"),
        ("the nodes", "/v1/nodes"),
        ("the cluster", "/v1/cluster"),
        ("the projects", "/v1/projects"),
        ("the policies", "/v1/policies"),
        ("the interface", "/v1/openapi.json"),
        ("the metrics", "/metrics"),
        ("an old job", "/v1/jobs/old-000001"),
    ):
        yield Kind(name, "GET", path)
    yield Kind("why a job waits, with forecast", "GET", "/v1/jobs/{waiting}/explain")
    yield Kind("why a job waits", "GET", "/v1/jobs/{waiting}/explain?forecast=false")

    everything: dict[str, Any] = {"status": ["waiting", "running"]}
    yield Kind(
        "change all jobs",
        "PATCH",
        "/v1/jobs",
        lambda n: {"selector": everything, "weight": 1.0 + n},
    )
    for action, selector in (
        ("hold", everything),
        ("release", {"status": ["held"]}),
        ("requeue", everything),
    ):
        body = {"action": action, "selector": selector}
        yield Kind(f"{action} all jobs", "POST", "/v1/jobs:act", partial(same, body))

    def declared(number: int) -> object:
        figures = [
            {"job_type": f"type-{n:04}", "worker_type": name, "steps_per_s": 1.0 + n + number}
            for n in range(3000)
            for name in ("fast", "middle", "slow")
        ]
        return {"throughputs": figures}

    yield Kind("9,000 throughputs", "PUT", "/v1/throughputs", declared)
    yield Kind("forget a type", "DELETE", "/v1/throughputs?job_type=type-000{number}")
    yield Kind("a project", "PUT", "/v1/projects/team-1", lambda n: {"max_workers": 1000 + n})
    policies = "finish_time_fairness", "max_min_fairness"
    yield Kind("another policy", "PUT", "/v1/policy", lambda n: {"name": policies[n % 2]})

    def report(number: Any, node: Any, **fields: object) -> object:
        return {
            "node": node,
            "incarnation": 1.0,
            "sequence": 10**6 + number,
            "term": 0,
            "revision": 0,
            "workers": [{"index": i, "worker_type": "fast", "problem": ""} for i in range(WORKERS)],
            "leases": [],
        } | fields

    message = "m" * bounds.LONGEST_MESSAGE
    lease = {
        "token": 1,
        "state": "running",
        "reason": None,
        "exit_code": None,
        "steps_done": 0,
        "steps_live": 0,
        "started_s": None,
        "message": "",
    }
    foreign = [lease | {"lease_id": 10**9 + n} for n in range(bounds.MOST_REPORTED)]
    devices = ["d" * 200] * bounds.MOST_DEVICES
    wordy = [
        lease | {"lease_id": 10**9 + n, "message": message, "devices": devices[:8]}
        for n in range(1000)
    ]
    reports: dict[str, dict[str, object]] = {
        "report of 16,384 leases": {"leases": foreign},
        "report of 1,000 wordy leases": {"leases": wordy},
        "report of 1,500 remarks": {"remarks": [message] * 1500},
        "report of 8 problems": {
            "workers": [
                {"index": i, "worker_type": "fast", "problem": message} for i in range(WORKERS)
            ]
        },
    }
    for place, (name, fields) in enumerate(reports.items()):
        node = f"node-{3 * place:04}"  # one with fast workers, and with its own rate
        yield Kind(name, "POST", "/v1/agent/report", partial(report, node=node, **fields), node)
    noise = random.Random(1).randbytes(5_000_000)  # noqa: S311 - a seeded filler
    packed = {"archive": base64.b64encode(noise).decode()}
    upload = "/v1/uploads/" + "0" * 64
    yield Kind("an upload of 5 MB, damaged", "PUT", upload, partial(same, packed))


# -- measuring -------------------------------------------------------------------------------------


class Probed(Daemon):
    """A daemon with the probe."""

    def command(self) -> list[str]:
        """Return the program."""
        return [sys.executable, __file__, "--serve", str(self.folder / "probe.sock")]


class Measure:
    """Sends requests to a daemon and reads its probe.

    Args:
        daemon: with the probe.
        tokens: by subject.
    """

    def __init__(self, daemon: Probed, tokens: dict[str, str]) -> None:
        self._daemon, self._tokens = daemon, tokens
        self._probe, self._waiting = daemon.folder / "probe.sock", ""

    async def run(self, arguments: argparse.Namespace) -> list[dict[str, Any]]:
        """Return the figures of every kind."""
        source, found = jobs(), []
        async with self._daemon.line() as line:
            for _ in range(max(arguments.jobs // 1000, 1)):
                await _batch(line, source, 1000)
            await asyncio.sleep(5.0)
            _, body = await line.ask("GET", "/v1/jobs?status=waiting&limit=1")
        self._waiting = orjson.loads(body)["jobs"][0]["job_id"]
        # What is held must be released before it is held again, so these take turns.
        for path, group in itertools.groupby(
            kinds(arguments.nodes, source), lambda kind: kind.path if kind.path in TURNS else kind
        ):
            turns = list(group)
            tries = [[await self._once(kind, n) for kind in turns] for n in range(arguments.tries)]
            found += [shortest(list(of_one)) for of_one in zip(*tries, strict=True)]
            if turns[0].method == "POST" and path not in TURNS:
                await self._cancel_added()
        return found

    async def _cancel_added(self) -> None:
        body = {"action": "cancel", "selector": {"project": [PROJECT]}}
        kind = Kind("cancel", "POST", "/v1/jobs:act", partial(same, body))
        while orjson.loads((await self._once(kind, 0))["answer"])["matched"]:
            pass

    async def _once(self, kind: Kind, number: int) -> dict[str, Any]:
        """Send one request, and return how long the loop stood still for it."""
        headers = {"Authorization": f"Bearer {self._tokens[kind.token]}"}
        if kind.token != "admin":  # noqa: S105 - a subject
            headers |= {"X-Leasehold-Address": "127.0.0.1", "X-Leasehold-Agent": "0"}
        made = kind.body(number)
        body = made if isinstance(made, bytes) else b"" if made is None else orjson.dumps(made)
        line = Line(self._daemon.host, self._daemon.port, headers)
        path = kind.path.replace("{waiting}", self._waiting).replace("{number}", str(number))
        longest(self._probe)
        began_s = time.perf_counter()
        status, answer = await line.ask(kind.method, path, body)
        took_s = time.perf_counter() - began_s
        await asyncio.sleep(SETTLE_S)
        line.close()
        return {
            "kind": kind.name,
            "status": status,
            "took_ms": round(1e3 * took_s, 1),
            "kb": round(len(body) / 1e3),
            "said": "" if status < 207 else answer[:200].decode(errors="replace"),
            "answer": answer,
            **longest(self._probe),
        }


async def lines_of_jobs(folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the kinds of messages to the endpoint."""
    probe = folder / "endpoint.sock"
    process = subprocess.Popen(  # noqa: ASYNC220 - before anything else
        [sys.executable, __file__, "--listen", str(probe), str(folder)]
    )
    times = [1e-3] * bounds.MOST_STEP_TIMES
    line = json.dumps({"secret": SECRET, "steps_live": 1, "steps_done": 1}).encode() + b"\n"
    learning = {"step_times": times}
    measured = json.dumps({"secret": SECRET, "learning": learning}).encode() + b"\n"
    sent = {
        "1,000 lines of a job at once": line * 1000,
        "lines that are too long": (b"x" * 1_000_000 + b"\n") * 20,
        "lines of a stranger": b'{"secret": "x"}\n' * 16,
        "nested lists": (b"[" * 4000 + b"\n") * 16,
        "200 measurements": measured * 200,
    }
    found = []
    try:
        while not (folder / "jobs.sock").exists() or not probe.exists():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.1)
        for name, data in sent.items():
            tries = []
            for _ in range(arguments.tries):
                longest(probe)
                reader, writer = await asyncio.open_unix_connection(folder / "jobs.sock")
                writer.write(data)
                writer.write_eof()
                reading = asyncio.create_task(reader.read())
                await asyncio.wait({reading}, timeout=3.0)
                reading.cancel()
                writer.close()
                tries.append(
                    {
                        "kind": f"endpoint: {name}",
                        "status": 0,
                        "took_ms": 0.0,
                        "kb": round(len(data) / 1e3),
                        "said": "",
                    }
                    | longest(probe)
                )
            found.append(shortest(tries))
    finally:
        process.kill()
        process.wait()
    return found


def shortest(tries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the try with the shortest stall, and say what was measured."""
    found = min(tries, key=lambda one: float(one["ms"]))
    found.pop("answer", None)
    told = f"{found['ms']:>8.1f} ms  {found['kind']}  {found['status']} {found['said']}"
    print(told, file=sys.stderr, flush=True)
    return found


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3:])
        return 0
    if sys.argv[1:2] == ["--listen"]:
        listen(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=5000, help="active ones")
    parser.add_argument("--finished", type=int, default=20_000, help="jobs already in the store")
    parser.add_argument("--nodes", type=int, default=100, help=f"of {WORKERS} workers")
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.mean_run = 1e6
    folder = Path(tempfile.mkdtemp(prefix="lh-loop-"))
    try:
        url = f"sqlite:///{folder}/load.db"
        store = SqlStore.open(url)
        tokens = fill(store, arguments.finished, arguments.nodes)
        store.close()
        keys = folder / "keys"
        keys.write_text(new_key())
        settings: dict[str, object] = {"engine__round_length_s": 3600.0, "secrets__key_file": keys}
        daemon = Probed(folder, url, tokens["admin"], **settings)
        agents = _start_agents(daemon, arguments, tokens, folder / "received.csv")
        try:
            found = asyncio.run(Measure(daemon, tokens).run(arguments))
        finally:
            agents.kill()
            agents.wait()
            daemon.stop()
        found += asyncio.run(lines_of_jobs(folder, arguments))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found.sort(key=lambda one: -float(one["ms"]))
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{'loop ms':>8} {'answer ms':>10} {'kB':>6} {'status':>6}  kind: place")
        for one in found:
            print(
                f"{one['ms']:>8.1f} {one['took_ms']:>10.1f} {one['kb']:>6} {one['status']:>6}  "
                f"{one['kind']}: {one['place']}"
            )
    return int(any(one["ms"] > LIMIT_MS for one in found))


if __name__ == "__main__":
    sys.exit(main())
