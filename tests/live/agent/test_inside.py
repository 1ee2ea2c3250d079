"""The exit code of a command beside a job if it cannot start, like that of shells."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import agent.process.inside
from agent.process.supervisor import start_ticks


@pytest.fixture
def beside(tmp_path):
    """Give a function that runs a command beside a process with odd folders in its PATH."""
    no_folder = tmp_path / "file"
    no_folder.write_text("")
    for name, text, mode in (
        ("plain", "", 0o644),
        ("works", "#!/bin/sh\nexit 5\n", 0o755),
        ("orphan", "#!/no/such/interpreter\n", 0o755),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    path = f"{tmp_path}:/no/such/folder:{no_folder}"
    leader = subprocess.Popen(["/bin/sleep", "900"], env={"PATH": path})

    def run(command):
        spec = {
            "leader": leader.pid,
            "ticks": start_ticks(leader.pid),
            "cell": None,
            "groups": [],
            "cwd": str(tmp_path),
            "command": [command],
        }
        told = os.memfd_create("exec", 0)
        try:
            os.write(told, json.dumps(spec).encode())
            os.lseek(told, 0, os.SEEK_SET)
            return subprocess.run(
                [sys.executable, "-I", "-S", agent.process.inside.__file__, str(told)],
                pass_fds=(told,),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        finally:
            os.close(told)

    yield run
    leader.kill()
    leader.wait()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("works", 5),
        ("no-such-program", 127),
        ("./no-such-program", 127),
        ("./orphan", 127),
        ("plain", 126),
        ("./plain", 126),
    ],
)
def test_a_program_that_is_not_found_is_127_and_one_that_may_not_be_run_126(beside, command, code):
    ended = beside(command)
    assert ended.returncode == code, ended.stderr
    if code > 125:
        assert ended.stderr.startswith(f"leasehold: {command}: ")
