"""The locks of images and CI: the check finds outdated ones, by files alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT, BUILD, IMAGE = "pyproject.toml", "locks/build.txt", "locks/image.txt"
SDK = "sdk/pyproject.toml"
UV = "locks/uv.txt"
YAML = '"pyyaml>=6.0"'
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def check(tmp_path):
    """Check a copy of the locks after a change of a file: check(file, old, new) -> (code, said)."""
    if not (ROOT / ".ci" / "locks").exists():
        pytest.skip("the tests were copied away from the sources")
    for name in (".ci", "locks", "sdk"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    def run(file="", old="", new=""):
        if file:
            text = (tmp_path / file).read_text()
            assert old in text
            (tmp_path / file).write_text(text.replace(old, new, 1))
        done = subprocess.run(
            [sys.executable, tmp_path / ".ci" / "locks", "check"],
            check=False,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stderr

    return run


def test_the_locks_hold_what_is_asked_for(check):
    assert check() == (0, "")


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (SDK, YAML, f'{YAML}, "leftpad>=1"', "'leftpad>=1', and it is not there"),
        (SDK, YAML, '"pyyaml>=99"', "asks for 'pyyaml>=99', and it is 6."),
        (PROJECT, '"ruff>=0.9"', '"ruff>=99"', "ci.txt: pyproject.toml asks for 'ruff>=99'"),
        (BUILD, "    --hash=sha256:", "    --hash=md5:", "is neither a version nor a hash"),
        (IMAGE, "aiohttp==", "--index-url https://example/simple\naiohttp==", "is neither"),
        (UV, "uv==", "uv==1000.", "locks/uv.txt: uv is 1000."),
        (IMAGE, "    --hash", "extra==1 \\\n    --hash", "the package before has no hash"),
    ],
)
def test_what_is_not_as_it_should_be_is_named(check, file, old, new, said):
    code, told = check(file, old, new)
    assert code == 1
    assert said in told
