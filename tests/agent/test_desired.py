"""The protocol's values: what is sent arrives, and what makes no sense is named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.desired import (
    Desired,
    DesiredLease,
    LeaseEnd,
    LeaseReport,
    LeaseState,
    NodeReport,
    WorkerReport,
    desired_from_dict,
    report_from_dict,
    to_dict,
)
from scheduler.errors import InputError

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


@given(counts, st.sampled_from(LeaseEnd), st.none() | st.integers(-64, 255), seconds)
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
                state=LeaseState.RUNNING,
                started_s=started_s,
                launch_s=2.5,
                ready_s=3.0,
                devices=("GPU-a",),
            ),
            LeaseReport(lease_id=2, token=3, state=LeaseState.ENDED, reason=reason, exit_code=code),
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
        ({"token": True}, r"leases\[0\].token' is True"),
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
        ({"progress_regex": "("}, "no regular expression"),
        ({"progress_regex": "step"}, "no group"),
    ],
)
def test_a_lease_that_makes_no_sense_is_refused_by_name(changes, words):
    with pytest.raises(InputError, match=words):
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
    lease = LeaseReport(lease_id=1, token=1, state=LeaseState.ENDED, reason=LeaseEnd.FAILED)
    report = NodeReport(
        node="n", incarnation=0, sequence=0, term=0, revision=0, workers=(), leases=(lease,)
    )
    message = json.loads(json.dumps(to_dict(report)))
    message["leases"][0] |= changes
    with pytest.raises(InputError):
        report_from_dict(message)
