"""The Kubernetes backend against an API server that fails on demand."""

from __future__ import annotations

import asyncio
import json

import pytest

from agent.clock import lease_clock_s
from agent.kubernetes.pods.ends import StartBounds
from agent.reconcile import Forget, Kill, Notice, Terminate
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.protocol.desired import LEFT_UNASKED

POD = "job1-1-0"


def test_a_lease_becomes_a_pod_and_its_success_completes_the_job(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        assert stage.report().state is LeasePhase.STARTING
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        stage.api.finish(POD, 0)
        report = await stage.ended()
        assert (report.reason, report.exit_code) == (EndReason.COMPLETED, 0)
        stage.backend.perform(Forget(lease_id=1))
        await stage.until(lambda: not stage.api.pods)
        assert stage.backend.held() == ()

    play(scene)


def test_each_way_to_end_has_its_own_reason(play, make_lease):
    cases = [
        (75, None, "released", LEFT_UNASKED),
        (1, None, "failed", ""),
        (137, "OOMKilled", "oom", "OOMKilled"),
    ]

    async def scene(stage):
        for number, (code, reason, *_) in enumerate(cases, 1):
            stage.start(make_lease(number, workers=(number,)))
            name = f"job{number}-1-0"
            await stage.pod(name)
            stage.api.finish(name, code, reason)
        for number, (code, _, end, word) in enumerate(cases, 1):
            report = await stage.ended(number)
            assert (report.reason, report.exit_code, report.reason_code) == (end, code, word)
        stage.start(make_lease(9))
        await stage.pod("job9-1-0")
        stage.api.status("job9-1-0", phase="Failed", reason="Evicted", message="low on memory")
        report = await stage.ended(9)
        assert (report.reason, report.reason_code) == (EndReason.LOST, "Evicted")
        assert "low on memory" in report.message

    play(scene)


def test_a_preempted_pod_is_told_then_deleted_with_its_grace_and_then_by_force(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        stage.backend.perform(Notice(lease_id=1, on=True, by_s=lease_clock_s() + 5))
        assert stage.report().state is LeasePhase.STOPPING
        stage.backend.perform(Terminate(lease_id=1, unwanted=False))
        pod = await stage.until(lambda: stage.api.pods[POD]["metadata"].get("deletionTimestamp"))
        metadata = stage.api.pods[POD]["metadata"]
        assert metadata["deletionGracePeriodSeconds"] == 3
        assert "leasehold.dev/ending" in metadata["annotations"]
        stage.backend.perform(Kill(lease_id=1))
        await stage.until(lambda: metadata["deletionGracePeriodSeconds"] == 1)
        assert stage.report().reason is None, "while the pod is there its workers are not free"
        stage.api.finish(POD, 143)
        assert (await stage.ended()).reason is EndReason.RELEASED
        assert pod

    play(scene)


def test_a_lease_that_is_cancelled_before_its_pod_was_seen_makes_none(play, make_lease, failure):
    async def scene(stage):
        stage.api.fault("POST", "/pods", failure(503, "Unavailable", "busy"), times=20)
        stage.start(make_lease())
        await stage.until(stage.api.creations)
        stage.backend.perform(Terminate(lease_id=1, unwanted=True))
        assert (await stage.ended()).reason is EndReason.CANCELLED
        assert not stage.api.pods

    play(scene)


def test_a_new_agent_adopts_the_pods_and_ends_what_nobody_wants(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        before = stage.backend.held()[0]
        await stage.stop()
        await stage.begin()
        (held,) = stage.held
        assert (held.lease_id, held.token, held.deadline_s) == (1, 1, before.deadline_s)
        assert stage.report().state is LeasePhase.RUNNING
        assert len(stage.api.creations()) == 1
        await stage.stop()
        for path in (stage.folder / "pods").iterdir():
            path.unlink()
        await stage.begin()
        (held,) = stage.held
        assert 0 < held.deadline_s - lease_clock_s() < 15, "a short term where nobody knows better"
        stage.backend.perform(Terminate(lease_id=1, unwanted=True))
        await stage.until(lambda: stage.api.pods[POD]["metadata"].get("deletionTimestamp"))
        stage.api.vanish(POD)
        assert (await stage.ended()).reason is EndReason.CANCELLED

    play(scene)


def test_a_lost_answer_to_a_creation_does_not_make_a_second_pod(play, make_lease, failure):
    async def scene(stage):
        create = stage.api.create_pod

        async def create_and_fail(request):
            answer = await create(request)
            if len(stage.api.creations()) == 1:
                return failure(500, "InternalError", "etcd took too long")
            return answer

        stage.api.create_pod = create_and_fail
        stage.start(make_lease())
        await stage.pod()
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        assert len(stage.api.pods) == 1

    play(scene)


def test_an_expired_watch_lists_again_and_misses_nothing(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        stage.api.history.clear()
        stage.api.forget_history()
        stage.api.pods[POD]["status"] = {"phase": "Running", "containerStatuses": [
            {"name": "job", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        ]}  # fmt: skip
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        stage.api.pods.pop(POD)
        stage.api.forget_history()
        report = await stage.ended()
        assert (report.reason, report.message) == (
            EndReason.LOST,
            "the pod vanished; another user has deleted it",
        ) or report.reason is EndReason.LOST

    play(scene)


def test_a_pod_deleted_by_hand_releases_the_job(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        stage.api.run(POD)
        stage.api.pods[POD]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        stage.api.finish(POD, 143)
        report = await stage.ended()
        assert report.reason is EndReason.RELEASED
        assert "another user" in report.message

    play(scene)


def test_a_quota_is_named_and_retried_until_it_has_room(play, make_lease, failure):
    quota = failure(403, "Forbidden", 'pods "job1-1-0" is forbidden: exceeded quota: gpus')

    async def scene(stage):
        stage.api.fault("POST", "/pods", quota, times=2)
        stage.start(make_lease())
        await stage.until(lambda: stage.report().reason_code == "QuotaExceeded")
        assert "exceeded quota: gpus" in stage.report().message
        await stage.pod()
        await stage.until(lambda: stage.report().reason_code == "")

    play(scene, bounds=StartBounds(trouble_s=10.0))


def test_what_cannot_be_made_ends_the_lease_with_the_refusal(play, make_lease, failure):
    denied = failure(403, "Forbidden", 'pods is forbidden: User "agent" cannot create resource')
    webhook = failure(400, "BadRequest", 'admission webhook "policy" denied the request: no tags')

    async def scene(stage):
        stage.api.fault("POST", "/pods", webhook)
        stage.start(make_lease())
        report = await stage.ended()
        assert (report.reason, report.reason_code) == (EndReason.FAILED, "AdmissionDenied")
        stage.api.fault("POST", "/pods", denied, times=100)
        stage.start(make_lease(2, workers=(1,)))
        report = await stage.ended(2)
        assert (report.reason, report.reason_code) == (EndReason.LOST, "Forbidden")
        assert "cannot create" in report.message
        assert len(stage.api.creations()) < 10, "no crash loop"
        assert not stage.task.done()

    play(scene)


def test_an_image_that_does_not_exist_fails_the_job_and_frees_the_worker(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        stage.api.wait(POD, "ImagePullBackOff", "manifest unknown")
        await stage.until(lambda: stage.report().reason_code == "ImagePullBackOff")
        deleted = lambda: stage.api.pods[POD]["metadata"].get("deletionTimestamp")  # noqa: E731
        await stage.until(deleted)
        assert stage.report().reason is None
        stage.api.vanish(POD)
        report = await stage.ended()
        assert (report.reason, report.reason_code) == (EndReason.FAILED, "ImagePullBackOff")

    play(scene)


def test_rank_0_of_a_gang_brings_the_service_that_goes_with_its_pod(play, make_lease):
    async def scene(stage):
        stage.start(make_lease(gang=(1, 1), world_size=2))
        pod = await stage.pod()
        service = await stage.until(lambda: stage.api.services.get("job1-1"))
        assert service["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
        assert service["spec"]["clusterIP"] == "None"
        stage.start(make_lease(2, gang=(1, 1), world_size=2, rank=1, node_rank=1, workers=(1,)))
        await stage.pod("job2-1-1")
        await asyncio.sleep(0.1)
        assert set(stage.api.services) == {"job1-1"}

    play(scene)


def test_output_is_read_once_and_steps_are_found_in_it(play, make_lease):
    async def scene(stage):
        stage.api.logs[POD] = [
            "2026-01-01T00:00:00.1Z step 10",
            "2026-01-01T00:00:00.25Z step 20",
        ]
        stage.start(make_lease(progress_regex=r"step (\d+)"))
        await stage.pod()
        stage.api.run(POD)
        path = stage.folder / "logs" / "1" / "stdout.0.log"
        await stage.until(lambda: path.exists() and path.read_text().count("\n") == 2)
        stage.api.logs[POD].append("2026-01-01T00:00:00.3Z step 30")
        await stage.until(lambda: path.read_text().count("\n") == 3)
        assert path.read_text() == "step 10\nstep 20\nstep 30\n"
        await stage.until(lambda: stage.report().steps_live == 30)
        stage.api.finish(POD, 75)
        report = await stage.ended()
        assert (report.reason, report.steps_done) == (EndReason.RELEASED, 30)
        await stage.until(lambda: stage.backend.running() == set())

    play(scene)


def test_the_last_steps_of_a_pod_are_in_the_report_of_its_end(play, make_lease):
    async def scene(stage):
        stage.start(make_lease(progress_regex=r"step (\d+)"))
        await stage.pod()
        stage.api.run(POD)
        stage.api.logs[POD] = [f"2026-01-01T00:00:00.{n:03}Z step {n}" for n in range(1, 900)]
        stage.api.finish(POD, 75)
        report = await stage.ended()
        assert (report.reason, report.steps_done) == (EndReason.RELEASED, 899)

    play(scene)


def test_a_pod_whose_expression_re2_does_not_know_runs_on_and_says_why(play, make_lease):
    async def scene(stage):
        stage.api.logs[POD] = ["2026-01-01T00:00:00.1Z step 10"]
        stage.start(make_lease(progress_regex=r"(?<=step )(\d+)"))
        await stage.pod()
        stage.api.run(POD)
        await stage.until(lambda: stage.report().progress_problem)
        assert "RE2 has no lookahead, lookbehind" in stage.report().progress_problem
        path = stage.folder / "logs" / "1" / "stdout.0.log"
        await stage.until(lambda: path.exists() and "step 10" in path.read_text())
        assert stage.report().state == "running"
        stage.api.finish(POD, 0)
        report = await stage.ended()
        assert (report.reason, report.steps_done) == (EndReason.COMPLETED, 0)

    play(scene)


def test_a_job_speaks_to_the_agent_over_tcp(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        pod = await stage.pod()
        env = {v["name"]: v.get("value") for v in pod["spec"]["containers"][0]["env"]}
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.endpoint.port)
        told = {"secret": env["LEASEHOLD_SECRET"], "steps_live": 5, "steps_done": 4, "guard": True}
        writer.write(json.dumps(told).encode() + b"\n")
        answer = json.loads(await reader.readline())
        assert answer["notice"] is False
        assert 50 < answer["deadline_s"] - lease_clock_s() < 60
        stage.backend.perform(Notice(lease_id=1, on=True, by_s=lease_clock_s() + 5))
        assert json.loads(await reader.readline())["notice"] is True
        assert (stage.report().steps_live, stage.report().steps_done) == (5, 4)
        writer.close()

    play(scene)


def test_workers_of_other_tenants_and_of_a_cordoned_node_are_out_of_service(play, make_lease):
    async def scene(stage):
        stage.start(make_lease(workers=(0,)))
        await stage.pod()
        stage.backend.held()
        claim = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
        stage.api.pods["notebook"] = {
            "metadata": {"name": "notebook", "namespace": "research", "uid": "u1"},
            "spec": {"nodeName": "n1", "containers": [claim]},
            "status": {"phase": "Running"},
        }
        stage.api.record("ADDED", stage.api.pods["notebook"])
        taken = "taken by pod research/notebook"
        await stage.until(lambda: stage.problems() == {2: taken, 3: taken})
        stage.api.vanish("notebook")
        await stage.until(lambda: stage.problems() == {})
        stage.api.nodes["n1"]["spec"]["unschedulable"] = True
        cordoned = dict.fromkeys((1, 2, 3), "the node is cordoned")
        await stage.until(lambda: stage.problems() == cordoned)

    play(scene)


def test_an_agent_that_may_not_see_other_namespaces_says_so_and_works(play, make_lease, failure):
    denied = failure(403, "Forbidden", 'pods is forbidden: User "agent" cannot list resource')

    async def scene(stage):
        await stage.stop()
        stage.api.fault("GET", "/api/v1/pods", denied, times=100)
        await stage.begin()
        await stage.until(stage.backend.remarks)
        assert "cannot list" in stage.backend.remarks()[0]
        stage.start(make_lease())
        await stage.pod()

    play(scene)


def test_an_api_server_that_has_just_started_and_refuses_everybody_is_soon_asked_again(
    play, make_lease, failure
):
    """It answers 403 until it has read its roles: half a minute of blindness would follow."""
    denied = failure(403, "Forbidden", 'pods is forbidden: User "agent" cannot watch resource')

    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        stage.api.fault("GET", "watch=true", denied, times=3)
        await stage.until(lambda: not stage.api.faults)
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)

    play(scene)


def test_a_pod_that_vanished_while_there_was_no_agent_has_ended_and_is_not_made_again(
    play, make_lease
):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        uid = stage.api.pods[POD]["metadata"]["uid"]
        (file,) = (stage.folder / "pods").iterdir()
        await stage.until(lambda: uid in file.read_text())
        await stage.stop()
        stage.api.pods.clear()
        # The history since then has only its beginning.
        (stage.folder / "pods.version").write_text('{"version": "100"}')
        await stage.begin()
        (held,) = stage.held
        assert held.ended
        assert stage.report().reason is EndReason.LOST
        assert "vanished" in stage.report().message
        stage.backend.perform(Forget(lease_id=1))
        await stage.until(lambda: not list((stage.folder / "pods").iterdir()))
        assert len(stage.api.creations()) == 1

    play(scene)


async def collected(stage, lease, code=0):
    """Let a pod run, end and be collected while there is no agent."""
    stage.start(lease)
    await stage.pod()
    stage.api.run(POD)
    await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
    await stage.stop()
    stage.api.finish(POD, code)
    stage.api.vanish(POD)


@pytest.mark.parametrize(
    ("code", "end"), [(0, EndReason.COMPLETED), (3, EndReason.FAILED), (75, EndReason.RELEASED)]
)
def test_how_a_pod_ended_that_was_collected_without_an_agent_is_read_from_the_history(
    play, make_lease, code, end
):
    async def scene(stage):
        await collected(stage, make_lease(), code)
        await stage.begin()
        (held,) = stage.held
        assert held.ended
        assert (stage.report().reason, stage.report().exit_code) == (end, code)
        stage.backend.perform(Forget(lease_id=1))
        await stage.until(lambda: not list((stage.folder / "pods").iterdir()))
        assert len(stage.api.creations()) == 1

    play(scene)


def test_an_end_that_the_server_has_forgotten_counts_as_lost(play, make_lease):
    async def scene(stage):
        await collected(stage, make_lease())
        stage.api.forget_history()
        await stage.begin()
        assert stage.report().reason is EndReason.LOST
        assert "vanished" in stage.report().message

    play(scene)


@pytest.mark.parametrize("refused", [False, True])
def test_a_pod_whose_making_was_asked_for_may_have_run_unless_it_was_refused(
    play, make_lease, failure, refused
):
    """An agent that dies before it has the answer leaves a note that it has asked."""
    lost = failure(403 if refused else 500, "InternalError", "the answer is lost")

    async def scene(stage):
        stage.api.fault("POST", "/pods", lost, times=100)
        stage.start(make_lease())
        await stage.until(stage.api.creations)
        (file,) = (stage.folder / "pods").iterdir()
        expected = f'"asked": {str(not refused).lower()}'
        await stage.until(lambda: expected in file.read_text())
        await stage.stop()
        stage.api.faults.clear()
        await stage.begin()
        if refused:
            assert not stage.held
            return
        (held,) = stage.held
        assert held.ended
        assert stage.report().reason is EndReason.LOST

    play(scene)
