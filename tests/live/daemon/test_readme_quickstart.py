"""The README's quickstart, with its own commands and their described output."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leasehold_testing.ports import free_ports

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
QUICKSTART = README[
    README.index("A laptop as a cluster") : README.index("Or a trace in the simulator")
]


@pytest.mark.long
def test_the_quickstart_runs_as_it_is_written(start, tmp_path):
    (up,) = re.findall(r"^leasehold (up .*)$", QUICKSTART, re.MULTILINE)
    *submits, explain = re.findall(r"^\$ leasehold (.*)$", QUICKSTART, re.MULTILINE)
    (program,) = re.findall(r"`train\.py` will do, such as one with `(.*)`", QUICKSTART)
    # On a busy machine a job may have had its turn before the third one is asked about; jobs that
    # last give each of them another.
    (tmp_path / "train.py").write_text(program.replace("30", "300"))
    shown = re.findall(r"^  (\w+): ", QUICKSTART, re.MULTILINE)
    assert (len(submits), shown[-1]) == (3, "forecast")

    (port,) = free_ports(1)
    daemon = start(*shlex.split(up), quick=False, LEASEHOLD_SERVER__PORT=str(port))
    daemon.wait_for("In another terminal")
    env = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "xdg"),
        "LEASEHOLD_SERVER": f"http://127.0.0.1:{port}",
    }

    def say(command):
        words = [sys.executable, "-m", "leasehold", *shlex.split(command)]
        run = subprocess.run(
            words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    def is_as_shown(told):
        labels = re.findall(r"^  (\w+): ", told, re.MULTILINE)
        return re.match(r"job3-\w{8} is waiting: turn\n", told) and labels == shown

    for number, submit in enumerate(submits, start=1):
        assert re.fullmatch(rf"job{number}-\w{{8}}\n", say(submit))
    deadline = time.monotonic() + 120.0
    while not is_as_shown(told := say(explain)):
        assert time.monotonic() < deadline, told
        time.sleep(0.2)
    daemon.send(signal.SIGTERM)
    assert daemon.end() == 0, daemon.output
