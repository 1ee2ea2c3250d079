"""The object that owns the pods of an installation, so that they count as managed.

``kubectl drain`` evicts no pod without a controller unless it is forced. Any kind of controller is
good enough for it, but the garbage collector deletes the pods of an owner that is gone. So there is
one Lease for the whole installation, and neither agents nor the chart ever delete it.

It is not the Node, which is there anyway: Karpenter takes the pods of a Node for static pods, and
removes their node as an empty one. It is not a ConfigMap either: those hold data of users, which an
agent need not be able to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.kubernetes.client import (
    ExistsError,
    KubernetesError,
    KubernetesUnreachableError,
    MissingError,
)
from agent.kubernetes.names import AGENT, INSTANCE, MANAGED_BY, OWN, label_value, owner_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.kubernetes.client import KubernetesClient
    from agent.kubernetes.pods.pods import PodSettings

_ABOUT = "This object owns the pods of all jobs. If it is deleted, Kubernetes deletes them."


class PodOwner:
    """Makes the owner of the pods, and names it in pods.

    Args:
        client: the way to the API server.
        settings: of the pods.
        note: takes in a problem; an empty text: there is none any more.
    """

    def __init__(
        self, *, client: KubernetesClient, settings: PodSettings, note: Callable[[str, str], None]
    ) -> None:
        self._client, self._settings, self._note = client, settings, note

    async def take(self, pod: dict[str, Any]) -> None:
        """Enter the owner into a pod that is about to be made.

        It is read each time: an owner that is gone would take the new pod with it. An agent without
        the right to do so makes pods without an owner, as before.

        Raises:
            KubernetesUnreachableError: no answer; try again.
        """
        try:
            found = await self._found()
        except KubernetesUnreachableError:
            raise
        except KubernetesError as error:
            self._note("owner", f"`kubectl drain` needs --force, as pods have no owner: {error}")
            return
        self._note("owner", "")
        pod["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "name": owner_name(self._settings.instance),
                "uid": found["metadata"]["uid"],
                "controller": True,
            }
        ]

    async def _found(self) -> dict[str, Any]:
        namespace, name = self._settings.namespace, owner_name(self._settings.instance)
        try:
            return await self._client.read_object("leases", namespace, name)
        except MissingError:
            pass
        try:
            return await self._client.create_object("leases", build_owner(self._settings))
        except ExistsError:  # another agent was faster
            return await self._client.read_object("leases", namespace, name)


def build_owner(settings: PodSettings) -> dict[str, Any]:
    """Return the owner of an installation's pods, as it is made."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": owner_name(settings.instance),
            "namespace": settings.namespace,
            "labels": {
                "app.kubernetes.io/name": "leasehold-pods",
                INSTANCE: label_value(settings.instance),
                MANAGED_BY: AGENT,
            },
            "annotations": {OWN + "about": _ABOUT},
        },
        "spec": {},
    }
