"""The page under load: time and size of each view, and how much open pages slow rounds.

Starts a real `leasehold serve` with finished jobs in its store, and light agents (light_agents.py)
that report over HTTP while jobs come and go. A view is asked for whole, and as the part that an
open page fetches again, which counts compressed. Open pages follow `/changes` and fetch their part
at each change. Rounds with and without them alternate, so that both meet the same machine. Rounds
differ in what they decide, by five times. So the ratio compares only the parts in which they
compute nothing: a late start, waits for a processor, and the commit.

Usage: python benchmarks/page.py [--store sqlite|postgresql] [--pages N] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop
from http_line import Line
from load_contents import fill
from service_load import Daemon, Load, _check, _start_agents, _warm, database, show

from api.auth.browser import COOKIE
from scheduler.store.sql.store import SqlStore

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Of a whole view: median time and bytes; of its part: bytes; of rounds with open pages: the ratio.
LIMIT_MS, LIMIT_BYTES, LIMIT_PART_BYTES, LIMIT_RATIO = 100.0, 150_000, 30_000, 1.05
VIEWS = {
    "jobs": "/jobs",
    "jobs that wait": "/jobs?status=waiting",
    "jobs that completed": "/jobs?status=completed&sort=-finished",
    "jobs of a project": "/jobs?project=team-3&label=team%3Dt3",
    "jobs by owner": "/jobs?group=owner",
    "output of a job": "/jobs/{running}/output",
    "cancel all of a project": "/jobs/-/cancel?project=team-3",
    "a job that runs": "/jobs/{running}",
    "a job that waits": "/jobs/{waiting}",
    "a job that completed": "/jobs/old-000007",
    "cluster": "/cluster",
    "rounds": "/rounds",
    "rounds of a week by project": "/rounds?by=project&span=7d",
    "fairness": "/fairness",
    "policies": "/policies",
    "a policy": "/policies/max_min_fairness",
    "usage": "/usage",
    "events": "/events",
    "events of a project": "/events?project=team-3",
    "submit": "/submit",
}
#: Figures that come after their page; they have no limit.
LATER = {"usage by project and type": "/usage-figures", "usage by job": "/usage-figures?by=job"}
ROUND = "leasehold_round"
#: What is open on many desks.
OPEN = ("/jobs", "/jobs/{running}", "/cluster", "/rounds", "/fairness", "/policies", "/usage")


def page_line(daemon: Daemon, **headers: str) -> Line:
    """Return a connection of a browser that is signed in."""
    return Line(daemon.host, daemon.port, {"Cookie": f"{COOKIE}={daemon.token}", **headers})


def part_line(daemon: Daemon) -> Line:
    """Return a connection that fetches parts of open pages."""
    return page_line(daemon, **{"HX-Request": "true", "Accept-Encoding": "gzip"})


async def look(daemon: Daemon, tries: int, names: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Ask for every view some times; returns their times and sizes."""
    times: dict[str, list[float]] = defaultdict(list)
    sizes: dict[str, list[int]] = defaultdict(list)
    parts: dict[str, list[int]] = defaultdict(list)
    async with page_line(daemon) as line, part_line(daemon) as part:
        for _ in range(tries):
            for name, path in VIEWS.items():
                begin = time.perf_counter()
                body = await ask(line, path.format(**names))
                times[name].append(1e3 * (time.perf_counter() - begin))
                sizes[name].append(len(body))
                parts[name].append(len(await ask(part, path.format(**names))))
                await asyncio.sleep(0.1)
    return {
        name: {
            "p50_ms": round(statistics.median(times[name]), 1),
            "max_ms": round(max(times[name]), 1),
            "kb": round(max(sizes[name]) / 1000, 1),
            "part_kb": round(max(parts[name]) / 1000, 1),
        }
        for name in VIEWS
    }


async def add_up(daemon: Daemon) -> dict[str, float]:
    """Return the milliseconds of figures that are not kept yet."""
    found = {}
    async with page_line(daemon) as line:
        for name, path in LATER.items():
            begin = time.perf_counter()
            await ask(line, path)
            found[f"{name}, ms"] = round(1e3 * (time.perf_counter() - begin), 1)
    return found


async def ask(line: Line, path: str) -> bytes:
    status, body = await line.ask("GET", path)
    if status != 200:
        raise SystemExit(f"{path} was answered {status}: {body[:500]!r}")
    return body


async def keep_open(daemon: Daemon, path: str) -> None:
    """Follow changes, and fetch the page's part at each, as page.js does."""
    async with part_line(daemon) as line:
        reader, writer = await asyncio.open_connection(daemon.host, daemon.port)
        head = f"GET /changes HTTP/1.1\r\nHost: {daemon.host}:{daemon.port}\r\n"
        writer.write(f"{head}Cookie: {COOKIE}={daemon.token}\r\n\r\n".encode())
        try:
            while True:
                await reader.readuntil(b"event: change")
                await ask(line, path)
        finally:
            writer.close()


async def rounds_pass(daemon: Daemon, count: int) -> tuple[float, float, float]:
    """Wait for some rounds; returns means: seconds of a round, of its waits, and of CPU."""
    before, cpu_s = daemon.metrics(), daemon.cpu_s()
    while True:
        await asyncio.sleep(2.0)
        now = await asyncio.to_thread(daemon.metrics)
        rounds = now[f"{ROUND}_seconds_count"] - before[f"{ROUND}_seconds_count"]
        if rounds >= count:
            sums = (f"{ROUND}_seconds_sum", f"{ROUND}_wait_seconds_sum")
            turn_s, wait_s = (now[name] - before[name] for name in sums)
            return turn_s / rounds, wait_s / rounds, (daemon.cpu_s() - cpu_s) / rounds


async def compare(
    daemon: Daemon, arguments: argparse.Namespace, names: dict[str, str]
) -> dict[str, Any]:
    """Measure rounds without and with open pages, in turns."""
    turns: dict[str, list[tuple[float, float, float]]] = {"without": [], "with": []}
    for _ in range(arguments.pairs):
        turns["without"].append(await rounds_pass(daemon, arguments.rounds))
        paths = itertools.islice(itertools.cycle(OPEN), arguments.pages)
        desks = [asyncio.create_task(keep_open(daemon, path.format(**names))) for path in paths]
        turns["with"].append(await rounds_pass(daemon, arguments.rounds))
        for desk in desks:
            if desk.done():
                desk.result()
            desk.cancel()
        await asyncio.gather(*desks, return_exceptions=True)
    found = {
        name: {
            "round_ms": round(1e3 * statistics.mean(turn for turn, _, _ in passes), 1),
            "wait_ms": round(1e3 * statistics.mean(wait for _, wait, _ in passes), 1),
            "cpu_s_per_round": round(statistics.mean(cpu for _, _, cpu in passes), 2),
        }
        for name, passes in turns.items()
    }
    own_s = statistics.mean(turn - wait for passes in turns.values() for turn, wait, _ in passes)
    ratios = [
        (own_s + after[1]) / (own_s + before[1])
        for before, after in zip(*turns.values(), strict=True)
    ]
    return found | {
        "ratio": round(statistics.mean(ratios), 3),
        "each": [round(r, 3) for r in ratios],
    }


async def measure(daemon: Daemon, arguments: argparse.Namespace, tokens: dict[str, str]) -> Any:
    agents = _start_agents(daemon, arguments, tokens, daemon.folder / "received.csv")
    load = Load(daemon, arguments)
    tasks = [asyncio.create_task(load.ask("cluster", 1.0)), asyncio.create_task(load.top_up())]
    try:
        while not _warm(load, arguments):
            _check(tasks, agents)
            await asyncio.sleep(1.0)
        found = json.loads(daemon.get("/v1/jobs?status=running&limit=1"))["jobs"]
        waits = json.loads(daemon.get("/v1/jobs?status=waiting&limit=1"))["jobs"]
        names = {"running": found[0]["job_id"], "waiting": waits[0]["job_id"]}
        views = await look(daemon, arguments.tries, names)
        later = await add_up(daemon)
        rounds = await compare(daemon, arguments, names) if arguments.pairs else {}
        _check(tasks, agents)
    finally:
        for task in tasks:
            task.cancel()
        agents.terminate()
        agents.wait()
    return {"views": views, "figures": later, "rounds": rounds}


def faults(found: dict[str, Any]) -> Iterator[str]:
    """Yield what is beyond its limit."""
    for name, figures in found["views"].items():
        limits = (("p50_ms", LIMIT_MS), ("kb", LIMIT_BYTES / 1000))
        limits += (("part_kb", LIMIT_PART_BYTES / 1000),)
        for what, most in limits:
            if figures[what] > most:
                yield f"{name}: {what} is {figures[what]}, and {most:g} the most"
    if found["rounds"] and found["rounds"]["ratio"] > LIMIT_RATIO:
        yield f"rounds with open pages take {found['rounds']['ratio']} times as long"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--nodes", type=int, default=125, help="of 8 workers")
    parser.add_argument("--jobs", type=int, default=10_000, help="active ones")
    parser.add_argument("--finished", type=int, default=100_000, help="jobs already in the store")
    parser.add_argument("--pages", type=int, default=20, help="that are open")
    parser.add_argument("--tries", type=int, default=20, help="of each view")
    parser.add_argument("--rounds", type=int, default=3, help="of each half of a pair")
    parser.add_argument("--pairs", type=int, default=3, help="without and with open pages")
    parser.add_argument("--round-length", type=float, default=30.0, metavar="S")
    parser.add_argument("--keep-log", type=Path, help="where the daemon's log is put")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.warm, arguments.mean_run = 2, 1200.0
    folder = Path(tempfile.mkdtemp(prefix="lh-page-"))
    try:
        with database(arguments.store, folder) as url:
            store = SqlStore.open(url)
            tokens = fill(store, arguments.finished, arguments.nodes)
            store.close()
            settings = {"engine__round_length_s": arguments.round_length}
            daemon = Daemon(folder, url, tokens["admin"], **settings)
            try:
                found = uvloop.run(measure(daemon, arguments, tokens))
            finally:
                daemon.stop()
                if arguments.keep_log:
                    shutil.copy(folder / "serve.log", arguments.keep_log)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)
    wrong = list(faults(found))
    for fault in wrong:
        print(fault, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
