"""A job's settings of its pods, read from plain values with errors that name the field. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from scheduler.errors import InputError
from scheduler.protocol.reading import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How many processes are started in a pod.
Launch = Literal["per-worker", "per-node"]
_LAUNCHES: Final = ("per-worker", "per-node")
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMount:
    """A volume claim in a job's pods.

    Attributes:
        claim: name of the PersistentVolumeClaim.
        path: its mount point.
        read_only: whether it can only be read.
        sub_path: a folder of the volume to mount instead of all of it.
    """

    claim: str
    path: str
    read_only: bool = False
    sub_path: str = ""


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

    requests: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    volumes: tuple[ClaimMount, ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = ()
    service_account: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    image_pull_policy: str = ""
    runtime_class: str = ""
    shm_bytes: int | None = None
    launch: Launch = "per-worker"
    force_delete: bool = False
    template: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def pod_options(data: Mapping[str, Any]) -> PodOptions:
    """Read a job's settings of its pods.

    Raises:
        InputError: a field is unknown or wrong; the message names it with its value.
    """
    known = {option.name for option in fields(PodOptions)}
    for name in data:
        if name not in known:
            raise InputError(
                f"field 'kubernetes.{name}' is unknown; there are {', '.join(sorted(known))}"
            )
    item = Reader(dict(data), "kubernetes")
    return PodOptions(
        requests=MappingProxyType(item.optional("requests", item.environment) or {}),
        volumes=tuple(_mount(part) for part in item.optional("volumes", item.objects) or ()),
        tolerations=tuple(part.data for part in item.optional("tolerations", item.objects) or ()),
        service_account=item.optional("service_account", lambda n: _word(item, n)) or "",
        image_pull_secrets=item.optional("image_pull_secrets", item.texts) or (),
        image_pull_policy=_choice(item, "image_pull_policy", _PULL_POLICIES),
        runtime_class=item.optional("runtime_class", lambda n: _word(item, n)) or "",
        shm_bytes=item.optional("shm_bytes", lambda name: item.integer(name, at_least=1)),
        launch=cast("Launch", _choice(item, "launch", _LAUNCHES) or "per-worker"),
        force_delete=item.optional("force_delete", item.flag) or False,
        template=MappingProxyType(_template(item)),
    )


def _mount(item: Reader) -> ClaimMount:
    path = item.text("path")
    if not path.startswith("/"):
        raise item.refuse("path", "an absolute path")
    return ClaimMount(
        claim=item.text("claim"),
        path=path,
        read_only=item.optional("read_only", item.flag) or False,
        sub_path=item.optional("sub_path", lambda n: _word(item, n)) or "",
    )


def _word(item: Reader, name: str) -> str:
    """Read a text that may be empty."""
    value = item.data.get(name)
    return "" if value == "" else item.text(name)


def _choice(item: Reader, name: str, allowed: tuple[str, ...]) -> str:
    value = item.data.get(name) or ""
    if value and value not in allowed:
        raise item.refuse(name, f"one of {', '.join(allowed)}")
    return str(value)


def _template(item: Reader) -> dict[str, Any]:
    value = item.data.get("template")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise item.refuse("template", "an object: a pod with metadata and spec")
    return value
