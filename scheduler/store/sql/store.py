"""The store in SQLite or PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.store.sql.checkpoints import WalCheckpoints
from scheduler.store.sql.databases import connect, connect_writer
from scheduler.store.sql.journal import SqlJournal
from scheduler.store.sql.queries import SqlQueries
from scheduler.store.sql.schema import check_schema, upgrade_schema
from scheduler.store.sql.tokens import SqlSecrets
from scheduler.store.sql.uploads import SqlUploads
from scheduler.store.sql.usage import SqlUsage

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine


class SqlStore(SqlJournal, SqlQueries, SqlUsage, SqlSecrets, SqlUploads):
    """The contract of ``Store`` in a database.

    With SQLite neither a killed process nor a loss of power loses a commit, since each commit waits
    for the disk. With PostgreSQL that depends on the settings of the server.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writer = connect_writer(engine)
        self._checkpoints = WalCheckpoints(engine) if engine.dialect.name == "sqlite" else None

    @classmethod
    def open(cls, url: str, *, migrate: bool = True) -> SqlStore:
        """Open a database, and bring its schema up to this release.

        Args:
            url: ``sqlite:///leasehold.db`` or ``postgresql://user:password@host/database``.
            migrate: whether to upgrade an older schema, or refuse it.

        Raises:
            InputError: the URL names another kind of database.
            StoreVersionError: the schema is newer than this release, or older and not upgraded.
            StoreUnavailableError: the database cannot be reached.
        """
        engine = connect(url)
        try:
            if migrate:
                upgrade_schema(engine)
            else:
                check_schema(engine)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine)

    def close(self) -> None:
        """Close the connections."""
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._writer.dispose()
        self._engine.dispose()
