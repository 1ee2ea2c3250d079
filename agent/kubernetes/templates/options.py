"""A job's settings of its pods, read from plain values with errors that name the field. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta

from scheduler.errors import InputError
from scheduler.protocol import fields
from scheduler.protocol.bounds import LONGEST_TEXT, MOST_ITEMS
from scheduler.protocol.reading import read_as

#: How many processes are started in a pod.
Launch = Literal["per-worker", "per-node"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMount:
    """A volume claim in a job's pods.

    Attributes:
        claim: name of the PersistentVolumeClaim.
        path: its mount point.
        read_only: whether it can only be read.
        sub_path: a folder of the volume to mount instead of all of it.
    """

    claim: fields.Text
    path: Annotated[str, Meta(pattern=fields.ABSOLUTE, max_length=LONGEST_TEXT)]
    read_only: bool = False
    sub_path: fields.Argument = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """A job's settings of its pods.

    Attributes:
        requests: resource name -> requested quantity, such as ``{"cpu": "8"}``; limits of
            processor and memory are the job's ``cpus`` and ``memory_bytes``.
        volumes: claims to mount.
        tolerations: of taints, besides those of the installation.
        service_account: of the pods; empty: the namespace's default.
        image_pull_secrets: names of Secrets.
        image_pull_policy: Always, IfNotPresent or Never; empty: Kubernetes' default.
        runtime_class: name of the RuntimeClass; empty: that of the worker type.
        shm_bytes: most that ``/dev/shm`` may hold, which counts as memory; None: half the memory.
        launch: ``per-worker`` starts the command once for each worker of the node, as local
            processes are; ``per-node`` once, for launchers such as torchrun.
        force_delete: whether a pod on a node that does not answer is deleted without knowing that
            its processes are gone.
        template: a pod in Kubernetes' own words, merged over the pod from all these settings.
    """

    requests: Annotated[Mapping[fields.Variable, fields.Argument], Meta(max_length=MOST_ITEMS)] = (
        field(default_factory=lambda: MappingProxyType({}))
    )
    volumes: Annotated[tuple[ClaimMount, ...], Meta(max_length=MOST_ITEMS)] = ()
    tolerations: Annotated[tuple[Mapping[str, Any], ...], Meta(max_length=MOST_ITEMS)] = ()
    service_account: fields.Argument = ""
    image_pull_secrets: fields.Texts = ()
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    runtime_class: fields.Argument = ""
    shm_bytes: fields.Positive | None = None
    launch: Launch = "per-worker"
    force_delete: bool = False
    template: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def pod_options(data: Mapping[str, Any]) -> PodOptions:
    """Read a job's settings of its pods.

    Raises:
        InputError: a field is unknown or wrong; the message names it with its value.
    """
    known = PodOptions.__dataclass_fields__
    for name in data:
        if name not in known:
            raise InputError(
                f"field 'kubernetes.{name}' is unknown; there are {', '.join(sorted(known))}"
            )
    given = {name: value for name, value in data.items() if value is not None}
    return read_as(PodOptions, given, "kubernetes")
