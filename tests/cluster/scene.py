"""People, their jobs, and a hostile one among them, on the cluster."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from installed import CLAIM, JOBS, NAMESPACE
from loot import MARK
from machine import eventually, run

HERE = Path(__file__).parent
IMAGE = "leasehold.test/train:1"
SERVICE = "leasehold.leasehold.svc"
PASSWORD = f"correct-horse-{MARK}-7319"
#: A job with secrets everywhere, on the network too. It prints its knowledge of its password.
PREY = f"""
import hashlib, http.server, os, pathlib
for folder in ("/tmp", "/dev/shm"):
    pathlib.Path(folder, "secret").write_text("{MARK}-file")
print("{MARK}-output")
print("sum", hashlib.sha256(os.environ["PASSWORD"].encode()).hexdigest(), flush=True)
os.chdir("/tmp")
http.server.ThreadingHTTPServer(("", 9000), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


class Scene:
    """Bob's job, with secrets, and Eve's, which attack it from its own node and from another.

    Attributes:
        loot: by the node of the attacker -> attack -> its loot; "control" is of the pod that
            may do everything.
        tokens: of people.
        jobs: name -> job id.
        pod: Bob's, as it was when it ran.
        secret: the Secret of its secret variables.
        before, after: state that the attacks must not have changed.
    """

    def __init__(self, cluster, installed):
        self.cluster, self.installed = cluster, installed
        self.folder = installed.checkpoints / "redteam"
        self.folder.mkdir()
        self.folder.chmod(0o777)
        for file in (HERE / "pod_loot.py", HERE.parent / "redteam" / "loot.py"):
            shutil.copy(file, self.folder)
        self.admin = installed.client(installed.admin_token())
        self._clients = {"admin": self.admin}
        self.tokens, self.jobs, self.loot = {}, {}, {}

    def play(self):
        """Let it happen."""
        self._name_the_service()
        for person, project in (("bob", "vision"), ("eve", "speech")):
            body = {"subject": person, "role": "user", "projects": [project]}
            answer = self.admin.post("/v1/tokens", json=body)
            self.tokens[person] = answer.raise_for_status().json()["token"]
        self.submit(
            "bob",
            "prey",
            ["python", "-c", PREY],
            types=["v100"],
            env={"WORD": f"{MARK}-variable"},
            secret_env={"PASSWORD": PASSWORD},
        )
        self.submit("eve", "sister", ["sleep", "100000"], types=["k80"])
        for name in ("prey", "sister"):
            self.installed.await_status(self.jobs[name], "running")
        self.pod = eventually("the prey is out", self._prey, limit_s=60)
        # A pod runs before its program does.
        eventually("the sister has a process", lambda: self.pids("sister"), limit_s=60)
        self.secret = self._secret()
        (self.folder / "targets").write_text(json.dumps(self._targets()))
        self.before = self.look()
        attack = ["python", "/checkpoints/redteam/pod_loot.py", "targets", "loot"]
        for name in ("attack-1", "attack-2"):
            self.submit("eve", name, attack, types=["mi100"], env={"HOME": "/tmp"})
        self._run_control()
        for name in ("attack-1", "attack-2"):
            self._await_loot(name)
        self.after = self.look()

    def submit(self, person, name, command, *, types, **fields):
        """Submit a job by the command line, as a person does."""
        job = {
            "name": name,
            "command": command,
            "worker_types": types,
            "throughputs": dict.fromkeys(types, 1.0),
            "space_sharing": False,
            "working_dir": "/checkpoints/redteam",
            "checkpoint_dir": f"/checkpoints/redteam/{name}",
            "memory_bytes": 256 * 2**20,
            "image": IMAGE,
            "kubernetes": {"volumes": [{"claim": CLAIM, "path": "/checkpoints"}]},
        }
        done = self.command(person, job | fields)
        assert done.returncode == 0, done.stderr
        (told,) = json.loads(done.stdout)["jobs"]
        self.jobs[name] = told["job_id"]

    def command(self, person, job, *words):
        """Run ``leasehold submit`` with a job; returns how it ended."""
        file, authority = self.folder.parent / "job.json", self.cluster.folder / "ca.crt"
        file.write_text(json.dumps(job))
        authority.write_text(self.installed.authority())
        env = {"PATH": os.environ["PATH"], "HOME": str(self.cluster.folder)}
        env |= {"LEASEHOLD_SERVER": self.url, "LEASEHOLD_TOKEN": self.tokens[person]}
        env |= {"LEASEHOLD_CA_FILE": str(authority)}
        command = [sys.executable, "-m", "leasehold", "submit", str(file), "--json", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    @property
    def url(self):
        """Where people find the scheduler: the Service's name, at a node's port."""
        return f"https://{SERVICE}:{self.admin.base_url.port}"

    def _name_the_service(self):
        """Let its certificate's name be found here; it is invisible outside of this namespace."""
        hosts = self.cluster.folder / "hosts"
        address = self.cluster.nodes["node-2"].address
        hosts.write_text(f"127.0.0.1 localhost\n{address} {SERVICE}\n")
        run("mount", "--bind", hosts, "/etc/hosts")

    def _prey(self):
        (pod,) = self.installed.pods_of(self.jobs["prey"])
        log = self.admin.get(f"/v1/jobs/{self.jobs['prey']}/log").text
        ready = MARK in log and "sum" in log and pod["status"].get("podIP")
        return pod if ready else None

    def secret_name(self):
        """Return what Bob's pod calls the Secret of its secret variables."""
        (job,) = (c for c in self.pod["spec"]["containers"] if c["name"] == "job")
        (variable,) = (v for v in job["env"] if v["name"] == "PASSWORD")
        return variable["valueFrom"]["secretKeyRef"]["name"]

    def _secret(self):
        path = f"/api/v1/namespaces/{JOBS}/secrets/{self.secret_name()}"
        return self.cluster.api(lambda api: api.get(path))

    def pids(self, *names):
        """Return processes of jobs, as the machine numbers them."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                told = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(f"LEASEHOLD_JOB_ID={self.jobs[name]}".encode() in told for name in names):
                found.append(int(entry.name))
        return sorted(found)

    def _targets(self):
        agents = [pod for pod in self.pods_of_release() if "agent" in pod["metadata"]["name"]]
        leases = self.admin.get("/v1/leases").json()["leases"]
        return {
            "mark": MARK,
            "password": PASSWORD.partition(MARK)[0],
            "server": f"https://{SERVICE}:8642",
            "namespace": JOBS,
            "release": NAMESPACE,
            "image": IMAGE,
            "job": self.jobs["prey"],
            "pod": self.pod["metadata"]["name"],
            "secret": self.secret_name(),
            "address": self.pod["status"]["podIP"],
            "lease": next(x["lease_id"] for x in leases if x["job_id"] == self.jobs["prey"]),
            "pids": self.pids("prey", "sister"),
            "nodes": {node.name: node.address for node in self.cluster.nodes.values()},
            "agents": [pod["status"]["podIP"] for pod in agents],
            "devices": ["/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/nvidia3"],
        }

    def environment_of_prey(self):
        """Return the variables that Bob's program was started with."""
        return Path(f"/proc/{self.pids('prey')[0]}/environ").read_text().split("\0")

    def client(self, person):
        """Return what asks the scheduler as a person."""
        if person not in self._clients:
            self._clients[person] = self.installed.client(self.tokens[person])
        return self._clients[person]

    def pods_of_release(self):
        """Return the pods of scheduler, agents and counter."""
        return self.cluster.pods(NAMESPACE)

    def read(self, program, path, node=None):
        """Return a file of a pod of the release, read like an attacker in it."""
        (pod,) = (
            pod
            for pod in self.pods_of_release()
            if pod["spec"]["containers"][0]["name"] == program
            and node in {None, pod["spec"]["nodeName"]}
        )
        name = pod["metadata"]["name"]
        return self.cluster.kubectl("exec", name, "-n", NAMESPACE, "--", "cat", path)

    def _run_control(self):
        """Attack from a pod of the administrator that may do everything."""
        environment = {e["name"]: e for c in self.pod["spec"]["containers"] for e in c["env"]}
        goods = ["admin", self.installed.admin_token()]
        secrets = [environment["LEASEHOLD_SECRET"]["value"]]
        targets = self._targets() | {"goods": goods, "lease secrets": secrets}
        private = self.cluster.folder / "control"
        private.mkdir()
        (private / "targets").write_text(json.dumps(targets))
        token = {"serviceAccountToken": {"path": "token", "audience": "leasehold"}}
        mounts = {
            "loot": (str(self.folder), "/loot"),
            "goods": (str(private), "/goods"),
            "kubelet": ("/var/lib/kubelet", "/var/lib/kubelet"),
        }
        container = {
            "name": "control",
            "image": IMAGE,
            "command": ["python", "/loot/pod_loot.py", "/goods/targets", "/goods/loot"],
            "env": [{"name": "NODE", "value": "node-1"}],
            "securityContext": {"privileged": True, "runAsUser": 0},
            "volumeMounts": [
                {"name": "vouch", "mountPath": "/var/run/secrets/leasehold"},
                *(
                    {"name": n, "mountPath": at, "mountPropagation": "HostToContainer"}
                    for n, (_, at) in mounts.items()
                ),
            ],
        }
        spec = {
            "nodeSelector": {"kubernetes.io/hostname": "node-1"},
            "serviceAccountName": "leasehold-agent",
            "automountServiceAccountToken": True,
            "hostPID": True,
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [
                {"name": "vouch", "projected": {"sources": [token]}},
                *({"name": n, "hostPath": {"path": path}} for n, (path, _) in mounts.items()),
            ],
        }
        meta = {"name": "control", "namespace": NAMESPACE}
        self.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        found = private / "loot-node-1.json"
        try:
            eventually("the control is done", found.exists, limit_s=120, every_s=1)
        except AssertionError as error:
            said = self.cluster.kubectl("logs", "control", "-n", NAMESPACE)
            raise AssertionError(f"{error}\n{said}") from error
        self.loot["control"] = json.loads(found.read_text())
        self.cluster.kubectl("delete", "pod", "control", "-n", NAMESPACE, "--grace-period=1")

    def _await_loot(self, name):
        (pod,) = eventually(
            f"{name} has a pod", lambda: self.installed.pods_of(self.jobs[name]), limit_s=90
        )
        own = self.folder / f"loot-{self.jobs[name]}.json"
        try:
            eventually(f"{name} is done", own.exists, limit_s=180, every_s=1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.installed.log(self.jobs[name])}") from error
        self.loot[pod["spec"]["nodeName"]] = json.loads(own.read_text())

    def look(self):
        """Return state that the attacks must not change."""
        nodes = self.admin.get("/v1/nodes").raise_for_status().json()["nodes"]
        jobs = [self.admin.get(f"/v1/jobs/{self.jobs[name]}").json() for name in ("prey", "sister")]
        tokens = self.admin.get("/v1/tokens").json()["tokens"]
        return {
            "workers": {node["name"]: len(node["workers"]) for node in nodes},
            "jobs": [(job["status"], job["attempts"], job["steps_done"]) for job in jobs],
            "processes": self.pids("prey", "sister"),
            "subjects": {token["subject"] for token in tokens},
            "pods": sorted(
                pod["metadata"]["uid"]
                for name in ("prey", "sister")
                for pod in self.installed.pods_of(self.jobs[name])
            ),
        }

    def answers(self, person):
        """Return everything that the scheduler answers to a person about Bob's job."""
        client = self.client(person)
        job = f"/v1/jobs/{self.jobs['prey']}"
        paths = [job, *(f"{job}/{part}" for part in ("attempts", "events", "explain", "log"))]
        return {path: client.get(path) for path in [*paths, "/v1/jobs", "/v1/events"]}

    def close(self):
        """Leave nothing behind."""
        for name in self.jobs:
            self.admin.post(f"/v1/jobs/{self.jobs[name]}/cancel", json={})
        eventually("the jobs' pods are gone", lambda: not self.cluster.pods(JOBS), limit_s=90)
        for client in self._clients.values():
            client.close()
        run("umount", "/etc/hosts")


def decoded(secret):
    """Return a Secret's content."""
    return {name: base64.b64decode(v).decode() for name, v in secret["data"].items()}
