"""A real kube-apiserver with etcd and controllers on loopback, started and killed by tests."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from leasehold_testing.ports import free_ports

BUILD = Path(__file__).parents[1] / "tools" / "build.sh"
#: Static tokens: the administrator of the tests, and the nodes' kubelets, which share one here.
ADMIN, KUBELETS = "admin-of-the-tests", "kubelets-of-the-tests"
_TOKENS = f"""\
{ADMIN},test-admin,1,system:masters
{KUBELETS},test-kubelets,2,system:masters
"""
#: Without these no quotas are counted, no default accounts made, no objects of dead pods removed.
_CONTROLLERS = (
    "resourcequota-controller",
    "serviceaccount-controller",
    "namespace-controller",
    "garbage-collector-controller",
)
READY_S = 90.0


class ApiError(Exception):
    """The API server said no."""

    def __init__(self, code: int, status: dict[str, Any]) -> None:
        super().__init__(f"{code} {status.get('reason')}: {status.get('message')}")
        self.code = code
        self.status = status


def program(name: str) -> Path:
    """Return a program of ``tests/tools``, which is built the first time."""
    done = subprocess.run([BUILD, name], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{BUILD} {name} failed; see above")
    return Path(done.stdout.strip())


@dataclass(kw_only=True)
class Api:
    """Plain requests under one account.

    Attributes:
        url: of the API server.
        token: of the account.
        authority: file with the certificate that the server's is checked against.
    """

    url: str
    token: str
    authority: Path
    _client: httpx.Client | None = field(default=None, repr=False)

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        """Return the answer as JSON; raise ApiError for a refusal."""
        if self._client is None:
            import ssl

            trust = ssl.create_default_context(cafile=self.authority)
            headers = {"Authorization": f"Bearer {self.token}"}
            self._client = httpx.Client(
                base_url=self.url, headers=headers, verify=trust, timeout=30, trust_env=False
            )
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        if method == "APPLY":
            method, kind = "PATCH", "application/apply-patch+yaml"
            query = {"fieldManager": "tests", "force": "true"} | query
        content = None if body is None else json.dumps(body).encode()
        answer = self._client.request(
            method, path, content=content, params=query, headers={"Content-Type": kind}
        )
        try:
            value = answer.json()
        except ValueError:
            value = {"message": answer.text}
        if answer.status_code >= 400:
            raise ApiError(answer.status_code, value)
        return dict(value)

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        return self.ask("GET", path, **query)

    def create(self, path: str, body: Any) -> dict[str, Any]:
        return self.ask("POST", path, body)

    def patch(self, path: str, body: Any) -> dict[str, Any]:
        return self.ask("PATCH", path, body)

    def delete(self, path: str, **options: Any) -> None:
        with contextlib.suppress(ApiError):
            self.ask("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        return list(self.get(f"/api/v1/namespaces/{namespace}/pods")["items"])

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None


class ControlPlane:
    """etcd, the API server and the controllers that tests need.

    Attributes:
        folder: of everything that they write.
        url: of the API server; the same after it was started again.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lh-k8s-"))
        self._etcd_port, self._peer_port, self.port = free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"
        self.authority = self.folder / "certificates" / "apiserver.crt"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        key = self.folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (self.folder / "tokens.csv").write_text(_TOKENS)

    def start(self) -> None:
        """Start everything and wait until it answers."""
        self.start_etcd()
        self.start_api_server()
        admin = self.kubeconfig("admin", ADMIN)
        self._start(
            "kube-controller-manager", f"--kubeconfig={admin}", "--leader-elect=false",
            "--bind-address=127.0.0.1", "--secure-port=0",
            f"--controllers={','.join(_CONTROLLERS)}", "--concurrent-gc-syncs=2",
            f"--service-account-private-key-file={self.folder}/accounts.key",
            "--kube-api-qps=200", "--kube-api-burst=400",
        )  # fmt: skip

    def start_etcd(self) -> None:
        url, peer = (f"http://127.0.0.1:{p}" for p in (self._etcd_port, self._peer_port))
        self._start(
            "etcd", f"--data-dir={self.folder}/etcd", f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}", f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync", "--log-level=error",
        )  # fmt: skip

    def start_api_server(self, *more: str) -> None:
        key = self.folder / "accounts.key"
        self._start(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1", f"--secure-port={self.port}",
            "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
            f"--cert-dir={self.folder}/certificates", "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            f"--token-auth-file={self.folder}/tokens.csv", "--authorization-mode=Node,RBAC",
            "--kubelet-preferred-address-types=InternalIP", "--shutdown-delay-duration=0s",
            "--profiling=false", *more,
        )  # fmt: skip
        self._await_ready()

    def restart_api_server(self, *, kill: bool = True) -> None:
        """End the API server and start it again on the same port."""
        self.stop_api_server(kill=kill)
        self.start_api_server()

    def stop_api_server(self, *, kill: bool = True) -> None:
        self._stop("kube-apiserver", signal.SIGKILL if kill else signal.SIGTERM)

    def forget_history(self) -> None:
        """Compact etcd, so that no watch can go on from an old version."""
        import base64

        base = f"http://127.0.0.1:{self._etcd_port}/v3"
        with httpx.Client(trust_env=False) as client:
            key = base64.b64encode(b"x").decode()
            answer = client.post(f"{base}/kv/range", json={"key": key}).json()
            revision = answer["header"]["revision"]
            client.post(f"{base}/kv/compaction", json={"revision": revision, "physical": True})

    def api(self, token: str = ADMIN) -> Api:
        return Api(url=self.url, token=token, authority=self.authority)

    def kubeconfig(self, name: str, token: str, *, url: str = "") -> Path:
        """Write a file that describes this cluster for one account."""
        path = self.folder / f"{name}.kubeconfig"
        authority = {"certificate-authority": str(self.authority)}
        cluster = {"server": url or self.url, **(authority if not url else {})}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": name}}],
        }
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path

    def account_token(
        self, namespace: str, account: str, *, pod: dict[str, Any] | None = None, audience: str = ""
    ) -> str:
        """Return a token of a service account, as the kubelet asks for it for a pod."""
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if audience:
            spec["audiences"] = [audience]
        if pod is not None:
            metadata = pod["metadata"]
            spec["boundObjectRef"] = {
                "kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"],
            }  # fmt: skip
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        api = self.api()
        try:
            return str(api.create(path, body)["status"]["token"])
        finally:
            api.close()

    def memory_bytes(self, name: str) -> int:
        """Return how much memory a program holds."""
        statm = Path(f"/proc/{self._processes[name].pid}/statm").read_text()
        return int(statm.split()[1]) * os.sysconf("SC_PAGESIZE")

    def cpu_s(self, name: str) -> float:
        """Return how many seconds of processor time a program has used."""
        stat = Path(f"/proc/{self._processes[name].pid}/stat").read_text().rpartition(")")[2]
        return sum(map(int, stat.split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End everything and remove the files."""
        for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
            self._stop(name, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [program(name), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
                start_new_session=True,
            )

    def _stop(self, name: str, number: int) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(5)  # it drains for up to a minute, and only then is its port free
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _await_ready(self) -> None:
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    text = (self.folder / f"{name}.log").read_text(errors="replace")
                    raise RuntimeError(f"{name} ended with {process.returncode}:\n{text[-3000:]}")
            if self.authority.exists():
                api = self.api()
                with contextlib.suppress(httpx.HTTPError, ApiError, OSError):
                    api.get("/api/v1/namespaces/kube-system")
                    if "items" in api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles"):
                        api.close()
                        return
                api.close()
            time.sleep(0.1)
        log = (self.folder / "kube-apiserver.log").read_text(errors="replace")
        print(log[-3000:], file=sys.stderr)
        raise RuntimeError(f"the API server is not ready after {READY_S:g} s")
