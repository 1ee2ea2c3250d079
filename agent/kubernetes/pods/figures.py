"""Requests and limits of our own containers in a pod, and refusals because of them. Pure.

All four are always given. Otherwise a quota that counts limits refuses every pod, and a job can do
nothing about it.
"""

from __future__ import annotations

import math
import re
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from agent.kubernetes.client import KubernetesError
from agent.kubernetes.templates.template import RESERVED
from scheduler.domain.facts.troubles import OWN_CONTAINER_REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agent.kubernetes.client import AdmissionRefusedError

#: The figures of the guard and of the container that brings code, by their names.
GUARD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "requests.cpu": "5m",
        "requests.memory": "24Mi",
        "limits.cpu": "200m",
        "limits.memory": "64Mi",
    }
)
CODE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "requests.cpu": "5m",
        "requests.memory": "32Mi",
        "limits.cpu": "1",
        "limits.memory": "256Mi",
    }
)
_SUFFIXES: Final = (
    {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3}
    | {letter: 1e3**power for power, letter in enumerate("MGTPE", 2)}
    | {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)}
)
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)([a-zA-Z]*)\.?")
#: What a quota, and a LimitRange, say of a container. Only the quota names it.
_UNSET: Final = re.compile(r"\b[\w./-]+ for: ([a-z0-9,-]+)")
_BOUND: Final = re.compile(
    r"imum (\S+) usage per (\w+) is \S+?(?:, but (request|limit) is ([\w.]+))?\b"
)
_RATIO: Final = re.compile(
    r"(\S+) max limit to request ratio per \w+ is \S+, but provided ratio is ([\d.]*\d)"
)


class OwnContainerRefusedError(KubernetesError):
    """A pod was refused because of a container that is ours and not the job's."""


def resources_of(figures: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return figures as Kubernetes writes them; a limit is at least its request."""
    found: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for name, value in figures.items():
        part, _, resource = name.partition(".")
        found[part][resource] = value
    for resource, request in found["requests"].items():
        if _number(found["limits"][resource]) < _number(request):
            found["limits"][resource] = request
    return found


def of_ours(error: AdmissionRefusedError, pod: Mapping[str, Any]) -> bool:
    """Return whether a pod was refused for the figures of our own containers alone.

    Args:
        error: the refusal.
        pod: the pod.
    """
    found = list(_blames(str(error), pod))
    return bool(found) and all(found)


def own_refusal(error: AdmissionRefusedError) -> OwnContainerRefusedError:
    """Return such a refusal as an error that does not blame the job."""
    return OwnContainerRefusedError(str(error), status=error.status, reason=OWN_CONTAINER_REFUSED)


def _blames(message: str, pod: Mapping[str, Any]) -> Iterator[bool]:
    """Yield for each figure that a refusal names whether only our containers have it."""
    if "must specify" in message:
        for found in _UNSET.finditer(message):
            yield all(name.startswith(RESERVED) for name in found[1].split(","))
    for found in _BOUND.finditer(message):
        resource, kind, part, value = found.groups()
        given = partial(_given, part=f"{part}s", resource=resource)
        yield kind == "Container" and _is_ours(pod, given, _number(value or ""))
    for found in _RATIO.finditer(message):
        yield _is_ours(pod, partial(_ratio, resource=found[1]), float(found[2]))


def _is_ours(
    pod: Mapping[str, Any], read: Callable[[Mapping[str, Any]], float], value: float
) -> bool:
    """Return whether a value is found in our containers, and in no other."""
    spec = pod["spec"]
    ours = {
        container["name"].startswith(RESERVED)
        for container in (*spec.get("initContainers", ()), *spec["containers"])
        if math.isclose(read(container.get("resources") or {}), value, rel_tol=1e-6)
    }
    return ours == {True}


def _given(resources: Mapping[str, Any], part: str, resource: str) -> float:
    return _number(str((resources.get(part) or {}).get(resource, "")))


def _ratio(resources: Mapping[str, Any], resource: str) -> float:
    request = _given(resources, "requests", resource)
    return _given(resources, "limits", resource) / request if request else math.nan


def _number(quantity: str) -> float:
    """Return a quantity of Kubernetes as a number; NaN if it is none."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None or found[2] not in _SUFFIXES:
        return math.nan
    return float(found[1]) * _SUFFIXES[found[2]]
