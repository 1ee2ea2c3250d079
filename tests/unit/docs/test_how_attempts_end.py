"""The page on how attempts end says what the program does, row for row."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.kubernetes.pods.ends import (
    Orders,
    StartBounds,
    end_of,
    look_at,
    stalled_launch,
    start_failure,
)
from agent.process.endings import classify_ending
from scheduler.control.leases.retries import BUDGETS, Category, category_of
from scheduler.domain.facts.troubles import Trouble, trouble_of
from scheduler.domain.lease_life import ASKED_FOR, EndReason, RevokeReason

PAGE = Path(__file__).parents[3] / "docs/reference/how-attempts-end.md"
QUIET = {"error": "", "code": 0, "terminated": False, "killed": False, "expired": False,
         "oom_kills": 0, "memory_error": False}  # fmt: skip
STAYS, NOTICED = Orders(), Orders(noticed=True)
NO_DRIVER = "nvidia-container-cli: initialization error: load library failed"


def processes(code=0, *, noticed=False, unwanted=False, done=5, total=10, trouble=None, **ending):
    """Return how processes end: reason, message and trouble."""
    found = classify_ending(
        QUIET | {"code": code} | ending,
        noticed=noticed,
        unwanted=unwanted,
        steps_done=done,
        total_steps=total,
    )
    return *found, trouble


def vanished():
    known = {"noticed": False, "unwanted": False, "steps_done": 0, "total_steps": None}
    return *classify_ending(None, **known), None


def pod(code=None, reason="Error", *, orders=STAYS, why="", words="", deleted=False, **more):
    """Return how a pod ends."""
    ended = {"exitCode": code, "reason": reason, "message": words}
    state = {} if code is None else {"terminated": ended}
    status = {"phase": "Failed", "containerStatuses": [{"name": "job", "state": state}], **more}
    status |= {"reason": why, "message": words} if why else {}
    look = look_at({"metadata": {"deletionTimestamp": "x"} if deleted else {}, "status": status})
    found = end_of(look, orders, steps_done=5, total_steps=None)
    return *found, trouble_of(look.reason_code, look.message)


def before(code, reason="Error"):
    ended = {"exitCode": code, "reason": reason, "message": "cannot fetch"}
    return [{"name": "fetch", "state": {"terminated": ended}}]


def waiting(reason, words=""):
    """Return how a pod ends that cannot start."""
    state = {"waiting": {"reason": reason, "message": words}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "job", "state": state}]}
    if reason == "Unschedulable":
        unplaced = {"type": "PodScheduled", "status": "False", "reason": reason, "message": words}
        status = {"phase": "Pending", "conditions": [unplaced]}
    look = look_at({"status": status})
    end = start_failure(look, waited_s=121.0, most_s=120.0)
    return end, look.message, trouble_of(look.reason_code, look.message)


def stalled(*, placed):
    names = {"PodScheduled": "True", "PodReadyToStartContainers": "False"} if placed else {}
    conditions = [{"type": name, "status": status} for name, status in names.items()]
    look = look_at({"status": {"phase": "Pending", "conditions": conditions}})
    word, words = stalled_launch(look, waited_s=1e4, bounds=StartBounds())
    return EndReason.LOST, words, trouble_of(word, words)


ENDS = {
    "code 0, without a notice": processes(),
    "code 0 after a notice, all steps done, or the job counts none": processes(
        noticed=True, done=0, total=None
    ),
    "code 0 after SIGTERM, all steps done": processes(terminated=True, done=10),
    "code 0 after a notice, steps are left": processes(noticed=True),
    "code 75 after a notice": processes(75, noticed=True),
    "code 75 without a notice": processes(75, trouble=Trouble.LEFT_UNASKED),
    "any code after SIGTERM, since others get its workers": processes(3, terminated=True),
    "SIGKILL at the deadline": processes(-9, killed=True, expired=True),
    "any code after SIGTERM, since the job was held or requeued": processes(3, terminated=True),
    "any code after SIGTERM, since the job was cancelled": processes(
        3, terminated=True, unwanted=True
    ),
    "another code": processes(1),
    "a signal of another origin": processes(-11),
    "the program or its folder is missing": processes(127, error="cannot start"),
    "the kernel killed a process at the lease's memory limit": processes(
        1, oom_kills=1, oom_own=True
    ),
    "SIGKILL, and the kernel counted a kill for lack of memory": processes(-9, oom_kills=1),
    "SIGKILL, and the machine has no counter": processes(137, oom_kills=None),
    "SIGKILL, and the kernel counted none": processes(-9),
    "another code, with an out-of-memory error at the end of stderr": processes(
        1, memory_error=True
    ),
    "no trace: the machine was restarted, or the supervisor killed": vanished(),
    "code 143 after a notice": pod(143, orders=NOTICED),
    "deleted by another user": pod(deleted=True, phase="Running"),
    "`OOMKilled`": pod(137, "OOMKilled"),
    "a container of the template before the job's fails": pod(initContainerStatuses=before(1)),
    "such a container is `OOMKilled`": pod(initContainerStatuses=before(137, "OOMKilled")),
    "`Evicted` for the pod's own limit of ephemeral storage or an emptyDir": pod(
        137, why="Evicted", words="usage exceeds the total limit of containers 1Gi."
    ),
    "`Evicted` for lack of something on the node": pod(
        137, why="Evicted", words="The node was low on resource: memory"
    ),
    "`StartError` by the job: `executable file not found`, no such folder or user": pod(
        128, "StartError", words="executable file not found in $PATH"
    ),
    "`StartError`, `ContainerCannotRun`, `RunContainerError`, `CreateContainerError` by the node: "
    "its driver, disk or runtime": pod(128, "StartError", words=NO_DRIVER),
    "`ContainerStatusUnknown`, `Unknown`: the node was rebooted": pod(
        137, "ContainerStatusUnknown"
    ),
    "`UnexpectedAdmissionError`, `OutOf...`: the kubelet refused it": pod(
        why="OutOfnvidia.com/gpu"
    ),
    "`NodeLost`, `NodeShutdown`, `Terminated`": pod(why="NodeLost"),
    "`PreemptionByScheduler`, `DeletionByTaintManager`, `EvictionByEvictionAPI`": pod(
        why="PreemptionByScheduler"
    ),
    "the pod vanished": (*end_of(None, STAYS, steps_done=0, total_steps=None), None),
    "`InvalidImageName`": waiting("InvalidImageName"),
    "`ImagePullBackOff`: the registry has no such image": waiting(
        "ImagePullBackOff", "manifest unknown"
    ),
    "`ImagePullBackOff` for another reason, for 2 minutes": waiting("ImagePullBackOff", "timeout"),
    "`CreateContainerConfigError`: a Secret or ConfigMap is missing, for 2 minutes": waiting(
        "CreateContainerConfigError"
    ),
    "`Unschedulable`, for 2 minutes": waiting("Unschedulable", "0/3 nodes are available"),
    "`NotBound`: no node has taken it for 2 minutes, without a known reason": stalled(placed=False),
    "`NotStarted`: no step further for 10 minutes while its volumes and network are made, or for "
    "30 while its image is pulled": stalled(placed=True),
}
#: Ends that people asked for, by what revoked the lease.
REVOKED = {"any code after SIGTERM, since the job was held or requeued": RevokeReason.HOLD}
COUNTS = {None: "nothing", Category.USER_ERROR: "`max_failures`"}
COUNTS |= {category: f"`{field}`" for category, field in BUDGETS.items()}


def rows() -> dict[str, list[str]]:
    """Return the cells of the tables of ends, by the first one."""
    tables = PAGE.read_text().partition("\n## Processes\n")[2]
    lines = [line.strip("|").split("|") for line in tables.splitlines() if line[:2] == "| "]
    cells = [[cell.strip() for cell in line] for line in lines]
    return {line[0]: line for line in cells if line[0] != "what the system shows"}


def test_each_row_is_a_case_and_each_case_a_row():
    assert list(rows()) == list(ENDS)


@pytest.mark.parametrize("row", ENDS)
def test_an_end_is_as_the_page_says(row):
    _, ends_as, fault, counts, message = rows()[row]
    reason, words, trouble = ENDS[row]
    assert ends_as == {EndReason.OOM: "out of memory"}.get(reason, str(reason))
    category = None if REVOKED.get(row) in ASKED_FOR else category_of(reason, trouble)
    assert counts.partition(";")[0] == COUNTS[category]
    if message.startswith("`"):
        assert message.strip("`") in words
    assert (fault == "nothing") <= (reason in {"completed", "released", "cancelled"})
