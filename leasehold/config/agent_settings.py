"""What an operator may set about an agent, section by section."""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003  the annotations are read at run time
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final

from agent.settings import ReportSettings
from leasehold.config.backend_names import unknown_backend
from scheduler.operator_settings import setting

#: A figure of one of our own containers in pods.
FIGURE: Final = re.compile(
    r"(requests|limits)\.(cpu|memory)=\d+(\.\d+)?(e\d+|[num]|k|[MGTPE]|[KMGTPE]i)?"
)
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class AgentTimesSection(ReportSettings):
    """The intervals of the agent's work."""

    poll_wait_s: float = setting(
        15.0, "Seconds for which the scheduler may hold a request for news.", ge=0.1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimeoutSection:
    """How many seconds a step of a launch may take without getting on."""

    bind_s: float = setting(120.0, "Until a node has taken the pod.", gt=0)
    prepare_s: float = setting(600.0, "Until the pod's volumes and network are there.", gt=0)
    image_s: float = setting(
        1800.0, "For each container of the pod: its image's pull, and its start.", gt=0
    )
    trouble_s: float = setting(
        120.0, "While Kubernetes reports a problem that may go away by itself.", gt=0
    )
    process_s: float = setting(120.0, "Until the local processes of a lease are there.", gt=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsSection:
    """Where and how an agent runs jobs as pods."""

    namespace: str = setting(
        "leasehold-jobs", "Namespace of the jobs' pods.", variables=("LEASEHOLD_JOB_NAMESPACE",)
    )
    instance: str = setting(
        "leasehold", "Name of the installation, in labels.", variables=("LEASEHOLD_INSTANCE",)
    )
    kubeconfig: str | None = setting(
        None, "How to reach the cluster.", derived="the account of the agent's own pod"
    )
    context: str = setting("", "Context of that file.")
    jobs_port: int = setting(
        8643, "Port on which pods reach this agent; 0 for none.", ge=0, le=65535
    )
    jobs_host: str = setting(
        "",
        "Address by which pods reach this agent; their node's unless given.",
        variables=("LEASEHOLD_JOBS_HOST",),
    )
    guard_image: str = setting(
        "",
        "Image with this program, for the container that ends a pod if its agent is gone.",
        variables=("LEASEHOLD_GUARD_IMAGE",),
    )
    guard_resources: tuple[str, ...] = setting(
        (),
        "Requests and limits of that container, as NAME=QUANTITY; without: requests.cpu=5m, "
        "requests.memory=24Mi, limits.cpu=200m, limits.memory=64Mi.",
    )
    code_image: str = setting(
        "",
        "Image with this program, for the container that brings uploaded code into a pod; jobs "
        "that come with code are refused without it.",
        variables=("LEASEHOLD_CODE_IMAGE",),
    )
    code_resources: tuple[str, ...] = setting(
        (),
        "Requests and limits of that container; without: requests.cpu=5m, requests.memory=32Mi, "
        "limits.cpu=1, limits.memory=256Mi.",
    )
    code_volume_bytes: int = setting(
        2**30,
        "Largest size of uploaded code in a pod, with the files that its job writes beside it.",
        ge=2**20,
    )
    default_image: str = setting("", "Image of jobs that name none.")
    runtime_class: str = setting("nvidia", "RuntimeClass of pods that see their devices by name.")
    sharing: Mapping[str, str] = setting(
        _NONE, "How jobs share a worker type: exclusive, time-slicing, mps or visible."
    )
    foreign_pods: str = setting(
        "watch",
        "How accelerators that pods of others hold are counted: watch (this"
        " agent reads all pods on its node), NAMESPACE/NAME (ConfigMaps of "
        "`leasehold count-pods`), or empty: not counted.",
    )
    pod_security: str = setting(
        "any",
        "Pod security level that the namespace must enforce at least, or the agent ends.",
        choices=("any", "baseline", "restricted"),
    )
    image_pull_secrets: tuple[str, ...] = setting(
        (),
        "Secrets in the namespace of the jobs, with credentials of registries, for every pod; "
        "beside those that a job names.",
    )
    tolerations: tuple[str, ...] = setting(
        (), "Taints that the pods tolerate beside that of GPUs, as KEY[=VALUE]:EFFECT."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLogSection:
    """What the agent says on its standard error."""

    level: str = setting(
        "info", "Least severity that is logged.", choices=("debug", "info", "warning", "error")
    )
    json: bool = setting(False, "One JSON object per line.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """All settings of an agent. Secrets are not among them: they stand in files or variables."""

    PREFIX: ClassVar[str] = "LEASEHOLD_AGENT__"
    NAMED_BY: ClassVar[str] = "LEASEHOLD_AGENT_CONFIG"
    FILE: ClassVar[str] = "agent.toml"
    REFERENCE: ClassVar[str] = "leasehold config reference --agent"
    GONE: ClassVar[Mapping[str, str]] = _NONE

    servers: tuple[str, ...] = setting(
        ("http://127.0.0.1:8642",),
        "Addresses of the scheduler and its standbys.",
        variables=("LEASEHOLD_SERVER",),
    )
    node: str = setting("", "The node's name; the host name unless given.")
    workers: tuple[str, ...] = setting(
        (), "Declared workers, such as v100:4; NVML is asked unless given."
    )
    worker_names: Mapping[str, str] = setting(
        _NONE, "The worker type of a product of NVML's, by the product's name."
    )
    state_dir: str | None = setting(
        None,
        "Private folder, kept over restarts.",
        derived="leasehold/agent in $XDG_STATE_HOME (~/.local/state)",
    )
    token_file: str | None = setting(
        None, "File with the agent's token; LEASEHOLD_AGENT_TOKEN may hold the token itself."
    )
    enrol_file: str | None = setting(
        None,
        "File with a one-time secret for a token; LEASEHOLD_ENROLMENT may hold the secret itself.",
    )
    ca_file: str | None = setting(None, "Certificates that the scheduler's is checked against.")
    address: str = setting(
        "",
        "Address at which other nodes reach rank 0 of a gang on this node; unless given, the local "
        "address on the way to the scheduler, or to other networks if that is on this machine.",
    )
    backend: str = setting(
        "process",
        "Backend of the jobs: process (local processes), kubernetes (pods "
        "of this node), or the name of a plugin.",
    )
    backend_options: Mapping[str, str] = setting(_NONE, "Options for the backend of a plugin.")
    isolation: str = setting(
        "auto",
        "Whether local processes of different owners, and of different jobs, are kept apart: "
        "auto (if the agent is root and has bubblewrap), required (else the agent refuses to "
        "start), or off.",
        choices=("auto", "required", "off"),
    )
    job_devices: tuple[str, ...] = setting(
        ("/dev/infiniband",), "Devices in /dev that every such job sees besides its workers."
    )
    job_groups: tuple[str, ...] = setting(
        (), "Groups of this node that every such job is a member of, by name or number."
    )
    job_namespaces: bool = setting(
        False, "Let such jobs make user namespaces, as containers without root need (Apptainer)."
    )
    stop_jobs: bool = setting(False, "Stop the jobs with the agent; else they go on.")
    times: AgentTimesSection = field(default_factory=AgentTimesSection)
    start_timeout: StartTimeoutSection = field(default_factory=StartTimeoutSection)
    kubernetes: PodsSection = field(default_factory=PodsSection)
    log: AgentLogSection = field(default_factory=AgentLogSection)


def read_toleration(text: str) -> Mapping[str, str]:
    """Return a toleration of ``KEY[=VALUE]:EFFECT`` in Kubernetes' words.

    Raises:
        ValueError: it is malformed.
    """
    taint, colon, effect = text.rpartition(":")
    key, equals, value = taint.partition("=")
    if not colon or not key:
        raise ValueError("KEY[=VALUE]:EFFECT")
    given = {"key": key, "operator": "Equal" if equals else "Exists"}
    return given | ({"value": value} if equals else {}) | ({"effect": effect} if effect else {})


def check_agent(config: AgentConfig, origins: Mapping[str, Any]) -> list[str]:
    """Return the problems of an agent's settings beyond their types, with the places."""
    problems = []
    if not config.servers:
        problems.append(f"{origins['servers']}: servers: is empty; name the scheduler's address")
    if problem := unknown_backend(config.backend):
        problems.append(f"{origins['backend']}: backend: {problem}")
    counted = config.kubernetes.foreign_pods
    if counted not in {"", "watch"} and counted.count("/") != 1:
        place = f"{origins['kubernetes.foreign_pods']}: kubernetes.foreign_pods"
        problems.append(f"{place}: '{counted}' is not valid; give watch, or NAMESPACE/NAME")
    problems += _problems_of_figures(config, origins)
    for text in config.kubernetes.tolerations:
        try:
            read_toleration(text)
        except ValueError as error:
            place = f"{origins['kubernetes.tolerations']}: kubernetes.tolerations"
            problems.append(f"{place}: '{text}' is not a toleration; give {error}")
    return problems


def _problems_of_figures(config: AgentConfig, origins: Mapping[str, Any]) -> list[str]:
    """Return the problems of the figures of our own containers."""
    problems = []
    for name in ("guard_resources", "code_resources"):
        for text in getattr(config.kubernetes, name):
            if not FIGURE.fullmatch(text):
                place = f"{origins[f'kubernetes.{name}']}: kubernetes.{name}"
                problems.append(
                    f"{place}: '{text}' is no figure; give NAME=QUANTITY with requests.cpu, "
                    "requests.memory, limits.cpu or limits.memory, such as limits.memory=64Mi"
                )
    return problems
