"""A pod's status: its state, the trouble that keeps it from starting, and its end. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from agent.bring_code import LATE
from agent.kubernetes.names import ENDING, JOB_ENDED, without_secrets_of_pods
from agent.kubernetes.templates.template import CODE, CONTAINER, RESERVED
from agent.process.endings import classify_ending
from scheduler.domain.facts.troubles import is_node_fault
from scheduler.domain.lease_life import EndReason
from scheduler.errors import ParameterError
from scheduler.protocol import bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Exit code of a process that SIGTERM has ended.
TERMINATED: Final = 143
#: Exit codes of the code container if it was interrupted or ran out of time.
_BROKEN_OFF: Final = frozenset({LATE, 137, TERMINATED})
#: A pod's reasons that the node or the cluster caused: the job is run again.
_LOST: Final = frozenset(
    {"Evicted", "UnexpectedAdmissionError", "NodeLost", "NodeShutdown", "Shutdown", "Terminated"}
    | {"NodeAffinity", "Preempting", "TopologyAffinityError", "NodeAdmissionError"}
    | {"PreemptionByScheduler", "DeletionByTaintManager", "EvictionByEvictionAPI"}
    | {"DeletionByPodGC", "TerminationByKubelet", "DeletionByDeviceTaintManager"}
    # Of a container that a reboot of its node has ended; its exit code is made up.
    | {"ContainerStatusUnknown", "Unknown"}
)
#: Parts of an eviction's message if the pod itself wrote too much; in lower case.
_OVER_ITS_LIMIT: Final = (
    *("exceeds the total limit of containers", "usage of emptydir volume"),
    "exceeded its local ephemeral storage limit",
)
#: Waiting reasons of a container that do not go away by waiting.
_HOPELESS: Final = frozenset(
    {"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"}
    | {"RunContainerError"}
)
#: The same for the image: worth some waiting.
_PULLING: Final = frozenset({"ImagePullBackOff", "ErrImagePull", "RegistryUnavailable"})
#: Messages of a registry without such an image.
_NO_IMAGE: Final = ("not found", "manifest unknown", "denied", "unauthorized", "does not exist")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLook:
    """The observed state of a pod.

    Attributes:
        phase: Pending, Running, Succeeded, Failed or Unknown.
        running: the job's container runs.
        exit_code: of the job's container; None before its end, or if it is not known.
        oom: it was killed at its memory limit.
        deleted: its deletion was requested, and not only since the job has ended.
        started_s: when the container began, seconds since the Unix epoch.
        image_s: seconds from when the pod's sandbox was ready, and its side-cars ran, to the
            container's start: mostly the pull of its image; None before.
        launch_s: seconds from the pod's placement to the container's start; None before.
        ready_s: seconds from the pod's placement until it was ready; None unless it is.
        devices: ids of its accelerators, if the kubelet reports them (KEP-4680).
        reason_code: Kubernetes' word for the problem; empty if there is none.
        message: the problem in more words.
        others: other containers of it still run.
        code_exit: exit code of the container that brings its code; None if that has not ended, or
            there is none.
        code_words: the last message of that container.
        code_oom: whether that container took too much memory.
        before_fault: which container of a template before the job's failed, and how; empty if none.
        before_oom: whether that one took too much memory.
        step: progress of its launch: 0 no node has taken it, 1 a node has, 2 its volumes and
            network are there and images are pulled (or it is not reported), and 1 more for each
            container before the job's that has begun or ended.
    """

    phase: str
    running: bool = False
    exit_code: int | None = None
    oom: bool = False
    deleted: bool = False
    started_s: float | None = None
    image_s: float | None = None
    launch_s: float | None = None
    ready_s: float | None = None
    devices: tuple[str, ...] = ()
    reason_code: str = ""
    message: str = ""
    others: bool = False
    code_exit: int | None = None
    code_words: str = ""
    code_oom: bool = False
    before_fault: str = ""
    before_oom: bool = False
    step: int = 0

    @property
    def bound(self) -> bool:
        """Whether a node has taken it."""
        return self.step > 0

    @property
    def over(self) -> bool:
        """Whether none of its processes is left."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def job_over(self) -> bool:
        """Whether the job's own container has ended."""
        return self.over or self.exit_code is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartBounds:
    """How long the steps of a launch may take without progress.

    Attributes:
        bind_s: until a node has taken the pod.
        prepare_s: until its volumes and its network are there.
        image_s: for each of its containers: its image's pull, and its start.
        trouble_s: while Kubernetes reports trouble that may go away by itself.
    """

    bind_s: float = 120.0
    prepare_s: float = 600.0
    image_s: float = 1800.0
    trouble_s: float = 120.0

    def __post_init__(self) -> None:
        """Refuse times that are not positive."""
        for name in ("bind_s", "prepare_s", "image_s", "trouble_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ParameterError(f"{name} is {value!r}; it must be a number of seconds > 0")

    @property
    def most_s(self) -> float:
        """Seconds that a launch without containers before the job's takes at most."""
        return self.bind_s + self.prepare_s + self.image_s + self.trouble_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The agent's orders to the pod before it ended.

    Attributes:
        noticed: it had a notice to leave.
        terminated: we deleted it with time to leave.
        killed: we deleted it without time to leave.
        unwanted: we deleted it because the lease was no longer desired.
    """

    noticed: bool = False
    terminated: bool = False
    killed: bool = False
    unwanted: bool = False


def look_at(pod: Mapping[str, Any]) -> PodLook:
    """Read a pod's status."""
    status, metadata = pod.get("status") or {}, pod.get("metadata") or {}
    told = (metadata.get("annotations") or {}).get(ENDING)
    containers = status.get("containerStatuses") or []
    before = status.get("initContainerStatuses") or []
    own, state = _container(containers, CONTAINER)
    brought = _container(before, CODE)[1].get("terminated") or {}
    ended, running = state.get("terminated") or {}, state.get("running") or {}
    started_s = _time(running.get("startedAt") or ended.get("startedAt"))
    conditions = {c.get("type"): c for c in status.get("conditions") or []}
    reason, message = _trouble(status, state, before, conditions)
    failed = _before(before)
    others = any(
        (c.get("state") or {}).get("running") for c in containers if c.get("name") != CONTAINER
    )
    return PodLook(
        phase=str(status.get("phase") or "Pending"),
        running=bool(running),
        exit_code=bounds.exit_code(ended.get("exitCode")),
        oom=ended.get("reason") == "OOMKilled",
        deleted=bool(metadata.get("deletionTimestamp")) and told != JOB_ENDED,
        started_s=started_s,
        **_launch(conditions, started_s),
        devices=_devices(own),
        reason_code=reason,
        message=message,
        others=others,
        code_exit=bounds.exit_code(brought.get("exitCode")),
        code_oom=brought.get("reason") == "OOMKilled",
        code_words=bounds.clean_text(str(brought.get("message") or "").strip()),
        before_fault=failed[0],
        before_oom=failed[1],
        step=_step(pod, conditions),
    )


def _before(statuses: list[Any]) -> tuple[str, bool]:
    """Return the fault of a container that a template has before the job's, and lack of memory."""
    for status in statuses:
        name, ended = str(status.get("name") or ""), (status.get("state") or {}).get("terminated")
        if name.startswith(RESERVED) or not ended or not ended.get("exitCode"):
            continue
        said = bounds.clean_text(str(ended.get("message") or "").strip())
        fault = f"its container '{name}' ended with exit code {ended['exitCode']}"
        return f"{fault}: {said}" if said else fault, ended.get("reason") == "OOMKilled"
    return "", False


def _container(statuses: list[Any], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the status of a container, and its state."""
    own: dict[str, Any] = next((c for c in statuses if c.get("name") == name), {})
    return own, own.get("state") or {}


def _step(pod: Mapping[str, Any], conditions: Mapping[Any, Any]) -> int:
    """Return the progress of a launch; see ``PodLook``."""
    status = pod.get("status") or {}
    placed = (conditions.get("PodScheduled") or {}).get("status")
    if placed != "True" and not (pod.get("spec") or {}).get("nodeName"):
        return 0
    # Kubelets before 1.29 do not report the sandbox: then only the longest bound is sure.
    sandbox = (conditions.get("PodReadyToStartContainers") or {}).get("status", "True")
    before = [
        state
        for container in status.get("initContainerStatuses") or []
        for state in container.get("state") or {}
        if state in {"running", "terminated"}
    ]
    return 1 if sandbox != "True" else 2 + len(before) + before.count("terminated")


def _launch(conditions: Mapping[Any, Any], started_s: float | None) -> dict[str, float | None]:
    """Return how long the steps of a launch took; Kubernetes counts whole seconds."""
    placed_s = _since(conditions, "PodScheduled")
    if started_s is None or placed_s is None:
        return {}
    before = (_since(conditions, "PodReadyToStartContainers"), _since(conditions, "Initialized"))
    begun_s = max((at_s for at_s in before if at_s is not None), default=placed_s)
    ready_s = _since(conditions, "Ready")
    return {
        "image_s": max(started_s - begun_s, 0.0),
        "launch_s": max(started_s - placed_s, 0.0),
        "ready_s": None if ready_s is None else max(ready_s - placed_s, started_s - placed_s, 0.0),
    }


def _since(conditions: Mapping[Any, Any], name: str) -> float | None:
    """Return since when a condition has held; None if it does not."""
    condition = conditions.get(name) or {}
    return _time(condition.get("lastTransitionTime")) if condition.get("status") == "True" else None


def _devices(container: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids of a container's accelerators, each once: a shared one has replicas."""
    found = [
        str(device.get("resourceID") or "").partition("::")[0]
        for resource in container.get("allocatedResourcesStatus") or []
        if str(resource.get("name") or "").startswith(("nvidia.com/", "amd.com/", "claim:"))
        for device in resource.get("resources") or []
    ]
    return tuple(dict.fromkeys(name for name in found if name))


def start_failure(look: PodLook, *, waited_s: float, most_s: float) -> EndReason | None:
    """Return how a lease ends if its pod cannot start; None while it may.

    Args:
        look: the pod.
        waited_s: since it was made, or since its trouble began.
        most_s: how long to wait for trouble that may go away by itself.
    """
    if look.job_over or look.running or not look.reason_code:
        return None
    if look.reason_code in _HOPELESS:
        # One more try within the limit: a Secret or a claim may just be on its way.
        hopeless = look.reason_code in {"InvalidImageName", "ErrImageNeverPull"}
        if not hopeless and waited_s < most_s:
            return None
        lost = is_node_fault(look.reason_code, look.message)
        return EndReason.LOST if lost else EndReason.FAILED
    if waited_s < most_s:
        return None
    unknown = any(words in look.message.lower() for words in _NO_IMAGE)
    if look.reason_code in _PULLING and unknown:
        return EndReason.FAILED
    return EndReason.LOST


def stalled_launch(
    look: PodLook, *, waited_s: float, bounds: StartBounds
) -> tuple[str, str] | None:
    """Return the problem of a stalled launch, as a word and a message.

    Args:
        look: the pod.
        waited_s: since its launch last progressed.
        bounds: the limits.

    Returns:
        None while it is in time, or if Kubernetes itself reports the trouble
        (``start_failure``).
    """
    if look.job_over or look.running or look.reason_code:
        return None
    if not look.bound:
        word, most_s, what = "NotBound", bounds.bind_s, "no node has taken the pod"
    elif look.step == 1:
        word, most_s, what = "NotStarted", bounds.prepare_s, "its volumes or network are not there"
    else:
        word, most_s, what = "NotStarted", bounds.image_s, "its container has not been started"
    return None if waited_s < most_s else (word, f"{what} after {most_s:g} s")


def taken_away(look: PodLook | None, orders: Orders) -> bool:
    """Return whether the node or the cluster ended a pod: neither the job nor the agent.

    Then the node may be about to leave, and must be read before a new pod comes there.
    """
    if orders.terminated or orders.killed:
        return False
    if look is None or look.exit_code is None or look.deleted:
        return True
    return _is_lost(look)


def _is_lost(look: PodLook) -> bool:
    """Return whether Kubernetes' word for the problem shows a fault of the node or the cluster."""
    return (
        look.reason_code in _LOST
        or look.reason_code.startswith("OutOf")
        or is_node_fault(look.reason_code, look.message)
    )


def end_of(
    look: PodLook | None, orders: Orders, *, steps_done: int, total_steps: int | None
) -> tuple[EndReason, str]:
    """Return why a lease ended, and a message for people.

    Args:
        look: the pod as last seen; None if it was never seen.
        orders: the agent's orders to it.
        steps_done: checkpointed steps.
        total_steps: steps of the whole job; None if unknown.
    """
    ours = orders.terminated or orders.killed
    if look is None or (look.exit_code is None and (ours or look.deleted)):
        return _unseen(orders, deleted=look is not None)
    found = _as_kubernetes_says(look, ours=ours)
    if found is not None:
        return found
    left = look.exit_code == TERMINATED and orders.noticed
    ending = {
        "error": "",
        "code": look.exit_code if look.exit_code is not None else 1,
        "terminated": ours or look.deleted or left,
        "expired": False,
        "killed": orders.killed and look.exit_code == 137,
        "oom_kills": int(look.oom),
        "oom_own": look.oom,
        "memory_error": False,
    }
    end, message = classify_ending(
        ending,
        noticed=orders.noticed,
        unwanted=orders.unwanted,
        steps_done=steps_done,
        total_steps=total_steps,
    )
    if end is EndReason.RELEASED and look.deleted and not ours:
        message = "another user has deleted the pod"
    if end is EndReason.FAILED and look.message:
        message = f"{message}; {look.reason_code}: {look.message}"
    return end, message


def _as_kubernetes_says(look: PodLook, *, ours: bool) -> tuple[EndReason, str] | None:
    """Return why a lease ended if Kubernetes' words decide it, and not the job's exit code.

    Args:
        look: the pod as last seen.
        ours: whether the agent ended it.
    """
    if look.reason_code == "Evicted" and (own := _written_too_much(look.message)):
        # The job caused it and not its node: on another node it would do the same.
        return EndReason.FAILED, f"{own}: {look.message.strip()}"
    if _is_lost(look):
        said = f"{look.reason_code}: {look.message}".rstrip(": ")
        return None if ours else (EndReason.LOST, said)
    if look.exit_code is not None:
        return None
    if look.code_exit:
        # If it was interrupted, another node may do better; its own exit is the code's fault.
        late = look.code_exit in _BROKEN_OFF and not look.code_oom
        said = look.code_words or f"its code was not brought: exit code {look.code_exit}"
        return EndReason.LOST if late else EndReason.FAILED, said
    if look.before_fault:
        return EndReason.OOM if look.before_oom else EndReason.FAILED, look.before_fault
    return EndReason.LOST, f"{look.reason_code or 'the pod'}: {look.message or 'no trace'}"


def _written_too_much(message: str) -> str:
    """Return what a pod did that was evicted for its own disk limits; empty if it was not."""
    if f'"{CODE}"' in message:
        return "it wrote too much beside its uploaded code"
    over = any(part in message.lower() for part in _OVER_ITS_LIMIT)
    return "it wrote more than its limit" if over else ""


def _unseen(orders: Orders, *, deleted: bool) -> tuple[EndReason, str]:
    if orders.unwanted:
        return EndReason.CANCELLED, ""
    if orders.terminated or orders.killed:
        return EndReason.RELEASED, ""
    if deleted:
        return EndReason.RELEASED, "another user has deleted the pod"
    return EndReason.LOST, "the pod vanished; another user has deleted it"


def _trouble(
    status: Mapping[str, Any],
    state: Mapping[str, Any],
    before: list[Any],
    conditions: Mapping[Any, Any],
) -> tuple[str, str]:
    """Return Kubernetes' word for a pod's trouble, and its message."""
    if status.get("reason"):
        return str(status["reason"]), str(status.get("message") or "")
    disrupted = conditions.get("DisruptionTarget") or {}
    if disrupted.get("status") == "True":
        return str(disrupted.get("reason") or "Disrupted"), str(disrupted.get("message") or "")
    ended = state.get("terminated") or {}
    if ended:
        word = str(ended.get("reason") or "")
        fine = word in {"Completed", "Error", ""}
        return ("" if fine else word), str(ended.get("message") or "") if not fine else ""
    for each in (state, *((c.get("state") or {}) for c in before)):
        waiting = each.get("waiting") or {}
        if waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
            # People of the project read it; only the secrecy of the Secret's name protects it
            # there.
            said = without_secrets_of_pods(str(waiting.get("message") or ""))
            return str(waiting["reason"]), said
    placed = conditions.get("PodScheduled") or {}
    if placed.get("status") == "False":
        return str(placed.get("reason") or "Unschedulable"), str(placed.get("message") or "")
    return "", ""


def _time(text: object) -> float | None:
    if not isinstance(text, str) or not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
