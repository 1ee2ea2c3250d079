"""What keeps a lease from starting, or ended it: one enumeration for Kubernetes' and our words.

A kubelet, an API server and a webhook each describe a problem in their own words. People get these
words unchanged; programs get the kind of trouble and its remedy.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class Trouble(enum.StrEnum):
    """A problem with a pod, or with making it."""

    IMAGE = "image"  #: its image cannot be pulled: ImagePullBackOff, ErrImagePull, ...
    IMAGE_NAME = "image_name"  #: its image name is invalid: InvalidImageName
    CONFIGURATION = "configuration"  #: a Secret or ConfigMap is missing: CreateContainerConfigError
    START = "start"  #: its container cannot be started: no such program, no such user
    OUT_OF_MEMORY = "out_of_memory"  #: OOMKilled
    EVICTED = "evicted"  #: the node ran out of disk, memory or process ids; or a user evicted it
    DISRUPTED = (
        "disrupted"  #: taken away: by a pod of higher priority, a taint, a garbage collector
    )
    NODE_DOWN = "node_down"  #: its node was shut down or is lost
    NODE_REFUSED = (
        "node_refused"  #: the kubelet would not take it: OutOf..., UnexpectedAdmission...
    )
    NO_RESOURCES = "no_resources"  #: unschedulable: its node has too little left
    TAINTED = "tainted"  #: unschedulable: its node has a taint that it does not tolerate
    CORDONED = "cordoned"  #: unschedulable: its node was cordoned
    VOLUME = "volume"  #: unschedulable: a volume is missing, or lies elsewhere
    AFFINITY = "affinity"  #: unschedulable: its node does not match what its template asks for
    UNSCHEDULABLE = "unschedulable"  #: unschedulable for another reason
    NOT_BOUND = "not_bound"  #: no node took it in time, for an unknown reason
    NOT_STARTED = "not_started"  #: its node did not start it in time, and does not say why
    GATED = "gated"  #: a scheduling gate holds it back
    QUOTA = "quota"  #: a quota of the namespace is used up
    ADMISSION = "admission"  #: a webhook, a policy or the API server refused it
    OWN_CONTAINER = "own_container"  #: a quota or LimitRange refused a container of ours
    POD_SECURITY = "pod_security"  #: the namespace's level of pod security forbids it
    WEBHOOK_DOWN = "webhook_down"  #: a webhook that must be asked gives no answer
    PERMISSION = "permission"  #: the agent's account may not make it
    NAMESPACE = "namespace"  #: the namespace of the pods is missing or going away
    NAME_TAKEN = "name_taken"  #: another pod has its name
    TIME_LIMIT = "time_limit"  #: Kubernetes ended it at a deadline of its template's
    DISK = "disk"  #: its node's agent cannot write its state and the job's output
    LEFT_UNASKED = "left_unasked"  #: it left with exit code 75 although nothing had asked it to
    API_DOWN = "api_down"  #: the API server gives no answer
    OTHER = "other"  #: a word that is not known here


#: Our own word: a pod was refused because of a container in it that is ours, and not the job's.
OWN_CONTAINER_REFUSED: Final = "OwnContainerRefused"

_WORDS: Final[Mapping[str, Trouble]] = MappingProxyType(
    {
        "ImagePullBackOff": Trouble.IMAGE,
        "ErrImagePull": Trouble.IMAGE,
        "ErrImageNeverPull": Trouble.IMAGE,
        "RegistryUnavailable": Trouble.IMAGE,
        "ImageInspectError": Trouble.IMAGE,
        "SignatureValidationFailed": Trouble.IMAGE,
        "InvalidImageName": Trouble.IMAGE_NAME,
        "CreateContainerConfigError": Trouble.CONFIGURATION,
        "CreateContainerError": Trouble.START,
        "CreatePodSandboxError": Trouble.START,
        "RunContainerError": Trouble.START,
        "StartError": Trouble.START,
        "ContainerCannotRun": Trouble.START,
        "CrashLoopBackOff": Trouble.START,
        "PostStartHookError": Trouble.START,
        "PreCreateHookError": Trouble.START,
        "PreStartHookError": Trouble.START,
        "OOMKilled": Trouble.OUT_OF_MEMORY,
        "Evicted": Trouble.EVICTED,
        "EvictionByEvictionAPI": Trouble.EVICTED,
        "Preempting": Trouble.DISRUPTED,
        "PreemptionByScheduler": Trouble.DISRUPTED,
        "DeletionByTaintManager": Trouble.DISRUPTED,
        "DeletionByDeviceTaintManager": Trouble.DISRUPTED,
        "DeletionByPodGC": Trouble.DISRUPTED,
        "Disrupted": Trouble.DISRUPTED,
        "ContainerStatusUnknown": Trouble.NODE_DOWN,
        "Unknown": Trouble.NODE_DOWN,
        "NodeLost": Trouble.NODE_DOWN,
        "NodeShutdown": Trouble.NODE_DOWN,
        "Shutdown": Trouble.NODE_DOWN,
        "Terminated": Trouble.NODE_DOWN,
        "TerminationByKubelet": Trouble.NODE_DOWN,
        "UnexpectedAdmissionError": Trouble.NODE_REFUSED,
        "NodeAdmissionError": Trouble.NODE_REFUSED,
        "NodeAffinity": Trouble.NODE_REFUSED,
        "TopologyAffinityError": Trouble.NODE_REFUSED,
        "NotBound": Trouble.NOT_BOUND,
        "NotStarted": Trouble.NOT_STARTED,
        "DiskFull": Trouble.DISK,
        "LeftUnasked": Trouble.LEFT_UNASKED,
        "SchedulingGated": Trouble.GATED,
        "QuotaExceeded": Trouble.QUOTA,
        OWN_CONTAINER_REFUSED: Trouble.OWN_CONTAINER,
        "PodSecurity": Trouble.POD_SECURITY,
        "AdmissionDenied": Trouble.ADMISSION,
        "Invalid": Trouble.ADMISSION,
        "BadRequest": Trouble.ADMISSION,
        "Forbidden": Trouble.ADMISSION,
        "Unauthorized": Trouble.PERMISSION,
        "NotFound": Trouble.NAMESPACE,
        "AlreadyExists": Trouble.NAME_TAKEN,
        "DeadlineExceeded": Trouble.TIME_LIMIT,
        "ApiUnavailable": Trouble.API_DOWN,
    }
)
#: What Kubernetes' scheduler says of nodes, in lower case. A pod is pinned to one node and all the
#: others "did not match", so that counts last.
_UNSCHEDULABLE: Final = (
    ("insufficient", Trouble.NO_RESOURCES),
    ("too many pods", Trouble.NO_RESOURCES),
    ("untolerated taint", Trouble.TAINTED),
    ("were unschedulable", Trouble.CORDONED),
    ("volume", Trouble.VOLUME),
    ("affinity", Trouble.AFFINITY),
    ("selector", Trouble.AFFINITY),
)

#: Words for a container that its runtime could not create or start.
_UNSTARTED: Final = frozenset(
    {"StartError", "ContainerCannotRun", "RunContainerError", "CreateContainerError"}
)
#: Parts of the message beside them, in lower case, and whether the node is at fault; the first that
#: is found decides. A missing driver is told as a missing file, too.
_START_FAULTS: Final = (
    ("executable file not found", False),
    ("nvidia-container", True),
    ("libnvidia", True),
    ("nvml", True),
    ("amdgpu", True),
    ("cdi device", True),
    ("no such file or directory", False),
    ("exec format error", False),
    ("is a directory", False),
    ("not a directory", False),
    ("unable to find", False),
    ("context deadline exceeded", True),
    ("no space left on device", True),
    ("input/output error", True),
    ("cgroup", True),
    ("too many open files", True),
    ("failed to reserve container name", True),
    ("cannot allocate memory", True),
    ("transport is closing", True),
    ("connection refused", True),
    ("driver", True),
)

#: Words of the API server that say little by themselves, and what says more beside them.
_REFUSALS: Final = frozenset({"Forbidden", "ApiUnavailable"})
_REFUSED: Final = (
    ("failed calling webhook", Trouble.WEBHOOK_DOWN),
    ("because it is being terminated", Trouble.NAMESPACE),
    ('user "', Trouble.PERMISSION),
)

#: Troubles with making an object at the API server.
REFUSED: Final = frozenset(
    {Trouble.QUOTA, Trouble.ADMISSION, Trouble.POD_SECURITY, Trouble.WEBHOOK_DOWN}
    | {Trouble.PERMISSION, Trouble.NAMESPACE, Trouble.API_DOWN}
)

#: Remedies.
REMEDIES: Final[Mapping[Trouble, str]] = MappingProxyType(
    {
        Trouble.IMAGE: "check the image's name and the job's image_pull_secrets",
        Trouble.IMAGE_NAME: "give the job an image by a valid name",
        Trouble.CONFIGURATION: "make the Secret or ConfigMap that its template names",
        Trouble.START: "check command, user and image of the job",
        Trouble.OUT_OF_MEMORY: "give the job more memory",
        Trouble.EVICTED: "nothing; it is run again. Requests that match its use prevent it",
        Trouble.DISRUPTED: "nothing; it is run again",
        Trouble.NODE_DOWN: "nothing; it is run again",
        Trouble.NODE_REFUSED: "nothing; it is run again",
        Trouble.NO_RESOURCES: "lower the job's requests, or make room on the node",
        Trouble.TAINTED: "let the job tolerate the taint, or take it off the node",
        Trouble.CORDONED: "uncordon the node; elsewhere it is tried by itself",
        Trouble.VOLUME: "check the claims that the job names, and the nodes of their volumes",
        Trouble.AFFINITY: "check node selector and affinity of the job's template",
        Trouble.UNSCHEDULABLE: "see the message",
        Trouble.NOT_BOUND: "see whether Kubernetes' scheduler runs; other nodes are tried",
        Trouble.NOT_STARTED: "see the node's kubelet and volumes; other nodes are tried",
        Trouble.GATED: "remove the scheduling gate from the pod",
        Trouble.QUOTA: "other pods of the namespace have to end, or its quota has to grow",
        Trouble.ADMISSION: "change the job as the message says",
        Trouble.OWN_CONTAINER: "an operator gives these containers figures that fit the namespace: "
        "agent.guard.resources, agent.uploads.resources of the chart",
        Trouble.POD_SECURITY: "change the job's template, or the namespace's level",
        Trouble.WEBHOOK_DOWN: "the webhook that the message names has to answer",
        Trouble.PERMISSION: "give the agent's account the chart's Role",
        Trouble.NAMESPACE: "make the namespace of the jobs",
        Trouble.NAME_TAKEN: "delete the pod that has the name",
        Trouble.TIME_LIMIT: "take activeDeadlineSeconds out of the job's template",
        Trouble.DISK: "make room on the node, in the agent's state folder; others are tried",
        Trouble.LEFT_UNASKED: "exit with 75 only when asked to leave; with 0 when the job is done",
        Trouble.API_DOWN: "nothing; it is tried again until the API server answers",
        Trouble.OTHER: "see the message",
    }
)


def is_node_fault(code: str, message: str) -> bool:
    """Return whether a container could not be started by a fault of the node.

    Args:
        code: Kubernetes' word for the problem.
        message: the message beside it.
    """
    said = message.lower()
    found = (nodes for part, nodes in _START_FAULTS if part in said)
    return code in _UNSTARTED and next(found, False)


def trouble_of(code: str, message: str = "") -> Trouble | None:
    """Return the kind of trouble for a word of Kubernetes; None if there is no match.

    Args:
        code: one word, such as ``ImagePullBackOff``.
        message: the message beside it.
    """
    if not code:
        return None
    said = message.lower()
    if is_node_fault(code, message):
        return Trouble.NODE_REFUSED
    if code == "Unschedulable":
        found = (trouble for words, trouble in _UNSCHEDULABLE if words in said)
        return next(found, Trouble.UNSCHEDULABLE)
    refused = (trouble for words, trouble in _REFUSED if words in said)
    plain = Trouble.NODE_REFUSED if code.startswith("OutOf") else _WORDS.get(code, Trouble.OTHER)
    return next(refused, plain) if code in _REFUSALS else plain
