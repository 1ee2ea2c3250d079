"""The objects that belong to a pod: its Secret of variables, and the Service of its gang.

Both are made until they exist, also by the next agent, and again after a deletion by hand.
Without the Secret the job's container never starts, and without the Service the members of a gang
wait for one another with their GPUs.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from agent.clock import lease_clock_s
from agent.kubernetes.client import (
    ExistsError,
    KubernetesError,
    KubernetesUnreachableError,
    MissingError,
    PermissionDeniedError,
)
from agent.kubernetes.names import HIDDEN
from agent.kubernetes.pods.pods import build_secret, build_service

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.kubernetes.client import KubernetesClient
    from agent.kubernetes.pods.pods import PodSettings
    from agent.kubernetes.pods.record import PodRecord

#: Between two checks that the Service of a gang is still there.
SERVICE_EVERY_S: Final = 30.0
#: What a kubelet says of a container whose Secret is missing.
_UNCONFIGURED: Final = "CreateContainerConfigError"


class PodObjects:
    """Makes the objects beside pods.

    Args:
        client: the way to the API server.
        settings: of the pods.
        note: takes in the problem of a part of the work; an empty text: there is none any more.
        on_change: called when there is something new to report.
    """

    def __init__(
        self,
        *,
        client: KubernetesClient,
        settings: PodSettings,
        note: Callable[[str, str], None],
        on_change: Callable[[], None],
    ) -> None:
        self._client, self._settings = client, settings
        self._note, self._on_change = note, on_change

    async def keep(self, record: PodRecord) -> None:
        """Make what a lease's pod lacks, and tell what prevents it as the lease's trouble.

        Raises:
            KubernetesError: something could not be made; try again.
        """
        if record.over:
            return
        try:
            await self._keep_secret(record)
            await self._keep_service(record)
        except KubernetesError as error:
            word = error.reason or type(error).__name__.removesuffix("Error")
            if isinstance(error, KubernetesUnreachableError):
                word = "ApiUnavailable"
            self._tell(record, (word, str(error)))
            raise
        if record.lacks is not None:
            self._tell(record, None)
            self._note("create", "")

    def _tell(self, record: PodRecord, lacks: tuple[str, str] | None) -> None:
        if record.lacks != lacks:
            record.lacks = lacks
            self._on_change()

    async def _keep_secret(self, record: PodRecord) -> None:
        """Create the Secret that the pod waits for, and which is deleted with it.

        It cannot be read, since agents read no Secrets. So it is made once, and again only if the
        kubelet misses it: a full quota refuses also a Secret that exists already.
        """
        look = record.look
        if look is not None and look.started_s is not None:
            if record.lease.secret_env:
                record.lease = replace(record.lease, secret_env={})  # needed no more
            return
        missed = look is not None and look.reason_code == _UNCONFIGURED and HIDDEN in look.message
        if record.secret_made and not missed:
            return
        secret = build_secret(
            record.lease,
            secret=record.tenant.secret,
            owner_uid=record.uid,
            settings=self._settings,
        )
        if secret is None:
            return
        with contextlib.suppress(ExistsError):
            await self._client.create_object("secrets", secret)
            record.troubled_s = None if record.troubled_s is None else lease_clock_s()
        record.secret_made = True

    async def _keep_service(self, record: PodRecord) -> None:
        """Create the Service of a gang if it is missing; it is deleted with the pod of rank 0."""
        if record.lease.rank or len(record.lease.gang) < 2:
            return
        if lease_clock_s() < record.service_due_s:
            return
        service = build_service(record.lease, owner_uid=record.uid, settings=self._settings)
        if service is not None and not await self._is_there(record, service["metadata"]["name"]):
            with contextlib.suppress(ExistsError):
                await self._client.create_object("services", service)
        record.service_due_s = lease_clock_s() + SERVICE_EVERY_S

    async def _is_there(self, record: PodRecord, name: str) -> bool:
        """Return whether a Service is there, or was made by an agent that may not read any."""
        try:
            await self._client.read_object("services", self._settings.namespace, name)
        except MissingError:
            return False
        except PermissionDeniedError as error:
            self._note("services", f"deleted Services of gangs are not made again: {error}")
            return record.service_due_s > -math.inf
        self._note("services", "")
        return True
