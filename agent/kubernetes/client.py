"""The only module that knows Kubernetes' client: plain objects in and out, typed errors.

Requests go through the asynchronous client of the official package, but without its models, which
cost more per object than everything else here. The package provides the connection to the server:
addresses, certificates, and tokens that are read again when they change.
"""

from __future__ import annotations

import asyncio
import json
import random
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from agent.client_settings import ClientSettings
from scheduler.errors import InputError, LeaseholdError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence

    from aiohttp import ClientWebSocketResponse
    from kubernetes.aio.client import ApiClient
    from kubernetes.aio.client.rest import RESTResponse

#: The name of the last writer of an object's field.
FIELD_MANAGER: Final = "leasehold-agent"
#: Objects of one page of a list.
PAGE: Final = 500
_MERGE_PATCH: Final = "application/merge-patch+json"
_RETRIED: Final = frozenset({429, 500, 502, 503, 504})


class KubernetesError(LeaseholdError):
    """The API server refused a request, or could not be asked.

    Attributes:
        status: HTTP status; 0 if there was no answer.
        reason: Kubernetes' word for it, such as ``Forbidden`` or ``AlreadyExists``.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class KubernetesUnreachableError(KubernetesError):
    """No answer, or one that asks to retry; the same request may succeed later."""


class PermissionDeniedError(KubernetesError):
    """The account of this agent may not do this; names the verb and the resource."""


class QuotaExceededError(KubernetesError):
    """A quota of the namespace is used up; the same request may succeed later."""


class AdmissionRefusedError(KubernetesError):
    """The object was checked and refused: by a webhook, a policy, or as invalid."""


class ExistsError(KubernetesError):
    """An object of that name exists already."""


class GoneError(KubernetesError):
    """The version to watch from is too old; list again."""


class MissingError(KubernetesError):
    """There is no such object."""


async def connect_client(
    *, kubeconfig: Path | None = None, context: str = "", settings: ClientSettings | None = None
) -> KubernetesClient:
    """Return a client of the cluster that this process runs in, or that a file describes.

    Args:
        kubeconfig: the file; None: the pod's own account, or else the user's own file.
        context: the context of the file; empty: its current one.
        settings: times.

    Raises:
        InputError: there is neither, or the file cannot be used.
    """
    from kubernetes.aio import client, config  # noqa: PLC0415 - takes half a second

    configuration = client.Configuration()
    try:
        if kubeconfig is None and _has_account(config.incluster_config.SERVICE_TOKEN_FILENAME):
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=None if kubeconfig is None else str(kubeconfig),
                context=context or None,
                client_configuration=configuration,
            )
    except (config.ConfigException, OSError) as error:
        where = "in this pod and in ~/.kube/config" if kubeconfig is None else f"in {kubeconfig}"
        raise InputError(
            f"no usable account of a Kubernetes cluster is {where}: {error}; "
            "run in a pod with a service account, or give --kubeconfig FILE"
        ) from error
    return KubernetesClient(client.ApiClient(configuration), settings=settings)


class KubernetesClient:
    """Asks the API server.

    Every call raises KubernetesUnreachableError if no good answer came in time, after some
    attempts, PermissionDeniedError if the account may not do it, and else a KubernetesError.

    Args:
        api: the package's client; closed with this one.
        settings: times.
    """

    def __init__(self, api: ApiClient, *, settings: ClientSettings | None = None) -> None:
        self._api = api
        self._api.user_agent = FIELD_MANAGER
        self.settings = settings or ClientSettings()
        #: Requests made so far, attempts included.
        self.requests = 0

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    async def node(self, name: str) -> dict[str, Any]:
        """Return a Node object."""
        return await self._json("GET", f"/api/v1/nodes/{quote(name)}")

    async def namespace(self, name: str) -> dict[str, Any]:
        """Return a Namespace object."""
        return await self._json("GET", f"/api/v1/namespaces/{quote(name)}")

    async def pods(
        self,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        kind: str = "pods",
        keep: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> tuple[list[dict[str, Any]], str]:
        """Return pods, and the version from which they can be watched.

        Args:
            namespace: empty for all.
            labels: a label selector.
            fields: a field selector.
            kind: of other objects than pods, as paths name it.
            keep: returns whether an object is wanted; the others are dropped page by page.
        """
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE)}
        items: list[dict[str, Any]] = []
        more: dict[str, str] = {}
        while True:
            page = await self._json("GET", _objects(namespace, kind), query | more)
            items += (item for item in page.get("items") or [] if keep is None or keep(item))
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion", ""))
            more = {"continue": metadata["continue"]}

    async def watch_pods(
        self,
        *,
        version: str,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        kind: str = "pods",
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Yield events of pods, until the server or the time limit ends it, or it is silent.

        Args:
            version: the version to start from.
            namespace: empty for all.
            labels: a label selector.
            fields: a field selector.
            kind: of other objects than pods.

        Yields:
            ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``, and the pod; of a bookmark only
            the version counts.

        Raises:
            GoneError: the version is too old; list again.
        """
        times = self.settings
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(times.watch_s),
            "labelSelector": labels,
            "fieldSelector": fields,
        }
        most_s = times.watch_s + times.slack_s
        path = _objects(namespace, kind)
        response = await self._send("GET", path, query, total_s=most_s, silent_s=times.silent_s)
        async for line in self._lines(response, silence_ends=True):
            event = json.loads(line)
            item = event.get("object") or {}
            if event.get("type") == "ERROR":
                raise _error(int(item.get("code") or 500), item, f"watch {kind}")
            yield str(event.get("type")), item

    async def create_object(self, kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object in the namespace that it names.

        Args:
            kind: as paths name it, such as ``pods``. ``leases`` are those of Kubernetes.
            item: the object.

        Raises:
            ExistsError: an object of that name exists.
            QuotaExceededError: a quota does not allow it.
            AdmissionRefusedError: it was refused.
        """
        path = _objects(item["metadata"]["namespace"], kind)
        return await self._json("POST", path, {"fieldManager": FIELD_MANAGER}, dict(item))

    async def read_object(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """Return an object.

        Raises:
            MissingError: there is no such object.
        """
        return await self._json("GET", f"{_objects(namespace, kind)}/{quote(name)}")

    async def annotate_pod(
        self, namespace: str, name: str, annotations: Mapping[str, str], *, uid: str
    ) -> None:
        """Add annotations to a pod, if it still is the one with that uid."""
        await self._patch_pod(namespace, name, {"uid": uid, "annotations": dict(annotations)})

    async def label_pod(
        self, namespace: str, name: str, labels: Mapping[str, str], *, uid: str
    ) -> None:
        """Set labels of a pod, if it still is the one with that uid."""
        await self._patch_pod(namespace, name, {"uid": uid, "labels": dict(labels)})

    async def _patch_pod(self, namespace: str, name: str, metadata: Mapping[str, Any]) -> None:
        path = f"{_pods(namespace)}/{quote(name)}"
        query = {"fieldManager": FIELD_MANAGER}
        await self._json("PATCH", path, query, {"metadata": dict(metadata)}, kind=_MERGE_PATCH)

    async def patch_config_map(
        self, namespace: str, name: str, patch: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Apply a merge patch to a ConfigMap, and return the new object.

        Raises:
            MissingError: there is no such ConfigMap.
        """
        path = f"{_objects(namespace, 'configmaps')}/{quote(name)}"
        query = {"fieldManager": FIELD_MANAGER}
        return await self._json("PATCH", path, query, dict(patch), kind=_MERGE_PATCH)

    async def delete_pod(self, namespace: str, name: str, *, uid: str, grace_s: int) -> bool:
        """Delete a pod, if it still is the one with that uid.

        Args:
            namespace: of the pod.
            name: its name.
            uid: of the pod; another one of the same name stays.
            grace_s: from SIGTERM to SIGKILL; 0 removes the object without waiting for its node.

        Returns:
            False if there is no such pod, which is equally good.
        """
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        body |= {"gracePeriodSeconds": grace_s, "preconditions": {"uid": uid}}
        try:
            await self._json("DELETE", f"{_pods(namespace)}/{quote(name)}", {}, body)
        except MissingError:
            return False
        except KubernetesError as error:
            if error.status == HTTPStatus.CONFLICT:  # another pod has the name now
                return False
            raise
        return True

    async def follow_log(
        self, namespace: str, name: str, *, container: str, since: str = "", limit_bytes: int
    ) -> AsyncIterator[bytes]:
        """Yield lines of output with their times in front, until it ends or pauses for long.

        Args:
            namespace: of the pod.
            name: the pod.
            container: its container.
            since: RFC 3339 time, whole seconds count; empty: from the beginning.
            limit_bytes: after this much the server ends the stream.
        """
        query = {"container": container, "follow": "true", "timestamps": "true"}
        query |= {"sinceTime": since, "limitBytes": str(limit_bytes)}
        path = f"{_pods(namespace)}/{quote(name)}/log"
        response = await self._send("GET", path, query, silent_s=self.settings.follow_s)
        async for line in self._lines(response):
            yield line

    async def exec_in_pod(
        self,
        namespace: str,
        pod: str,
        *,
        container: str,
        command: Sequence[str],
        reads: bool,
        protocols: Sequence[str],
    ) -> ClientWebSocketResponse:
        """Start a command in a container; returns the socket that carries its streams.

        Args:
            namespace: of the pod.
            pod: its name.
            container: one of its containers.
            command: with its arguments.
            reads: whether it gets a standard input.
            protocols: of the socket, the best first.
        """
        import aiohttp  # noqa: PLC0415 - with the package

        path = f"{_pods(namespace)}/{quote(pod)}/exec"
        streams = {"stdin": reads, "stdout": True, "stderr": True}
        query = [("container", container), *(("command", word) for word in command)]
        query += [(name, "true") for name, wanted in streams.items() if wanted]
        times, what = self.settings, f"exec in {pod}"
        self.requests += 1
        try:
            _, url, headers, _, _ = await self._api.param_serialize(
                "GET", path, query_params=query, auth_settings=["BearerToken"]
            )
            # The package opens its connections with the first request.
            rest = self._api.rest_client
            if rest.pool_manager is None:
                rest.pool_manager = rest._create_pool_manager()  # noqa: SLF001 - it has no other way
            async with asyncio.timeout(times.request_s):
                return await rest.pool_manager.ws_connect(
                    url.replace("http", "ws", 1), headers=headers, protocols=protocols
                )
        except aiohttp.WSServerHandshakeError as error:  # without the server's message
            raise _error(error.status, {}, what) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubernetesUnreachableError(f"{what}: no answer ({_words(error)})") from error

    async def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        kind: str = "application/json",
    ) -> dict[str, Any]:
        import aiohttp  # noqa: PLC0415 - with the package

        response = await self._send(method, path, query or {}, body, kind=kind)
        try:
            value = json.loads(await response.read())  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise KubernetesUnreachableError(f"{method} {path} was cut off: {error}") from error
        return value if isinstance(value, dict) else {}

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        *,
        kind: str = "application/json",
        total_s: float | None = None,
        silent_s: float | None = None,
    ) -> RESTResponse:
        """Retry until the server is not too busy to answer, a limited number of times."""
        for attempt in range(self.settings.retries + 1):
            try:
                return await self._try(
                    method, path, query, body, kind=kind, total_s=total_s, silent_s=silent_s
                )
            except KubernetesUnreachableError as error:
                if attempt == self.settings.retries:
                    raise
                await asyncio.sleep(self._pause_s(attempt, error))
        raise AssertionError("unreachable")

    def _pause_s(self, attempt: int, error: KubernetesUnreachableError) -> float:
        times = self.settings
        most_s: float = min(times.retry_least_s * 2**attempt, times.retry_most_s)
        asked_s = float(error.reason) if error.reason.isdigit() else 0.0
        spread = random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        return max(most_s * spread, min(asked_s, times.retry_most_s))

    async def _try(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        *,
        kind: str,
        total_s: float | None,
        silent_s: float | None,
    ) -> RESTResponse:
        import aiohttp  # noqa: PLC0415 - with the package

        times = self.settings
        timeout = aiohttp.ClientTimeout(
            total=total_s or (times.request_s if silent_s is None else None),
            sock_connect=times.connect_s,
            sock_read=silent_s or total_s or times.request_s,
        )
        self.requests += 1
        what = f"{method} {path}"
        try:
            method, url, headers, data, _ = await self._api.param_serialize(
                method,
                path,
                query_params=[(name, value) for name, value in query.items() if value],
                header_params={"Accept": "application/json, */*", "Content-Type": kind},
                body=body,
                auth_settings=["BearerToken"],
            )
            response = await self._api.call_api(
                method, url, headers, data, _request_timeout=timeout
            )
            if response.status < HTTPStatus.BAD_REQUEST:
                return response
            text = await response.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubernetesUnreachableError(f"{what}: no answer ({_words(error)})") from error
        again = response.headers.get("Retry-After", "")
        raise _error(response.status, _status(text), what, retry_after=again)

    async def _lines(
        self, response: RESTResponse, *, silence_ends: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield the lines of a stream; if ``silence_ends``, one that is silent ends like others."""
        import aiohttp  # noqa: PLC0415 - with the package

        unread = b""
        try:
            async for chunk in response.response.content.iter_any():
                *lines, unread = (unread + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield line
            if unread:
                yield unread
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if silence_ends and isinstance(error, TimeoutError):
                return
            raise KubernetesUnreachableError(f"a stream broke off ({_words(error)})") from error
        finally:
            response.response.close()


def _has_account(token_file: str) -> bool:
    return Path(token_file).exists()


def _pods(namespace: str) -> str:
    return _objects(namespace, "pods")


def _objects(namespace: str, kind: str) -> str:
    group = "/apis/coordination.k8s.io/v1" if kind == "leases" else "/api/v1"
    return f"{group}/namespaces/{quote(namespace)}/{kind}" if namespace else f"{group}/{kind}"


def _status(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {"message": text[:300].decode(errors="replace")}
    return value if isinstance(value, dict) else {}


def _error(
    code: int, status: Mapping[str, Any], what: str, *, retry_after: str = ""
) -> KubernetesError:
    """Return the typed error of a refusal."""
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    told = f"{what}: {message or 'no message'} ({' '.join((str(code), reason)).strip()})"
    kind, word = _kind(code, reason, message.lower())
    if kind is KubernetesUnreachableError:
        word = retry_after
    return kind(told, status=code, reason=word)


def _kind(code: int, reason: str, message: str) -> tuple[type[KubernetesError], str]:
    if code == HTTPStatus.FORBIDDEN and "exceeded quota" in message:
        return QuotaExceededError, "QuotaExceeded"
    if code == HTTPStatus.UNAUTHORIZED or (
        code == HTTPStatus.FORBIDDEN and ('user "' in message or not message)
    ):
        return PermissionDeniedError, reason or "Forbidden"
    if code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or "request is too large" in message:
        return AdmissionRefusedError, "Invalid"  # the second is etcd's, as a 500
    if code in {400, 403, 422}:
        return AdmissionRefusedError, _refusal_word(reason, message)
    if code == HTTPStatus.CONFLICT and reason == "AlreadyExists":
        return ExistsError, reason
    plain = {404: MissingError, 410: GoneError} | dict.fromkeys(
        _RETRIED, KubernetesUnreachableError
    )
    return plain.get(code, KubernetesError), reason


def _refusal_word(reason: str, message: str) -> str:
    if "violates podsecurity" in message:
        return "PodSecurity"
    if "admission" in message and "denied" in message:
        return "AdmissionDenied"
    return reason or "Invalid"


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
