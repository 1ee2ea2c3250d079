"""The pod security level that the namespace of the jobs enforces, in one line."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from agent.kubernetes.client import MissingError, PermissionDeniedError
from scheduler.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.kubernetes.client import KubernetesClient
    from agent.kubernetes.pods.pods import PodSettings

_log = logging.getLogger("leasehold.agent")

_LABEL: Final = "pod-security.kubernetes.io/enforce"
#: From the weakest on.
LEVELS: Final = ("privileged", "baseline", "restricted")
_MEANS: Final = {
    "privileged": "only the scheduler's list of allowed template fields keeps a job from its node",
    "baseline": "a job may run as root in its container",
    "restricted": "",
}


def security_level(namespace: Mapping[str, Any]) -> tuple[str, str]:
    """Return the level that a Namespace object enforces, and a line of text about it."""
    metadata = namespace.get("metadata") or {}
    told = (metadata.get("labels") or {}).get(_LABEL)
    level = told if told in LEVELS else LEVELS[0]
    line = f"pods of jobs run in namespace '{metadata.get('name')}', which enforces "
    line += f"the pod security level '{level}'" if told else "no pod security level"
    if not _MEANS[level]:
        return level, line
    return level, f"{line}: {_MEANS[level]}; label it {_LABEL}=restricted"


def check_level(level: str, line: str, *, least: str) -> None:
    """Refuse a namespace that enforces too little.

    Args:
        level: its level.
        line: the text about it.
        least: the level that it must enforce; ``any``: none.

    Raises:
        ClusterError: it enforces less.
    """
    if least in LEVELS and LEVELS.index(level) < LEVELS.index(least):
        raise ClusterError(f"{line}; this agent asks for '{least}' (kubernetes.pod_security)")


async def check_namespace(client: KubernetesClient, settings: PodSettings) -> None:
    """Log the level that the namespace of the jobs enforces, and refuse one that is too low.

    Raises:
        ClusterError: it enforces less than the settings ask for.
        KubernetesError: the API server cannot be asked.
    """
    try:
        level, line = security_level(await client.namespace(settings.namespace))
    except (MissingError, PermissionDeniedError) as error:
        level = LEVELS[0]
        line = f"which pod security level '{settings.namespace}' enforces is not known: {error}"
    check_level(level, line, least=settings.pod_security)
    _log.log(logging.INFO if level == LEVELS[-1] else logging.WARNING, "%s", line)
