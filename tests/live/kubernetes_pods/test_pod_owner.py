"""Pods have an owner that `kubectl drain` takes for a controller, and that outlives the agents."""

from __future__ import annotations

from agent.kubernetes.names import owner_name
from agent.kubernetes.node import image_pulls
from agent.reconcile import Forget, Terminate
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.protocol.desired import DesiredImage

POD, OWNER = "job1-1-0", owner_name("leasehold")
DENIED = 'leases.coordination.k8s.io is forbidden: User "agent" cannot get resource "leases"'


def controller(pod):
    """Return what `metav1.GetControllerOf` finds, by which `kubectl drain` knows managed pods."""
    owners = pod["metadata"].get("ownerReferences", [])
    return next((owner for owner in owners if owner.get("controller")), None)


def refused_by_drain(pod):
    """Do as `kubectl drain` without --force: its filters of DaemonSets and of unmanaged pods."""
    found = controller(pod)
    return found is None or found["kind"] == "DaemonSet"


def test_kubectl_drain_takes_a_pod_for_managed(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        pod = await stage.pod()
        assert not refused_by_drain(pod)
        (owner,) = stage.api.leases.values()
        assert controller(pod) == {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "name": OWNER,
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        assert owner["metadata"]["namespace"] == pod["metadata"]["namespace"]
        assert not owner["metadata"].get("ownerReferences"), "nothing may take it away"

    play(scene)


def test_a_pod_that_pulls_an_image_is_managed_too(play, monkeypatch):
    monkeypatch.setattr(image_pulls, "LOOK_EVERY_S", 0.01)

    async def scene(stage):
        stage.backend.prepare((DesiredImage(name="team/train:2"),))
        pod = await stage.until(lambda: next(iter(stage.api.pods.values()), None))
        assert not refused_by_drain(pod)

    play(scene)


def test_the_owner_stays_when_pods_and_agents_go_and_the_next_agent_takes_it(play, make_lease):
    async def scene(stage):
        stage.start(make_lease(1))
        first = controller(await stage.pod())
        stage.backend.perform(Terminate(lease_id=1, unwanted=True))
        await stage.until(lambda: stage.api.pods[POD]["metadata"].get("deletionTimestamp"))
        stage.api.vanish(POD)
        await stage.ended()
        stage.backend.perform(Forget(lease_id=1))
        await stage.stop()
        await stage.begin()
        stage.start(make_lease(2))
        assert controller(await stage.pod("job2-1-0")) == first
        assert len(stage.api.leases) == 1
        assert not [r for r in stage.api.requests if r[0] == "DELETE" and "leases" in r[1]]

    play(scene)


def test_a_restart_of_the_agent_does_not_end_its_pods(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        stage.api.run(POD)
        await stage.stop()
        stage.api.collect()
        await stage.begin()
        stage.api.collect()
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        assert "deletionTimestamp" not in stage.api.pods[POD]["metadata"]

    play(scene)


def test_an_owner_that_was_deleted_is_made_anew_for_the_next_pod(play, make_lease):
    async def scene(stage):
        stage.start(make_lease(1))
        first = controller(await stage.pod())
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        stage.api.leases.clear()
        stage.api.collect()
        stage.api.finish(POD, 143)
        assert (await stage.ended()).reason is EndReason.RELEASED
        stage.start(make_lease(2))
        second = controller(await stage.pod("job2-1-0"))
        assert second["uid"] != first["uid"]
        stage.api.collect()
        assert "deletionTimestamp" not in stage.api.pods["job2-1-0"]["metadata"]

    play(scene)


def test_of_two_agents_that_make_the_owner_at_once_the_slower_one_takes_the_others(
    play, make_lease, failure
):
    async def scene(stage):
        stage.start(make_lease(1))
        first = controller(await stage.pod())
        stage.api.fault("GET", OWNER, failure(404, "NotFound", "not yet"))
        stage.start(make_lease(2, workers=(1,)))
        assert controller(await stage.pod("job2-1-0")) == first

    play(scene)


def test_without_the_right_to_it_pods_are_made_without_an_owner_and_a_remark_says_so(
    play, make_lease, failure
):
    async def scene(stage):
        stage.api.fault("GET", OWNER, failure(403, "Forbidden", DENIED))
        stage.start(make_lease(1))
        assert controller(await stage.pod()) is None
        (remark,) = stage.backend.remarks()
        assert "--force" in remark
        assert DENIED in remark
        stage.start(make_lease(2, workers=(1,)))
        assert controller(await stage.pod("job2-1-0"))
        assert stage.backend.remarks() == ()

    play(scene)
