"""Worlds from seeds, a few of them: ``make test-world`` runs as many as one likes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


def start(*options, hash_seed="0"):
    return subprocess.Popen(
        [sys.executable, str(RUN), *options],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def said(process):
    return process.communicate(timeout=300)[0]


def digests(text):
    return [line.split(",")[0] for line in text.splitlines() if line.startswith("seed ")]


def test_a_seed_is_the_same_world_in_every_process():
    both = [start("--seeds", "1-8", "--verbose", hash_seed=seed) for seed in ("1", "2")]
    one, other = map(said, both)
    assert len(digests(one)) >= 8
    assert digests(one) == digests(other)
    assert len({line.split()[2] for line in digests(one)}) == len(digests(one))


@pytest.mark.long
@pytest.mark.parametrize("seeds", ["101-110", "111-120"])
def test_nothing_is_lost_or_doubled_in_worlds_full_of_faults(seeds):
    process = start("--seeds", seeds)
    text = said(process)
    assert process.returncode == 0, text
    assert "10 worlds" in text
