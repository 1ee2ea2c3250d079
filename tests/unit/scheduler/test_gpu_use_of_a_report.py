"""What an agent says of GPUs: read, refused, and left out by agents of the release before."""

from __future__ import annotations

import json

import pytest

from scheduler.domain.lease_life import LeasePhase
from scheduler.errors import InputError
from scheduler.protocol.desired import to_dict
from scheduler.protocol.gpu_use import GpuUse
from scheduler.protocol.reports import LeaseReport, NodeReport, report_from_dict

USE = GpuUse(used_s=3.5, measured_s=10.0, memory_bytes=2**30)


def sent(gpu):
    lease = LeaseReport(lease_id=1, token=1, state=LeasePhase.RUNNING, gpu=gpu)
    report = NodeReport(
        node="n", incarnation=1.0, sequence=1, term=1, revision=0, workers=(), leases=(lease,)
    )
    return json.loads(json.dumps(to_dict(report)))


@pytest.mark.parametrize("gpu", [USE, None])
def test_what_is_sent_is_read(gpu):
    assert report_from_dict(sent(gpu)).leases[0].gpu == gpu


def test_an_agent_of_the_release_before_says_nothing_of_it():
    data = sent(None)
    del data["leases"][0]["gpu"]
    assert report_from_dict(data).leases[0].gpu is None


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        (
            {"used_s": 11.0, "measured_s": 10.0, "memory_bytes": 0},
            r"gpu\.used_s' is 11\.0; it must be <= measured_s, 10\.0$",
        ),
        ({"used_s": -1.0, "measured_s": 10.0, "memory_bytes": 0}, r"gpu\.used_s' is -1\.0"),
        ({"used_s": 1.0, "measured_s": 10.0, "memory_bytes": -1}, r"gpu\.memory_bytes' is -1"),
        ({"used_s": 1.0, "memory_bytes": 0}, r"gpu\.measured_s' is missing"),
        ([1.0, 2.0], "gpu' is .*must be an object"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(gpu, words):
    data = sent(USE)
    data["leases"][0]["gpu"] = gpu
    with pytest.raises(InputError, match=words):
        report_from_dict(data)


@pytest.mark.parametrize("state", ["planned", "granted", "gone", 3])
def test_agents_report_the_phases_that_they_know(state):
    data = sent(None)
    data["leases"][0]["state"] = state
    allowed = r"must be one of starting, running, stopping, ended$"
    with pytest.raises(InputError, match=allowed):
        report_from_dict(data)


def test_a_number_of_a_thousand_digits_is_refused_in_few_words():
    data = sent(None)
    data["leases"][0]["steps_done"] = 10**4000
    with pytest.raises(InputError, match=r"leases\[0\]\.steps_done") as caught:
        report_from_dict(data)
    assert len(str(caught.value)) < 400
