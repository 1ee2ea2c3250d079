"""Checks that every store makes, with the same messages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scheduler.domain.rows import (
    AttemptRow,
    HistoryRow,
    IdempotencyRow,
    JobRow,
    JobState,
    LeaseUse,
    SettingRow,
)
from scheduler.errors import SequenceError, StaleLeaderError, StoreError
from scheduler.store.forms import events_to_json, to_values

if TYPE_CHECKING:
    from scheduler.store.protocol import Entry
    from scheduler.store.rows import Leadership


def check_entry(entry: Entry) -> None:
    """Refuse an entry that contradicts itself.

    Raises:
        StoreError: a job has two states, a row comes twice, or the time is not finite.
    """
    changes = entry.projections
    lists: tuple[tuple[str, list[object]], ...] = (
        ("job", [row.job_id for row in changes.jobs]),
        ("state of job", [row.job_id for row in changes.states]),
        ("attempt with lease", [row.lease_id for row in changes.attempts]),
        ("setting", [row.key for row in changes.settings]),
    )
    for what, keys in lists:
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise StoreError(f"entry {entry.sequence} has the {what} {twice!r} twice; merge them")
    if not math.isfinite(entry.now_s):
        raise StoreError(f"entry {entry.sequence} has the time {entry.now_s!r}; give a number")


def check_storable(entry: Entry) -> None:
    """Refuse an entry that a database could not hold; databases notice only as they write.

    Raises:
        UnstorableError: a value cannot be stored.
    """
    changes = entry.projections
    events_to_json(entry.events)
    to_values(JobRow, changes.jobs)
    to_values(IdempotencyRow, changes.idempotency)
    to_values(JobState, changes.states)
    to_values(AttemptRow, changes.attempts)
    to_values(LeaseUse, changes.uses)
    to_values(SettingRow, changes.settings)
    to_values(HistoryRow, changes.history)


def next_token(last: int, now_s: float) -> int:
    """Return the fencing token of a new leader.

    Greater than the last one, and no less than the seconds since the epoch. If an old backup is
    restored, agents that have received a later leader's token must accept this one too.
    """
    return max(last + 1, int(now_s))


def still_leads(
    leader: Leadership | None, holder: str, *, now_s: float, lapsed: Leadership | None
) -> bool:
    """Return whether another process leads, so that ``holder`` cannot; see ``Journal``."""
    if leader is None or leader.holder == holder or leader == lapsed:
        return False
    return leader.expires_s > now_s


def check_leader(token: int, leader: Leadership | None) -> Leadership:
    """Return the leadership if the token is its own.

    Raises:
        StaleLeaderError: the token is another one, or no process leads.
    """
    if leader is None:
        raise StaleLeaderError(
            f"token {token} no longer leads, and no process does; acquire the leadership again"
        )
    if leader.token != token:
        raise StaleLeaderError(
            f"token {token} is stale: '{leader.holder}' leads with token {leader.token}; "
            "stop writing"
        )
    return leader


def check_next(sequence: int, last: int) -> None:
    """Refuse a journal entry that is not the next one.

    Raises:
        SequenceError: the entry is not the next one.
    """
    if sequence != last + 1:
        raise SequenceError(
            f"journal entry {sequence} is not the next one after {last}; load the store again"
        )


def check_snapshot(sequence: int, stored: int, last: int) -> None:
    """Refuse a snapshot that is older than the stored one, or newer than the journal.

    Raises:
        SequenceError: the snapshot does not fit.
    """
    if not stored <= sequence <= last:
        raise SequenceError(
            f"a snapshot of entry {sequence} does not fit: the stored one is of entry {stored} and "
            f"the journal ends with entry {last}"
        )
