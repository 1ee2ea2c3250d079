"""The stored schema: results of migrations, and their refusals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import scheduler.store
from leasehold_testing.stored import history_row
from scheduler.errors import InputError, StoreFullError, StoreUnavailableError, StoreVersionError
from scheduler.store.sql.databases import connect, write_transaction
from scheduler.store.sql.schema import REVISIONS
from scheduler.store.sql.store import SqlStore
from scheduler.store.sql.tables import METADATA


def test_migrations_make_the_tables_that_the_code_uses(url: str) -> None:
    store = SqlStore.open(url)
    with store._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
    store.close()


def test_every_revision_file_is_in_the_list() -> None:
    config = Config()
    config.set_main_option("path_separator", "os")
    folder = Path(next(iter(scheduler.store.__path__))) / "sql" / "migrations"
    config.set_main_option("script_location", str(folder))
    walked = ScriptDirectory.from_config(config).walk_revisions()
    assert tuple(step.revision for step in walked)[::-1] == REVISIONS


def test_a_database_of_a_newer_release_is_refused(url: str) -> None:
    store = SqlStore.open(url)
    with write_transaction(store._engine) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    store.close()
    for migrate in (True, False):
        with pytest.raises(StoreVersionError, match="9999, which this release does not know"):
            SqlStore.open(url, migrate=migrate)


def test_an_empty_database_is_refused_where_migrations_are_not_allowed(url: str) -> None:
    with pytest.raises(StoreVersionError, match="schema is missing"):
        SqlStore.open(url, migrate=False)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("", "is no URL"),
        ("mysql://x/y", "'mysql' is not supported"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
    ],
)
def test_a_database_of_another_kind_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        connect(url)


def test_a_database_out_of_reach_is_reported(tmp_path: Path) -> None:
    for url, said in (
        (f"sqlite:///{tmp_path}/no/x.db", f"'{tmp_path}/no/x.db' cannot be made: .* no folder"),
        (f"postgresql://x@/y?host={tmp_path}", "cannot be used now"),
    ):
        with pytest.raises(StoreUnavailableError, match=said):
            SqlStore.open(url)


def test_a_full_disk_is_told_apart(tmp_path: Path) -> None:
    engine = connect(f"sqlite:///{tmp_path}/small.db")
    with write_transaction(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE t (x BLOB)")
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # no more than there are

    def fill() -> None:
        with write_transaction(engine) as connection:
            connection.exec_driver_sql("INSERT INTO t VALUES (zeroblob(100000))")

    with pytest.raises(StoreFullError, match="disk is full; make room"):
        fill()
    engine.dispose()


def test_a_sqlite_database_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqlStore.open(f"sqlite:///{tmp_path}/store.db")
        store.append_history((history_row("alpha", subject_kind="node"),))
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert modes.pop("store.db") == 0o600
    assert set(modes.values()) <= {0o600}  # what SQLite keeps beside it


def test_a_sqlite_that_is_too_old_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 26, 0))
    with pytest.raises(InputError, match=r"3\.33 is needed"):
        SqlStore.open(f"sqlite:///{tmp_path}/store.db")
    assert not (tmp_path / "store.db").exists()
