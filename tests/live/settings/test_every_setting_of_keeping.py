"""A change of any setting of storage, retention, the solver or throughputs has an effect."""

import asyncio
import base64
import contextlib
import tempfile
from pathlib import Path
from unittest import mock

import pytest

from leasehold.daemon.serve import _wait_for_store, _warm_solver, open_store
from leasehold_testing.effects import Entry, check_effect, check_table, settings_of
from leasehold_testing.output import read_whole
from leasehold_testing.packed_code import packed_code
from leasehold_testing.played import configured, outcome, played
from leasehold_testing.served import served
from policies.testing import make_problem, make_table
from scheduler.control.facts.requests import PolicyChoice
from scheduler.errors import LeaseholdError, SolveError, StoreUnavailableError
from scheduler.logs.output import LogWanted
from scheduler.runtime.solver import Failure, _Seat
from scheduler.store.queries import HistoryQuery
from traces.tables.throughputs import THROUGHPUT_COLUMNS

KEY = base64.urlsafe_b64encode(bytes(32)).decode()
DAY_S = 86_400.0


def setting(key, first, second, observe, *, told=None, **beside):
    """Return the entry of a setting with two texts of it; ``beside`` are others, with ``__``.

    ``told`` is the rest of the entry. What an observation writes is in an empty folder, which both
    texts name ``{folder}``.
    """
    given = {name.replace("__", "."): text for name, text in beside.items()}

    def shown(text):
        with tempfile.TemporaryDirectory(prefix="lh-") as folder:
            (Path(folder) / "keys").write_text(KEY)
            (Path(folder) / "table.csv").write_text(TABLE)
            (Path(folder) / "bad.yaml").write_text("npu: {memory_gb: -1}")
            texts = {"state_dir": folder} | given | {key: text}
            here = {name: one.replace("{folder}", folder) for name, one in texts.items()}
            return observe(configured(here))

    return key, Entry((first, second), shown, **told or {})


TABLE = f"{','.join(THROUGHPUT_COLUMNS)}\na,1,v100,10,,,\n"


# -- where things are kept -------------------------------------------------------------------------


def files(config):
    """Return which files a daemon leaves behind, by folder."""

    async def talk(_running, _client):
        return None

    served(config, talk)
    folder = Path(config.state_dir).parent
    found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return sorted(str(path) for path in found if path.suffix in {".db", ".token"})


def waited(config):
    """Return the notes on the error if a database server never answers."""
    with pytest.raises(StoreUnavailableError) as raised:
        asyncio.run(_wait_for_store(config, asyncio.Event()))
    return getattr(raised.value, "__notes__", [])


def opened(config):
    """Return whether a daemon opens a database that has no schema yet."""
    try:
        open_store(config, migrate=config.store.migrate).close()
    except LeaseholdError as error:
        return str(error)
    return "open"


def snapshots(config):
    """Return whether a snapshot was written when some jobs have come."""

    async def story(stage):
        before = stage.store.load().snapshot
        for name in "abc":
            await stage.job(name)
        return stage.store.load().snapshot == before

    return played(story, config)


def sealed(config):
    """Return whether a job with a secret variable is taken."""

    async def story(stage):
        job = {"name": "a", "command": ["x"], "secret_env": {"TOKEN": "t"}}
        return (await stage.request("POST", "/v1/jobs", json=job)).status_code

    return played(story, config)


def leader(config):
    """Return whether a leader that has just begun may be silent for long."""

    async def talk(running, _client):
        return running.store.leader().expires_s > running.clock.now_s() + 100.0

    return served(config, talk)


# -- retention and limits --------------------------------------------------------------------------


def forgotten(left, *, after_s):
    """Return an observation: whether something of an ended job is left after a time."""

    def observe(config):
        async def story(stage):
            digest, code = packed_code()
            await stage.request("PUT", f"/v1/uploads/{digest}", json=code)
            await stage.job("job", total_steps=5.0)
            await stage.wait(10)
            stage.service._retention.forget(stage.clock.now_s() + after_s)
            return await left(stage, digest)

        return played(story, config)

    return observe


async def jobs_left(stage, _digest):
    return stage.store.job("job") is not None


async def history_left(stage, _digest):
    return len(stage.store.history(HistoryQuery(limit=1000)))


async def code_left(stage, digest):
    return (await stage.request("GET", f"/v1/uploads/{digest}")).status_code


def output(config):
    """Return how much of a job's output is kept."""

    async def story(stage):
        await stage.job("job")
        await stage.wait(2)
        (lease,) = await stage.launched()
        for i in range(20):
            await stage.do(
                stage.service.append_log(
                    "n0",
                    lease.lease_id,
                    "out",
                    offset=1000 * i,
                    data=b"x" * 1000,
                    nonce=lease.nonce,
                )
            )
        wanted = LogWanted(attempt=None, stream="both", tail_bytes=None)
        return sum(len(one.data) for one in await read_whole(stage.service, "job", wanted))

    return played(story, config)


def uploaded(*sizes):
    """Return an observation: how uploads of some sizes to two projects are answered."""

    def observe(config):
        async def story(stage):
            answers = []
            for i, (project, size) in enumerate(sizes):
                digest, code = packed_code(size, seed=i)
                path = f"/v1/uploads/{digest}"
                answers.append(await stage.request("PUT", path, json=code | {"project": project}))
            return [answer.status_code for answer in answers]

        return played(story, config)

    return observe


# -- the solver and throughputs --------------------------------------------------------------------


def at_once(config):
    """Return how many processes the solver has for questions."""
    seats = set()

    def ask(seat, _question, _deadline_s):
        seats.add(seat)
        return Failure(reason="no answer")

    asyncio.run(asked(config, ask))
    return len(seats)


def deadline(config):
    """Return how long a process may take for an answer."""
    given = []

    def ask(_seat, question, deadline_s):
        given.extend([deadline_s] if question.problem is not None else [])
        return Failure(reason="no answer")

    asyncio.run(asked(config, ask))
    return given


async def asked(config, ask):
    """Ask the solver of a configuration a question, once all its processes were tried out."""
    problem = make_problem(make_table([[1.0]]), capacity=[1])
    with mock.patch.object(_Seat, "ask", ask):
        async with _warm_solver(config) as (solver, warm):
            await warm.wait()
            with contextlib.suppress(SolveError):
                await solver.solve(PolicyChoice(name="fifo"), problem)


def throughputs(config):
    """Return a service's throughputs after a job was faster than declared."""

    async def shown(stage):
        return (await stage.request("GET", "/v1/throughputs")).json()

    return outcome(config, {}, for_s=30, shown=shown, rate=lambda *_: 1.2)


def moved(config):
    """Return the leases of a job that is slower than declared on the type that seems faster."""

    def rate(_job, kind, *_):
        return 0.5 if kind == "k80" else 1.0

    job = {"throughputs": {"v100": 1.0, "k80": 1.5}}
    return outcome(config, job, nodes={"n0": ("v100",), "n1": ("k80",)}, rate=rate)


def declared(config):
    """Return the throughputs that a daemon declares at its start."""

    async def talk(_running, client):
        async with asyncio.timeout(60.0):
            while config.throughputs.path:
                if found := (await client.get("/v1/throughputs")).json().get("throughputs"):
                    return len(found)
                await asyncio.sleep(0.02)
        return 0

    return served(config, talk)


SQLITE = "sqlite:///{folder}/"
AWAY = "postgresql://nobody@127.0.0.1:9/none"
WORKERS = {"composed": "the processes are replaced: they take seconds to start"}
REFUSED = {"refused": True}
PORT = {"server__port": "0"}
ENTRIES = dict(
    [
        setting("state_dir", "{folder}/a", "{folder}/b", files, **PORT),
        setting(
            "store.url", f"{SQLITE}a.db", f"{SQLITE}b.db", files, state_dir="{folder}/s", **PORT
        ),
        setting("store.wait_s", "0", "0.3", waited, store__url=AWAY),
        setting("store.migrate", "yes", "no", opened),
        setting("store.snapshot_entries", "1", "1000", snapshots),
        setting("secrets.key_file", "none", "{folder}/keys", sealed),
        setting("secrets.keys", "none", KEY, sealed),
        setting("solver.workers", "1", "2", at_once, told=WORKERS),
        setting("solver.deadline_s", "30", "60", deadline, told=WORKERS),
        setting("retention.finished_days", "10", "30", forgotten(jobs_left, after_s=20 * DAY_S)),
        setting("retention.history_days", "10", "30", forgotten(history_left, after_s=20 * DAY_S)),
        setting("retention.log_bytes", "4096", "8192", output),
        setting("uploads.max_bytes", "2000", "9000", uploaded(("a", 5000))),
        setting("uploads.max_project_bytes", "7000", "20000", uploaded(("a", 5000), ("a", 5000))),
        setting("uploads.max_total_bytes", "7000", "20000", uploaded(("a", 5000), ("b", 5000))),
        setting("uploads.keep_s", "60", "9000", forgotten(code_left, after_s=600.0)),
        setting("leadership.ttl_s", "15", "600", leader, **PORT),
        setting("throughputs.path", "none", "{folder}/table.csv", declared, **PORT),
        setting(
            "throughputs.hardware", "none", "{folder}/bad.yaml", declared, told=REFUSED, **PORT
        ),
        setting("throughputs.learn", "yes", "no", throughputs),
        setting("throughputs.least_s", "5", "500", throughputs),
        setting("throughputs.tolerance", "0.05", "0.9", moved),
        setting("throughputs.sources", "", "nonsense", declared, told=REFUSED, **PORT),
    ]
)


def test_every_setting_has_an_entry():
    check_table(ENTRIES, settings_of("keeping"))


@pytest.mark.parametrize("key", ENTRIES)
def test_a_setting_changes_what_is_kept(key):
    check_effect(key, ENTRIES[key])
