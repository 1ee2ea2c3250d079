"""The chart, a scheduler and agents on a control plane: each process under its own account."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from control_plane import ApiError
from helm_client import Helm

from leasehold.cli.jobspec.packing import pack
from leasehold_testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from control_plane import ControlPlane
    from fake_nodes import FakeNode

ROOT = Path(__file__).resolve().parents[2]
#: Rounds of seconds, so that tests need not wait for minutes.
SETTINGS: dict[str, Any] = {
    "engine.round_length_s": 6,
    "engine.plan_lead_s": 4.5,
    "engine.retry_backoff_s": 0.5,
    "engine.avoid_node_s": 0.5,
    "engine.solve_grace_s": 0.3,
    "engine.tick_s": 0.5,
    "leases.notice_s": 1,
    "leases.grace_s": 1,
    "leases.margin_s": 1,
    "leases.node_timeout_s": 8,
    "kubernetes.agent_account": "gpus/lh-leasehold-agent",
    "kubernetes.audience": "leasehold",
    "leadership.ttl_s": 3,
    "solver.deadline_s": 10,
    "server.rate_per_s": 10000,
    "server.rate_burst": 10000,
    "server.anonymous_rate_per_s": 10000,
    "server.anonymous_rate_burst": 10000,
}
RELEASE, NAMESPACE, JOBS = "lh", "gpus", "leasehold-jobs"
COUNTER = f"{RELEASE}-leasehold-foreign"
VALUES = "scheduler: {tls: {mode: none}}\n"
#: Runs a script by the sources of a folder, independent of installed packages.
_RUN = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
ENDED = {"completed", "failed", "cancelled", "refused"}


def eventually(what: str, look: Callable[[], Any], *, limit_s: float = 40.0) -> Any:
    """Return the first true answer; fail after a while."""
    until = time.monotonic() + limit_s
    last: Any = None
    while time.monotonic() < until:
        with contextlib.suppress(httpx.HTTPError, ApiError):
            last = look()
            if last:
                return last
        time.sleep(0.1)
    raise AssertionError(f"not within {limit_s:g} s: {what}; last seen: {last!r}")


def install_chart(plane: ControlPlane, values: str = VALUES) -> None:
    """Install the chart with helm, without its hooks: nothing here runs its pods."""
    Helm(plane, namespace=NAMESPACE, values=values).install(RELEASE, "--no-hooks")


class Process:
    """A program that is started again and again under the same name."""

    def __init__(self, command: list[str | Path], log: Path, **environment: str) -> None:
        self.command, self.log, self._environment = command, log, environment
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.log.parent),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        } | self._environment
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env=environment, cwd="/", start_new_session=True,
            )  # fmt: skip

    def end(self, number: int = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Installation:
    """A scheduler with SQLite, an agent per node, and what counts the pods of others.

    Args:
        plane: the cluster with the chart.
        nodes: where agents run.
        folder: of everything that they write.
        api_url: another address of the API server for the agents, such as a proxy's.
        guard_image: of the guards; empty: pods have none.
        code_image: of what brings uploaded code; empty: such jobs are refused.
        settings: of the scheduler, besides SETTINGS.
        before: the sources of the release before.
        older: nodes on which its agents run.
        times: of the agents: start_most_s, bind_s, force_after_s, watch_s.
    """

    def __init__(
        self,
        plane: ControlPlane,
        nodes: list[FakeNode],
        folder: Path,
        *,
        api_url: str = "",
        guard_image: str = "",
        code_image: str = "",
        settings: Mapping[str, Any] | None = None,
        before: Path | None = None,
        older: Collection[str] = (),
        **times: float,
    ) -> None:
        self._plane, self._api_url = plane, api_url
        self._before, self._older = before, older
        self._images = {"guard_image": guard_image, "code_image": code_image}
        self._times = {
            "start_most_s": 6.0,
            "bind_s": 60.0,
            "force_after_s": 5.0,
            "watch_s": 20,
        } | times
        self.folder = folder
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        token = self._mount_credentials()
        everything = SETTINGS | {"server.admin_token_file": folder / "admin"} | dict(settings or {})
        options = [f"--set={key}={value}" for key, value in everything.items()]
        script = Path(__file__).with_name("scheduler_process.py")
        self.scheduler = Process(
            [
                sys.executable, script, folder / "account", "serve", f"--port={port}",
                f"--state-dir={folder}/scheduler", *options,
            ],
            folder / "leasehold.log",
            KUBERNETES_SERVICE_HOST="127.0.0.1", KUBERNETES_SERVICE_PORT=str(plane.port),
        )  # fmt: skip
        self.client = httpx.Client(
            base_url=self.url,
            timeout=20,
            trust_env=False,
            headers={"Authorization": f"Bearer {token}"},
        )
        self._jobs_port = free_ports(2)[1]
        self._nodes = {node.name: node for node in nodes}
        self.agents = {node.name: self._agent(node) for node in nodes}
        own = plane.account_token(NAMESPACE, COUNTER)
        self.counter = Process(
            [
                sys.executable, "-m", "leasehold", "count-pods", f"--into={NAMESPACE}/{COUNTER}",
                f"--instance={NAMESPACE}.{RELEASE}-leasehold",
                "--kubeconfig", plane.kubeconfig("counter", own),
            ],
            folder / "counter.log",
        )  # fmt: skip

    def _mount_credentials(self) -> str:
        """Write the mounted files of the scheduler's pod; return the administrator's token."""
        account = self.folder / "account"
        account.mkdir()
        own = self._plane.account_token(NAMESPACE, f"{RELEASE}-leasehold-scheduler")
        (account / "token").write_text(own)
        (account / "ca.crt").write_bytes(self._plane.authority.read_bytes())
        api = self._plane.api()
        found = api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{RELEASE}-leasehold-admin")
        api.close()
        token = base64.b64decode(found["data"]["token"]).decode()
        (self.folder / "admin").write_text(token)
        return token

    def start(self) -> None:
        self.scheduler.start()
        self.counter.start()
        for name in self.agents:
            self.start_agent(name)
        count = sum(node.gpus for node in self._nodes.values())
        eventually("all workers are there", lambda: self._workers() == count, limit_s=60)

    def _workers(self) -> int:
        if not self.scheduler.alive:
            raise RuntimeError(f"the scheduler has ended: {self.scheduler.text()[-2000:]}")
        nodes = self.client.get("/v1/nodes").json().get("nodes", [])
        return sum(len(node["workers"]) for node in nodes)

    def start_agent(self, name: str) -> None:
        self.agents[name].start()

    def stop(self) -> None:
        for process in (*self.agents.values(), self.counter, self.scheduler):
            process.end()
        self.client.close()

    def _agent(self, node: FakeNode) -> Process:
        kubeconfig = self.account_of(node.name)
        given = (
            {
                "node": node.name,
                "address": node.address,
                "port": self._jobs_port,
                "server": self.url,
                "state_dir": str(self.folder / node.name),
                "kubeconfig": str(kubeconfig),
                "identity": str(self.folder / f"{node.name}.identity"),
                "namespace": JOBS,
                "instance": f"{NAMESPACE}.{RELEASE}-leasehold",
                "foreign_pods": f"{NAMESPACE}/{COUNTER}",
            }
            | self._images
            | self._times
        )
        root = self._before if node.name in self._older else ROOT
        script = f"{root}/tests/kubernetes/agent_process.py"
        return Process(
            [sys.executable, "-c", _RUN, str(root), script, json.dumps(given)],
            self.folder / f"agent-{node.name}.log",
        )

    def account_of(self, node: str) -> Path:
        """Return a kubeconfig with the token that the agent's pod on a node would have.

        The token by which it enrols lies beside, as the chart has it projected.
        """
        api = self._plane.api()
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        account = f"{RELEASE}-leasehold-agent"
        spec = {
            "serviceAccountName": account,
            "nodeName": node,
            "containers": [{"name": "agent", "image": "agent"}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"agent-{node}"}}
        try:
            pod = api.create(path, body | {"spec": spec})
        except ApiError:
            pod = api.get(f"{path}/agent-{node}")
        finally:
            api.close()
        shown = self._plane.account_token(NAMESPACE, account, pod=pod, audience="leasehold")
        (self.folder / f"{node}.identity").write_text(shown)
        token = self._plane.account_token(NAMESPACE, account, pod=pod)
        return self._plane.kubeconfig(f"agent-{node}", token, url=self._api_url)

    # -- jobs --------------------------------------------------------------------------------------

    def submit(self, name: str, *options: str, steps: int, **spec: Any) -> str:
        """Submit a training job; return its id."""
        body = {
            "name": name,
            "command": ["train", *options],
            "image": "registry.example/train:1",
            "total_steps": steps,
            "throughputs": {"v100": 20.0, "k80": 20.0},
            "checkpoint_dir": "/checkpoints",
            "space_sharing": False,
        } | spec
        answer = self.client.post("/v1/jobs", json=body)
        assert answer.status_code < 300, answer.text
        value = answer.json()
        return str(value["job_id"])

    def upload(self, **files: str) -> str:
        """Send code; return its hash."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                Path(folder, name).write_text(text)
            archive = pack(Path(folder))
        digest = hashlib.sha256(archive).hexdigest()
        body = {"archive": base64.b64encode(archive).decode()}
        answer = self.client.put(f"/v1/uploads/{digest}", json=body)
        assert answer.status_code < 300, answer.text
        return digest

    def log(self, job: str) -> str:
        return self.client.get(f"/v1/jobs/{job}/log").text

    def job(self, job: str) -> dict[str, Any]:
        return dict(self.client.get(f"/v1/jobs/{job}").json())

    def await_end(self, job: str, *, limit_s: float = 60.0, status: str = "completed") -> None:
        """Wait until a job has ended, as is expected."""

        def ended() -> str:
            now = str(self.job(job)["status"])
            return now if now in ENDED else ""

        found = eventually(f"{job} ends", ended, limit_s=limit_s)
        assert found == status, json.dumps(self.job(job)) + json.dumps(self.events(job))[-3000:]

    def events(self, job: str) -> list[dict[str, Any]]:
        return list(self.client.get(f"/v1/jobs/{job}/events?limit=500").json()["events"])

    def attempts(self, job: str) -> list[dict[str, Any]]:
        return list(self.client.get(f"/v1/jobs/{job}/attempts").json()["attempts"])

    def explain(self, job: str) -> str:
        """Return the view of a job, without a forecast: that needs a process of its own."""
        return self.client.get(f"/v1/jobs/{job}/explain?forecast=false").text
