"""The start-up guard, with fake distributions in folders that subprocesses see first."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import scheduler.errors
from leasehold import __version__
from leasehold.cli.guard import PACKAGES, check_packages

ROOT = Path(scheduler.errors.__file__).resolve().parents[1]
VERSION = (
    "import sys; from leasehold.__main__ import main; "
    "sys.argv[1:] = ['--version']; sys.exit(main())"
)


def _fake_distribution(site: Path, package: str, *, name: str = "other-project") -> None:
    """Write a distribution into ``site`` as pip would."""
    (site / package).mkdir(parents=True)
    (site / package / "__init__.py").write_text("")
    _write_metadata(site, name, [f"{package}/__init__.py"])


def _write_metadata(site: Path, name: str, files: list[str], *, version: str = "3.1") -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    rows = []
    for file in files:
        digest = hashlib.sha256((site / file).read_bytes()).digest()
        encoded = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        rows.append(f"{file},sha256={encoded},{(site / file).stat().st_size}\n")
    (info / "RECORD").write_text("".join(rows))


def _run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        cwd="/",
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("package", [p for p in PACKAGES if p != "leasehold"])
def test_a_distribution_that_is_found_first_is_named_with_the_remedy(tmp_path, package):
    _fake_distribution(tmp_path, package)
    ran = _run(VERSION, tmp_path)
    assert ran.returncode == 2, ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert f"'other-project' 3.1 hides Leasehold's package '{package}'" in ran.stderr
    assert "pip uninstall other-project" in ran.stderr


def test_a_folder_that_belongs_to_nobody_is_named_by_its_path(tmp_path):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "__init__.py").write_text("")
    ran = _run(VERSION, tmp_path)
    assert ran.returncode == 2
    assert f"{tmp_path / 'policies'} hides Leasehold's package 'policies'" in ran.stderr


def test_a_module_file_of_the_same_name_is_noticed_too(tmp_path):
    (tmp_path / "traces.py").write_text("")
    ran = _run(VERSION, tmp_path)
    assert ran.returncode == 2
    assert "hides Leasehold's package 'traces'" in ran.stderr
    assert str(tmp_path / "traces.py") in ran.stderr


def test_a_distribution_that_comes_later_on_the_path_is_no_concern(tmp_path):
    _fake_distribution(tmp_path, "policies")
    code = f"import sys; sys.path.append({str(tmp_path)!r}); {VERSION}"
    ran = _run(code)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("leasehold ")


def test_a_folder_without_python_files_hides_nothing(tmp_path):
    (tmp_path / "policies").mkdir()
    ran = _run(VERSION, tmp_path)
    assert ran.returncode == 0, ran.stderr


@pytest.fixture
def installed(tmp_path) -> Path:
    """A folder that looks as if our wheels had been installed there."""
    site = tmp_path / "site"
    for package in PACKAGES:
        (site / package).mkdir(parents=True)
        shutil.copy(ROOT / package / "__init__.py", site / package / "__init__.py")
    for file in ("leasehold/__main__.py", "leasehold/distributions.py", "scheduler/errors.py"):
        shutil.copy(ROOT / file, site / file)
    shutil.copytree(ROOT / "leasehold/cli", site / "leasehold/cli")
    shared = site / "leasehold/_shared/scheduler"
    shared.mkdir(parents=True)
    for file in ("__init__.py", "errors.py"):
        shutil.copy(ROOT / "scheduler" / file, shared / file)
    first, *others = (f"{p}/__init__.py" for p in PACKAGES)
    _write_metadata(site, "leasehold-sdk", [first])
    _write_metadata(site, "leasehold-scheduler", others)
    return site


def test_installed_wheels_start(installed):
    ran = _run(VERSION, installed)
    assert (ran.returncode, ran.stdout) == (0, f"leasehold {__version__}\n"), ran.stderr


def test_wheels_of_different_versions_are_refused(installed):
    shutil.rmtree(installed / "leasehold_sdk-3.1.dist-info")
    _write_metadata(installed, "leasehold-sdk", ["leasehold/__init__.py"], version="3.2")
    ran = _run(VERSION, installed)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "leasehold-sdk 3.2 and leasehold-scheduler 3.1 are installed" in ran.stderr
    assert "pip install --upgrade leasehold-sdk leasehold-scheduler" in ran.stderr


def test_a_distribution_that_was_installed_over_ours_is_named(installed):
    (installed / "planner" / "__init__.py").write_text("# somebody else's\n")
    _write_metadata(installed, "trip-planner", ["planner/__init__.py"])
    ran = _run(VERSION, installed)
    assert ran.returncode == 2, ran.stderr
    assert "'trip-planner' 3.1 was installed over Leasehold's package 'planner'" in ran.stderr
    assert "pip install --force-reinstall --no-deps leasehold-scheduler" in ran.stderr


def test_a_wheel_of_the_old_name_that_was_installed_over_ours_is_named(installed):
    (installed / "leasehold" / "__init__.py").write_text('__version__ = "0.2.0"\n')
    _write_metadata(installed, "leasehold", ["leasehold/__init__.py"], version="0.2.0")
    ran = _run(VERSION, installed)
    assert ran.returncode == 2, ran.stderr
    assert "pip uninstall leasehold)" in ran.stderr
    assert "pip install --force-reinstall --no-deps leasehold-sdk" in ran.stderr


def test_a_file_that_the_user_edited_is_not_taken_for_another_distribution(installed):
    (installed / "planner" / "__init__.py").write_text("# edited by hand\n")
    assert _run(VERSION, installed).returncode == 0


def test_the_guard_costs_some_thousand_calls(calls_of):
    check_packages()  # the first call reads folders that the second finds cached
    # 7,000 in a checkout, most of them to read two versions, which takes less than 2 ms; 9,000 with
    # records of wheels, and all the folders that other tests have put on the path.
    assert calls_of(check_packages) < 12_000


def test_our_own_packages_pass_wherever_the_tests_run():
    code = textwrap.dedent("""
        from leasehold.cli.guard import check_packages
        check_packages()
    """)
    ran = _run(code, ROOT)
    assert ran.returncode == 0, ran.stderr
