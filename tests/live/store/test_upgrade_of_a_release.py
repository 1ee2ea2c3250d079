"""A release before, killed while its agents run jobs; this one goes on with its database.

Its environment is made from the git history: the files of that commit, and this environment's
packages, which include all that it needs.
"""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from leasehold_testing.releases import BEFORE, OLDEST, release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[3]
RELEASES = [
    pytest.param(BEFORE, id="0.1.0"),
    pytest.param(OLDEST, id="oldest", marks=pytest.mark.long),
]
pytestmark = pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True
)
#: For all that may take long on a busy machine.
WAIT_S = 120.0
QUICK = {
    "engine.round_length_s": 120,
    "leases.notice_s": 0.5,
    "leases.grace_s": 0.5,
    "leases.margin_s": 0.5,
    "leadership.ttl_s": 2,
    "store.snapshot_entries": 1000,
    "policy.name": "fifo",
}
#: Does each step once, if no other process does, and records its process. The
#: last step waits until it is asked to finish.
JOB = """
import json, os, pathlib, sys, time
told = pathlib.Path(os.environ["LEASEHOLD_PROGRESS_FILE"])
file, total = pathlib.Path(sys.argv[1]), int(sys.argv[2])
done = len(file.read_text().splitlines()) if file.exists() else 0
for step in range(done, total):
    while step == total - 1 and not file.with_name("finish").exists():
        time.sleep(0.1)
    time.sleep(0.1)
    with file.open("a") as out:
        out.write(f"{step} {os.environ['LEASEHOLD_LEASE_ID']} {os.getpid()}\\n")
    steps = {"steps_live": step + 1, "steps_done": step + 1}
    told.with_suffix(".new").write_text(json.dumps(steps))
    told.with_suffix(".new").replace(told)
"""


@pytest.fixture(scope="session", params=RELEASES)
def commit(request: pytest.FixtureRequest) -> str:
    """Return the commit of a release before."""
    return str(request.param)


@pytest.fixture(scope="session")
def old_python(commit: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a Python that has this release."""
    folder = tmp_path_factory.mktemp("release")
    (folder / "source").mkdir()
    release(ROOT, folder / "source", commit)
    venv.create(folder / "venv", symlinks=True)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    ours = [path for path in (*sys.path, *site.getsitepackages()) if "site-packages" in path]
    # Links to this checkout lie beside the packages, and are not followed from here.
    lines = [f"import sys; sys.path.insert(0, {str(folder / 'source')!r})", *dict.fromkeys(ours)]
    (packages / "release.pth").write_text("".join(f"{line}\n" for line in lines))
    python = str(folder / "venv" / "bin" / "python")
    asked = [python, "-c", "import scheduler, agent; print(scheduler.__file__, agent.__file__)"]
    told = subprocess.run(asked, check=True, capture_output=True, text=True, cwd=folder).stdout
    assert all(path.startswith(str(folder)) for path in told.split()), told
    return python


class Machine:
    """A machine with a scheduler and agents, some of one release and some of another."""

    def __init__(self, folder: Path, url: str, extra: dict[str, str]) -> None:
        self.folder, self._url = folder, url
        self._programs: list[subprocess.Popen[bytes]] = []
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **extra,
        }
        self.client = httpx.Client(timeout=30.0)

    def start(self, python: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start ``leasehold ...``; its output goes to a file of its own."""
        # The release before would compile its loops again in each test, for half a minute.
        quick = {} if python == sys.executable else {"NUMBA_DISABLE_JIT": "1"}
        with (self.folder / f"{name}.log").open("ab") as log:
            program = subprocess.Popen(
                [python, "-m", "leasehold", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env | quick,
                cwd=self.folder,
                start_new_session=True,
            )
        self._programs.append(program)
        return program

    def log(self, name: str) -> str:
        """Return a program's output."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def serve(self, python: str, name: str, port: int | None = 0) -> subprocess.Popen[bytes]:
        """Start a scheduler, and wait until it leads."""
        sets = [f"--set={key}={value}" for key, value in QUICK.items()]
        state = f"--state-dir={self.folder / 'state'}"
        program = self.start(
            *(
                python,
                name,
                "serve",
                "--no-auth",
                f"--port={port or 0}",
                state,
                f"--db={self._url}",
            ),
            *sets,
        )
        self.until(lambda: "listens on " in self.log(name), program)
        url = self.log(name).partition("listens on ")[2].split()[0]
        self.client.base_url = httpx.URL(url)
        self.until(lambda: self.client.get("/v1/nodes").status_code == 200, program)
        return program

    def agent(self, python: str, node: str, workers: str) -> subprocess.Popen[bytes]:
        """Start an agent, and wait until the scheduler knows it."""
        program = self.start(
            *(python, node, "agent", f"--node={node}", f"--worker={workers}"),
            *(f"--state-dir={self.folder / node}", f"--server={self.client.base_url}"),
            *("--report-every=0.5", "--progress-every=0.5", "--poll-wait=3"),
        )
        self.until(lambda: node in {node["name"] for node in self.get("/v1/nodes")}, program)
        return program

    def submit(self, name: str, steps: int) -> str:
        """Submit a job that is equally fast everywhere; returns its id."""
        job = {
            "name": name,
            "command": [sys.executable, "-c", JOB, str(self.folder / f"{name}.steps"), str(steps)],
            "total_steps": steps,
            "job_type": "counting",
            "throughputs": {"v100": 10, "k80": 10},
        }
        answer = self.ask("POST", "/v1/jobs", json=job)
        assert answer.status_code < 300, answer.text
        return str(answer.json()["job_id"])

    def ask(self, method: str, path: str, **content: Any) -> httpx.Response:
        """Ask the scheduler; again while it does not lead, as clients do.

        On a busy machine it loses the lead of two seconds for a moment.
        """
        answers: list[httpx.Response] = []

        def answered() -> bool:
            answers.append(self.client.request(method, path, **content))
            return answers[-1].status_code != httpx.codes.SERVICE_UNAVAILABLE

        self.until(answered)
        return answers[-1]

    def get(self, path: str) -> list[Any]:
        """Return the scheduler's list."""
        answer = self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return next(value for value in found.values() if isinstance(value, list))

    def statuses(self) -> dict[str, str]:
        """Return the status of each job by its name."""
        return {job["name"]: job["status"] for job in self.get("/v1/jobs")}

    def steps(self, name: str) -> list[tuple[int, int, int]]:
        """Return (step, lease, process) of a job's work."""
        file = self.folder / f"{name}.steps"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(a), int(b), int(c)) for a, b, c in map(str.split, lines)]

    def until(
        self, condition: Callable[[], object], program: subprocess.Popen[bytes] | None = None
    ) -> None:
        """Wait until something holds, or a program has ended."""
        end_s = time.monotonic() + WAIT_S
        while not condition():
            logs = [file.read_text(errors="replace") for file in self.folder.glob("*.log")]
            assert program is None or program.poll() is None, "\n".join(logs)
            assert time.monotonic() < end_s, "\n".join(logs)
            time.sleep(0.05)

    def close(self) -> None:
        """End everything, jobs too."""
        for program in reversed(self._programs):
            if program.poll() is None:
                program.send_signal(signal.SIGKILL)
            program.wait()
        for file in self.folder.glob("*/leases/*/running.json"):
            pid = int(httpx.Response(200, content=file.read_bytes()).json()["pid"])
            command = Path(f"/proc/{pid}/cmdline")
            if command.exists() and str(file.parent).encode() in command.read_bytes():
                os.kill(pid, signal.SIGKILL)
        self.client.close()


@pytest.fixture
def machine(tmp_path: Path, url: str, commit: str) -> Iterator[Machine]:
    # An agent that is root runs jobs as another user, which may not be able to run this Python.
    made = Machine(tmp_path, url, {} if commit == OLDEST else {"LEASEHOLD_AGENT__ISOLATION": "off"})
    yield made
    made.close()


def test_jobs_run_on_after_a_release_before_was_killed(machine: Machine, old_python: str) -> None:
    scheduler = machine.serve(old_python, "old")
    machine.agent(old_python, "alpha", "v100:2")
    machine.agent(old_python, "beta", "k80:1")
    early = {name: machine.submit(name, 40) for name in "abc"}
    machine.until(lambda: all(len(machine.steps(name)) >= 10 for name in early))
    late = {name: machine.submit(name, 10) for name in "de"}
    cancelled = machine.submit("f", 10)
    running, waiting = dict.fromkeys(early, "running"), dict.fromkeys("def", "waiting")
    assert machine.statuses() == running | waiting
    scheduler.kill()
    scheduler.wait()
    before = {name: machine.steps(name)[-1][1:] for name in early}

    machine.serve(sys.executable, "new", machine.client.base_url.port)
    assert "another release left" in machine.log("new")
    leases = {lease["job_id"]: lease["lease_id"] for lease in machine.get("/v1/leases")}
    assert leases == {early[name]: lease_id for name, (lease_id, _) in before.items()}
    assert machine.client.post(f"/v1/jobs/{cancelled}/cancel").status_code < 300
    (machine.folder / "finish").touch()
    machine.until(lambda: set(machine.statuses().values()) <= {"completed", "cancelled"})
    names = early | late
    assert machine.statuses() == dict.fromkeys(names, "completed") | {"f": "cancelled"}
    for name, job_id in names.items():
        done = machine.steps(name)
        total = 40 if name in early else 10
        assert [step for step, _, _ in done] == list(range(total)), "a step twice, or none"
        assert len(machine.get(f"/v1/jobs/{job_id}/attempts")) == 1
        assert len({process for _, _, process in done}) == 1, "it was started anew"
    # Later jobs ran under new ids of leases.
    assert len({machine.steps(name)[0][1] for name in names}) == len(names)


def test_agents_of_a_release_before_serve_this_scheduler(machine: Machine, old_python: str) -> None:
    machine.serve(sys.executable, "new")
    machine.agent(old_python, "alpha", "v100:1")
    ids = {name: machine.submit(name, 30) for name in ("one", "two")}
    machine.until(lambda: len(machine.steps("one")) >= 5)
    assert machine.client.post(f"/v1/jobs/{ids['one']}/requeue").status_code < 300
    (machine.folder / "finish").touch()
    machine.until(lambda: set(machine.statuses().values()) == {"completed"})
    for name in ids:
        assert [step for step, _, _ in machine.steps(name)] == list(range(30))
