"""The contract of a store, the same for every kind of it."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

import numpy as np
import pytest

from leasehold_testing.stored import (
    attempt_row,
    entry,
    full_entry,
    history_row,
    job_row,
    job_state,
    lead,
)
from scheduler.domain.facts.events import JobSubmitted, ProgressReported, TimerFired
from scheduler.domain.jobs.job import Job, JobStatus
from scheduler.domain.rows import IdempotencyRow, Projections, SettingRow
from scheduler.errors import (
    ConflictError,
    SequenceError,
    StaleLeaderError,
    StoreError,
)
from scheduler.store.filters import JobFilter
from scheduler.store.protocol import Entry, Snapshot, Store
from scheduler.store.queries import HistoryQuery, JobQuery
from scheduler.store.rows import EnrolmentRow, TokenRow


def listed(store: Store, **query: Any) -> list[int]:
    return [row.number for row in store.jobs(JobQuery(**query)).rows]


def lines(store: Store, **query: Any) -> list[int]:
    return [row.event_id for row in store.history(HistoryQuery(**query))]


# -- journal --------------------------------------------------------------------------------------


def test_an_empty_store_begins_with_entry_1(store: Store) -> None:
    recovered = store.load()
    assert (recovered.snapshot, recovered.entries, recovered.next_sequence) == (None, (), 1)
    assert (store.head().sequence, store.head().event_id) == (0, 0)


def test_entries_come_back_in_order_with_their_events(store: Store) -> None:
    token = lead(store)
    job = Job(job_id="a", job_type="t", total_steps=2.0, deadline_s=float("inf"))
    store.commit(entry(1, JobSubmitted(job=job, profile=3)), token=token)
    progress = ProgressReported(lease_ids=np.array([4, 9]), steps_done=np.array([0.1, 7.0]))
    store.commit(entry(2, progress, TimerFired(timer="grace")), token=token)
    first, second = store.load().entries
    assert (first.sequence, first.now_s, second.sequence) == (1, 1.0, 2)
    assert first.events == (JobSubmitted(job=job, profile=3),)
    again, timer = second.events
    assert isinstance(again, ProgressReported)
    assert again.lease_ids.tolist() == [4, 9]
    assert again.steps_done.tolist() == [0.1, 7.0]
    assert timer == TimerFired(timer="grace")
    assert store.load().next_sequence == 3


def test_entries_keep_the_version_of_their_rules(store: Store) -> None:
    token = lead(store)
    store.commit(entry(1), token=token)
    store.commit(dataclasses.replace(entry(2), decider=7), token=token)
    assert [stored.decider for stored in store.load().entries] == [0, 7]


@pytest.mark.parametrize("sequence", [0, 1, 3, 7])
def test_only_the_next_entry_is_taken(store: Store, sequence: int) -> None:
    token = lead(store)
    store.commit(full_entry(1), token=token)
    with pytest.raises(SequenceError, match=f"entry {sequence} is not the next one after 1"):
        store.commit(dataclasses.replace(full_entry(5), sequence=sequence), token=token)
    assert store.head().sequence == 1
    assert listed(store) == [1]


def test_a_snapshot_replaces_the_entries_that_it_covers(store: Store) -> None:
    token = lead(store)
    for sequence in range(1, 6):
        store.commit(full_entry(sequence), token=token)
    store.write_snapshot(Snapshot(sequence=3, state=b"\x00three"), token=token)
    recovered = store.load()
    assert recovered.snapshot == Snapshot(sequence=3, state=b"\x00three")
    assert [e.sequence for e in recovered.entries] == [4, 5]
    store.write_snapshot(Snapshot(sequence=5, state=b"five"), token=token)
    assert store.load().entries == ()
    assert store.load().next_sequence == 6
    for sequence in (4, 6):
        with pytest.raises(SequenceError, match=f"snapshot of entry {sequence} does not fit"):
            store.write_snapshot(Snapshot(sequence=sequence, state=b""), token=token)
    store.commit(full_entry(6), token=token)
    assert [e.sequence for e in store.load().entries] == [6]


def test_an_entry_that_is_refused_leaves_nothing_behind(store: Store) -> None:
    token = lead(store)
    store.commit(full_entry(1), token=token)
    key = IdempotencyRow(scope="ada", key="job-1", job_id="job-2", created_s=2.0)
    refused: list[tuple[type[Exception], Entry]] = [
        (ConflictError, entry(2, jobs=(job_row(2),), idempotency=(key,))),
        (ConflictError, entry(2, jobs=(job_row(2), job_row(3, number=1)))),
        (StoreError, entry(2, jobs=(job_row(2),), states=(job_state(9),))),
        (StoreError, entry(2, jobs=(job_row(2),), attempts=(attempt_row(2, 9),))),
        (StoreError, entry(2, states=(job_state(1), job_state(1)))),
        (StoreError, entry(2, jobs=(job_row(2), job_row(2)))),
        (StoreError, dataclasses.replace(full_entry(2), now_s=float("nan"))),
    ]
    for error, bad in refused:
        told = dataclasses.replace(bad.projections, history=(history_row("job-2"),))
        with pytest.raises(error):
            store.commit(dataclasses.replace(bad, projections=told), token=token)
        assert (store.head().sequence, store.head().event_id) == (1, 2)
        assert listed(store) == [1]
        assert store.attempts("job-1") == (attempt_row(1, 1),)
    assert store.commit(full_entry(2), token=token).sequence == 2


# -- leadership -----------------------------------------------------------------------------------


def test_a_new_leader_is_newer_than_any_that_a_backup_forgot(store):
    # Agents ignore older terms; after a restore the last token is an old one.
    taken = store.acquire_leadership("a", now_s=1.8e9, ttl_s=10.0)
    assert taken.token >= 1.8e9
    assert store.acquire_leadership("a", now_s=1.8e9, ttl_s=10.0).token > taken.token


def test_a_database_server_tells_its_time(store: Store, request: pytest.FixtureRequest) -> None:
    of_a_server = "postgresql" in request.node.callspec.id
    assert store.server_s() == (pytest.approx(time.time(), abs=5.0) if of_a_server else None)


def test_one_leads_and_the_others_wait_until_it_expires(store: Store) -> None:
    assert store.leader() is None
    first = store.acquire_leadership("a", now_s=100.0, ttl_s=10.0, address="http://a")
    assert first is not None
    assert store.leader() == first
    assert store.acquire_leadership("b", now_s=109.0, ttl_s=10.0) is None
    renewed = store.renew_leadership(first.token, now_s=109.0, ttl_s=10.0)
    assert (renewed.expires_s, renewed.address) == (119.0, "http://a")
    assert store.acquire_leadership("b", now_s=118.0, ttl_s=10.0) is None
    second = store.acquire_leadership("b", now_s=119.0, ttl_s=10.0)
    assert second is not None
    assert second.token > first.token
    with pytest.raises(StaleLeaderError, match="'b' leads with token"):
        store.renew_leadership(first.token, now_s=119.5, ttl_s=10.0)


def test_a_leadership_that_was_seen_to_lapse_is_taken_over_by_the_taker_s_own_time(store) -> None:
    """Its holder's clock was hours ahead. A token by that clock might be given out again."""
    first = store.acquire_leadership("a", now_s=1.8e9 + 7200.0, ttl_s=10.0)
    seen = store.renew_leadership(first.token, now_s=1.8e9 + 7205.0, ttl_s=10.0)
    assert store.acquire_leadership("b", now_s=1.8e9, ttl_s=10.0) is None
    assert store.acquire_leadership("b", now_s=1.8e9, ttl_s=10.0, lapsed=first) is None
    second = store.acquire_leadership("b", now_s=1.8e9, ttl_s=10.0, lapsed=seen)
    assert (second.token, second.expires_s) == (first.token + 1, 1.8e9 + 10.0)


def test_a_deposed_leader_can_write_nothing(store: Store) -> None:
    old = store.acquire_leadership("a", now_s=0.0, ttl_s=1.0)
    assert old is not None
    store.commit(full_entry(1), token=old.token)
    new = store.acquire_leadership("b", now_s=2.0, ttl_s=1.0)
    assert new is not None
    with pytest.raises(StaleLeaderError, match="stop writing"):
        store.commit(full_entry(2), token=old.token)
    with pytest.raises(StaleLeaderError):
        store.write_snapshot(Snapshot(sequence=1, state=b""), token=old.token)
    store.release_leadership(old.token)
    assert store.leader() == new
    store.commit(full_entry(2), token=new.token)


def test_an_expired_leader_writes_on_until_somebody_takes_over(store: Store) -> None:
    taken = store.acquire_leadership("a", now_s=0.0, ttl_s=1.0)
    assert taken is not None
    store.commit(dataclasses.replace(full_entry(1), now_s=1e6), token=taken.token)
    assert store.renew_leadership(taken.token, now_s=1e6, ttl_s=1.0).token == taken.token


def test_a_restart_under_the_same_name_fences_its_earlier_self(store: Store) -> None:
    before = lead(store)
    after = lead(store)
    assert after > before
    with pytest.raises(StaleLeaderError):
        store.commit(full_entry(1), token=before)


def test_a_leadership_given_up_is_free_at_once_and_its_token_is_never_used_again(
    store: Store,
) -> None:
    token = lead(store)
    store.release_leadership(token)
    assert store.leader() is None
    with pytest.raises(StaleLeaderError, match="no process does"):
        store.commit(full_entry(1), token=token)
    taken = store.acquire_leadership("other", now_s=0.0, ttl_s=1.0)
    assert taken is not None
    assert taken.token > token


def test_of_many_who_try_at_once_one_leads_and_commits_do_not_overlap(store: Store) -> None:
    won: list[int] = []
    refused: list[type] = []

    def race(name: str) -> None:
        taken = store.acquire_leadership(name, now_s=0.0, ttl_s=100.0)
        if taken is not None:
            won.append(taken.token)

    run_all([lambda n=n: race(f"p{n}") for n in range(6)])
    assert len(won) == 1

    def write(number: int) -> None:
        try:
            store.commit(dataclasses.replace(full_entry(number), sequence=1), token=won[0])
        except SequenceError as error:
            refused.append(type(error))

    run_all([lambda n=n: write(n) for n in range(1, 7)])
    assert len(refused) == 5
    assert len(store.load().entries) == len(listed(store)) == 1


def run_all(calls: list[Any]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- history and settings -------------------------------------------------------------------------


def test_lines_of_history_are_numbered_as_they_become_visible(store: Store) -> None:
    token = lead(store)
    assert store.commit(full_entry(1), token=token).event_id == 2
    drained = history_row("alpha", "node_drained", subject_kind="node", actor="ada", data={"n": 1})
    assert store.append_history((drained,)).event_id == 3
    assert store.commit(full_entry(2), token=token).event_id == 5
    assert lines(store) == [1, 2, 3, 4, 5]
    assert lines(store, after_id=3) == [4, 5]
    assert lines(store, descending=True, limit=2) == [5, 4]
    assert lines(store, descending=True, before_id=4, limit=2) == [3, 2]
    assert lines(store, subject_kind="job", subject="job-2") == [4, 5]
    assert lines(store, kinds=("job_started", "node_drained")) == [2, 3, 5]
    assert lines(store, without=("node", "policy")) == [1, 2, 4, 5]
    assert store.history(HistoryQuery(subject_kind="node")) == (
        dataclasses.replace(drained, event_id=3),
    )
    assert store.head().event_id == 5


def test_lines_of_history_are_chosen_by_actor_and_time(store: Store) -> None:
    rows = tuple(
        history_row("alpha", subject_kind="node", at_s=float(at_s), actor=actor)
        for at_s, actor in ((10, "ada"), (20, ""), (30, "bob"), (40, "ada"))
    )
    store.append_history(rows)
    assert lines(store, actor="ada") == [1, 4]
    assert lines(store, since_s=20.0) == [2, 3, 4]
    assert lines(store, until_s=20.0) == [1]
    assert lines(store, since_s=20.0, until_s=40.0, descending=True) == [3, 2]
    assert lines(store, actor="ada", since_s=11.0, after_id=1) == [4]
    assert lines(store, since_s=0.0, until_s=0.0) == []


def test_settings_of_which_no_entry_tells_are_the_leader_s_to_write(store: Store) -> None:
    token = lead(store)
    hook = SettingRow(key="webhook/a", value={"on": ["x"]}, updated_s=1.0, actor="ada")
    store.write_settings((hook,), token=token)
    assert store.settings("webhook/") == (hook,)
    newer = dataclasses.replace(hook, value={"on": []})
    with pytest.raises(StaleLeaderError):
        store.write_settings((newer,), token=token - 1)
    assert store.settings("webhook/") == (hook,)
    store.write_settings((newer,), token=None)
    assert store.settings("webhook/") == (newer,)
    store.write_settings((dataclasses.replace(hook, value=None),), token=token)
    assert store.settings() == ()
    assert (store.head().sequence, store.head().event_id) == (0, 0)


def test_settings_are_set_replaced_and_removed(store: Store) -> None:
    token = lead(store)
    policy = SettingRow(key="policy", value={"name": "fifo", "p": [1, None]}, updated_s=1.0)
    nodes = [SettingRow(key=f"node.{n}", value=True, updated_s=1.0, actor="a") for n in "aBA"]
    store.commit(entry(1, settings=(policy, *nodes)), token=token)
    assert [row.key for row in store.settings()] == ["node.A", "node.B", "node.a", "policy"]
    assert store.settings("policy") == (policy,)
    assert [row.key for row in store.settings("node.")] == ["node.A", "node.B", "node.a"]
    assert store.settings("NODE") == ()
    newer = SettingRow(key="policy", value="x", updated_s=2.0)
    gone = SettingRow(key="node.B", value=None, updated_s=2.0)
    store.commit(entry(2, settings=(newer, gone)), token=token)
    assert [(row.key, row.value) for row in store.settings()] == [
        ("node.A", True),
        ("node.a", True),
        ("policy", "x"),
    ]


# -- retention ------------------------------------------------------------------------------------


def test_old_finished_jobs_are_forgotten_with_all_that_is_theirs(store: Store) -> None:
    token = lead(store)
    for n in range(1, 6):
        store.commit(full_entry(n), token=token)
    ended = [job_state(n, status=JobStatus.COMPLETED, finished_s=float(n)) for n in (1, 2, 3, 4)]
    store.commit(entry(6, states=tuple(ended)), token=token)
    store.append_history((history_row("job-1", subject_kind="node"),))
    assert store.prune_finished(4.0, limit=2) == 2
    assert listed(store) == [5, 4, 3]
    assert store.prune_finished(4.0, limit=2) == 1
    assert store.prune_finished(4.0, limit=2) == 0
    assert listed(store) == [5, 4]
    assert store.attempts("job-1") == ()
    assert store.jobs_of_keys("ada", ["job-1"]) == {}
    assert lines(store) == [7, 8, 9, 10, 11]
    assert listed(store, where=JobFilter(labels={"run": "1"})) == []
    assert len(store.load().entries) == 6
    store.commit(dataclasses.replace(full_entry(1), sequence=7), token=token)


def test_old_lines_of_history_are_forgotten_oldest_first(store: Store) -> None:
    rows = tuple(history_row("x", at_s=float(at)) for at in (5, 1, 3, 9))
    store.append_history(rows)
    assert store.prune_history(9.0, limit=2) == 2
    assert lines(store) == [1, 4]
    assert store.prune_history(9.0, limit=2) == 1
    assert store.append_history(rows[:1]).event_id == 5


# -- secrets --------------------------------------------------------------------------------------


def test_tokens_are_found_by_hash_revoked_once_and_touched_forwards(store: Store) -> None:
    token = TokenRow(
        token_id="t1",
        secret_hash="aa",
        subject="ada",
        role="user",
        projects=("vision", "text"),
        created_s=1.0,
        expires_s=9.0,
    )
    other = TokenRow(token_id="T0", secret_hash="bb", subject="n", role="agent", created_s=1.0)
    store.add_token(token)
    store.add_token(other)
    for taken in ("token_id", "secret_hash"):
        clash = dataclasses.replace(
            token, **{"token_id": "t9", "secret_hash": "zz"} | {taken: getattr(token, taken)}
        )
        with pytest.raises(ConflictError, match="taken"):
            store.add_token(clash)
    assert store.token("aa") == token
    assert store.token("AA") is None
    assert store.tokens() == (other, token)
    assert store.revoke_token("t1", now_s=5.0)
    assert store.revoke_token("t1", now_s=6.0)
    assert not store.revoke_token("t2", now_s=6.0)
    store.touch_tokens({})
    store.touch_tokens({"t1": 4.0, "T0": 2.0, "gone": 1.0})
    store.touch_tokens({"t1": 3.0})
    assert store.token("aa") == dataclasses.replace(token, revoked_s=5.0, last_used_s=4.0)


def test_an_enrolment_is_used_once_in_time_and_by_its_node(store: Store) -> None:
    store.add_enrolment(EnrolmentRow(secret_hash="any", created_s=0.0, expires_s=10.0))
    own = EnrolmentRow(secret_hash="own", node="alpha", created_s=0.0, expires_s=10.0)
    store.add_enrolment(own)
    with pytest.raises(ConflictError):
        store.add_enrolment(own)
    assert store.use_enrolment("none", node="alpha", now_s=1.0) is None
    assert store.use_enrolment("own", node="beta", now_s=1.0) is None
    assert store.use_enrolment("own", node="alpha", now_s=10.0) is None
    used = store.use_enrolment("own", node="alpha", now_s=9.0)
    assert used == dataclasses.replace(own, used_s=9.0, used_by="alpha")
    assert store.use_enrolment("own", node="alpha", now_s=9.0) is None
    winners: list[Any] = []
    run_all(
        [
            lambda n=n: winners.append(store.use_enrolment("any", node=f"n{n}", now_s=1.0))
            for n in range(6)
        ]
    )
    assert sum(row is not None for row in winners) == 1


def test_an_enrolment_keeps_what_it_approves_and_may_have_to_name_its_node(store: Store) -> None:
    anyone = EnrolmentRow(secret_hash="any", created_s=0.0, expires_s=9.0, workers={"v100": 2})
    own = EnrolmentRow(secret_hash="own", node="alpha", created_s=0.0, expires_s=9.0)
    for row in (anyone, own):
        store.add_enrolment(row)
    assert store.use_enrolment("any", node="alpha", now_s=1.0, named=True) is None
    used = store.use_enrolment("any", node="beta", now_s=1.0)
    assert used is not None
    assert used.workers == {"v100": 2}
    used = store.use_enrolment("own", node="alpha", now_s=1.0, named=True)
    assert used is not None
    assert used.workers is None


def test_a_token_is_replaced_once_and_forgotten_when_it_is_old(store: Store) -> None:
    first = TokenRow(token_id="a1", secret_hash="h1", subject="n0", role="agent", created_s=0.0)
    soon = dataclasses.replace(first, token_id="a2", secret_hash="h2", expires_s=3.0, replaces="a1")
    other = dataclasses.replace(first, token_id="b1", secret_hash="h3", subject="n1")
    for row in (first, soon, other):
        store.add_token(row)
    assert store.tokens("n0") == (first, soon)
    assert store.tokens("n2") == ()
    assert store.replace_token("a1", now_s=1.0, expires_s=5.0)
    assert not store.replace_token("a1", now_s=2.0, expires_s=9.0)
    assert not store.replace_token("none", now_s=2.0, expires_s=9.0)
    assert store.replace_token("a2", now_s=1.0, expires_s=5.0)
    assert store.tokens("n0") == (
        dataclasses.replace(first, replaced_s=1.0, expires_s=5.0),
        dataclasses.replace(soon, replaced_s=1.0),
    )
    assert store.forget_tokens("n0", before_s=4.0) == 1
    assert [row.token_id for row in store.tokens()] == ["a1", "b1"]
    assert store.forget_tokens("n1", before_s=1e9) == 0
    store.drop_token("b1")
    store.drop_token("b1")
    assert [row.token_id for row in store.tokens()] == ["a1"]


def test_a_store_is_closed_quietly(store: Store) -> None:
    store.commit(
        Entry(sequence=1, now_s=0.0, events=(), projections=Projections()), token=lead(store)
    )
    store.close()
