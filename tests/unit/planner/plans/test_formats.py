"""Plans as arguments of training frameworks."""

from __future__ import annotations

import json
import math
import tomllib

import pytest

from planner.plans.document import read_model
from planner.plans.formats import can_carry_out, check_model, write_arguments
from planner.plans.plan import Plan
from scheduler.errors import InputError

GPT2 = {"model_type": "gpt2", "n_layer": 24, "n_embd": 1024, "n_head": 16, "vocab_size": 50257}
LAYER = {"parameters": 7e6, "flops": 8e9, "kept_bytes": 8e7, "output_bytes": 2e6, "repeat": 12}


def training(precision="bf16"):
    document = {"config": GPT2 | {"n_positions": 1024}, "batch": 64, "precision": precision}
    return read_model(document, name="m", place="m")


def layered():
    return read_model({"layers": [LAYER], "batch": 64}, name="m", place="m")


def flags(plan, precision="bf16"):
    text, _ = write_arguments("megatron", training(precision), plan)
    words = text.split(" ")
    pairs = zip(words, [*words[1:], "--"], strict=True)
    return {
        word: "" if value.startswith("--") else value for word, value in pairs if word[0] == "-"
    }


def test_megatron_gets_sizes_schedule_and_what_copies_share():
    plan = Plan(tensor=2, pipeline=4, data=2, microbatch=2, chunks=3, recompute=True, zero=1)
    assert flags(plan) == {
        "--tensor-model-parallel-size": "2",
        "--pipeline-model-parallel-size": "4",
        "--micro-batch-size": "2",
        "--global-batch-size": "64",
        "--seq-length": "1024",
        "--sequence-parallel": "",
        "--num-virtual-stages-per-pipeline-rank": "3",
        "--recompute-granularity": "full",
        "--recompute-method": "uniform",
        "--recompute-num-layers": "1",
        "--use-distributed-optimizer": "",
        "--bf16": "",
        "--grad-reduce-in-bf16": "",
    }
    shared = flags(Plan(data=8, zero=3), "fp8")
    assert shared["--data-parallel-sharding-strategy"] == "optim_grads_params"
    assert shared["--ckpt-format"] == "fsdp_dtensor"
    assert shared["--fp8-format"] == "hybrid"
    # Megatron-LM refuses its FSDP with one connection, and other tensor groups with more.
    told = [
        write_arguments("megatron", training(), plan)[1]
        for plan in (Plan(data=8, zero=3), Plan(tensor=2, zero=1), Plan(data=2))
    ]
    assert ["leave" in one[0] if one else None for one in told] == [True, False, None]
    assert not {"--bf16", "--fp16", "--sequence-parallel"} & flags(Plan(), "fp32").keys()


def test_deepspeed_gets_a_file_whose_batch_is_the_product_of_its_parts():
    plan = Plan(data=4, microbatch=8, zero=2, offload=True)
    text, notes = write_arguments("deepspeed", training("fp16"), plan)
    assert json.loads(text) == {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {
            "stage": 2,
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
        },
        "fp16": {"enabled": True},
    }
    assert not notes
    # DeepSpeed takes the workers of a tensor group for copies when it checks the product.
    found = json.loads(write_arguments("deepspeed", training(), Plan(tensor=2, data=4))[0])
    assert found["tensor_parallel"] == {"autotp_size": 2}
    assert "train_batch_size" not in found
    text, notes = write_arguments("deepspeed", training(), Plan(pipeline=4, recompute=True))
    assert "num_stages=4, activation_checkpoint_interval=1" in notes[0]
    # A worker alone shares nothing, but DeepSpeed moves the optimiser from stage 1 on only.
    text, notes = write_arguments("deepspeed", layered(), Plan(offload=True))
    assert json.loads(text)["zero_optimization"]["stage"] == 2


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (
            Plan(pipeline=4, data=2, microbatch=2, chunks=3, recompute=True, zero=1),
            {
                "local_batch_size": 32,
                "data_parallel_replicate_degree": 1,
                "data_parallel_shard_degree": 2,
                "fsdp_reshard_after_forward": "never",
                "pipeline_parallel_schedule": "Interleaved1F1B",
                "pipeline_parallel_layers_per_stage": 2,
                "pipeline_parallel_microbatch_size": 2,
                "mode": "full",
            },
        ),
        (
            Plan(tensor=2, data=4, microbatch=4),
            {
                "local_batch_size": 4,
                "data_parallel_replicate_degree": 4,
                "data_parallel_shard_degree": 1,
                "tensor_parallel_degree": 2,
                "mode": "none",
            },
        ),
        (Plan(data=4, zero=3), {"fsdp_reshard_after_forward": "always"}),
        (Plan(data=4, zero=2, offload=True), {"enable_cpu_offload": True}),
    ],
)
def test_torchtitan_gets_a_file(plan, expected):
    text, notes = write_arguments("torchtitan", training(), plan)
    found = {key: value for part in tomllib.loads(text).values() for key, value in part.items()}
    assert {key: found.get(key) for key in expected} == expected
    assert found["global_batch_size"] == 64
    assert found["seq_len"] == 1024
    assert not notes


def test_torchtitan_makes_as_many_stages_as_the_plan_has():
    for plan in (Plan(pipeline=2, data=2, zero=1), Plan(pipeline=4, chunks=3, data=2, zero=1)):
        found = tomllib.loads(write_arguments("torchtitan", training(), plan)[0])["parallelism"]
        # Its own formula (``torchtitan/distributed/pipeline_parallel.py``).
        counted = 24 + sum(
            found[f"pipeline_parallel_{end}_stage_less_layers"] for end in ("first", "last")
        )
        stages = math.ceil(counted / found["pipeline_parallel_layers_per_stage"])
        assert stages == plan.pipeline * plan.chunks
    short = write_arguments("torchtitan", training(), Plan(pipeline=8, data=16, zero=1))[0]
    assert tomllib.loads(short)["parallelism"]["pipeline_parallel_schedule"] == "GPipe"


@pytest.mark.parametrize(
    ("framework", "can", "cannot"),
    [
        (
            "megatron",
            [Plan(pipeline=2, chunks=2), Plan(data=8, zero=3)],
            [Plan(data=2, zero=2, offload=True)],
        ),
        (
            "deepspeed",
            [Plan(data=2, zero=2, offload=True), Plan(tensor=2, zero=2), Plan(pipeline=2, zero=1)],
            [Plan(pipeline=2, chunks=2), Plan(tensor=2, pipeline=2), Plan(tensor=2, zero=3)],
        ),
        (
            "torchtitan",
            [Plan(data=8), Plan(tensor=2, data=2, zero=1), Plan(data=2, zero=2, offload=True)],
            [Plan(tensor=2, data=2), Plan(tensor=2), Plan(pipeline=2), Plan(offload=True)],
        ),
    ],
)
def test_plans_that_a_framework_lacks_are_not_for_it(framework, can, cannot):
    assert all(can_carry_out(framework, training(), plan) for plan in can)
    assert not any(can_carry_out(framework, training(), plan) for plan in cannot)
    assert not can_carry_out(framework, layered(), Plan(pipeline=2, data=2, zero=1))


def test_models_that_a_framework_lacks_are_refused():
    with pytest.raises(InputError, match=r"--format megatron needs a config\.json"):
        check_model("megatron", layered())
    for framework, precision in (("deepspeed", "fp8"), ("torchtitan", "fp16")):
        with pytest.raises(InputError, match=f"{framework} knows no {precision}"):
            check_model(framework, training(precision))
    # In full precision one copy computes as planned.
    assert can_carry_out("torchtitan", training("fp32"), Plan(tensor=2))
