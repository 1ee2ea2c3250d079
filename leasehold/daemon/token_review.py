"""Ask Kubernetes for the pod that a token belongs to, and the workers its node may have.

So agents in Kubernetes need no secret of Leasehold.

A token that Kubernetes projects into a pod is signed by the cluster, lives for an hour and names
its service account, its pod and, since 1.30, the pod's node. The API server verifies it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Folder of a pod's credentials in Kubernetes.
CREDENTIALS = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Longest wait for the API server.
TIMEOUT_S = 10.0
_COUNT = re.compile(r"[0-9]{1,4}")
_NODE = "authentication.kubernetes.io/node-name"

_log = logging.getLogger("leasehold.daemon")


class TokenReviewer:
    """Asks an API server which pod a token belongs to.

    Args:
        account: ``namespace/name`` of the only service account that is admitted.
        audience: required audience of the tokens, so that tokens for other services are refused.
        api_server: URL of the API server.
        credentials: folder with this pod's own ``token`` and ``ca.crt``.
        approved_label: prefix of the labels with the workers that a node may have; None: any.

    Raises:
        InputError: the account is not of this form.
    """

    def __init__(
        self,
        *,
        account: str,
        audience: str,
        api_server: str,
        credentials: Path = CREDENTIALS,
        approved_label: str | None = None,
    ) -> None:
        self._approved_label = approved_label
        namespace, slash, name = account.partition("/")
        if not namespace or not slash or not name or "/" in name:
            raise InputError(f"kubernetes.agent_account is '{account}'; give NAMESPACE/NAME")
        self._user = f"system:serviceaccount:{namespace}:{name}"
        self._audience = audience
        self._api_server = api_server
        self._credentials = credentials

    @classmethod
    def in_cluster(
        cls,
        *,
        account: str,
        audience: str,
        environment: Mapping[str, str],
        approved_label: str | None = None,
    ) -> TokenReviewer:
        """Return a reviewer that asks the cluster in which this process runs.

        Raises:
            InputError: the process does not run in a cluster.
        """
        host = environment.get("KUBERNETES_SERVICE_HOST", "")
        port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise InputError(
                "kubernetes.agent_account is set, and this process runs in no pod of a cluster; "
                "leave it out, and enrol agents by `leasehold token enrol`"
            )
        shown = f"[{host}]" if ":" in host else host
        return cls(
            account=account,
            audience=audience,
            api_server=f"https://{shown}:{port}",
            approved_label=approved_label,
        )

    async def node_of(self, token: str) -> str | None:
        """Return the node of the pod that a token was made for; None if the token is refused.

        Raises:
            OSError: the API server cannot be asked.
        """
        return self._judge(await asyncio.to_thread(self._ask, token))

    async def approved_of(self, node: str) -> dict[str, int]:
        """Return the workers that a node may have by its labels; empty without such labels.

        Raises:
            OSError: the API server cannot be asked.
        """
        path = f"/api/v1/nodes/{quote(node, safe='')}"
        found = await asyncio.to_thread(self._send, path)
        metadata = found.get("metadata")
        labels = metadata.get("labels") if isinstance(metadata, dict) else None
        approved: dict[str, int] = {}
        for label, value in (labels or {}).items():
            prefix, _, worker_type = label.rpartition("/")
            if prefix != self._approved_label:
                continue
            if not _COUNT.fullmatch(value):
                _log.warning("label %s of node %s is '%s', and no count", label, node, value)
                continue
            approved[worker_type] = int(value)
        if not approved:
            _log.warning(
                "no label %s/TYPE of node %s names the workers that it may have",
                self._approved_label,
                node,
            )
        return approved

    def _ask(self, token: str) -> dict[str, Any]:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        status = self._send("/apis/authentication.k8s.io/v1/tokenreviews", review).get("status")
        return status if isinstance(status, dict) else {}

    def _send(self, path: str, body: object = None) -> dict[str, Any]:
        # Read each time: Kubernetes replaces the file before its token expires.
        own = (self._credentials / "token").read_text(encoding="ascii").strip()
        request = urllib.request.Request(  # noqa: S310 - the API server's address is configured
            self._api_server + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {own}", "Content-Type": "application/json"},
        )
        authority = self._credentials / "ca.crt"
        trust = ssl.create_default_context(cafile=authority if authority.exists() else None)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trust) as answer:  # noqa: S310
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise OSError(f"the API server answers {error.code} {error.reason}") from error
        except ValueError as error:
            raise OSError(f"the API server's answer is not JSON: {error}") from error
        return found if isinstance(found, dict) else {}

    def _judge(self, status: Mapping[str, Any]) -> str | None:
        user = status.get("user") or {}
        name = user.get("username", "")
        if not status.get("authenticated"):
            _log.warning("a token is refused by Kubernetes: %s", status.get("error", "no reason"))
        elif self._audience not in (status.get("audiences") or ()):
            _log.warning("a token of %s is for another audience than %s", name, self._audience)
        elif name != self._user:
            _log.warning("a token of %s lets no agent in; %s does", name, self._user)
        else:
            nodes = (user.get("extra") or {}).get(_NODE) or []
            if len(nodes) == 1 and nodes[0]:
                return str(nodes[0])
            _log.warning("a token of %s names no node; Kubernetes 1.30 and later do that", name)
        return None
