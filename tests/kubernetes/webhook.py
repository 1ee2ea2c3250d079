"""An admission webhook of the tests, served with the certificate of the API server itself."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from control_plane import Api, ControlPlane

_PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_NAME = "signatures.registry.example"


class Webhook:
    """Refuses pods, or does not answer well, as a test wishes.

    Attributes:
        refuses: in these words; empty: everything is admitted.
        broken: whether it answers 500.
        asked: names of the pods that it was asked about.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self.refuses, self.broken = "", False
        self.asked: list[str] = []
        self._authority = plane.authority
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                review = json.loads(self.rfile.read(length))
                text = json.dumps(webhook.answer(review)).encode()
                self.send_response(500 if webhook.broken else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        folder = plane.authority.parent
        own.load_cert_chain(folder / "apiserver.crt", folder / "apiserver.key")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = own.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def answer(self, review: dict[str, Any]) -> dict[str, Any]:
        request = review["request"]
        self.asked.append(request["name"])
        response: dict[str, Any] = {"uid": request["uid"], "allowed": not self.refuses}
        if self.refuses:
            response["status"] = {"code": 403, "message": self.refuses}
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}

    def register(self, api: Api, namespace: str) -> None:
        """Have the API server ask about every pod that is made in a namespace."""
        port = self._server.server_address[1]
        trust = base64.b64encode(self._authority.read_bytes()).decode()
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
            "operations": ["CREATE"],
        }
        webhook = {
            "name": _NAME,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 5,
            "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": trust},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        }
        api.create(
            _PATH,
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "signatures"},
                "webhooks": [webhook],
            },
        )

    def remove(self, api: Api) -> None:
        api.delete(f"{_PATH}/signatures")
