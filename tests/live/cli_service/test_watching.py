"""``leasehold watch``: the history as it is written."""

from __future__ import annotations

import json
import threading

import pytest


@pytest.fixture
def job(scheduler, leasehold):
    """Return the id of a waiting job."""
    return leasehold("submit", "--label", "k=v", "--steps", "10", "--", "./train").out.strip()


def test_watch_resumes_where_it_was_after_a_restart(job, scheduler, leasehold, until):
    def meanwhile() -> None:
        until(lambda: scheduler.service._news._waiters)  # the stream is open and has read all
        scheduler.do(scheduler.service.run, job)
        until(lambda: scheduler.service._news._waiters)
        scheduler.stop()
        scheduler.service.finish(job)  # no process listens
        scheduler.start()

    other = threading.Thread(target=meanwhile)
    other.start()
    ran = leasehold("watch", job, "--json")
    other.join()
    assert ran.code == 0, ran.err
    kinds = [json.loads(line)["kind"] for line in ran.out.splitlines()]
    assert kinds == ["job_submitted", "lease_granted", "job_completed"]


def test_watch_of_several_jobs_ends_when_the_last_one_has_ended(job, scheduler, leasehold, until):
    second = leasehold("submit", "--", "./second").out.strip()
    scheduler.do(scheduler.service.finish, job)

    def meanwhile() -> None:
        until(lambda: scheduler.service._news._waiters)
        scheduler.do(scheduler.service._note, "node_lost", "node", "alpha", "", {})
        scheduler.do(scheduler.service.finish, second)

    other = threading.Thread(target=meanwhile)
    other.start()
    ran = leasehold("watch", job, second)
    other.join()
    assert ran.code == 0, ran.err
    assert ran.out.split("  ")[1:] == ["job job-2", "job completed\n"]


def test_watch_without_a_job_goes_on_until_it_is_interrupted(
    job, scheduler, leasehold, monkeypatch
):
    import leasehold.cli.service.watch as watch_module

    shown = []

    def show(event, *, as_json):
        shown.append(event["kind"])
        if len(shown) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(watch_module, "show_event", show)
    assert leasehold("cordon", "alpha").code == 0
    assert leasehold("watch", "--after", "0").code == 130
    assert shown == ["job_submitted", "node_cordon"]
    shown.clear()
    assert leasehold("uncordon", "alpha").code == 0
    assert leasehold("watch", "--after", "0", "--subject", "node").code == 130
    assert shown == ["node_cordon", "node_uncordon"]


def test_watch_can_be_confined_to_an_actor_and_a_time(job, scheduler, leasehold, monkeypatch):
    import leasehold.cli.service.watch as watch_module

    shown = []

    def show(event, *, as_json):
        shown.append((event["kind"], event["actor"]))
        raise KeyboardInterrupt

    monkeypatch.setattr(watch_module, "show_event", show)
    scheduler.service.now_s += 7200
    scheduler.do(scheduler.service._note, "node_lost", "node", "alpha", "", {})
    scheduler.do(scheduler.service._note, "node_drain", "node", "alpha", "eve", {})
    since = str(7200 - 3600)
    monkeypatch.setattr(watch_module.time, "time", lambda: scheduler.service.now_s)
    assert leasehold("watch", "--since", since).code == 130
    assert leasehold("watch", "--after", "0", "--actor", "eve").code == 130
    assert shown == [("node_lost", ""), ("node_drain", "eve")]
    assert leasehold("watch", "--since", "yesterday").code == 2


@pytest.mark.parametrize("kind", ["node.lost", "node_lost"])
def test_watch_takes_kinds_as_webhooks_write_them(kind, scheduler, leasehold, monkeypatch):
    import leasehold.cli.service.watch as watch_module

    shown = []

    def show(event, *, as_json):
        shown.append(event["kind"])
        raise KeyboardInterrupt

    monkeypatch.setattr(watch_module, "show_event", show)
    for noted in ("node_drain", "node_lost"):
        scheduler.do(scheduler.service._note, noted, "node", "alpha", "eve", {})
    assert leasehold("watch", "--after", "0", "--kind", kind).code == 130
    assert shown == ["node_lost"]


@pytest.mark.parametrize("option", ["--kind", "--subject"])
def test_watch_names_the_kinds_that_there_are(option, scheduler, leasehold):
    ran = leasehold("watch", option, "jobs")
    assert ran.code == 2
    assert option in ran.err
    assert "'job" in ran.err
