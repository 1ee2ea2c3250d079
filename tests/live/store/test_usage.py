"""The ledger: worker-seconds under leases, of jobs that are known and of forgotten ones."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from leasehold_testing.memory_store import MemoryStore
from leasehold_testing.stored import attempt_row, entry, job_row, lead
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.rows import LeaseUse
from scheduler.errors import InputError
from scheduler.store.usage import DAY_S, MOST_DAYS, UsageKey, UsageQuery, UsageRow

if TYPE_CHECKING:
    from scheduler.domain.rows import AttemptRow, JobRow
    from scheduler.store.protocol import Store

DAY = 20_000
FIRST_S = float(DAY * DAY_S)
PROJECTS, OWNERS, TYPES, WORKERS = ("nlp", "vision"), ("ada", "bob"), ("bert", "gpt"), ("", "v100")


def test_a_lease_belongs_to_a_job_an_owner_a_project_and_a_worker_type(store: Store) -> None:
    jobs = (job_row(1), job_row(2, project="nlp", owner="bob", job_type="bert"))
    attempts = (
        attempt_row(1, 1, workers=(3, 4), worker_type="v100", start_s=10.0, ended_s=14.5),
        attempt_row(2, 2, workers=(5,), worker_type="t4", start_s=12.0),
        attempt_row(3, 2, workers=(6, 7, 8), worker_type="v100", start_s=90.0),
    )
    store.commit(entry(1, jobs=jobs, attempts=attempts), token=lead(store))

    def ask(*by: UsageKey, to_s: float = 20.0, **given: object) -> tuple[UsageRow, ...]:
        return store.usage(UsageQuery(from_s=0.0, to_s=to_s, by=by, **given))  # type: ignore[arg-type]

    assert ask() == (UsageRow(leases=2, worker_us=17_000_000),)
    assert ask(UsageKey.PROJECT, UsageKey.OWNER) == (
        UsageRow(project="nlp", owner="bob", leases=1, worker_us=8_000_000),
        UsageRow(project="vision", owner="ada", leases=1, worker_us=9_000_000),
    )
    assert ask(UsageKey.WORKER_TYPE, UsageKey.JOB_TYPE, to_s=91.0) == (
        UsageRow(worker_type="t4", job_type="bert", leases=1, worker_us=79_000_000),
        UsageRow(worker_type="v100", job_type="bert", leases=1, worker_us=3_000_000),
        UsageRow(worker_type="v100", job_type="resnet", leases=1, worker_us=9_000_000),
    )
    assert ask(UsageKey.JOB, projects=frozenset({"nlp"})) == (
        UsageRow(job="job-2", leases=1, worker_us=8_000_000),
    )
    assert ask(projects=frozenset()) == ()
    assert store.usage(UsageQuery(from_s=14.5, to_s=15.0))[0].worker_s == 0.5
    assert store.usage(UsageQuery(from_s=1.0, to_s=2.0)) == ()


@pytest.mark.parametrize("forgotten", [0, 12, 40])
def test_sums_are_exact_by_every_grouping_in_every_part_of_the_time(
    store: Store, forgotten: int
) -> None:
    draw = random.Random(forgotten)
    jobs, attempts = _drawn(draw)
    token = lead(store)
    store.commit(entry(1, jobs=jobs, attempts=attempts), token=token)
    if forgotten:
        before_s = sorted(job.finished_s or 0.0 for job in jobs)[forgotten - 1]
        gone = store.prune_finished(before_s + 1e-3, limit=100)
        assert gone >= forgotten
    truth = _truth(jobs, attempts)
    end_s = FIRST_S + 6 * DAY_S
    for by in (
        (),
        (UsageKey.PROJECT,),
        (UsageKey.DAY,),
        (UsageKey.OWNER, UsageKey.WORKER_TYPE),
        (UsageKey.DAY, UsageKey.PROJECT, UsageKey.JOB_TYPE),
    ):
        expected: defaultdict[tuple[object, ...], int] = defaultdict(int)
        for keys, held in truth.items():
            named = dict(zip(UsageKey, keys, strict=True))
            expected[tuple(named[key] for key in by)] += held
        rows = store.usage(UsageQuery(from_s=FIRST_S, to_s=end_s, by=by))
        told = {tuple(_value(row, key) for key in by): row.worker_us for row in rows}
        assert told == dict(expected)
        # The same in two parts; at midnight, since forgotten jobs count by whole days.
        parts = [
            store.usage(UsageQuery(from_s=begin_s, to_s=until_s, by=by))
            for begin_s, until_s in (
                (FIRST_S, FIRST_S + 2 * DAY_S),
                (FIRST_S + 2 * DAY_S, end_s),
            )
        ]
        assert sum(row.worker_us for rows in parts for row in rows) == sum(expected.values())
    each = store.usage(UsageQuery(from_s=FIRST_S, to_s=end_s, by=(UsageKey.JOB,)))
    assert sum(row.worker_us for row in each) == sum(truth.values())
    assert {row.job for row in each if row.job} <= {job.job_id for job in jobs}
    assert any(row.job == "" for row in each) == bool(forgotten)


def test_what_is_forgotten_in_several_parts_adds_up(store: Store) -> None:
    jobs, attempts = _drawn(random.Random(7))
    store.commit(entry(1, jobs=jobs, attempts=attempts), token=lead(store))
    query = UsageQuery(from_s=FIRST_S, to_s=FIRST_S + 6 * DAY_S, by=(UsageKey.PROJECT,))
    before = store.usage(query)
    while store.prune_finished(FIRST_S + 9 * DAY_S, limit=7) == 7:
        assert [(r.project, r.worker_us) for r in store.usage(query)] == [
            (r.project, r.worker_us) for r in before
        ]
    assert store.job("job-1") is None


@pytest.mark.parametrize("forgotten", [0, 12, 40])
def test_what_gpus_computed_adds_up_by_every_grouping_and_in_parts(
    store: Store, forgotten: int
) -> None:
    jobs, attempts = _drawn(random.Random(forgotten))
    store.commit(entry(1, jobs=jobs, attempts=attempts), token=lead(store))
    if forgotten:
        before_s = sorted(job.finished_s or 0.0 for job in jobs)[forgotten - 1]
        store.prune_finished(before_s + 1e-3, limit=100)
    whole = sum(a.gpu_used_us for a in attempts), sum(a.gpu_measured_us for a in attempts)
    assert all(whole)
    end_s = FIRST_S + 8 * DAY_S
    cuts = [FIRST_S + days * DAY_S for days in (0, 1, 2, 3, 8)]
    for by in ((), (UsageKey.PROJECT,), (UsageKey.DAY, UsageKey.OWNER), (UsageKey.WORKER_TYPE,)):
        windows = [(FIRST_S, end_s)], list(itertools.pairwise(cuts))
        for parts in windows:
            rows = [
                row
                for begin_s, until_s in parts
                for row in store.usage(UsageQuery(from_s=begin_s, to_s=until_s, by=by))
            ]
            sums = sum(r.gpu_used_us for r in rows), sum(r.gpu_measured_us for r in rows)
            assert sums == whole


def test_every_store_says_the_same_of_what_gpus_computed(store: Store) -> None:
    jobs, attempts = _drawn(random.Random(3))
    memory = MemoryStore()
    for one in (memory, store):
        one.commit(entry(1, jobs=jobs, attempts=attempts), token=lead(one))
    for begin_s, end_s in ((0.3, 1.7), (1.0, 1.01), (0.0, 5.0)):
        for by in ((UsageKey.JOB,), (UsageKey.DAY, UsageKey.WORKER_TYPE)):
            query = UsageQuery(
                from_s=FIRST_S + begin_s * DAY_S, to_s=FIRST_S + end_s * DAY_S, by=by
            )
            assert store.usage(query) == memory.usage(query)


def test_a_lease_that_goes_on_has_used_what_was_told_so_far_and_unknown_is_not_none(
    store: Store,
) -> None:
    attempts = (
        attempt_row(1, 1, workers=(0,), start_s=10.0),
        attempt_row(2, 2, workers=(1,), start_s=10.0),
        attempt_row(3, 3, workers=(2,), start_s=10.0),
    )
    token = lead(store)
    store.commit(
        entry(1, jobs=(job_row(1), job_row(2), job_row(3)), attempts=attempts), token=token
    )
    told = LeaseUse(
        lease_id=1,
        gpu_used_us=6_000_001,
        gpu_measured_us=8_000_000,
        gpu_told_s=20.0,
        gpu_marks=((0, 6_000_001, 8_000_000),),
    )
    idle = LeaseUse(lease_id=2, gpu_measured_us=8_000_000, gpu_told_s=20.0)
    gone = LeaseUse(lease_id=77, gpu_used_us=1, gpu_measured_us=1, gpu_told_s=20.0)
    store.commit(entry(2, uses=(told, idle, gone)), token=token)
    row = store.attempt(1)
    assert row is not None
    assert (row.gpu_used_us, row.gpu_told_s, row.gpu_marks) == (6_000_001, 20.0, told.gpu_marks)

    def used(begin_s: float, end_s: float) -> list[float | None]:
        query = UsageQuery(from_s=begin_s, to_s=end_s, by=(UsageKey.JOB,))
        return [row.gpu_used_s for row in store.usage(query)]

    assert used(0.0, 50.0) == [6.000001, 0.0, None]
    assert used(0.0, 15.0) == [3.0, 0.0, None]
    assert used(15.0, 50.0) == [3.000001, 0.0, None]
    assert used(20.0, 50.0) == [None, None, None]


@pytest.mark.parametrize(
    ("from_s", "to_s", "by", "complaint"),
    [
        (5.0, 5.0, (), "since_s is 5, which is not before until_s, 5"),
        (5.0, float("inf"), (), "until_s inf; both must be times"),
        (0.0, 1.0, (UsageKey.JOB, UsageKey.JOB), "names a key twice: job, job"),
        (0.0, (MOST_DAYS + 1.0) * DAY_S, (UsageKey.DAY,), "more than 400 days"),
    ],
)
def test_what_cannot_be_added_up_is_refused(
    from_s: float, to_s: float, by: tuple[UsageKey, ...], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        UsageQuery(from_s=from_s, to_s=to_s, by=by)


def _drawn(draw: random.Random) -> tuple[tuple[JobRow, ...], tuple[AttemptRow, ...]]:
    """Return forty jobs that have ended, with leases over up to three days each."""
    jobs, attempts = [], []
    for number in range(1, 41):
        at_s = FIRST_S + draw.random() * DAY_S
        for _ in range(draw.randrange(4)):
            begin_s, at_s = at_s, at_s + draw.random() * 1.3 * DAY_S
            attempts.append(
                attempt_row(
                    len(attempts) + 1,
                    number,
                    worker_type=draw.choice(WORKERS),
                    workers=tuple(range(draw.choice((1, 2, 12)))),
                    start_s=begin_s,
                    ended_s=at_s,
                    **_measured(draw, begin_s, at_s),
                )
            )
        jobs.append(
            job_row(
                number,
                project=draw.choice(PROJECTS),
                owner=draw.choice(OWNERS),
                job_type=draw.choice(TYPES),
                status=JobStatus.COMPLETED,
                finished_s=at_s,
            )
        )
    return tuple(jobs), tuple(attempts)


def _measured(draw: random.Random, begin_s: float, end_s: float) -> dict[str, object]:
    """Return the computing of a lease's GPUs, for two leases in three."""
    if draw.random() < 1 / 3:
        return {}
    measured = int((end_s - begin_s) * draw.random() * 1e6)
    used = int(measured * draw.random())
    return {"gpu_used_us": used, "gpu_measured_us": measured, "gpu_told_s": end_s}


def _truth(
    jobs: tuple[JobRow, ...], attempts: tuple[AttemptRow, ...]
) -> dict[tuple[object, ...], int]:
    """Return worker-microseconds by all keys in their order, from second to second of each day."""
    found: defaultdict[tuple[object, ...], int] = defaultdict(int)
    for a in attempts:
        job = jobs[int(a.job_id.removeprefix("job-")) - 1]
        assert a.ended_s is not None
        for day in range(DAY, DAY + 6):
            begin, end = day * DAY_S * 10**6, (day + 1) * DAY_S * 10**6
            held = min(int(a.ended_s * 1e6), end) - max(int(a.start_s * 1e6), begin)
            if held > 0:
                keys = (job.project, job.owner, job.job_type, a.worker_type, job.job_id)
                found[*keys, float(day * DAY_S)] += held * len(a.workers)
    return found


def _value(row: UsageRow, key: UsageKey) -> object:
    return row.day_s if key is UsageKey.DAY else getattr(row, key)
