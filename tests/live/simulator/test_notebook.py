"""The example notebook runs, and its stored outputs are up to date."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import nbformat
import pytest

from leasehold_testing.notebook import shown

ROOT = Path(__file__).parents[3]
NOTEBOOK = ROOT / "examples" / "notebook" / "study_policies.ipynb"


@pytest.fixture(scope="module")
def stored():
    return list(shown(nbformat.read(NOTEBOOK, as_version=4)))


@pytest.mark.long
def test_the_notebook_shows_what_is_stored_in_it(stored, tmp_path):
    """In a process of its own: this suite ignores warnings of a kernel's libraries."""
    out = tmp_path / "run.ipynb"
    paths = [str(ROOT / "tests" / "support"), *(path for path in sys.path if path)]
    ran = subprocess.run(
        [
            sys.executable, "-m", "leasehold_testing.notebook", str(NOTEBOOK),
            "--out", str(out), "--folder", str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "IPYTHONDIR": str(tmp_path / "ipython"),
        },
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    again = list(shown(nbformat.read(out, as_version=4)))
    assert [kind for kind, _ in again] == [kind for kind, _ in stored]
    for (kind, before), (_, after) in zip(stored, again, strict=True):
        if kind != "image/svg+xml":  # the last digit of a pixel does not matter
            assert after == before


def test_the_notebook_has_tables_and_plots_and_nothing_of_a_machine(stored):
    kinds = [kind for kind, _ in stored]
    assert kinds.count("text/html") >= 2
    assert "stderr" not in kinds
    plots = [text for kind, text in stored if kind == "image/svg+xml"]
    assert len(plots) >= 2
    assert all(ET.fromstring(plot).tag.endswith("svg") for plot in plots)
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not any(word in text for word in ("/home/", "/root/", "/tmp/", "iopub"))
