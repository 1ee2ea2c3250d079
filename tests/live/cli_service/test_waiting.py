"""Waiting for jobs while the scheduler is away, and completion inside this process."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from leasehold.cli.session import completion
from leasehold.cli.session.follow import follow_jobs, wait_for_jobs
from scheduler.errors import NotFoundError, UnreachableError


class Answers:
    """A client that records its reads of a job's status."""

    def __init__(self, *statuses):
        self.statuses = list(statuses)
        self.pauses = []
        self.sleeps = []

    def history(self, **_):
        return {"events": [], "last_event_id": 7}

    def job(self, _):
        status = self.statuses.pop(0)
        if isinstance(status, Exception):
            raise status
        return {"status": status}

    def pause(self, look, *, at_least_s=0.0):
        self.pauses.append(look)

    def sleep(self, seconds):
        self.sleeps.append(seconds)


def test_waiting_outlasts_an_absent_scheduler_and_says_so_once(capsys):
    away = UnreachableError("nobody answers")
    service = Answers("running", away, away, "running", "completed")
    assert wait_for_jobs(service, ["a"]) == 0
    assert capsys.readouterr().err.count("trying again until it is back") == 1
    assert service.pauses == [1, 2]
    first, second = service.sleeps  # between tries while it is away
    assert 0.0 < first < second


def test_waits_grow_only_so_long():
    service = Answers(*["running"] * 9, "completed")
    wait_for_jobs(service, ["a"])
    assert service.pauses == [1, 2, 3, 4, 5, 6, 6, 6, 6]


def test_a_job_that_is_forgotten_meanwhile_did_not_complete(capsys):
    gone = NotFoundError("there is no job 'a'")
    assert wait_for_jobs(Answers(gone, "completed"), ["a", "b"]) == 1
    assert "a is forgotten" in capsys.readouterr().err
    assert follow_jobs(Answers(gone, "failed"), ["a", "b"], as_json=False) == 1


def test_jobs_that_have_all_ended_are_shown_and_not_watched(scheduler, leasehold):
    assert leasehold("submit", "--array", "2", "--", "./x").code == 0
    for job in ("job-1", "job-2"):
        scheduler.do(scheduler.service.finish, job)
    assert leasehold("watch", "job-1").out.count("\n") == 2
    ran = leasehold("watch", "job-1", "job-2")
    assert (ran.code, ran.out) == (0, "")


def test_what_happens_to_others_is_left_out(scheduler, leasehold, until):
    assert leasehold("submit", "--array", "3", "--", "./x").code == 0

    def meanwhile() -> None:
        until(lambda: scheduler.service._news._waiters)
        for job in ("job-3", "job-1"):
            scheduler.do(scheduler.service.run, job)
        for job in ("job-1", "job-2"):
            scheduler.do(scheduler.service.finish, job)

    other = threading.Thread(target=meanwhile)
    other.start()
    ran = leasehold("watch", "job-1", "job-2")
    other.join()
    assert ran.code == 0
    assert "job-3" not in ran.out
    assert ran.out.count("job completed") == 2


@pytest.mark.parametrize(("complete", "begun", "names"), [
    (completion.complete_job, "jo", ["job-1"]),
    (completion.complete_job, "x", []),
    (completion.complete_node, "", ["alpha"]),
    (completion.complete_policy, "max_min_f", ["max_min_fairness"]),
    (completion.complete_project, "v", ["vision"]),
])  # fmt: skip
def test_names_are_completed(complete, begun, names, scheduler, leasehold):
    assert leasehold("submit", "--", "./x").code == 0
    assert leasehold("project", "set", "vision", "--weight", "2").code == 0
    for _ in range(20):  # no wait for a completion is long, and a busy machine may be slower
        found = complete(SimpleNamespace(params={"server": scheduler.url}), begun)
        if found or not names:
            break
    assert [item if isinstance(item, str) else item[0] for item in found] == names
    assert complete(SimpleNamespace(params={"server": "http://127.0.0.1:9"}), begun) == []
