"""A model under any plan learns as one that is left alone: on CPU, by gloo.

Runs in an environment of its own, since PyTorch takes gigabytes: ``make test-torch``.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from leasehold_testing.lease_node import LeaseNode
from leasehold_testing.ports import free_ports
from scheduler.domain.lease_life import EndReason
from scheduler.protocol.desired import DesiredLease

PROGRAM = Path(__file__).with_name("planned.py")
JOBS = Path(__file__).resolve().parents[2] / "examples" / "jobs"
#: Steps of one plan, and of the job that changes its plan.
SHORT, LONG = 6, 30

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make test-torch"
)


def plan(tensor=1, pipeline=1, data=1, **more):
    return {"tensor": tensor, "pipeline": pipeline, "data": data, "microbatch": 1} | more


def train(folder, plans, *, steps):
    """Train under some plans of one size; return the loss and the norm of each step of each."""
    sizes = [plans[0].get(name, 1) for name in ("tensor", "pipeline", "data")]
    result = folder / "result.json"
    run_program(PROGRAM, json.dumps(plans), str(steps), result, processes=math.prod(sizes))
    found = json.loads(result.read_text())
    return [[step[1:] for step in run] for run in found]


def run_program(program, *arguments, processes):
    """Run a program as several processes that know of one another."""
    (port,) = free_ports(1)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    started = [
        subprocess.Popen(
            [sys.executable, program, *arguments],
            env=dict(os.environ) | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
        )
        for rank in range(processes)
    ]
    for process in started:
        _, said = process.communicate(timeout=400)
        assert process.returncode == 0, said.decode()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    (found,) = train(tmp_path_factory.mktemp("alone"), [{}], steps=LONG)
    return found


@pytest.mark.parametrize(
    "plans",
    [
        [plan(microbatch=8), plan(microbatch=2), plan(recompute=True), plan(offload=True)],
        [
            plan(2, 1, 1),
            plan(1, 2, 1, chunks=2),
            plan(1, 1, 2, zero=2),
            plan(1, 2, 1, stages=[2, 5]),
        ],
        [
            plan(1, 1, 4),
            plan(1, 1, 4, zero=1),
            plan(1, 1, 4, zero=2, microbatch=2),
            plan(1, 1, 4, zero=3, recompute=True),
            plan(1, 1, 4, zero=2, offload=True),
            plan(4, 1, 1, microbatch=4),
            plan(2, 2, 1, microbatch=2),
            plan(2, 1, 2, zero=3),
            plan(1, 2, 2, zero=1, recompute=True),
            plan(1, 2, 2, chunks=2),
            plan(1, 4, 1, microbatch=4),
            plan(1, 4, 1, stages=[2, 1, 2, 2]),
        ],
    ],
    ids=["1", "2", "4"],
)
def test_losses_and_norms_are_those_of_one_process(tmp_path, plans, alone):
    for one, found in zip(plans, train(tmp_path, plans, steps=SHORT), strict=True):
        assert found == [pytest.approx(step, rel=1e-5) for step in alone[:SHORT]], one


#: The plan of each lease; each is preempted but the last.
LEASES = (plan(), plan(2, 1, 1), plan(2, 2, 1), plan(1, 2, 2), plan(1, 1, 4, zero=3))


def lease(folder, number, *, notice=False):
    chosen = LEASES[number]
    workers = chosen["tensor"] * chosen["pipeline"] * chosen["data"]
    (port,) = free_ports(1)
    return DesiredLease(
        lease_id=number,
        attempt=number + 1,
        token=number + 1,
        job_id="job",
        command=(sys.executable, str(JOBS / "planned_training.py"), "--step-s", "0.3"),
        env={"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "OMP_NUM_THREADS": "1"},
        working_dir=str(folder),
        checkpoint_dir=str(folder / "checkpoints"),
        workers=tuple(range(workers)),
        world_size=workers,
        local_ranks=tuple(range(workers)),
        gang=(workers,),
        master_port=port,
        total_steps=LONG,
        plan=json.dumps(chosen),
        remaining_s=300.0,
        notice_in_s=0.0 if notice else None,
        notice_s=20.0,
        grace_s=20.0,
    )


def has_done(steps, report):
    return report.steps_live >= steps


async def change_plans(node, folder):
    done = 0
    for number in range(len(LEASES)):
        asked = lease(folder, number)
        node.want(asked)
        if number < len(LEASES) - 1:
            await node.until(number, functools.partial(has_done, done + 3))
            node.want(lease(folder, number, notice=True))
        end = await node.ended(number)
        assert end.steps_done > done, node.log(number)
        done = end.steps_done
        is_last = number == len(LEASES) - 1
        assert end.reason is (EndReason.COMPLETED if is_last else EndReason.RELEASED), node.log(
            number
        )
    assert done == LONG


def test_a_job_that_is_preempted_from_plan_to_plan_learns_as_one_that_is_left_alone(alone):
    with tempfile.TemporaryDirectory(prefix="lh-") as text:
        folder = Path(text)
        node = LeaseNode(folder, "v100:4", wait_s=200.0)

        async def scene():
            async with node.serving():
                await change_plans(node, folder)

        asyncio.run(asyncio.wait_for(scene(), 900))
        said = "\n".join(map(node.log, range(len(LEASES))))
        print(said)
    lines = re.findall(r"^step (\d+) loss (\S+) norm (\S+)", said, re.MULTILINE)
    assert [int(step) for step, _, _ in lines] == list(range(1, LONG + 1))
    found = [[float(loss), float(norm)] for _, loss, norm in lines]
    assert found == [pytest.approx(step, rel=1e-5) for step in alone]
    assert alone[-1][0] < 0.95 * alone[0][0], "it learns"


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    run_program(Path(__file__).with_name("planned_cases.py"), folder, processes=2)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    "name",
    [
        "residual",
        "double",
        "bare",
        "uneven",
        "resumed",
        "evaluated between",
        "evaluated between stages",
    ],
)
def test_modules_that_need_care_train_as_in_a_plain_loop(cases, name):
    for found in cases:
        expected, got = found[name]
        assert got == pytest.approx(expected, rel=1e-5)


def test_passes_may_compute_in_bfloat16(cases):
    for found in cases:
        for name in ("half", "half stages"):
            expected, got = found[name]
            assert got == pytest.approx(expected, rel=0.02)
            assert got != pytest.approx(expected, rel=1e-5)


def test_an_evaluation_leaves_no_gradients_and_has_the_same_loss(cases):
    for found in cases:
        for name in ("evaluated", "evaluated copies"):
            without, during, after = found[name]
            assert without == during == after


def test_random_numbers_differ_by_copy_and_agree_where_work_is_shared(cases):
    (first, _), (other, _) = cases[0]["drawn by copies"]
    assert first != other
    (first, inside), (other, likewise) = cases[0]["drawn by shares"]
    assert (first, inside) == (other, likewise)
    # The first stage uses the inputs of its call, the last one the targets of its own.
    (_, inside), (_, likewise) = cases[0]["drawn by stages"]
    assert inside == likewise


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("weights", "the processes have made different weights"),
        ("between", "'scale' has different gradients on workers that share matrices"),
        ("between zeros", "'scale' has different gradients on workers that share matrices"),
        ("damaged", "RuntimeError"),
        ("statistics", "'1' keeps running statistics"),
        ("tied", "0 and 1 have the same weight, and 'tensor' names one of them"),
        ("tied stages", "layers share a parameter"),
        ("repeated", "1 and 3 are the same layer"),
        ("empty stage", "stage 1 of 2 would have no parameter to train"),
        ("no sequence", "the module is a Unused; only a torch.nn.Sequential"),
        ("no share", "'tensor' is missing"),
        ("no such module", "'tensor' has 'x', and no module has such a name"),
        ("odd share", "has 3 columns; 2 workers cannot share them evenly"),
        ("workers", "for 3 workers, and there are 2 processes"),
        ("uneven batch", "the size of the batch must be a multiple of 2"),
        ("uneven stages", "the size of the batch must be a multiple of 2"),
        ("precision", "'precision' is 'fp16'; it may be fp32 or bf16"),
    ],
)
def test_what_a_plan_cannot_split_is_refused_in_every_process(cases, name, said):
    assert said in cases[0][name]
    assert cases[1][name] == cases[0][name]
