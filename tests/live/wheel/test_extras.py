"""The SDK's wheel alone, and both wheels with extras: installed parts run, the rest is named.

The wheels are built as they are for others, and unpacked into an environment that has the
distributions that the extras in question ask for, and none besides: they are those of the
environment that the tests run in, found by what distributions say of themselves, so that nothing
is fetched.
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

from leasehold import __version__
from leasehold.cli.guard import PACKAGES
from leasehold.cli.main import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
#: Commands that talk to a scheduler, or print the package's content.
LIGHT = [name for name, command in COMMANDS.items() if not command.extras]

REPLAY = ["bundled:small", "--throughputs", "bundled", "--cluster", "bundled:cluster"]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the wheels, the SDK's first: those that are tested, else those of this checkout."""
    folder = Path(os.environ.get("LEASEHOLD_WHEELS") or tmp_path_factory.mktemp("wheels"))
    if not any(folder.iterdir()):
        for project in (ROOT / "sdk", ROOT):
            command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
            ran = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
            assert ran.returncode == 0, ran.stderr
    (sdk,), (scheduler,) = (folder.glob(f"leasehold_{name}-*.whl") for name in ("sdk", "scheduler"))
    return sdk, scheduler


@pytest.fixture(scope="module")
def installed(
    wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Environment]:
    """Return what installs the SDK, or both wheels with some extras; each set once."""
    made: dict[tuple[str, ...], Environment] = {}

    def install(*extras: str) -> Environment:
        if extras not in made:
            taken = wheels if extras else wheels[:1]
            made[extras] = Environment(tmp_path_factory.mktemp("env"), taken, set(extras))
        return made[extras]

    return install


class Environment:
    """A virtual environment with wheels and their requirements."""

    def __init__(self, folder: Path, wheels: tuple[Path, ...], extras: set[str]) -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        (self.site,) = (folder / "venv").glob("lib/python*/site-packages")
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(self.site)
        self.names: set[str] = set()
        for info in sorted(self.site.glob("leasehold_s*-*.dist-info")):
            self._take(PathDistribution(info), extras)

    def _take(self, owner: Distribution, extras: set[str]) -> None:
        for text in owner.requires or ():
            wanted = Requirement(text)
            holds = [
                wanted.marker is None or wanted.marker.evaluate({"extra": extra})
                for extra in {"", *extras}
            ]
            name = re.sub(r"[-_.]+", "-", wanted.name).lower()
            if not any(holds) or name in self.names or name == "leasehold-sdk":
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
        env["NUMBA_DISABLE_JIT"] = "1"  # each environment would compile again; it is imported
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


def test_the_wheels_have_their_packages_and_no_others(wheels) -> None:
    tops = []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            found = {name.partition("/")[0] for name in archive.namelist()}
        tops.append({top for top in found if not top.endswith(".dist-info")})
    assert tops == [{"leasehold"}, set(PACKAGES) - {"leasehold"}]


def test_the_scheduler_requires_the_sdk_of_its_own_version(installed) -> None:
    (info,) = installed("agent").site.glob("leasehold_scheduler-*.dist-info")
    found = PathDistribution(info)
    (wanted,) = (text for text in found.requires or () if text.startswith("leasehold"))
    assert (wanted, found.version) == (f"leasehold-sdk=={__version__}", __version__)


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


def test_with_the_sdk_alone_other_projects_may_have_packages_of_our_names(installed) -> None:
    environment = installed()
    others = environment.folder / "others"
    for name in PACKAGES[1:]:
        (others / name).mkdir(parents=True)
        (others / name / "__init__.py").touch()
    code = (
        f"import sys; sys.path.insert(0, {str(others)!r})\n"
        "from leasehold.__main__ import main\n"
        "for arguments in (['jobs', '--help'], ['--version']):\n"
        "    sys.argv[1:] = arguments; main()\n"
        "sys.argv[1:] = ['serve']; sys.exit(main())\n"
    )
    ran = environment.run("-c", code)
    assert ran.stdout.endswith(f"leasehold {__version__}\n"), ran.stderr
    assert ran.returncode == 2
    assert ran.stderr.endswith("pip install 'leasehold-scheduler[scheduler]'\n")


def test_without_extras_the_overview_lists_every_command(installed) -> None:
    ran = installed().leasehold("--help")
    assert ran.returncode == 0, ran.stderr
    for name in (*LIGHT, "serve", "agent", "simulate"):
        assert name in ran.stdout


def test_without_extras_the_commands_of_a_scheduler_are_there(installed) -> None:
    code = (
        "import sys; from leasehold.__main__ import main\n"
        "for command in sys.argv[1:]:\n"
        "    sys.argv[1:] = [command, '--help']\n"
        "    assert not main(), command\n"
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
    assert line.endswith(f"pip install 'leasehold-scheduler[{extras}]'")
    assert (ran.returncode, ran.stdout) == (2, "")


@pytest.mark.parametrize(("code", "extras"), [
    ("import simulator.api", ["agent"]),
    ("import leasehold; leasehold.read_service('x')", ["agent"]),
    ("import leasehold; leasehold.read_service('x')", []),
])  # fmt: skip
def test_a_program_is_told_the_extra_that_it_lacks(code: str, extras, installed) -> None:
    ran = installed(*extras).run("-c", code)
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: the simulator needs more than is installed here")
    assert last.endswith("pip install 'leasehold-scheduler[simulator]'")


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
    assert "pip install 'leasehold-scheduler[scheduler,tracing]'" in ran.stderr


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
    assert ran.stderr.splitlines()[-1].endswith(
        "pip install 'leasehold-scheduler[agent,kubernetes]'"
    )


def test_all_extras_are_those_that_there_are() -> None:
    project, sdk = (
        tomllib.loads((ROOT / file).read_text(encoding="utf-8"))["project"]
        for file in ("pyproject.toml", "sdk/pyproject.toml")
    )
    extras = project["optional-dependencies"]
    notebook = extras.pop("notebook")  # for people; no service needs a kernel
    assert notebook.pop(0) == "leasehold-scheduler[simulator]"
    assert extras.pop("all") == [f"leasehold-scheduler[{','.join(extras)}]"]
    assert set(extras) == {"scheduler", "agent", "simulator", "kubernetes", "tracing"}
    # The same distribution is asked for in the same words everywhere.
    words: dict[str, set[str]] = {}
    for requirement in (*sdk["dependencies"], *(r for name in extras for r in extras[name])):
        words.setdefault(Requirement(requirement).name, set()).add(requirement)
    assert {name: found for name, found in words.items() if len(found) > 1} == {}
