"""What older releases have written, read by this one.

``releases/schema_NNNN.sql`` is the dump of a SQLite database that a scheduler of the first release
with that schema left behind when it was killed: a snapshot, journal entries behind it, five jobs of
which one runs, a policy, a project and tokens. A new revision adds a file and changes none;
``releases/leave_behind.py`` writes it.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from leasehold.config.load import load_config
from leasehold.daemon.settings import runtime_settings
from leasehold_testing.stored import entry, job_row
from planner.knowledge import LearnedKnowledge
from scheduler.domain.jobs.job import JobStatus
from scheduler.runtime.driver.snapshots import recover_state
from scheduler.store.filters import JobFilter
from scheduler.store.queries import HistoryQuery, JobQuery
from scheduler.store.sql.databases import write_transaction
from scheduler.store.sql.schema import REVISIONS, upgrade_schema
from scheduler.store.sql.store import SqlStore
from scheduler.store.sql.tables import METADATA

if TYPE_CHECKING:
    from collections.abc import Callable

DUMPS = sorted(Path(__file__).with_name("releases").glob("schema_*.sql"))


def restore(dump: Path, file: Path) -> str:
    """Make the database of a dump again; returns its URL."""
    connection = sqlite3.connect(file)
    connection.executescript(dump.read_text())
    connection.close()
    return f"sqlite:///{file}"


def objects(file: Path) -> set[str]:
    """Return the schema of a database, white space left out."""
    connection = sqlite3.connect(file)
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {re.sub(r"\s+", "", sql) for (sql,) in rows}


@pytest.fixture(params=DUMPS, ids=lambda dump: dump.stem)
def old(
    request: pytest.FixtureRequest, tmp_path: Path, open_store: Callable[[str], SqlStore]
) -> SqlStore:
    return open_store(restore(request.param, tmp_path / "old.db"))


def test_there_is_a_dump_of_every_schema() -> None:
    assert tuple(dump.stem.removeprefix("schema_") for dump in DUMPS) == REVISIONS


def test_an_upgraded_database_has_the_tables_of_a_new_one(old: SqlStore) -> None:
    with old._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
    upgrade_schema(old._engine)  # a second time changes nothing


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.stem)
def test_migrations_make_what_they_made_when_they_were_released(
    dump: Path, tmp_path: Path, open_store: Callable[[str], SqlStore]
) -> None:
    open_store(restore(dump, tmp_path / "old.db"))
    open_store(f"sqlite:///{tmp_path}/new.db")
    assert objects(tmp_path / "new.db") == objects(tmp_path / "old.db")


def test_rows_of_an_older_release_are_read(old: SqlStore) -> None:
    jobs = {job.name: job for job in old.jobs(JobQuery()).rows}
    statuses = {name: job.status.value for name, job in jobs.items()}
    assert statuses == {
        "done": "completed",
        "fails": "failed",
        "runs": "running",
        "held": "held",
        "later": "waiting",
    }
    assert jobs["runs"].spec["command"] == ["/bin/sleep", "60"]
    assert jobs["later"].spec["depends_on"] == [jobs["runs"].job_id]
    assert "one" in old.jobs_of_keys("admin", ["one"])
    assert [row.name for row in old.jobs(JobQuery(where=JobFilter(labels={"team": "a"}))).rows] == [
        "done"
    ]
    first, second = old.attempts(jobs["runs"].job_id)
    assert (first.end_reason, first.exit_code) == ("released", -15)
    assert old.open_attempts() == (second,)
    kinds = {line.kind for line in old.history(HistoryQuery())}
    assert {"job_submitted", "lease_granted", "policy_changed", "token_created"} <= kinds
    assert {(token.subject, token.role) for token in old.tokens()} == {
        ("admin", "admin"),
        ("laptop", "agent"),
        ("ann", "user"),
    }


def test_the_scheduler_goes_on_from_what_an_older_release_left(
    old: SqlStore, tmp_path: Path
) -> None:
    recovered = old.load()
    assert recovered.snapshot is not None
    assert recovered.entries
    settings = runtime_settings(load_config(environment={"XDG_CONFIG_HOME": str(tmp_path)}).config)
    state = recover_state(
        old,
        recovered,
        settings,
        knowledge=LearnedKnowledge,
        time_dependent=lambda _: False,
        term=7,
        now_s=recovered.entries[-1].now_s,
    )
    assert {record.spec.name: record.status for record in state.jobs.by_id.values()} == {
        "runs": JobStatus.RUNNING,
        "held": JobStatus.HELD,
        "later": JobStatus.WAITING,
    }
    (lease,), (attempt,) = state.leases.by_id.values(), old.open_attempts()
    assert lease.nodes == ("laptop",)
    assert lease.lease.lease_id == attempt.lease_id == state.engine.newest_lease
    assert (lease.lease.token, lease.lease.workers) == (attempt.token, attempt.workers)
    assert state.policy.choice.name == "max_throughput"
    assert state.jobs.limits["vision"].max_jobs == 5
    assert state.nodes.by_name["laptop"].types == ("v100", "v100", "k80")
    state.engine.check_invariants()


def test_an_older_database_can_be_written_to(old: SqlStore) -> None:
    leader = old.acquire_leadership("new", now_s=1e12, ttl_s=60.0)
    assert leader is not None
    number = old.load().next_sequence
    old.commit(entry(number, jobs=(job_row(100),)), token=leader.token)
    assert old.job("job-100") is not None


def test_a_leader_of_the_release_before_goes_on_writing_after_the_upgrade(url: str) -> None:
    """A standby of this release brings the schema up to date while the old one still leads."""
    store = SqlStore.open(url)
    with write_transaction(store._engine) as connection:
        known = "sequence, now_s, events"
        connection.exec_driver_sql(f"INSERT INTO journal ({known}) VALUES (1, 5.0, '[]')")
        connection.exec_driver_sql("UPDATE head SET sequence = 1")
    (found,) = store.load().entries
    assert (found.sequence, found.decider) == (1, 0)
    store.close()
