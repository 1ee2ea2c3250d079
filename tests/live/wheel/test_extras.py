"""The wheel with and without its extras: what is there runs, and what is not is named.

The wheel is built as it is for others, and unpacked into an environment that has the distributions
that the extras in question ask for, and none besides: they are those of the environment that the
tests run in, found by what distributions say of themselves, so that nothing is fetched.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
#: Commands that talk to a scheduler.
LIGHT = [
    "submit", "jobs", "job", "explain", "watch", "logs", "cancel", "set", "top", "nodes", "policy",
    "project", "throughputs", "token",
]  # fmt: skip

REPLAY = ["bundled:small", "--throughputs", "bundled", "--cluster", "bundled:cluster"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel: the one that is tested, else one of this checkout."""
    if given := os.environ.get("LEASEHOLD_WHEEL"):
        return Path(given)
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Environment]:
    """Return what installs the wheel with some extras; each set once."""
    made: dict[tuple[str, ...], Environment] = {}

    def install(*extras: str) -> Environment:
        if extras not in made:
            made[extras] = Environment(tmp_path_factory.mktemp("env"), wheel, set(extras))
        return made[extras]

    return install


class Environment:
    """A virtual environment with the wheel and what it asks for."""

    def __init__(self, folder: Path, wheel: Path, extras: set[str]) -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        (self.site,) = (folder / "venv").glob("lib/python*/site-packages")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.site)
        (info,) = self.site.glob("leasehold-*.dist-info")
        self.names: set[str] = set()
        self._take(PathDistribution(info), extras)

    def _take(self, owner: Distribution, extras: set[str]) -> None:
        for text in owner.requires or ():
            wanted = Requirement(text)
            holds = [
                wanted.marker is None or wanted.marker.evaluate({"extra": extra})
                for extra in {"", *extras}
            ]
            name = re.sub(r"[-_.]+", "-", wanted.name).lower()
            if not any(holds) or name in self.names or name == "leasehold":
                continue
            self.names.add(name)
            found = distribution(wanted.name)
            self._link(found)
            self._take(found, set(wanted.extras))

    def _link(self, found: Distribution) -> None:
        tops = {Path(str(file)).parts[0] for file in found.files or ()} - {"..", "__pycache__"}
        for top in tops:
            source, target = Path(str(found.locate_file(top))), self.site / top
            if source.is_dir() and target.is_dir():  # several distributions share a folder
                continue
            if not target.exists():
                target.symlink_to(source)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python there, without anything of this environment."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "COLUMNS": "200"}
        env["NUMBA_DISABLE_JIT"] = "1"  # each environment would compile anew; it is imported
        return subprocess.run(
            [str(self.folder / "venv/bin/python"), *arguments],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def leasehold(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "leasehold", *arguments)


def test_without_extras_few_distributions_come_along(installed) -> None:
    names = installed().names
    assert {"httpx", "typer", "rich", "pyyaml"} <= names
    heavy = {"numpy", "scipy", "numba", "cvxpy", "fastapi", "uvicorn", "sqlalchemy", "kubernetes"}
    assert not names & heavy
    assert len(names) < 25, sorted(names)


def test_without_extras_jobs_and_programs_have_what_they_import(installed) -> None:
    code = (
        "import leasehold\n"
        "from leasehold import AsyncClient, Client, ClientError, LeaseIterator\n"
        "import leasehold.gang, leasehold.channel, leasehold.client.forms\n"
        "client = Client('http://127.0.0.1:9', token='', patience_s=0.0)\n"
        "try: client.nodes()\n"
        "except ClientError as error: print(error)\n"
    )
    ran = installed().run("-c", code)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("no scheduler answers at http://127.0.0.1:9")


def test_without_extras_the_overview_lists_every_command(installed) -> None:
    ran = installed().leasehold("--help")
    assert ran.returncode == 0, ran.stderr
    for name in (*LIGHT, "serve", "agent", "simulate"):
        assert name in ran.stdout


def test_without_extras_the_commands_of_a_scheduler_are_there(installed) -> None:
    code = (
        "import sys; from leasehold.cli.main import app\n"
        "for command in sys.argv[1:]:\n"
        "    try: app([command, '--help'], prog_name='leasehold')\n"
        "    except SystemExit as end: assert not end.code, command\n"
    )
    ran = installed().run("-c", code, *LIGHT)
    assert ran.returncode == 0, ran.stderr
    for command in LIGHT:
        assert f"Usage: leasehold {command}" in ran.stdout


def test_without_extras_a_command_gets_as_far_as_the_network(installed) -> None:
    file = installed().folder / "job.yaml"
    file.write_text("name: train\ncommand: [python, train.py]\n")
    for arguments in (["jobs"], ["submit", str(file)], ["top", "--once"]):
        ran = installed().leasehold(
            *arguments, "--server", "http://127.0.0.1:9", "--retry-for", "0s"
        )
        assert (ran.returncode, ran.stdout) == (3, ""), ran.stderr
        assert "no scheduler answers" in ran.stderr


@pytest.mark.parametrize(("arguments", "extras"), [
    (["serve"], "scheduler"),
    (["up"], "scheduler,agent"),
    (["migrate"], "scheduler"),
    (["agent"], "agent"),
    (["simulate", *REPLAY, "--policy", "fifo"], "simulator"),
    (["compare", *REPLAY, "--policies", "fifo"], "simulator"),
    (["policies", "show", "fifo"], "simulator"),
    (["traces", "inspect", "bundled:small", "--throughputs", "bundled"], "simulator"),
])  # fmt: skip
def test_a_command_names_the_extra_that_it_lacks(arguments, extras: str, installed) -> None:
    ran = installed().leasehold(*arguments)
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"leasehold: `leasehold {arguments[0]}` needs more than is installed")
    assert line.endswith(f"pip install 'leasehold[{extras}]'")
    assert (ran.returncode, ran.stdout) == (2, "")


@pytest.mark.parametrize(
    "code", ["import simulator.api", "import leasehold; leasehold.read_service('x')"]
)
@pytest.mark.parametrize("extras", [(), ("agent",)])
def test_a_program_is_told_the_extra_that_it_lacks(code: str, extras, installed) -> None:
    ran = installed(*extras).run("-c", code)
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: the simulator needs more than is installed here")
    assert last.endswith("pip install 'leasehold[simulator]'")


@pytest.mark.long
def test_the_simulator_has_what_it_needs(installed) -> None:
    environment = installed("simulator")
    ran = environment.leasehold("simulate", *REPLAY, "--policy", "max_min_fairness", "--out", "out")
    assert ran.returncode == 0, ran.stderr
    assert (environment.folder / "out").is_dir()
    assert environment.leasehold("policies", "list").returncode == 0
    code = (
        "from simulator.api import compare\n"
        "runs = compare('bundled', ['fifo'], throughputs='bundled', cluster='bundled')\n"
        "print(len(runs['fifo'].jobs), runs.plot('jct').svg[:4])\n"
    )
    ran = environment.run("-c", code)
    assert (ran.stdout, ran.stderr) == ("60 <svg\n", "")
    assert not environment.names & {"fastapi", "sqlalchemy", "kubernetes"}


@pytest.mark.long
def test_the_scheduler_has_what_it_needs(installed) -> None:
    environment = installed("scheduler")
    for arguments in (["serve", "--help"], ["config", "show"], ["config", "reference"]):
        ran = environment.leasehold(*arguments)
        assert ran.returncode == 0, ran.stderr
    (environment.folder / "state").mkdir()
    state = f"--state-dir={environment.folder / 'state'}"
    ran = environment.leasehold("migrate", state)
    assert ran.returncode == 0, ran.stderr
    assert not environment.names & {"plotly", "kubernetes", "nvidia-ml-py", "opentelemetry-sdk"}
    endpoint = "--set=tracing.endpoint=http://127.0.0.1:9"
    ran = environment.leasehold("serve", state, "--set=server.port=0", endpoint)
    assert ran.returncode == 2, ran.stderr
    assert "pip install 'leasehold[scheduler,tracing]'" in ran.stderr


def test_an_agent_has_what_it_needs(installed) -> None:
    environment = installed("agent")
    state = str(environment.folder / "agent")
    ran = environment.leasehold(
        "agent", "--worker", "v100:1", "--state-dir", state, "--server", "http://127.0.0.1:9",
        "--token-file", "/none",
    )  # fmt: skip
    assert ran.returncode == 2, ran.stderr
    assert "the token file /none cannot be read" in ran.stderr
    assert not environment.names & {"fastapi", "sqlalchemy", "cvxpy", "numba", "kubernetes"}
    ran = environment.leasehold("agent", "--backend", "kubernetes", "--state-dir", state)
    assert ran.stderr.splitlines()[-1].endswith("pip install 'leasehold[agent,kubernetes]'")


def test_all_extras_are_those_that_there_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    notebook = extras.pop("notebook")  # for people; no service needs a kernel
    assert notebook.pop(0) == "leasehold[simulator]"
    assert extras.pop("all") == [f"leasehold[{','.join(extras)}]"]
    assert set(extras) == {"scheduler", "agent", "simulator", "kubernetes", "tracing"}
    # The same distribution is asked for in the same words everywhere.
    words: dict[str, set[str]] = {}
    for requirement in (*project["dependencies"], *(r for name in extras for r in extras[name])):
        words.setdefault(Requirement(requirement).name, set()).add(requirement)
    assert {name: found for name, found in words.items() if len(found) > 1} == {}
