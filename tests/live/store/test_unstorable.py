"""What no store can hold is refused by all of them, and leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from scheduler.domain.rows import SettingRow
from scheduler.errors import UnstorableError
from scheduler.store.queries import HistoryQuery, JobQuery
from scheduler.store.rows import EnrolmentRow, TokenRow

if TYPE_CHECKING:
    from scheduler.store.protocol import Store


@pytest.mark.parametrize(
    "bad",
    [
        {"attempts": (attempt_row(2, 2, ended_s=2.0, exit_code=2**63 + 3),)},
        {"attempts": (attempt_row(2, 2, exit_code=-(2**63) - 1),)},
        {"attempts": (attempt_row(2**63, 2),)},
        {"attempts": (attempt_row(2, 2, message="a\0b"),)},
        {"attempts": (attempt_row(2, 2, message="half \ud800"),)},
        {"attempts": (attempt_row(2, 2, steps_done=float("nan")),)},
        {"attempts": (attempt_row(2, 2, nodes=("\ud800",)),)},
        {"states": (job_state(2, steps_done=float("inf")),)},
        {"jobs": (job_row(2, attempts=10**30),)},
        {"jobs": (job_row(2, spec={"deep": [float("nan")]}),)},
        {"jobs": (job_row(2, spec={"a": "\udcff"}),)},
        {"jobs": (job_row(2, spec={"a": object()}),)},
        {"jobs": (job_row(2, labels={"a": "b\0"}),)},
        {"history": (history_row("job-2", "job_\0"),)},
        {"history": (history_row("job-2", data={"a": float("-inf")}),)},
        {"settings": (SettingRow(key="a\0", value=1, updated_s=1.0),)},
        {"settings": (SettingRow(key="a", value={1, 2}, updated_s=1.0),)},
    ],
)
def test_what_no_store_can_hold_is_refused_by_all_and_leaves_nothing_behind(
    store: Store, bad: dict[str, Any]
) -> None:
    token = lead(store)
    store.commit(full_entry(1), token=token)
    with pytest.raises(UnstorableError):
        store.commit(entry(2, **{"jobs": (job_row(2),)} | bad), token=token)
    assert (store.head().sequence, store.head().event_id) == (1, 2)
    assert [row.number for row in store.jobs(JobQuery()).rows] == [1]
    assert store.settings() == ()
    assert store.commit(full_entry(2), token=token).sequence == 2


def test_what_no_store_can_hold_is_refused_outside_the_journal_too(store: Store) -> None:
    with pytest.raises(UnstorableError):
        store.append_history((history_row("node\0"),))
    with pytest.raises(UnstorableError):
        store.add_token(
            TokenRow(token_id="t", secret_hash="h", subject="a\ud800", role="user", created_s=1.0)
        )
    with pytest.raises(UnstorableError):
        store.add_enrolment(EnrolmentRow(secret_hash="h", node="n\0", created_s=1.0, expires_s=9.0))
    assert list(store.history(HistoryQuery())) == []
    assert store.tokens() == ()


def test_integers_of_any_size_come_back_from_within_json(store: Store) -> None:
    token = lead(store)
    store.commit(entry(1, jobs=(job_row(1, spec={"n": [2**63, 10**30]}),)), token=token)
    row = store.job("job-1")
    assert row is not None
    assert row.spec == {"n": [2**63, 10**30]}
