"""The state of a PyTorch loop, and the callback's decisions, without a scheduler."""

from __future__ import annotations

import importlib.util
import random

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed: make test-torch", allow_module_level=True)

import numpy as np
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState

from leasehold import StaleLeaseError
from leasehold.huggingface import LAST_FILE, WHOLE_FILE, LeaseCallback
from leasehold.surroundings import Surroundings
from leasehold.torch import TrainingState, save_atomically


def test_every_generator_goes_on_as_if_nothing_had_happened(tmp_path):
    model = torch.nn.Linear(2, 2)
    state = TrainingState(model=model, optimizer=torch.optim.Adam(model.parameters()))
    state.save(tmp_path)
    first = (*_draws(), model.weight.clone())
    torch.nn.init.zeros_(model.weight)
    state.load(tmp_path)
    assert _draws() == first[:3]
    assert torch.equal(model.weight, first[3])


def _draws():
    legacy = np.random.random()  # noqa: NPY002 - what much code still draws from
    return random.random(), legacy, torch.rand(1).item()


def test_an_object_that_was_not_saved_is_named(tmp_path):
    model = torch.nn.Linear(1, 1)
    TrainingState(model=model).save(tmp_path)
    state = TrainingState(model=model, more={"schedule": model})
    with pytest.raises(KeyError, match="no state of 'schedule'"):
        state.load(tmp_path)


def test_a_file_that_could_not_be_written_whole_is_not_there(tmp_path):
    with pytest.raises(Exception, match="pickle"):
        save_atomically({"a": lambda: None}, tmp_path / "state.pt")
    assert not (tmp_path / "state.pt").exists()


def checkpoint(folder, step, *, whole=True):
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    (path / LAST_FILE).write_text("{}")
    if whole:
        (path / WHOLE_FILE).write_text("{}")
    return path


def test_the_newest_whole_checkpoint_is_taken_and_half_ones_are_passed_over(tmp_path):
    callback = LeaseCallback(surroundings=Surroundings(job_id="job", token=1))
    assert isinstance(callback, TrainerCallback)
    assert callback.checkpoint(tmp_path / "none") is None
    assert callback.checkpoint(tmp_path) is None  # the folder is this job's from now on
    checkpoint(tmp_path, 9)
    best, half = checkpoint(tmp_path, 10), checkpoint(tmp_path, 11, whole=False)
    assert callback.checkpoint(tmp_path) == str(best)
    assert half.exists()


def test_an_attempt_that_was_overtaken_saves_no_more(tmp_path):
    old, new = (LeaseCallback(surroundings=Surroundings(token=token)) for token in (1, 2))
    old.checkpoint(tmp_path)
    new.checkpoint(tmp_path)
    arguments = type("Arguments", (), {"output_dir": str(tmp_path)})
    state, control = TrainerState(global_step=3, max_steps=9), TrainerControl(should_save=True)
    new.on_step_end(arguments, state, control)
    with pytest.raises(StaleLeaseError):
        old.on_step_end(arguments, state, control)
    new.exit_if_left_early()
