"""The ledger in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, and_, case, cast, func, not_, or_, select

from scheduler.domain.rows import AttemptRow, JobRow
from scheduler.store.forms import columns_of, from_columns, to_values
from scheduler.store.sql import tables
from scheduler.store.sql.bulk import upsert_rows
from scheduler.store.sql.databases import read_transaction
from scheduler.store.usage import (
    DAY_S,
    US,
    Sums,
    UsageKey,
    UsedRow,
    add_up,
    gpu_use_within,
    used_by,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Select
    from sqlalchemy.engine import Connection, Engine

    from scheduler.store.usage import UsageQuery, UsageRow

_JOBS, _ATTEMPTS, _USAGE = tables.JOBS.c, tables.ATTEMPTS.c, tables.USAGE.c
_SUMS = Sums._fields
_COMPUTED = _ATTEMPTS.gpu_used_us, _ATTEMPTS.gpu_measured_us
_COLUMNS: Mapping[UsageKey, ColumnElement[str]] = {
    UsageKey.PROJECT: _JOBS.project,
    UsageKey.OWNER: _JOBS.owner,
    UsageKey.JOB_TYPE: _JOBS.job_type,
    UsageKey.WORKER_TYPE: _ATTEMPTS.worker_type,
    UsageKey.JOB: _JOBS.job_id,
}


class SqlUsage:
    """The contract of ``Ledger`` in SQL."""

    _engine: Engine

    def usage(self, query: UsageQuery) -> tuple[UsageRow, ...]:
        """Add up the use in a window."""
        with read_transaction(self._engine, frozen=True) as connection:
            return add_up(query, _found(connection, query))


def remember_use(connection: Connection, job_ids: Sequence[str]) -> None:
    """Keep the use of jobs before they are deleted."""
    jobs = {
        row.job_id: from_columns(JobRow, row)
        for row in connection.execute(select(tables.JOBS).where(_JOBS.job_id.in_(job_ids)))
    }
    leases = select(tables.ATTEMPTS).where(_ATTEMPTS.job_id.in_(job_ids))
    attempts = (from_columns(AttemptRow, row) for row in connection.execute(leases))
    rows = to_values(UsedRow, used_by(jobs, attempts))
    upsert_rows(connection, tables.USAGE, columns_of(UsedRow), rows, added=_SUMS)


def _found(
    connection: Connection, query: UsageQuery
) -> Iterator[tuple[int, Mapping[UsageKey, str], Sums]]:
    keys = [key for key in query.by if key is not UsageKey.DAY]
    for day, begin, end in query.windows:
        statement = _of_leases(query, keys, begin, end, connection.dialect.name)
        for *texts, leases, held, used, measured in connection.execute(statement):
            sums = Sums(int(leases), int(held), int(used), int(measured))
            yield day, dict(zip(keys, texts, strict=True)), sums
        crossing = _across(query, keys, begin, end, connection.dialect.name)
        for row in connection.execute(crossing):
            attempt = from_columns(AttemptRow, row, ignore=len(keys))
            sums = Sums(0, 0, *gpu_use_within(attempt, begin, end))
            if sums.gpu_measured_us:
                yield day, dict(zip(keys, row, strict=False)), sums
    kept = [key for key in keys if key is not UsageKey.JOB]
    for day, *rest in connection.execute(_of_forgotten(query, kept)):
        texts, numbers = rest[: len(kept)], rest[len(kept) :]
        named = {UsageKey.JOB: ""} | dict(zip(kept, texts, strict=True))
        yield day if UsageKey.DAY in query.by else -1, named, Sums(*map(int, numbers))


def _of_leases(
    query: UsageQuery, keys: Sequence[UsageKey], begin: int, end: int, dialect: str
) -> Select[Any]:
    """Select the keys and sums of stored jobs, in one window.

    The GPU use is that of leases within the window; see ``_across``.
    """
    begun, ended = (_in_us(time_s, dialect) for time_s in (_ATTEMPTS.start_s, _ATTEMPTS.ended_s))
    since = case((begun < begin, begin), else_=begun)
    until = case((or_(ended.is_(None), ended > end), end), else_=ended)
    # Indices are stored as a JSON list of at least one.
    commas = func.replace(_ATTEMPTS.workers, ",", "")
    workers = func.length(_ATTEMPTS.workers) - func.length(commas) + 1
    columns: list[Any] = [_COLUMNS[key] for key in keys]
    within = _within(begin, end, dialect)
    statement: Select[Any] = (
        select(
            *columns,
            func.count(),
            func.sum((until - since) * workers),
            *(func.sum(case((within, whole), else_=0)) for whole in _COMPUTED),
        )
        .select_from(tables.ATTEMPTS.join(tables.JOBS, _JOBS.job_id == _ATTEMPTS.job_id))
        .where(
            or_(_ATTEMPTS.ended_s.is_(None), _ATTEMPTS.ended_s > begin / US),
            _ATTEMPTS.start_s < end / US,
            until > since,
        )
    )
    if query.projects is not None:
        statement = statement.where(_JOBS.project.in_(query.projects))
    if columns:
        return statement.group_by(*columns)
    return statement.having(func.count() > 0)


def _within(begin: int, end: int, dialect: str) -> ColumnElement[bool]:
    """Return the condition that a lease began and ended in a window."""
    begun, ended = (_in_us(time_s, dialect) for time_s in (_ATTEMPTS.start_s, _ATTEMPTS.ended_s))
    return and_(begun >= begin, _ATTEMPTS.ended_s.is_not(None), ended <= end)


def _across(
    query: UsageQuery, keys: Sequence[UsageKey], begin: int, end: int, dialect: str
) -> Select[Any]:
    """Select keys and rows of measured leases that lie in a window in part, or have not ended.

    They are few, and their shares of the window do not fit numbers of 64 bits in SQL.
    """
    columns: list[Any] = [_COLUMNS[key].label(f"key_{key.value}") for key in keys]
    columns += tables.ATTEMPTS.c
    statement: Select[Any] = (
        select(*columns)
        .select_from(tables.ATTEMPTS.join(tables.JOBS, _JOBS.job_id == _ATTEMPTS.job_id))
        .where(
            or_(_ATTEMPTS.ended_s.is_(None), _ATTEMPTS.ended_s > begin / US),
            _ATTEMPTS.start_s < end / US,
            _ATTEMPTS.gpu_measured_us > 0,
            not_(_within(begin, end, dialect)),
        )
    )
    if query.projects is not None:
        statement = statement.where(_JOBS.project.in_(query.projects))
    return statement


def _of_forgotten(query: UsageQuery, keys: Sequence[UsageKey]) -> Select[Any]:
    """Select day, keys and sums of deleted jobs."""
    columns = [_USAGE.day, *(_USAGE[key.value] for key in keys)]
    statement = (
        select(*columns, *(func.sum(_USAGE[name]) for name in _SUMS))
        .where(_USAGE.day >= query.from_s / DAY_S, _USAGE.day < query.to_s / DAY_S)
        .group_by(*columns)
    )
    if query.projects is not None:
        statement = statement.where(_USAGE.project.in_(query.projects))
    return statement


def _in_us(time_s: ColumnElement[Any], dialect: str) -> ColumnElement[int]:
    """Return a time in whole microseconds, rounded as Python does it."""
    exact = time_s * float(US)
    # SQLite cuts the fraction off, PostgreSQL rounds.
    return cast(exact if dialect == "sqlite" else func.floor(exact), BigInteger)
