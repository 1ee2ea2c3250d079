"""Connections to SQLite and PostgreSQL, with the settings that each of them needs."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from scheduler.errors import (
    ConflictError,
    InputError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    UnstorableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How long a writer waits for another writer before it gives up.
LOCK_TIMEOUT_S = 30
#: The first SQLite that can update rows from a list of values.
LEAST_SQLITE = (3, 33)
#: How much of a SQLite database its writer keeps in memory.
WRITER_PAGES_KB = 48 * 1024
#: Pages of 4 KB in SQLite's log before the writer itself moves them into the database.
WRITER_LOG_PAGES = 16 * 1024
_WRITES = "leasehold_writes"


def connect(url: str) -> Engine:
    """Return a pool of connections; each is opened when it is first needed.

    Args:
        url: ``sqlite:////var/lib/leasehold/leasehold.db`` or
            ``postgresql://user:password@host/database``.

    Raises:
        InputError: the URL names another database, or one in memory.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise InputError(f"database {url!r} is no URL; an example is sqlite:///jobs.db") from error
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _connect_sqlite(parsed)
    if backend in ("postgresql", "postgres"):
        return _connect_postgresql(parsed)
    raise InputError(f"database '{backend}' is not supported; give sqlite:/// or postgresql://")


def connect_writer(engine: Engine) -> Engine:
    """Return the pool that writers take connections from.

    SQLite caches pages for each connection separately. A round changes thousands of rows all over
    the database. So all writers, which wait for each other anyway, share one connection with a
    large cache. PostgreSQL caches pages for all connections: the pool is the same.
    """
    if engine.dialect.name != "sqlite":
        return engine
    writer = create_engine(
        engine.url,
        connect_args={"timeout": LOCK_TIMEOUT_S},
        pool_size=1,
        max_overflow=0,
        pool_timeout=LOCK_TIMEOUT_S,
    )
    event.listen(writer, "connect", _prepare_sqlite)
    event.listen(writer, "connect", _keep_pages)
    event.listen(writer, "begin", _begin_sqlite)
    return writer


def _keep_pages(connection: Any, _record: object) -> None:
    connection.execute(f"PRAGMA cache_size = -{WRITER_PAGES_KB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WRITER_LOG_PAGES}")


def _connect_sqlite(url: URL) -> Engine:
    if url.database in (None, "", ":memory:"):
        raise InputError(
            "a SQLite database in memory cannot be shared by threads; name a file, as in "
            "sqlite:///leasehold.db"
        )
    if sqlite3.sqlite_version_info < LEAST_SQLITE:
        raise InputError(
            f"Python has SQLite {sqlite3.sqlite_version} here, and "
            f"{'.'.join(map(str, LEAST_SQLITE))} is needed; install a newer one or take PostgreSQL"
        )
    _check_folder(url.database or "")
    _make_private(url.database or "")
    engine = create_engine(url, connect_args={"timeout": LOCK_TIMEOUT_S})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _check_folder(path: str) -> None:
    """Refuse a database that cannot be made; SQLite would name neither file nor folder.

    Raises:
        StoreUnavailableError: its folder does not exist.
    """
    folder = Path(path).absolute().parent
    if not path.startswith("file:") and not folder.is_dir():
        raise StoreUnavailableError(
            f"the database '{path}' cannot be made: there is no folder '{folder}'; make it, or "
            "name another file"
        )


def _make_private(path: str) -> None:
    """Create a new database as a file that only its owner may read: SQLite uses the umask.

    Files that SQLite creates beside it get the same mode. A file that exists keeps its own.
    """
    if path.startswith("file:"):
        return  # a URI
    # SQLite will report any problem.
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver must begin no transaction by itself: it would begin deferred ones.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout = {LOCK_TIMEOUT_S * 1000}",
        "journal_mode = WAL",
        "synchronous = FULL",  # commits are on the disk, even if the machine loses power
        "foreign_keys = ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A reader that becomes a writer fails at once with SQLITE_BUSY in spite of the timeout, so
    # writers declare it at the start.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _connect_postgresql(url: URL) -> Engine:
    """Return a pool that also works behind a pooler that shares connections by transaction.

    So nothing outlasts a transaction: no settings of a session, and no prepared statements.
    """
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": 10,
            # A dead server is given up while its leader still has time: by the system's own
            # settings a commit would wait for a quarter of an hour.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
            "application_name": "leasehold",
            "prepare_threshold": None,
        },
    )
    event.listen(engine, "begin", _begin_postgresql)
    return engine


def _begin_postgresql(connection: Connection) -> None:
    if connection.get_execution_options().get(_WRITES, False):
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'")


#: SQLite's names and PostgreSQL's code for a unique name or key that is in use.
_TAKEN = ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "23505")
#: PostgreSQL's code for a write that it takes only when it is no longer read-only.
_READ_ONLY = "25006"
#: Messages of SQLite and PostgreSQL if the disk is full.
_FULL = ("disk is full", "disk full", "no space left")


@contextmanager
def write_transaction(engine: Engine) -> Iterator[Connection]:
    """Run one writing transaction: committed at the end, rolled back on any error.

    Raises:
        StoreError: one of its kinds, for the database's refusal.
    """
    with translate_errors(), engine.execution_options(**{_WRITES: True}).begin() as connection:
        yield connection


@contextmanager
def read_transaction(engine: Engine, *, frozen: bool = False) -> Iterator[Connection]:
    """Run one reading transaction.

    Args:
        engine: the pool.
        frozen: whether all statements must see one moment. SQLite's always do.

    Raises:
        StoreError: one of its kinds, for the database's refusal.
    """
    if frozen and engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with translate_errors(), engine.begin() as connection:
        yield connection


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn the database's errors into the project's.

    Raises:
        StoreError: one of its kinds.
    """
    try:
        yield
    except IntegrityError as error:
        text = str(error.orig).strip()
        if "foreign key" in text.lower():
            raise StoreError(f"a row belongs to a job that is not stored: {text}") from error
        if _is_taken(error.orig):
            raise ConflictError(f"a unique name or key is taken: {text}") from error
        raise StoreError(f"the database refused: {text}") from error
    except (OperationalError, InterfaceError, PoolTimeoutError) as error:
        text = str(getattr(error, "orig", error)).strip()
        if any(sign in text.lower() for sign in _FULL):
            raise StoreFullError(f"the database's disk is full; make room: {text}") from error
        raise StoreUnavailableError(f"the database cannot be used now: {text}") from error
    except DataError as error:
        text = str(error.orig).strip()
        raise UnstorableError(f"the database cannot hold a given value: {text}") from error
    except (OverflowError, UnicodeError) as error:  # SQLite's driver raises these itself
        raise UnstorableError(f"the database cannot hold a given value: {error}") from error
    except DBAPIError as error:
        text = str(error.orig).strip()
        if getattr(error.orig, "sqlstate", "") == _READ_ONLY:
            raise StoreUnavailableError(
                f"the database is read-only, as a standby of PostgreSQL is: {text}; name the "
                "primary in store.url, or wait until this one is promoted"
            ) from error
        raise StoreError(f"the database refused: {text}") from error


def _is_taken(error: BaseException | None) -> bool:
    """Return whether a database refused a row because of a unique name or key."""
    kind = getattr(error, "sqlite_errorname", "") or getattr(error, "sqlstate", "")
    return kind in _TAKEN
