"""From a lease to the pod of its member on one node, and to the Service of its gang. Pure.

Everything here is plain JSON in Kubernetes' own words, so that it can be shown, compared and sent
without Kubernetes' client.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from agent.kubernetes.names import (
    attempt_labels,
    lease_annotations,
    lease_labels,
    pod_name,
    secret_of_pod,
    service_name,
)
from agent.kubernetes.pods.code import (
    FOLDER,
    check_code,
    code_container,
    code_mount,
    code_volume,
    for_the_jobs_user,
)
from agent.kubernetes.pods.figures import CODE, GUARD, resources_of
from agent.kubernetes.pods.launch import kubelet_literal, launch_command
from agent.kubernetes.templates.device_variables import chooses_devices
from agent.kubernetes.templates.options import pod_options
from agent.kubernetes.templates.template import (
    CONTAINER,
    RESERVED,
    check_template,
    merge_template,
    without_devices,
)
from scheduler.domain.jobs.trace_ids import TRACEPARENT, traceparent
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.kubernetes.templates.options import PodOptions
    from scheduler.protocol.desired import DesiredLease

#: The node label that pins a pod; unlike ``nodeName`` it does not bypass admission.
HOSTNAME: Final = "kubernetes.io/hostname"
#: The default user of a job: restricted pods must not run as root.
USER: Final = 1000
#: Seconds that the guard and the kubelet may need to end a job without an agent; see adr/0006.
GUARD_WINDOW_S: Final = 10.0
#: The default limit of a folder with uploaded code.
CODE_VOLUME_BYTES: Final = 2**30
_PROBE_EVERY_S, _PROBE_FAILURES = 2, 3
#: The prefix of resources that leave NVIDIA's devices of the same node unrestricted.
_OF_AMD = "amd.com/"
_SHM, _HOST_IP = RESERVED + "shm", "LEASEHOLD_HOST_IP"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWorker:
    """A worker as a pod asks for it.

    Attributes:
        worker_type: hardware class.
        resource: its name in Kubernetes, such as ``nvidia.com/gpu``; empty for workers that are not
            accelerators.
        sharing: ``exclusive``, ``time-slicing``, ``mps`` or ``visible``; see ``WorkerReport``.
        device: its name in NVIDIA_VISIBLE_DEVICES if it is ``visible``.
    """

    worker_type: str
    resource: str = "nvidia.com/gpu"
    sharing: str = "exclusive"
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """Settings of all pods of an installation.

    Attributes:
        namespace: of the jobs' pods.
        instance: name of the installation.
        default_image: for jobs that name none; empty: such jobs are refused.
        endpoint_port: the port on which pods reach the agent of their node; 0: they do not.
        endpoint_host: its address; empty: the node's, by the downward API.
        guard_image: image with this program, for the container that holds the lease's deadline
            when the agent cannot; empty: no such container. See docs/adr/0006.
        guard_port: port of that container in the pod.
        code_image: image with this program, for the container that brings uploaded code; empty:
            jobs that come with code are refused. See docs/adr/0022.
        guard_resources: figures of the guard's container that differ from ``figures.GUARD``.
        code_resources: figures of the code's container that differ from ``figures.CODE``.
        code_volume_bytes: most that the code, and what a job writes beside it, may take.
        tolerations: of every pod.
        runtime_class: of pods that see their devices without asking for a resource.
        foreign_pods: how other pods' resources are counted; see ``NodeWatch``.
        pod_security: least level that the namespace must enforce, or ``any``.
        image_pull_secrets: names of Secrets that every pod gets beside its job's own.
    """

    namespace: str = "leasehold-jobs"
    instance: str = "leasehold"
    default_image: str = ""
    endpoint_port: int = 8643
    endpoint_host: str = ""
    guard_image: str = ""
    guard_port: int = 8644
    code_image: str = ""
    guard_resources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    code_resources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    code_volume_bytes: int = CODE_VOLUME_BYTES
    tolerations: tuple[Mapping[str, Any], ...] = field(
        default=(MappingProxyType({"key": "nvidia.com/gpu", "operator": "Exists"}),)
    )
    runtime_class: str = "nvidia"
    foreign_pods: str = "watch"
    pod_security: str = "any"
    image_pull_secrets: tuple[str, ...] = ()

    def pull_secrets(self, own: Iterable[str]) -> list[dict[str, str]]:
        """Return a pod's ``imagePullSecrets``: those of its job first."""
        return [{"name": name} for name in dict.fromkeys((*own, *self.image_pull_secrets))]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlace:
    """The place of a pod.

    Attributes:
        node: the node's name.
        hostname: its label ``kubernetes.io/hostname``.
        workers: (n,) the lease's workers there.
        deadline_s: the lease's deadline on the node's clock since boot; 0 if it is not known yet.
    """

    node: str
    hostname: str
    workers: tuple[PodWorker, ...]
    deadline_s: float = 0.0


def build_pod(
    lease: DesiredLease, place: PodPlace, *, secret: str, settings: PodSettings
) -> dict[str, Any]:
    """Return the pod of a lease's member.

    Args:
        lease: the lease.
        place: the node and the workers there.
        secret: the pod identifies itself with it to the agent.
        settings: of the installation.

    Raises:
        InputError: the job names no image, or a setting of its pods cannot be used.
    """
    options = pod_options(lease.kubernetes)
    image = lease.image or settings.default_image
    if not image:
        raise InputError(
            f"job '{lease.job_id}' names no image, and pods need one; give it an image, or give "
            "the installation a default: --default-image"
        )
    if lease.progress_file is not None:
        raise InputError(
            f"field 'progress_file' is {lease.progress_file!r}: no agent reads the files of a pod; "
            "print the progress and give progress_regex"
        )
    check_code(lease, image=settings.code_image, port=settings.endpoint_port)
    accelerators = frozenset(worker.resource for worker in place.workers if worker.resource)
    check_template(options.template, accelerators=accelerators)
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(lease.job_id, lease.attempt, lease.rank),
            "namespace": settings.namespace,
            "labels": lease_labels(lease, node=place.node, instance=settings.instance),
            "annotations": lease_annotations(lease),
        },
        "spec": _spec(lease, place, options, settings)
        | {"containers": [_container(lease, place, options, settings, image=image, secret=secret)]},
    }
    before = [*_guards(place, settings, secret), *_bringers(lease, place, settings, secret)]
    if before:
        pod["spec"]["initContainers"] = before
    template = {key: part for key, part in options.template.items() if key in {"metadata", "spec"}}
    made = without_devices(merge_template(pod, template))
    return for_the_jobs_user(made, otherwise=USER) if lease.upload else made


def secret_names(lease: DesiredLease) -> list[str]:
    """Return the names of the secret variables that its containers get."""
    return [name for name in lease.secret_env if not chooses_devices(name)]


def secret_name(lease: DesiredLease, *, secret: str) -> str:
    """Return the name of the Secret with a pod's secret variables.

    It cannot be guessed without reading the pod: other pods of the namespace cannot ask for it.
    """
    random = hashlib.sha256(b"secret of\0" + secret.encode()).hexdigest()[:20]
    return secret_of_pod(pod_name(lease.job_id, lease.attempt, lease.rank), random)


def build_secret(
    lease: DesiredLease, *, secret: str, owner_uid: str, settings: PodSettings
) -> dict[str, Any] | None:
    """Return the Secret with a pod's secret variables; None if it has none.

    Args:
        lease: the lease.
        secret: the pod identifies itself with it to the agent.
        owner_uid: uid of the pod; the Secret is deleted with it.
        settings: of the installation.
    """
    names = secret_names(lease)
    if not names:
        return None
    owner = pod_name(lease.job_id, lease.attempt, lease.rank)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": {
            "name": secret_name(lease, secret=secret),
            "namespace": settings.namespace,
            "labels": attempt_labels(lease, instance=settings.instance),
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner_uid}
            ],
        },
        "stringData": {name: lease.secret_env[name] for name in names},
    }


def build_service(
    lease: DesiredLease, *, owner_uid: str, settings: PodSettings
) -> dict[str, Any] | None:
    """Return the headless Service by which the members of a gang find one another.

    Args:
        lease: the lease of rank 0's member.
        owner_uid: uid of that member's pod; the Service is deleted with it.
        settings: of the installation.

    Returns:
        the Service; None if the gang lies on one node.
    """
    if len(lease.gang) < 2:
        return None
    labels = attempt_labels(lease, instance=settings.instance)
    owner = pod_name(lease.job_id, lease.attempt, 0)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(lease.job_id, lease.attempt),
            "namespace": settings.namespace,
            "labels": labels,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner_uid}
            ],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [{"name": "master", "port": lease.master_port, "protocol": "TCP"}],
        },
    }


def _spec(
    lease: DesiredLease, place: PodPlace, options: PodOptions, settings: PodSettings
) -> dict[str, Any]:
    shm: dict[str, Any] = {"medium": "Memory"}
    if options.shm_bytes is not None:
        shm["sizeLimit"] = str(options.shm_bytes)
    claims = list(dict.fromkeys(mount.claim for mount in options.volumes))
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": max(math.ceil(lease.grace_s), 1),  # 0 would force
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": {HOSTNAME: place.hostname},
        "hostname": pod_name(lease.job_id, lease.attempt, lease.rank),
        "tolerations": [*map(dict, settings.tolerations), *map(dict, options.tolerations)],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [
            {"name": _SHM, "emptyDir": shm},
            *(
                {"name": _claim_name(n), "persistentVolumeClaim": {"claimName": claim}}
                for n, claim in enumerate(claims)
            ),
            *([code_volume(settings.code_volume_bytes)] if lease.upload else []),
        ],
    }
    if len(lease.gang) > 1:
        spec["subdomain"] = service_name(lease.job_id, lease.attempt)
    if options.service_account:
        spec["serviceAccountName"] = options.service_account
    if secrets := settings.pull_secrets(options.image_pull_secrets):
        spec["imagePullSecrets"] = secrets
    if runtime_class := options.runtime_class or _runtime_class(place, settings):
        spec["runtimeClassName"] = runtime_class
    return spec


def _runtime_class(place: PodPlace, settings: PodSettings) -> str:
    visible = any(w.resource and w.sharing == "visible" for w in place.workers)
    return settings.runtime_class if visible else ""


def _container(
    lease: DesiredLease,
    place: PodPlace,
    options: PodOptions,
    settings: PodSettings,
    *,
    image: str,
    secret: str,
) -> dict[str, Any]:
    claims = list(dict.fromkeys(mount.claim for mount in options.volumes))
    mounts: list[dict[str, Any]] = [{"name": _SHM, "mountPath": "/dev/shm"}]  # noqa: S108
    for mount in options.volumes:
        at: dict[str, Any] = {
            "name": _claim_name(claims.index(mount.claim)),
            "mountPath": mount.path,
        }
        at |= {"readOnly": True} if mount.read_only else {}
        mounts.append(at | ({"subPath": mount.sub_path} if mount.sub_path else {}))
    if lease.upload:
        mounts.append(code_mount())
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": image,
        "command": launch_command(lease, options.launch),
        "env": _environment(lease, place, options, settings, secret=secret),
        "resources": _resources(lease, place, options),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if options.image_pull_policy:
        container["imagePullPolicy"] = options.image_pull_policy
    if lease.upload:
        container["workingDir"] = FOLDER
    elif lease.working_dir not in {"", "/"}:
        container["workingDir"] = lease.working_dir
    if settings.guard_image and settings.endpoint_port:
        container["livenessProbe"] = {
            "httpGet": {"path": "/lease", "port": settings.guard_port},
            "periodSeconds": _PROBE_EVERY_S,
            "failureThreshold": _PROBE_FAILURES,
            "timeoutSeconds": _PROBE_EVERY_S,
            "terminationGracePeriodSeconds": 1,
        }
    return container


def _resources(
    lease: DesiredLease, place: PodPlace, options: PodOptions
) -> dict[str, dict[str, str]]:
    limits = {
        resource: str(count)
        for resource, count in sorted(
            Counter(w.resource for w in place.workers if w.sharing != "visible").items()
        )
        if resource
    }
    accelerators = dict(limits)
    if lease.cpus is not None:
        limits["cpu"] = f"{math.ceil(lease.cpus * 1000)}m"
    if lease.memory_bytes is not None:
        limits["memory"] = str(lease.memory_bytes)
    for name, value in options.requests.items():
        if name.startswith(("nvidia.com/", "amd.com/")):
            raise InputError(
                f"field 'kubernetes.requests.{name}' is {value!r}: the scheduler asks for "
                "accelerators; use the job's field 'scale_factor'"
            )
    requests = dict(options.requests) | accelerators
    return {part: values for part, values in (("limits", limits), ("requests", requests)) if values}


def _environment(
    lease: DesiredLease,
    place: PodPlace,
    options: PodOptions,
    settings: PodSettings,
    *,
    secret: str,
) -> list[dict[str, Any]]:
    """Return the variables; those of the node's address first, since others refer to them."""
    own = {
        name: kubelet_literal(value)
        for name, value in lease.env.items()
        if not chooses_devices(name)
    }
    told: dict[str, object] = {"PYTHONUNBUFFERED": "1"}
    told |= {TRACEPARENT: traceparent(lease.job_id, lease.attempt)} | own
    told |= _gang_environment(lease, options)
    told |= {
        "LEASEHOLD_JOB_ID": lease.job_id,
        "LEASEHOLD_LEASE_ID": lease.lease_id,
        "LEASEHOLD_ATTEMPT": lease.attempt,
        "LEASEHOLD_FENCING_TOKEN": lease.token,
        "LEASEHOLD_STEPS_DONE": lease.steps_done,
        "LEASEHOLD_TOTAL_STEPS": lease.total_steps,
        "LEASEHOLD_CHECKPOINT_DIR": lease.checkpoint_dir,
        "LEASEHOLD_GRACE_S": lease.grace_s,
        "LEASEHOLD_PLAN": lease.plan or None,
        "LEASEHOLD_WORKER_TYPE": ",".join(dict.fromkeys(w.worker_type for w in place.workers)),
    }
    devices = _visible_devices(place)
    if devices is not None:
        told["NVIDIA_VISIBLE_DEVICES"] = devices
    plain = [{"name": name, "value": str(v)} for name, v in told.items() if v is not None]
    kept = secret_name(lease, secret=secret)
    secrets = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": kept, "key": name}}}
        for name in secret_names(lease)
        if name not in told
    ]
    return [*secrets, *plain, *_endpoint_environment(settings, secret)]


def _gang_environment(lease: DesiredLease, options: PodOptions) -> dict[str, object]:
    """Return the variables for launchers: plain ranks, torchrun's, and hosts as for MPI."""
    gang = lease.gang or (len(lease.local_ranks),)
    firsts = (0, *accumulate(gang))[: len(gang)]
    domain = service_name(lease.job_id, lease.attempt)
    hosts = [f"{pod_name(lease.job_id, lease.attempt, first)}.{domain}" for first in firsts]
    master = hosts[0] if len(gang) > 1 else "127.0.0.1"
    told: dict[str, object] = {
        "RANK": lease.rank,
        "WORLD_SIZE": lease.world_size,
        "LOCAL_RANK": lease.local_ranks[0],
        "LOCAL_WORLD_SIZE": len(lease.local_ranks),
        "NODE_RANK": lease.node_rank,
        "GROUP_RANK": lease.node_rank,
        "MASTER_ADDR": master,
        "MASTER_PORT": lease.master_port,
    }
    if len(gang) > 1:
        slots = (f"{host}:{count}" for host, count in zip(hosts, gang, strict=True))
        told["LEASEHOLD_HOSTS"] = ",".join(slots)
    if options.launch == "per-node":
        told |= {
            "PET_NNODES": len(gang),
            "PET_NPROC_PER_NODE": len(lease.local_ranks),
            "PET_NODE_RANK": lease.node_rank,
            "PET_MASTER_ADDR": master,
            "PET_MASTER_PORT": lease.master_port,
        }
    return told


def _visible_devices(place: PodPlace) -> str | None:
    """Return the devices that the container runtime must show; None: the plugin's choice."""
    plugged = [w for w in place.workers if w.resource and w.sharing != "visible"]
    if any(not worker.resource.startswith(_OF_AMD) for worker in plugged):
        return None
    shown = [w.device for w in place.workers if w.resource and w.sharing == "visible"]
    return ",".join(shown) if shown else "void"  # an image may say "all"


def _endpoint_environment(settings: PodSettings, secret: str) -> list[dict[str, Any]]:
    if not settings.endpoint_port:
        return []
    told: list[dict[str, Any]] = []
    host = settings.endpoint_host
    if not host:
        source = {"fieldRef": {"fieldPath": "status.hostIP"}}
        told.append({"name": _HOST_IP, "valueFrom": source})
        host = f"$({_HOST_IP})"
    address = f"tcp://{host}:{settings.endpoint_port}"
    told.append({"name": "LEASEHOLD_ENDPOINT", "value": address})
    told.append({"name": "LEASEHOLD_SECRET", "value": secret})
    return told


def _guards(place: PodPlace, settings: PodSettings, secret: str) -> list[dict[str, Any]]:
    """Return the container that outlives the agent and knows the lease's deadline."""
    if not (settings.guard_image and settings.endpoint_port):
        return []
    guard = {
        "name": RESERVED + "guard",
        "image": settings.guard_image,
        "restartPolicy": "Always",  # which makes it a sidecar: it ends with the job
        "command": ["python", "-I", "-m", "agent.guard", str(settings.guard_port)],
        "env": [
            *_endpoint_environment(settings, secret),
            {"name": "LEASEHOLD_DEADLINE_S", "value": f"{place.deadline_s:.3f}"},
        ],
        "resources": resources_of({**GUARD, **settings.guard_resources}),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsUser": USER,
        },
    }
    return [guard]


def _bringers(
    lease: DesiredLease, place: PodPlace, settings: PodSettings, secret: str
) -> list[dict[str, Any]]:
    """Return the container that brings the code, for a job that comes with some."""
    if not lease.upload:
        return []
    env = _endpoint_environment(settings, secret)
    return [
        code_container(
            lease,
            image=settings.code_image,
            env=env,
            deadline_s=place.deadline_s,
            resources=resources_of({**CODE, **settings.code_resources}),
        )
    ]


def _claim_name(position: int) -> str:
    return f"{RESERVED}claim-{position}"
