"""A store in memory, which passes the contract tests of the stores on disk."""

from __future__ import annotations

import dataclasses
import itertools
import math
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from scheduler.domain.rows import HistoryRow, SettingRow
from scheduler.errors import ConflictError, StoreError
from scheduler.store.checks import (
    check_entry,
    check_leader,
    check_next,
    check_snapshot,
    check_storable,
    next_token,
    still_leads,
)
from scheduler.store.filters import FILTERS, array_prefix
from scheduler.store.forms import to_columns, to_values
from scheduler.store.protocol import Entry, Head, JournalEntry, Recovered, Snapshot
from scheduler.store.queries import SORT_KEYS, JobPage, make_cursor, read_cursor
from scheduler.store.rows import Leadership
from scheduler.store.uploads import ACTIVE
from scheduler.store.usage import DAY_S, Sums, UsageKey, add_up, gpu_use_within, in_us, used_by

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from scheduler.domain.jobs.job import JobStatus
    from scheduler.domain.rows import AttemptRow, IdempotencyRow, JobRow, Projections
    from scheduler.store.filters import Filter, JobFilter
    from scheduler.store.queries import AttemptQuery, HistoryQuery, JobKey, JobQuery
    from scheduler.store.rows import EnrolmentRow, TokenRow
    from scheduler.store.uploads import UploadLimits
    from scheduler.store.usage import UsageQuery, UsageRow, UsedRow


class MemoryStore:
    """The contract of ``Store`` over dictionaries under one lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._head = Head(sequence=0, event_id=0)
        self._journal: list[JournalEntry] = []
        self._snapshot: Snapshot | None = None
        self._leader: Leadership | None = None
        #: the largest fencing token that was ever given out.
        self._last_token = 0
        self._jobs: dict[str, JobRow] = {}
        #: job id of every job number.
        self._numbers: dict[int, str] = {}
        self._keys: dict[tuple[str, str], IdempotencyRow] = {}
        self._attempts: dict[int, AttemptRow] = {}
        #: by event id, ascending.
        self._history: list[HistoryRow] = []
        self._settings: dict[str, SettingRow] = {}
        #: of jobs that have been forgotten.
        self._usage: list[UsedRow] = []
        self._tokens: dict[str, TokenRow] = {}
        self._enrolments: dict[str, EnrolmentRow] = {}
        #: by project and digest: content, and when it was last asked for.
        self._uploads: dict[tuple[str, str], tuple[bytes, float]] = {}

    def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    # -- journal ----------------------------------------------------------------------------------

    def load(self) -> Recovered:
        """Return the last snapshot and the entries behind it."""
        with self._lock:
            return Recovered(
                snapshot=self._snapshot,
                entries=tuple(self._journal),
                next_sequence=self._head.sequence + 1,
            )

    def head(self) -> Head:
        """Return how far the store is."""
        return self._head

    def commit(self, entry: Entry, *, token: int) -> Head:
        """Append an entry and apply its projections."""
        check_entry(entry)
        check_storable(entry)
        with self._lock:
            check_leader(token, self._leader)
            check_next(entry.sequence, self._head.sequence)
            self._check(entry.projections)
            self._apply(entry.projections)
            self._journal.append(
                JournalEntry(
                    sequence=entry.sequence,
                    now_s=entry.now_s,
                    events=entry.events,
                    decider=entry.decider,
                )
            )
            self._head = dataclasses.replace(self._head, sequence=entry.sequence)
            return self._append(entry.projections.history)

    def _check(self, changes: Projections) -> None:
        known = self._jobs.keys() | {row.job_id for row in changes.jobs}
        numbers: dict[int, str] = {}
        for row in changes.jobs:
            other = numbers.setdefault(row.number, self._numbers.get(row.number, row.job_id))
            if other != row.job_id:
                raise ConflictError(f"job number {row.number} is taken by job '{other}'")
        keys = set(self._keys)
        for key in changes.idempotency:
            if (key.scope, key.key) in keys:
                raise ConflictError(f"client key '{key.key}' of '{key.scope}' is taken")
            keys.add((key.scope, key.key))
        owners = {row.job_id for row in changes.idempotency}
        owners |= {row.job_id for row in changes.states}
        unknown = (owners | {row.job_id for row in changes.attempts}) - known
        if unknown:
            raise StoreError(f"there is no job '{min(unknown)}' that a row could belong to")

    def _apply(self, changes: Projections) -> None:
        for row in changes.jobs:
            if before := self._jobs.get(row.job_id):
                del self._numbers[before.number]
            self._jobs[row.job_id] = row
            self._numbers[row.number] = row.job_id
        for key in changes.idempotency:
            self._keys[key.scope, key.key] = key
        for state in changes.states:
            parts = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
            self._jobs[state.job_id] = dataclasses.replace(self._jobs[state.job_id], **parts)
        for attempt in changes.attempts:
            self._attempts[attempt.lease_id] = attempt
        for extension in changes.extensions:
            self._extend(extension.lease_ids, extension.deadline_s)
        for use in changes.uses:
            if held := self._attempts.get(use.lease_id):
                parts = {f.name: getattr(use, f.name) for f in dataclasses.fields(use)}
                self._attempts[use.lease_id] = dataclasses.replace(held, **parts)
        self._put_settings(changes.settings)

    def _put_settings(self, rows: tuple[SettingRow, ...]) -> None:
        for row in rows:
            self._settings[row.key] = row
            if row.value is None:
                del self._settings[row.key]

    def _extend(self, lease_ids: tuple[int, ...], deadline_s: float) -> None:
        for lease_id in lease_ids:
            row = self._attempts.get(lease_id)
            if row is not None and row.ended_s is None:
                self._attempts[lease_id] = dataclasses.replace(row, deadline_s=deadline_s)

    def _append(self, rows: Iterable[HistoryRow]) -> Head:
        event_id = self._head.event_id
        for row in rows:
            event_id += 1
            self._history.append(dataclasses.replace(row, event_id=event_id))
        self._head = dataclasses.replace(self._head, event_id=event_id)
        return self._head

    def write_snapshot(self, snapshot: Snapshot, *, token: int) -> None:
        """Replace the snapshot, and drop the journal entries that it covers."""
        with self._lock:
            check_leader(token, self._leader)
            last = 0 if self._snapshot is None else self._snapshot.sequence
            check_snapshot(snapshot.sequence, last, self._head.sequence)
            self._snapshot = snapshot
            self._journal = [e for e in self._journal if e.sequence > snapshot.sequence]

    def append_history(self, rows: tuple[HistoryRow, ...]) -> Head:
        """Append lines of history that belong to no journal entry."""
        to_values(HistoryRow, rows)
        with self._lock:
            return self._append(rows)

    # -- leadership -------------------------------------------------------------------------------

    def write_settings(self, rows: tuple[SettingRow, ...], *, token: int | None) -> None:
        """Make, replace or remove settings of which nothing that decides knows."""
        to_values(SettingRow, rows)  # refuses values without a stored form
        with self._lock:
            if token is not None:
                check_leader(token, self._leader)
            self._put_settings(rows)

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
        with self._lock:
            now = self._leader
            if still_leads(now, holder, now_s=now_s, lapsed=lapsed):
                return None
            self._last_token = next_token(self._last_token, now_s)
            self._leader = Leadership(
                holder=holder, address=address, token=self._last_token, expires_s=now_s + ttl_s
            )
            return self._leader

    def renew_leadership(self, token: int, *, now_s: float, ttl_s: float) -> Leadership:
        """Lead for ``ttl_s`` seconds from ``now_s``."""
        with self._lock:
            leader = check_leader(token, self._leader)
            self._leader = dataclasses.replace(leader, expires_s=now_s + ttl_s)
            return self._leader

    def release_leadership(self, token: int) -> None:
        """Give the leadership up; nothing if it is lost."""
        with self._lock:
            if self._leader is not None and self._leader.token == token:
                self._leader = None

    def server_s(self) -> float | None:
        """Return nothing: it has no machine of its own."""
        return None

    def leader(self) -> Leadership | None:
        """Return the leader; None if there is no leader."""
        return self._leader

    # -- queries ----------------------------------------------------------------------------------

    def job(self, job_id: str) -> JobRow | None:
        """Return a job, or None."""
        return self._jobs.get(job_id)

    def jobs(self, query: JobQuery) -> JobPage:
        """Return a page of a list of jobs."""
        start = read_cursor(query)
        name = SORT_KEYS[query.order]

        def place(row: JobRow) -> tuple[float | str, int]:
            return getattr(row, name), row.number

        with self._lock:
            rows = [r for r in self._jobs.values() if _passes(r, query.where)]
        rows = [row for row in rows if getattr(row, name) is not None]
        rows.sort(key=place, reverse=query.descending)
        if start is not None:
            at = (start.value, start.number)
            rows = [r for r in rows if (place(r) < at if query.descending else place(r) > at)]
        page = tuple(rows[: query.limit])
        more = len(rows) > query.limit
        return JobPage(rows=page, next_cursor=make_cursor(query, page[-1]) if more else None)

    def job_ids(self, where: JobFilter, *, most: int) -> tuple[str, ...]:
        """Return the ids of jobs, oldest first, and at most so many."""
        with self._lock:
            rows = sorted(self._jobs.values(), key=lambda row: row.number)
        return tuple(row.job_id for row in rows if _passes(row, where))[:most]

    def count_jobs(self, where: JobFilter, by: JobKey) -> Mapping[str, Mapping[JobStatus, int]]:
        """Return how many jobs of each status each project, owner or job type has."""
        found: dict[str, Counter[JobStatus]] = {}
        with self._lock:
            for row in self._jobs.values():
                if _passes(row, where):
                    found.setdefault(getattr(row, by.value), Counter())[row.status] += 1
        return found

    def jobs_of_keys(self, scope: str, keys: Collection[str]) -> Mapping[str, IdempotencyRow]:
        """Return what clients' keys stand for."""
        with self._lock:
            found = ((key, self._keys.get((scope, key))) for key in keys)
            return {key: row for key, row in found if row is not None}

    def attempt(self, lease_id: int) -> AttemptRow | None:
        """Return a lease, or None."""
        with self._lock:
            return self._attempts.get(lease_id)

    def attempts(self, job_id: str) -> tuple[AttemptRow, ...]:
        """Return the job's leases, oldest first."""
        with self._lock:
            return tuple(a for _, a in sorted(self._attempts.items()) if a.job_id == job_id)

    def projects_of(self, job_ids: Collection[str]) -> Mapping[str, str]:
        """Return job -> project, of the jobs that exist."""
        with self._lock:
            return {one: self._jobs[one].project for one in job_ids if one in self._jobs}

    def run_times(self, job_ids: Collection[str], *, now_s: float) -> Mapping[str, float]:
        """Return job -> seconds for which its leases held workers."""
        wanted, found = frozenset(job_ids), dict[str, float]()
        with self._lock:
            for a in self._attempts.values():
                if a.job_id in wanted:
                    held_s = (now_s if a.ended_s is None else a.ended_s) - a.start_s
                    found[a.job_id] = found.get(a.job_id, 0.0) + max(held_s, 0.0)
        return found

    def newest_times(self, job_ids: Collection[str], kinds: Collection[str]) -> Mapping[str, float]:
        """Return job -> time of its newest line of history of these kinds."""
        with self._lock:
            return {
                row.subject: row.at_s
                for row in self._history
                if row.subject_kind == "job" and row.subject in job_ids and row.kind in kinds
            }

    def newest_attempts(self, query: AttemptQuery) -> tuple[AttemptRow, ...]:
        """Return a page of leases, newest first."""
        with self._lock:
            found = (
                row
                for _, row in sorted(self._attempts.items(), reverse=True)
                if _attempt_passes(row, query)
                and (not query.projects or self._jobs[row.job_id].project in query.projects)
            )
            return tuple(itertools.islice(found, query.limit))

    def open_attempts(self) -> tuple[AttemptRow, ...]:
        """Return every lease that has not ended, by lease id."""
        with self._lock:
            return tuple(a for _, a in sorted(self._attempts.items()) if a.ended_s is None)

    def history(self, query: HistoryQuery) -> tuple[HistoryRow, ...]:
        """Return lines of history."""
        with self._lock:
            rows = self._history[::-1] if query.descending else list(self._history)
        found = (row for row in rows if _is_asked(row, query))
        return tuple(row for row, _ in zip(found, range(query.limit), strict=False))

    def settings(self, prefix: str = "") -> tuple[SettingRow, ...]:
        """Return the settings whose keys begin with ``prefix``, by key."""
        with self._lock:
            return tuple(s for key, s in sorted(self._settings.items()) if key.startswith(prefix))

    def usage(self, query: UsageQuery) -> tuple[UsageRow, ...]:
        """Add up held time in a window."""
        with self._lock:
            return add_up(query, self._used(query))

    def _used(self, query: UsageQuery) -> Iterator[tuple[int, Mapping[UsageKey, str], Sums]]:
        for attempt in self._attempts.values():
            job = self._jobs[attempt.job_id]
            if query.projects is not None and job.project not in query.projects:
                continue
            ended_s = query.to_s if attempt.ended_s is None else attempt.ended_s
            for day, begin, end in query.windows:
                held = min(in_us(ended_s), end) - max(in_us(attempt.start_s), begin)
                if held > 0:
                    keys = _usage_keys(job, attempt.worker_type) | {UsageKey.JOB: job.job_id}
                    sums = Sums(
                        1, held * len(attempt.workers), *gpu_use_within(attempt, begin, end)
                    )
                    yield day, keys, sums
        days = range(math.ceil(query.from_s / DAY_S), math.ceil(query.to_s / DAY_S))
        for row in self._usage:
            if row.day in days and (query.projects is None or row.project in query.projects):
                day = row.day if UsageKey.DAY in query.by else -1
                keys = _usage_keys(row, row.worker_type) | {UsageKey.JOB: ""}
                yield day, keys, row.sums

    def prune_finished(self, before_s: float, *, limit: int) -> int:
        """Forget jobs that ended before a time, oldest first."""
        with self._lock:
            ended = [r for r in self._jobs.values() if r.finished_s is not None]
            old = sorted(
                (row.finished_s, row.number, row.job_id)
                for row in ended
                if row.finished_s is not None and row.finished_s < before_s
            )[:limit]
            gone = {job_id for _, _, job_id in old}
            used = (a for a in self._attempts.values() if a.job_id in gone)
            self._usage += used_by(self._jobs, used)
            for _, number, job_id in old:
                del self._jobs[job_id], self._numbers[number]
            self._keys = {k: r for k, r in self._keys.items() if r.job_id not in gone}
            self._attempts = {k: r for k, r in self._attempts.items() if r.job_id not in gone}
            self._history = [
                r for r in self._history if r.subject_kind != "job" or r.subject not in gone
            ]
            return len(old)

    def prune_history(self, before_s: float, *, limit: int) -> int:
        """Forget lines of history older than a time, oldest first."""
        with self._lock:
            old = sorted((r.at_s, r.event_id) for r in self._history if r.at_s < before_s)[:limit]
            gone = {event_id for _, event_id in old}
            self._history = [r for r in self._history if r.event_id not in gone]
            return len(old)

    # -- secrets ----------------------------------------------------------------------------------

    def add_token(self, row: TokenRow) -> None:
        """Store a new token."""
        to_columns(row)
        with self._lock:
            hashes = {token.secret_hash for token in self._tokens.values()}
            if row.token_id in self._tokens or row.secret_hash in hashes:
                raise ConflictError(
                    f"token '{row.token_id}', or its secret, is taken; make another"
                )
            self._tokens[row.token_id] = row

    def token(self, secret_hash: str) -> TokenRow | None:
        """Return the token of that hash."""
        with self._lock:
            found = (t for t in self._tokens.values() if t.secret_hash == secret_hash)
            return next(found, None)

    def tokens(self, subject: str | None = None) -> tuple[TokenRow, ...]:
        """Return every token, or those of one subject, by id."""
        with self._lock:
            rows = (row for _, row in sorted(self._tokens.items()))
            return tuple(row for row in rows if subject in (None, row.subject))

    def revoke_token(self, token_id: str, *, now_s: float) -> bool:
        """Revoke a token; False if there is none of that id."""
        with self._lock:
            row = self._tokens.get(token_id)
            if row is not None and row.revoked_s is None:
                self._tokens[token_id] = dataclasses.replace(row, revoked_s=now_s)
            return row is not None

    def replace_specs(self, specs: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the specifications of stored jobs."""
        with self._lock:
            for job_id in specs.keys() & self._jobs.keys():
                self._jobs[job_id] = dataclasses.replace(self._jobs[job_id], spec=specs[job_id])

    def replace_token(self, token_id: str, *, now_s: float, expires_s: float) -> bool:
        """Note that the token which was made for this one is used."""
        with self._lock:
            row = self._tokens.get(token_id)
            if row is None or row.replaced_s is not None:
                return False
            if row.expires_s is not None:
                expires_s = min(expires_s, row.expires_s)
            ended = dataclasses.replace(row, replaced_s=now_s, expires_s=expires_s)
            self._tokens[token_id] = ended
            return True

    def drop_token(self, token_id: str) -> None:
        """Drop a token that is not needed any more."""
        with self._lock:
            self._tokens.pop(token_id, None)

    def forget_tokens(self, subject: str, *, before_s: float) -> int:
        """Drop a subject's tokens that were replaced and ended before a time."""
        with self._lock:
            old = [
                token_id
                for token_id, row in self._tokens.items()
                if row.subject == subject
                and row.replaced_s is not None
                and row.expires_s is not None
                and row.expires_s < before_s
            ]
            for token_id in old:
                del self._tokens[token_id]
            return len(old)

    def touch_tokens(self, last_used_s: Mapping[str, float]) -> None:
        """Note when tokens (by id) were last used."""
        with self._lock:
            for token_id, used_s in last_used_s.items():
                row = self._tokens.get(token_id)
                if row is not None and (row.last_used_s is None or row.last_used_s < used_s):
                    self._tokens[token_id] = dataclasses.replace(row, last_used_s=used_s)

    def add_enrolment(self, row: EnrolmentRow) -> None:
        """Store a new enrolment."""
        to_columns(row)
        with self._lock:
            if row.secret_hash in self._enrolments:
                raise ConflictError("this enrolment secret is taken; make another")
            self._enrolments[row.secret_hash] = row

    def use_enrolment(
        self, secret_hash: str, *, node: str, now_s: float, named: bool = False
    ) -> EnrolmentRow | None:
        """Use an enrolment up; None if it cannot be used."""
        with self._lock:
            row = self._enrolments.get(secret_hash)
            if row is None or row.used_s is not None or row.expires_s <= now_s:
                return None
            if row.node != node and (row.node or named):
                return None
            used = dataclasses.replace(row, used_s=now_s, used_by=node)
            self._enrolments[secret_hash] = used
            return used

    # -- uploads ----------------------------------------------------------------------------------

    def keep_upload(
        self, project: str, digest: str, content: bytes, *, now_s: float, limits: UploadLimits
    ) -> bool:
        """Keep a tree; False if it is there already."""
        with self._lock:
            if self.use_upload(project, digest, now_s=now_s) is not None:
                return False
            sizes = [(name, len(data)) for (name, _), (data, _) in self._uploads.items()]
            own = sum(size for name, size in sizes if name == project)
            limits.check(project, len(content), own=own, all_=sum(size for _, size in sizes))
            self._uploads[project, digest] = content, now_s
            return True

    def use_upload(self, project: str, digest: str, *, now_s: float) -> int | None:
        """Note that a tree is asked for; return its size, None if there is no tree."""
        with self._lock:
            if (found := self._uploads.get((project, digest))) is None:
                return None
            self._uploads[project, digest] = found[0], now_s
            return len(found[0])

    def upload(self, project: str, digest: str) -> bytes | None:
        """Return a tree, None if there is no tree."""
        return self._uploads.get((project, digest), (None, 0.0))[0]

    def drop_uploads(self, *, before_s: float, now_s: float) -> int:
        """Drop trees that were not requested since a time, and that no job needs."""
        with self._lock:
            needed = {
                (row.project, row.spec.get("upload"))
                for row in self._jobs.values()
                if row.status in ACTIVE
            }
            old = [key for key, (_, used_s) in self._uploads.items() if used_s < before_s]
            for key in old:
                if key in needed:
                    self._uploads[key] = self._uploads[key][0], now_s
                else:
                    del self._uploads[key]
            return sum(key not in needed for key in old)


def _passes(row: JobRow, where: JobFilter) -> bool:
    return (
        all(_agrees(one, getattr(row, one.name), getattr(where, one.attribute)) for one in FILTERS)
        and all(row.labels.get(key) == value for key, value in where.labels.items())
        and (not where.called or _is_called(row, where.called))
    )


def _is_called(row: JobRow, word: str) -> bool:
    return (
        row.job_id.startswith(word) or row.name == word or row.name.startswith(array_prefix(word))
    )


def _agrees(known: Filter, value: str, wanted: str | tuple[str, ...]) -> bool:
    if not wanted:
        return True
    if known.arrays and any(value.startswith(array_prefix(one)) for one in wanted):
        return True
    return value in wanted if isinstance(wanted, tuple) else value == wanted


def _is_asked(row: HistoryRow, query: HistoryQuery) -> bool:
    return (
        query.subject_kind in ("", row.subject_kind)
        and query.subject in ("", row.subject)
        and (not query.kinds or row.kind in query.kinds)
        and row.subject_kind not in query.without
        and query.actor in ("", row.actor)
        and (query.since_s is None or row.at_s >= query.since_s)
        and (query.until_s is None or row.at_s < query.until_s)
        and row.event_id > query.after_id
        and (query.before_id is None or row.event_id < query.before_id)
    )


def _attempt_passes(row: AttemptRow, query: AttemptQuery) -> bool:
    """Return whether a lease passes all filters but that by project."""
    return (
        (query.since_s is None or row.ended_s is None or row.ended_s > query.since_s)
        and (query.until_s is None or row.start_s < query.until_s)
        and (not query.nodes or not {*query.nodes}.isdisjoint(row.nodes))
        and (query.before_id is None or row.lease_id < query.before_id)
    )


def _usage_keys(row: JobRow | UsedRow, worker_type: str) -> dict[UsageKey, str]:
    return {
        UsageKey.PROJECT: row.project,
        UsageKey.OWNER: row.owner,
        UsageKey.JOB_TYPE: row.job_type,
        UsageKey.WORKER_TYPE: worker_type,
    }
