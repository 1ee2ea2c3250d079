"""The allowed fields of a pod template: everything outside a list is refused. Pure.

The list holds fields that a job needs for itself and that cannot reach beyond its pod. An operator
may add to it (``kubernetes.template_allows``). It is checked when a job is submitted: jobs that are
stored already keep their templates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent.kubernetes.names import names_secret_of_pod
from agent.kubernetes.templates.device_variables import (
    chooses_devices,
    could_choose,
    mounts_devices,
    widens_access,
)
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from agent.kubernetes.templates.options import PodOptions

#: Name of the setting in errors.
SETTING: Final = "kubernetes.template_allows"
#: Most bytes of a template's annotations.
MOST_ANNOTATIONS: Final = 2**17
_LEASE: Final = "which accelerators a job sees follows from its lease; take it out"


@dataclass(frozen=True, slots=True)
class _Only:
    """A field with these allowed values."""

    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Checked:
    """A value for a checking function, which returns the fault; empty if it is allowed."""

    wrong: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class _Names:
    """An object with names for a checking function."""

    wrong: Callable[[str], str]


_ANY: Final = object()


def _fields(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, _ANY)


def _resource(name: str) -> str:
    if name in {"cpu", "memory", "ephemeral-storage"} or name.startswith("hugepages-"):
        return ""
    return "devices are not a template's; accelerators follow from the job's field 'scale_factor'"


def _label(name: str) -> str:
    """Check a label: programs of the cluster and the node read names with a domain."""
    if "/" not in name or name in {
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "kubectl.kubernetes.io/default-container",
        "prometheus.io/scrape",
        "prometheus.io/port",
        "prometheus.io/path",
    }:
        return ""
    return "names with a domain steer programs of the cluster; use one without"


def _mount_path(path: Any) -> str:
    if mounts_devices(str(path)):
        return "a mount there is taken for the name of a device; use another path"
    return ""


def _prefix(prefix: Any) -> str:
    if prefix and could_choose(str(prefix)):
        return f"{_LEASE}: with this prefix a name may choose them"
    return ""


def _dropped(names: Any) -> str:
    if isinstance(names, list) and "ALL" in names:
        return ""
    return "jobs have no capabilities; drop ALL"


def _added(names: Any) -> str:
    if names is None or (isinstance(names, list) and set(map(str, names)) <= {"NET_BIND_SERVICE"}):
        return ""
    return "jobs have no capabilities, NET_BIND_SERVICE apart"


def _secret(name: Any) -> str:
    if isinstance(name, str) and names_secret_of_pod(name):
        return "it belongs to a job's pod, and no other pod gets it"
    return ""


def _secret_fields(name: str, *others: str) -> dict[str, Any]:
    """Return the rule for an object that names a Secret in its field ``name``."""
    return _fields(*others) | {name: _Checked(_secret)}


_PROFILE: Final = {"type": _Only(("RuntimeDefault", "Localhost")), "localhostProfile": _ANY}
_USER: Final = _fields("runAsUser", "runAsGroup", "runAsNonRoot") | {
    "seccompProfile": _PROFILE,
    "appArmorProfile": _PROFILE,
    "seLinuxOptions": _fields("level"),
}
#: Without a host: the kubelet asks from the node's own network.
_HANDLER: Final = {
    "exec": _fields("command"),
    "httpGet": _fields("path", "port", "scheme", "httpHeaders"),
    "tcpSocket": _fields("port"),
    "grpc": _fields("port", "service"),
    "sleep": _fields("seconds"),
}
_PROBE: Final = _HANDLER | _fields(
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "terminationGracePeriodSeconds",
)
_RESOURCES: Final = {"limits": _Names(_resource), "requests": _Names(_resource)}
_VALUE_FROM: Final = _fields("configMapKeyRef", "fieldRef", "resourceFieldRef") | {
    "secretKeyRef": _secret_fields("name", "key", "optional")
}
_CONTAINER: Final = _fields(
    "name",
    "image",
    "imagePullPolicy",
    "command",
    "args",
    "workingDir",
    "stdin",
    "tty",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "restartPolicy",
) | {
    "env": [_fields("name", "value") | {"valueFrom": _VALUE_FROM}],
    "envFrom": [
        {"prefix": _Checked(_prefix), "secretRef": _secret_fields("name", "optional")}
        | _fields("configMapRef")
    ],
    "ports": [_fields("name", "containerPort", "protocol")],
    "resources": _RESOURCES,
    "volumeMounts": [
        _fields("name", "subPath", "subPathExpr", "readOnly", "recursiveReadOnly")
        | {"mountPath": _Checked(_mount_path), "mountPropagation": _Only(("None",))}
    ],
    "securityContext": _USER
    | _fields("readOnlyRootFilesystem")
    | {
        "allowPrivilegeEscalation": _Only((False,)),
        "privileged": _Only((False,)),
        "procMount": _Only(("Default",)),
        "capabilities": {"drop": _Checked(_dropped), "add": _Checked(_added)},
    },
    "lifecycle": {"postStart": _HANDLER, "preStop": _HANDLER},
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
}
#: A volume of the pod's own, made empty and deleted with it.
_OWN_CLAIM: Final = {
    "metadata": {"labels": _Names(_label), "annotations": _Names(_label)},
    "spec": _fields("accessModes", "resources", "storageClassName", "volumeAttributesClassName")
    | {"volumeMode": _Only(("Filesystem",))},
}
_VOLUME: Final = _fields("name", "configMap", "downwardAPI") | {
    "ephemeral": {"volumeClaimTemplate": _OWN_CLAIM},
    "secret": _secret_fields("secretName", "items", "defaultMode", "optional"),
    "emptyDir": _fields("medium", "sizeLimit"),
    "persistentVolumeClaim": _fields("claimName", "readOnly"),
    "projected": {
        "defaultMode": _ANY,
        "sources": [
            {"secret": _secret_fields("name", "items", "optional")}
            | _fields("configMap", "downwardAPI")
        ],
    },
}
_POD: Final = {
    "kind": _ANY,
    "apiVersion": _ANY,
    "metadata": {"labels": _Names(_label), "annotations": _Names(_label)},
    "spec": {
        "containers": [_CONTAINER],
        "initContainers": [_CONTAINER],
        "volumes": [_VOLUME],
        "affinity": _fields("nodeAffinity"),
        "securityContext": _USER
        | _fields(
            "fsGroup", "fsGroupChangePolicy", "supplementalGroups", "supplementalGroupsPolicy"
        ),
        "imagePullSecrets": [_secret_fields("name")],
        "resources": _RESOURCES,
        "schedulerName": _Only(("default-scheduler",)),
        "preemptionPolicy": _Only(("Never",)),
        "hostNetwork": _Only((False,)),
        "hostPID": _Only((False,)),
        "hostIPC": _Only((False,)),
        "hostUsers": _Only((False,)),
        "shareProcessNamespace": _Only((False,)),
    }
    | _fields(
        "nodeSelector",
        "tolerations",
        "hostAliases",
        "dnsPolicy",
        "dnsConfig",
        "enableServiceLinks",
        "runtimeClassName",
    ),
}
_CLAIM: Final = "give it a volume claim: kubernetes.volumes"
#: The reason and an alternative, by the end of a path.
_WHY: Final = {
    "hostPath": f"a job has no part in its node's files; {_CLAIM}",
    "hostNetwork": "a job has no part in its node's network",
    "hostPID": "a job does not see its node's processes",
    "hostIPC": "a job does not share its node's memory",
    "hostUsers": "users of the pod are not the node's",
    "hostPort": "ports of the node are not a job's; pods reach each other by their own",
    "hostIP": "ports of the node are not a job's; pods reach each other by their own",
    "host": "the kubelet would ask there from the node's network; leave it out",
    "privileged": "a job has no power over its node",
    "allowPrivilegeEscalation": "a job may not gain rights while it runs",
    "shareProcessNamespace": "a job may not reach the guard of its lease",
    "serviceAccountToken": "jobs get no rights in the cluster",
    "priorityClassName": "other pods would be evicted for it; use the job's field 'weight'",
    "priority": "other pods would be evicted for it; use the job's field 'weight'",
    "schedulerName": "only the cluster's own scheduler counts used resources",
    "resourceClaims": "use the job's field 'scale_factor'",
    "claims": "use the job's field 'scale_factor'",
    "podAffinity": "the scheduler chooses a job's node",
    "podAntiAffinity": "it keeps others' pods off the node; the scheduler chooses a job's node",
    "topologySpreadConstraints": "the scheduler chooses a job's node",
    "volumeName": "volumes of the cluster are given by their owner, by a volume claim",
    "selector": "volumes of the cluster are given by their owner, by a volume claim",
    "dataSource": f"such a volume begins empty; to read what is there, {_CLAIM}",
    "dataSourceRef": f"such a volume begins empty; to read what is there, {_CLAIM}",
    "csi": _CLAIM,
    "nfs": _CLAIM,
    "mountPropagation": "a job may mount only its own volumes",
    "volumeDevices": "volumes are mounted, not handed over raw",
}


def check_submitted(
    options: PodOptions, env: Mapping[str, str], *, allows: Collection[str]
) -> None:
    """Refuse a submitted job with pod settings that are not allowed.

    Args:
        options: its settings.
        env: its variables.
        allows: the operator's additions to the list: paths as in the errors, ``PATH=VALUE`` for one
            value of a field, or a prefix with ``*`` at its end.

    Raises:
        InputError: the message names the field, its value, and an alternative.
    """
    allowed = _Allowed(tuple(allows))
    for name, value in env.items():
        _check_variable(name, value, f"env.{name}", allowed)
    for name, quantity in options.requests.items():
        path = f"requests.{name}"
        if (wrong := _resource(name)) and not allowed(path, quantity):
            raise _refused(f"kubernetes.{path}", quantity, wrong, path)
    for position, mount in enumerate(options.volumes):
        if wrong := _mount_path(mount.path):
            raise _refused(f"kubernetes.volumes[{position}].path", mount.path, wrong)
    for position, name in enumerate(options.image_pull_secrets):
        if wrong := _secret(name):
            raise _refused(f"kubernetes.image_pull_secrets[{position}]", name, wrong)
    template = dict(options.template)
    _check_size(template)
    _check_variables(template, allowed)
    _check(template, _POD, "", "", allowed)


def _check_size(template: Mapping[str, Any]) -> None:
    """Check the annotations: Kubernetes allows 256 KiB in all, and ours take up to half of them."""
    metadata = template.get("metadata")
    given = metadata.get("annotations") if isinstance(metadata, dict) else None
    pairs = given.items() if isinstance(given, dict) else ()
    size = sum(len(f"{name}{value}".encode()) for name, value in pairs)
    if size > MOST_ANNOTATIONS:
        raise InputError(
            f"field 'kubernetes.template.metadata.annotations' has {size:,} bytes; at most "
            f"{MOST_ANNOTATIONS:,} are allowed; put the data into a ConfigMap or a volume"
        )


@dataclass(frozen=True, slots=True)
class _Allowed:
    """The operator's additions to the list."""

    entries: tuple[str, ...]

    def __call__(self, path: str, value: object) -> bool:
        return any(
            path.startswith(entry[:-1])
            if entry.endswith("*")
            else entry in {path, f"{path}={value}"}
            for entry in self.entries
        )


def _check_variables(template: Mapping[str, Any], allowed: _Allowed) -> None:
    """Check the names of all containers' variables; an operator cannot allow device choice."""
    spec = template.get("spec")
    for part in ("containers", "initContainers"):
        containers = spec.get(part) if isinstance(spec, dict) else None
        for place, container in enumerate(containers if isinstance(containers, list) else ()):
            env = container.get("env") if isinstance(container, dict) else None
            for position, variable in enumerate(env if isinstance(env, list) else ()):
                if isinstance(variable, dict):
                    path = f"kubernetes.template.spec.{part}[{place}].env[{position}].name"
                    name = str(variable.get("name", ""))
                    _check_variable(name, name, path, allowed)


def _check_variable(name: str, value: object, path: str, allowed: _Allowed) -> None:
    if chooses_devices(name):
        raise _refused(path, value, _LEASE)
    if widens_access(name) and not allowed(f"env.{name}", value):
        wrong = "it brings more of the node into the container; take it out"
        raise _refused(path, value, wrong, f"env.{name}")


def _check(value: Any, rule: Any, path: str, pattern: str, allowed: _Allowed) -> None:
    """Compare a value with its rule, and its parts with theirs.

    Args:
        value: of the template.
        rule: of the list.
        path: the path of the value.
        pattern: that path without the positions in lists.
        allowed: the operator's additions.
    """
    if rule is _ANY or allowed(pattern, value):
        return
    if wrong := _wrong(value, rule, pattern):
        raise _refused(f"kubernetes.template.{path}", value, wrong, pattern)
    if isinstance(value, list) and isinstance(rule, list):
        for position, item in enumerate(value):
            _check(item, rule[0], f"{path}[{position}]", f"{pattern}[]", allowed)
    elif isinstance(value, dict) and isinstance(rule, dict | _Names):
        _check_fields(value, rule, path, pattern, allowed)


def _wrong(value: Any, rule: Any, pattern: str) -> str:
    """Return the fault of a value itself; empty if it is allowed."""
    if isinstance(rule, _Only):
        return "" if any(_same(value, one) for one in rule.values) else _why(pattern, rule)
    if isinstance(rule, _Checked):
        return rule.wrong(value)
    if value is None:  # which stands for nothing at all
        return ""
    if isinstance(rule, list):
        return "" if isinstance(value, list) else "it must be a list"
    return "" if isinstance(value, dict) else "it must be an object"


def _check_fields(
    value: Mapping[str, Any], rule: Any, path: str, pattern: str, allowed: _Allowed
) -> None:
    for name, inner in value.items():
        here, there = (f"{path}.{name}", f"{pattern}.{name}") if path else (name, name)
        if isinstance(rule, dict) and name in rule:
            _check(inner, rule[name], here, there, allowed)
            continue
        wrong = rule.wrong(name) if isinstance(rule, _Names) else _why(there, None)
        if wrong and not allowed(there, inner):
            raise _refused(f"kubernetes.template.{here}", inner, wrong, there)


def _why(pattern: str, rule: _Only | None) -> str:
    last = re.split(r"[.\[\]]+", pattern.rstrip("[]"))[-1]
    why = _WHY.get(last, "" if rule else "a template may not say it")
    if rule is None:
        return why
    taken = " or ".join(_shown(one) for one in rule.values)
    return f"{why}; leave it out, or say {taken}".lstrip("; ")


def _same(value: object, one: object) -> bool:
    return type(value) is type(one) and value == one


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _refused(path: str, value: object, wrong: str, pattern: str = "") -> InputError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    more = f'; an operator may allow it: {SETTING} = ["{pattern}"]' if pattern else ""
    return InputError(f"field '{path}' is {shown}: {wrong}{more}")
