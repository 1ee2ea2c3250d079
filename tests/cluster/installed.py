"""The chart on the cluster, with a volume for checkpoints, and jobs that are sent to it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from machine import eventually

from scheduler.secret_box import new_key

if TYPE_CHECKING:
    from cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
CHART, VALUES = ROOT / "helm" / "leasehold", Path(__file__).with_name("values.yaml")
RELEASE, NAMESPACE, JOBS = "leasehold", "leasehold", "leasehold-jobs"
CLAIM, NODE_PORT = "checkpoints", 30642
ENDED = {"completed", "failed", "cancelled", "refused"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that was run beside a job."""

    code: int | None
    out: bytes
    err: bytes
    problem: str


class Installed:
    """The chart as it is installed.

    Args:
        cluster: where.
        namespace: of the release; that of its jobs is called after it.

    Attributes:
        namespace: of the release.
        checkpoints: what jobs see as /checkpoints.
        settings: further words for helm, at the installation and at every upgrade.
    """

    def __init__(self, cluster: Cluster, namespace: str = NAMESPACE) -> None:
        self._cluster = cluster
        self.settings: tuple[str, ...] = ()
        self.namespace, self.jobs = namespace, f"{namespace}-jobs"
        self._prefix = "" if namespace == NAMESPACE else f"{namespace}-"
        self.checkpoints = cluster.shared / f"{self._prefix}{CLAIM}"
        self._state = cluster.shared / f"{self._prefix}state"
        self._client: httpx.Client | None = None

    def install(self, chart: Path = CHART, *more: str) -> None:
        """Install the chart and wait until every part of it says that it is ready."""
        # The cluster provides no volumes: the files of a file server are on the machine.
        for folder in (self.checkpoints, self._state):
            folder.mkdir()
            folder.chmod(0o777)  # a host's folder does not become the pod's own
        self._cluster.apply(
            _volume(self._state, "ReadWriteOnce", self.namespace, "leasehold-state"),
            _volume(self.checkpoints, "ReadWriteMany", self.jobs, CLAIM),
        )
        self.helm("install", "--create-namespace", *more, chart=chart)
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": self.jobs},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "volumeName": self.checkpoints.name,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        self._cluster.apply(claim)
        self.connect()
        self.await_workers()

    def helm(self, what: str, *more: str, chart: Path = CHART) -> str:
        """Install or upgrade with the tests' values."""
        return self._cluster.helm(
            what, RELEASE, chart, "--namespace", self.namespace, "--values", VALUES,
            "--set", f"jobs.namespace={self.jobs}", "--wait", "--timeout", "3m",
            *self.settings, *more,
        )  # fmt: skip

    def keep_secrets(self) -> None:
        """Give the scheduler a key for secret variables; before it is installed."""
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": self.namespace},
        }
        keys = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "secret-keys", "namespace": self.namespace},
            "stringData": {"keys": new_key()},
        }
        self._cluster.apply(namespace, keys)
        at = "scheduler.extraEnv[0]"
        where = f"{at}.valueFrom.secretKeyRef"
        values = f"{at}.name=LEASEHOLD_SECRETS__KEYS,{where}.name=secret-keys,{where}.key=keys"
        self.settings = ("--set", values)

    def connect(self) -> None:
        """Take the administrator's token from its Secret."""
        self._client = self.client(self.admin_token())

    def admin_token(self) -> str:
        """Return the administrator's token."""
        path = f"/api/v1/namespaces/{self.namespace}/secrets/leasehold-admin"
        secret = self._cluster.api(lambda api: api.get(path))
        return base64.b64decode(secret["data"]["token"]).decode()

    def client(self, token: str) -> httpx.Client:
        """Return what asks the scheduler through its Service with a token."""
        authority = self.authority()
        trusted = ssl.create_default_context(cadata=authority) if authority else None
        if trusted is not None:
            trusted.check_hostname = False  # it names the Service, and this is a node's port
        return httpx.Client(
            base_url=f"{'https' if trusted else 'http'}://{self._cluster.nodes['node-2'].address}"
            f":{NODE_PORT}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=20,
            trust_env=False,
            verify=trusted or False,
        )

    def authority(self) -> str:
        """Return the trusted certificates, as PEM; empty for HTTP, as in the first release."""
        path = f"/api/v1/namespaces/{self.namespace}/secrets"
        for secret in self._cluster.api(lambda api: api.get(path))["items"]:
            if secret["metadata"]["name"] == "leasehold-tls":
                return base64.b64decode(secret["data"]["ca.crt"]).decode()
        return ""

    def get(self, path: str) -> Any:
        """Ask the scheduler through its Service; try again while it is away."""
        return self._ask(path).json()

    def log(self, job: str) -> str:
        """Return the output of a job's newest attempt."""
        return self._ask(f"/v1/jobs/{job}/log").text

    def _ask(self, path: str) -> httpx.Response:
        def ask() -> httpx.Response | None:
            assert self._client is not None
            answer = self._client.get(path)
            return answer if answer.status_code < 500 else None

        answer: httpx.Response = eventually(f"an answer to {path}", ask, limit_s=60)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return answer

    def await_workers(self) -> None:
        """Wait until the scheduler can use every worker of the nodes."""

        def usable() -> bool:
            workers = [w for node in self.get("/v1/nodes")["nodes"] for w in node["workers"]]
            return len(workers) == 4 and all(
                worker["in_service"] and not worker["problem"] for worker in workers
            )

        eventually("all workers can be used", usable, limit_s=60)

    def submit(self, name: str, *, steps: int, types: dict[str, float], **spec: Any) -> str:
        """Submit a job that trains; return its id."""
        assert self._client is not None
        body = {
            "name": name,
            "command": ["python", "/train/train.py"],
            "env": {"STEP_S": "0.1"},
            "total_steps": steps,
            "throughputs": types,
            "worker_types": list(types),
            "checkpoint_dir": f"/checkpoints/{name}",
            "memory_bytes": 256 * 2**20,
            "space_sharing": False,
            "kubernetes": {"volumes": [{"claim": CLAIM, "path": "/checkpoints"}]},
        } | spec
        answer = self._client.post("/v1/jobs", json=body)
        assert answer.status_code < 300, answer.text
        return str(answer.json()["job_id"])

    def run_beside(self, job: str, *command: str, stdin: bytes = b"") -> Ran:
        """Run a command in a job's pod, through the scheduler."""
        assert self._client is not None
        given = {"command": command, "stdin": base64.b64encode(stdin).decode()}
        begun = self._client.post(f"/v1/jobs/{job}/exec", json=given)
        assert begun.status_code == 201, begun.text
        path, printed, after = f"/v1/jobs/{job}/exec/{begun.json()['exec_id']}", {}, 0
        for _ in range(60):
            found = self._client.get(path, params={"after": after, "wait_s": 5}).json()
            for piece in found["pieces"]:
                data = base64.b64decode(piece["data"])
                printed[piece["stream"]] = printed.get(piece["stream"], b"") + data
            after = found["next"]
            if found["done"]:
                break
        return Ran(
            code=found["exit_code"],
            out=printed.get("out", b""),
            err=printed.get("err", b""),
            problem=found["problem"],
        )

    def cancel(self, job: str) -> None:
        """Cancel a job."""
        assert self._client is not None
        answer = self._client.post(f"/v1/jobs/{job}/cancel", json={})
        assert answer.status_code < 300, answer.text

    def upload(self, archive: bytes) -> str:
        """Send code; return its hash."""
        assert self._client is not None
        digest = hashlib.sha256(archive).hexdigest()
        body = {"archive": base64.b64encode(archive).decode()}
        answer = self._client.put(f"/v1/uploads/{digest}", json=body)
        assert answer.status_code == 201, answer.text
        return digest

    def await_status(self, job: str, *wanted: str, limit_s: float = 60.0) -> dict[str, Any]:
        """Wait until a job is in one of some states; return it."""

        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = self.get(f"/v1/jobs/{job}")
            if found["status"] in ENDED and found["status"] not in wanted:
                events = self.get(f"/v1/jobs/{job}/events?limit=500")["events"]
                raise RuntimeError(f"{job} is {found['status']}: {json.dumps(events)[-4000:]}")
            return found if found["status"] in wanted else None

        found: dict[str, Any] = eventually(
            f"{job} is {' or '.join(wanted)}", look, limit_s=limit_s, every_s=0.5
        )
        return found

    def pods_of(self, job: str) -> list[dict[str, Any]]:
        """Return the pods of a job."""
        pods = self._cluster.pods(self.jobs)
        return [pod for pod in pods if pod["metadata"]["labels"].get("leasehold.dev/job") == job]

    def deadline_s(self, job: str) -> float:
        """Return when a job's lease ends unless it is extended; 0 if it has none."""
        leases = self.get("/v1/leases")["leases"]
        return max((lease["deadline_s"] for lease in leases if lease["job_id"] == job), default=0.0)

    def steps_in(self, name: str) -> int:
        """Return how many steps a job has left in its journal."""
        path = self.checkpoints / name / "journal-0.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def await_steps(self, name: str, count: int, *, limit_s: float = 60.0) -> None:
        """Wait until a job has done some steps, by its own journal."""
        eventually(
            f"{name} does {count} steps", lambda: self.steps_in(name) >= count, limit_s=limit_s
        )

    def uninstall(self) -> None:
        """Uninstall the chart, and wait until its pods are gone."""
        eventually("the jobs' pods are gone", lambda: not self._cluster.pods(self.jobs), limit_s=30)
        words = ("--namespace", self.namespace, "--wait", "--timeout", "2m")
        self._cluster.helm("uninstall", RELEASE, *words)
        gone = "the release's pods are gone"
        eventually(gone, lambda: not self._cluster.pods(self.namespace), limit_s=60)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()


def _volume(folder: Path, mode: str, namespace: str, claim: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": folder.name},
        "spec": {
            "capacity": {"storage": "20Gi"},
            "accessModes": [mode],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {"namespace": namespace, "name": claim},
            "hostPath": {"path": os.fspath(folder), "type": "Directory"},
        },
    }
