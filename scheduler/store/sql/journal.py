"""The journal, its snapshots and the leader in a database."""

from __future__ import annotations

import time
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, extract, func, insert, select, update

from scheduler.domain.rows import (
    AttemptRow,
    HistoryRow,
    IdempotencyRow,
    JobRow,
    JobState,
    LeaseUse,
    SettingRow,
)
from scheduler.errors import SequenceError, StoreError, StoreVersionError
from scheduler.store.checks import (
    check_entry,
    check_leader,
    check_next,
    check_snapshot,
    next_token,
    still_leads,
)
from scheduler.store.forms import (
    columns_of,
    events_from_json,
    events_to_json,
    to_columns,
    to_values,
)
from scheduler.store.protocol import Head, JournalEntry, Recovered, Snapshot
from scheduler.store.rows import Leadership
from scheduler.store.sql import tables
from scheduler.store.sql.bulk import insert_rows, update_rows, upsert_rows
from scheduler.store.sql.databases import read_transaction, write_transaction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import Connection, Engine
    from sqlalchemy.engine import Row as SqlRow

    from scheduler.domain.rows import LeaseExtension, Projections
    from scheduler.store.protocol import Entry
    from scheduler.store.sql.checkpoints import WalCheckpoints

#: SQLite takes 32,766 parameters in a statement, older ones 999.
KEYS_AT_ONCE = 900
#: Journal entries that one transaction drops, and the pause before the next.
DROPPED_AT_ONCE, DROP_PAUSE_S = 10, 0.01
#: Statements of every commit: building one takes longer than running it.
_READ_HEAD = select(tables.HEAD)
_LOCK_HEAD = _READ_HEAD.with_for_update(key_share=True)
_MOVE_HEAD = update(tables.HEAD).values(
    sequence=bindparam("to_sequence"), event_id=bindparam("to_event_id")
)
_APPEND = insert(tables.JOURNAL)
_DROP_LABELS = delete(tables.JOB_LABELS).where(
    tables.JOB_LABELS.c.job_id.in_(bindparam("job_ids", expanding=True))
)
#: Columns of a job's state that hardly any turn changes, and that are indexed.
_SELDOM = ("weight", "finished_s", "deadline_s")


class SqlJournal:
    """The contract of ``Journal`` in SQL; every writer locks the table ``head`` first."""

    _engine: Engine
    _writer: Engine
    _checkpoints: WalCheckpoints | None

    def load(self) -> Recovered:
        """Return the last snapshot and the later entries."""
        with read_transaction(self._engine, frozen=True) as connection:
            head = _read_head(connection)
            stored = connection.execute(select(tables.SNAPSHOT)).one_or_none()
            journal = tables.JOURNAL
            first = stored.sequence + 1 if stored is not None else 1
            later = select(journal).where(journal.c.sequence >= first)
            entries = connection.execute(later.order_by(journal.c.sequence)).all()
        snapshot = None
        if stored is not None:
            snapshot = Snapshot(sequence=stored.sequence, state=bytes(stored.state))
        expected = list(range(first, head.sequence + 1))
        if [entry.sequence for entry in entries] != expected:
            raise SequenceError(
                f"the journal should hold the entries {first} to {head.sequence} and has "
                f"{len(entries)} others; restore a backup"
            )
        return Recovered(
            snapshot=snapshot,
            entries=tuple(
                JournalEntry(
                    sequence=e.sequence,
                    now_s=e.now_s,
                    events=events_from_json(e.events),
                    decider=e.decider,
                )
                for e in entries
            ),
            next_sequence=head.sequence + 1,
        )

    def head(self) -> Head:
        """Return the store's newest entry and line of history."""
        with read_transaction(self._engine) as connection:
            row = _read_head(connection)
        return Head(sequence=row.sequence, event_id=row.event_id)

    def commit(self, entry: Entry, *, token: int) -> Head:
        """Append an entry and apply its projections."""
        check_entry(entry)
        events = events_to_json(entry.events)  # before the lock: it may take a while
        with write_transaction(self._writer) as connection:
            head = _lock_head(connection)
            check_leader(token, _leadership(head))
            check_next(entry.sequence, head.sequence)
            record = {"sequence": entry.sequence, "now_s": entry.now_s, "events": events}
            connection.execute(_APPEND, record | {"decider": entry.decider})
            _apply(connection, entry.projections)
            event_id = _append(connection, entry.projections.history, head.event_id)
            moved = {"to_sequence": entry.sequence, "to_event_id": event_id}
            connection.execute(_MOVE_HEAD, moved)
        if self._checkpoints is not None:
            self._checkpoints.soon()
        return Head(sequence=entry.sequence, event_id=event_id)

    def write_snapshot(self, snapshot: Snapshot, *, token: int) -> None:
        """Replace the snapshot, and drop the journal entries that it covers."""
        with write_transaction(self._writer) as connection:
            head = _lock_head(connection)
            check_leader(token, _leadership(head))
            stored = connection.execute(select(tables.SNAPSHOT.c.sequence)).scalar() or 0
            check_snapshot(snapshot.sequence, stored, head.sequence)
            connection.execute(delete(tables.SNAPSHOT))
            record = {"id": 1, "sequence": snapshot.sequence, "state": snapshot.state}
            connection.execute(insert(tables.SNAPSHOT), record)
        self._drop_covered(snapshot.sequence)

    def _drop_covered(self, sequence: int) -> None:
        """Drop the journal up to an entry, a little at a time.

        Entries that a crash leaves do no harm, and are dropped with the next snapshot. Entries may
        be large, and commits that come meanwhile should not have to wait for all of them.
        """
        journal = tables.JOURNAL
        covered = select(journal.c.sequence).where(journal.c.sequence <= sequence)
        some = covered.order_by(journal.c.sequence).limit(DROPPED_AT_ONCE)
        while True:
            with write_transaction(self._writer) as connection:
                found = connection.execute(delete(journal).where(journal.c.sequence.in_(some)))
            if found.rowcount < DROPPED_AT_ONCE:
                return
            time.sleep(DROP_PAUSE_S)  # a commit that waits for the connection gets it now

    def append_history(self, rows: tuple[HistoryRow, ...]) -> Head:
        """Append lines of history that belong to no journal entry."""
        with write_transaction(self._writer) as connection:
            head = _lock_head(connection)
            event_id = _append(connection, rows, head.event_id)
            _set_head(connection, event_id=event_id)
        return Head(sequence=head.sequence, event_id=event_id)

    def write_settings(self, rows: tuple[SettingRow, ...], *, token: int | None) -> None:
        """Create, replace or remove settings that control and engine do not use."""
        with write_transaction(self._writer) as connection:
            head = _lock_head(connection)
            if token is not None:
                check_leader(token, _leadership(head))
            _put_settings(connection, rows)

    def acquire_leadership(
        self,
        holder: str,
        *,
        now_s: float,
        ttl_s: float,
        address: str = "",
        lapsed: Leadership | None = None,
    ) -> Leadership | None:
        """Become the leader; None while another one leads."""
        with write_transaction(self._writer) as connection:
            head = _lock_head(connection)
            now = _leadership(head)
            if still_leads(now, holder, now_s=now_s, lapsed=lapsed):
                return None
            taken = Leadership(
                holder=holder,
                address=address,
                token=next_token(head.leader_token, now_s),
                expires_s=now_s + ttl_s,
            )
            columns = {f"leader_{name}": value for name, value in to_columns(taken).items()}
            _set_head(connection, **columns)
        return taken

    def renew_leadership(self, token: int, *, now_s: float, ttl_s: float) -> Leadership:
        """Lead for ``ttl_s`` seconds from ``now_s``."""
        with write_transaction(self._writer) as connection:
            leader = check_leader(token, _leadership(_lock_head(connection)))
            _set_head(connection, leader_expires_s=now_s + ttl_s)
        return Leadership(
            holder=leader.holder,
            address=leader.address,
            token=leader.token,
            expires_s=now_s + ttl_s,
        )

    def release_leadership(self, token: int) -> None:
        """Release the leadership; no effect if it is lost."""
        head = tables.HEAD
        with write_transaction(self._writer) as connection:
            connection.execute(
                update(head).where(head.c.leader_token == token).values(leader_holder=None)
            )

    def server_s(self) -> float | None:
        """Return the time of PostgreSQL's machine; None for SQLite."""
        if self._engine.dialect.name == "sqlite":
            return None
        with read_transaction(self._engine) as connection:
            found = connection.execute(select(extract("epoch", func.clock_timestamp())))
            return float(found.scalar_one())

    def leader(self) -> Leadership | None:
        """Return the leadership; None if there is none."""
        with read_transaction(self._engine) as connection:
            return _leadership(_read_head(connection))


def _read_head(connection: Connection, *, lock: bool = False) -> SqlRow[Any]:
    row = connection.execute(_LOCK_HEAD if lock else _READ_HEAD).one_or_none()
    if row is None:
        raise StoreVersionError("the database was never set up; open it with migrate=True")
    return row


def _lock_head(connection: Connection) -> SqlRow[Any]:
    return _read_head(connection, lock=True)


def _set_head(connection: Connection, **columns: Any) -> None:
    connection.execute(update(tables.HEAD).values(**columns))


def _leadership(head: SqlRow[Any]) -> Leadership | None:
    if head.leader_holder is None:
        return None
    return Leadership(
        holder=head.leader_holder,
        address=head.leader_address,
        token=head.leader_token,
        expires_s=head.leader_expires_s,
    )


def _apply(connection: Connection, changes: Projections) -> None:
    _put_jobs(connection, changes.jobs)
    names, rows = columns_of(IdempotencyRow), to_values(IdempotencyRow, changes.idempotency)
    insert_rows(connection, tables.IDEMPOTENCY, names, rows)
    _put_states(connection, changes.states)
    names, rows = columns_of(AttemptRow), to_values(AttemptRow, changes.attempts)
    upsert_rows(connection, tables.ATTEMPTS, names, rows)
    for extension in changes.extensions:
        _extend(connection, extension)
    update_rows(
        connection, tables.ATTEMPTS, columns_of(LeaseUse), to_values(LeaseUse, changes.uses)
    )
    _put_settings(connection, changes.settings)


def _put_jobs(connection: Connection, rows: Sequence[JobRow]) -> None:
    if not rows:
        return
    upsert_rows(connection, tables.JOBS, columns_of(JobRow), to_values(JobRow, rows))
    for first in range(0, len(rows), KEYS_AT_ONCE):
        ids = [row.job_id for row in rows[first : first + KEYS_AT_ONCE]]
        connection.execute(_DROP_LABELS, {"job_ids": ids})
    records = [
        (row.job_id, row.number, key, value) for row in rows for key, value in row.labels.items()
    ]
    insert_rows(connection, tables.JOB_LABELS, ("job_id", "number", "key", "value"), records)


def _put_states(connection: Connection, states: Sequence[JobState]) -> None:
    if not states:
        return
    often = [name for name in columns_of(JobState) if name not in _SELDOM]
    rows = to_values(JobState, states)
    pick = itemgetter(*(columns_of(JobState).index(name) for name in (*often, *_SELDOM)))
    changed = update_rows(
        connection, tables.JOBS, (*often, *_SELDOM), [pick(row) for row in rows], rare=len(_SELDOM)
    )
    if changed != len(states):
        raise StoreError(
            f"{len(states)} states of jobs were given and {changed} of the jobs are stored"
        )


def _extend(connection: Connection, extension: LeaseExtension) -> None:
    attempts = tables.ATTEMPTS
    # A round extends thousands; one statement for each would take several times as long.
    for first in range(0, len(extension.lease_ids), KEYS_AT_ONCE):
        some = extension.lease_ids[first : first + KEYS_AT_ONCE]
        connection.execute(
            update(attempts)
            .where(attempts.c.lease_id.in_(some), attempts.c.ended_s.is_(None))
            .values(deadline_s=extension.deadline_s)
        )


def _put_settings(connection: Connection, rows: Sequence[SettingRow]) -> None:
    kept = to_values(SettingRow, [row for row in rows if row.value is not None])
    upsert_rows(connection, tables.SETTINGS, columns_of(SettingRow), kept)
    removed = [row.key for row in rows if row.value is None]
    if removed:
        connection.execute(delete(tables.SETTINGS).where(tables.SETTINGS.c.key.in_(removed)))


def _append(connection: Connection, rows: Sequence[HistoryRow], last: int) -> int:
    values = to_values(HistoryRow, rows)
    place = columns_of(HistoryRow).index("event_id")
    for event_id, row in enumerate(values, start=last + 1):
        row[place] = event_id
    insert_rows(connection, tables.HISTORY, columns_of(HistoryRow), values)
    return last + len(values)
