"""A job with a changing batch: known noise, the same decisions in all processes, one course."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed: make test-torch", allow_module_level=True)

import torch

from leasehold import AdaptiveBatches, BatchLimits, GlobalBatches, LeaseIterator
from leasehold.torch import AdaptiveTraining, TrainingState, backward
from leasehold_testing.ports import free_ports

PROGRAM = Path(__file__).with_name("adapted.py")
_SPEC = importlib.util.spec_from_file_location("adapted", PROGRAM)
adapted = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(adapted)

#: Errors of the samples: few, so that the noise is soon known; many, so that large batches pay.
QUIET, NOISY = 2.0, 6.0
#: Of half the squared error of a linear regression, d from its true weights, standard normal
#: inputs: q = |d|^2 and S = (features + 1) |d|^2 + features sigma^2.
SQR = adapted.DISTANCE**2
TRACE = (adapted.FEATURES + 1) * SQR + adapted.FEATURES * QUIET**2
#: With these a single process comes to larger batches.
GROWING = BatchLimits(initial=8, most=128, most_per_worker=128)


class Job:
    """A job of one process."""

    def __init__(self, *, limits, lr, rule="adascale", deep=False, momentum=0.0, sigma=NOISY):
        torch.manual_seed(0)
        self.inputs, self.targets = adapted.draw(sigma)
        if deep:
            layers = torch.nn.Linear(10, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
            self.model = torch.nn.Sequential(*layers).double()
        else:
            self.model = torch.nn.Linear(10, 1, bias=False).double()
            torch.nn.init.zeros_(self.model.weight)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=momentum)
        self.batches = AdaptiveBatches(
            total=adapted.SAMPLES, limits=limits, rank=0, world_size=1, retune_every_s=20.0
        )
        self.clock = adapted.Clock()
        self.training = AdaptiveTraining(
            module=self.model,
            optimizer=self.optimizer,
            batches=self.batches,
            learning_rate=rule,
            clock=self.clock,
        )
        more = {"adaptive": self.training}
        self.state = TrainingState(model=self.model, optimizer=self.optimizer, more=more)
        self.losses, self.sizes = [], []

    def loss_of(self, samples):
        rows = list(samples)
        self.clock.spend(len(rows))
        return 0.5 * (self.model(self.inputs[rows])[:, 0] - self.targets[rows]).square().mean()

    def train(self, total_steps, *, leave_after=None, **keeping):
        steps = LeaseIterator(self.batches, total_steps=total_steps, **keeping)
        for batch in steps:
            if len(self.sizes) == leave_after:
                break
            self.sizes.append(self.batches.size)
            self.losses.append(self.training.backward(batch, self.loss_of))
            self.training.step()
        return self

    def loss(self):
        with torch.no_grad():
            return float(self.loss_of(range(adapted.SAMPLES)))


def run_gang(folder, processes, **fields):
    """Run the program; return what each process saw."""
    (port,) = free_ports(1)
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    folder.mkdir(exist_ok=True)
    started = [
        subprocess.Popen(
            [sys.executable, PROGRAM, folder, json.dumps(fields)],
            env=dict(os.environ) | told | {"RANK": str(rank)},
            stderr=subprocess.PIPE,
        )
        for rank in range(processes)
    ]
    for process in started:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said.decode()
    return [json.loads((folder / f"rank.{rank}.json").read_text()) for rank in range(processes)]


def check_noise(figures, initial):
    assert figures["grad_sqr"] == pytest.approx(SQR, rel=0.1)
    assert figures["grad_var"] == pytest.approx(TRACE / initial, rel=0.1)
    assert figures["noise_scale_samples"] == pytest.approx(TRACE / SQR, rel=0.1)


@pytest.mark.parametrize("passes", [1, 4], ids=["two steps in a row", "four passes"])
def test_one_process_finds_the_noise_that_the_problem_has(passes):
    limits = BatchLimits(initial=32, most=32, most_per_worker=32 // passes)
    job = Job(limits=limits, lr=0.0, sigma=QUIET).train(2000)
    check_noise(job.training.figures, 32)


def test_two_processes_find_the_noise_that_the_problem_has(tmp_path):
    limits = {"initial": 32, "most": 32, "most_per_worker": 16}
    first, second = run_gang(tmp_path, 2, limits=limits, lr=0.0, sigma=QUIET, steps=1200)
    check_noise(first["figures"], 32)
    assert second["figures"] == first["figures"]


def test_processes_and_passes_together_find_it_though_shares_are_unlike(tmp_path):
    limits = {"initial": 33, "most": 33, "most_per_worker": 6}
    first, _ = run_gang(tmp_path, 2, limits=limits, lr=0.0, sigma=QUIET, steps=1000)
    check_noise(first["figures"], 33)


def test_all_processes_choose_the_same_batches_though_their_clocks_differ(tmp_path):
    limits = {"initial": 16, "most": 256, "most_per_worker": 32}
    first, second = run_gang(
        tmp_path, 2, limits=limits, lr=0.002, sigma=NOISY, steps=600, deep=True
    )
    assert first["sizes"] == second["sizes"]
    assert first["state"] == second["state"]
    assert first["weights"] == second["weights"]
    assert first["sizes"][0] == 16
    assert len(set(first["sizes"])) > 2
    assert max(first["sizes"]) >= 64
    assert first["state"]["progress"] >= 600 > len(first["sizes"])
    workers, per_worker, pass_s, last_pass_s = first["figures"]["step_times"][0]
    assert (workers, per_worker) == (2, 8.0)
    assert pass_s == pytest.approx(0.54 * (1 + 1 / 3) / 2)  # the mean of both clocks
    assert last_pass_s == pytest.approx(pass_s)  # the clock stands still while they exchange


@pytest.mark.parametrize("most_per_worker", [24, 5])
def test_a_batch_that_may_not_change_trains_as_plain_ddp_to_the_last_bit(tmp_path, most_per_worker):
    fields = {
        "limits": {"initial": 24, "most": 24, "most_per_worker": most_per_worker},
        "lr": 0.01,
        "steps": 40,
        "sigma": QUIET,
        "deep": True,
    }
    adaptive = run_gang(tmp_path / "adaptive", 2, **fields)
    plain = run_gang(tmp_path / "plain", 2, plain=True, **fields)
    for ours, theirs in zip(adaptive, plain, strict=True):
        assert ours["losses"] == theirs["losses"]
        assert ours["weights"] == theirs["weights"]


@pytest.mark.parametrize("rule", ["adascale", "linear", "sqrt"])
def test_a_batch_that_may_not_change_trains_as_a_plain_loop_to_the_last_bit(rule):
    limits = BatchLimits(initial=24, most=24, most_per_worker=7)
    job = Job(limits=limits, lr=0.01, rule=rule, deep=True, momentum=0.9).train(50)
    plain, losses = Job(limits=limits, lr=0.01, deep=True, momentum=0.9), []
    data = GlobalBatches(total=adapted.SAMPLES, size=24, most_per_pass=7, rank=0, world_size=1)
    for batch in LeaseIterator(data, total_steps=50):
        plain.optimizer.zero_grad()
        losses.append(backward(plain.model, batch, plain.loss_of))
        plain.optimizer.step()
    assert job.losses == losses
    assert adapted.digest(job.model) == adapted.digest(plain.model)


def test_preempted_again_and_again_it_trains_as_if_left_alone(tmp_path):
    fields = {
        "limits": BatchLimits(initial=16, most=256, most_per_worker=32),
        "lr": 0.002,
        "deep": True,
        "momentum": 0.9,
    }
    alone = Job(**fields).train(500)
    assert alone.sizes[:20] == [16] * 20, "at first there is one gradient a step"
    assert max(alone.sizes) >= 64
    losses, sizes = [], []
    for leave_after in (1, 14, 1, 40, 20, None):
        job = Job(**fields)
        keeping = {"checkpoint_dir": tmp_path, "save": job.state.save, "load": job.state.load}
        job.train(500, leave_after=leave_after, checkpoint_every_s=0.0, **keeping)
        losses += job.losses
        sizes += job.sizes
    assert sizes == alone.sizes
    assert losses == alone.losses
    assert adapted.digest(job.model) == adapted.digest(alone.model)
    assert job.batches.progress == alone.batches.progress


def test_steps_are_worth_their_gain_until_the_job_s_are_done():
    job = Job(limits=GROWING, lr=0.002)
    worth, steps = [], LeaseIterator(job.batches, total_steps=700)
    for batch in steps:
        job.training.backward(batch, job.loss_of)
        job.training.step()
        figures = job.training.figures
        m, phi = figures["batch_samples"], figures["noise_scale_samples"] or 0.0
        worth.append(m / 8 * (phi + 8) / (phi + m))
    assert sum(worth[:-1]) < 700 <= sum(worth)
    assert job.batches.progress == pytest.approx(sum(worth))
    assert len(worth) < 350
    assert steps.step == 700


def test_with_adascale_a_growing_batch_comes_as_far_in_fewer_steps():
    constant = BatchLimits(initial=8, most=8, most_per_worker=128)
    before = Job(limits=constant, lr=0.002).loss()
    plain = Job(limits=constant, lr=0.002).train(700)
    fast = Job(limits=GROWING, lr=0.002).train(700)
    assert len(plain.losses) == 700
    assert len(fast.losses) < 350
    assert max(fast.sizes) >= 64
    best = 0.5 * NOISY**2
    assert plain.loss() - best < 0.15 * (before - best), "it learns"
    assert fast.loss() - best == pytest.approx(plain.loss() - best, rel=0.25)
    fixed = Job(limits=GROWING, lr=0.002, rule="fixed").train(700)
    assert fixed.loss() - best > 2 * (fast.loss() - best), "the rate must grow with the batch"


def test_the_learning_rate_is_that_of_the_rule_for_the_step_alone():
    rates = []

    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            rates.append([group["lr"] for group in self.param_groups])
            return super().step(closure)

    job = Job(limits=GROWING, lr=0.0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 4), torch.nn.Linear(4, 1)).double()
    groups = [{"params": model[0].parameters(), "lr": 1e-5}, {"params": model[1].parameters()}]
    optimizer = Optimizer(groups, lr=1e-4)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    batches = job.batches
    training = AdaptiveTraining(
        module=model,
        optimizer=optimizer,
        batches=batches,
        learning_rate=lambda scale, gain: scale + 10 * gain,
        clock=job.clock,
    )
    job.model = model
    for batch in batches(0):
        if batches.size > 8:
            break
        training.backward(batch, job.loss_of)
        training.step()
    training.backward(batch, job.loss_of)
    schedule.step()
    training.step()
    factor = batches.size / 8 + 10 * batches.gain
    assert batches.gain > 1.0
    assert rates[0] == pytest.approx([11e-5, 11e-4])
    assert rates[-1] == pytest.approx([0.5e-5 * factor, 0.5e-4 * factor])
    assert [group["lr"] for group in optimizer.param_groups] == [0.5e-5, 0.5e-4]


def test_processes_that_exchange_nothing_are_refused():
    model = torch.nn.Linear(1, 1)
    batches = AdaptiveBatches(
        total=9, limits=BatchLimits(initial=4, most=8, most_per_worker=4), rank=0, world_size=2
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="shared by 2 processes, and the module exchanges grad"):
        AdaptiveTraining(module=model, optimizer=optimizer, batches=batches)
