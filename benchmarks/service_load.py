"""The daemon under load: submissions per second, rounds with many agents, latencies, memory.

Starts a real `leasehold serve`, fills its store with finished jobs, and lets light agents
(light_agents.py, a process of its own) report over HTTP while jobs come and go. A round counts from
the moment at which its plan is due to the moment at which the last node has received its
leases of the plan. Latencies count from the moment at which a request was due.

Usage: python benchmarks/service_load.py [submissions|rounds] [--store sqlite|postgresql] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import orjson
import uvloop
from http_line import Line
from load_contents import JOB_TYPES, WORKER_TYPES, fill, jobs, shares, throughputs

from scheduler.store.sql.store import SqlStore

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from leasehold_testing.postgres import PrivatePostgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORKERS_PER_NODE = 8
PLAN_LEAD_S = 7.0
BATCH = 1000
#: Requests per second of each kind while rounds go on.
KINDS = {"list": 4.0, "job": 10.0, "cluster": 4.0, "submit": 4.0}
#: What one request of each kind may take at most, 99 times of 100; of a round, always.
LIMIT_MS, ROUND_LIMIT_S = 200.0, 3.0


# -- the daemon ------------------------------------------------------------------------------------


class Daemon:
    """A `leasehold serve`, as a process of its own.

    Args:
        folder: where its state and its log lie.
        url: of its database.
        token: of an administrator.
        settings: further ones, as ``--set`` takes them.
    """

    def __init__(self, folder: Path, url: str, token: str, **settings: object) -> None:
        self.folder, self.token = folder, token
        table = folder / "throughputs.csv"
        rows = [
            f"{key.replace('/', ',')},{name},{rate}"
            for name, rates in throughputs().items()
            for key, rate in rates.items()
        ]
        header = "job_type,scale_factor,worker_type,steps_per_s,with_job_type,with_scale_factor,"
        lines = [f"{header}with_steps_per_s", *(f"{row},,," for row in rows)]
        table.write_text("\n".join(lines) + "\n")
        options = {
            "server.rate_per_s": 100_000,
            "server.rate_burst": 100_000,
            "server.metrics_open": "true",
            "leases.notice_s": 2,
            "leases.grace_s": 2,
            "leases.margin_s": 2,  # with a second to spare the lead of a plan
        } | {name.replace("__", "."): value for name, value in settings.items()}
        command = [*self.command(), "serve", "--port", "0"]
        command += ["--state-dir", folder / "state", "--db", url, "--throughputs", table]
        for name, value in options.items():
            command += ["--set", f"{name}={value}"]
        self._log = (folder / "serve.log").open("w")
        self.process = subprocess.Popen(
            [*map(str, command)], stdout=self._log, stderr=subprocess.STDOUT
        )
        self.host, self.port = "127.0.0.1", self._wait_for_port()

    def command(self) -> list[str]:
        """Return the program."""
        return [str(Path(sys.executable).with_name("leasehold"))]

    def _wait_for_port(self) -> int:
        for _ in range(1200):
            text = (self.folder / "serve.log").read_text()
            if "listens on http://" in text:
                port = int(text.split("listens on http://")[1].split()[0].rpartition(":")[2])
                with contextlib.suppress(OSError):
                    if urlopen(f"http://127.0.0.1:{port}/readyz").status == 200:
                        return port
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit(f"the daemon does not serve:\n{(self.folder / 'serve.log').read_text()}")

    def line(self) -> Line:
        """Return a connection of the administrator's."""
        return Line(self.host, self.port, {"Authorization": f"Bearer {self.token}"})

    def get(self, path: str) -> bytes:
        """Ask once, blocking."""
        url = f"http://{self.host}:{self.port}{path}"
        request = Request(url, headers={"Authorization": f"Bearer {self.token}"})
        with urlopen(request) as answer:  # noqa: S310
            return bytes(answer.read())

    def rss_mb(self) -> float:
        """Return the resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def cpu_s(self) -> float:
        """Return the CPU time of the process itself, without the policy's process."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def metrics(self) -> dict[str, float]:
        """Return the daemon's own figures."""
        lines = self.get("/metrics").decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def stop(self) -> None:
        """Stop it gracefully."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()


# -- submissions -----------------------------------------------------------------------------------


async def submissions(daemon: Daemon, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure submissions per second, with no agents about."""
    source = jobs()
    result: dict[str, Any] = {}
    async with daemon.line() as line:
        await _batch(line, source, BATCH)  # the first one compiles and caches
        for size, count in ((BATCH, arguments.batches), (1, arguments.singles)):
            for at_once in (1,) if size > 1 else (1, 8, 64):
                cpu_s, begin = daemon.cpu_s(), time.perf_counter()
                times = await _submit(daemon, source, size=size, count=count, at_once=at_once)
                elapsed_s = time.perf_counter() - begin
                result[f"{size} per request, {at_once} at once"] = {
                    "jobs_per_s": round(size * count / elapsed_s, 1),
                    "p50_ms": round(1e3 * statistics.median(times), 1),
                    "p99_ms": round(1e3 * _percentile(times, 99), 1),
                    "cpu_ms_per_job": round(1e3 * (daemon.cpu_s() - cpu_s) / (size * count), 3),
                }
    return result


async def _submit(
    daemon: Daemon, source: Iterator[dict[str, Any]], *, size: int, count: int, at_once: int
) -> list[float]:
    times: list[float] = []
    left = iter(range(count))

    async def one() -> None:
        async with daemon.line() as line:
            for _ in left:
                begin = time.perf_counter()
                await _batch(line, source, size)
                times.append(time.perf_counter() - begin)

    await asyncio.gather(*(one() for _ in range(at_once)))
    return times


async def _batch(line: Line, source: Iterator[dict[str, Any]], size: int) -> list[str]:
    """Submit that many jobs in one request; returns their ids."""
    items = list(itertools.islice(source, size))
    body = orjson.dumps(items[0] if size == 1 else {"jobs": items})
    status, answer = await line.ask("POST", "/v1/jobs", body)
    if status != (201 if size == 1 else 200):
        raise SystemExit(f"a submission was answered {status}: {answer[:500]!r}")
    found = orjson.loads(answer)
    return [found["job_id"]] if size == 1 else [item["job_id"] for item in found["jobs"]]


# -- rounds ----------------------------------------------------------------------------------------


class Load:
    """People's requests while rounds go on."""

    def __init__(self, daemon: Daemon, arguments: argparse.Namespace) -> None:
        self._daemon, self._arguments = daemon, arguments
        self._source = jobs()
        self._rng = random.Random(6)  # noqa: S311
        self._known = [f"old-{n:06}" for n in range(1, min(arguments.finished, 5000) + 1)]
        self._idle: list[Line] = []
        self.times: dict[str, list[tuple[float, float]]] = defaultdict(list)
        #: end of a round -> its number.
        self.ends: dict[float, int] = {}
        self.cluster: dict[str, Any] = {}

    async def top_up(self) -> None:
        """Keep the number of active jobs up."""
        while True:
            active = sum(self.cluster.get("jobs", {}).values())
            missing = self._arguments.jobs - active
            if self.cluster and missing > 0:
                async with self._daemon.line() as line:
                    for _ in range(max(missing // BATCH, 1)):
                        self._known += await _batch(line, self._source, min(missing, BATCH))
                del self._known[:-20_000]
            await asyncio.sleep(5.0 if self.cluster else 0.1)

    async def ask(self, kind: str, per_s: float) -> None:
        """Make one kind of request at a steady rate, independent of the time of answers."""
        running: set[asyncio.Task[None]] = set()
        due = time.perf_counter()
        while True:
            due += 1.0 / per_s
            await asyncio.sleep(max(due - time.perf_counter(), 0.0))
            task = asyncio.create_task(self._one(kind, due))
            running.add(task)
            task.add_done_callback(running.discard)

    async def _one(self, kind: str, due: float) -> None:
        line = self._idle.pop() if self._idle else self._daemon.line()
        if kind == "submit":
            self._known += await _batch(line, self._source, 1)
        else:
            status, body = await line.ask("GET", self._target(kind))
            if status != 200:
                raise SystemExit(f"{kind} was answered {status}: {body[:500]!r}")
            if kind == "cluster":
                self.cluster = orjson.loads(body)
                if self.cluster["round_ends_s"] is not None:
                    self.ends[self.cluster["round_ends_s"]] = self.cluster["round_number"]
        self.times[kind].append((time.time(), time.perf_counter() - due))
        self._idle.append(line)

    def _target(self, kind: str) -> str:
        if kind == "job":
            return f"/v1/jobs/{self._rng.choice(self._known)}"
        if kind == "cluster":
            return "/v1/cluster"
        team = self._rng.randrange(7)
        return self._rng.choice(
            (
                "/v1/jobs?limit=100",
                f"/v1/jobs?status=completed&project=team-{team}&limit=100",
                f"/v1/jobs?status=waiting&status=running&label=team%3Dt{team}&limit=100",
                f"/v1/jobs?job_type=type-{self._rng.randrange(JOB_TYPES):02}&sort=submitted",
                "/v1/jobs?sort=-finished&limit=100",
            )
        )


async def rounds(daemon: Daemon, arguments: argparse.Namespace, tokens: dict[str, str]) -> Any:
    """Measure rounds, latencies and memory."""
    received = daemon.folder / "received.csv"
    agents = _start_agents(daemon, arguments, tokens, received)
    load = Load(daemon, arguments)
    if arguments.shares:
        await _share(daemon)
    tasks = [asyncio.create_task(load.ask(kind, per_s)) for kind, per_s in KINDS.items()]
    tasks.append(asyncio.create_task(load.top_up()))
    samples: list[dict[str, float]] = []
    try:
        while not _warm(load, arguments):
            _check(tasks, agents)
            await asyncio.sleep(1.0)
        begin_s = time.time()
        first = load.cluster["round_number"]
        if arguments.hook:
            hook = arguments.hook.replace("{pid}", str(daemon.process.pid))
            subprocess.Popen(hook, shell=True)  # noqa: S602, ASYNC220  the caller's own command
        while load.cluster["round_number"] < first + arguments.rounds:
            _check(tasks, agents)
            number = load.cluster["round_number"]
            if not samples or samples[-1]["round"] != number:
                sample = {"round": number, "rss_mb": daemon.rss_mb(), "cpu_s": daemon.cpu_s()}
                samples.append(sample)
                _progress(load, sample)
            await asyncio.sleep(0.5)
    finally:
        for task in tasks:
            task.cancel()
        agents.terminate()
        agents.wait()
    dispatches = _dispatches(load, received, begin_s, arguments.round_length)
    return _summary(load, samples, dispatches, daemon, begin_s)


async def _share(daemon: Daemon) -> None:
    async with daemon.line() as line:
        for method, path, body in shares(time.time()):
            for _ in range(60):
                status, answer = await line.ask(method, path, orjson.dumps(body))
                if status in {200, 201}:
                    break
                await asyncio.sleep(1.0)  # workers can be reserved only after they have joined
            else:
                raise SystemExit(f"{method} {path} was answered {status}: {answer[:500]!r}")


def _start_agents(
    daemon: Daemon, arguments: argparse.Namespace, tokens: dict[str, str], received: Path
) -> subprocess.Popen[bytes]:
    types = itertools.cycle(WORKER_TYPES)
    plan = {
        "host": daemon.host,
        "port": daemon.port,
        "workers": WORKERS_PER_NODE,
        "mean_run_s": arguments.mean_run,
        "rates": throughputs(),
        "out": str(received),
        "nodes": [
            {"name": name, "token": token, "worker_type": next(types)}
            for name, token in tokens.items()
            if name != "admin"
        ],
    }
    path = daemon.folder / "agents.json"
    path.write_text(json.dumps(plan))
    script = Path(__file__).with_name("light_agents.py")
    return subprocess.Popen([sys.executable, str(script), str(path)])


def _warm(load: Load, arguments: argparse.Namespace) -> bool:
    """Return whether all jobs are there, most workers busy, and a few rounds have passed."""
    cluster = load.cluster
    return bool(cluster) and (
        sum(cluster["jobs"].values()) >= arguments.jobs * 0.99
        and sum(cluster["busy"].values()) > 0.8 * arguments.nodes * WORKERS_PER_NODE
        and cluster["round_number"] >= arguments.warm
    )


def _check(tasks: list[asyncio.Task[None]], agents: subprocess.Popen[bytes]) -> None:
    for task in tasks:
        if task.done():
            task.result()
    if agents.poll() is not None:
        raise SystemExit("the agents have stopped")


def _progress(load: Load, sample: dict[str, float]) -> None:
    busy, active = sum(load.cluster["busy"].values()), sum(load.cluster["jobs"].values())
    line = f"round {sample['round']:g}: {active} jobs, {busy} workers busy, "
    line += f"{sample['rss_mb']:.0f} MB, {sample['cpu_s']:.1f} CPU s"
    print(line, file=sys.stderr, flush=True)


def _summary(
    load: Load,
    samples: list[dict[str, float]],
    dispatches: list[float],
    daemon: Daemon,
    begin_s: float,
) -> dict[str, Any]:
    figures = daemon.metrics()
    latencies = {}
    for kind, pairs in load.times.items():
        times = [1e3 * took for at_s, took in pairs if at_s >= begin_s]
        latencies[kind] = {
            "requests": len(times),
            "p50_ms": round(statistics.median(times), 1),
            "p99_ms": round(_percentile(times, 99), 1),
            "max_ms": round(max(times), 1),
        }
    elapsed_s = time.time() - begin_s
    settled = samples[len(samples) // 3 :]
    return {
        "rounds": len(dispatches),
        "dispatch_s": {
            "p50": round(statistics.median(dispatches), 3),
            "max": round(max(dispatches), 3),
            "each": [round(d, 3) for d in dispatches],
        },
        "latency": latencies,
        "rss_mb": {
            "first": round(samples[0]["rss_mb"], 1),
            "settled": round(settled[0]["rss_mb"], 1),
            "last": round(samples[-1]["rss_mb"], 1),
            "slope_mb_per_100_rounds": round(100 * _slope(settled), 2),
        },
        "cpu_share": round((samples[-1]["cpu_s"] - samples[0]["cpu_s"]) / elapsed_s, 3),
        "longest_stall_s": figures["leasehold_event_loop_longest_stall_seconds"],
        "stalls": figures["leasehold_event_loop_stalls_total"],
        "leases_started": figures["leasehold_lease_starts_total"],
        "jobs_completed": figures['leasehold_jobs_ended_total{status="completed"}'],
        "turn_of_a_round_mean_s": round(
            figures["leasehold_round_seconds_sum"] / figures["leasehold_round_seconds_count"], 3
        ),
        "commit_mean_ms": round(
            1e3
            * figures["leasehold_commit_seconds_sum"]
            / figures["leasehold_commit_seconds_count"],
            1,
        ),
        "turns": figures["leasehold_commit_seconds_count"],
    }


def _dispatches(load: Load, received: Path, begin_s: float, length_s: float) -> list[float]:
    """Return, for every round, how long after its plan was due the last node knew of it."""
    plans = sorted(end_s - PLAN_LEAD_S for end_s in load.ends)
    rows = []
    for text in received.read_text().splitlines():
        at_s, node, furthest_s, leaving, _ = text.split(",")
        rows.append((float(at_s), node, float(furthest_s), int(leaving)))
    result = []
    for plan_s, next_s in itertools.pairwise(plans):
        if plan_s < begin_s:
            continue
        heard: dict[str, float] = {}
        planned_s = plan_s + PLAN_LEAD_S + length_s - 3.0
        for at_s, node, furthest_s, leaving in rows:
            if plan_s <= at_s < next_s and (leaving or furthest_s >= planned_s):
                heard.setdefault(node, at_s)
        if heard:
            result.append(max(heard.values()) - plan_s)
    return result


def _slope(samples: list[dict[str, float]]) -> float:
    """Return MB per round, by least squares."""
    if len(samples) < 2:
        return 0.0
    at = [sample["round"] for sample in samples]
    return statistics.linear_regression(at, [sample["rss_mb"] for sample in samples]).slope


def _percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


# -- all of it -------------------------------------------------------------------------------------


@contextlib.contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    """Yield the URL of a new database; a durable one, as in earnest."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/load.db"
        return
    programs = PrivatePostgres.find_programs()
    if programs is None:
        raise SystemExit("PostgreSQL is not installed: apt-get install postgresql")
    server = PrivatePostgres(programs, durable=True)
    try:
        server.start()
        yield server.new_database()
    finally:
        server.remove()


def measure(part: str, arguments: argparse.Namespace) -> Any:
    folder = Path(tempfile.mkdtemp(prefix="lh-load-"))
    settings: dict[str, object] = {"engine__round_length_s": arguments.round_length}
    if part == "submissions":
        settings["engine__round_length_s"] = 3600.0
    try:
        with database(arguments.store, folder) as url:
            store = SqlStore.open(url)
            begin = time.perf_counter()
            tokens = fill(store, arguments.finished, arguments.nodes)
            store.close()
            print(f"filled in {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
            daemon = Daemon(folder, url, tokens["admin"], **settings)
            run: Callable[[], Any] = lambda: rounds(daemon, arguments, tokens)  # noqa: E731
            if part == "submissions":
                run = lambda: submissions(daemon, arguments)  # noqa: E731
            try:
                return uvloop.run(run())
            finally:
                daemon.stop()
                if arguments.keep_log:
                    shutil.copy(folder / "serve.log", arguments.keep_log)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def show(figures: dict[str, Any], indent: int = 1) -> None:
    """Print figures, nested ones below their name."""
    for name, value in figures.items():
        if not isinstance(value, dict):
            print(f"{'  ' * indent}{name:<28} {value}")
        elif any(isinstance(inner, dict) for inner in value.values()):
            print(f"{'  ' * indent}{name}")
            show(value, indent + 1)
        else:
            inner = "  ".join(f"{k} {v}" for k, v in value.items() if not isinstance(v, list))
            print(f"{'  ' * indent}{name:<28} {inner}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=("submissions", "rounds"), help="else both")
    parser.add_argument("--store", choices=("sqlite", "postgresql"), help="else both")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=10_000, help="active ones")
    parser.add_argument("--finished", type=int, default=100_000, help="jobs already in the store")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--round-length", type=float, default=30.0, metavar="S")
    parser.add_argument("--warm", type=int, default=4, help="rounds before the first that counts")
    parser.add_argument("--mean-run", type=float, default=1200.0, metavar="S", help="of a job")
    parser.add_argument("--batches", type=int, default=10, help=f"of {BATCH} jobs")
    parser.add_argument("--singles", type=int, default=1000, help="jobs submitted one by one")
    parser.add_argument(
        "--shares", action="store_true", help="with quotas, budgets, reservations and a half-life"
    )
    parser.add_argument("--hook", help="shell command when rounds begin; {pid} is the daemon's")
    parser.add_argument("--keep-log", type=Path, help="where the daemon's log is put")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result: dict[str, Any] = {}
    for store in (arguments.store,) if arguments.store else ("sqlite", "postgresql"):
        arguments.store = store
        for part in (arguments.part,) if arguments.part else ("submissions", "rounds"):
            figures = measure(part, arguments)
            result[f"{part}, {store}"] = figures
            if not arguments.json:
                print(f"\n{part}, {store}")
                show(figures)
    if arguments.json:
        print(json.dumps(result, indent=2))
    late = [
        name
        for name, figures in result.items()
        if "dispatch_s" in figures
        and (
            figures["dispatch_s"]["max"] > ROUND_LIMIT_S
            or any(kind["p99_ms"] > LIMIT_MS for kind in figures["latency"].values())
        )
    ]
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
