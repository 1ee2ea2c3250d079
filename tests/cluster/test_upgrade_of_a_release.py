"""A release before on the cluster, upgraded to this one by the chart, under running jobs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from installed import Installed
from journals import check
from machine import eventually

from leasehold_testing.releases import BEFORE, OLDEST, chart_of_release

ROOT = Path(__file__).resolve().parents[2]
#: As in images.sh.
RELEASES = {"0.1.0": BEFORE, "oldest": OLDEST}
V100, K80 = {"v100": 10.0}, {"k80": 10.0}


@pytest.fixture(scope="module", params=RELEASES.values(), ids=RELEASES)
def commit(request):
    """Return the commit of a release with images here."""
    if f"release-{request.param}" not in os.environ["LEASEHOLD_CLUSTER_IMAGES"]:
        pytest.skip("no git history here to make the release from")
    return request.param


@pytest.fixture(scope="module")
def before(cluster, commit, tmp_path_factory):
    """The release, in a namespace of its own; earlier installations are gone."""
    chart = Installed(cluster, f"before-{commit}")
    tags = ",".join(f"{part}.image.tag={commit}" for part in ("scheduler", "agent"))
    try:
        old = chart_of_release(ROOT, tmp_path_factory.mktemp("release"), commit)
        chart.install(old, "--set", tags)
        yield chart
        chart.uninstall()  # the next one has the same port
    finally:
        chart.close()


def test_a_release_is_upgraded_under_jobs_that_its_agents_have_started(cluster, before, commit):
    steps = 600
    jobs = {
        "old-1": before.submit("old-1", steps=steps, types=V100),
        "old-2": before.submit("old-2", steps=steps, types=K80),
    }
    for name in jobs:
        before.await_steps(name, 10)
    assert images(cluster.pods(before.namespace)) == {f"agent:{commit}", f"scheduler:{commit}"}
    pods = {p["metadata"]["uid"]: p for p in cluster.pods(before.jobs)}
    assert len(pods) == 2
    assert f"agent:{commit}" in images(pods.values())

    before.helm("upgrade")

    eventually(
        "the old parts are gone",
        lambda: images(cluster.pods(before.namespace)) == {"agent:1", "scheduler:1"},
        limit_s=60,
    )
    before.await_workers()
    assert pods.keys() <= {p["metadata"]["uid"] for p in cluster.pods(before.jobs)}, "they go on"
    assert all(before.steps_in(name) < steps for name in jobs), "they have not ended yet"
    for name, job in jobs.items():
        before.await_status(job, "completed", limit_s=180)
        attempts = check(before.checkpoints / name, steps=steps)
        assert len(attempts) == 1, "it was stopped by the upgrade"
        found = before.get(f"/v1/jobs/{job}")
        assert (found["failures"], found["steps_done"]) == (0, steps)
        assert f"done: {steps} steps" in before.log(job)


def test_jobs_are_run_after_the_upgrade(cluster, before):
    job = before.submit("new", steps=100, types=V100 | K80)
    before.await_status(job, "completed", limit_s=120)
    check(before.checkpoints / "new", steps=100)
    for pod in cluster.pods(before.namespace):
        said = cluster.kubectl("logs", pod["metadata"]["name"], "-n", before.namespace)
        assert "Traceback" not in said
        assert " ERROR " not in said


def images(pods):
    """Return the program's images in some pods, as NAME:TAG."""
    used = {
        container["image"].rpartition("/")[2]
        for pod in pods
        for kind in ("containers", "initContainers")
        for container in pod["spec"].get(kind, ())
    }
    return {image for image in used if image.startswith(("agent:", "scheduler:"))}
