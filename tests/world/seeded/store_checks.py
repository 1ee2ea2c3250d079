"""A store's answers against its own rows, and its refusals."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.rows import Projections, SettingRow
from scheduler.errors import SequenceError, StaleLeaderError, StoreError
from scheduler.store.filters import JobFilter
from scheduler.store.protocol import Entry, Snapshot
from scheduler.store.queries import AttemptQuery, JobOrder, JobQuery
from scheduler.store.usage import UsageKey, UsageQuery

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold_testing.memory_store import MemoryStore
    from scheduler.domain.rows import AttemptRow


def check_queries(store: MemoryStore) -> Iterator[str]:
    """Yield answers that the rows do not bear out."""
    every = sorted(store._jobs.values(), key=lambda row: row.number)
    attempts = sorted(store._attempts.values(), key=lambda row: row.lease_id)
    found = store.jobs(JobQuery(order=JobOrder.SUBMITTED, descending=False, limit=1000)).rows
    if sorted(row.number for row in found) != [row.number for row in every]:
        yield f"a list of all jobs has {[row.job_id for row in found]}"
    pages, cursor = [], None
    while True:
        page = store.jobs(JobQuery(limit=2, cursor=cursor))
        pages += [row.job_id for row in page.rows]
        cursor = page.next_cursor
        if cursor is None:
            break
        if len(pages) > len(every):
            yield "the pages of jobs have no end"
            break
    if sorted(pages) != sorted(row.job_id for row in every):
        yield f"the pages of jobs have {pages}"
    for where, expected in (
        (JobFilter(projects=("p", "r")), every),
        (JobFilter(projects=("q",)), []),
        (JobFilter(labels={"a": "b"}), []),
        (
            JobFilter(statuses=(JobStatus.COMPLETED,)),
            [row for row in every if row.status is JobStatus.COMPLETED],
        ),
    ):
        rows = store.jobs(JobQuery(where=where, limit=1000)).rows
        if {row.job_id for row in rows} != {row.job_id for row in expected}:
            yield f"{where} finds {[row.job_id for row in rows]}"
    for node in {name for row in attempts for name in row.nodes}:
        here = [row.lease_id for row in attempts if node in row.nodes]
        told = [row.lease_id for row in store.newest_attempts(AttemptQuery(nodes=(node,), limit=5))]
        if told != here[::-1][:5]:
            yield f"the newest leases of {node} are {here[::-1][:5]}, told are {told}"
    for row in every:
        own = [a for a in attempts if a.job_id == row.job_id]
        if list(store.attempts(row.job_id)) != own:
            yield f"{row.job_id} has leases that are not told"
        ran_s = sum((a.ended_s or 0.0) - a.start_s for a in own)
        if abs(store.run_times([row.job_id], now_s=0.0).get(row.job_id, 0.0) - ran_s) > 1e-6:
            yield f"{row.job_id} has run for {ran_s}, told is something else"
    yield from _check_ledger(store, attempts)


def _check_ledger(store: MemoryStore, attempts: list[AttemptRow]) -> Iterator[str]:
    """Yield places at which the ledger is not the sum of the leases, to the microsecond."""
    if not attempts:
        return
    from_s = min(a.start_s for a in attempts) - 1.0
    to_s = max(a.ended_s or a.start_s for a in attempts) + 1.0
    held: Counter[str] = Counter()
    for a in attempts:
        if a.ended_s is not None:
            held[a.job_id] += (int(a.ended_s * 1e6) - int(a.start_s * 1e6)) * len(a.workers)
    for by in ((UsageKey.JOB,), (UsageKey.DAY, UsageKey.JOB), ()):
        rows = store.usage(UsageQuery(from_s=from_s, to_s=to_s, by=by))
        told: Counter[str] = Counter()
        for row in rows:
            told[row.job or ""] += row.worker_us
        if +told != +(held if by else Counter({"": held.total()})):
            yield f"the ledger by {by} has {told}, the leases {held}"


def check_guards(store: MemoryStore) -> Iterator[str]:
    """Yield invalid values that a store takes, and old rows that it does not delete."""
    leader = store.acquire_leadership("guard", now_s=9e9, ttl_s=10.0)
    if leader is None:
        yield "nobody leads, and nobody can"
        return
    if store.acquire_leadership("other", now_s=9e9 + 5, ttl_s=10.0) is not None:
        yield "two lead"
    setting = SettingRow(key="guard", value=1, updated_s=0.0, actor="")
    good = Entry(
        sequence=store.head().sequence + 1,
        now_s=9e9,
        events=(),
        projections=Projections(settings=(setting,)),
    )
    twice = replace(good, projections=Projections(settings=(setting, setting)))
    bad: tuple[tuple[str, type[Exception], Any], ...] = (
        ("an older token", StaleLeaderError, lambda: store.commit(good, token=leader.token - 1)),
        ("a token of nobody", StaleLeaderError, lambda: store.commit(good, token=leader.token + 1)),
        (
            "an entry too late",
            SequenceError,
            lambda: store.commit(replace(good, sequence=good.sequence + 1), token=leader.token),
        ),
        (
            "an entry again",
            SequenceError,
            lambda: store.commit(replace(good, sequence=good.sequence - 1), token=leader.token),
        ),
        ("a row twice", StoreError, lambda: store.commit(twice, token=leader.token)),
        (
            "no time",
            StoreError,
            lambda: store.commit(replace(good, now_s=float("nan")), token=leader.token),
        ),
        (
            "a snapshot of what is to come",
            SequenceError,
            lambda: store.write_snapshot(
                Snapshot(sequence=good.sequence, state=b""), token=leader.token
            ),
        ),
        (
            "an old snapshot",
            SequenceError,
            lambda: store.write_snapshot(Snapshot(sequence=-1, state=b""), token=leader.token),
        ),
    )
    for name, refusal, act in bad:
        try:
            act()
        except refusal:
            continue
        except Exception as error:  # noqa: BLE001 - the kind does not matter
            yield f"{name} is refused by {error!r}"
        else:
            yield f"{name} is taken"
    try:
        store.commit(good, token=leader.token)
    except StoreError as error:
        yield f"a good entry is refused: {error!r}"
    if not store.settings("guard"):
        yield "a good entry was not taken"
    tokens = [leader.token]
    for _ in range(2):
        later = store.acquire_leadership("other", now_s=9e9 + 11.0, ttl_s=10.0)
        tokens.append(-1 if later is None else later.token)
    if tokens != sorted(set(tokens)):
        yield f"whoever follows a leader that is silent has tokens {tokens}"
    yield from _check_forgetting(store)


def _check_forgetting(store: MemoryStore) -> Iterator[str]:
    ended = [row for row in store._jobs.values() if row.finished_s is not None]
    if ended and store.prune_finished(max(row.finished_s or 0.0 for row in ended), limit=1) != (
        1 if len({row.finished_s for row in ended}) > 1 else 0
    ):
        yield "one job at a time is to be forgotten"
    with contextlib.suppress(KeyError):
        store.prune_finished(9e9, limit=1000)
    rows = {row.job_id for row in ended}
    left = rows & store._jobs.keys() | {a.job_id for a in store._attempts.values()} & rows
    left |= {line.subject for line in store._history if line.subject_kind == "job"} & rows
    if left:
        yield f"{sorted(left)} were to be forgotten"
    before = len(store._history)
    if before and (store.prune_history(9e10, limit=1) != 1 or len(store._history) != before - 1):
        yield "one line of history was to be forgotten"
