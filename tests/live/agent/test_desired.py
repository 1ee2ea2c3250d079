"""The protocol's values: sent values arrive, and faulty ones are named."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.errors import InputError
from scheduler.protocol import bounds
from scheduler.protocol.desired import (
    Desired,
    DesiredLease,
    desired_from_dict,
    lease_from_dict,
    to_dict,
)
from scheduler.protocol.reports import (
    LeaseReport,
    NodeReport,
    WorkerReport,
    bound_report,
    report_from_dict,
)

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
counts = st.integers(0, 2**40)
seconds = st.floats(0, 1e6)


@st.composite
def leases(draw, lease_id):
    processes = draw(st.integers(1, 3))
    rank = draw(st.integers(0, 3))
    return DesiredLease(
        lease_id=lease_id,
        attempt=draw(st.integers(1, 9)),
        token=draw(counts),
        job_id=draw(texts),
        command=tuple(draw(st.lists(texts, min_size=1, max_size=3))),
        env=draw(st.dictionaries(st.sampled_from(["A", "B_1"]), texts)),
        working_dir="/" + draw(texts),
        checkpoint_dir=draw(st.none() | texts),
        workers=tuple(draw(st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True))),
        rank=rank,
        world_size=rank + processes,
        local_ranks=tuple(range(processes)),
        total_steps=draw(st.none() | counts),
        steps_done=draw(counts),
        remaining_s=draw(seconds),
        notice_in_s=draw(st.none() | seconds),
        notice_s=draw(seconds),
        grace_s=draw(seconds),
        progress_regex=draw(st.none() | st.just(r"step (\d+)")),
        progress_file=draw(st.none() | texts),
        memory_bytes=draw(st.none() | st.integers(1, 2**50)),
        cpus=draw(st.none() | st.floats(0.001, 512)),
    )


@given(st.data(), counts, counts, st.integers(0, 3))
def test_a_desired_set_survives_the_wire(data, term, revision, n):
    desired = Desired(
        term=term,
        revision=revision,
        held_s=data.draw(seconds),
        leases=tuple(data.draw(leases(i)) for i in range(n)),
    )
    assert desired_from_dict(json.loads(json.dumps(to_dict(desired)))) == desired


@given(counts, st.sampled_from(EndReason), st.none() | st.integers(-64, 255), seconds)
def test_a_report_survives_the_wire(sequence, reason, code, started_s):
    report = NodeReport(
        node="n1",
        incarnation=1.5,
        sequence=sequence,
        term=1,
        revision=2,
        workers=(WorkerReport(index=0, worker_type="v100", problem="hot"),),
        remarks=("no limits",),
        leases=(
            LeaseReport(
                lease_id=1,
                token=2,
                state=LeasePhase.RUNNING,
                started_s=started_s,
                launch_s=2.5,
                ready_s=3.0,
                devices=("GPU-a",),
            ),
            LeaseReport(lease_id=2, token=3, state=LeasePhase.ENDED, reason=reason, exit_code=code),
        ),
    )
    assert report_from_dict(json.loads(json.dumps(to_dict(report)))) == report


def _plain(**changes):
    lease = DesiredLease(
        lease_id=1, attempt=1, token=1, job_id="j", command=("true",), workers=(0,), remaining_s=9
    )
    message = json.loads(json.dumps(to_dict(Desired(revision=1, leases=(lease,)))))
    message["leases"][0] |= changes
    return message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attempt": 0}, r"leases\[0\].attempt' is 0.*>= 1"),
        ({"attempt": 10**30}, r"leases\[0\].attempt' is 1000.*<= 9007199254740991"),
        ({"job_id": "a\0b"}, "job_id"),
        ({"command": "rm -rf"}, "command.*list"),
        ({"command": []}, "command is empty"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"workers": [0, 0]}, "each once"),
        ({"workers": []}, "at least one"),
        ({"rank": 1}, "do not fit a world of 1"),
        ({"working_dir": "here"}, "absolute"),
        ({"remaining_s": float("nan")}, "remaining_s.*finite"),
        ({"grace_s": -1}, "grace_s"),
        ({"grace_s": 10**400}, "grace_s.*finite"),
        ({"job_id": "a\ud800"}, "job_id"),
        ({"command": ["a"] * 5000}, "command.*list of length <= 4096"),
        ({"env": {"A": "x" * 200_000}}, "env.*131072"),
        ({"kubernetes": {"template": {"deep": [2**70]}}}, "kubernetes.*64 bits"),
        ({"master_port": 70_000}, "master_port"),
    ],
)
def test_a_lease_that_makes_no_sense_is_named_and_the_others_go_on(changes, words):
    message = _plain(**changes)
    message["leases"].append(_plain(lease_id=2)["leases"][0])
    desired = desired_from_dict(message)
    (bad,) = desired.unusable
    assert (bad.lease_id, bad.token) == (1, 1)
    assert re.search(words, bad.message)
    assert [lease.lease_id for lease in desired.leases] == [2]
    with pytest.raises(InputError):
        lease_from_dict(message["leases"][0])


@pytest.mark.parametrize(
    "secrets",
    [{"A": 1}, {"A=B": "hidden"}, {"A": "hidden\0"}, {"A": "hidden" * 50_000}, ["hidden"]],
)
def test_a_secret_that_cannot_be_used_is_not_quoted(secrets):
    (bad,) = desired_from_dict(_plain(secret_env=secrets)).unusable
    assert "leases[0].secret_env'" in bad.message
    assert "hidden" not in bad.message


@pytest.mark.parametrize(
    "changes",
    [{"token": True}, {"lease_id": None}, {"token": 2**60}, {"attempt": 0, "nonce": [[[]]]}],
)
def test_a_lease_that_does_not_say_which_it_is_spoils_the_message(changes):
    with pytest.raises(InputError, match=r"leases\[0\]"):
        desired_from_dict(_plain(**changes))


@pytest.mark.parametrize("message", [None, [], "x", {"term": 0}, {"term": 0, "revision": "1"}])
def test_what_is_no_message_is_refused(message):
    with pytest.raises(InputError):
        desired_from_dict(message)


def test_a_lease_that_is_listed_twice_is_refused():
    message = _plain()
    message["leases"] *= 2
    with pytest.raises(InputError, match="twice"):
        desired_from_dict(message)


@pytest.mark.parametrize(
    "changes", [{"state": "gone"}, {"reason": "tired"}, {"reason": None}, {"message": 3}]
)
def test_a_report_that_makes_no_sense_is_refused(changes):
    lease = LeaseReport(lease_id=1, token=1, state=LeasePhase.ENDED, reason=EndReason.FAILED)
    report = NodeReport(
        node="n", incarnation=0, sequence=0, term=0, revision=0, workers=(), leases=(lease,)
    )
    message = json.loads(json.dumps(to_dict(report)))
    message["leases"][0] |= changes
    with pytest.raises(InputError):
        report_from_dict(message)


def _reported(**changes):
    lease = LeaseReport(lease_id=1, token=1, state=LeasePhase.ENDED, reason=EndReason.FAILED)
    report = NodeReport(
        node="n",
        incarnation=0,
        sequence=0,
        term=0,
        revision=0,
        workers=(WorkerReport(index=0, worker_type="v100"),),
        leases=(lease,),
    )
    message = json.loads(json.dumps(to_dict(report)))
    message["leases"][0] |= changes
    return message


@pytest.mark.parametrize(
    "changes",
    [
        {"exit_code": 2**63 + 3},
        {"exit_code": -65},
        {"exit_code": True},
        {"exit_code": 1.0},
        {"lease_id": 2**53},
        {"token": -1},
        {"steps_live": -1},
        {"steps_done": 1e3},
        {"steps_done": 10**30},
        {"started_s": float("nan")},
        {"started_s": float("inf")},
        {"launch_s": 1e300},
        {"launch_s": 10**400},
        {"devices": ["x"] * 10_000},
        {"devices": ["\ud800"]},
    ],
)
def test_a_figure_beyond_the_bounds_is_refused_by_name(changes):
    (name,) = changes
    with pytest.raises(InputError, match=rf"leases\[0\].{name}\b"):
        report_from_dict(_reported(**changes))


def test_what_an_agent_of_an_earlier_release_passes_on_is_clipped():
    message = _reported(
        steps_live=2**63, message="a\0b\x1b[31m" + "c" * 9000, reason_code="x" * 999
    )
    (lease,) = report_from_dict(message).leases
    assert lease.steps_live == bounds.MOST_COUNT
    assert lease.message.startswith("a\ufffdb\ufffd[31mccc")
    assert (len(lease.message), len(lease.reason_code)) == (4000, 128)


@pytest.mark.parametrize(
    ("place", "value"), [(0, 1), (0, -1), (0, 2**62), (0, "0"), (0, None), (0, True)]
)
def test_workers_are_numbered_as_they_stand(place, value):
    message = _reported()
    message["workers"][place]["index"] = value
    with pytest.raises(InputError, match=r"workers\[0\].index"):
        report_from_dict(message)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "gone"}, r"leases\[0\].state' is 'gone'; it must be one of starting, running,"),
        ({"state": "\ud800"}, "halves of characters"),
        ({"reason": "tired"}, r"reason' is 'tired'; it must be one of completed, "),
        ({"steps_done": 2**64 + 1}, r"leases\[0\].steps_done' is 18446744073709551617"),
        ({"devices": {}}, "devices' is {}; it must be a list"),
        ({"gpu": 3}, "gpu' is 3; it must be an object or null"),
    ],
)
def test_an_error_names_what_is_allowed(changes, words):
    with pytest.raises(InputError, match=words):
        report_from_dict(_reported(**changes))


@pytest.mark.parametrize("name", ["lease_id", "token", "state", "steps_done", "steps_live"])
def test_a_field_that_every_agent_sends_is_missed(name):
    message = _reported()
    del message["leases"][0][name]
    with pytest.raises(InputError, match=rf"leases\[0\].{name}' is missing"):
        report_from_dict(message)


def test_a_lease_that_is_reported_twice_is_refused():
    message = _reported()
    message["leases"] *= 2
    with pytest.raises(InputError, match="each lease once"):
        report_from_dict(message)


any_number = st.integers() | st.floats() | st.sampled_from([2**53, 2**63, 2**64, 10**30, -(10**30)])


@given(
    steps=st.integers() | st.sampled_from([10**30]),
    code=st.none() | st.integers(),
    seconds=st.none() | any_number,
    said=st.text(st.characters()),
)
def test_whatever_a_job_makes_up_its_agents_report_can_be_read(steps, code, seconds, said):
    lease = LeaseReport(
        lease_id=1,
        token=1,
        state=LeasePhase.ENDED,
        reason=EndReason.FAILED,
        exit_code=code,
        steps_done=steps,
        steps_live=steps,
        started_s=seconds,
        message=said,
        reason_code=said,
        launch_s=seconds,
        devices=(said,) * 300,
    )
    report = NodeReport(
        node="n",
        incarnation=0,
        sequence=0,
        term=0,
        revision=0,
        workers=(WorkerReport(index=0, worker_type="v100", problem=said),),
        leases=(lease,),
        remarks=(said,) * 100,
    )
    wire = orjson.dumps(to_dict(report))
    assert report_from_dict(orjson.loads(wire)) == bound_report(report)


def test_an_error_shows_a_part_of_whatever_it_is_about():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, ["y"] * 10**6, "x" * 10**7, 10**5000, float("nan")):
        with pytest.raises(InputError) as error:
            report_from_dict({"node": value})
        assert len(str(error.value)) < 600


def test_a_uid_is_told_and_who_knows_of_none_reads_on(node):
    lease = node.lease(1, "x")
    assert "uid" not in to_dict(lease)  # as the release before writes it
    assert lease_from_dict(to_dict(lease)).uid is None
    told = to_dict(replace(lease, uid=1_900_000_000))
    assert lease_from_dict(told).uid == 1_900_000_000
    # The previous release takes its own fields, and nothing else.
    assert lease_from_dict(told | {"of a later release": 1}).uid == 1_900_000_000


@pytest.mark.parametrize("uid", [0, 998, 65_534, 2**31 - 1, 2**32 - 1, "1900000000", True])
def test_a_uid_of_root_or_of_somebody_else_is_no_uid_of_a_job(node, uid):
    with pytest.raises(InputError, match="uid"):
        lease_from_dict(to_dict(node.lease(1, "x")) | {"uid": uid})
