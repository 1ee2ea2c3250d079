"""The contract of a store on jobs and their leases, the same for every kind of it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from leasehold_testing.stored import (
    attempt_row,
    entry,
    job_row,
    job_state,
    lead,
)
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import EndReason
from scheduler.domain.rows import HistoryRow, IdempotencyRow, LeaseExtension
from scheduler.errors import (
    InputError,
)
from scheduler.store.filters import JobFilter
from scheduler.store.queries import AttemptQuery, HistoryQuery, JobKey, JobOrder, JobQuery

if TYPE_CHECKING:
    from scheduler.store.protocol import Store


def listed(store: Store, **query: Any) -> list[int]:
    return [row.number for row in store.jobs(JobQuery(**query)).rows]


def test_rows_come_back_as_they_were_written(store: Store) -> None:
    token = lead(store)
    job = job_row(
        1,
        name="naïve \N{SNOWMAN} 'quoted' %s",
        status=JobStatus.REFUSED,
        deadline_s=0.1 + 0.2,
        labels={"a": "1", "b": ""},
        spec={"command": ["python", "x"], "nested": {"n": None, "t": True, "f": 1e-300}},
    )
    attempt = attempt_row(
        7,
        1,
        ended_s=9.5,
        end_reason=EndReason.FAILED,
        exit_code=-9,
        message="out of memory",
        workers=(),
        nodes=(),
    )
    key = IdempotencyRow(scope="ada", key="k", job_id="job-1", digest="d", created_s=3.0)
    store.commit(entry(1, jobs=(job,), idempotency=(key,), attempts=(attempt,)), token=token)
    assert store.job("job-1") == job
    assert store.attempts("job-1") == (attempt,)
    assert store.jobs_of_keys("ada", ["k"]) == {"k": key}
    assert store.job("job-2") is None
    assert store.jobs_of_keys("bob", ["k"]) == {}
    assert store.attempts("job-2") == ()


def test_a_state_changes_its_part_of_the_row_and_a_row_replaces_all_of_it(store: Store) -> None:
    token = lead(store)
    store.commit(entry(1, jobs=(job_row(1, labels={"a": "1"}), job_row(2))), token=token)
    state = job_state(1, status=JobStatus.COMPLETED, weight=2.0, finished_s=50.0, failures=1)
    store.commit(entry(2, states=(state,)), token=token)
    row = store.job("job-1")
    assert row is not None
    changed = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    assert row == dataclasses.replace(job_row(1, labels={"a": "1"}), **changed)
    store.commit(entry(3, jobs=(job_row(1, labels={"b": "2"}),)), token=token)
    assert store.job("job-1") == job_row(1, labels={"b": "2"})
    assert listed(store, where=JobFilter(labels={"a": "1"})) == []
    assert listed(store, where=JobFilter(labels={"b": "2"})) == [1]


def test_leases_are_extended_together_unless_they_have_ended(store: Store) -> None:
    token = lead(store)
    rows = (attempt_row(1, 1), attempt_row(2, 1, ended_s=20.0), attempt_row(3, 1))
    store.commit(entry(1, jobs=(job_row(1),), attempts=rows), token=token)
    longer = LeaseExtension(lease_ids=(1, 2, 99), deadline_s=130.0)
    store.commit(
        entry(2, extensions=(longer, LeaseExtension(lease_ids=(), deadline_s=1.0))), token=token
    )
    assert [a.deadline_s for a in store.attempts("job-1")] == [130.0, 70.0, 70.0]
    assert [a.lease_id for a in store.open_attempts()] == [1, 3]


def test_projects_are_found_of_many_jobs_at_once(store: Store) -> None:
    token = lead(store)
    rows = tuple(job_row(n, project=f"p{n % 3}") for n in range(1, 5))
    store.commit(entry(1, jobs=rows), token=token)
    wanted = [*(f"job-{n}" for n in range(1, 4)), *(f"none-{n}" for n in range(2000))]
    assert store.projects_of(wanted) == {"job-1": "p1", "job-2": "p2", "job-3": "p0"}
    assert store.projects_of([]) == {}


def test_jobs_are_counted_by_status_for_each_project_owner_or_type(store: Store) -> None:
    token = lead(store)
    rows = (
        job_row(1, project="a", owner="ann", status=JobStatus.RUNNING),
        job_row(2, project="a", owner="bob", labels={"x": "1"}),
        job_row(3, project="a", owner="bob", job_type="big"),
        job_row(4, project="B", owner="bob", status=JobStatus.COMPLETED, finished_s=5.0),
    )
    store.commit(entry(1, jobs=rows), token=token)
    waiting, running, done = JobStatus.WAITING, JobStatus.RUNNING, JobStatus.COMPLETED
    everything = store.count_jobs(JobFilter(), JobKey.PROJECT)
    assert everything == {"a": {running: 1, waiting: 2}, "B": {done: 1}}
    assert store.count_jobs(JobFilter(projects=("a",)), JobKey.OWNER) == {
        "ann": {running: 1},
        "bob": {waiting: 2},
    }
    assert store.count_jobs(JobFilter(labels={"x": "1"}), JobKey.OWNER) == {"bob": {waiting: 1}}
    assert store.count_jobs(JobFilter(statuses=(waiting,)), JobKey.JOB_TYPE)["big"] == {waiting: 1}
    assert store.count_jobs(JobFilter(owner="nobody"), JobKey.OWNER) == {}


def test_the_newest_line_of_some_kinds_is_found_for_many_jobs_at_once(store: Store) -> None:
    token = lead(store)
    lines = [("job_held", 1, 5.0), ("job_released", 1, 6.0), ("job_held", 2, 7.0), ("x", 2, 9.0)]
    rows = tuple(
        HistoryRow(at_s=at_s, kind=kind, subject_kind="job", subject=f"job-{n}", actor="ann")
        for kind, n, at_s in lines
    )
    other = HistoryRow(at_s=99.0, kind="job_held", subject_kind="node", subject="job-1", actor="a")
    store.commit(
        entry(1, jobs=(job_row(1), job_row(2), job_row(3)), history=(*rows, other)), token=token
    )
    wanted = [f"job-{n}" for n in range(1, 2000)]
    assert store.newest_times(wanted, ["job_held"]) == {"job-1": 5.0, "job-2": 7.0}
    assert store.newest_times(wanted, ["job_held", "job_released"])["job-1"] == 6.0
    assert store.newest_times(["job-3"], ["job_held"]) == {}
    assert store.newest_times([], ["job_held"]) == {}


def test_run_times_add_up_leases_and_leave_out_the_waits_between_them(store: Store) -> None:
    token = lead(store)
    rows = (
        attempt_row(1, 1, start_s=10.0, ended_s=14.0),
        attempt_row(2, 1, start_s=30.0, ended_s=33.5),
        attempt_row(3, 1, start_s=50.0),
        attempt_row(4, 2, start_s=90.0),
    )
    jobs = (job_row(1), job_row(2), job_row(3))
    store.commit(entry(1, jobs=jobs, attempts=rows), token=token)
    names = ["job-1", "job-2", "job-3", "job-4"]
    assert store.run_times(names, now_s=52.0) == {"job-1": 4.0 + 3.5 + 2.0, "job-2": 0.0}
    assert store.run_times(["job-2"], now_s=100.0) == {"job-2": 10.0}
    assert store.run_times([], now_s=100.0) == {}
    assert len(store.run_times([f"job-{i}" for i in range(2000)], now_s=60.0)) == 2


def test_leases_are_found_by_node_newest_first(store: Store) -> None:
    token = lead(store)
    nodes = (("alpha",), ("alpha", "beta"), ("Alpha",), ("alpha-2", "alp_a"), ("beta",))
    rows = tuple(attempt_row(i, 1, nodes=names) for i, names in enumerate(nodes, start=1))
    store.commit(entry(1, jobs=(job_row(1),), attempts=rows), token=token)

    def found(node: str, **more: Any) -> list[int]:
        return [a.lease_id for a in store.newest_attempts(AttemptQuery(nodes=(node,), **more))]

    assert found("alpha") == [2, 1]
    assert found("alpha", limit=1) == [2]
    assert found("alpha", before_id=2) == [1]
    assert found("beta") == [5, 2]
    assert found("alp_a") == [4]
    assert found("alph") == []


def test_leases_are_found_by_window_node_and_project_newest_first(store: Store) -> None:
    token = lead(store)
    jobs = (job_row(1, project="vision"), job_row(2, project="speech"))
    rows = (
        attempt_row(1, 1, start_s=10.0, ended_s=20.0, nodes=("alpha",)),
        attempt_row(2, 2, start_s=20.0, ended_s=30.0, nodes=("alpha", "beta")),
        attempt_row(3, 1, start_s=40.0, nodes=("beta",)),
        attempt_row(4, 2, start_s=50.0, ended_s=60.0, nodes=("gamma",)),
    )
    store.commit(entry(1, jobs=jobs, attempts=rows), token=token)

    def found(since_s: float | None = None, until_s: float | None = None, **more: Any) -> list[int]:
        query = AttemptQuery(since_s=since_s, until_s=until_s, **more)
        return [a.lease_id for a in store.newest_attempts(query)]

    assert found() == found(0.0, 100.0) == [4, 3, 2, 1]
    assert found(19.9) == [4, 3, 2, 1]
    assert found(20.0) == [4, 3, 2]
    assert found(70.0) == [3]
    assert found(None, 50.0) == [3, 2, 1]
    assert found(None, 10.0) == []
    assert found(20.0, 40.0) == [2]
    assert found(29.0, 41.0) == [3, 2]
    assert found(nodes=("beta",)) == [3, 2]
    assert found(nodes=("alpha", "gamma")) == [4, 2, 1]
    assert found(nodes=("alpha", "gamma"), until_s=50.0) == [2, 1]
    assert found(projects=("speech",)) == [4, 2]
    assert found(projects=("speech", "vision")) == [4, 3, 2, 1]
    assert found(projects=("text",)) == []
    assert found(limit=2) == [4, 3]
    assert found(before_id=3) == [2, 1]
    assert found(before_id=4, limit=1, projects=("speech",)) == [2]
    with pytest.raises(InputError, match="limit is 0"):
        found(limit=0)


@pytest.fixture
def many(store: Store) -> Store:
    statuses = list(JobStatus)
    jobs = tuple(
        job_row(
            n,
            name="BbAaéz"[n % 6] + str(n % 4),
            project=("vision", "speech", "text")[n % 3],
            job_type=("resnet", "bert")[n % 2],
            owner=("ada", "bob")[n >= 30],
            status=statuses[n % len(statuses)],
            weight=float(n % 5 + 1),
            updated_s=float(-n * 7 % 13),
            finished_s=None if n % 2 else float(n % 7),
            deadline_s=float(n % 6) if n % 3 else None,
            labels={"team": "abc"[n % 3], "even": str(n % 2 == 0)},
        )
        for n in range(1, 61)
    )
    store.commit(entry(1, jobs=jobs), token=lead(store))
    return store


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        (JobFilter(statuses=(JobStatus.HELD, JobStatus.FAILED)), lambda n: n % 7 in {2, 5}),
        (JobFilter(projects=("text", "speech")), lambda n: n % 3 != 0),
        (JobFilter(job_types=("bert",), owner="bob"), lambda n: n % 2 == 1 and n >= 30),
        (JobFilter(labels={"team": "b", "even": "True"}), lambda n: n % 3 == 1 and n % 2 == 0),
        (JobFilter(labels={"team": "z"}), lambda _: False),
        (JobFilter(called="job-1"), lambda n: str(n).startswith("1")),
        (JobFilter(called="JOB-1"), lambda _: False),
        (JobFilter(called="job_1"), lambda _: False),
        (JobFilter(called="b1"), lambda n: n % 6 == 1 and n % 4 == 1),  # the name, and no part
        (JobFilter(projects=("vision",), labels={"even": "True"}), lambda n: n % 6 == 0),
    ],
)
def test_filters_pass_the_jobs_that_meet_all_of_them(many: Store, where: Any, passes: Any) -> None:
    expected = [n for n in range(1, 61) if passes(n)]
    assert listed(many, where=where, descending=False) == expected
    ids = tuple(f"job-{n}" for n in expected)
    assert many.job_ids(where, most=100) == ids
    assert many.job_ids(where, most=3) == ids[:3]


def test_the_name_of_an_array_means_its_elements(store: Store) -> None:
    names = ("sweep[0]", "sweep[1]", "sweep", "sweeper[0]", "swe_p[0]", "Sweep[0]")
    jobs = tuple(job_row(n, name=name) for n, name in enumerate(names, 1))
    store.commit(entry(1, jobs=jobs), token=lead(store))
    for where, expected in (
        (JobFilter(names=("sweep",)), [1, 2, 3]),
        (JobFilter(names=("sweep[1]", "sweeper")), [2, 4]),
        (JobFilter(called="sweep"), [1, 2, 3]),
        (JobFilter(called="swe_p"), [5]),
    ):
        assert listed(store, where=where, descending=False) == expected


@pytest.mark.parametrize("order", JobOrder)
@pytest.mark.parametrize("descending", [False, True])
def test_pages_join_to_the_sorted_list(many: Store, order: JobOrder, descending: bool) -> None:
    names = {
        "submitted": "number",
        "updated": "updated_s",
        "finished": "finished_s",
        "deadline": "deadline_s",
    }
    attribute = names.get(order, str(order))
    rows = [many.job(f"job-{n}") for n in range(1, 61)]
    rows = [row for row in rows if getattr(row, attribute) is not None]
    rows.sort(key=lambda row: (getattr(row, attribute), row.number), reverse=descending)  # type: ignore[union-attr]
    seen: list[Any] = []
    cursor = None
    while True:
        page = many.jobs(JobQuery(order=order, descending=descending, limit=7, cursor=cursor))
        seen += page.rows
        cursor = page.next_cursor
        if cursor is None:
            break
        assert len(page.rows) == 7
    assert seen == rows


@pytest.mark.parametrize("cursor", ["", "x", "bm8", "WzFd", "WyJuYW1lIiwxLDFd", "é"])
def test_a_foreign_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(InputError, match="does not belong to a list sorted by name"):
        store.jobs(JobQuery(order=JobOrder.NAME, cursor=cursor))


def test_a_page_without_rows_or_with_too_many_is_refused() -> None:
    for query in (JobQuery, HistoryQuery):
        for limit in (0, 1001):
            with pytest.raises(InputError, match=f"limit is {limit}"):
                query(limit=limit)
