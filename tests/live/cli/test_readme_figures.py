"""The figures of the README are what its command prints.

Processors differ in the last bits of a product and sum, and so now and then in a printed digit.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

#: How far a figure may be off on another processor; a stale row is off by more.
TOLERANCE = 0.005
README = Path(__file__).parents[3] / "README.md"


def figures(text: str) -> dict[str, list[float]]:
    """Return policy -> done, average, p95, makespan, mean rho, worst rho, utilisation, cost."""
    rows = (line.split() for line in text.splitlines())
    shown = {row[0]: row[1:9] for row in rows if len(row) > 8 and row[1] == "60"}
    return {name: [float(word.rstrip("%*")) for word in row] for name, row in shown.items()}


@pytest.mark.long
def test_the_comparison_in_the_readme_is_what_its_command_prints(tmp_path) -> None:
    text = README.read_text(encoding="utf-8")
    command = re.search(r"^leasehold (compare (?:.*\\\n)*.*)$", text, re.MULTILINE)
    assert command is not None
    arguments = shlex.split(command[1].replace("\\\n", " "))
    run = subprocess.run(
        [sys.executable, "-m", "leasehold", *arguments],
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    printed, written = figures(run.stdout), figures(text)
    assert len(written) == 5
    assert printed.keys() == written.keys()
    for name, row in written.items():
        assert printed[name] == pytest.approx(row, rel=TOLERANCE, abs=0.011), name
