"""Requests to the API server for one lease: its pod, related objects, and its end.

Every request may be repeated: an object that exists already, or is gone already, counts as done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from agent.clock import lease_clock_s
from agent.kubernetes.client import (
    AdmissionRefusedError,
    ExistsError,
    KubernetesError,
    MissingError,
)
from agent.kubernetes.names import (
    ENDING,
    JOB_ENDED,
    lease_labels,
    lease_of,
    pod_name,
    uid_of,
)
from agent.kubernetes.pods.figures import of_ours, own_refusal
from agent.kubernetes.pods.objects import PodObjects
from agent.kubernetes.pods.owner import PodOwner
from agent.kubernetes.pods.record import asked_for
from scheduler.domain.lease_life import EndReason

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from pathlib import Path

    from agent.kubernetes.client import KubernetesClient
    from agent.kubernetes.pods.pods import PodSettings
    from agent.kubernetes.pods.record import PodRecord
    from scheduler.protocol.desired import DesiredLease

_log = logging.getLogger("leasehold.agent")


class PodRequests:
    """Creates pods and related objects, and deletes them.

    Args:
        client: the way to the API server.
        node: name of the node.
        settings: of the pods.
        pod_of: builds a lease's pod.
        see: takes in a pod as it is, and whether it is gone.
        note: takes in the problem of a part of the work; an empty text: there is none any more.
        on_change: called when there is something new to report.
        trouble_s: how long a pod of another lease may block the name.
        force_after_s: see ``KubernetesBackend``.
    """

    def __init__(
        self,
        *,
        client: KubernetesClient,
        node: str,
        settings: PodSettings,
        pod_of: Callable[[PodRecord], dict[str, Any]],
        see: Callable[[PodRecord, Mapping[str, Any], bool], None],
        note: Callable[[str, str], None],
        on_change: Callable[[], None],
        trouble_s: float,
        force_after_s: float,
    ) -> None:
        self._client, self._node, self._settings, self._pod_of = client, node, settings, pod_of
        self._see, self._note, self._on_change = see, note, on_change
        self._trouble_s, self._force_after_s = trouble_s, force_after_s
        self._owner = PodOwner(client=client, settings=settings, note=note)
        self._objects = PodObjects(client=client, settings=settings, note=note, on_change=on_change)

    async def make(self, record: PodRecord) -> None:
        """Create the missing objects of a lease at the API server."""
        if record.pod is None:
            await self._create(record)
        else:
            await self._objects.keep(record)

    async def _create(self, record: PodRecord) -> None:
        pod = self._pod_of(record)
        await self._owner.take(pod)
        first, record.asked = not record.asked, True
        if first:
            record.save()  # before: if this agent dies now, the next one must not create it again
        try:
            made = await self._client.create_object("pods", pod)
        except ExistsError:
            made = await self._read_pod(record.name)
            if lease_of(made) != lease_of(pod):
                await self._replace(record, made)
                return
        except KubernetesError as error:
            if first and HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                record.asked = False  # it was refused, so there is none
                record.save(needed=False)
            if isinstance(error, AdmissionRefusedError) and of_ours(error, pod):
                raise own_refusal(error) from error
            raise
        record.reason_code = record.message = ""
        if record.pod is None:
            self._see(record, made, False)
        record.unseen |= bool(self._lost_labels(record, made))
        self._note("create", "")
        await self._objects.keep(record)

    async def unlisted(
        self, folder: Path, known: Container[int]
    ) -> list[tuple[dict[str, Any], DesiredLease]]:
        """Return pods, with their leases, of earlier agents that no list shows.

        They have lost our labels.

        Args:
            folder: of the records.
            known: ids of the leases with listed pods.
        """
        found = []
        for _, lease, uid in tuple(asked_for(folder, known=known)):
            name = pod_name(lease.job_id, lease.attempt, lease.rank)
            with contextlib.suppress(MissingError):
                pod = await self._read_pod(name)
                if uid_of(pod) == uid:
                    found.append((pod, lease))
        return found

    async def find(self, record: PodRecord) -> None:
        """Check whether a pod that the watch does not show is gone; if not, restore its labels.

        A pod is gone if there is none of its name, or one with another uid.
        """
        try:
            pod = await self._read_pod(record.name)
        except MissingError:
            pod = {}
        if uid_of(pod) != record.uid:
            record.unseen = False
            self._see(record, record.pod or {}, True)
            return
        lost = self._lost_labels(record, pod)
        record.unseen = bool(lost)  # until a check finds them in place
        self._see(record, pod, False)
        trouble = f"pod {record.name} has lost labels: {', '.join(lost)}; they are restored"
        self._note(f"labels of {record.name}", trouble if lost else "")
        if lost:
            await self._client.label_pod(
                self._settings.namespace, record.name, lost, uid=record.uid
            )

    async def _read_pod(self, name: str) -> dict[str, Any]:
        return await self._client.read_object("pods", self._settings.namespace, name)

    def _lost_labels(self, record: PodRecord, pod: Mapping[str, Any]) -> dict[str, str]:
        """Return our labels that a pod lacks, or has with other values."""
        has = (pod.get("metadata") or {}).get("labels") or {}
        wanted = lease_labels(record.lease, node=self._node, instance=self._settings.instance)
        return {name: value for name, value in wanted.items() if has.get(name) != value}

    async def _replace(self, record: PodRecord, other: Mapping[str, Any]) -> None:
        """Handle a pod of another lease under our name, such as of a restored database."""
        record.reason_code = "AlreadyExists"
        record.message = f"pod {record.name} belongs to another lease"
        if record.troubled_s is None:
            record.troubled_s = lease_clock_s()
        if lease_clock_s() - record.troubled_s > self._trouble_s:
            record.close(EndReason.LOST, record.message)
        self._on_change()
        _log.warning("%s (%s)", record.message, lease_of(other))

    async def end(self, record: PodRecord) -> None:
        """Delete a lease's pod, or find out that there never was one."""
        if record.pod is None:
            if record.asked:
                try:
                    pod = await self._read_pod(record.name)
                except MissingError:
                    pod = {}
                if lease_of(pod)[0] == record.lease.lease_id:
                    self._see(record, pod, False)
                    return
            record.output_over = True
            record.close()
            self._on_change()
            return
        if record.kill_s is None:
            await self.delete(record)
            return
        late = lease_clock_s() - record.kill_s > self._force_after_s
        force = late and bool(record.lease.kubernetes.get("force_delete"))
        await self.delete(record, 0 if force else 1)

    async def delete(self, record: PodRecord, grace_s: int | None = None) -> None:
        """Request the pod's deletion, unless it was requested with as little grace already.

        Args:
            record: of its lease.
            grace_s: until its processes are killed; None: the job's own grace.
        """
        if grace_s is None:
            grace_s = max(math.ceil(record.lease.grace_s), 1)
        if record.grace_s is not None and record.grace_s <= grace_s:
            return
        if record.grace_s is None and record.end is None:
            await self._tell_why(record)
        if record.deleted_s is None:
            record.deleted_s = lease_clock_s()
        found = await self._client.delete_pod(
            self._settings.namespace, record.name, uid=record.uid, grace_s=grace_s
        )
        record.grace_s = grace_s
        if not found and record.pod is not None and not record.gone:
            self._see(record, record.pod, True)

    async def _tell_why(self, record: PodRecord) -> None:
        """Annotate the pod with the reason. Its deletion waits for that only if the job is over."""
        if record.terminated_s is None and record.kill_s is None:
            await self._annotate(record, JOB_ENDED)  # else the deletion would count as its end
            return
        why = "the lease is no longer desired" if record.unwanted else "the lease ends"
        with contextlib.suppress(KubernetesError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._annotate(record, why)

    async def _annotate(self, record: PodRecord, why: str) -> None:
        await self._client.annotate_pod(
            self._settings.namespace, record.name, {ENDING: why}, uid=record.uid
        )
