"""A day of three teams on six workers: 40 jobs of every kind, by the command line alone.

It is lived twice: once in quiet, and once while scheduler, agents and database are killed.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from day_cluster import NODES, ROUND_S, Cluster, History, together
from oracle import Wanted, at_once, held_us, idling, leases

from leasehold_testing.ports import free_ports

pytestmark = pytest.mark.long

PROGRAMS = Path(__file__).parent / "programs"
QUOTAS = {"vision": 4, "speech": 2, "nlp": 4}
#: How long workers may idle beside a job that could have them. A round: workers free from its plan
#: on are given away at its end.
TOLERANCE_S = float(ROUND_S)
#: How often something is killed.
EVERY_S = 5.0
LOOKED_AT = ("resnet-0", "script-4", "greedy", "mended", "overlong")
GROUPINGS = ("project", "project,owner,worker-type", "job")
ALL = frozenset(kind.partition(":")[0] for kind in NODES.values())


def python(name, *arguments):
    return ["--", sys.executable, str(PROGRAMS / name), *map(str, arguments)]


@dataclass
class Day:
    """The submissions, and their required results.

    Attributes:
        wanted: job id -> its request.
        ends: job id -> (status, reason or None, fewest attempts, most attempts).
    """

    wanted: dict[str, Wanted] = field(default_factory=dict)
    ends: dict[str, tuple] = field(default_factory=dict)

    def note(self, ids, project, *, count, end="completed", why=None, attempts=(1, 99), **asks):
        assert len(ids) == count, ids
        for job in ids:
            self.wanted[job] = Wanted(
                project=project,
                workers=asks.get("workers", 1),
                types=frozenset(asks.get("types", ALL)),
                after=frozenset(asks.get("after", ())),
                held=asks.get("held", False),
            )
            self.ends[job] = end, why, *attempts
        return ids


@dataclass(frozen=True, kw_only=True)
class Spent:
    """A day that is over.

    Attributes:
        day: the requests.
        events: the history, as ``watch`` has shown it all day.
        jobs: job id -> output of ``jobs``.
        leases: all of them, from the history.
        told: output of ``job`` for some.
        usage: grouping -> rows of ``usage``.
        top: one look at ``top``.
        logs: file -> output of a program.
        killed: program -> how often it was killed.
    """

    day: Day
    events: list
    jobs: dict
    leases: list
    told: list
    usage: dict
    top: str
    logs: dict
    killed: Counter


def vision(ann, day):
    """Training that saves its state, gangs, an array, and what depends on them."""
    shared = ann.folder / "checkpoints" / "{job_id}"

    def train(steps, step_s=0.1):
        return [
            *("--steps", str(steps), "--throughput", f"v100={1 / step_s}"),
            *("--throughput", f"k80={1 / step_s}", "--checkpoint-dir", str(shared)),
            *python("train.py", step_s),
        ]

    array = day.note(ann.submit("-n", "resnet", "--array", "4", *train(100)), "vision", count=4)
    (gang,) = day.note(
        ann.submit("-n", "ddp", "-w", "2", "-t", "v100", *python("plain.py", 7)),
        *("vision",),
        count=1,
        workers=2,
        types={"v100"},
    )
    day.note(
        ann.submit("-n", "pipeline", "-w", "2", *python("plain.py", 3)),
        "vision",
        count=1,
        workers=2,
    )
    day.note(
        ann.submit("-n", "evaluate", "--after", "ddp", *python("plain.py", 2)),
        "vision",
        count=1,
        after=[gang],
    )
    day.note(
        ann.submit("-n", "report", "--after", "resnet", *python("plain.py", 1)),
        "vision",
        count=1,
        after=array,
    )
    (endless,) = day.note(
        ann.submit("-n", "endless", "--weight", "0.5", *python("plain.py", 10_000)),
        "vision",
        count=1,
        end="cancelled",
        attempts=(0, 99),
    )
    day.note(
        ann.submit("-n", "urgent", "--weight", "5", "-t", "v100", *train(30)),
        "vision",
        count=1,
        types={"v100"},
    )
    day.note(
        ann.submit("-n", "alone", "--no-space-sharing", *python("plain.py", 4)), "vision", count=1
    )
    ann("set", endless, "--weight", "0.7")
    assert "urgent" in ann("jobs", "--all")
    ann("cancel", endless, "--reason", "it was a mistake")
    # Another team's jobs do not exist for her.
    assert {job["project"] for job in ann.ask("jobs", "--all")["jobs"]} == {"vision"}


def speech(bob, day):
    """Scripts that save nothing, and programs that crash."""
    folder = bob.folder  # all nodes see it
    day.note(bob.submit("-n", "script", "--array", "5", *python("plain.py", 9)), "speech", count=5)
    failed = {"end": "failed", "attempts": (1, 99)}
    (crash,) = day.note(
        bob.submit("-n", "crash", "--hold", "--retries", "0", "--", "false"),
        "speech",
        count=1,
        held=True,
        **failed,
    )
    day.note(
        bob.submit("-n", "twice", "--retries", "1", "--", "sh", "-c", "exit 3"),
        "speech",
        count=1,
        end="failed",
        attempts=(2, 99),
    )
    day.note(
        bob.submit(
            *("-n", "greedy", "--oom-retries", "1"),
            *("--", sys.executable, "-c", "bytearray(2**60)"),
        ),
        "speech",
        count=1,
        end="failed",
        why="too_many_out_of_memory",
        attempts=(2, 99),
    )
    day.note(
        bob.submit(
            "-n", "flaky", "--retries", "2", *python("until.py", bob.folder / "flaky", 3, 1)
        ),
        "speech",
        count=1,
        attempts=(3, 99),
    )
    day.note(
        bob.submit("-n", "comes-back", *python("until.py", folder / "back", 2, 75)),
        "speech",
        count=1,
        attempts=(2, 99),
    )
    (orphan,) = day.note(
        bob.submit("-n", "orphan", "--after", crash, "--", "true"),
        "speech",
        count=1,
        end="cancelled",
        why="dependency_failed",
        attempts=(0, 0),
        after=[crash],
    )
    bob("release", crash)
    said = bob("run", "-n", "hello", "--", "sh", "-c", "echo hello; echo oh >&2", said="oh\n")
    assert set(said.splitlines()) == {"hello"}  # twice if its first attempt was lost
    bob("run", "-n", "seven", "--", "sh", "-c", "exit 7", code=7, said="failed")
    ran = {job["name"]: job["job_id"] for job in bob.ask("jobs", "--name", "hello,seven")["jobs"]}
    day.note([ran["hello"]], "speech", count=1)
    day.note([ran["seven"]], "speech", count=1, **failed)
    bob("watch", orphan, code=1)
    # More workers than the project may ever have.
    bob("submit", "-n", "huge", "-w", "3", "--", "true", code=6, said="may have 2 at once")
    assert bob.ask("explain", orphan)["status"] == "cancelled"


def nlp(cleo, day, olga):
    """A file of jobs, limits of time, and jobs that are held, released and requeued."""
    day.note(cleo.submit("-n", "grid", "--array", "6", *python("plain.py", 5)), "nlp", count=6)
    day.note(
        cleo.submit("-n", "k80-gang", "-w", "2", "-t", "k80", *python("plain.py", 3)),
        *("nlp",),
        count=1,
        workers=2,
        types={"k80"},
    )
    day.note(
        cleo.submit("-n", "steady", "-t", "v100", "--no-preemptible", *python("plain.py", 10)),
        "nlp",
        count=1,
        types={"v100"},  # of which one is its project's share
    )
    day.note(
        cleo.submit("-n", "settled", "--min-run-time", "6s", *python("plain.py", 9)),
        "nlp",
        count=1,
    )
    (kept,) = day.note(
        cleo.submit("-n", "kept", "--hold", *python("plain.py", 1)), "nlp", count=1, held=True
    )
    day.note(
        cleo.submit("-n", "overlong", "--max-run-time", "3s", *python("plain.py", 10_000)),
        "nlp",
        count=1,
        end="failed",
        why="time_limit",
    )
    (cleo.folder / "jobs.yaml").write_text(
        "jobs:\n"
        f"- {{name: first, command: [{sys.executable}, {PROGRAMS}/plain.py, '2'], duration: 2s}}\n"
        "- {name: second, command: ['true'], deadline: 1h, labels: {part: 'b'}}\n"
    )
    day.note(cleo.submit("jobs.yaml"), "nlp", count=2)
    day.note(
        cleo.submit("-n", "dropped", "--hold", "--array", "2", "-l", "old=1", "--", "true"),
        "nlp",
        count=2,
        held=True,
        end="cancelled",
        attempts=(0, 0),
    )
    (mended,) = day.note(
        cleo.submit("-n", "mended", "--retries", "0", "--", "test", "-e", str(cleo.folder / "in")),
        "nlp",
        count=1,
        attempts=(2, 99),
    )
    cleo("cancel", "--selector", "label.old=1")
    cleo("watch", mended, code=1)  # until it has ended, and not well
    (cleo.folder / "in").touch()
    cleo("requeue", mended)
    # More jobs than the project may have at once.
    olga("project", "set", "nlp", "--max-jobs", "1")
    cleo("submit", "-n", "more", "--", "true", code=6, said="nlp")
    olga("project", "set", "nlp", "--max-jobs", "none")
    cleo("release", kept)


def kill_in_turn(cluster, postgres, over, killed):
    """Kill scheduler, agents and database, one after the other, until the day is over."""
    for what in itertools.cycle(("scheduler", "n1", "database", "n2", "scheduler", "n3")):
        if over.wait(EVERY_S):
            return
        if what == "database":
            postgres.stop()
            time.sleep(1.0)
            postgres.start()
        else:
            cluster.kill(what, 0.5)
        killed[what] += 1


@contextlib.contextmanager
def beset(cluster, postgres, killed):
    """Kill in a thread of its own meanwhile."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_in_turn, cluster, postgres, over, killed)
        try:
            yield
        finally:
            over.set()
            killing.result()


@pytest.fixture(scope="module", params=["quiet", "killed"])
def spent(request, tmp_path_factory):
    """The whole day."""
    began_s, killed, more = time.monotonic(), Counter(), {}
    folder = tmp_path_factory.mktemp("day")
    if request.param == "killed":
        postgres = request.getfixturevalue("postgres")
        more = {
            "patient": True,
            "server__port": free_ports(1)[0],
            "store__url": postgres.new_database(),
            "engine__round_length_s": 15,
        }
    with contextlib.closing(Cluster(folder, **more)) as cluster, contextlib.ExitStack() as stack:
        day = Day()
        olga = cluster.user("olga", "--role", "operator")
        victor = cluster.user("victor", "--role", "viewer")
        teams = {"vision": "ann", "speech": "bob", "nlp": "cleo"}
        users = [cluster.user(name, "--role", "user", "-p", p) for p, name in teams.items()]
        olga("project", "set", "vision", "--max-workers", "4", "--weight", "2")
        olga("project", "set", "speech", "--max-workers", "2")
        olga("project", "set", "nlp", "--max-workers", "4")
        history = stack.enter_context(contextlib.closing(History(victor, folder / "history.jsonl")))
        for name, workers in NODES.items():
            cluster.node(name, workers)
        cluster.await_nodes(len(NODES))
        ready_s = time.monotonic()
        if request.param == "killed":
            stack.enter_context(beset(cluster, postgres, killed))
        work = zip((vision, speech, functools.partial(nlp, olga=olga)), users, strict=True)
        together(*(functools.partial(job, user, day) for job, user in work))
        submitted_s = time.monotonic()
        for user in users:
            user("watch", "-s", "status=waiting,running,held", code=None)
        ended_s = time.monotonic()
        jobs = {job["job_id"]: job for job in victor.ask("jobs", "--all")["jobs"]}
        looked_at = [next(j for j in day.wanted if j.startswith(name)) for name in LOOKED_AT]
        told = [victor.ask("job", job, "--events", "500") for job in looked_at]
        usage = {by: olga.ask("usage", "--since", "1d", "--by", by)["usage"] for by in GROUPINGS}
        history.await_ends(set(day.wanted))
        events, top, logs = history.events, victor("top", "--once"), cluster.logs()
    moments = (began_s, ready_s, submitted_s, ended_s, time.monotonic())
    print("\nstart, submit, wait, ask: ", [round(b - a) for a, b in itertools.pairwise(moments)])
    return Spent(
        day=day,
        events=events,
        jobs=jobs,
        leases=leases(events),
        told=told,
        usage=usage,
        top=top,
        logs=logs,
        killed=killed,
    )


def test_every_job_came_to_its_end(spent):
    assert len(spent.day.wanted) == 40
    assert spent.jobs.keys() == spent.day.wanted.keys()
    made = Counter(lease["job"] for lease in spent.leases)
    for job_id, (status, why, fewest, most) in spent.day.ends.items():
        job = spent.jobs[job_id]
        assert job["status"] == status, job
        assert why is None or job["reason"] == why, job
        assert job["attempts"] == made[job_id], job
        assert fewest <= made[job_id] <= most, job


def test_everything_was_killed_or_nothing(spent):
    print("killed:", dict(spent.killed))
    assert not spent.killed or spent.killed.keys() == {"scheduler", "database", *NODES}


def test_no_worker_idles_beside_a_job_that_may_run(spent):
    if spent.killed:  # nobody plans meanwhile
        return
    stretches = idling(spent.events, spent.day.wanted, QUOTAS)
    print([(s.worker_type, round(s.length_s, 2)) for s in stretches[:5]])
    assert [s for s in stretches if s.length_s > TOLERANCE_S] == []


def test_no_project_ever_held_more_than_its_quota(spent):
    for project, most in QUOTAS.items():
        held = highest = 0
        moments = sorted(
            (at_s, sign * len(lease["workers"]))
            for lease in spent.leases
            if spent.day.wanted[lease["job"]].project == project
            for at_s, sign in ((lease["start_s"], 1), (lease["ended_s"], -1))
        )
        for _, change in moments:
            held += change
            highest = max(highest, held)
        assert 1 < highest <= most, project


def test_the_ledger_is_what_the_leases_say(spent):
    assert list(at_once(spent.leases)) == []
    groups: Counter[tuple[str, ...]] = Counter()
    for lease in spent.leases:
        job = spent.jobs[lease["job"]]
        groups[job["project"], job["owner"], lease["worker_type"]] += held_us([lease])
    told = {
        (row["project"], row["owner"], row["worker_type"]): row["worker_us"]
        for row in spent.usage["project,owner,worker-type"]
    }
    assert told == dict(groups)
    by_job: Counter[str] = Counter()
    for lease in spent.leases:
        by_job[lease["job"]] += held_us([lease])
    assert {row["job"]: row["worker_us"] for row in spent.usage["job"]} == dict(by_job)
    assert sum(row["worker_us"] for row in spent.usage["project"]) == held_us(spent.leases)
    assert {owner for _, owner, _ in told} == {"ann", "bob", "cleo"}


def test_what_is_told_of_a_job_is_what_its_history_says(spent):
    keys = ("lease_id", "worker_type", "workers", "start_s", "ended_s")
    for told in spent.told:
        own = [lease for lease in spent.leases if lease["job"] == told["job_id"]]
        found = [tuple(a[key] for key in keys) for a in told["attempts_made"]]
        assert found == [tuple(lease[key] for key in keys) for lease in own], told


def test_nothing_has_broken_underneath(spent):
    assert "n1" in spent.top
    for name, text in spent.logs.items():
        for sign in ("Traceback", "InvariantError", "a step of the scheduler failed"):
            assert sign not in text, f"{name}: {text[-3000:]}"
