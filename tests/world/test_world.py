"""Worlds from seeds, a few of them: ``make test-world`` runs as many as one likes."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


def run(*options, hash_seed="0"):
    return subprocess.run(
        [sys.executable, str(RUN), *options],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def digests(done):
    return [line.split(",")[0] for line in done.stdout.splitlines() if line.startswith("seed ")]


def test_a_seed_is_the_same_world_in_every_process():
    with ThreadPoolExecutor() as both:
        one, other = both.map(
            lambda seed: run("--seeds", "1-8", "--verbose", hash_seed=seed), ("1", "2")
        )
    assert one.returncode == other.returncode == 0, one.stdout + one.stderr
    assert len(digests(one)) >= 8
    assert digests(one) == digests(other)
    assert len({line.split()[2] for line in digests(one)}) == len(digests(one))


@pytest.mark.long
@pytest.mark.parametrize("seeds", ["101-110", "111-120"])
def test_nothing_is_lost_or_doubled_in_worlds_full_of_faults(seeds):
    done = run("--seeds", seeds)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 worlds" in done.stdout
