"""Plans as arguments of training frameworks.

Names of arguments are those of Megatron-LM's ``megatron/training/arguments.py``, of DeepSpeed's
``docs/_pages/config-json.md``, and of torchtitan 0.2's ``torchtitan/config/job_config.py``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from planner.plans.training import Training
from scheduler.errors import InputError

if TYPE_CHECKING:
    from planner.plans.plan import Plan
    from planner.plans.training import LayeredTraining

FRAMEWORKS: Final = ("megatron", "deepspeed", "torchtitan")

#: Stage of ZeRO -> Megatron-LM's name of what copies share, from the stage that needs its FSDP on.
_MEGATRON_SHARES: Final = {2: "optim_grads", 3: "optim_grads_params"}


def check_model(framework: str, training: Training | LayeredTraining) -> None:
    """Check that a framework can train a model in its precision.

    Raises:
        InputError: it cannot.
    """
    if framework == "megatron" and not isinstance(training, Training):
        raise InputError(
            "--format megatron needs a config.json: Megatron-LM builds transformers itself, and "
            "not from a list of layers"
        )
    lacking = {"deepspeed": {"fp8"}, "torchtitan": {"fp16", "fp8"}}
    if training.precision in lacking.get(framework, ()):
        raise InputError(
            f"--format {framework} knows no {training.precision}; plan for --precision bf16"
        )


def can_carry_out(framework: str, training: Training | LayeredTraining, plan: Plan) -> bool:
    """Return whether a framework can carry out a plan.

    Stages of unequal layers have no arguments. With the optimiser on the host, Megatron-LM keeps
    the gradients on the workers.
    """
    if plan.pipeline > 1 and not isinstance(training, Training):
        return False
    if framework == "megatron":
        return not plan.offload
    if framework == "deepspeed":
        return _can_deepspeed(plan)
    return _can_torchtitan(training, plan)


def _can_deepspeed(plan: Plan) -> bool:
    """Return whether DeepSpeed can: it has no interleaved schedule, and its pipelines share none.

    Its tensor parallelism goes with the stages of ZeRO up to 2.
    """
    return plan.chunks == 1 and (plan.tensor == 1 or (plan.pipeline == 1 and plan.zero < 3))


def _can_torchtitan(training: Training | LayeredTraining, plan: Plan) -> bool:
    """Return whether torchtitan can.

    Copies that share nothing go with no other split, and one copy computes in full precision and
    on the worker alone.
    """
    is_split = plan.tensor * plan.pipeline > 1
    if plan.data > 1:
        return plan.zero > 0 or not is_split
    return not plan.offload and not (is_split and training.precision == "bf16")


def write_arguments(
    framework: str, training: Training | LayeredTraining, plan: Plan
) -> tuple[str, list[str]]:
    """Return a plan as a framework's arguments or file, and what has to be done in code.

    Args:
        framework: which one.
        training: the model and its step.
        plan: one that the framework can carry out.

    Returns:
        A line of arguments for Megatron-LM, JSON for DeepSpeed, TOML for torchtitan.
    """
    if framework == "megatron":
        return " ".join(_megatron(training, plan)), _megatron_notes(plan)
    if framework == "deepspeed":
        return _deepspeed(training, plan)
    return _torchtitan(training, plan), []


def _megatron(training: Training | LayeredTraining, plan: Plan) -> list[str]:
    found = [
        f"--tensor-model-parallel-size {plan.tensor}",
        f"--pipeline-model-parallel-size {plan.pipeline}",
        f"--micro-batch-size {plan.microbatch}",
        f"--global-batch-size {training.batch}",
        f"--seq-length {training.model.sequence}",
    ]
    if plan.tensor > 1:
        found.append("--sequence-parallel")
    if plan.chunks > 1:
        found.append(f"--num-virtual-stages-per-pipeline-rank {plan.chunks}")
    if plan.recompute:
        found.append(
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
        )
    if plan.zero:
        found.append("--use-distributed-optimizer")
    if plan.zero in _MEGATRON_SHARES:
        shared = _MEGATRON_SHARES[plan.zero]
        found.append(f"--use-megatron-fsdp --data-parallel-sharding-strategy {shared}")
        found.append("--ckpt-format fsdp_dtensor")
    half = "--bf16 --grad-reduce-in-bf16"  # gradients of two bytes, as the plan counts
    precisions = {"fp16": "--fp16", "bf16": half, "fp8": f"{half} --fp8-format hybrid"}
    if training.precision in precisions:
        found.append(precisions[training.precision])
    return found


def _megatron_notes(plan: Plan) -> list[str]:
    if plan.zero in _MEGATRON_SHARES:
        return ["in the environment: leave CUDA_DEVICE_MAX_CONNECTIONS out"]
    if plan.tensor > 1:
        return ["in the environment: CUDA_DEVICE_MAX_CONNECTIONS=1, before Blackwell"]
    return []


def _deepspeed(training: Training | LayeredTraining, plan: Plan) -> tuple[str, list[str]]:
    sharing: dict[str, Any] = {"stage": plan.zero}
    if plan.offload:  # from stage 1 on, also of one worker
        sharing["stage"] = max(plan.zero, 2)
        sharing["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    # Its product counts workers that share matrices as copies, unless they are told in code.
    found: dict[str, Any] = {} if plan.tensor > 1 else {"train_batch_size": training.batch}
    found |= {
        "train_micro_batch_size_per_gpu": plan.microbatch,
        "gradient_accumulation_steps": training.batch // plan.data // plan.microbatch,
        "zero_optimization": sharing,
    }
    if training.precision in {"fp16", "bf16"}:
        found[training.precision] = {"enabled": True}
    if plan.tensor > 1:
        found["tensor_parallel"] = {"autotp_size": plan.tensor}
    notes = []
    if plan.pipeline > 1:
        interval = ", activation_checkpoint_interval=1" if plan.recompute else ""
        notes.append(
            f"in code: deepspeed.pipe.PipelineModule(layers, num_stages={plan.pipeline}{interval})"
        )
    elif plan.recompute:
        notes.append("in code: compute activations again in each layer (torch.utils.checkpoint)")
    return json.dumps(found, indent=2), notes


def _torchtitan(training: Training | LayeredTraining, plan: Plan) -> str:
    copies, shards = (plan.data, 1) if plan.zero == 0 else (1, plan.data)
    bf16 = training.precision not in {"fp32", "tf32"}
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": copies,
        "data_parallel_shard_degree": shards,
        "fsdp_reshard_after_forward": "always" if plan.zero == 3 else "never",
        "tensor_parallel_degree": plan.tensor,
        "pipeline_parallel_degree": plan.pipeline,
    }
    if plan.pipeline > 1:
        is_short = training.batch // plan.data // plan.microbatch < plan.pipeline
        schedule = "GPipe" if is_short else "1F1B"
        parallelism["pipeline_parallel_schedule"] = (
            "Interleaved1F1B" if plan.chunks > 1 else schedule
        )
        # It counts embedding and head as a layer each otherwise.
        parallelism["pipeline_parallel_first_stage_less_layers"] = 0
        parallelism["pipeline_parallel_last_stage_less_layers"] = 0
        parallelism["pipeline_parallel_layers_per_stage"] = training.model.layers // (
            plan.pipeline * plan.chunks
        )
        parallelism["pipeline_parallel_microbatch_size"] = plan.microbatch
    # In a pipeline the batch of a copy is split into microbatches; else it is a pass.
    local = training.batch // plan.data if plan.pipeline > 1 else plan.microbatch
    sections: dict[str, dict[str, Any]] = {
        "training": {
            "local_batch_size": local,
            "global_batch_size": training.batch,
            "seq_len": training.model.sequence,
            "enable_cpu_offload": plan.offload,
            "mixed_precision_param": "bfloat16" if bf16 else "float32",
        },
        "parallelism": parallelism,
        "activation_checkpoint": {"mode": "full" if plan.recompute else "none"},
    }
    return "\n\n".join(
        "\n".join([f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in items.items())])
        for name, items in sections.items()
    )
