"""Why a lease ended, from a kubelet's entries in a pod's status."""

from __future__ import annotations

import pytest

from agent.endpoint.endpoint import Tenant
from agent.kubernetes.pods.ends import Orders, end_of, look_at, start_failure
from agent.kubernetes.pods.record import PodRecord
from scheduler.domain.lease_life import EndReason

STAYS, TOLD = Orders(), Orders(noticed=True)
DELETED, UNWANTED = Orders(terminated=True), Orders(terminated=True, unwanted=True)
KILLED = Orders(terminated=True, killed=True)


def pod(code=None, reason="Error", *, phase="Failed", why="", message="", deleted=False, **more):
    state = {} if code is None else {"terminated": {"exitCode": code, "reason": reason}}
    status = {"phase": phase, "containerStatuses": [{"name": "job", "state": state}]}
    status |= {"reason": why, "message": message} if why else {}
    return {"metadata": {"deletionTimestamp": "x"} if deleted else {}, "status": status | more}


FAILED = EndReason.FAILED
NO_DRIVER = (
    "failed to create shim task: OCI runtime create failed: error running prestart hook #0: "
    "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot "
    "open shared object file: no such file or directory"
)
OWN_DISK = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."


def unstarted(message, reason="StartError"):
    ended = {"exitCode": 128, "reason": reason, "message": message}
    own = {"name": "job", "state": {"terminated": ended}}
    return {"status": {"phase": "Failed", "containerStatuses": [own]}}


def evicted(message):
    return pod(137, why="Evicted", message=message)


def before(code, reason="Error"):
    """A container of the job's template that runs before the job's own."""
    ended = {"exitCode": code, "reason": reason, "message": "cannot fetch s3://data"}
    return {"name": "fetch", "state": {"terminated": ended}}


@pytest.mark.parametrize(
    ("seen", "orders", "end"),
    [
        (pod(0, phase="Succeeded"), STAYS, EndReason.COMPLETED),
        (pod(0, phase="Succeeded"), TOLD, EndReason.RELEASED),
        (pod(75), STAYS, EndReason.RELEASED),
        (pod(1), STAYS, EndReason.FAILED),
        (pod(1), DELETED, EndReason.RELEASED),
        (pod(1), UNWANTED, EndReason.CANCELLED),
        (pod(137, "OOMKilled"), STAYS, EndReason.OOM),
        (pod(137), KILLED, EndReason.RELEASED),
        (pod(143), STAYS, EndReason.FAILED),
        (pod(143), TOLD, EndReason.RELEASED),
        (pod(143, deleted=True), STAYS, EndReason.RELEASED),
        (pod(why="Evicted", message="memory"), STAYS, EndReason.LOST),
        (pod(137, why="Evicted", message="memory"), STAYS, EndReason.LOST),
        (pod(why="UnexpectedAdmissionError"), STAYS, EndReason.LOST),
        (pod(why="OutOfnvidia.com/gpu"), STAYS, EndReason.LOST),
        (pod(why="NodeLost"), STAYS, EndReason.LOST),
        (pod(why="Evicted"), DELETED, EndReason.RELEASED),
        (pod(phase="Running", deleted=True), STAYS, EndReason.RELEASED),
        (pod(phase="Running"), STAYS, EndReason.LOST),
        (pod(128, "StartError"), STAYS, EndReason.FAILED),
        (unstarted('exec: "tarin": executable file not found in $PATH'), STAYS, EndReason.FAILED),
        (unstarted("chdir to cwd /nonexist: no such file or directory"), STAYS, EndReason.FAILED),
        (unstarted(NO_DRIVER), STAYS, EndReason.LOST),
        (unstarted("write /var/lib/x: no space left on device"), STAYS, EndReason.LOST),
        (unstarted(NO_DRIVER), DELETED, EndReason.RELEASED),
        (pod(137, "ContainerStatusUnknown"), STAYS, EndReason.LOST),
        (pod(255, "Unknown"), STAYS, EndReason.LOST),
        (pod(255), STAYS, EndReason.FAILED),
        (pod(137, "ContainerStatusUnknown"), DELETED, EndReason.RELEASED),
        (evicted(OWN_DISK), STAYS, EndReason.FAILED),
        (evicted('Usage of EmptyDir volume "tmp" exceeds the limit "1Gi".'), STAYS, FAILED),
        (evicted('Container job exceeded its local ephemeral storage limit "1Gi".'), STAYS, FAILED),
        (evicted("The node was low on resource: ephemeral-storage."), STAYS, EndReason.LOST),
        (pod(initContainerStatuses=[before(1)]), STAYS, EndReason.FAILED),
        (pod(initContainerStatuses=[before(137, "OOMKilled")]), STAYS, EndReason.OOM),
        (pod(initContainerStatuses=[before(0)]), STAYS, EndReason.LOST),
        (pod(why="NodeLost", initContainerStatuses=[before(1)]), STAYS, EndReason.LOST),
        (None, STAYS, EndReason.LOST),
        (None, DELETED, EndReason.RELEASED),
    ],
)
def test_each_end_has_its_reason(seen, orders, end):
    look = None if seen is None else look_at(seen)
    assert end_of(look, orders, steps_done=5, total_steps=10 if orders is TOLD else None)[0] is end


def test_all_steps_done_is_completed_also_when_it_was_told_to_leave():
    look = look_at(pod(0, phase="Succeeded"))
    assert end_of(look, DELETED, steps_done=10, total_steps=10)[0] is EndReason.COMPLETED


def waiting(reason, message=""):
    state = {"waiting": {"reason": reason, "message": message}}
    return look_at({"status": {"phase": "Pending", "containerStatuses": [
        {"name": "job", "state": state}]}})  # fmt: skip


@pytest.mark.parametrize(
    ("look", "early", "late"),
    [
        (waiting("ContainerCreating"), None, None),
        (waiting("InvalidImageName"), EndReason.FAILED, EndReason.FAILED),
        (waiting("CreateContainerConfigError"), None, EndReason.FAILED),
        (waiting("ImagePullBackOff", "manifest unknown"), None, EndReason.FAILED),
        (waiting("ImagePullBackOff", "i/o timeout"), None, EndReason.LOST),
        (waiting("CreateContainerError", "context deadline exceeded"), None, EndReason.LOST),
        (waiting("CreateContainerError", 'exec: "x": executable file not found in $PATH'), None,
         EndReason.FAILED),
        (waiting("RunContainerError", NO_DRIVER), None, EndReason.LOST),
        (
            look_at({"status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                 "message": "0/3 nodes are available"}]}}),
            None,
            EndReason.LOST,
        ),
    ],
)  # fmt: skip
def test_what_cannot_start_is_given_up_sooner_or_later(look, early, late):
    assert start_failure(look, waited_s=1.0, most_s=60.0) is early
    assert start_failure(look, waited_s=61.0, most_s=60.0) is late


def at(second):
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"


def condition(name, second, status="True"):
    return {"type": name, "status": status, "lastTransitionTime": at(second)}


def launched(*conditions, started=42, devices=()):
    own = {"name": "job", "state": {"running": {"startedAt": at(started)}}}
    resources = [{"resourceID": name, "health": "Healthy"} for name in devices]
    if devices:
        own["allocatedResourcesStatus"] = [{"name": "nvidia.com/gpu", "resources": resources}]
    return look_at({"status": {"phase": "Running", "conditions": list(conditions),
                               "containerStatuses": [own]}})  # fmt: skip


def test_the_steps_of_a_launch_are_measured_one_by_one():
    # Placed at 2 s, sandbox at 5, the guard beside the job at 9, the job at 42, ready at 63.
    look = launched(
        condition("PodScheduled", 2),
        condition("PodReadyToStartContainers", 5),
        condition("Initialized", 9),
        condition("Ready", 63),
    )
    assert (look.image_s, look.launch_s, look.ready_s) == (33.0, 40.0, 61.0)


def test_an_old_kubelet_tells_less_and_what_is_not_known_is_not_invented():
    look = launched(condition("PodScheduled", 2), condition("Ready", 3, "False"))
    assert (look.image_s, look.launch_s, look.ready_s) == (40.0, 40.0, None)
    assert launched(condition("Ready", 63)).launch_s is None
    assert launched(condition("PodScheduled", 2, "False")).launch_s is None
    # Clocks of API server and node may differ by a second: no time is below zero.
    look = launched(condition("PodScheduled", 43), condition("Ready", 42))
    assert (look.image_s, look.launch_s, look.ready_s) == (0.0, 0.0, 0.0)


def test_the_devices_that_the_kubelet_names_are_read_back_each_once():
    assert launched(devices=("GPU-a", "GPU-b")).devices == ("GPU-a", "GPU-b")
    # With time slicing the plugin hands out replicas of one device.
    assert launched(devices=("GPU-a::0", "GPU-a::1")).devices == ("GPU-a",)
    assert launched().devices == ()


def test_the_words_of_a_container_before_the_jobs_are_passed_on():
    look = look_at(pod(initContainerStatuses=[before(1)]))
    _, message = end_of(look, STAYS, steps_done=0, total_steps=None)
    assert message == "its container 'fetch' ended with exit code 1: cannot fetch s3://data"


def pulling(reason, message):
    state = {"waiting": {"reason": reason, "message": message}}
    return {"status": {"phase": "Pending", "containerStatuses": [{"name": "job", "state": state}]}}


@pytest.mark.parametrize(("said", "end"), [("not found", FAILED), ("timeout", EndReason.LOST)])
def test_an_old_kubelet_says_why_a_pull_failed_only_at_first(tmp_path, said, end):
    tenant = Tenant(lease_id=1, secret="s")
    record = PodRecord(
        lease=None, tenant=tenant, boot="", deadline_s=0.0, name="p", file=tmp_path / "p"
    )
    record.see(pulling("ErrImagePull", f"failed to resolve reference: {said}"))
    record.see(pulling("ImagePullBackOff", 'Back-off pulling image "train:1"'))
    assert said in record.message
    assert start_failure(record.look, waited_s=61.0, most_s=60.0) is end
