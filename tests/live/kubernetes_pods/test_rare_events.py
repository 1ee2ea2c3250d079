"""What happens seldom to the pods of a node: nodes that go, names that are taken, answers lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.clock import lease_clock_s
from agent.kubernetes import backend as kubernetes_backend
from agent.kubernetes.names import LEASE_JSON
from agent.kubernetes.pods.ends import StartBounds
from agent.logs.log_files import SENT
from agent.reconcile import Forget, Kill, Notice, Refuse, Renew, Terminate, WantedLease
from scheduler.domain.lease_life import EndReason, LeasePhase

POD = "job1-1-0"


def deletions(api):
    return [r for r in api.requests if r[0] == "DELETE"]


def grace_of(api, name=POD):
    return api.pods[name]["metadata"].get("deletionGracePeriodSeconds")


# -- nodes --------------------------------------------------------------------------------------


def test_a_pod_evicted_from_a_cordoned_node_is_lost_and_its_worker_is_not_let_again(
    play, make_lease
):
    """As `kubectl drain` does it: cordon, then evict."""

    async def scene(stage):
        stage.start(make_lease(workers=(0,)))
        await stage.pod()
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        stage.api.nodes["n1"]["spec"]["unschedulable"] = True
        await stage.until(lambda: set(stage.problems()) == {1, 2, 3})
        evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        stage.api.status(POD, conditions=[evicted])
        stage.api.pods[POD]["metadata"]["deletionTimestamp"] = "now"
        stage.api.finish(POD, 143)
        report = await stage.ended()
        assert (report.reason, report.reason_code) == (EndReason.LOST, "EvictionByEvictionAPI")
        stage.backend.held()
        assert set(stage.problems()) == {0, 1, 2, 3}

    play(scene)


def test_a_taint_that_is_not_tolerated_keeps_new_pods_away_until_it_is_taken_off(play, make_lease):
    async def scene(stage):
        stage.start(make_lease(workers=(2,)))
        await stage.pod()
        stage.backend.held()
        taint = {"key": "maintenance", "value": "soon", "effect": "NoSchedule"}
        stage.api.nodes["n1"]["spec"]["taints"] = [taint]
        why = "the node has the taint maintenance=soon:NoSchedule"
        kept = dict.fromkeys((0, 1, 3), why)
        await stage.until(lambda: stage.problems() == kept)
        stage.api.nodes["n1"]["spec"]["taints"] = []
        await stage.until(lambda: stage.problems() == {})

    play(scene)


@pytest.mark.parametrize("willing", [False, True])
def test_a_pod_that_survives_its_deletion_is_removed_by_force_only_where_its_job_allows_it(
    play, make_lease, willing
):
    """As on a node that is gone: the kubelet confirms nothing."""

    async def scene(stage):
        own = {"force_delete": True} if willing else {}
        stage.start(make_lease(kubernetes=own))
        await stage.pod()
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        stage.backend.perform(Terminate(lease_id=1, unwanted=True))
        await stage.until(lambda: grace_of(stage.api) == 3)
        stage.backend.perform(Kill(lease_id=1))
        stage.backend.perform(Kill(lease_id=1))  # once more changes nothing
        if willing:
            report = await stage.ended()
            assert report.reason is EndReason.CANCELLED
            assert not stage.api.pods
            return
        await stage.until(lambda: grace_of(stage.api) == 1)
        await asyncio.sleep(1.2)  # past the time after which others are removed
        assert stage.report().reason is None
        assert grace_of(stage.api) == 1
        assert len(deletions(stage.api)) == 2

    play(scene, force_after_s=0.3)


def test_an_agent_begins_when_the_api_server_does(play, failure, make_lease):
    async def scene(stage):
        await stage.stop()
        away = failure(503, "ServiceUnavailable", "starting")
        stage.api.fault("GET", "/nodes/n1", away, times=2)
        await stage.begin()
        stage.start(make_lease())
        await stage.pod()

    play(scene)


def test_a_node_object_that_cannot_be_read_is_remarked_until_it_can(play, failure):
    async def scene(stage):
        denied = failure(403, "Forbidden", 'User "agent" cannot get resource "nodes"')
        stage.api.fault("GET", "/nodes/n1", denied, times=3)
        await stage.until(lambda: any("cannot get" in r for r in stage.backend.remarks()))
        await stage.until(lambda: not stage.backend.remarks())

    play(scene)


# -- leases -------------------------------------------------------------------------------------


def test_a_lease_that_is_refused_or_cannot_have_a_pod_ends_at_once(play, make_lease):
    async def scene(stage):
        refused = WantedLease(lease=make_lease(1), deadline_s=lease_clock_s() + 60)
        stage.backend.perform(Refuse(wanted=refused, message="the agent is being stopped"))
        report = await stage.ended(1)
        assert (report.reason, report.message) == (EndReason.RELEASED, "the agent is being stopped")
        stage.start(make_lease(2, image=""))
        report = await stage.ended(2)
        assert report.reason is EndReason.FAILED
        assert "names no image" in report.message
        stage.start(make_lease(3, workers=(9,)))
        report = await stage.ended(3)
        assert report.reason is EndReason.LOST
        assert "there is no worker 9" in report.message
        assert not stage.api.creations()
        assert stage.backend.running() == set()
        stage.backend.mark_delivered([1, 2, 99], term=5)
        delivered = {held.lease_id: held.delivered_term for held in stage.backend.held()}
        assert delivered == {1: 5, 2: 5, 3: None}
        # Nothing that is ordered of a lease that has ended brings it back.
        stage.backend.perform(Notice(lease_id=1, on=True, by_s=0.0))
        assert stage.report(1).state is LeasePhase.ENDED

    play(scene)


def test_a_renewed_lease_has_its_new_deadline_also_for_the_next_agent(play, make_lease):
    async def scene(stage):
        stage.start(make_lease(remaining_s=30.0))
        await stage.pod()
        later_s = lease_clock_s() + 500.0
        stage.backend.perform(Renew(lease_id=1, deadline_s=later_s))
        await stage.stop()
        await stage.begin()
        (held,) = stage.held
        assert held.deadline_s == later_s
        assert stage.backend.states() == {1: LeasePhase.STARTING}

    play(scene)


def test_output_of_old_leases_goes_once_it_was_sent(play, make_lease):
    async def scene(stage):
        for number in (1, 2, 3):
            folder = stage.backend.logs_dir / str(number)
            folder.mkdir()
            if number != 2:
                (folder / SENT).touch()
        refused = WantedLease(lease=make_lease(5), deadline_s=lease_clock_s() + 60)
        stage.backend.perform(Refuse(wanted=refused, message="no"))
        stage.backend.perform(Forget(lease_id=5))
        # Of two leases it is kept; the second one's has not been sent, and there is room.
        assert sorted(p.name for p in stage.backend.logs_dir.iterdir()) == ["2", "3", "5"]

    play(scene, log_leases=2)


# -- pods of others, or with faults ---------------------------------------------------------------


def test_a_pod_with_our_labels_but_without_a_lease_is_deleted(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        await stage.stop()
        (stage.folder / "pods" / "1.json").unlink(missing_ok=True)
        pod = stage.api.pods[POD]
        pod["metadata"]["annotations"][LEASE_JSON] = "{}"
        pod["metadata"]["labels"]["leasehold.dev/lease"] = "no number"
        stage.api.record("MODIFIED", pod)
        await stage.begin()
        assert not stage.held
        stage.api.record("MODIFIED", pod)
        await stage.until(lambda: grace_of(stage.api) == 30)

    play(scene)


@pytest.mark.parametrize("word", ["x" * 3000, "é" * 1500])
def test_a_command_of_300_kb_runs_and_the_next_agent_takes_it_over(play, make_lease, word):
    """All annotations of a pod may have 256 KiB."""

    async def scene(stage):
        command = ("python", *[word] * 100)
        stage.start(make_lease(command=command, progress_regex="é" * 4096, working_dir="/é" * 2048))
        pod = await stage.pod()
        assert pod["spec"]["containers"][0]["command"] == list(command)
        stage.api.run(POD)
        await stage.stop()
        for file in (stage.folder / "pods").iterdir():
            file.unlink()  # as if the agent's own pod had gone with its folder
        await stage.begin()
        assert [held.lease_id for held in stage.held] == [1]
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        stage.api.finish(POD, 0)
        assert (await stage.ended()).reason is EndReason.COMPLETED

    play(scene)


def test_the_next_agent_knows_a_pod_without_its_labels_by_its_uid(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        uid = (await stage.pod())["metadata"]["uid"]
        await stage.until(lambda: any(uid in f.read_text() for f in stage.folder.rglob("*.json")))
        await stage.stop()
        stage.api.run(POD)
        stage.api.pods[POD]["metadata"]["annotations"][LEASE_JSON] = "{}"
        before = dict(stage.api.pods[POD]["metadata"]["labels"])
        stage.api.relabel(POD, **{"leasehold.dev/lease": "no number", "leasehold.dev/node": None})
        await stage.begin()
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        await stage.until(lambda: stage.api.pods[POD]["metadata"]["labels"] == before)
        assert grace_of(stage.api) is None

    play(scene)


def test_a_name_that_another_lease_has_is_waited_for_and_then_given_up(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        await stage.stop()
        other = stage.api.pods[POD]
        other["metadata"]["labels"] |= {"leasehold.dev/lease": "77", "leasehold.dev/node": "n2"}
        other["metadata"]["uid"] = "another"
        await stage.begin()
        stage.backend.perform(Forget(lease_id=1))
        stage.start(make_lease(1, token=5))
        await stage.until(lambda: stage.report().reason_code == "AlreadyExists")
        report = await stage.ended()
        assert report.reason is EndReason.LOST
        assert "belongs to another lease" in report.message
        assert stage.api.pods[POD] is other

    play(scene)


def test_a_deletion_whose_pod_is_gone_already_ends_the_lease(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        del stage.api.pods[POD]  # and no watch reports it
        stage.backend.perform(Terminate(lease_id=1, unwanted=False))
        report = await stage.ended()
        assert report.reason is EndReason.RELEASED

    play(scene)


def test_a_lease_cancelled_while_its_creation_has_no_answer_finds_the_pod_and_ends_it(
    play, make_lease, failure
):
    async def scene(stage):
        lost = failure(504, "Timeout", "the answer is lost")
        stage.api.fault("POST", "/pods", lost, times=2)
        stage.start(make_lease())
        await stage.until(lambda: stage.report().reason_code == "ApiUnavailable")
        stage.backend.perform(Terminate(lease_id=1, unwanted=True))
        report = await stage.ended()
        assert report.reason is EndReason.CANCELLED
        assert not stage.api.pods

    play(scene)


def test_a_side_car_that_stays_behind_is_ended_before_the_lease_is(play, make_lease, failure):
    async def scene(stage):
        # Were that not noted on the pod, its deletion would be taken for the end of the job.
        stage.api.fault("PATCH", "/pods", failure(500, "InternalError", "not now"), times=3)
        stage.start(make_lease())
        await stage.pod()
        own = {"name": "job", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
        other = {"name": "exporter", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        stage.api.status(POD, phase="Running", containerStatuses=[own, other])
        await stage.until(lambda: grace_of(stage.api) == 3)
        assert stage.report().reason is None
        stage.api.finish(POD, 0)
        report = await stage.ended()
        assert report.reason is EndReason.COMPLETED

    play(scene)


def test_a_quota_that_lasts_too_long_lets_the_job_go_elsewhere(play, make_lease, failure):
    async def scene(stage):
        quota = failure(403, "Forbidden", "exceeded quota: gpus")
        stage.api.fault("POST", "/pods", quota, times=1000)
        stage.start(make_lease())
        report = await stage.ended()
        assert (report.reason, report.reason_code) == (EndReason.LOST, "QuotaExceeded")

    play(scene, bounds=StartBounds(trouble_s=0.2))


def test_output_that_never_ends_does_not_keep_a_forgotten_pod(play, make_lease, monkeypatch):
    monkeypatch.setattr(kubernetes_backend, "LAST_OUTPUT_S", 0.2)

    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        stage.backend.perform(Forget(lease_id=1))
        await stage.until(lambda: grace_of(stage.api) == 1)
        stage.api.vanish(POD)
        await stage.until(lambda: not (stage.folder / "pods" / "1.json").exists())

    play(scene)


def test_a_watch_that_falls_silent_is_opened_again_long_before_its_end(play, make_lease):
    """As behind a proxy that forgets a connection: nothing comes, and nothing ends."""

    async def scene(stage):
        stage.client.settings = replace(stage.client.settings, watch_s=60, silent_s=1.0)
        stage.start(make_lease())
        await stage.pod()
        await asyncio.sleep(2.1)  # the watches of before are over

        def watches():
            return [
                r for r in stage.api.requests
                if r[2].get("timeoutSeconds") == "60" and "labelSelector" in r[2]
            ]  # fmt: skip

        await stage.until(watches)
        stage.api.mute = True
        stage.api.status(POD)  # which wakes the open watches: they fall silent
        await asyncio.sleep(0.2)
        stage.api.mute = False
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING, most_s=20.0)
        assert len(watches()) > 1
        assert stage.backend.remarks() == ()

    play(scene)


@pytest.mark.parametrize("label", ["leasehold.dev/node", "leasehold.dev/lease"])
def test_a_pod_that_loses_a_label_keeps_its_workers_and_gets_the_label_back(
    play, make_lease, label
):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        value = stage.api.pods[POD]["metadata"]["labels"][label]
        stage.api.relabel(POD, **{label: None})
        await stage.until(lambda: stage.api.pods[POD]["metadata"]["labels"].get(label) == value)
        assert stage.report().reason is None
        stage.api.finish(POD, 0)
        assert (await stage.ended()).reason is EndReason.COMPLETED

    play(scene)


def test_a_pod_that_never_has_its_labels_is_followed_by_its_name(play, make_lease):
    async def scene(stage):
        stage.api.forced_labels = {"app.kubernetes.io/instance": "webhook"}
        stage.start(make_lease())
        await stage.pod()
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        stage.api.finish(POD, 0)
        assert (await stage.ended()).reason is EndReason.COMPLETED

    play(scene)


def test_a_pod_that_runs_no_more_is_gone_if_there_is_none_of_its_name(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        stage.api.relabel(POD, **{"leasehold.dev/node": None})
        other = stage.api.pods.pop(POD)
        stage.api.pods[POD] = other | {"metadata": other["metadata"] | {"uid": "another"}}
        assert (await stage.ended()).reason is EndReason.LOST

    play(scene)
