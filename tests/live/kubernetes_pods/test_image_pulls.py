"""Images are brought to a node before a job needs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from agent.kubernetes.node.image_pulls import (
    PULL_NODE,
    build_pull_pod,
    full_name,
    present_images,
    pull_labels,
    pull_outcome,
)
from agent.kubernetes.pods.pods import PodSettings
from scheduler.protocol.desired import DesiredImage

GOLDEN = Path(__file__).parent / "golden" / "pull.yaml"
IMAGE = DesiredImage(name="team/train:2")


def pulling(api):
    return [name for name, pod in api.pods.items() if PULL_NODE in pod["metadata"]["labels"]]


def hurry(stage):
    stage.backend._puller._look_every_s = 0.02
    stage.api.hold_deleted = False


def arrive(api, name, **container):
    own = {"name": "pull", "state": {"terminated": {"exitCode": 0}}} | container
    api.status(name, phase="Succeeded", containerStatuses=[own])


def test_the_pod_is_what_the_golden_file_shows():
    image = DesiredImage(name="registry.example.org/team/train:2", pull_secrets=("registry",))
    pod = build_pull_pod(image, node="n1", hostname="n1", settings=PodSettings())
    text = yaml.safe_dump(pod, sort_keys=False, width=100)
    if os.environ.get("LEASEHOLD_GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.11", "docker.io/library/python:3.11"),
        ("team/train", "docker.io/team/train:latest"),
        ("localhost/train:1", "localhost/train:1"),
        ("registry:5000/train", "registry:5000/train:latest"),
        ("ghcr.io/a/b@sha256:01", "ghcr.io/a/b@sha256:01"),
        ("a@sha256:01", "docker.io/library/a@sha256:01"),
    ],
)
def test_images_are_compared_by_their_full_names(given, full):
    assert full_name(given) == full
    assert present_images({"status": {"images": [{"names": [full]}, {}]}}) == {full}


@pytest.mark.parametrize(
    ("status", "brought"),
    [
        ({"phase": "Pending"}, None),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, None),
        ({"state": {"waiting": {"reason": "ImagePullBackOff"}}}, False),
        # There is no `true` in the image; but the image is there.
        ({"state": {"waiting": {"reason": "RunContainerError"}}}, True),
        ({"imageID": "sha256:01", "state": {"waiting": {"reason": "ContainerCreating"}}}, True),
        ({"phase": "Failed"}, False),
        ({"phase": "Succeeded"}, True),
    ],
)
def test_a_pull_is_over_when_the_image_is_there_or_cannot_be_had(status, brought):
    own = {"imageID": status.pop("imageID", ""), "state": status.pop("state", {})}
    pod = {"status": {"containerStatuses": [own]} | status}
    assert pull_outcome(pod) is brought


def test_an_image_is_pulled_once_and_its_pod_goes(play):
    async def scene(stage):
        hurry(stage)
        stage.backend.prepare((IMAGE,))
        (name,) = await stage.until(lambda: pulling(stage.api))
        assert stage.api.pods[name]["spec"]["containers"][0]["image"] == "team/train:2"
        arrive(stage.api, name)
        await stage.until(lambda: not stage.api.pods)
        stage.backend.prepare(())
        stage.backend.prepare((IMAGE,))
        stage.backend.prepare((IMAGE, DesiredImage(name="team/other:1")))
        (name,) = await stage.until(lambda: pulling(stage.api))
        assert stage.api.pods[name]["spec"]["containers"][0]["image"] == "team/other:1"
        assert len(stage.api.creations()) == 2
        assert stage.backend.held() == ()

    play(scene)


def test_what_is_there_is_not_pulled_and_leases_are_not_touched(play, make_lease):
    async def scene(stage):
        hurry(stage)
        names = ["docker.io/team/train:2", "docker.io/team/train@sha256:01"]
        stage.api.nodes["n1"]["status"]["images"] = [{"names": names}]
        await stage.until(lambda: present_images(stage.inventory.node))
        stage.start(make_lease())
        await stage.pod()
        stage.backend.prepare((IMAGE, DesiredImage(name="team/other:1")))
        (name,) = await stage.until(lambda: pulling(stage.api))
        assert stage.api.pods[name]["spec"]["containers"][0]["image"] == "team/other:1"
        stage.api.status(name, containerStatuses=[
            {"name": "pull", "state": {"waiting": {"reason": "ErrImagePull"}}}])  # fmt: skip
        await stage.until(lambda: not pulling(stage.api))
        assert list(stage.api.pods) == ["job1-1-0"]
        assert stage.backend.remarks() == ()

    play(scene)


def test_what_an_earlier_agent_has_left_is_swept_and_a_quota_is_waited_for(play, failure):
    left = build_pull_pod(
        DesiredImage(name="old:1"), node="n1", hostname="n1", settings=PodSettings()
    )
    other = build_pull_pod(
        DesiredImage(name="old:1"), node="n2", hostname="n2", settings=PodSettings()
    )

    async def scene(stage):
        hurry(stage)
        for pod in (left, other):
            name = pod["metadata"]["name"]
            pod["metadata"]["uid"], pod["status"] = name, {"phase": "Succeeded"}
            stage.api.pods[name] = pod
        stage.api.fault("POST", "/pods", failure(403, "Forbidden", "exceeded quota: few"))
        stage.backend.prepare((IMAGE,))
        await stage.until(lambda: left["metadata"]["name"] not in stage.api.pods)
        await stage.until(lambda: len(stage.api.creations()) == 2)
        (name,) = set(pulling(stage.api)) - {other["metadata"]["name"]}
        arrive(stage.api, name)
        await stage.until(lambda: name not in stage.api.pods)
        assert other["metadata"]["name"] in stage.api.pods

    play(scene)


def test_pods_that_pull_are_not_among_those_of_leases():
    labels = pull_labels(node="n1", settings=PodSettings())
    assert "leasehold.dev/node" not in labels
