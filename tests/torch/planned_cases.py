"""Modules that need care under a plan, on two processes; see test_planned."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import mse_loss

from leasehold import GlobalBatches, Plan
from leasehold.torch import PlannedState, apply

RANK = int(os.environ["RANK"])
WIDTH, SAMPLES, BATCH = 4, 24, 4
INPUTS = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(2))
TARGETS = torch.sin(INPUTS)


class Residual(nn.Sequential):
    """Its forward is not that of ``Sequential``."""

    def forward(self, inputs):
        return inputs + super().forward(inputs)


class Scaled(nn.Module):
    """With a parameter between columns and rows, and one that is never used."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.ones(1))
        self.unused = nn.Linear(2, 2)

    def forward(self, inputs):
        return self.down(torch.tanh(self.up(inputs)) * self.scale)


class Unused(nn.Module):
    """With a parameter that is never used."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(WIDTH, WIDTH), nn.Linear(2, 2)

    def forward(self, inputs):
        return self.used(inputs)


def made(kind, *, seed=0):
    torch.manual_seed(seed)
    return kind()


def residual():
    first = Residual(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    return nn.Sequential(first, nn.Linear(WIDTH, WIDTH))


def batchnorm():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))


def tied():
    one, other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    other.weight = one.weight
    return nn.Sequential(one, other)


def repeated():
    tanh = nn.Tanh()
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), tanh, nn.Linear(WIDTH, WIDTH), tanh)


def bare():
    return nn.Linear(WIDTH, WIDTH)


def load(samples):
    rows = list(samples)
    return INPUTS[rows], TARGETS[rows]


def losses(model, plan, *, steps=3, size=BATCH, load=load, evaluates=False, **more):
    """Return the losses of some steps, and the state."""
    planned = apply(model, plan, loss=mse_loss, **more)
    optimizer = torch.optim.AdamW(planned.parameters(), lr=1e-2)
    batches = GlobalBatches(total=SAMPLES, size=size, **planned.shares)
    found = []
    for step in range(steps):
        found.append(planned.backward(batches.at(step), load))
        planned.clip_gradients(0.1)
        if evaluates:
            planned.evaluate(batches.at(0), load)
        optimizer.step()
    return found, planned, optimizer


def plain(model, steps=3, size=BATCH):
    """Return the losses of a plain loop."""
    batches = GlobalBatches(total=SAMPLES, size=size, most_per_pass=size, rank=0, world_size=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    for step in range(steps):
        optimizer.zero_grad()
        inputs, targets = load(batches.at(step).samples)
        loss = mse_loss(model(inputs.to(next(model.parameters()).dtype)), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        found.append(float(loss.detach()))
    return found


def refused(call, *arguments, **named):
    """Return the message with which a call is refused."""
    try:
        call(*arguments, **named)
    except ValueError as error:
        return str(error)
    return "it was not refused"


def evaluated(plan):
    """Return the losses of a batch without and with gradients."""
    planned = apply(made(residual), plan, loss=mse_loss)
    batch = GlobalBatches(total=SAMPLES, size=BATCH, **planned.shares).at(0)
    without = planned.evaluate(batch, load)
    assert all(one.grad is None for one in planned.parameters())
    return without, planned.backward(batch, load), planned.evaluate(batch, load)


def resumed(folder):
    """Return the losses of four steps at once, and in two parts under two plans."""
    whole = losses(made(Unused), Plan(data=2, zero=1), steps=4)[0]
    first, planned, optimizer = losses(made(Unused), Plan(data=2, zero=3), steps=2)
    if RANK == 0:
        folder.mkdir()
    torch.distributed.barrier()
    PlannedState(planned=planned, optimizer=optimizer).save(folder)
    planned = apply(made(Unused, seed=5), Plan(data=2), loss=mse_loss)
    optimizer = torch.optim.AdamW(planned.parameters(), lr=1e-2)
    PlannedState(planned=planned, optimizer=optimizer).load(folder)
    batches = GlobalBatches(total=SAMPLES, size=BATCH, **planned.shares)
    for step in (2, 3):
        first.append(planned.backward(batches.at(step), load))
        planned.clip_gradients(0.1)
        optimizer.step()
    return whole, first


def damaged(folder):
    """Return the error with which a checkpoint is refused that lost the end of its files."""
    _, planned, optimizer = losses(made(bare), Plan(data=2, zero=1), steps=1)
    state = PlannedState(planned=planned, optimizer=optimizer)
    if RANK == 0:
        folder.mkdir()
    torch.distributed.barrier()
    state.save(folder)
    torch.distributed.barrier()
    if RANK == 0:
        for file in folder.glob("*.distcp"):
            file.write_bytes(file.read_bytes()[:20])
    torch.distributed.barrier()
    try:
        state.load(folder)
    except Exception as error:  # noqa: BLE001 - that it is one is the point
        return type(error).__name__
    return "it was not refused"


def zeros():
    """Return a layer that gives no gradient before its rows in the first step."""
    model = Scaled()
    nn.init.zeros_(model.down.weight)
    return model


def drawn(plan, **more):
    """Return random numbers of both processes after a model is split, and inside ``load``."""
    inside = []

    def noisy(samples):
        inside.append(float(torch.rand(())))
        return load(samples)

    losses(made(residual), plan, steps=1, load=noisy, **more)
    both = [None, None]
    torch.distributed.all_gather_object(both, (float(torch.rand(())), inside))
    return both


def main(folder: Path) -> None:
    """Try the cases; both ranks leave their findings in the folder."""
    torch.set_num_threads(1)
    stages, copies, shared = Plan(pipeline=2, stages=(1, 1)), Plan(data=2), Plan(tensor=2)
    between = {"up": "columns", "down": "rows"}
    found = {
        "residual": [plain(made(residual)), losses(made(residual), stages)[0]],
        "double": [plain(made(residual).double()), doubled(stages)],
        "half": [plain(made(residual)), losses(made(residual), copies, precision="bf16")[0]],
        "half stages": [plain(made(residual)), losses(made(residual), stages, precision="bf16")[0]],
        "bare": [plain(made(bare)), losses(made(bare), copies)[0]],
        "uneven": [plain(made(residual), size=3), losses(made(residual), copies, size=3)[0]],
        "evaluated between": [
            plain(made(residual)),
            losses(made(residual), Plan(data=2, zero=1), evaluates=True)[0],
        ],
        "evaluated between stages": [
            plain(made(residual)),
            losses(made(residual), stages, evaluates=True)[0],
        ],
        "evaluated": evaluated(stages),
        "evaluated copies": evaluated(copies),
        "resumed": resumed(folder / "checkpoint"),
        "drawn by copies": drawn(copies),
        "drawn by stages": drawn(stages),
        "drawn by shares": drawn(shared, tensor={"0.0": "columns", "0.2": "rows"}),
        "weights": refused(apply, made(residual, seed=RANK), copies, loss=mse_loss),
        "between": refused(losses, made(Scaled), shared, tensor=between),
        "between zeros": refused(losses, made(zeros), shared, tensor=between),
        "damaged": damaged(folder / "damaged"),
        "statistics": refused(apply, made(batchnorm), copies, loss=mse_loss),
        "tied": refused(apply, made(tied), shared, loss=mse_loss, tensor={"0": "columns"}),
        "tied stages": refused(apply, made(tied), stages, loss=mse_loss),
        "repeated": refused(apply, made(repeated), stages, loss=mse_loss),
        "empty stage": refused(
            apply, made(residual).append(nn.Tanh()), Plan(pipeline=2, stages=(2, 1)), loss=mse_loss
        ),
        "no sequence": refused(apply, made(Unused), stages, loss=mse_loss),
        "no share": refused(apply, made(Unused), shared, loss=mse_loss),
        "no such module": refused(apply, made(Unused), shared, loss=mse_loss, tensor={"x": "rows"}),
        "odd share": refused(
            apply, made(lambda: nn.Linear(4, 3)), shared, loss=mse_loss, tensor={"": "columns"}
        ),
        "workers": refused(apply, made(residual), Plan(data=3), loss=mse_loss),
        "uneven batch": refused(losses, made(residual), Plan(data=2, zero=2), size=3),
        "uneven stages": refused(losses, made(residual), replace(stages, microbatch=2), size=3),
        "precision": refused(apply, made(residual), copies, loss=mse_loss, precision="fp16"),
    }
    (folder / f"{RANK}.json").write_text(json.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    # All is written. One process in hundreds dies of threads of gloo while the interpreter ends.
    os._exit(0)


def doubled(plan):
    """Return the losses of a module in double precision."""

    def as_double(samples):
        return tuple(one.double() for one in load(samples))

    return losses(made(residual).double(), plan, load=as_double)[0]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
