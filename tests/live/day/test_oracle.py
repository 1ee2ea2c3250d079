"""The oracle of the day finds its faults, and nothing if all is well."""

from __future__ import annotations

import pytest
from oracle import Wanted, at_once, held_us, idling


def line(at_s, kind, subject="", **data):
    return {"at_s": at_s, "kind": kind, "subject": subject, "data": data}


def granted(at_s, job, lease, workers=1, worker_type="v100"):
    return line(
        at_s,
        "lease_granted",
        job,
        lease=lease,
        worker_type=worker_type,
        workers=list(range(workers)),
    )


def job(workers=1, project="p", **more):
    return Wanted(project=project, workers=workers, types=frozenset({"v100"}), **more)


def lengths(history, wanted, quotas=None):
    found = idling(history, wanted, quotas or {})
    return [(stretch.length_s, sorted(stretch.jobs)) for stretch in found]


TWO = line(0, "node_joined", workers=["v100", "v100"])


def came(at_s, *jobs):
    return [line(at_s, kind, j) for j in jobs for kind in ("job_submitted", "job_admitted")]


def test_a_worker_beside_a_job_that_waits_is_found():
    history = [TWO, *came(1, "a", "b"), granted(2, "a", 1), granted(7, "b", 2)]
    assert lengths(history, {"a": job(), "b": job()}) == [(6, ["a", "b"])]


def test_a_stretch_ends_where_the_last_worker_is_taken():
    history = [
        *(TWO, *came(1, "a", "b", "c"), granted(1, "a", 1), granted(1, "b", 2)),
        *(line(5, "lease_ended", "a", lease=1), granted(5.5, "c", 3)),
        *(line(5, "job_completed", "a"), line(9, "lease_ended", "b", lease=2)),
    ]
    wanted = {name: job() for name in "abc"}
    assert lengths(sorted(history, key=lambda e: e["at_s"]), wanted) == [(0.5, ["c"])]


def test_a_gang_waits_beside_too_few_workers():
    history = [TWO, *came(1, "a", "g"), granted(1, "a", 1), line(9, "policy_warning")]
    wanted = {"a": job(), "g": job(workers=2)}
    assert lengths(history, wanted) == []
    assert lengths([*history[:-1], line(3, "lease_ended", "a", lease=1), history[-1]], wanted) == [
        (6, ["a", "g"])
    ]


@pytest.mark.parametrize(
    ("wanted", "more", "quotas"),
    [
        (job(held=True), [], {}),
        (job(after=frozenset({"other"})), [], {}),
        (job(), [line(1, "job_retried", "a", wait_s=30.0)], {}),
        (job(), [line(1, "job_held", "a")], {}),
        (job(), [line(1, "job_cancelled", "a")], {}),
        (job(workers=2), [], {"p": 1}),
    ],
)
def test_who_may_not_run_waits_for_nobody(wanted, more, quotas):
    history = [TWO, *came(1, "a"), *more, line(20, "policy_warning")]
    assert lengths(history, {"a": wanted}, quotas) == []


def test_a_wait_ends_by_itself_and_by_a_release():
    history = [TWO, *came(1, "a"), line(1, "job_retried", "a", wait_s=4.0), line(9, "x")]
    assert lengths(history, {"a": job()}) == [(4, ["a"])]
    history = [TWO, *came(1, "a"), line(3, "job_released", "a"), line(9, "x")]
    assert lengths(history, {"a": job(held=True)}) == [(6, ["a"])]


def test_a_quota_keeps_out_what_goes_beyond_it_and_nothing_else():
    wanted = {"a": job(), "b": job()}
    history = [TWO, *came(1, "a", "b"), granted(1, "a", 1), line(9, "x")]
    assert lengths(history, wanted, {"p": 1}) == []
    assert lengths(history, wanted, {"p": 2}) == [(8, ["b"])]
    # One that is not let in waits for those that are, as far as the quota goes.
    history = [TWO, *came(1, "a"), line(1, "job_submitted", "b"), line(9, "x")]
    assert lengths(history, wanted, {"p": 1}) == [(8, ["a"])]
    assert lengths(history, wanted, {"p": 2}) == [(8, ["a", "b"])]


def test_leases_are_added_up_in_whole_microseconds():
    attempts = [
        {"lease_id": 1, "start_s": 1.0000019, "ended_s": 2.5, "workers": [0, 1]},
        {"lease_id": 2, "start_s": 2.5, "ended_s": 3.0, "workers": [1]},
    ]
    assert held_us(attempts) == 2 * 1_499_999 + 500_000
    assert list(at_once(attempts)) == []
    attempts[1]["start_s"] = 2.4
    assert list(at_once(attempts)) == ["leases 1 and 2 held worker 1 at once"]
