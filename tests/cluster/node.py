"""A node: namespaces of its own, containerd, kubelet and kube-proxy, and a bridge for its pods."""

from __future__ import annotations

import json
import signal
import subprocess
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from control_plane import program
from machine import Programs, eventually, make_group, run

if TYPE_CHECKING:
    from pathlib import Path

#: Where all nodes meet; the control plane has the first address there.
SWITCH, PLANE = "lh0", "10.89.0.1"
PODS, SERVICES = "10.244.0.0/16", "10.96.0.0/16"
PAUSE = "leasehold.test/pause:1"
_CONTAINERD = """\
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""
#: Folders of this node only; device plugins read /var/lib/kubelet with any options.
_PRIVATE = """\
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mkdir -p /run/lock /var/lib/kubelet /var/lib/cni
mount --bind {folder}/kubelet /var/lib/kubelet
mount --bind {folder}/log /var/log
mount --make-rshared /
hostname {name}
ip link set lo up
echo ready
exec sleep infinity
"""


@dataclass(kw_only=True)
class Node:
    """A node of the cluster.

    Attributes:
        name: its name.
        number: from 1; its address is 10.89.0.1<number>, its pods' 10.244.<number>.*.
        folder: of everything that it writes.
    """

    name: str
    number: int
    folder: Path
    programs: Programs = field(init=False)
    _holder: subprocess.Popen[str] | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """Of the node."""
        return f"10.89.0.1{self.number}"

    @property
    def pods(self) -> str:
        """The range of its pods' addresses."""
        return f"10.244.{self.number}.0/24"

    def prepare(self, others: dict[str, str], api_server: Path) -> None:
        """Make the namespaces and the way to the other nodes.

        Args:
            others: address of a node -> range of its pods.
            api_server: certificate of the client that the kubelet takes for the API server.
        """
        for part in ("kubelet", "log", "cni", "programs", "volume-plugins"):
            (self.folder / part).mkdir(parents=True)
        script = _PRIVATE.format(folder=self.folder, name=self.name)
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--uts", "--propagation=private", "sh", "-ec", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "ready\n", "the node's namespaces cannot be made"
        target = str(self._holder.pid)
        inside = ("nsenter", f"--target={target}", "--mount", "--net", "--uts", "--")
        self.programs = Programs(folder=self.folder / "programs", inside=inside)
        end = f"lh-{self.number}"
        run("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", target)
        run("ip", "link", "set", end, "master", SWITCH, "up")
        run("ip", "route", "add", self.pods, "via", self.address)
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "route", "add", "default", "via", PLANE)
        for address, pods in others.items():
            self.run("ip", "route", "add", pods, "via", address)
        self.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        self._write_files(api_server)

    def run(self, *command: str | Path) -> str:
        """Run a command on the node."""
        return run(*self.programs.inside, *command)

    def start_containers(self, *images: Path) -> None:
        """Start containerd and give it the images of archives."""
        self.programs.start("containerd", "containerd", f"--config={self.folder}/containerd.toml")
        ctr = ("ctr", "--namespace=k8s.io")
        eventually("containerd answers", lambda: self.run(*ctr, "version"), limit_s=30)
        for archive in images:
            self.run(*ctr, "images", "import", archive)

    def start_kubelet(self, kubeconfig: Path) -> None:
        """Start the kubelet; the pods of one before it go on."""
        self.programs.start(
            "kubelet", program("kubelet"), f"--config={self.folder}/kubelet.json",
            f"--kubeconfig={kubeconfig}", f"--hostname-override={self.name}",
            f"--node-ip={self.address}", "--v=2",
        )  # fmt: skip

    def kill_kubelet(self) -> None:
        """End the kubelet at once; containers and their supervisors go on."""
        self.programs.stop("kubelet", signal.SIGKILL)

    def start_proxy(self, kubeconfig: Path) -> None:
        """Start kube-proxy, which leads Services' addresses to pods."""
        self.programs.start(
            "kube-proxy", program("kube-proxy"), f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}", "--proxy-mode=iptables", f"--cluster-cidr={PODS}",
            "--conntrack-max-per-core=0", "--conntrack-min=0",
            "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
            "--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249",
        )  # fmt: skip

    def stop(self) -> None:
        """End the node's programs; containers go with .ci/test-cluster's process namespace."""
        if self._holder is not None:
            self.programs.stop_all()
            self._holder.kill()
            self._holder.communicate()

    def _write_files(self, api_server: Path) -> None:
        (self.folder / "containerd.toml").write_text(
            _CONTAINERD.format(folder=self.folder, pause=PAUSE)
        )
        bridge = {
            "type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True,
            "ipam": {
                "type": "host-local", "ranges": [[{"subnet": self.pods}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }  # fmt: skip
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
        network = {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, portmap]}
        (self.folder / "cni" / "10-pods.conflist").write_text(json.dumps(network))
        (self.folder / "resolv.conf").write_text(f"nameserver {PLANE}\n")
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(api_server)},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": make_group(self.name),
            "clusterDNS": [PLANE],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "nodeStatusUpdateFrequency": "2s",
            "resolvConf": str(self.folder / "resolv.conf"),
            "volumePluginDir": str(self.folder / "volume-plugins"),
        }
        (self.folder / "kubelet.json").write_text(json.dumps(kubelet))

    def describe(self) -> str:
        """Return the ends of the programs' logs."""
        logs = sorted(self.programs.folder.glob("*.log"))
        tails = (f"{log.stem}:\n{log.read_text(errors='replace')[-2000:]}" for log in logs)
        return textwrap.indent("\n".join(tails), "  ")
