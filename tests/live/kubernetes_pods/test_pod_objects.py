"""The Service of a gang and the Secret of a pod are made until they are there."""

from __future__ import annotations

import pytest

from agent.kubernetes.pods import objects
from agent.kubernetes.pods.ends import StartBounds
from agent.reconcile import Renew
from scheduler.domain.facts.troubles import trouble_of
from scheduler.domain.lease_life import EndReason, LeasePhase

POD, SERVICE = "job1-1-0", "job1-1"
GANG = {"gang": (1, 1), "world_size": 2}
SECRETS = {"PASSWORD": "hunter2"}
FULL = "{} is forbidden: exceeded quota: few, requested: {}=1, used: {}=0, limited: {}=0"
FOREVER = {"bounds": StartBounds(trouble_s=60.0)}


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setattr(objects, "SERVICE_EVERY_S", 0.1)


@pytest.fixture
def full(failure):
    return lambda kind: failure(403, "Forbidden", FULL.format(*[kind] * 4))


def miss_secret(stage):
    """Say what a kubelet says if the Secret of the pod is missing."""
    wanted = stage.api.pods[POD]["spec"]["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]
    stage.api.wait(POD, "CreateContainerConfigError", f'secret "{wanted["name"]}" not found')


def told(stage):
    report = stage.report()
    return trouble_of(report.reason_code, report.message)


@pytest.mark.parametrize("runs", [False, True])
def test_a_quota_of_services_is_told_as_the_gangs_trouble_until_it_has_room(
    play, make_lease, full, runs
):
    async def scene(stage):
        stage.api.fault("POST", "/services", full("services"), times=4)
        stage.start(make_lease(**GANG))
        await stage.pod()
        if runs:
            stage.api.run(POD)
            await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        await stage.until(lambda: told(stage) == "quota")
        assert "exceeded quota: few" in stage.report().message
        service = await stage.until(lambda: stage.api.services.get(SERVICE))
        assert service["metadata"]["ownerReferences"][0]["name"] == POD
        await stage.until(lambda: stage.report().reason_code == "")
        await stage.until(lambda: not stage.backend.remarks())

    play(scene, **FOREVER)


def test_a_service_that_somebody_deletes_is_made_again(play, make_lease):
    async def scene(stage):
        stage.start(make_lease(**GANG))
        await stage.pod()
        await stage.until(lambda: SERVICE in stage.api.services)
        stage.api.run(POD)
        stage.api.services.clear()
        await stage.until(lambda: SERVICE in stage.api.services)
        assert stage.report().state is LeasePhase.RUNNING

    play(scene)


def test_the_next_agent_makes_the_service_that_the_one_before_could_not(play, make_lease, full):
    async def scene(stage):
        stage.api.fault("POST", "/services", full("services"), times=1000)
        stage.start(make_lease(**GANG))
        await stage.pod()
        await stage.until(lambda: told(stage) == "quota")
        await stage.stop()
        stage.api.faults.clear()
        await stage.begin()
        await stage.until(lambda: SERVICE in stage.api.services)

    play(scene, **FOREVER)


def test_an_agent_without_the_right_to_read_services_makes_one_once(play, make_lease, failure):
    denied = failure(403, "Forbidden", 'services is forbidden: User "agent" cannot get it')

    async def scene(stage):
        stage.api.fault("GET", "/services/", denied, times=1000)
        stage.start(make_lease(**GANG))
        await stage.pod()
        await stage.until(lambda: SERVICE in stage.api.services)
        before = len(stage.api.faults)
        await stage.until(lambda: len(stage.api.faults) < before)
        assert stage.report().reason_code == ""
        assert any("are not made again" in remark for remark in stage.backend.remarks())
        made = [r for r in stage.api.requests if r[0] == "POST" and "/services" in r[1]]
        assert len(made) == 1

    play(scene)


def test_a_quota_of_secrets_is_no_failure_of_the_job(play, make_lease, full):
    async def scene(stage):
        stage.api.hold_deleted = False
        stage.api.fault("POST", "/secrets", full("secrets"), times=1000)
        stage.start(make_lease(secret_env=SECRETS))
        await stage.pod()
        miss_secret(stage)
        await stage.until(lambda: told(stage) == "quota")
        report = await stage.ended()
        assert (report.reason, report.reason_code) == (EndReason.LOST, "QuotaExceeded")

    play(scene)


def test_a_secret_that_is_made_late_gives_the_kubelet_time_to_find_it(play, make_lease, full):
    async def scene(stage):
        stage.api.fault("POST", "/secrets", full("secrets"), times=4)
        stage.start(make_lease(secret_env=SECRETS))
        await stage.pod()
        miss_secret(stage)
        (secret,) = await stage.until(lambda: list(stage.api.secrets.values()))
        assert secret["stringData"] == SECRETS
        stage.api.run(POD)
        await stage.until(lambda: stage.report().state is LeasePhase.RUNNING)
        assert stage.report().reason_code == ""

    play(scene, **FOREVER)


def test_a_secret_that_somebody_deletes_before_the_start_is_made_again(play, make_lease):
    async def scene(stage):
        stage.start(make_lease(secret_env=SECRETS))
        await stage.pod()
        (name,) = await stage.until(lambda: list(stage.api.secrets))
        stage.api.secrets.clear()
        miss_secret(stage)
        await stage.until(lambda: list(stage.api.secrets) == [name])

    play(scene, **FOREVER)


def test_the_next_agent_makes_the_secret_of_what_the_scheduler_sends_again(
    play, make_lease, full, tmp_path
):
    async def scene(stage):
        stage.api.fault("POST", "/secrets", full("secrets"), times=1000)
        stage.start(make_lease(secret_env=SECRETS))
        await stage.pod()
        await stage.until(lambda: told(stage) == "quota")
        await stage.stop()
        stage.api.faults.clear()
        miss_secret(stage)
        await stage.begin()
        until_s = stage.held[0].deadline_s + 60.0
        stage.backend.perform(Renew(lease_id=1, deadline_s=until_s, secret_env=SECRETS))
        (secret,) = await stage.until(lambda: list(stage.api.secrets.values()))
        assert secret["stringData"] == SECRETS
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert [path for path in files if "hunter2" in path.read_text()] == []

    play(scene, **FOREVER)
