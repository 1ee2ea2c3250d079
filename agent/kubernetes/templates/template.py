"""A user's pod template: fields that it may never set, and its merge over our pod. Pure.

The other fields of a template are checked when a job is submitted: see
``agent.kubernetes.templates.rules``.

The merge follows Kubernetes' strategic merge: objects are merged field by field, lists whose items
have a name are merged by it, tolerations are added, every other list and value is replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent.kubernetes.names import OWN
from agent.kubernetes.templates.device_variables import NONE, chooses_devices
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The container in which the job runs.
CONTAINER: Final = "job"
#: The prefix of the names of our own volumes and containers.
RESERVED: Final = "leasehold-"
#: Names of the container that brings a job's code, and of the volume with it.
CODE: Final = RESERVED + "code"
#: The field that identifies the items of a list.
_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "hostAliases": "ip",
}
#: Lists that a template adds to.
_ADDED: Final = frozenset({"tolerations", "envFrom"})
_INSTEAD: Final = "use the job's field '{}'"
_SCHEDULER: Final = "the scheduler decides it"
#: Fields of the pod that a template may not set, and an alternative.
_OWNED: Final = {
    "status": _SCHEDULER,
    "metadata.name": _SCHEDULER,
    "metadata.generateName": _SCHEDULER,
    "metadata.namespace": _SCHEDULER,
    "metadata.uid": _SCHEDULER,
    "metadata.resourceVersion": _SCHEDULER,
    "metadata.ownerReferences": _SCHEDULER,
    "metadata.finalizers": "it would keep pods from being deleted",
    "spec.nodeName": _SCHEDULER,
    "spec.nodeSelector.kubernetes.io/hostname": _SCHEDULER,
    "spec.restartPolicy": "a pod is one attempt; the scheduler starts the next",
    "spec.terminationGracePeriodSeconds": _INSTEAD.format("grace_s"),
    "spec.activeDeadlineSeconds": _INSTEAD.format("max_run_time_s"),
    "spec.hostname": _SCHEDULER,
    "spec.subdomain": _SCHEDULER,
    "spec.automountServiceAccountToken": "jobs get no rights in the cluster",
    "spec.serviceAccountName": _INSTEAD.format("kubernetes.service_account"),
    "spec.serviceAccount": _INSTEAD.format("kubernetes.service_account"),
    "spec.schedulingGates": _SCHEDULER,
    "spec.ephemeralContainers": "Kubernetes does not take them here",
}
#: The same for the fields of the job's container.
_OWNED_BY_CONTAINER: Final = {
    "image": _INSTEAD.format("image"),
    "command": _INSTEAD.format("command"),
    "args": _INSTEAD.format("command"),
    "workingDir": _INSTEAD.format("working_dir"),
    "livenessProbe": "it ends the job with its lease",
    "restartPolicy": "a pod is one attempt; the scheduler starts the next",
}
_OWNED_VARIABLES: Final = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"}
    | {"MASTER_ADDR", "MASTER_PORT", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}
)


def merge_template(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return one object merged over another; neither is changed.

    ``None`` removes a plain value; objects and lists stay.
    """
    merged = dict(base)
    for name, value in over.items():
        if value is None:
            if not isinstance(merged.get(name), dict | list):
                merged.pop(name, None)
        elif isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] = merge_template(merged[name], value)
        elif isinstance(value, list) and name in _ADDED:
            merged[name] = [
                *merged.get(name, []),
                *(v for v in value if v not in merged.get(name, [])),
            ]
        elif isinstance(value, list) and name in _KEYS:
            merged[name] = _merge_items(merged.get(name, []), value, _KEYS[name])
        else:
            merged[name] = value
    return merged


def without_devices(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod in which containers beside the job's see no accelerator.

    Jobs that were stored before templates were checked may ask for some, and so may images.
    """
    spec = dict(pod["spec"])
    for part in ("containers", "initContainers"):
        if spec.get(part):
            spec[part] = [_without_devices(container, part) for container in spec[part]]
    return {**pod, "spec": spec}


def _without_devices(container: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    name, env = container["name"], container.get("env") or []
    if name == CONTAINER and part == "containers":
        own = [v for v in env if v.get("name") == NONE["name"] or not _chooses(v)]
    elif name.startswith(RESERVED):
        return container
    else:
        own = [*(v for v in env if not _chooses(v)), dict(NONE)]
    return {**container, "env": own}


def _chooses(variable: Mapping[str, Any]) -> bool:
    return chooses_devices(str(variable.get("name", "")))


def check_template(template: Mapping[str, Any], *, accelerators: frozenset[str]) -> None:
    """Refuse a template that sets the scheduler's fields.

    Args:
        template: the user's pod.
        accelerators: names of the resources of workers.

    Raises:
        InputError: the message names the field, its value, and an alternative.
    """
    template = dict(template)
    _check_kind(template)
    for path, advice in _OWNED.items():
        found, value = _look_up(template, path)
        if found:
            raise _refusal(path, value, advice)
    for part in ("labels", "annotations"):
        names = _part(_part(template, "metadata", ""), part, "metadata.")
        for name, value in names.items():
            if name.startswith((OWN, "app.kubernetes.io/")):
                raise _refusal(f"metadata.{part}.{name}", value, _SCHEDULER)
    spec = _part(template, "spec", "")
    for container, path in _containers(spec):
        _check_container(container, path, accelerators)
    for position, volume in enumerate(_items(spec, "volumes", "spec.")):
        if str(volume.get("name", "")).startswith(RESERVED):
            raise _refusal(f"spec.volumes[{position}].name", volume["name"], "choose another name")


def _check_kind(template: Mapping[str, Any]) -> None:
    for name, right in (("kind", "Pod"), ("apiVersion", "v1")):
        if template.get(name, right) != right:
            raise _refusal(name, template[name], f"it must be {right}")
    unknown = template.keys() - {"kind", "apiVersion", "metadata", "spec", "status"}
    for name in sorted(unknown):
        raise _refusal(name, template[name], "a pod has metadata and spec")


def _check_container(container: Mapping[str, Any], path: str, accelerators: frozenset[str]) -> None:
    name = container.get("name")
    if not isinstance(name, str) or not name or name.startswith(RESERVED):
        raise _refusal(f"{path}.name", name, f"name it; '{CONTAINER}' is the job's own container")
    resources = _part(container, "resources", f"{path}.")
    for part in ("limits", "requests"):
        for resource, value in _part(resources, part, f"{path}.resources.").items():
            if resource in accelerators or resource.startswith(("nvidia.com/", "amd.com/")):
                advice = _INSTEAD.format("scale_factor")
                raise _refusal(f"{path}.resources.{part}.{resource}", value, advice)
    env = _items(container, "env", f"{path}.")
    if name != CONTAINER or ".containers" not in f".{path}":
        return
    for field, advice in _OWNED_BY_CONTAINER.items():
        if field in container:
            raise _refusal(f"{path}.{field}", container[field], advice)
    for position, variable in enumerate(env):
        if is_owned_variable(str(variable.get("name", ""))):
            where = f"{path}.env[{position}].name"
            raise _refusal(where, variable["name"], "it carries the job's lease")


def is_owned_variable(name: str) -> bool:
    """Return whether an environment variable belongs to the scheduler."""
    return name in _OWNED_VARIABLES or name.startswith(("LEASEHOLD_", "PET_"))


def _containers(spec: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    for part in ("containers", "initContainers"):
        for position, container in enumerate(_items(spec, part, "spec.")):
            yield container, f"spec.{part}[{position}]"


def _part(data: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = data.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _refusal(where + name, value, "it must be an object")
    return value


def _items(data: Mapping[str, Any], name: str, where: str) -> list[Mapping[str, Any]]:
    value = data.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise _refusal(where + name, value, "it must be a list of objects")
    return value


def _look_up(template: Mapping[str, Any], path: str) -> tuple[bool, Any]:
    """Return whether a field is set, and its value; only the last name may hold a dot."""
    first, *rest = path.split(".", 2)
    data: Any = template
    for name in (first, *rest):
        if not isinstance(data, dict):
            return False, None
        if name.startswith("nodeSelector."):
            data, name = data.get("nodeSelector"), name.removeprefix("nodeSelector.")  # noqa: PLW2901
            if not isinstance(data, dict):
                return False, None
        if name not in data:
            return False, None
        data = data[name]
    return True, data


def _refusal(path: str, value: object, advice: str) -> InputError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return InputError(f"field 'kubernetes.template.{path}' is {shown}: {advice}")


def _merge_items(base: list[Any], over: list[Any], key: str) -> list[Any]:
    merged = list(base)
    places = {item.get(key): place for place, item in enumerate(base)}
    for item in over:
        name = item.get(key) if isinstance(item, dict) else None
        if name is not None and name in places:
            merged[places[name]] = merge_template(merged[places[name]], item)
        else:
            merged.append(item)
    return merged
