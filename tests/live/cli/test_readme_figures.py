"""The figures of the README and of the reference are what their commands print.

Processors differ in the last bits of a product and sum, and so now and then in a printed digit.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

#: How far a figure may be off on another processor; a stale row is off by more.
TOLERANCE = 0.005
ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"


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


@pytest.mark.long
def test_the_orders_in_the_reference_have_the_effect_that_is_written_there(leasehold, tmp_path):
    page = (ROOT / "docs/reference/overheads-and-failures.md").read_text(encoding="utf-8")
    for start, name in (("outages:", "failures.yaml"), ("- {at_s: 3600", "orders.yaml")):
        block = next(b for b in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if start in b)
        (tmp_path / name).write_text(block)
    (tmp_path / "leasehold.toml").touch()
    command = re.search(r"^\$ leasehold (simulate (?:.*\\\n)*.*)$", page, re.MULTILINE)
    assert command is not None
    arguments = shlex.split(command[1].replace("\\\n", " "))
    plain = [word for word in arguments[:-4] if word not in {"--orders", "orders.yaml"}]
    shown = []
    for words in (arguments, plain):
        ran = leasehold(*words, "--json")
        assert ran.code == 0, ran.err
        shown.append(json.loads(ran.out))
    ordered, without = shown
    said = re.search(r"(\d+) of the 40 .* of ([\d.]+) h; .* ([\d.]+) h, .* with (\d+) pre", page)
    assert said is not None
    assert ordered["jobs_completed"] == int(said[1])
    hours = [one["average_jct_s"] / 3600 for one in shown]
    assert hours == pytest.approx([float(said[2]), float(said[3])], rel=TOLERANCE)
    assert without["preemptions"] - ordered["preemptions"] == pytest.approx(int(said[4]), abs=3)
