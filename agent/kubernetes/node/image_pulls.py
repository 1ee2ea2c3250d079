"""Images that are pulled before a job needs them: by a short-lived pod without a worker.

Only the kubelet can put an image on its node, and only for a pod. Such a pod runs nothing. Its
command may be missing in the image, but by then the image is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
from typing import TYPE_CHECKING, Any, Final

from agent.clock import lease_clock_s
from agent.kubernetes.client import ExistsError, KubernetesError, MissingError
from agent.kubernetes.names import AGENT, HASH_DIGITS, INSTANCE, MANAGED_BY, OWN, label_value
from agent.kubernetes.pods.owner import PodOwner
from agent.kubernetes.pods.pods import HOSTNAME, USER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.kubernetes.client import KubernetesClient
    from agent.kubernetes.pods.pods import PodSettings
    from scheduler.protocol.desired import DesiredImage

_log = logging.getLogger("leasehold.agent")

#: The node that a pod pulls for. Its own label, since such a pod belongs to no job.
PULL_NODE: Final = OWN + "pull-node"
#: Between two checks of a pull, and the longest pull.
LOOK_EVERY_S: Final = 2.0
PULL_MOST_S: Final = 1800
#: The wait before a failed pull is tried again.
AGAIN_S: Final = 600.0
#: Waiting reasons of a container while its image is on the way, or cannot be had.
_COMING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_FAILING: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName"})


def full_name(image: str) -> str:
    """Return an image's name as nodes list it: with registry and tag."""
    path, at, digest = image.partition("@")
    first, slash, _ = path.partition("/")
    if not slash:
        path = f"docker.io/library/{path}"
    elif first != "localhost" and not set(first) & {".", ":"}:
        path = f"docker.io/{path}"
    if not at and ":" not in path.rpartition("/")[2]:
        path += ":latest"
    return f"{path}{at}{digest}"


def present_images(node: Mapping[str, Any]) -> set[str]:
    """Return the images that a Node object lists, by their full names; a kubelet lists 50."""
    images = (node.get("status") or {}).get("images") or []
    return {full_name(str(name)) for image in images for name in image.get("names") or []}


def build_pull_pod(
    image: DesiredImage, *, node: str, hostname: str, settings: PodSettings
) -> dict[str, Any]:
    """Return the pod that brings an image to a node. Pure.

    Args:
        image: the image.
        node: the node's name.
        hostname: its label ``kubernetes.io/hostname``.
        settings: of the installation.
    """
    digest = hashlib.sha256(f"{settings.instance} {node} {image.name}".encode()).hexdigest()
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": PULL_MOST_S,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": {HOSTNAME: hostname},
        "tolerations": [dict(toleration) for toleration in settings.tolerations],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "pull",
                "image": image.name,
                "imagePullPolicy": "IfNotPresent",
                "command": ["true"],
                # Some images ask to see all devices of the node.
                "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
                "resources": {
                    "requests": {"cpu": "1m", "memory": "8Mi"},
                    "limits": {"cpu": "100m", "memory": "32Mi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
    }
    if secrets := settings.pull_secrets(image.pull_secrets):
        spec["imagePullSecrets"] = secrets
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"leasehold-pull-{digest[: 2 * HASH_DIGITS]}",
            "namespace": settings.namespace,
            "labels": pull_labels(node=node, settings=settings)
            | {"app.kubernetes.io/name": "leasehold-pull", "app.kubernetes.io/component": "pull"},
            "annotations": {OWN + "image": image.name},
        },
        "spec": spec,
    }


def pull_labels(*, node: str, settings: PodSettings) -> dict[str, str]:
    """Return the labels of the pods that pull for a node."""
    return {
        INSTANCE: label_value(settings.instance),
        MANAGED_BY: AGENT,
        PULL_NODE: label_value(node),
    }


def pull_outcome(pod: Mapping[str, Any]) -> bool | None:
    """Return whether a pod has brought its image; None while that is open."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or []:
        waiting = str(((container.get("state") or {}).get("waiting") or {}).get("reason") or "")
        if container.get("imageID") or waiting not in _COMING | _FAILING:
            return True
        if waiting in _FAILING:
            return False
    phase = status.get("phase")
    return {"Succeeded": True, "Failed": False}.get(str(phase))


class ImagePuller:
    """Brings images to a node, one at a time. If it fails, jobs pull images themselves.

    Args:
        client: the way to the API server.
        node: the node's name.
        node_object: returns the Node as last read.
        hostname: returns the label that pins pods to the node.
        settings: of the pods.
        look_every_s: between two checks of a pull.
    """

    def __init__(
        self,
        *,
        client: KubernetesClient,
        node: str,
        node_object: Callable[[], Mapping[str, Any]],
        hostname: Callable[[], str],
        settings: PodSettings,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._client, self._node, self._settings = client, node, settings
        self._node_object, self._hostname = node_object, hostname
        self._look_every_s = look_every_s
        self._owner = PodOwner(client=client, settings=settings, note=lambda _, __: None)
        self._wanted: tuple[DesiredImage, ...] = ()
        self._news = asyncio.Event()
        #: image -> the earliest time of its next pull, on the lease clock.
        self._not_before: dict[str, float] = {}
        self._swept = False

    def want(self, images: tuple[DesiredImage, ...]) -> None:
        """Note images that the node may soon need."""
        if images != self._wanted:
            self._wanted = images
            self._news.set()

    async def run(self) -> None:
        """Pull wanted images until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S if self._wanted else None):
                    await self._news.wait()
            try:
                await self._sweep()
                image = self._next()
                if image is None:
                    self._news.clear()
                else:
                    await self._pull(image)
            except KubernetesError as error:
                _log.info("images are not pulled ahead: %s", error)
                await asyncio.sleep(10 * self._look_every_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load

    def _next(self) -> DesiredImage | None:
        present, now_s = present_images(self._node_object()), lease_clock_s()
        for image in self._wanted:
            if full_name(image.name) in present:
                continue
            if self._not_before.get(image.name, 0.0) <= now_s:
                return image
        return None

    async def _sweep(self) -> None:
        """Delete the pods that an earlier agent has left."""
        if self._swept:
            return
        labels = pull_labels(node=self._node, settings=self._settings)
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        pods, _ = await self._client.pods(namespace=self._settings.namespace, labels=selector)
        for pod in pods:
            await self._delete(pod)
        self._swept = True

    async def _pull(self, image: DesiredImage) -> None:
        pod = build_pull_pod(
            image, node=self._node, hostname=self._hostname(), settings=self._settings
        )
        namespace, name = self._settings.namespace, pod["metadata"]["name"]
        await self._owner.take(pod)
        self._swept = False  # until the pod is deleted
        try:
            made = await self._client.create_object("pods", pod)
        except ExistsError:
            made = await self._client.read_object("pods", namespace, name)
        began_s = lease_clock_s()
        self._not_before[image.name] = began_s + AGAIN_S
        end_s = began_s + PULL_MOST_S
        try:
            while (brought := pull_outcome(made)) is None and lease_clock_s() < end_s:
                await asyncio.sleep(self._look_every_s)
                made = await self._client.read_object("pods", namespace, name)
        except MissingError:
            return  # another client has deleted it
        await self._delete(made)
        self._swept = True
        if brought:
            self._not_before[image.name] = lease_clock_s() + PULL_MOST_S
            _log.info("image %s was pulled in %.0f s", image.name, lease_clock_s() - began_s)
        else:
            _log.info("image %s could not be pulled ahead", image.name)

    async def _delete(self, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        await self._client.delete_pod(
            self._settings.namespace, metadata["name"], uid=metadata["uid"], grace_s=1
        )
