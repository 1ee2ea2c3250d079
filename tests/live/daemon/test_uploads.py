"""``--upload`` with real processes: two agents that share no folder with the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

LEASEHOLD = (sys.executable, "-m", "leasehold")
#: Prints its findings, leaves a process behind, and stays until it is asked to leave.
TRAIN = """
import os, pathlib, signal, sys, time
import helper
print("words:", helper.WORDS, "left:", pathlib.Path("left").exists(), flush=True)
pathlib.Path("left").write_text("x")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
while os.environ["LEASEHOLD_ATTEMPT"] == "1":
    time.sleep(0.05)
"""


def until(look, within_s=120.0):
    end_s = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < end_s, "it did not come to pass"
        time.sleep(0.1)
    return found


@pytest.fixture
def there(start, tmp_path):
    """A scheduler, two agents, and ``leasehold`` of a user in a separate folder."""
    home = tmp_path / "home"
    (home / "code" / "helper").mkdir(parents=True)
    (home / "code" / "train.py").write_text(TRAIN)
    (home / "code" / "helper" / "__init__.py").write_text('WORDS = "of mine"\n')
    (home / "code" / "big.bin").write_bytes(os.urandom(6 * 2**20))
    daemon = start("serve", "--no-auth", f"--state-dir={tmp_path / 's'}", "--port=0")
    for name in ("n1", "n2"):
        start(
            *("agent", f"--server={daemon.url}", f"--node={name}", "--worker=v100:1"),
            f"--state-dir={tmp_path / name}",
            quick=False,
        )
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LEASEHOLD_SERVER": daemon.url}

    def leasehold(*words, code=0):
        ran = subprocess.run(
            [*LEASEHOLD, *words],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, timeout=240,
            cwd=home / "code", check=False,
        )  # fmt: skip
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout if code == 0 else ran.stderr

    until(lambda: len(json.loads(leasehold("nodes", "--json", "--retry-for=2m"))["nodes"]) == 2)
    return leasehold, tmp_path


def test_code_is_there_on_each_node_and_in_each_attempt_anew(there):
    leasehold, folder = there
    command = ("--exclude", "*.bin", "--", sys.executable, "train.py")
    job = leasehold("submit", "-n", "moved", "--upload", *command).strip()
    until(lambda: "words: of mine" in leasehold("logs", job))
    (node,) = json.loads(leasehold("job", job, "--json"))["nodes"]
    leasehold("drain", node)
    leasehold("watch", job)
    told = json.loads(leasehold("job", job, "--json"))
    assert [attempt["nodes"] for attempt in told["attempts_made"]] == [
        [node],
        ["n2" if node == "n1" else "n1"],
    ]
    assert leasehold("logs", job).count("words: of mine left: False") == 2
    assert "working_dir" not in told["spec"] or not told["spec"]["working_dir"]
    for name in ("n1", "n2"):  # nothing of it stays
        for place in ("work", "trees"):
            until(lambda at=folder / name / place: not at.exists() or not list(at.iterdir()))


def test_what_is_too_large_is_not_taken_and_what_is_gone_is_told(there):
    leasehold, _ = there
    said = leasehold("submit", "--upload", "--", sys.executable, "train.py", code=2)
    assert "uploads.max_bytes" in said or "larger than" in said
    job = '{"name": "x", "command": ["true"], "upload": "%s"}' % ("0" * 64)
    (folder := there[1] / "job.json").write_text(job)
    assert "has no such upload" in leasehold("submit", str(folder), code=2)
