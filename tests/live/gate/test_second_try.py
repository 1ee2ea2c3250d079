"""`.ci/second-try`: what fails is run once more, and what passes then is listed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYTEST = str(Path(sys.executable).with_name("pytest"))
#: Others take seconds to import.
PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
FLAKY = """
import pathlib, pytest
@pytest.mark.parametrize("n", range({count}))
def test_flaky(n):
    path = pathlib.Path(__file__).with_name(f"been-{{n}}")
    been = path.exists()
    path.touch()
    assert been, "the first"
def test_steady():
    path = pathlib.Path(__file__).with_name("steady")
    assert not path.exists(), "run twice"
    path.touch()
"""


@pytest.fixture
def second_try(tmp_path):
    """Run tests by a copy of the script: second_try(text) -> (exit code, output, listed)."""
    script = ROOT / ".ci" / "second-try"
    if not script.exists():
        pytest.skip("the tests were copied away from the sources")
    (tmp_path / ".ci").mkdir()
    (tmp_path / "tests").mkdir()
    copy = shutil.copy(script, tmp_path / ".ci")

    def run(text):
        (tmp_path / "tests" / "test_it.py").write_text(text)
        done = subprocess.run(
            [sys.executable, copy, "-n", "2", "--dist", "loadscope", "tests"],
            cwd=tmp_path,
            env=os.environ | PLUGINS | {"SECOND_TRY_PYTEST": PYTEST},
            capture_output=True,
            text=True,
            check=False,
        )
        listed = tmp_path / "build" / "second-try" / "passed"
        lines = listed.read_text().splitlines() if listed.exists() else []
        return done.returncode, done.stdout, lines

    return run


def test_what_passes_at_the_second_try_passes_and_is_listed(second_try, tmp_path):
    code, output, listed = second_try(FLAKY.format(count=2))
    assert code == 0, output
    assert listed == [f"tests/test_it.py::test_flaky[{n}]" for n in (0, 1)]
    (first,) = tmp_path.glob("build/second-try/*/first")
    assert "the first" in first.read_text()


def test_what_fails_twice_fails(second_try):
    code, _, listed = second_try("def test_it(): assert 0")
    assert (code, listed) == (1, [])


def test_many_failures_are_no_chance(second_try):
    code, output, listed = second_try(FLAKY.format(count=11))
    assert (code, listed) == (1, [])
    assert "second try" not in output


def test_what_cannot_run_is_not_tried_again(second_try):
    assert second_try("def test_it(: pass")[::2] == (2, [])
    assert second_try("")[::2] == (5, []), "no tests"
