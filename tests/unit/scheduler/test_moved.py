"""Modules under the names of the release before."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.moved import MOVED


@pytest.mark.parametrize("old", sorted(MOVED))
def test_a_module_is_found_under_its_old_name_with_a_warning(old):
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old]}; the old name goes"):
        before = importlib.import_module(old)
    assert before is importlib.import_module(MOVED[old])
    assert importlib.import_module(old) is before  # without another warning
    del sys.modules[old]


@pytest.mark.parametrize(
    "line",
    [
        "from scheduler.domain.job import Job",
        "import scheduler.domain.job; scheduler.domain.job.Job",
        "from scheduler.domain import job; job.Job",
        "from planner.goodput import BatchLimits",
        "from scheduler.domain.ways import *; CatalogueKey",
    ],
)
def test_plugins_import_old_names_in_every_way(line):
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", line],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "<string>:1: DeprecationWarning: " in done.stderr


def test_no_old_name_hides_a_module_that_is_there():
    for old in MOVED:
        parent, _, name = old.rpartition(".")
        package = importlib.import_module(parent)
        for folder in map(Path, package.__path__):
            assert not (folder / f"{name}.py").exists()
            assert not (folder / name / "__init__.py").exists()
