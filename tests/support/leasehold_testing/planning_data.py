"""Published measurements of plans, as the planner's own types."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from planner.plans import packs
from planner.plans.calibration import MeasuredStep, calibrate
from planner.plans.cost import Rates
from planner.plans.hardware import read_hardware
from planner.plans.layers import read_layers
from planner.plans.memory import worker_memory
from planner.plans.pack_search import Rule, best_packed_plan
from planner.plans.packs import PackedModel, PackedPlan, SwapLinks
from planner.plans.plan import Plan, Plans
from planner.plans.ranking import USABLE
from planner.plans.stages import LayeredPlans, StagedPlan, pipeline_times
from planner.plans.training import LayeredTraining, Training
from planner.plans.transformer import Transformer, gpt

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from planner.plans.calibration import Calibration
    from planner.plans.hardware import Accelerator
    from planner.plans.layers import LayeredModel, LayerTimes
    from planner.plans.packs import Ends
    from scheduler.domain.arrays import FloatArray

#: Bytes of a bucket of gradients.
_BUCKET = 5e8


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True, slots=True, kw_only=True)
class SailorPlan:
    """A measured plan of Sailor.

    Attributes:
        name: the authors'.
        model: name of its model.
        staged: the plan; its tensor size is that of the first replica.
        replicas: by stage, (worker type, tensor size) of each copy.
        batch: samples of a step.
        measured_s: seconds of a step.
        measured_bytes: of the fullest worker.
        authors_s: seconds that the authors' simulator predicts.
        authors_bytes: bytes that it predicts.
    """

    name: str
    model: str
    staged: StagedPlan
    replicas: tuple[tuple[tuple[str, int], ...], ...]
    batch: int
    measured_s: float
    measured_bytes: float
    authors_s: float
    authors_bytes: float

    @property
    def is_mixed(self) -> bool:
        """Whether its workers are of several types."""
        return len({kind for copies in self.replicas for kind, _ in copies}) > 1


class Sailor:
    """The tables of Sailor (Strati et al., SOSP'25).

    Args:
        folder: with its files.
    """

    def __init__(self, folder: Path) -> None:
        self._sizes = read_rows(folder / "layer_sizes.csv")
        self._times = read_rows(folder / "layer_times.csv")
        self._plans = read_rows(folder / "measured_plans.csv")
        self._links: dict[tuple[str, str, int, str, int], tuple[float, float, float]] = {}
        for row in read_rows(folder / "bandwidths.csv"):
            key = (
                *(row["scope"], row["from_gpu_type"], int(row["from_gpus"])),
                *(row["to_gpu_type"], int(row["to_gpus"])),
            )
            found = (float(row["c2"]), float(row["c1"]), float(row["c0"]))
            self._links.setdefault(key, found)

    def model(self, name: str) -> LayeredModel:
        """Return a model with its measured layers; its worker types have the authors' names."""
        sizes = {
            tensor: self._layers(self._sizes, model=name, tensor_parallel=tensor)
            for tensor in ("1", "2", "4", "8")
        }
        layers = [
            {
                "parameters": float(row["parameters"]),
                "kept_bytes": 4 * float(row["stored_activations"]),
                "output_bytes": 4 * float(row["output_activations"]),
            }
            for row in sizes["1"]
        ]
        keys = {
            (row["gpu_type"], row["tensor_parallel"], row["microbatch_samples"])
            for row in self._times
            if row["model"] == name
        }
        measured = [
            self._measured(name, *key, sizes[key[1]]) for key in sorted(keys) if sizes[key[1]]
        ]
        return read_layers(
            {"name": name, "sequence": 2048, "layers": layers, "measured": measured},
            name=name,
            place="sailor",
        )

    def _measured(
        self, model: str, kind: str, tensor: str, microbatch: str, sizes: list[dict[str, str]]
    ) -> dict[str, Any]:
        times = self._layers(
            self._times,
            model=model,
            gpu_type=kind,
            tensor_parallel=tensor,
            microbatch_samples=microbatch,
        )
        return {
            "worker_type": kind,
            "tensor": int(tensor),
            "microbatch": int(microbatch),
            **{key: [float(row[key]) for row in times] for key in ("forward_s", "backward_s")},
            "update_s": [float(row["update_s"]) for row in times],
            "parameters": [float(row["parameters"]) for row in sizes],
            "kept_bytes": [4 * float(row["stored_activations"]) for row in sizes],
        }

    @staticmethod
    def _layers(rows: list[dict[str, str]], **wanted: str) -> list[dict[str, str]]:
        """Return the rows with some values, one for each layer."""
        found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
        found.sort(key=lambda row: int(row["first_layer"]))
        return [
            row
            for row in found
            for _ in range(int(row["last_layer"]) - int(row["first_layer"]) + 1)
        ]

    def plans(self) -> list[SailorPlan]:
        """Return the measured plans but those that its README leaves out."""
        return [_sailor_plan(row) for row in self._plans if not row["note"]]

    def step_s(self, plan: SailorPlan, model: LayeredModel) -> float:
        """Return the predicted seconds of a step, with the measured bandwidths between types."""
        b, d = plan.staged.plan.microbatch, plan.staged.plan.data
        m = plan.batch // (b * d)
        ends = np.cumsum(plan.staged.stages)
        stages = list(zip(ends - plan.staged.stages, ends, plan.replicas, strict=True))
        compute_s, update_s, sum_s = [], [], []
        for begin, end, copies in stages:
            times = [model.measured[kind.lower()][tensor, b] for kind, tensor in copies]
            passes = [one.forward_s[begin:end] + one.backward_s[begin:end] for one in times]
            compute_s.append(max(one.sum() for one in passes))
            update_s.append(max(_update_s(one)[begin:end].sum() for one in times))
            held = 4 * max(one.parameters[begin:end].sum() for one in times)
            sum_s.append(self._sum_s(held, copies))
        boundary_s = [
            self._exchange_s(b * model.output_bytes[end - 1], copies, others)
            for (_, end, copies), (_, _, others) in itertools.pairwise(stages)
        ]
        found = pipeline_times(m, np.array(compute_s), np.array(boundary_s))
        passed_s = found.compute_s + found.pipeline_s + found.bubble_s
        return float(passed_s + max(sum_s) + max(update_s))

    def _exchange_s(self, message: float, copies: Any, others: Any) -> float:
        """Return the seconds of activations and their gradients between the slowest copies."""
        return max(
            self._link_s(message, one, other) + self._link_s(message, other, one)
            for one, other in zip(copies, others, strict=True)
        )

    def _sum_s(self, held: float, copies: Any) -> float:
        """Return the seconds of a sum of gradients, over the slowest pair, bucket by bucket."""
        d = len(copies)
        pairs = [(a, b) for i, (a, _) in enumerate(copies) for b, _ in copies[i + 1 :]]
        buckets = [_BUCKET] * int(held // _BUCKET) + [held % _BUCKET]
        return max(
            (
                sum(2 * (d - 1) * self._link_s(one / d, (a, 1), (b, 1)) for one in buckets)
                for a, b in pairs
            ),
            default=0.0,
        )

    def _link_s(self, message: float, one: tuple[str, int], other: tuple[str, int]) -> float:
        c2, c1, c0 = self._links["network", *one, *other]
        size = math.log2(message / 1e6)
        return message / 1e9 / (c2 * size**2 + c1 * size + c0)


def _update_s(times: LayerTimes) -> FloatArray:
    assert times.update_s is not None
    return times.update_s


def sailor_predictions(folder: Path) -> list[tuple[SailorPlan, float]]:
    """Return each measured plan with the predicted seconds of its step."""
    sailor = Sailor(folder)
    hardware = read_hardware().find("gh200")
    measured = sailor.plans()
    models = {name: sailor.model(name) for name in {one.model for one in measured}}
    found = []
    for one in measured:
        model = models[one.model]
        if one.is_mixed:
            found.append((one, sailor.step_s(one, model)))
            continue
        training = LayeredTraining(model=model, batch=one.batch, precision=model.precision)
        plans = LayeredPlans(training, one.replicas[0][0][0], hardware, Rates())
        found.append((one, float(plans.step_times([one.staged]).total_s[0])))
    return found


def sailor_choices(predicted: list[tuple[SailorPlan, float]]) -> list[bool]:
    """Return, by group of equal model, workers and batch, whether the fastest plan is chosen."""
    groups: dict[Any, list[tuple[float, float]]] = {}
    for one, step_s in predicted:
        workers = sum(tensor for copies in one.replicas for _, tensor in copies)
        key = (one.name.split("/")[0], one.model, workers, one.batch)
        groups.setdefault(key, []).append((step_s, one.measured_s))
    return [
        min(group)[1] == min(measured for _, measured in group)
        for group in groups.values()
        if len(group) > 1
    ]


def _sailor_plan(row: dict[str, str]) -> SailorPlan:
    spans = [tuple(map(int, span.split("-"))) for span in row["layers_by_stage"].split("|")]
    replicas = tuple(_replicas(text) for text in row["replicas_by_stage"].split("|"))
    plan = Plan(
        tensor=replicas[0][0][1],
        pipeline=len(spans),
        data=len(replicas[0]),
        microbatch=int(row["microbatch_samples"]),
    )
    return SailorPlan(
        name=row["plan"],
        model=row["model"],
        staged=StagedPlan(plan=plan, stages=tuple(last - first + 1 for first, last in spans)),
        replicas=replicas,
        batch=int(row["global_batch_samples"]),
        measured_s=float(row["measured_iteration_s"]),
        measured_bytes=float(row["measured_peak_bytes_per_gpu"]),
        authors_s=float(row["predicted_iteration_s"]),
        authors_bytes=float(row["predicted_peak_bytes_per_gpu"]),
    )


def _replicas(text: str) -> tuple[tuple[str, int], ...]:
    """Return the copies of ``8*GH-96x4`` or ``RTX-3090x8+RTX-2080x8``."""
    found: list[tuple[str, int]] = []
    for word in text.split("+"):
        parts = re.fullmatch(r"(?:(\d+)\*)?(.+)x(\d+)", word)
        assert parts, word
        found += [(parts[2], int(parts[3]))] * int(parts[1] or 1)
    return tuple(found)


#: Shapes that the source's own validation uses, and the samples of a step.
_RUBICK = {
    "vit": (gpt(layers=12, hidden=768, heads=12, vocabulary=1000, sequence=512), 64),
    "bert": (gpt(layers=24, hidden=1024, heads=16, vocabulary=30522, sequence=512), 32),
    "gpt2": (gpt(layers=48, hidden=1600, heads=25, vocabulary=50257, sequence=1024), 16),
    "llama7": (
        Transformer(
            name="llama7",
            layers=32,
            hidden=4096,
            heads=32,
            key_value_heads=32,
            head_size=128,
            feed_forward=11008,
            is_gated=True,
            vocabulary=32000,
            sequence=2048,
            is_tied=False,
        ),
        8,
    ),
}
#: Points of the authors' table: names of plans -> (words or digits, placements if it matters).
_WORDS = {
    "DP": ("ga", "1 2 4 8"),
    "GC": ("gc", "1 2 4 8"),
    "ZeRO-DP+GA": ("zero-dp", "1 2 4 8"),
    "ZeRO-Offload": ("zero-offload", "1 2 4 8"),
}
RUBICK_POINTS = {
    "vit": _WORDS,
    "bert": _WORDS,
    "gpt2": {
        "TP+PP": ("411 451 811", ""),
        "DP+TP+PP": ("151 251 351 451 651", ""),
        "ZeRO-DP+GA": ("zero-dp", "1 2 4 8"),
        "ZeRO-Offload+GC": ("zero-offload", "1 2 4 8"),
    },
    "llama7": {
        "TP+PP": ("281 441 481 821 881", ""),
        "DP+TP+PP": ("182 184 188 242", "88 8888 88888888 4444"),  # but not 242 on 88
        "ZeRO-Offload+GC": ("zero-offload", "1 2 4 8"),
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RubickRun:
    """A measured run of Rubick (MLSys'25).

    Attributes:
        plan: the authors' name.
        placement: workers of each node, a digit each.
        step: the run.
    """

    plan: str
    placement: str
    step: MeasuredStep


def rubick_runs(folder: Path, model: str, hardware: Accelerator) -> list[RubickRun]:
    """Return the measured runs of a model.

    A pipeline has one microbatch. A copy computes as many samples at once as fit its memory.
    """
    shape, batch = _RUBICK[model]
    training = Training(model=shape, batch=batch, is_fused=False)
    found = []
    for row in read_rows(folder / f"plans_{model}.csv"):
        counts = [int(digit) for digit in row["placement"]]
        plan = _rubick_plan(row["exec_plan"], sum(counts), training, hardware)
        step = MeasuredStep(
            training=training, plan=plan, step_s=float(row["iter_time"]), per_node=max(counts)
        )
        found.append(RubickRun(plan=row["exec_plan"], placement=row["placement"], step=step))
    return found


def _rubick_plan(words: str, workers: int, training: Training, hardware: Accelerator) -> Plan:
    if words.isdigit():
        pipeline, tensor, data = map(int, words)
        samples = training.batch // data
        return Plan(tensor=tensor, pipeline=pipeline, data=data, microbatch=samples)
    offload = words == "zero-offload"
    is_large = training.model.parameters > 1e9  # these also compute activations again
    for samples in (2**k for k in reversed(range(7))):
        plan = Plan(
            data=workers,
            microbatch=samples,
            recompute=words == "gc" or (offload and is_large),
            zero=2 if words.startswith("zero") and workers > 1 else 0,
            offload=offload,
        )
        memory = worker_memory(training, Plans.of([plan])).total[0]
        fits = memory <= USABLE * hardware.memory_gb * 1e9
        if samples == 1 or (samples * workers <= training.batch and fits):
            return plan
    raise AssertionError


def rubick_points(model: str, runs: list[RubickRun]) -> dict[str, list[int]]:
    """Return the places of the runs in the authors' table of errors, by its names of plans."""
    found = {}
    for name, (plans, placements) in RUBICK_POINTS[model].items():
        of_plan = [
            i
            for i, run in enumerate(runs)
            if run.plan in plans.split()
            and (run.placement in placements.split() or not placements)
            and (run.plan, run.placement) != ("242", "88")
        ]
        of_plan.sort(key=lambda i: runs[i].step.plan.workers)
        found[name] = of_plan
    return found


def rubick_calibration(points: dict[str, list[int]]) -> list[int]:
    """Return at most seven runs: those with fewest and most workers of each plan, in turn."""
    ends = [of_plan[0] for of_plan in points.values()]
    ends += [of_plan[-1] for of_plan in points.values()]
    return ends[:7]


#: The nodes have adapters of 100 Gbit/s.
RUBICK_HARDWARE = msgspec.structs.replace(read_hardware().find("a800"), network_gb_per_s=12.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class RubickErrors:
    """Errors on the runs of a model, calibrated on at most seven of them.

    Attributes:
        runs: the runs.
        points: the places of the runs in the authors' table, by its names of plans.
        percent: error of each run.
        authors: mean errors of the authors, by name of plan.
    """

    runs: list[RubickRun]
    points: dict[str, list[int]]
    percent: FloatArray
    authors: dict[str, float]

    @property
    def others(self) -> list[int]:
        """Return the places of the runs that the authors' table leaves out."""
        seen = {i for of_plan in self.points.values() for i in of_plan}
        return [i for i in range(len(self.runs)) if i not in seen]


def rubick_errors(folder: Path, model: str) -> RubickErrors:
    """Return the errors on the runs of a model."""
    runs = rubick_runs(folder, model, RUBICK_HARDWARE)
    points = rubick_points(model, runs)
    calibration = calibrate([runs[i].step for i in rubick_calibration(points)], RUBICK_HARDWARE)
    predicted = predicted_steps([run.step for run in runs], calibration, RUBICK_HARDWARE)
    measured = np.array([run.step.step_s for run in runs])
    authors = {
        row["plan"]: float(row["mean_error_percent"])
        for row in read_rows(folder / "prediction_errors.csv")
        if row["model"] == model and row["mean_error_percent"]
    }
    percent = 100 * np.abs(predicted / measured - 1)
    return RubickErrors(runs=runs, points=points, percent=percent, authors=authors)


def predicted_steps(
    steps: list[MeasuredStep], calibration: Calibration, hardware: Accelerator
) -> Any:
    """Return the predicted seconds of each step."""
    return np.array(
        [
            calibration.step_times(
                one.training,
                Plans.of([one.plan]),
                msgspec.structs.replace(hardware, per_node=one.per_node or hardware.per_node),
            ).total_s[0]
            for one in steps
        ]
    )


#: Tables 1 and 2: layers, hidden size, heads, tensor and pipeline size, GPUs, batch, microbatch,
#: chunks, TFLOP/s of each GPU. The last two columns but one are from the authors' scripts.
PTDP_POINTS = (
    (24, 2304, 24, 1, 1, 32, 512, 16, 1, 137),
    (30, 3072, 32, 2, 1, 64, 512, 16, 1, 138),
    (36, 4096, 32, 4, 1, 128, 512, 16, 1, 142),
    (40, 6144, 48, 8, 1, 256, 1024, 8, 1, 135),
    (48, 8192, 64, 8, 2, 512, 1536, 4, 1, 138),
    (60, 10240, 80, 8, 4, 1024, 1792, 2, 3, 140),
    (80, 12288, 96, 8, 8, 1536, 2304, 2, 2, 148),
    (96, 16384, 128, 8, 16, 1920, 2160, 1, 2, 155),
    (105, 20480, 128, 8, 35, 2520, 2520, 1, 3, 163),
    (128, 25600, 160, 8, 64, 3072, 3072, 1, 1, 163),
    (96, 12288, 96, 8, 12, 384, 1536, 1, 1, 153),
    (96, 12288, 96, 8, 12, 768, 1536, 1, 1, 149),
    (96, 12288, 96, 8, 12, 1536, 1536, 1, 1, 141),
    (105, 20480, 128, 8, 35, 560, 2240, 1, 1, 171),
    (105, 20480, 128, 8, 35, 1120, 2240, 1, 1, 167),
    (105, 20480, 128, 8, 35, 2240, 2240, 1, 1, 159),
)
#: Of them, those that calibrate: small and large, with and without pipelines and chunks.
PTDP_CALIBRATING = (0, 3, 5, 8, 10, 14)


def ptdp_model(layers: int, hidden: int, heads: int) -> Transformer:
    """Return a model of the paper."""
    return gpt(layers=layers, hidden=hidden, heads=heads, vocabulary=51200, sequence=2048)


def ptdp_flops(model: Transformer, batch: int) -> float:
    """Return the FLOPs of a step as the paper counts them: forward, backward, forward again."""
    return batch * (4 * model.layers * model.layer_flops + 3 * model.head_flops)


def ptdp_step(row: tuple[int, ...]) -> MeasuredStep:
    """Return the step that a row's rate means."""
    layers, hidden, heads, tensor, pipeline, workers, batch, microbatch, chunks, tflops = row
    model = ptdp_model(layers, hidden, heads)
    plan = Plan(
        tensor=tensor,
        pipeline=pipeline,
        data=workers // (tensor * pipeline),
        microbatch=microbatch,
        chunks=chunks,
        recompute=True,
    )
    step_s = ptdp_flops(model, batch) / (workers * tflops * 1e12)
    training = Training(model=model, batch=batch, is_fused=False)
    return MeasuredStep(training=training, plan=plan, step_s=step_s)


def vtrain_steps(folder: Path) -> list[MeasuredStep]:
    """Return the measured iterations of vTrain (Bang et al., MICRO'24)."""
    names = ("single.csv", "multi.csv")
    return [_vtrain_step(row) for name in names for row in read_rows(folder / name)]


def _vtrain_step(row: dict[str, str]) -> MeasuredStep:
    def number(name: str) -> int:
        return int(row[name])

    model = gpt(
        layers=number("# layers"),
        hidden=number("hidden size"),
        heads=number("attention heads"),
        vocabulary=50257,
        sequence=number("sequence length"),
    )
    plan = Plan(
        tensor=number("tensor parallelism"),
        pipeline=number("pipeline parallelism"),
        data=number("data parallelism"),
        microbatch=number("micro batch"),
        recompute=True,
    )
    step_s = float(row["iteration time (ms)"]) / 1e3
    training = Training(model=model, batch=number("global batch"), is_fused=False)
    return MeasuredStep(training=training, plan=plan, step_s=step_s)


def vtrain_losses(steps: list[MeasuredStep], predicted: Any, places: Iterable[int]) -> list[float]:
    """Return, by group of equal model, workers and batch, how much slower the chosen plan is."""
    groups: dict[tuple[Training, int], list[int]] = {}
    for i in places:
        groups.setdefault((steps[i].training, steps[i].plan.workers), []).append(i)
    return [
        steps[min(at, key=lambda i: predicted[i])].step_s / min(steps[i].step_s for i in at) - 1
        for at in groups.values()
        if len(at) > 1
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmonyBest:
    """A best plan that Harmony's authors found, and the seconds that they predict.

    For a step of 32 samples on two workers of which each may use 10 GiB. Source: ``results`` of
    their repository.
    """

    model: str
    predicted_s: float
    plan: PackedPlan


def _harmony(
    model: str, predicted_s: float, *, samples: tuple[int, int], forward: Ends, backward: Ends
) -> HarmonyBest:
    return HarmonyBest(
        model=model,
        predicted_s=predicted_s,
        plan=PackedPlan(
            pipeline=False,
            forward=forward,
            forward_samples=samples[0],
            backward=backward,
            backward_samples=samples[1],
        ),
    )


def _as_pipeline(best: HarmonyBest) -> HarmonyBest:
    return replace(best, plan=replace(best.plan, pipeline=True))


_BERT_96 = (10, 20, 29, 39, 48, 58, 68, 77, 87, 100)
_VGG = (15, 31, 46, 62, 77, 99, 123, 147, 172, 200, 229, 257, 285, 313, 354, 417)
_VGG_FORWARD = (51, 111, 185, 263, 354)
#: Of each model, data parallel and as a pipeline.
HARMONY_BEST: tuple[HarmonyBest, ...] = (
    _harmony("bert_large", 4.608, samples=(16, 4), forward=(6,), backward=(6, 28)),
    _as_pipeline(
        _harmony("bert_large", 4.399, samples=(8, 8), forward=(15,), backward=(5, 15, 28))
    ),
    _harmony("bert_96", 19.421, samples=(8, 8), forward=(22, 43, 65, 87), backward=_BERT_96),
    _as_pipeline(
        _harmony("bert_96", 17.874, samples=(8, 8), forward=_BERT_96[:-1], backward=_BERT_96)
    ),
    _harmony(
        "gpt2_xl",
        43.927,
        samples=(2, 2),
        forward=(11, 22, 33, 44),
        backward=(7, 13, 19, 25, 32, 38, 44, 52),
    ),
    _as_pipeline(
        _harmony(
            "gpt2_xl",
            42.298,
            samples=(2, 1),
            forward=(10, 19, 28, 38),
            backward=(13, 25, 38, 52),
        )
    ),
    _harmony("vgg416", 11.878, samples=(8, 8), forward=_VGG_FORWARD, backward=_VGG),
    _as_pipeline(_harmony("vgg416", 10.590, samples=(8, 8), forward=_VGG_FORWARD, backward=_VGG)),
    _harmony(
        "resnet1026", 5.268, samples=(16, 16), forward=(417,), backward=(86, 186, 303, 417, 515)
    ),
    _as_pipeline(
        _harmony(
            "resnet1026",
            4.510,
            samples=(32, 32),
            forward=(215, 444),
            backward=(47, 94, 147, 214, 276, 327, 378, 444, 515),
        )
    ),
)
_GIB = 2.0**30
#: The links of that machine, as the authors measured them.
HARMONY_LINKS = SwapLinks(swap=11.5 * _GIB, peer=8.2 * _GIB, host=16 * _GIB, pack_s=0.04)
#: Bytes of the weights of a layer of GPT-2 XL, and of its causal mask, which profiles leave out.
_GPT2_LAYER, _GPT2_MASK = 122_963_200, 2**22


def harmony_model(folder: Path, name: str) -> PackedModel:
    """Return a model of Harmony's profiles; resnet1026 has no sizes of inputs, which count as 0."""
    found = json.loads((folder / "profiles.json").read_text(encoding="utf-8"))[name]

    def by_microbatch(rows: dict[str, list[float]]) -> dict[int, FloatArray]:
        return {int(samples): np.array(row, dtype=float) for samples, row in rows.items()}

    weights = np.array(found["W_bytes"], dtype=float)
    return PackedModel(
        weight_bytes=weights + _GPT2_MASK * (weights == _GPT2_LAYER),
        input_bytes=np.array(found.get("X_bytes_u1", [0.0] * found["layers"]), dtype=float),
        forward_s=by_microbatch(found["FWD_s"]),
        backward_s=by_microbatch(found["BWD_s"]),
        update_s=np.array(found["UPD_cpu_s"], dtype=float),
        forward_memory=by_microbatch(found["MEM"]["FWD"]),
        backward_memory=by_microbatch(found["MEM"]["BWD"]),
    )


def harmony_step_s(model: PackedModel, plan: PackedPlan) -> float:
    """Return the seconds of a step on the authors' machine."""
    return packs.step_s(model, plan, workers=2, batch=32, links=HARMONY_LINKS)


def harmony_rules(name: str) -> tuple[Rule, ...]:
    """Return the rules among which the authors searched, as far as their summaries show."""
    return tuple(Rule) if name == "bert_large" else (Rule.EQUAL_TIME,)


def harmony_best_s(
    model: PackedModel, *, pipeline: bool, rules: tuple[Rule, ...] = tuple(Rule)
) -> float:
    """Return the seconds of the fastest step that is found on the authors' machine."""
    found = best_packed_plan(
        model,
        pipeline=pipeline,
        workers=2,
        batch=32,
        memory=10 * _GIB,
        links=HARMONY_LINKS,
        rules=rules,
    )
    assert found is not None
    return found[0]
