"""Uploaded trees of code in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, exists, func, insert, select, update

from scheduler.errors import ConflictError
from scheduler.store.sql import tables
from scheduler.store.sql.databases import read_transaction, write_transaction
from scheduler.store.uploads import ACTIVE, AT_ONCE, in_spec

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

    from scheduler.store.uploads import UploadLimits

_UPLOADS, _JOBS = tables.UPLOADS.c, tables.JOBS.c


class SqlUploads:
    """The contract of ``Uploads`` in SQL."""

    _engine: Engine
    _writer: Engine

    def keep_upload(
        self, project: str, digest: str, content: bytes, *, now_s: float, limits: UploadLimits
    ) -> bool:
        """Store a tree; False if it is stored already."""
        row = {"project": project, "digest": digest, "size": len(content), "content": content}
        try:
            with write_transaction(self._writer) as connection:
                touched = update(tables.UPLOADS).where(*_which(project, digest))
                if connection.execute(touched.values(used_s=now_s)).rowcount:
                    return False
                total = func.coalesce(func.sum(_UPLOADS.size), 0)
                all_, own = (
                    int(connection.execute(statement).scalar_one())
                    for statement in (
                        select(total),
                        select(total).where(_UPLOADS.project == project),
                    )
                )
                limits.check(project, len(content), own=own, all_=all_)
                connection.execute(insert(tables.UPLOADS), row | {"made_s": now_s, "used_s": now_s})
        except ConflictError:  # another request sent it at the same moment
            return False
        return True

    def use_upload(self, project: str, digest: str, *, now_s: float) -> int | None:
        """Note that a tree is asked for; return its size, None if it is not stored."""
        with write_transaction(self._writer) as connection:
            touched = update(tables.UPLOADS).where(*_which(project, digest))
            connection.execute(touched.values(used_s=now_s))
            size = select(_UPLOADS.size).where(*_which(project, digest))
            return connection.execute(size).scalar()

    def upload(self, project: str, digest: str) -> bytes | None:
        """Return a tree, None if it is not stored."""
        statement = select(_UPLOADS.content).where(*_which(project, digest))
        with read_transaction(self._engine) as connection:
            found = connection.execute(statement).scalar()
        return None if found is None else bytes(found)

    def drop_uploads(self, *, before_s: float, now_s: float) -> int:
        """Drop trees that no request has asked for since a time, and that no job needs."""
        old = select(_UPLOADS.project, _UPLOADS.digest).where(_UPLOADS.used_s < before_s)
        dropped = 0
        with write_transaction(self._writer) as connection:
            for project, digest in connection.execute(old.limit(AT_ONCE)).all():
                needed = exists().where(
                    _JOBS.project == project,
                    _JOBS.status.in_(ACTIVE),
                    _JOBS.spec.contains(in_spec(digest), autoescape=True),
                )
                if connection.execute(select(needed)).scalar():
                    kept = update(tables.UPLOADS).where(*_which(project, digest))
                    connection.execute(kept.values(used_s=now_s))
                else:
                    connection.execute(delete(tables.UPLOADS).where(*_which(project, digest)))
                    dropped += 1
        return dropped


def _which(project: str, digest: str) -> tuple[Any, Any]:
    return _UPLOADS.project == project, _UPLOADS.digest == digest
