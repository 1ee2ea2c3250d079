"""Decisions of the Trainer's callback, by its hooks alone; no Transformers needed."""

from __future__ import annotations

import json
import os
import signal
from types import SimpleNamespace

import pytest

from leasehold import ForeignCheckpointsError, StaleLeaseError
from leasehold.huggingface import LAST_FILE, WHOLE_FILE, LeaseKeeper
from leasehold.surroundings import Surroundings


def trainer(folder, step, total=10):
    args = SimpleNamespace(output_dir=str(folder), device="cpu")
    state = SimpleNamespace(global_step=step, max_steps=total, is_world_process_zero=True)
    return args, state, SimpleNamespace(should_save=False, should_training_stop=False)


def saved(folder, step, *, whole=True):
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    (path / LAST_FILE).write_text("{}")
    if whole:
        (path / WHOLE_FILE).write_text("{}")
    return path


def test_without_a_lease_training_runs_to_its_end(tmp_path):
    keeper = LeaseKeeper(surroundings=Surroundings())
    args, state, control = trainer(tmp_path, 0)
    keeper.on_train_begin(args, state, control)
    assert keeper.on_step_end(args, state, control).should_training_stop is False
    keeper.on_train_end(args, state, control)
    keeper.exit_if_left_early()


@pytest.mark.parametrize("rank", [0, 1])
def test_no_rank_goes_on_from_the_checkpoints_of_another_job(tmp_path, rank):
    LeaseKeeper(surroundings=Surroundings(job_id="mine", token=1)).checkpoint(tmp_path)
    saved(tmp_path, 5)
    keeper = LeaseKeeper(surroundings=Surroundings(job_id="other", token=2, rank=rank))
    with pytest.raises(ForeignCheckpointsError, match="holds the checkpoints of job 'mine'"):
        keeper.checkpoint(tmp_path)


def test_steps_arrive_and_a_notice_saves_and_stops(host):
    lease = host.lease(1)
    keeper = LeaseKeeper(
        report_every_s=0.02, surroundings=Surroundings.read(host.environment(lease))
    )
    folder = host.folder / "checkpoints"
    assert keeper.checkpoint(folder) is None
    args, state, control = trainer(folder, 2)
    keeper.on_train_begin(args, state, control)
    state.global_step = 3
    assert not keeper.on_step_end(args, state, control).should_save
    host.until(lambda: lease.steps_live == 3)
    host.notify(lease)
    host.until(lambda: keeper._channel.noticed)
    state.global_step = 4
    keeper.on_step_end(args, state, control)
    assert control.should_save
    assert control.should_training_stop
    (folder / "checkpoint-4").mkdir()
    (folder / "checkpoint-4" / LAST_FILE).write_text("{}")
    keeper.on_save(args, state, control)
    keeper.on_train_end(args, state, control)
    steps = json.loads((host.folder / "progress.json").read_text())
    assert steps == {"steps_live": 4, "steps_done": 4}
    with pytest.raises(SystemExit) as left:
        keeper.exit_if_left_early()
    assert left.value.code == 75
    assert keeper.checkpoint(folder).endswith("checkpoint-4")


def test_sigterm_is_a_notice_and_the_last_step_is_not_left_early(host):
    lease = host.lease(1)
    keeper = LeaseKeeper(
        report_every_s=0.02, surroundings=Surroundings.read(host.environment(lease))
    )
    args, state, control = trainer(host.folder, 9)
    before = signal.getsignal(signal.SIGTERM)
    keeper.on_train_begin(args, state, control)
    signal.raise_signal(signal.SIGTERM)
    state.global_step = 10
    keeper.on_step_end(args, state, control)
    keeper.on_train_end(args, state, control)
    assert signal.getsignal(signal.SIGTERM) == before
    assert not keeper.left_early
    # The socket may be closed before the endpoint has read it all; the file is always right.
    steps = json.loads((host.folder / "progress.json").read_text())
    assert steps == {"steps_live": 10, "steps_done": 10}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_checkpoint_that_was_cut_off_is_neither_used_nor_removed(tmp_path, rank):
    keeper = LeaseKeeper(surroundings=Surroundings(token=1, job_id="one", rank=rank))
    LeaseKeeper(surroundings=Surroundings(token=1, job_id="one")).checkpoint(tmp_path)
    best, cut_off = saved(tmp_path, 10), saved(tmp_path, 11, whole=False)
    assert keeper.checkpoint(tmp_path) == str(best)
    assert cut_off.exists()


def test_a_checkpoint_with_a_damaged_state_is_passed_over(tmp_path):
    keeper = LeaseKeeper(surroundings=Surroundings(token=1))
    keeper.checkpoint(tmp_path)
    best, damaged = saved(tmp_path, 10), saved(tmp_path, 11)
    (damaged / LAST_FILE).write_text('{"log_history": [')
    assert keeper.checkpoint(tmp_path) == str(best)
    assert damaged.exists()


@pytest.mark.parametrize("job_id", ["", "one"])
def test_training_goes_on_from_a_checkpoint_of_before(tmp_path, job_id):
    before, unfinished = saved(tmp_path, 500, whole=False), tmp_path / "checkpoint-600"
    unfinished.mkdir()
    (unfinished / "model.safetensors").write_text("weights")
    os.utime(before / LAST_FILE, (1e9, 1e9))
    for rank in (1, 0, 1):
        told = Surroundings(token=1, job_id=job_id, rank=rank)
        assert LeaseKeeper(surroundings=told).checkpoint(tmp_path) == str(before)
    assert (unfinished / "model.safetensors").exists()


def test_an_attempt_that_was_overtaken_saves_no_more(tmp_path):
    old, new = (LeaseKeeper(surroundings=Surroundings(token=token)) for token in (1, 2))
    old.checkpoint(tmp_path)
    new.checkpoint(tmp_path)
    args, state, control = trainer(tmp_path, 3)
    control.should_save = True
    new.on_step_end(args, state, control)
    with pytest.raises(StaleLeaseError):
        old.on_step_end(args, state, control)
