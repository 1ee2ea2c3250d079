"""A fault of one pod ends its lease alone: the agent and the other pods go on."""

from __future__ import annotations

import pytest

from agent.kubernetes.names import LEASE_JSON
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.protocol import bounds

POD, OTHER = "job1-1-0", "job2-1-0"


async def _two(stage, make_lease, **more):
    stage.start(make_lease(1, **more))
    stage.start(make_lease(2, workers=(1,)))
    await stage.pod(OTHER)
    stage.api.run(OTHER)
    await stage.until(lambda: stage.report(2).state is LeasePhase.RUNNING)


@pytest.mark.parametrize(
    "status",
    [
        {"containerStatuses": ["strange"]},
        {"containerStatuses": [{"name": "job", "state": "strange"}]},
        {"conditions": [7]},
        {"containerStatuses": 7},
    ],
)
def test_a_status_that_makes_no_sense_ends_its_own_lease(play, make_lease, status):
    async def scene(stage):
        await _two(stage, make_lease)
        await stage.pod(POD)
        stage.api.status(POD, **status)
        await stage.until(lambda: "deletionTimestamp" in stage.api.pods[POD]["metadata"])
        assert stage.report(2).state is LeasePhase.RUNNING
        assert not stage.task.done()

    play(scene)


@pytest.mark.parametrize(
    "template", [{"spec": {"containers": 7}}, {"metadata": {"labels": 3}}, {"spec": []}]
)
def test_a_template_that_cannot_be_merged_ends_its_own_lease(play, make_lease, template):
    async def scene(stage):
        await _two(stage, make_lease, kubernetes={"template": template})
        ended = await stage.ended(1)
        assert ended.reason in {EndReason.LOST, EndReason.FAILED}
        assert ended.message
        assert stage.report(2).state is LeasePhase.RUNNING
        assert not stage.task.done()

    play(scene)


def test_an_exit_code_that_is_none_and_absurd_steps_do_no_harm(play, make_lease):
    async def scene(stage):
        await _two(stage, make_lease, progress_regex=r"step (\d+)")
        await stage.pod(POD)
        stage.api.run(POD)
        await stage.until(lambda: stage.report(1).state is LeasePhase.RUNNING)
        stage.backend._records[1].advance(10**30, 10**30)
        stage.api.finish(POD, 2**70)
        report = await stage.ended(1)
        assert report.exit_code == bounds.MOST_EXIT_CODE
        assert report.steps_live <= bounds.MOST_COUNT
        assert not stage.task.done()

    play(scene)


def test_a_strangers_pod_that_makes_no_sense_is_remarked_on(play, make_lease):
    async def scene(stage):
        await _two(stage, make_lease)
        stage.backend._watch._event("ADDED", {"metadata": {"uid": "u"}, "spec": {"containers": 7}})
        assert any("other pods" in text for text in stage.backend.remarks())
        stage.backend._watch._event("DELETED", {"metadata": {"uid": "u"}})
        assert not any("other pods" in text for text in stage.backend.remarks())

    play(scene)


def test_a_pod_that_calls_itself_ours_and_makes_no_sense_is_deleted(play, make_lease):
    async def scene(stage):
        await _two(stage, make_lease)
        stage.api.run(OTHER)
        pod = {**stage.api.pods[OTHER], "metadata": dict(stage.api.pods[OTHER]["metadata"])}
        labels = pod["metadata"]["labels"] | {"leasehold.dev/lease": "99"}
        pod["metadata"] |= {
            "uid": "u",
            "labels": labels,
            "annotations": {LEASE_JSON: "[" * 100_000},
        }
        stage.backend._event("ADDED", pod)
        assert 99 not in {held.lease_id for held in stage.backend.held()}
        assert not stage.task.done()

    play(scene)
