"""An identity provider in the process: real keys, and a real server that shows them."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

if TYPE_CHECKING:
    from types import TracebackType

#: What tokens are made for.
AUDIENCE = "leasehold"


class IdentityProvider:
    """Signs tokens, and publishes the keys over HTTP.

    Attributes:
        keys: key id -> the key, of those that sign.
        shown: the published keys; None: the public halves of ``keys``.
        asked: paths that were asked for.
        answers: path -> (status, body) to answer in place of the right answer.
        described: changes to the discovery document.
        secret: of the client; empty for a public one.
        person: claims of whoever signs in.
    """

    def __init__(self) -> None:
        self.keys: dict[str, RSAKey | ECKey] = {}
        self.shown: list[dict[str, Any]] | None = None
        self.asked: list[str] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.described: dict[str, Any] = {}
        self.secret = ""
        self.person: dict[str, Any] = {}
        #: code -> what was asked for with it.
        self.codes: dict[str, dict[str, str]] = {}
        self.add_key("k1")
        provider = self

        class Handler(BaseHTTPRequestHandler):
            """Answers as the provider says."""

            def do_GET(self) -> None:
                if self.path.startswith("/authorize?"):
                    self.send_response(302)
                    self.send_header("Location", provider.agree(self.path))
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self._answer(*provider.answer(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                given = self.headers.get("Authorization", "")
                self._answer(*provider.exchange(self.path, form, given))

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    def __enter__(self) -> Self:
        """Begin to answer."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def add_key(self, key_id: str, *, bits: int = 2048) -> None:
        """Make a key that signs with RSA."""
        self.keys[key_id] = RSAKey.generate_key(bits, {"kid": key_id, "use": "sig"})

    def add_curve(self, key_id: str) -> None:
        """Make a key that signs with an elliptic curve."""
        self.keys[key_id] = ECKey.generate_key("P-256", {"kid": key_id, "use": "sig"})

    def public(self, key_id: str) -> dict[str, Any]:
        """Return the published form of a key."""
        return dict(self.keys[key_id].as_dict(private=False))

    def answer(self, path: str) -> tuple[int, bytes]:
        """Return status and body."""
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        if path == "/.well-known/openid-configuration":
            document: Any = {
                "issuer": self.issuer,
                "jwks_uri": f"{self.issuer}/keys",
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
            } | self.described
        elif path == "/keys":
            shown = [self.public(key_id) for key_id in self.keys]
            document = {"keys": shown if self.shown is None else self.shown}
        else:
            return 404, b""
        return 200, json.dumps(document).encode()

    def agree(self, path: str) -> str:
        """Return where a person is sent back who agrees to sign in."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        query = urlencode({"code": code, "state": asked["state"], "iss": self.issuer})
        return f"{asked['redirect_uri']}?{query}"

    def exchange(self, path: str, form: dict[str, str], given: str) -> tuple[int, bytes]:
        """Return status and body of the answer to a code, which is good once."""
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        asked = self.codes.pop(form.get("code", ""), None)
        hashed = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(hashed).rstrip(b"=").decode()
        named = f"{form.get('client_id')}:{quote(self.secret, safe='')}"  # RFC 6749, 2.3.1
        pair = base64.b64encode(named.encode()).decode()
        known = form.get("client_secret", "") == self.secret or given == f"Basic {pair}"
        good = (
            asked is not None
            and known
            and form.get("grant_type") == "authorization_code"
            and challenge == asked["code_challenge"]
            and asked["code_challenge_method"] == "S256"
            and all(form.get(name) == asked[name] for name in ("client_id", "redirect_uri"))
        )
        if not good or asked is None:
            return 400, b'{"error": "invalid_grant"}'
        mine = {"aud": asked["client_id"], "nonce": asked.get("nonce")} | self.person
        document = {"id_token": self.token(**mine), "token_type": "Bearer"}
        return 200, json.dumps(document).encode()

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return the claims of a good token; those that are changed to None are left out."""
        now_s = int(time.time())
        usual = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "ann",
            "iat": now_s,
            "exp": now_s + 300,
            "groups": ["vision-team"],
        }
        return {name: value for name, value in (usual | changes).items() if value is not None}

    def token(
        self,
        *,
        key: str = "k1",
        algorithm: str = "RS256",
        header: dict[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """Return a signed token."""
        head = {"alg": algorithm, "kid": key, "typ": "JWT"} | (header or {})
        signed = self.keys[key]
        return jwt.encode(head, self.claims(**claims), signed, algorithms=[algorithm])
