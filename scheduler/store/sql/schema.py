"""The schema of a database: its check, and its upgrade to this release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, inspect, select, text

from scheduler.errors import StoreVersionError
from scheduler.store.sql import tables
from scheduler.store.sql.databases import read_transaction, write_transaction

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

#: Revisions of the schema, oldest first. The last one is this release's.
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006")
#: Key of PostgreSQL's advisory lock under which one process at a time migrates.
_LOCK = 0x1EA5E401D


def check_schema(engine: Engine) -> None:
    """Refuse a schema that is not this release's.

    Raises:
        StoreVersionError: the schema is another one.
    """
    with read_transaction(engine) as connection:
        found = _revision(connection)
    if found != REVISIONS[-1]:
        raise StoreVersionError(
            f"the database's schema is {found or 'missing'} and this release needs "
            f"{REVISIONS[-1]}; open it with migrate=True"
        )


def upgrade_schema(engine: Engine) -> None:
    """Run the missing migrations, all in one transaction, one process at a time.

    Raises:
        StoreVersionError: the schema is of a newer release.
    """
    with read_transaction(engine) as connection:
        if _revision(connection) == REVISIONS[-1]:
            return
    with write_transaction(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        if _revision(connection) == REVISIONS[-1]:
            return  # another process was faster
        _upgrade(connection)
        if connection.execute(select(tables.HEAD.c.id)).first() is None:
            first = {"id": 1, "sequence": 0, "event_id": 0, "leader_token": 0}
            connection.execute(insert(tables.HEAD), first)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if found is not None and found not in REVISIONS:
        raise StoreVersionError(
            f"the database's schema is {found}, which this release does not know (it knows up to "
            f"{REVISIONS[-1]}); run the newer release"
        )
    return None if found is None else str(found)


def _upgrade(connection: Connection) -> None:
    # Imported here: a database that is up to date needs no alembic, and it is slow to import.
    from alembic import command  # noqa: PLC0415 - see above
    from alembic.config import Config  # noqa: PLC0415 - see above

    config = Config()
    folder = Path(__file__).with_name("migrations")
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, REVISIONS[-1])
