"""The control plane of the cluster: etcd, API server, controllers, scheduler, name service."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from control_plane import Api, program
from machine import Programs, eventually, run
from node import PLANE, SERVICES, SWITCH

if TYPE_CHECKING:
    from pathlib import Path

PORT = 6443
#: Accounts by name, with their groups, as Kubernetes knows them.
_ACCOUNTS = {
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    "system:kube-proxy": "",
    "coredns": "system:masters",
}
_COREFILE = """\
.:53 {{
    bind {address}
    errors
    ready {address}:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 1
    }}
}}
"""


@dataclass(kw_only=True)
class Plane:
    """The control plane.

    Attributes:
        folder: of everything that it writes.
        nodes: names of the nodes.
    """

    folder: Path
    nodes: list[str]
    programs: Programs = field(init=False)

    def __post_init__(self) -> None:
        (self.folder / "programs").mkdir(parents=True)
        self.programs = Programs(folder=self.folder / "programs")
        self.authority = self.folder / "certificates" / "apiserver.crt"
        #: The API server's identity for kubelets: certificate and key, signed by itself.
        self.client = self.folder / "kubelet-client.crt", self.folder / "kubelet-client.key"
        self._accounts = dict(_ACCOUNTS)
        self._accounts |= {f"system:node:{name}": "system:nodes" for name in self.nodes}

    def prepare(self) -> None:
        """Make the switch between the nodes, and the accounts."""
        run("ip", "link", "add", SWITCH, "type", "bridge")
        run("ip", "addr", "add", f"{PLANE}/24", "dev", SWITCH)
        run("ip", "link", "set", SWITCH, "up")
        run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        run("openssl", "genrsa", "-out", self.folder / "accounts.key", "2048")
        certificate, key = self.client
        run(
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/O=system:masters/CN=kube-apiserver", "-keyout", key, "-out", certificate,
        )  # fmt: skip
        lines = (f'{n},{n},{n},"{groups}"' for n, groups in self._accounts.items())
        (self.folder / "tokens.csv").write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        """Start everything and wait until it answers."""
        self.programs.start(
            "etcd", program("etcd"), f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync",
            "--log-level=error",
        )  # fmt: skip
        key = self.folder / "accounts.key"
        self.programs.start(
            "kube-apiserver", program("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={PLANE}", f"--advertise-address={PLANE}", f"--secure-port={PORT}",
            f"--cert-dir={self.folder}/certificates", f"--service-cluster-ip-range={SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            f"--token-auth-file={self.folder}/tokens.csv", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP", "--profiling=false",
            f"--kubelet-client-certificate={self.client[0]}",
            f"--kubelet-client-key={self.client[1]}",
        )  # fmt: skip
        eventually("the API server is ready", self._ready, limit_s=90)
        self.programs.start(
            "kube-controller-manager", program("kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig('system:kube-controller-manager')}",
            "--leader-elect=false", "--bind-address=127.0.0.1",
            "--use-service-account-credentials", f"--service-account-private-key-file={key}",
            f"--root-ca-file={self.authority}", "--node-monitor-period=2s",
            "--node-monitor-grace-period=12s",
        )  # fmt: skip
        self.programs.start(
            "kube-scheduler", program("kube-scheduler"),
            f"--kubeconfig={self.kubeconfig('system:kube-scheduler')}", "--leader-elect=false",
            "--bind-address=127.0.0.1",
        )  # fmt: skip
        corefile = self.folder / "Corefile"
        corefile.write_text(_COREFILE.format(address=PLANE, kubeconfig=self.kubeconfig("coredns")))
        self.programs.start("coredns", program("coredns"), f"-conf={corefile}")

    def api(self) -> Api:
        """Return requests of the administrator."""
        return Api(url=f"https://{PLANE}:{PORT}", token="admin", authority=self.authority)

    def kubeconfig(self, account: str) -> Path:
        """Write a file that describes this cluster for one account."""
        path = self.folder / f"{account.replace(':', '-')}.kubeconfig"
        server = {"server": f"https://{PLANE}:{PORT}", "certificate-authority": str(self.authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": server}],
            "users": [{"name": account, "user": {"token": account}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": account}}],
        }
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path

    def stop(self) -> None:
        """End everything."""
        self.programs.stop_all()

    def _ready(self) -> bool:
        self.programs.check()
        if not self.authority.exists():
            return False
        api = self.api()
        try:
            return bool(api.get("/api/v1/namespaces/kube-system")) and "items" in api.get(
                "/apis/rbac.authorization.k8s.io/v1/clusterroles"
            )
        finally:
            api.close()
