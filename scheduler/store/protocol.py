"""The store's contract.

The engine is a deterministic function of its inputs, so the store keeps a *journal* of them, one
entry per call of the engine. An entry is committed together with the rows that people query, before
the engine's commands are performed. After a crash the last snapshot and the later entries, put
through the same engine, give the same state; the commands are derived again.

Every method is synchronous, safe to call from several threads, and either happens as a whole or not
at all. Any of them may raise ``StoreUnavailableError`` if the database is out of reach or locked,
and ``StoreError`` if it refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from scheduler.domain.facts.events import Event
    from scheduler.domain.jobs.job import JobStatus
    from scheduler.domain.rows import (
        AttemptRow,
        HistoryRow,
        IdempotencyRow,
        JobRow,
        Projections,
        SettingRow,
    )
    from scheduler.store.filters import JobFilter
    from scheduler.store.queries import AttemptQuery, HistoryQuery, JobKey, JobPage, JobQuery
    from scheduler.store.rows import EnrolmentRow, Leadership, TokenRow
    from scheduler.store.uploads import UploadLimits
    from scheduler.store.usage import UsageQuery, UsageRow


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """One call of the engine, ``handle(*events, now=now_s)``, and its changes.

    Attributes:
        sequence: 1 for the first entry, then without a gap.
        now_s: the engine's time, seconds since the Unix epoch.
        events: the engine's inputs.
        projections: rows that change with them.
        decider: version of the rules that decided on these inputs.
    """

    sequence: int
    now_s: float
    events: tuple[Event, ...]
    projections: Projections
    decider: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JournalEntry:
    """A stored call of the engine; the attributes are ``Entry``'s."""

    sequence: int
    now_s: float
    events: tuple[Event, ...]
    decider: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The engine's state after the entry ``sequence``, in a form that the store does not read."""

    sequence: int
    state: bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recovered:
    """The stored state that a start begins from.

    Attributes:
        snapshot: the last one, or None.
        entries: every later journal entry, in order.
        next_sequence: the number that the next entry must have.
    """

    snapshot: Snapshot | None
    entries: tuple[JournalEntry, ...]
    next_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The store's newest entry of the journal and line of history; 0 for none."""

    sequence: int
    event_id: int


class Journal(Protocol):
    """The engine's inputs, its snapshots, and the leadership that may write them."""

    def load(self) -> Recovered:
        """Return the last snapshot and the later entries, as of one moment.

        Raises:
            CodecError: an entry was written by a newer release, or is damaged.
        """
        ...

    def head(self) -> Head:
        """Return the store's newest entry and line of history.

        After an interrupted ``commit`` this shows whether it took place. After a notification it
        shows a stream whether there is news.
        """
        ...

    def commit(self, entry: Entry, *, token: int) -> Head:
        """Append an entry and apply its projections; all of it is durable on return, or none.

        Commits take place one after the other. The lines of history are numbered in the order in
        which they become visible: a reader that has seen event id n never finds a new line below n.

        Args:
            entry: the next entry.
            token: the leader's fencing token.

        Raises:
            SequenceError: the entry is not the next one.
            StaleLeaderError: the token is not the leader's. An expired leadership that no process
                has taken over is still valid.
            ConflictError: a client's key or a job's number is in use.
            UnstorableError: a value has no stored form; see ``scheduler.domain.rows``.
            StoreError: a state or attempt belongs to no job, or a job has two states.
        """
        ...

    def write_snapshot(self, snapshot: Snapshot, *, token: int) -> None:
        """Replace the snapshot, and drop the journal entries that it covers.

        Raises:
            SequenceError: the snapshot is older than the stored one, or newer than the journal.
            StaleLeaderError: the token is not the leader's.
        """
        ...

    def append_history(self, rows: tuple[HistoryRow, ...]) -> Head:
        """Append lines of history that belong to no journal entry (a created token, say)."""
        ...

    def write_settings(self, rows: tuple[SettingRow, ...], *, token: int | None) -> None:
        """Create, replace or (value None) remove settings that control and engine do not use.

        Args:
            rows: the settings.
            token: the leader's fencing token; None for settings that only operators change.

        Raises:
            StaleLeaderError: the token is not the leader's.
        """
        ...

    def acquire_leadership(
        self,
        holder: str,
        *,
        now_s: float,
        ttl_s: float,
        address: str = "",
        lapsed: Leadership | None = None,
    ) -> Leadership | None:
        """Become the leader, under a larger token than any before; None while another one leads.

        A holder that already leads gets a new token too: it may have restarted under the same name,
        and its earlier self must not write any more. The token keeps two leaders apart.

        Args:
            holder: the process's unique name.
            now_s: the caller's time. Tokens follow it, so that a token from entries that a database
                has lost is not given out again.
            ttl_s: seconds for which the leadership holds unless renewed.
            address: the address to which other processes send writes.
            lapsed: the leadership of another holder that the caller has seen not to be renewed; it
                counts as expired before its time.
        """
        ...

    def renew_leadership(self, token: int, *, now_s: float, ttl_s: float) -> Leadership:
        """Lead for ``ttl_s`` seconds from ``now_s``.

        Raises:
            StaleLeaderError: another process leads now, or the leadership was released.
        """
        ...

    def release_leadership(self, token: int) -> None:
        """Release the leadership, if it is held, so that another process need not wait."""
        ...

    def server_s(self) -> float | None:
        """Return the time of the database's own machine; None if it has no time of its own."""
        ...

    def leader(self) -> Leadership | None:
        """Return the leadership, even an expired one; None if it was released."""
        ...


class Queries(Protocol):
    """Queries of people and services. Any process may ask, leader or not."""

    def job(self, job_id: str) -> JobRow | None:
        """Return a job, or None."""
        ...

    def jobs(self, query: JobQuery) -> JobPage:
        """Return a page of a list of jobs.

        A job that changes its place between two pages may be missed or seen twice; any other job is
        seen once.

        Raises:
            InputError: the cursor is damaged or belongs to another order.
        """
        ...

    def job_ids(self, where: JobFilter, *, most: int) -> tuple[str, ...]:
        """Return the ids of jobs, oldest first, and at most so many."""
        ...

    def count_jobs(self, where: JobFilter, by: JobKey) -> Mapping[str, Mapping[JobStatus, int]]:
        """Return how many jobs of each status each project, owner or job type has."""
        ...

    def jobs_of_keys(self, scope: str, keys: Collection[str]) -> Mapping[str, IdempotencyRow]:
        """Return the jobs of clients' keys; unused keys are left out."""
        ...

    def attempt(self, lease_id: int) -> AttemptRow | None:
        """Return a lease, or None."""
        ...

    def attempts(self, job_id: str) -> tuple[AttemptRow, ...]:
        """Return the job's leases, oldest first."""
        ...

    def projects_of(self, job_ids: Collection[str]) -> Mapping[str, str]:
        """Return job -> project, of the jobs that exist."""
        ...

    def run_times(self, job_ids: Collection[str], *, now_s: float) -> Mapping[str, float]:
        """Return job -> seconds for which its leases held workers; waits between do not count.

        Args:
            job_ids: the jobs; those that had no lease are left out.
            now_s: leases that have not ended count until then.
        """
        ...

    def newest_times(self, job_ids: Collection[str], kinds: Collection[str]) -> Mapping[str, float]:
        """Return job -> time of its newest line of these kinds; jobs without one are left out."""
        ...

    def newest_attempts(self, query: AttemptQuery) -> tuple[AttemptRow, ...]:
        """Return a page of leases, newest first."""
        ...

    def open_attempts(self) -> tuple[AttemptRow, ...]:
        """Return every lease that has not ended, by lease id."""
        ...

    def history(self, query: HistoryQuery) -> tuple[HistoryRow, ...]:
        """Return lines of history."""
        ...

    def settings(self, prefix: str = "") -> tuple[SettingRow, ...]:
        """Return the settings with keys that begin with ``prefix``, by key."""
        ...

    def prune_finished(self, before_s: float, *, limit: int) -> int:
        """Delete jobs that ended before a time, with their attempts, history and keys.

        Their use stays in the ledger.

        Args:
            before_s: jobs that ended at or after this time stay.
            limit: the most jobs, so that other writers need not wait long; oldest first.

        Returns:
            How many were deleted; fewer than ``limit`` means that none is left.
        """
        ...

    def prune_history(self, before_s: float, *, limit: int) -> int:
        """Delete lines of history older than a time, oldest first; returns how many."""
        ...


class UsageLedger(Protocol):
    """The use of workers, by user and project. Any process may ask."""

    def usage(self, query: UsageQuery) -> tuple[UsageRow, ...]:
        """Add up the use under leases in a window, by the keys of the query.

        Deleted jobs count by whole days of UTC, on those that begin within the window.
        """
        ...


class Secrets(Protocol):
    """Tokens and enrolments, stored as hashes only; jobs' secrets come sealed."""

    def replace_specs(self, specs: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the specifications of stored jobs (by id); ids without a job are left out."""
        ...

    def add_token(self, row: TokenRow) -> None:
        """Store a new token.

        Raises:
            ConflictError: its id or its hash is in use.
        """
        ...

    def token(self, secret_hash: str) -> TokenRow | None:
        """Return the token of that hash, expired and revoked ones too; None if there is none."""
        ...

    def tokens(self, subject: str | None = None) -> tuple[TokenRow, ...]:
        """Return every token, or those of one subject, by id."""
        ...

    def revoke_token(self, token_id: str, *, now_s: float) -> bool:
        """Revoke a token; False if no token has that id. A second time changes nothing."""
        ...

    def replace_token(self, token_id: str, *, now_s: float, expires_s: float) -> bool:
        """Note that a token's successor is in use: the token ends at ``expires_s``, or before.

        Returns:
            Whether this was the first such note.
        """
        ...

    def drop_token(self, token_id: str) -> None:
        """Drop a token that is no longer needed."""
        ...

    def forget_tokens(self, subject: str, *, before_s: float) -> int:
        """Drop a subject's tokens that were replaced and ended before a time; returns how many."""
        ...

    def touch_tokens(self, last_used_s: Mapping[str, float]) -> None:
        """Note when tokens (by id) were last used; a time before the stored one is ignored."""
        ...

    def add_enrolment(self, row: EnrolmentRow) -> None:
        """Store a new enrolment.

        Raises:
            ConflictError: its hash is in use.
        """
        ...

    def use_enrolment(
        self, secret_hash: str, *, node: str, now_s: float, named: bool = False
    ) -> EnrolmentRow | None:
        """Use an enrolment up; None if it is unknown, used, expired or another node's.

        If several processes try at once, one succeeds. With ``named`` it must name the node.
        """
        ...


class Uploads(Protocol):
    """Trees of code that jobs run from, identified by project and hash."""

    def keep_upload(
        self, project: str, digest: str, content: bytes, *, now_s: float, limits: UploadLimits
    ) -> bool:
        """Store a tree; False if it is stored already.

        Raises:
            InputError: it is larger than the limits, or there is no room for it.
        """
        ...

    def use_upload(self, project: str, digest: str, *, now_s: float) -> int | None:
        """Note that a tree is asked for; return its size, None if it is not stored."""
        ...

    def upload(self, project: str, digest: str) -> bytes | None:
        """Return a tree, None if it is not stored."""
        ...

    def drop_uploads(self, *, before_s: float, now_s: float) -> int:
        """Drop trees that no request has asked for since a time, and that no job needs.

        A tree that an active job needs counts as asked for now. The call may leave some trees for
        the next time.

        Returns:
            How many were dropped.
        """
        ...


class Store(Journal, Queries, UsageLedger, Secrets, Uploads, Protocol):
    """The whole store."""

    def close(self) -> None:
        """Close files and connections. Other methods must not be called any more."""
        ...
