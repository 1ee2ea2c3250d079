"""A job that is resized learns as one that is left alone: plain DDP on CPU, by gloo."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from leasehold_testing.ports import free_ports

PROGRAM = Path(__file__).with_name("resized.py")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make test-torch"
)


def train(folder, first, last, world_size, paces=(), **variables):
    """Train some steps on so many processes; return the loss of each step."""
    folder.mkdir(exist_ok=True)
    (port,) = free_ports(1)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world_size)}
    shared |= variables
    command = [sys.executable, PROGRAM, folder, str(first), str(last), json.dumps(list(paces))]
    processes = [
        subprocess.Popen(
            command, env=dict(os.environ) | shared | {"RANK": str(rank)}, stderr=subprocess.PIPE
        )
        for rank in range(world_size)
    ]
    for process in processes:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said.decode()
    return json.loads((folder / f"losses.{first}.json").read_text())


def test_losses_are_those_of_an_undisturbed_run_whatever_the_schedule(tmp_path):
    resized = []
    for number, world_size in enumerate((1, 2, 4, 2, 1)):
        resized += train(tmp_path / "resized", 6 * number, 6 * number + 6, world_size)
    alone = train(tmp_path / "alone", 0, 30, 1)
    assert resized == pytest.approx(alone, rel=1e-9)
    assert sum(alone[-6:]) < 0.7 * sum(alone[:6]), "it learns"


def test_unlike_ranks_share_a_batch_by_their_paces(tmp_path):
    uneven = train(tmp_path / "uneven", 0, 12, 3, paces=(4.0, 1.0, 1.5))
    assert uneven == pytest.approx(train(tmp_path / "alone", 0, 12, 1), rel=1e-9)


def test_ranks_of_a_mixed_gang_share_a_batch_as_their_environment_says(tmp_path):
    uneven = train(tmp_path / "uneven", 0, 12, 3, LEASEHOLD_PACES="[4.0, 1.0, 1.5]")
    assert uneven == pytest.approx(train(tmp_path / "alone", 0, 12, 1), rel=1e-9)
