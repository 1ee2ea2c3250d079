"""What Kubernetes says of a pod arrives at the scheduler as a kind of trouble."""

from __future__ import annotations

import pytest

from agent.kubernetes.pods.ends import StartBounds
from scheduler.domain.facts.troubles import trouble_of
from scheduler.domain.lease_life import EndReason

POD = "job1-1-0"


def condition(name, status, reason, message):
    return {"type": name, "status": status, "reason": reason, "message": message}


def unschedulable(message):
    return {"conditions": [condition("PodScheduled", "False", "Unschedulable", message)]}


def waiting(reason, message=""):
    state = {"waiting": {"reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "job", "state": state}]}


def ended(code, reason):
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return {"phase": "Failed", "containerStatuses": [{"name": "job", "state": state}]}


STATUSES = [
    (waiting("ImagePullBackOff", "manifest unknown"), None, "image"),
    (waiting("CreateContainerConfigError", 'secret "x" not found'), None, "configuration"),
    (waiting("RunContainerError", "no such user"), None, "start"),
    (unschedulable("0/2 nodes are available: 1 Insufficient memory"), None, "no_resources"),
    (unschedulable("1 node(s) had untolerated taint {gpu: no}"), None, "tainted"),
    (unschedulable("1 node(s) were unschedulable"), None, "cordoned"),
    (unschedulable('persistentvolumeclaim "data" not found'), None, "volume"),
    (ended(137, "OOMKilled"), EndReason.OOM, "out_of_memory"),
    ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, EndReason.LOST, "evicted"),
    ({"phase": "Failed", "reason": "OutOfcpu"}, EndReason.LOST, "node_refused"),
    (ended(128, "StartError"), EndReason.FAILED, "start"),
    (
        ended(143, "Error")
        | {"conditions": [condition("DisruptionTarget", "True", "PreemptionByScheduler", "x")]},
        EndReason.LOST,
        "disrupted",
    ),
]


@pytest.mark.parametrize(("status", "end", "kind"), STATUSES)
def test_a_pods_status_is_a_kind_of_trouble(play, make_lease, status, end, kind):
    async def scene(stage):
        stage.start(make_lease())
        await stage.pod()
        stage.api.status(POD, **status)
        report = await stage.until(lambda: (r := stage.report()).reason_code and r)
        if end is not None:
            report = await stage.ended()
        assert report.reason is end
        assert trouble_of(report.reason_code, report.message) == kind

    play(scene, bounds=StartBounds(trouble_s=60.0))


REFUSALS = [
    (403, "Forbidden", 'pods "x" is forbidden: exceeded quota: few', "quota"),
    (403, "Forbidden", 'pods is forbidden: User "agent" cannot create resource', "permission"),
    (401, "Unauthorized", "Unauthorized", "permission"),
    (404, "NotFound", 'namespaces "leasehold-jobs" not found', "namespace"),
    (500, "InternalError", 'failed calling webhook "a.b": timed out', "webhook_down"),
    (503, "ServiceUnavailable", "etcd is away", "api_down"),
]


@pytest.mark.parametrize(("code", "reason", "message", "kind"), REFUSALS)
def test_a_refusal_that_may_go_away_is_told_while_it_lasts(  # noqa: PLR0917 - fixtures and a case
    play, make_lease, failure, code, reason, message, kind
):
    async def scene(stage):
        stage.api.fault("POST", "/pods", failure(code, reason, message), times=4)
        stage.start(make_lease())
        report = await stage.until(lambda: (r := stage.report()).reason_code and r)
        assert report.reason is None
        assert trouble_of(report.reason_code, report.message) == kind
        await stage.pod()
        await stage.until(lambda: stage.report().reason_code == "")

    play(scene, bounds=StartBounds(trouble_s=60.0))


FINAL = [
    (400, "BadRequest", 'admission webhook "policy" denied the request: no tags', "admission"),
    (422, "Invalid", "spec.containers[0].image: Required value", "admission"),
    (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728", "admission"),
    (500, "InternalError", "etcdserver: request is too large", "admission"),
    (403, "Forbidden", "maximum memory usage per Pod is 1Gi", "admission"),
    (403, "Forbidden", 'pods "x" violates PodSecurity "restricted:latest"', "pod_security"),
]


@pytest.mark.parametrize(("code", "reason", "message", "kind"), FINAL)
def test_a_refusal_for_good_fails_the_job(  # noqa: PLR0917 - fixtures and a case
    play, make_lease, failure, code, reason, message, kind
):
    async def scene(stage):
        stage.api.fault("POST", "/pods", failure(code, reason, message))
        stage.start(make_lease())
        report = await stage.ended()
        assert report.reason is EndReason.FAILED
        assert trouble_of(report.reason_code, report.message) == kind
        assert len(stage.api.creations()) == 1

    play(scene)


def test_a_namespace_that_is_going_away_is_named(play, make_lease, failure):
    going = 'unable to create new content in namespace "x" because it is being terminated'

    async def scene(stage):
        stage.api.fault("POST", "/pods", failure(403, "Forbidden", going))
        stage.start(make_lease())
        report = await stage.ended()
        assert trouble_of(report.reason_code, report.message) == "namespace"

    play(scene)
