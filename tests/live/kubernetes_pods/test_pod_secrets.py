"""Secret variables reach a pod by a Secret that is its own, and lie nowhere else."""

import json

import pytest

from agent.kubernetes.names import lease_annotations
from agent.kubernetes.pods.pods import PodPlace, PodSettings, PodWorker, build_pod, build_secret

PASSWORD = "hunter2-on-kubernetes"
SECRETS = {"PASSWORD": PASSWORD, "TOKEN": "abc"}


def container_of(pod):
    (found,) = [one for one in pod["spec"]["containers"] if one["name"] == "job"]
    return found


def test_a_pod_waits_for_a_secret_that_belongs_to_it(play, make_lease, tmp_path):
    async def scene(stage):
        stage.start(make_lease(secret_env=SECRETS))
        pod = await stage.pod()
        (secret,) = await stage.until(lambda: list(stage.api.secrets.values()))
        assert secret["stringData"] == SECRETS
        (owner,) = secret["metadata"]["ownerReferences"]
        assert owner["kind"] == "Pod"
        assert (owner["name"], owner["uid"]) == ("job1-1-0", pod["metadata"]["uid"])
        wanted = {
            one["name"]: one["valueFrom"]["secretKeyRef"]
            for one in container_of(pod)["env"]
            if "secretKeyRef" in one.get("valueFrom", {})
        }
        name = secret["metadata"]["name"]
        assert wanted == {key: {"name": name, "key": key} for key in SECRETS}
        assert PASSWORD not in json.dumps(pod)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert files
        assert [path for path in files if PASSWORD in path.read_text()] == []
        stage.api.run("job1-1-0")  # its container has the variables now
        (record,) = stage.backend._records.values()
        await stage.until(lambda: not record.lease.secret_env)

    play(scene)


def test_a_secret_that_could_not_be_made_is_made_later(play, make_lease, failure):
    async def scene(stage):
        stage.api.fault("POST", "/secrets", failure(500, "InternalError", "no"), times=3)
        stage.start(make_lease(secret_env=SECRETS))
        await stage.pod()
        (secret,) = await stage.until(lambda: list(stage.api.secrets.values()))
        assert secret["stringData"] == SECRETS
        assert stage.api.faults == []

    play(scene)


def test_a_pod_without_secrets_makes_none(play, make_lease):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        assert stage.api.secrets == {}

    play(scene)


@pytest.fixture
def made(make_lease):
    wanted = make_lease(secret_env=SECRETS | {"NVIDIA_VISIBLE_DEVICES": "all"})
    worker = PodWorker(worker_type="v100")
    place = PodPlace(node="n1", hostname="n1", workers=(worker,))

    def make(secret):
        settings = PodSettings()
        pod = build_pod(wanted, place, secret=secret, settings=settings)
        return pod, build_secret(wanted, secret=secret, owner_uid="u", settings=settings)

    return make, wanted


def test_nobody_guesses_the_name_of_a_secret(made):
    make, _ = made
    names = {make(secret)[1]["metadata"]["name"] for secret in ("a", "b", "c")}
    assert len(names) == 3
    assert all(len(name) <= 253 for name in names)


def test_it_chooses_no_devices_and_is_in_no_annotation(made):
    make, wanted = made
    pod, secret = make("s")
    assert set(secret["stringData"]) == set(SECRETS)
    assert "all" not in [one.get("value") for one in container_of(pod)["env"]]
    assert PASSWORD not in json.dumps(lease_annotations(wanted))
