"""The uid of an owner's jobs: given once, kept, and sent with the lease."""

import pytest

from planner.knowledge import LearnedKnowledge
from scheduler.control.control import Control
from scheduler.control.facts.facts import JobsSubmitted
from scheduler.control.facts.requests import Submission
from scheduler.control.state.control_copy import state_of
from scheduler.control.state.owners import Owners
from scheduler.control.state.settings import ControlSettings
from scheduler.domain.jobs.spec import JobSpec
from scheduler.errors import ParameterError


def control(**settings):
    settings = ControlSettings(refuse_unfit=False, **settings)
    return Control.new(settings, knowledge=LearnedKnowledge())


def submitted(*owners):
    """Each of them submits a job; written PROJECT/OWNER."""
    names = [f"{i}-{owner.replace('/', '-')}" for i, owner in enumerate(owners)]
    items = tuple(
        Submission(
            spec=JobSpec(name=name, command=("x",), project=owner.split("/")[0]),
            owner=owner.split("/")[1],
            job_id=name,
        )
        for name, owner in zip(names, owners, strict=True)
    )
    return JobsSubmitted(
        submissions=items, job_ids=tuple(names), digests=("d",) * len(items), actor="me"
    )


def stored(*decisions):
    return {row.key: row.value for d in decisions for row in d.rows.settings if "uid/" in row.key}


def test_each_owner_within_a_project_gets_a_uid_once():
    made = control(first_uid=100_000)
    first = made.handle(submitted("p/ann", "p/bob", "q/ann", "p/ann"), now_s=1.0)
    assert stored(first) == {
        "uid/100000": {"project": "p", "owner": "ann"},
        "uid/100001": {"project": "p", "owner": "bob"},
        "uid/100002": {"project": "q", "owner": "ann"},
    }
    assert made.view.owners.uids == {}  # not before it is stored
    made.publish(first)
    assert made.view.owners.uids == {
        ("p", "ann"): 100_000,
        ("p", "bob"): 100_001,
        ("q", "ann"): 100_002,
    }
    again = made.handle(submitted("p/ann", "q/bob"), now_s=2.0)
    assert stored(again) == {"uid/100003": {"project": "q", "owner": "bob"}}


def test_a_start_goes_on_with_what_is_stored_whatever_the_range_is_then():
    rows = {"uid/100000": {"project": "p", "owner": "ann"}, "policy": {"name": "fifo"}}
    owners = Owners.of_settings(rows)
    owners.give([("p", "ann"), ("p", "bob")], ControlSettings(first_uid=200_000))
    assert owners.uids == {("p", "ann"): 100_000, ("p", "bob"): 200_000}
    assert owners.unstored == (("p", "bob"),)
    lower = Owners.of_settings({"uid/300000": {"project": "p", "owner": "ann"}})
    lower.give([("p", "bob")], ControlSettings(first_uid=200_000, uids=200_000))
    assert lower.of("p", "bob") == 300_001  # none is given twice


def test_who_gets_no_uid_any_more_is_refused_with_the_setting():
    made = control(first_uid=100_000, uids=1)
    decision = made.handle(submitted("p/ann", "p/bob", "p/ann"), now_s=1.0)
    ann, bob, more = decision.answers[0].result
    assert (ann.refusal, more.refusal) == ("", "")
    assert "no uid left for jobs of 'bob' in project 'p'" in bob.refusal
    assert "isolation.uids" in bob.refusal
    assert made.state.owners.of("p", "bob") is None


def test_a_copy_gives_the_same_uids():
    made = control(first_uid=100_000)
    made.publish(made.handle(submitted("p/ann"), now_s=1.0))
    copied = made.copied()
    twin = Control(state_of(copied, LearnedKnowledge(copied.knowledge)))
    facts = submitted("p/cid", "p/ann")
    assert stored(twin.handle(facts, now_s=2.0)) == stored(made.handle(facts, now_s=2.0)) != {}


@pytest.mark.parametrize("wrong", [{"first_uid": 1000}, {"uids": 0}, {"first_uid": 2**31 - 9}])
def test_uids_of_systems_and_people_are_no_range(wrong):
    with pytest.raises(ParameterError, match="uid"):
        ControlSettings(**wrong)


def test_no_user_takes_the_uids_of_others_by_naming_projects(monkeypatch):
    monkeypatch.setattr("scheduler.control.state.owners.MOST_PROJECTS", 3)
    made = control(first_uid=100_000, uids=5)
    decision = made.handle(submitted(*(f"p{i}/eve" for i in range(5)), "p9/ann"), now_s=1.0)
    results = decision.answers[0].result
    assert [one.created for one in results] == [True] * 3 + [False] * 2 + [True]
    assert results[3].refusal == (
        "project is 'p3', and jobs of 'eve' have been in 3 projects, the most of one user; use one "
        "of these"
    )
    made.publish(decision)
    again = made.handle(submitted("p0/eve"), now_s=2.0)
    assert again.answers[0].result[0].created or "already" in again.answers[0].result[0].refusal
    rows = {f"uid/{100_000 + i}": {"project": f"p{i}", "owner": "eve"} for i in range(3)}
    restored = Owners.of_settings(rows)
    assert "the most of one user" in restored.uid_fault("p7", "eve", made.view.settings)
    assert restored.uid_fault("p0", "eve", made.view.settings) == ""
    assert restored.uid_fault("p7", "ann", made.view.settings) == ""
