"""The code that a job's pod is started in, and how it gets there; see docs/adr/0022.

A container that ends before the job begins asks the agent of its node, which asks the scheduler,
and unpacks the code into a volume of the pod. The code is never stored at the API server or the
agent. So no copy is left behind, and the next agent need not find any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent.kubernetes.templates.template import CODE, CONTAINER
from scheduler.archive import digest_of
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.kubernetes.pods.record import PodRecord
    from scheduler.protocol.desired import DesiredLease

#: The folder of the code in the job's container, which is where its command begins.
FOLDER: Final = "/leasehold/code"


def check_code(lease: DesiredLease, *, image: str, port: int) -> None:
    """Refuse a lease with code that cannot be brought into its pod.

    Args:
        lease: the lease.
        image: the image with the unpacking program; empty: there is none.
        port: the port on which pods reach the agent; 0: they do not.

    Raises:
        InputError: the message says which setting is missing.
    """
    if lease.upload and not (image and port):
        missing = "kubernetes.code_image" if port else "kubernetes.jobs_port"
        raise InputError(
            f"job '{lease.job_id}' comes with uploaded code, and the agent of this node brings "
            f"none into pods: it has no {missing} (the chart sets it if agent.uploads.enabled "
            "is true); until then put the code into an image or on a volume, or name worker types "
            "of other nodes (--type)"
        )


def code_volume(most_bytes: int) -> dict[str, Any]:
    """Return the volume for the code; files that the job writes there count, too."""
    return {"name": CODE, "emptyDir": {"sizeLimit": str(most_bytes)}}


def code_mount() -> dict[str, Any]:
    """Return the mount of that volume."""
    return {"name": CODE, "mountPath": FOLDER}


def code_container(
    lease: DesiredLease,
    *,
    image: str,
    env: list[dict[str, Any]],
    deadline_s: float,
    resources: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the container that brings the code.

    Args:
        lease: the lease.
        image: the image with the program.
        env: the agent's address, and the secret of the lease.
        deadline_s: see ``PodPlace``.
        resources: its requests and limits.
    """
    return {
        "name": CODE,
        "image": image,
        "command": ["python", "-I", "-m", "agent.bring_code", lease.upload, FOLDER],
        "env": [*env, {"name": "LEASEHOLD_DEADLINE_S", "value": f"{deadline_s:.3f}"}],
        "resources": dict(resources),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
        },
        "volumeMounts": [code_mount()],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def for_the_jobs_user(pod: Mapping[str, Any], *, otherwise: int) -> dict[str, Any]:
    """Return a pod in which the job's own user unpacks the code.

    Args:
        pod: with the job's template merged in.
        otherwise: the user that unpacks it for a job that runs as root.
    """
    spec = dict(pod["spec"])
    own = next(c for c in spec["containers"] if c["name"] == CONTAINER)
    told = (own.get("securityContext") or {}, spec.get("securityContext") or {})
    users = [context.get("runAsUser") for context in told]
    user = next((u for u in users if u is not None), otherwise)
    user = user if isinstance(user, int) and user > 0 else otherwise
    spec["initContainers"] = [
        c | {"securityContext": c["securityContext"] | {"runAsUser": user}}
        if c["name"] == CODE
        else c
        for c in spec["initContainers"]
    ]
    return {**pod, "spec": spec}


def check_awaited(record: PodRecord) -> None:
    """Refuse the code of a lease to a pod that does not need it any more.

    Raises:
        InputError: the job in it has begun, or the lease is over.
    """
    look = record.look
    if record.end is not None or record.orders.terminated or record.orders.killed:
        raise InputError("the lease is over")
    if look is not None and (look.running or look.job_over):
        raise InputError("the job has begun, and has its code")


def the_code(archive: bytes, lease: DesiredLease) -> bytes:
    """Return the fetched archive, if it is the code of the lease.

    Raises:
        InputError: it is another tree.
    """
    if digest_of(archive) != lease.upload:
        raise InputError(f"the scheduler sent another tree than {lease.upload}")
    return archive
