"""The backend's report of a launch: times of its steps, and its devices."""

from __future__ import annotations

from scheduler.domain.lease_life import LeasePhase

POD = "job1-1-0"


def test_a_launch_is_timed_and_its_devices_are_read_back(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        assert (stage.report().launch_s, stage.report().devices) == (None, ())
        stage.api.run(POD, devices=("GPU-7",))
        report = await stage.until(lambda: (r := stage.report()).launch_s is not None and r)
        assert report.state is LeasePhase.RUNNING
        # Kubernetes reports whole seconds, and the fake cluster takes no time.
        assert 0.0 <= report.image_s <= report.launch_s <= report.ready_s <= 2.0
        assert report.devices == ("GPU-7",)
        stage.api.finish(POD, 0)
        ended = await stage.ended()
        # A pod that has ended is not ready any more; its measured times stay.
        assert (ended.launch_s, ended.ready_s) == (report.launch_s, report.ready_s)

    play(scene)


def test_a_job_that_is_not_ready_yet_is_still_being_launched(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        stage.api.run(POD)
        not_yet = [c for c in stage.api.pods[POD]["status"]["conditions"] if c["type"] != "Ready"]
        stage.api.status(POD, conditions=not_yet)
        stage.start(make_lease(2, workers=(1,)))
        await stage.pod("job2-1-0")
        stage.api.status("job2-1-0", conditions=not_yet, phase="Running", containerStatuses=[
            {"name": "job", "state": {"running": {"startedAt": not_yet[0]["lastTransitionTime"]}}}
        ])  # fmt: skip
        await stage.until(lambda: stage.report(2).state is LeasePhase.RUNNING)
        assert stage.report(2).launch_s is None
        stage.api.finish("job2-1-0", 1)
        ended = await stage.ended(2)
        assert ended.launch_s is not None
        assert ended.ready_s is None

    play(scene)


def test_visible_devices_are_those_that_the_agent_has_chosen(play, make_lease):
    async def scene(stage):
        stage.inventory.sharing = {"v100-sxm2-16gb": "visible"}
        stage.inventory.read_node(stage.api.nodes["n1"])
        stage.start(make_lease(workers=(1, 3)))
        await stage.pod()
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        assert stage.report().devices == ("1", "3")

    play(scene)
