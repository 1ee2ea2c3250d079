"""A store that is interrupted anywhere holds all of an entry or none of it, and goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from leasehold_testing import ON_PATH
from leasehold_testing.memory_store import MemoryStore
from leasehold_testing.stored import full_entry, lead
from scheduler.errors import SequenceError, StaleLeaderError, StoreUnavailableError
from scheduler.store.protocol import Snapshot, Store
from scheduler.store.queries import HistoryQuery, JobQuery
from scheduler.store.sql.store import SqlStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# A connection to PostgreSQL costs 8 ms, and each crash needs a new one.
CRASHES = {"sqlite": 1000, "postgresql": 250}


class Crash(BaseException):
    """The process dies here."""


class Saboteur:
    """Cuts a store's connection at the n-th of the points that it passes."""

    def __init__(self, store: SqlStore) -> None:
        self._left = -1
        engine = store._writer
        event.listen(engine, "before_cursor_execute", self._at_statement)
        event.listen(engine, "after_cursor_execute", self._at_statement)
        event.listen(engine, "commit", self._at_end)

    def after(self, points: int) -> None:
        self._left = points

    def _at_statement(self, connection: Any, *_: Any) -> None:
        self._at_end(connection)

    def _at_end(self, connection: Any) -> None:
        self._left -= 1
        if self._left == 0:
            # As if the process were gone: PostgreSQL sees a cut line. SQLite would keep a closed
            # connection's lock until the interrupted cursor is collected, and a dead one's not.
            raw = connection.connection.dbapi_connection
            if connection.dialect.name == "sqlite":
                raw.rollback()
            raw.close()
            raise Crash


def contents(store: Store) -> tuple[Any, ...]:
    """Return all that an entry can change, of the last ten."""
    jobs = store.jobs(JobQuery(limit=10)).rows
    recovered = store.load()
    return (
        jobs,
        tuple(store.attempts(job.job_id) for job in jobs),
        store.jobs_of_keys("ada", [job.job_id for job in jobs]),
        store.history(HistoryQuery(limit=20, descending=True)),
        store.head(),
        recovered.snapshot,
        tuple((e.sequence, e.now_s, repr(e.events)) for e in recovered.entries),
    )


def step(store: Store, sequence: int, token: int, *, forget: bool) -> None:
    store.commit(full_entry(sequence), token=token)
    if forget:
        store.write_snapshot(Snapshot(sequence=sequence, state=b"%d" % sequence), token=token)
        store.prune_finished(1e9, limit=10)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
def test_crashes_at_any_statement_lose_and_double_nothing(
    url: str, open_store: Callable[[str], SqlStore]
) -> None:
    store = open_store(url)
    witness = open_store(url)  # another process's eyes
    saboteur = Saboteur(store)
    model = MemoryStore()
    chance = random.Random(7)
    token, model_token = lead(store), lead(model)
    sequence, crashes, lost, kept = 1, 0, 0, 0
    planned = CRASHES[url.partition(":")[0]]
    while crashes < planned:
        forget = sequence % 5 == 0
        saboteur.after(chance.randint(1, 40))
        try:
            step(store, sequence, token, forget=forget)
        except Crash:
            crashes += 1
        saboteur.after(-1)
        committed = witness.head().sequence
        assert committed in {sequence - 1, sequence}
        lost, kept = lost + (committed < sequence), kept + (committed == sequence)
        if committed == sequence:
            model.commit(full_entry(sequence), token=model_token)
            sequence += 1
        if forget and committed == sequence - 1:
            # The snapshot may or may not have been reached; writing it again is harmless.
            for each, its in ((store, token), (model, model_token)):
                each.write_snapshot(Snapshot(sequence=committed, state=b"s"), token=its)
        if crashes % 50 == 0 or forget:
            assert contents(witness) == contents(model)
    assert lost > planned / 4
    assert kept > planned / 4
    # The next scheduler goes on from its end.
    later = open_store(url)
    token = lead(later)
    step(later, later.load().next_sequence, token, forget=True)
    with pytest.raises(StaleLeaderError):
        store.commit(full_entry(sequence + 1), token=token - 1)


WRITER = """
import sys
from scheduler.store.sql.store import SqlStore
from leasehold_testing.stored import full_entry, lead

store = SqlStore.open(sys.argv[1])
token = lead(store)
sequence = store.load().next_sequence
while True:
    print(store.commit(full_entry(sequence), token=token).sequence, flush=True)
    sequence += 1
"""


def test_a_killed_process_loses_nothing_that_was_acknowledged(
    url: str, open_store: Callable[[str], SqlStore]
) -> None:
    chance = random.Random(3)
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", ON_PATH + WRITER, url], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        first = int(writer.stdout.readline())
        time.sleep(chance.uniform(0.0, 0.2))
        os.kill(writer.pid, signal.SIGKILL)
        said = [first, *map(int, writer.stdout.read().split(b"\n")[:-1])]
        writer.wait()
        writer.stdout.close()
        store = open_store(url)
        # One more than was said may have been committed; it is whole.
        assert store.head().sequence - said[-1] in {0, 1}
        assert len(store.load().entries) == store.head().sequence
        assert store.head().event_id == 2 * store.head().sequence
        assert store.jobs(JobQuery(limit=1)).rows[0].number == store.head().sequence


RACER = """
import sys
from scheduler.errors import SequenceError
from scheduler.store.sql.store import SqlStore
from leasehold_testing.stored import full_entry

store = SqlStore.open(sys.argv[1])
won = 0
while (sequence := store.head().sequence + 1) <= 200:
    try:
        store.commit(full_entry(sequence), token=int(sys.argv[2]))
        won += 1
    except SequenceError:
        pass
print(won)
"""


def test_two_processes_on_one_database_take_turns(
    url: str, open_store: Callable[[str], SqlStore]
) -> None:
    store = open_store(url)
    arguments = [sys.executable, "-c", ON_PATH + RACER, url, str(lead(store))]
    racers = [subprocess.Popen(arguments, stdout=subprocess.PIPE) for _ in range(2)]
    won = [int(racer.communicate(timeout=60)[0]) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert sum(won) == 200
    assert [e.sequence for e in store.load().entries] == list(range(1, 201))
    rows = store.history(HistoryQuery(limit=1000))
    assert [row.event_id for row in rows] == list(range(1, 401))


def test_processes_that_open_an_empty_database_at_once_set_it_up_once(url: str) -> None:
    opening = (
        "import sys; from scheduler.store.sql.store import SqlStore; SqlStore.open(sys.argv[1])"
    )
    openers = [subprocess.Popen([sys.executable, "-c", opening, url]) for _ in range(3)]
    assert [opener.wait(timeout=60) for opener in openers] == [0, 0, 0]
    store = SqlStore.open(url, migrate=False)
    assert store.head().sequence == 0
    store.close()


def test_a_database_that_restarts_is_reported_and_then_used_again(
    postgres: Any, open_store: Callable[[str], SqlStore]
) -> None:
    store = open_store(postgres.new_database())
    token = lead(store)
    store.commit(full_entry(1), token=token)
    postgres.stop()
    with pytest.raises(StoreUnavailableError, match="cannot be used now"):
        store.commit(full_entry(2), token=token)
    postgres.start()
    assert store.head().sequence == 1
    store.commit(full_entry(2), token=token)
    with pytest.raises(SequenceError):
        store.commit(full_entry(2), token=token)


def test_a_locked_file_is_waited_for(tmp_path: Path, open_store: Callable[[str], SqlStore]) -> None:
    import threading

    url = f"sqlite:///{tmp_path}/store.db"
    store, other = open_store(url), open_store(url)
    token = lead(store)
    connection = other._engine.raw_connection()
    connection.cursor().execute("BEGIN IMMEDIATE")
    writer = threading.Thread(target=store.commit, args=(full_entry(1),), kwargs={"token": token})
    writer.start()
    writer.join(timeout=0.2)
    assert writer.is_alive()
    assert store.head().sequence == 0  # readers do not wait
    connection.rollback()
    connection.cursor().execute("ROLLBACK") if connection.dbapi_connection.in_transaction else None
    connection.close()
    writer.join(timeout=10)
    assert store.head().sequence == 1


def test_the_log_is_moved_into_the_database_beside_the_commits(
    tmp_path: Path, open_store: Callable[[str], SqlStore]
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    token = lead(store)
    for sequence in range(1, 30):
        store.commit(full_entry(sequence), token=token)
    assert store._checkpoints is not None
    store._checkpoints.soon()
    store._checkpoints.close()  # waits for what goes on
    (tmp_path / "copy.db").write_bytes((tmp_path / "store.db").read_bytes())
    moved = open_store(f"sqlite:///{tmp_path}/copy.db")
    assert moved.head().sequence >= 1
