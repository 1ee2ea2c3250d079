"""A real cluster on this machine: the daemon and its agents, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TRAINING = Path(__file__).resolve().parent / "training.py"
#: How long a process may take to start or to stop on a busy machine.
PATIENCE_S = 60.0
_URL = re.compile(r"listens on (http://\S+)")


class DemoError(Exception):
    """Something that should run does not; the message has the end of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times of rounds and leases, scaled from minutes to seconds.

    Attributes:
        round_length_s: the scheduling quantum.
        plan_lead_s: how long before its end the next round is planned. Room for notice, grace, the
            second that agents keep back, and a busy machine.
        notice_s: of every job.
        grace_s: of every job.
        restart_s: the cost of a change of workers, as jobs declare it at submission.
    """

    round_length_s: float = 5.0
    plan_lead_s: float = 2.5
    notice_s: float = 0.5
    grace_s: float = 0.7
    restart_s: float = 0.6


@dataclass(kw_only=True)
class LiveCluster:
    """Starts everything on entering and stops everything on leaving, however that comes about.

    Attributes:
        folder: for state and output; empty at the start.
        nodes: node -> declared workers such as ``v100:2``.
        policy: in force.
        times: of rounds and leases.
        shared: job types of which any two run on one worker as fast as alone.
        api: the REST interface, as an administrator; once entered.
    """

    folder: Path
    nodes: Mapping[str, str]
    policy: str
    times: Times
    shared: Sequence[str] = ()
    api: httpx.Client = field(init=False)
    _daemon: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)

    def __enter__(self) -> Self:
        """Start the daemon and the agents, and wait until every node is ready."""
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        """Stop the agents with their jobs, and then the daemon."""
        if hasattr(self, "api"):
            self.api.close()
        _stop(list(self._agents.values()), most_s=15.0)
        if self._daemon is not None:
            _stop([self._daemon], most_s=15.0)

    def submit(self, jobs: Sequence[Mapping[str, Any]]) -> list[str]:
        """Submit jobs in one request; returns their ids in the same order."""
        answer = self.api.post("/v1/jobs", json={"jobs": list(jobs)})
        results = self._checked(answer)["jobs"]
        refused = [r for r in results if r["error"]]
        if refused:
            raise DemoError(f"the scheduler refused a job: {refused[0]}")
        return [result["job_id"] for result in results]

    def get(self, path: str, **params: str | float) -> Any:
        """Ask for something."""
        return self._checked(self.api.get(path, params=params))

    def check(self) -> None:
        """Make sure that everything still runs.

        Raises:
            DemoError: a process has ended.
        """
        for name, process in (("daemon", self._daemon), *self._agents.items()):
            if process is not None and process.poll() is not None:
                raise DemoError(f"{name} ended with {process.returncode}:\n{self._tail(name)}")

    def _start(self) -> None:
        state = self.folder / "state"
        times = self.times
        settings = {
            "engine.plan_lead_s": times.plan_lead_s,
            "leases.notice_s": times.notice_s,
            "leases.grace_s": times.grace_s,
            # The rest of the lead, after the second that agents keep to themselves.
            "leases.margin_s": times.plan_lead_s - times.notice_s - times.grace_s - 1.0,
            "throughputs.learn": "false",  # the forecast is to know the same throughputs
            "policy.space_sharing": "true" if self.shared else "false",
        }
        command = ["serve", "--port", "0", "--state-dir", str(state), "--policy", self.policy]
        command += ["--round-length", str(times.round_length_s), "--log-level", "warning"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        self._daemon = self._run("daemon", command)
        self._await("the daemon listens", self._url)
        url = self._url()
        token = (state / "admin.token").read_text().strip()
        self.api = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30.0
        )
        self._await("the daemon leads", lambda: self.api.get("/readyz").is_success)
        for node, workers in self.nodes.items():
            secret = self._checked(self.api.post("/v1/enrolments", json={"node": node}))["secret"]
            options = ["agent", "--server", url, "--node", node, "--worker", workers]
            options += ["--state-dir", str(self.folder / node), "--address", "127.0.0.1"]
            # One person's cluster, in this person's folders, also if that is root.
            more = {"LEASEHOLD_ENROLMENT": secret, "LEASEHOLD_AGENT__ISOLATION": "off"}
            options += ["--stop-jobs", "--progress-every", "0.5", "--log-level", "warning"]
            self._agents[node] = self._run(node, options, **more)
        self._await("every node is ready", self._nodes_are_ready)
        if self.shared:
            self._checked(self.api.put("/v1/throughputs", json={"pairs": self._pairs()}))

    def _pairs(self) -> list[dict[str, Any]]:
        types = sorted({workers.partition(":")[0] for workers in self.nodes.values()})
        both = combinations_with_replacement(sorted(self.shared), 2)
        parts = {"part": 1.0, "with_part": 1.0}
        return [
            {"job_type": one, "with_job_type": other, "worker_type": worker_type} | parts
            for one, other in both
            for worker_type in types
        ]

    def _run(self, name: str, arguments: list[str], **more: str) -> subprocess.Popen[bytes]:
        """Start one of our programs, away from Ctrl-C: it is stopped in good order."""
        mine = {k: v for k, v in os.environ.items() if not k.startswith("LEASEHOLD_")}
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(  # noqa: S603  our own program
                [sys.executable, "-m", "leasehold.cli.main", *arguments],
                env=mine | more,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _url(self) -> str:
        found = _URL.search((self.folder / "daemon.log").read_text(errors="replace"))
        return found[1] if found else ""

    def _nodes_are_ready(self) -> bool:
        ready = {n["name"] for n in self.get("/v1/nodes")["nodes"] if n["state"] == "ready"}
        return ready >= set(self.nodes)

    def _await(self, what: str, done: Callable[[], object]) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not done():
            self.check()
            if time.monotonic() > end_s:
                tails = "\n".join(self._tail(name) for name in ("daemon", *self._agents))
                raise DemoError(f"waited {PATIENCE_S:g} s in vain until {what}:\n{tails}")
            time.sleep(0.05)

    def _checked(self, answer: httpx.Response) -> Any:
        if answer.is_error:
            raise DemoError(f"{answer.request.url} answers {answer.status_code}: {answer.text}")
        return answer.json()

    def _tail(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]


def _stop(processes: list[subprocess.Popen[bytes]], *, most_s: float) -> None:
    """Ask processes to stop, and see to it that they do."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    end_s = time.monotonic() + most_s
    for process in processes:
        try:
            process.wait(timeout=max(end_s - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
