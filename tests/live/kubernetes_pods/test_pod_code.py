"""Uploaded code in pods: the container that brings it, its limits, and the agent's answers."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
import stat
import subprocess
import sys
import tarfile

import pytest

from agent import bring_code
from agent.bring_code import LATE, UNUSABLE, fetch, unpack_code
from agent.clock import lease_clock_s
from agent.kubernetes.pods.code import FOLDER
from agent.kubernetes.pods.pods import PodPlace, PodSettings, PodWorker, build_pod
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.errors import InputError

POD = "job1-1-0"
WITH_CODE = PodSettings(guard_image="agent:1", code_image="agent:1")


def archive_of(*members):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, content, *fields in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in (fields[0] if fields else {}).items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


def hash_of(archive):
    return hashlib.sha256(archive).hexdigest()


CODE = archive_of(("train.py", b"print()"), ("pkg/run.sh", b"#!", {"mode": 0o755}))
DIGEST = hash_of(CODE)
HOSTILE = {
    "leads out": archive_of(("../../etc/x", b"x")),
    "is a link": archive_of(("a", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc"})),
    "goes through a link": archive_of(
        ("a", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc"}), ("a/x", b"x")
    ),
    "is too large": archive_of(("x", bytes(65 * 2**20))),
}


class Scheduler:
    """Gives one answer after the other; the last one again and again."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    async def code(self, lease_id):
        self.asked.append(lease_id)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def ended_with(running):
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def kept(trees):
    async def code(lease_id):
        return trees[lease_id]

    return code


def container(pod, name="leasehold-code"):
    return next(c for c in pod["spec"]["initContainers"] if c["name"] == name)


def variables(pod):
    return {v["name"]: v.get("value") for v in container(pod)["env"]}


class Bringer:
    """The container of a pod as the kubelet runs it, with another folder and address."""

    def __init__(self, stage, pod, folder):
        folder.mkdir(exist_ok=True)
        self.folder, told = folder, variables(pod)
        told["LEASEHOLD_ENDPOINT"] = f"tcp://127.0.0.1:{stage.endpoint.port}"
        del told["LEASEHOLD_HOST_IP"]
        program, *words = container(pod)["command"]
        assert program == "python"
        words[-1] = str(folder)
        self.command, self.env = [sys.executable, *words], os.environ | told
        self.said = ""

    async def run(self):
        """Return its exit code and output."""
        process = await asyncio.create_subprocess_exec(
            *self.command, env=self.env, stderr=subprocess.PIPE
        )
        try:
            while line := await process.stderr.readline():
                self.said += line.decode()
            await process.wait()
        finally:
            if process.returncode is None:  # its pod was deleted
                process.kill()
                await process.communicate()
        return process.returncode, self.said


async def pod_with_code(stage, make_lease, scheduler, **more):
    stage.backend.bring_code(scheduler)
    stage.start(make_lease(upload=more.pop("upload", DIGEST), **more))
    return await stage.pod()


def test_the_code_comes_into_the_pod_and_the_job_starts_in_it(play, make_lease, tmp_path):
    async def scene(stage):
        scheduler = Scheduler(CODE)
        pod = await pod_with_code(stage, make_lease, scheduler)
        assert not scheduler.asked  # it is fetched when the pod asks
        job = pod["spec"]["containers"][0]
        assert job["workingDir"] == FOLDER
        assert {"name": "leasehold-code", "mountPath": FOLDER} in job["volumeMounts"]
        code, said = await Bringer(stage, pod, tmp_path / "code").run()
        assert (code, said) == (0, "")
        assert scheduler.asked == [1]
        assert (tmp_path / "code" / "train.py").read_text() == "print()"
        assert (tmp_path / "code" / "pkg" / "run.sh").stat().st_mode & 0o777 == 0o775
        assert not stage.api.secrets  # nothing of it lies at the API server

    play(scene, settings=WITH_CODE)


def test_the_scheduler_and_the_agent_may_be_away_meanwhile(play, make_lease, tmp_path):
    async def scene(stage):
        scheduler = Scheduler(ConnectionError("the scheduler is away"), CODE)
        pod = await pod_with_code(stage, make_lease, scheduler)
        bringer = Bringer(stage, pod, tmp_path / "code")
        stage.endpoint.dismiss(1)  # as an agent that has just begun
        running = asyncio.create_task(bringer.run())
        await stage.until(lambda: "not that of a lease" in bringer.said)
        stage.endpoint.admit(stage.backend._records[1].tenant)
        code, said = await running
        assert code == 0, said
        assert "the scheduler is away" in said
        assert (tmp_path / "code" / "train.py").exists()

    play(scene, settings=WITH_CODE)


def test_the_next_agent_gives_the_code_to_a_pod_that_it_finds(play, make_lease, tmp_path):
    async def scene(stage):
        pod = await pod_with_code(stage, make_lease, Scheduler(CODE))
        await stage.stop()
        for file in (stage.folder / "pods").iterdir():  # the agent's pod has gone, with its disk
            file.unlink()
        await stage.begin()
        scheduler = Scheduler(CODE)
        stage.backend.bring_code(scheduler)
        await stage.until(stage.report)
        assert (await Bringer(stage, pod, tmp_path / "code").run())[0] == 0
        assert scheduler.asked == [1]

    play(scene, settings=WITH_CODE)


def test_code_that_nobody_has_ends_the_lease_as_failed(play, make_lease, tmp_path):
    async def scene(stage):
        scheduler = Scheduler(InputError("node 'n1' has no lease 1 with uploaded code kept"))
        pod = await pod_with_code(stage, make_lease, scheduler)
        bringing = asyncio.create_task(Bringer(stage, pod, tmp_path / "code").run())
        await stage.until(lambda: stage.api.pods[POD]["metadata"].get("deletionTimestamp"))
        stage.api.vanish(POD)
        ended = await stage.ended()
        assert ended.reason is EndReason.FAILED
        assert ended.message.startswith(
            "its uploaded code cannot be fetched: node 'n1' has no lease"
        )
        await ended_with(bringing)

    play(scene, settings=WITH_CODE)


def test_another_tree_is_neither_given_nor_taken(play, make_lease, tmp_path):
    async def scene(stage):
        other = archive_of(("train.py", b"evil()"))
        pod = await pod_with_code(stage, make_lease, Scheduler(other))
        tenant = stage.backend._records[1].tenant
        bringer = Bringer(stage, pod, tmp_path / "code")
        running = asyncio.create_task(bringer.run())
        await stage.until(lambda: stage.backend._records[1].terminated_s is not None)
        assert "another tree" in stage.backend._records[1].hopeless[2]
        await ended_with(running)

        async def from_a_node_that_was_taken_over():
            return other

        tenant.code = from_a_node_that_was_taken_over
        code, said = await bringer.run()
        assert code == UNUSABLE
        assert f"another tree than {DIGEST}" in said
        assert not list((tmp_path / "code").iterdir())

    play(scene, settings=WITH_CODE)


@pytest.mark.parametrize("what", HOSTILE)
def test_a_tree_that_would_harm_who_unpacks_it_is_not_unpacked(tmp_path, what):
    folder = tmp_path / "code"
    folder.mkdir()
    with pytest.raises(InputError, match=r"the upload"):
        unpack_code(HOSTILE[what], hash_of(HOSTILE[what]), folder)
    assert not list(folder.iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["code"]


def test_what_a_try_before_has_left_is_gone(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "file").touch()
    (tmp_path / "train.py").symlink_to("/etc/passwd")
    unpack_code(CODE, DIGEST, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "pkg"}
    assert not (tmp_path / "train.py").is_symlink()
    assert stat.S_IMODE((tmp_path / "pkg").stat().st_mode) & 0o070 == 0o070


def test_the_code_is_for_the_pod_of_the_lease_alone(play, make_lease, tmp_path):
    """Eve's job knows its own secret, and the agent's address."""

    async def scene(stage):
        mine, theirs = archive_of(("eve.py", b"1")), archive_of(("bob.py", b"2"))

        scheduler = Scheduler(None)
        scheduler.code = kept({1: theirs, 2: mine})
        stage.backend.bring_code(scheduler)
        stage.start(make_lease(upload=hash_of(theirs)))
        stage.start(make_lease(2, workers=(1,), upload=hash_of(mine)))
        await stage.pod()
        pod = await stage.pod("job2-1-0")
        eve = variables(pod)["LEASEHOLD_SECRET"]
        at = f"tcp://127.0.0.1:{stage.endpoint.port}"
        assert await asyncio.to_thread(fetch, at, eve) == mine
        for secret in ("", "x", eve[:-1]):
            with pytest.raises(OSError, match="secret"):
                await asyncio.to_thread(fetch, at, secret)
        # A lease without code has none, and a job that has begun needs no more of the agent.
        stage.start(make_lease(3, workers=(2,)))
        await stage.pod("job3-1-0")
        plain = stage.backend._records[3].tenant.secret
        with pytest.raises(OSError, match="is not available"):
            await asyncio.to_thread(fetch, at, plain)
        stage.api.run("job2-1-0")
        await stage.until(lambda: stage.report(2).state is LeasePhase.RUNNING)
        with pytest.raises(OSError, match="the job has begun"):
            await asyncio.to_thread(fetch, at, eve)

    play(scene, settings=WITH_CODE)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (PodSettings(guard_image="agent:1"), r"no kubernetes.code_image.*agent.uploads.enabled"),
        (PodSettings(code_image="agent:1", endpoint_port=0), "no kubernetes.jobs_port"),
    ],
)
def test_an_agent_that_cannot_bring_it_says_what_to_set(play, make_lease, settings, said):
    async def scene(stage):
        stage.start(make_lease(upload=DIGEST))
        ended = await stage.ended()
        assert ended.reason is EndReason.FAILED

        assert re.search(said, ended.message), ended.message
        assert not stage.api.pods

    play(scene, settings=settings)


@pytest.mark.parametrize(
    ("exit_code", "said", "end"),
    [
        (UNUSABLE, "its uploaded code cannot be used: 'a' lies outside", EndReason.FAILED),
        (LATE, "was not brought before the lease was over", EndReason.LOST),
        (137, "", EndReason.LOST),
    ],
)
def test_a_pod_whose_code_was_not_brought_says_why(play, make_lease, exit_code, said, end):
    async def scene(stage):
        await pod_with_code(stage, make_lease, Scheduler(CODE))
        ended = {"exitCode": exit_code, "reason": "Error", "message": f"{said}\n"}
        stage.api.status(
            POD,
            phase="Failed",
            initContainerStatuses=[{"name": "leasehold-code", "state": {"terminated": ended}}],
            containerStatuses=[
                {"name": "job", "state": {"waiting": {"reason": "PodInitializing"}}}
            ],
        )
        report = await stage.ended()
        assert report.reason is end
        assert (said or "its code was not brought: exit code 137") in report.message
        assert report.exit_code is None

    play(scene, settings=WITH_CODE)


def test_a_job_that_fills_the_folder_with_its_code_has_failed_and_not_its_node(play, make_lease):
    async def scene(stage):
        await pod_with_code(stage, make_lease, Scheduler(CODE))
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        said = 'Usage of EmptyDir volume "leasehold-code" exceeds the limit "1073741824". '
        ended = {"exitCode": 137, "reason": "Error"}
        stage.api.status(
            POD,
            phase="Failed",
            reason="Evicted",
            message=said,
            containerStatuses=[{"name": "job", "state": {"terminated": ended}}],
        )
        report = await stage.ended()
        assert report.reason is EndReason.FAILED
        assert report.message == f"it wrote too much beside its uploaded code: {said.strip()}"

    play(scene, settings=WITH_CODE)


def test_an_image_for_it_that_cannot_be_pulled_is_told(play, make_lease):
    async def scene(stage):
        await pod_with_code(stage, make_lease, Scheduler(CODE))
        waiting = {"reason": "ErrImagePull", "message": "agent:1: not found"}
        stage.api.status(
            POD, initContainerStatuses=[{"name": "leasehold-code", "state": {"waiting": waiting}}]
        )
        report = await stage.until(lambda: (r := stage.report()) and r.reason_code and r)
        assert report.reason_code == "ErrImagePull"
        assert "agent:1: not found" in report.message

    play(scene, settings=WITH_CODE)


def test_who_waits_for_it_ends_with_the_lease(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LEASEHOLD_ENDPOINT", "tcp://127.0.0.1:1")
    monkeypatch.setenv("LEASEHOLD_SECRET", "s")
    monkeypatch.setenv("LEASEHOLD_DEADLINE_S", f"{lease_clock_s() + 0.4}")
    monkeypatch.setattr(sys, "argv", ["bring_code", DIGEST, str(tmp_path)])
    monkeypatch.setattr(bring_code.signal, "signal", lambda *_: None)
    assert bring_code.main() == LATE
    assert "before the lease was over" in capsys.readouterr().err


def build(make_lease, template, **settings):
    return build_pod(
        make_lease(upload=DIGEST, kubernetes={"template": {"spec": template}}),
        PodPlace(node="n1", hostname="n1", workers=(PodWorker(worker_type="v100"),)),
        secret="s",
        settings=PodSettings(code_image="agent:1", **settings),
    )


@pytest.mark.parametrize(
    ("template", "user"),
    [
        ({}, 1000),
        ({"securityContext": {"runAsUser": 2000}}, 2000),
        ({"containers": [{"name": "job", "securityContext": {"runAsUser": 3000}}]}, 3000),
        ({"securityContext": {"runAsUser": 0, "runAsNonRoot": False}}, 1000),
    ],
)
def test_it_is_unpacked_by_the_user_of_the_job_and_never_by_root(make_lease, template, user):
    pod = build(make_lease, template)
    assert container(pod)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": user,
    }


def test_it_comes_before_the_containers_of_a_template_and_has_a_bound(make_lease):
    pod = build(
        make_lease,
        {"initContainers": [{"name": "mine", "image": "i"}]},
        code_volume_bytes=2**24,
        guard_image="agent:1",
    )
    names = [c["name"] for c in pod["spec"]["initContainers"]]
    assert names == ["leasehold-guard", "leasehold-code", "mine"]
    (volume,) = (v for v in pod["spec"]["volumes"] if v["name"] == "leasehold-code")
    assert volume["emptyDir"] == {"sizeLimit": "16777216"}
