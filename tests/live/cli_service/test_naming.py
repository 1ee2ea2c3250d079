"""Jobs are named by id, the beginning of it, or their name; actions have reasons and dry runs."""

from __future__ import annotations

import json
import threading

import pytest


@pytest.fixture
def named(scheduler, leasehold):
    """Submit three jobs; two share a name."""
    for name in ("train", "train", "eval"):
        assert leasehold("submit", "--name", name, "--", "./x").code == 0
    return scheduler


def statuses(scheduler) -> list[str]:
    return [str(scheduler.service.store.job(f"job-{n}").status) for n in (1, 2, 3)]


def test_a_job_is_found_by_its_name(named, leasehold):
    assert json.loads(leasehold("job", "eval", "--json").out)["job_id"] == "job-3"
    assert leasehold("explain", "eval").out.startswith("job-3 is waiting")
    assert leasehold("logs", "eval").code == 0
    assert leasehold("logs", "evil").code == 5
    assert leasehold("cancel", "eval").out == "job-3 cancelled\n"


def test_a_name_of_several_jobs_lists_them_and_does_nothing(named, leasehold):
    for ran in (leasehold("job", "train"), leasehold("cancel", "train")):
        assert ran.code == 2
        for words in ("'train' means 2 jobs", "job-1 (train, waiting)", "job-2 (train, waiting)"):
            assert words in ran.err
    assert statuses(named) == ["waiting"] * 3


def test_jobs_that_have_ended_give_way_to_one_that_has_not(named, leasehold):
    assert leasehold("cancel", "job-2").code == 0
    assert leasehold("hold", "train").out == "job-1 held\n"


def test_the_beginning_of_an_id_will_do_where_it_is_unique(named, leasehold):
    ran = leasehold("job", "job-")
    assert (ran.code, "means 3 jobs" in ran.err) == (2, True)
    assert leasehold("cancel", "job-1", "job-3").code == 0
    assert json.loads(leasehold("job", "job-", "--json").out)["job_id"] == "job-2"


def test_an_exact_name_goes_before_ids_that_begin_with_it(named, leasehold):
    for name in ("job", "job-1x"):
        assert leasehold("submit", "--name", name, "--", "true").code == 0
    assert leasehold("explain", "job").code == 0
    found = json.loads(leasehold("job", "job", "--json").out)
    assert found["name"] == "job"
    changed = json.loads(leasehold("set", "job", "--weight", "2", "--json").out)
    assert (changed["changed"], changed["failed"]) == (1, 0)


def test_words_and_ids_may_stand_beside_each_other(named, leasehold):
    ran = leasehold("hold", "job-1", "eval", "nothing", "train")
    assert (ran.code, ran.out) == (1, "job-1 held\njob-3 held\n")
    assert "nothing: there is no job" in ran.err
    assert "train: 'train' means 2 jobs" in ran.err
    found = json.loads(leasehold("set", "eval", "--weight", "2", "--json").out)
    assert (found["changed"], found["failed"]) == (1, 0)


def test_a_job_may_wait_for_one_that_is_named(named, leasehold):
    assert leasehold("submit", "--after", "eval", "--", "./next").code == 0
    assert json.loads(leasehold("job", "job-4", "--json").out)["spec"]["depends_on"] == ["job-3"]


def test_the_reason_of_an_action_is_kept(named, leasehold):
    assert leasehold("cancel", "eval", "--reason", "wrong data").code == 0
    assert named.service.reason == "wrong data"
    assert named.do(lambda: [str(named.service.store.job("job-3").status)]) == ["cancelled"]


@pytest.mark.parametrize(("action", "done"), [("cancel", "cancelled"), ("hold", "held")])
def test_a_dry_run_tells_what_would_become_of_each_and_does_nothing(action, done, named, leasehold):
    ran = leasehold(action, "job-1", "eval", "--dry-run")
    assert (ran.code, ran.out) == (0, f"job-1 would be {done}\njob-3 would be {done}\n")
    assert statuses(named) == ["waiting"] * 3


@pytest.mark.parametrize("action", ["cancel", "hold", "release", "requeue"])
def test_all_actions_have_the_same_options(action, leasehold):
    shown = " ".join(leasehold(action, "--help").out.split())
    for option in ("--selector", "--reason", "--dry-run", "--json", "--server", "[JOB]..."):
        assert option in shown


@pytest.mark.parametrize(("count", "said"), [(100, "100 jobs"), (101, "more than 100 jobs")])
def test_a_word_of_very_many_jobs_does_not_count_one_page_for_all(
    count, said, scheduler, leasehold
):
    assert leasehold("submit", "--array", str(count), "--", "./x").code == 0
    ran = leasehold("job", "job-")
    assert ran.code == 2
    assert f"'job-' means {said}; give the id of one" in ran.err
    assert ("... and more" in ran.err) is (count > 100)
    assert ("... and 95 more" in ran.err) is (count == 100)


def test_a_job_that_has_not_ended_is_found_behind_a_page_of_those_that_have(scheduler, leasehold):
    assert leasehold("submit", "--name", "x", "--", "./x").code == 0
    for _ in range(2):
        assert leasehold("submit", "--name", "x", "--array", "60", "--", "./x").code == 0
    for n in range(2, 122):
        scheduler.do(scheduler.service.finish, f"job-{n}")
    assert leasehold("hold", "job-").out == "job-1 held\n"


@pytest.fixture
def sweep(scheduler, leasehold):
    """Submit an array of three, and a job of another name."""
    assert leasehold("submit", "--name", "sweep", "--array", "3", "--", "./x").code == 0
    assert leasehold("submit", "--name", "eval", "--", "./x").code == 0
    return scheduler


def test_a_job_may_wait_for_an_array_as_a_whole(sweep, leasehold):
    sweep.do(sweep.service.finish, "job-2")
    ran = leasehold("submit", "--after", "sweep", "--after", "eval", "--", "./next")
    assert ran.code == 0, ran.err
    spec = json.loads(leasehold("job", "job-5", "--json").out)["spec"]
    assert sorted(spec["depends_on"]) == ["job-1", "job-2", "job-3", "job-4"]


def test_two_arrays_of_one_name_are_not_taken_for_one(sweep, leasehold):
    sweep.service.now_s += 1.0
    assert leasehold("submit", "--name", "sweep", "--array", "2", "--", "./x").code == 0
    ran = leasehold("submit", "--after", "sweep", "--", "./next")
    assert (ran.code, "'sweep' means 5 jobs" in ran.err) == (2, True)
    for job in ("job-1", "job-2", "job-3"):
        sweep.do(sweep.service.finish, job)
    assert leasehold("submit", "--after", "sweep", "--", "./next").code == 0
    spec = json.loads(leasehold("job", "job-7", "--json").out)["spec"]
    assert sorted(spec["depends_on"]) == ["job-5", "job-6"]


@pytest.mark.parametrize(
    ("action", "done"),
    [("hold", "held"), ("release", "released"), ("cancel", "cancelled"), ("requeue", "requeued")],
)
def test_a_selector_means_the_elements_of_an_array(action, done, sweep, leasehold):
    if action == "release":
        assert leasehold("hold", "-s", "name=sweep").code == 0
    if action == "requeue":
        assert leasehold("cancel", "-s", "name=sweep").code == 0
    which = ("-s", "name=sweep", *(("-s", "status=cancelled") if action == "requeue" else ()))
    ran = leasehold(action, *which)
    assert (ran.code, ran.out) == (0, "".join(f"job-{n} {done}\n" for n in (1, 2, 3)))


def test_a_name_of_several_jobs_says_how_all_are_meant(sweep, leasehold):
    ran = leasehold("cancel", "sweep")
    assert ran.code == 2
    assert "--selector name=sweep means all of that name" in ran.err
    assert leasehold("jobs", "--name", "sweep").out.count("sweep[") == 3


@pytest.mark.parametrize("which", [("sweep",), ("-s", "name=sweep")])
def test_an_array_is_watched_until_all_of_it_has_ended(which, sweep, leasehold):
    for job in ("job-1", "job-2"):
        sweep.do(sweep.service.finish, job)
    threading.Timer(0.5, lambda: sweep.do(sweep.service.finish, "job-3")).start()
    ran = leasehold("watch", *which)
    assert ran.code == 0, ran.err
    assert "job job-3  job completed" in ran.out
    ran = leasehold("watch", "-s", "name=sweep")
    assert (ran.code, ran.err) == (0, "leasehold: no job matches\n")
