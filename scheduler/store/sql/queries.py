"""Lists, histories and retention in a database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, bindparam, case, delete, func, or_, select

from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.rows import AttemptRow, HistoryRow, IdempotencyRow, JobRow, SettingRow
from scheduler.store.filters import FILTERS, array_prefix
from scheduler.store.forms import from_columns
from scheduler.store.queries import SORT_KEYS, JobPage, make_cursor, read_cursor
from scheduler.store.sql import tables
from scheduler.store.sql.databases import read_transaction, write_transaction
from scheduler.store.sql.usage import remember_use

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sqlalchemy import ColumnElement, Select
    from sqlalchemy.engine import Engine

    from scheduler.store.filters import JobFilter
    from scheduler.store.queries import AttemptQuery, HistoryQuery, JobKey, JobQuery, Position

_JOBS = tables.JOBS.c
_ATTEMPTS = tables.ATTEMPTS.c
_HISTORY = tables.HISTORY.c
#: SQLite takes 32,766 parameters in a statement, older ones 999.
_KEYS_AT_ONCE = 900
#: Of every submission: building a statement takes longer than running it.
_BY_KEYS = select(tables.IDEMPOTENCY).where(
    tables.IDEMPOTENCY.c.scope == bindparam("in_scope"),
    tables.IDEMPOTENCY.c.key.in_(bindparam("keys", expanding=True)),
)
_ENDED = frozenset({JobStatus.COMPLETED, JobStatus.CANCELLED, JobStatus.FAILED, JobStatus.REFUSED})


class SqlQueries:
    """The contract of ``Queries`` in SQL."""

    _engine: Engine

    def job(self, job_id: str) -> JobRow | None:
        """Return a job, or None."""
        with read_transaction(self._engine) as connection:
            found = connection.execute(select(tables.JOBS).where(_JOBS.job_id == job_id)).first()
        return None if found is None else from_columns(JobRow, found)

    def jobs(self, query: JobQuery) -> JobPage:
        """Return a page of a list of jobs."""
        statement = _page(query, read_cursor(query))
        with read_transaction(self._engine) as connection:
            found = connection.execute(statement).all()
        rows = tuple(from_columns(JobRow, columns) for columns in found[: query.limit])
        more = len(found) > query.limit
        return JobPage(rows=rows, next_cursor=make_cursor(query, rows[-1]) if more else None)

    def job_ids(self, where: JobFilter, *, most: int) -> tuple[str, ...]:
        """Return the ids of jobs, oldest first, and at most so many."""
        statement = select(_JOBS.job_id).where(*_conditions(where)).order_by(_JOBS.number)
        with read_transaction(self._engine) as connection:
            return tuple(connection.execute(statement.limit(most)).scalars())

    def count_jobs(self, where: JobFilter, by: JobKey) -> Mapping[str, Mapping[JobStatus, int]]:
        """Return how many jobs of each status each project, owner or job type has."""
        key = _JOBS[by.value]
        statement = select(key, _JOBS.status, func.count()).where(*_conditions(where))
        found: dict[str, dict[JobStatus, int]] = {}
        with read_transaction(self._engine) as connection:
            for value, status, count in connection.execute(statement.group_by(key, _JOBS.status)):
                found.setdefault(value, {})[JobStatus(status)] = count
        return found

    def jobs_of_keys(self, scope: str, keys: Collection[str]) -> Mapping[str, IdempotencyRow]:
        """Return the jobs of clients' keys."""
        wanted = sorted(keys)
        found: dict[str, IdempotencyRow] = {}
        with read_transaction(self._engine) as connection:
            for first in range(0, len(wanted), _KEYS_AT_ONCE):
                some = wanted[first : first + _KEYS_AT_ONCE]
                for columns in connection.execute(_BY_KEYS, {"in_scope": scope, "keys": some}):
                    row = from_columns(IdempotencyRow, columns)
                    found[row.key] = row
        return found

    def attempt(self, lease_id: int) -> AttemptRow | None:
        """Return a lease, or None."""
        found = self._attempts_where(_ATTEMPTS.lease_id == lease_id)
        return found[0] if found else None

    def attempts(self, job_id: str) -> tuple[AttemptRow, ...]:
        """Return the job's leases, oldest first."""
        return self._attempts_where(_ATTEMPTS.job_id == job_id)

    def projects_of(self, job_ids: Collection[str]) -> Mapping[str, str]:
        """Return job -> project, of the jobs that exist."""
        wanted, found = sorted(job_ids), dict[str, str]()
        with read_transaction(self._engine) as connection:
            for first in range(0, len(wanted), _KEYS_AT_ONCE):
                some = _JOBS.job_id.in_(wanted[first : first + _KEYS_AT_ONCE])
                rows = connection.execute(select(_JOBS.job_id, _JOBS.project).where(some))
                found.update((job_id, project) for job_id, project in rows)
        return found

    def run_times(self, job_ids: Collection[str], *, now_s: float) -> Mapping[str, float]:
        """Return job -> seconds for which its leases held workers."""
        wanted, found = sorted(job_ids), dict[str, float]()
        held_s = func.coalesce(_ATTEMPTS.ended_s, now_s) - _ATTEMPTS.start_s
        total_s = func.sum(case((held_s > 0.0, held_s), else_=0.0))
        with read_transaction(self._engine) as connection:
            for first in range(0, len(wanted), _KEYS_AT_ONCE):
                some = _ATTEMPTS.job_id.in_(wanted[first : first + _KEYS_AT_ONCE])
                statement = select(_ATTEMPTS.job_id, total_s).where(some)
                rows = connection.execute(statement.group_by(_ATTEMPTS.job_id))
                found.update((job_id, float(seconds)) for job_id, seconds in rows)
        return found

    def newest_times(self, job_ids: Collection[str], kinds: Collection[str]) -> Mapping[str, float]:
        """Return job -> time of its newest line of history of these kinds."""
        newest = select(_HISTORY.at_s).where(
            _HISTORY.subject_kind == "job",
            _HISTORY.subject == _JOBS.job_id,
            _HISTORY.kind.in_(sorted(kinds)),
        )
        newest = newest.order_by(_HISTORY.event_id.desc()).limit(1)
        statement = select(_JOBS.job_id, newest.scalar_subquery())
        wanted, found = sorted(job_ids), dict[str, float]()
        with read_transaction(self._engine) as connection:
            for first in range(0, len(wanted), _KEYS_AT_ONCE):
                some = _JOBS.job_id.in_(wanted[first : first + _KEYS_AT_ONCE])
                rows = connection.execute(statement.where(some))
                found.update((job_id, at_s) for job_id, at_s in rows if at_s is not None)
        return found

    def newest_attempts(self, query: AttemptQuery) -> tuple[AttemptRow, ...]:
        """Return a page of leases, newest first."""
        statement = select(tables.ATTEMPTS)
        if query.since_s is not None:
            ended_s = _ATTEMPTS.ended_s
            statement = statement.where(or_(ended_s.is_(None), ended_s > query.since_s))
        if query.until_s is not None:
            statement = statement.where(_ATTEMPTS.start_s < query.until_s)
        if query.nodes:
            # Names are stored as a JSON list. LIKE does not work: SQLite's ignores case, and _
            # matches any character.
            place = func.instr if self._engine.dialect.name == "sqlite" else func.strpos
            named = (place(_ATTEMPTS.nodes, json.dumps(node)) > 0 for node in query.nodes)
            statement = statement.where(or_(*named))
        if query.projects:
            statement = statement.join(tables.JOBS, _JOBS.job_id == _ATTEMPTS.job_id)
            statement = statement.where(_JOBS.project.in_(query.projects))
        if query.before_id is not None:
            statement = statement.where(_ATTEMPTS.lease_id < query.before_id)
        statement = statement.order_by(_ATTEMPTS.lease_id.desc()).limit(query.limit)
        with read_transaction(self._engine) as connection:
            found = connection.execute(statement).all()
        return tuple(from_columns(AttemptRow, columns) for columns in found)

    def open_attempts(self) -> tuple[AttemptRow, ...]:
        """Return every lease that has not ended, by lease id."""
        return self._attempts_where(_ATTEMPTS.ended_s.is_(None))

    def _attempts_where(self, condition: ColumnElement[bool]) -> tuple[AttemptRow, ...]:
        statement = select(tables.ATTEMPTS).where(condition).order_by(_ATTEMPTS.lease_id)
        with read_transaction(self._engine) as connection:
            found = connection.execute(statement).all()
        return tuple(from_columns(AttemptRow, columns) for columns in found)

    def history(self, query: HistoryQuery) -> tuple[HistoryRow, ...]:
        """Return lines of history."""
        order = _HISTORY.event_id.desc() if query.descending else _HISTORY.event_id
        statement = select(tables.HISTORY).where(_HISTORY.event_id > query.after_id)
        if query.before_id is not None:
            statement = statement.where(_HISTORY.event_id < query.before_id)
        if query.subject_kind:
            statement = statement.where(_HISTORY.subject_kind == query.subject_kind)
        if query.subject:
            statement = statement.where(_HISTORY.subject == query.subject)
        if query.kinds:
            statement = statement.where(_HISTORY.kind.in_(query.kinds))
        if query.without:
            statement = statement.where(_HISTORY.subject_kind.not_in(query.without))
        if query.actor:
            statement = statement.where(_HISTORY.actor == query.actor)
        if query.since_s is not None:
            statement = statement.where(_HISTORY.at_s >= query.since_s)
        if query.until_s is not None:
            statement = statement.where(_HISTORY.at_s < query.until_s)
        with read_transaction(self._engine) as connection:
            found = connection.execute(statement.order_by(order).limit(query.limit)).all()
        return tuple(from_columns(HistoryRow, columns) for columns in found)

    def settings(self, prefix: str = "") -> tuple[SettingRow, ...]:
        """Return the settings with keys that begin with ``prefix``, by key."""
        key = tables.SETTINGS.c.key
        # Not LIKE: SQLite's ignores case.
        begins = func.substr(key, 1, len(prefix)) == prefix
        with read_transaction(self._engine) as connection:
            found = connection.execute(select(tables.SETTINGS).where(begins).order_by(key)).all()
        return tuple(from_columns(SettingRow, columns) for columns in found)

    def prune_finished(self, before_s: float, *, limit: int) -> int:
        """Delete jobs that ended before a time, oldest first."""
        old = (
            select(_JOBS.job_id)
            .where(_JOBS.finished_s < before_s)
            .order_by(_JOBS.finished_s, _JOBS.number)
            .limit(limit)
        )
        with write_transaction(self._engine) as connection:
            gone = list(connection.execute(old).scalars())
            remember_use(connection, gone)
            connection.execute(
                delete(tables.HISTORY).where(
                    _HISTORY.subject_kind == "job", _HISTORY.subject.in_(gone)
                )
            )
            connection.execute(delete(tables.JOBS).where(_JOBS.job_id.in_(gone)))
        return len(gone)

    def prune_history(self, before_s: float, *, limit: int) -> int:
        """Delete lines of history older than a time, oldest first."""
        old = (
            select(_HISTORY.event_id)
            .where(_HISTORY.at_s < before_s)
            .order_by(_HISTORY.at_s, _HISTORY.event_id)
            .limit(limit)
        )
        with write_transaction(self._engine) as connection:
            statement = delete(tables.HISTORY).where(_HISTORY.event_id.in_(old))
            return connection.execute(statement).rowcount


def _page(query: JobQuery, start: Position | None) -> Select[Any]:
    name = SORT_KEYS[query.order]
    key = _JOBS[name]
    statement = select(tables.JOBS).where(*_conditions(query.where, name), key.is_not(None))
    if start is not None:
        statement = statement.where(_after(key, start, descending=query.descending))
    columns = (_JOBS.number,) if name == "number" else (key, _JOBS.number)
    order = [column.desc() if query.descending else column.asc() for column in columns]
    return statement.order_by(*order).limit(query.limit + 1)


def _after(key: Any, start: Position, *, descending: bool) -> ColumnElement[bool]:
    number: Any = _JOBS.number
    if descending:
        beyond, tied = key < start.value, number < start.number
    else:
        beyond, tied = key > start.value, number > start.number
    # The first condition follows from the second; it lets the database use an index.
    entered = key <= start.value if descending else key >= start.value
    return and_(entered, or_(beyond, and_(key == start.value, tied)))


def _begins(column: Any, text: str) -> ColumnElement[bool]:
    found: ColumnElement[bool] = func.substr(column, 1, len(text)) == text
    return found


def _conditions(where: JobFilter, sort_key: str = "number") -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    for one in FILTERS:
        wanted: Any = getattr(where, one.attribute)
        column: Any = _JOBS[one.name]
        if not wanted:
            continue
        if one.name == "status" and sort_key != "number" and not _ENDED.isdisjoint(wanted):
            # Nearly all jobs have ended: SQLite would fetch and sort them by way of the index on
            # the status (64 ms of 100,000). An expression keeps it to that of the order (2 ms).
            column = column.concat("")
        agrees = column.in_([*map(str, wanted)]) if one.most else column == wanted
        elements = [_begins(column, array_prefix(name)) for name in wanted] if one.arrays else []
        conditions.append(or_(agrees, *elements))
    if where.called:
        named = _JOBS.name == where.called, _begins(_JOBS.name, array_prefix(where.called))
        conditions.append(or_(_begins(_JOBS.job_id, where.called), *named))
    labels = tables.JOB_LABELS.c
    for key, value in where.labels.items():
        labelled = select(labels.number).where(labels.key == key, labels.value == value)
        conditions.append(_JOBS.number.in_(labelled))
    return conditions
