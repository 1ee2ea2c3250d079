"""The bundled throughput table: a roofline estimate for today's GPUs and models.

Source of the model: Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance
Model for Multicore Architectures" (CACM 2009). Nothing here is measured; every figure of the table
is an *estimate* and says so. To write it again:
``python benchmarks/bundled/roofline.py traces/data/throughputs.csv``.

One step is one minibatch of one worker, as in Gavel's table: a gang of n workers that takes t
seconds for its n minibatches runs at n / t steps/s.

On one worker of a GPU with peak F (FLOP/s), memory bandwidth B (byte/s) and memory M (byte):

- arithmetic: ``batch x flop_per_sample / (0.45 F)``; training needs three times the forward pass;
- memory traffic: ``(batch x bytes_per_sample + 3 x state) / (0.75 B)``, ``state`` being weights,
  gradients and optimizer moments, which a step reads and writes;
- ``busy`` = the larger of the two; ``host`` = seconds in which the GPU waits for launches and data;
- exchange: a ring all-reduce of the gradients, ``2 (n-1)/n x gradient_bytes / (0.7 x link)``,
  half of it hidden behind the backward pass;
- the job does not run where ``state + batch x bytes_held_per_sample`` exceeds 90 % of M.

Two jobs on the same workers take turns on the GPU: each runs at ``0.95 x min(1, 1 / (u1 + u2))`` of
its throughput alone, u being the share of a step in which it keeps the GPU busy; both must fit the
memory together. Sharing pays for jobs that wait much for host or network.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from scheduler.domain.throughputs.throughput import ProfileKey, ThroughputTable
from traces.tables.throughputs import write_throughputs

_TERA, _GIGA, _MEGA = 1e12, 1e9, 1e6
_COMPUTE, _BANDWIDTH, _LINK = 0.45, 0.75, 0.7  # shares of the peaks that training code reaches
_HIDDEN, _TURNS, _MEMORY = 0.5, 0.95, 0.9
_SCALE_FACTORS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Gpu:
    """Published figures of a GPU.

    Attributes:
        name: worker type.
        tflops: peak dense 16-bit tensor TFLOP/s (bf16; fp16 on t4 and v100, which have no bf16).
        memory_gb: memory in GB.
        bandwidth_gb_per_s: memory bandwidth in GB/s.
        link_gb_per_s: GB/s in one direction to a neighbour in the same node.
        source: the publication of the figures.
    """

    name: str
    tflops: float
    memory_gb: float
    bandwidth_gb_per_s: float
    link_gb_per_s: float
    source: str


GPUS = (
    Gpu("t4", 65.0, 16.0, 320.0, 15.8, "NVIDIA T4 product brief; PCIe 3.0 x16"),
    Gpu("a10g", 70.0, 24.0, 600.0, 31.5, "NVIDIA A10G datasheet; PCIe 4.0 x16"),
    Gpu("v100", 125.0, 16.0, 900.0, 150.0, "NVIDIA V100 datasheet, SXM2 16 GB; NVLink 2"),
    Gpu("l40s", 362.0, 48.0, 864.0, 31.5, "NVIDIA L40S datasheet; PCIe 4.0 x16"),
    Gpu("a100", 312.0, 40.0, 1555.0, 300.0, "NVIDIA A100 datasheet, SXM4 40 GB; NVLink 3"),
    Gpu("a100-80g", 312.0, 80.0, 2039.0, 300.0, "NVIDIA A100 datasheet, SXM4 80 GB; NVLink 3"),
    Gpu("h100", 989.0, 80.0, 3350.0, 450.0, "NVIDIA H100 datasheet, SXM5; NVLink 4"),
)


@dataclass(frozen=True, slots=True)
class Model:
    """The needs of a model's training step; round figures from the models' papers.

    Attributes:
        name: job type.
        batch: samples per worker and step.
        gflop: GFLOP of a forward pass of one sample (2 per multiply-add).
        parameters_m: millions of parameters.
        trained_m: millions of parameters that are trained (fewer for LoRA and sparse tables).
        held_mb: MB of activations that a sample keeps for the backward pass.
        traffic_mb: MB that a sample moves to and from GPU memory in a step.
        host_ms: milliseconds in which the GPU waits for launches and input.
        distributes: whether it trains on several workers.
    """

    name: str
    batch: int
    gflop: float
    parameters_m: float
    trained_m: float
    held_mb: float
    traffic_mb: float
    host_ms: float
    distributes: bool = True


# The weights of QLoRA take 4 bits: it counts as a quarter of its 7.2 billion parameters. Of DLRM
# only the dense part is exchanged, its embedding tables are sparse.
MODELS = (
    Model("ResNet-50 (batch size 64)", 64, 8.2, 25.6, 25.6, 90, 500, 12),
    Model("ResNet-50 (batch size 256)", 256, 8.2, 25.6, 25.6, 90, 500, 40),
    Model("EfficientNet-B4 (batch size 32)", 32, 8.8, 19.3, 19.3, 300, 1700, 25),
    Model("ViT-B/16 (batch size 64)", 64, 35.2, 86.6, 86.6, 130, 900, 10),
    Model("ViT-L/16 (batch size 32)", 32, 123.0, 304.0, 304.0, 350, 2400, 16),
    Model("BERT-base (batch size 32, 512 tokens)", 32, 97.0, 110.0, 110.0, 180, 1300, 8),
    Model("BERT-large (batch size 16, 512 tokens)", 16, 340.0, 335.0, 335.0, 480, 3400, 14),
    Model("GPT-2 small (batch size 8, 1024 tokens)", 8, 290.0, 124.0, 124.0, 900, 5600, 9),
    Model("GPT-2 XL (batch size 2, 1024 tokens)", 2, 3350.0, 1558.0, 1558.0, 2600, 16000, 32),
    Model("T5-base (batch size 16, 512 tokens)", 16, 180.0, 220.0, 220.0, 420, 3000, 18),
    Model("Whisper-small (batch size 16, 30 s)", 16, 330.0, 244.0, 244.0, 700, 4200, 30),
    Model("Stable Diffusion 1.5 UNet (batch size 4)", 4, 680.0, 860.0, 860.0, 1500, 11000, 35),
    Model("Llama 3 8B LoRA (batch size 1, 2048 tokens)", 1, 33500, 8030, 42, 4200, 48000, 40),
    Model("Mistral 7B QLoRA (batch size 1, 1024 tokens)", 1, 14900, 1900, 42, 2600, 36000, 90),
    Model("DLRM (batch size 4096)", 4096, 0.004, 540.0, 3.0, 0.05, 0.9, 22),
    Model("GraphSAGE (batch size 1024)", 1024, 0.03, 1.5, 1.5, 1.2, 9.0, 55),
    Model("PPO on Atari (batch size 2048)", 2048, 0.02, 1.7, 1.7, 0.4, 2.2, 140, distributes=False),
)


@dataclass(frozen=True, slots=True)
class _Run:
    """A model alone on a gang: steps/s, share of time that keeps the GPU busy, bytes held."""

    steps_per_s: float
    utilisation: float
    held_bytes: float


def estimate() -> ThroughputTable:
    """Return the estimated table: every model, GPU, scale factor, and pairs of equal scale factor.

    Figures are rounded to four digits, which is more than the estimate deserves.
    """
    isolated: dict[ProfileKey, dict[str, float]] = {}
    shared: dict[tuple[ProfileKey, ProfileKey], dict[str, tuple[float, float]]] = {}
    for n in _SCALE_FACTORS:
        models = [m for m in MODELS if n == 1 or m.distributes]
        for gpu in GPUS:
            runs = {(m.name, n): run for m in models if (run := _alone(m, gpu, n)) is not None}
            for key, run in runs.items():
                isolated.setdefault(key, {})[gpu.name] = _round(run.steps_per_s)
            for first, mine in runs.items():
                for second, other in runs.items():
                    rate = _sharing_rate(mine, other, gpu)
                    if rate > 0.5:  # else taking turns is at least as good
                        pair = _round(rate * mine.steps_per_s), _round(rate * other.steps_per_s)
                        shared.setdefault((first, second), {})[gpu.name] = pair
    return ThroughputTable(isolated=isolated, shared=shared, source=_source())


def _alone(model: Model, gpu: Gpu, n: int) -> _Run | None:
    # 16-bit weights; trained ones have a gradient and 32-bit weight and moments besides.
    state = model.parameters_m * _MEGA * 2 + model.trained_m * _MEGA * 14
    held = state + model.batch * model.held_mb * _MEGA
    if held > _MEMORY * gpu.memory_gb * _GIGA:
        return None
    arithmetic = 3 * model.batch * model.gflop * _GIGA / (_COMPUTE * gpu.tflops * _TERA)
    touched = model.parameters_m * _MEGA * 4 + model.trained_m * _MEGA * 28
    moved = model.batch * model.traffic_mb * _MEGA + touched
    busy = max(arithmetic, moved / (_BANDWIDTH * gpu.bandwidth_gb_per_s * _GIGA))
    gradients = model.trained_m * _MEGA * 2
    exchange = 2 * (n - 1) / n * gradients / (_LINK * gpu.link_gb_per_s * _GIGA)
    step_s = busy + model.host_ms / 1e3 + (1 - _HIDDEN) * exchange
    return _Run(steps_per_s=n / step_s, utilisation=busy / step_s, held_bytes=held)


def _sharing_rate(mine: _Run, other: _Run, gpu: Gpu) -> float:
    """Return the share of its own throughput that each of two jobs keeps; 0 if too large."""
    if mine.held_bytes + other.held_bytes > _MEMORY * gpu.memory_gb * _GIGA:
        return 0.0
    return _TURNS * min(1.0, 1.0 / (mine.utilisation + other.utilisation))


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _source() -> str:
    head = (
        "ESTIMATES, not measurements: a roofline model (benchmarks/bundled/roofline.py) over "
        "published figures.\n"
        "Peak dense 16-bit TFLOP/s, GB of memory, GB/s of memory, GB/s to a neighbour; source:"
    )
    figures = (
        f"{g.name}: {g.tflops:g}, {g.memory_gb:g}, {g.bandwidth_gb_per_s:g}, {g.link_gb_per_s:g}; "
        f"{g.source}"
        for g in GPUS
    )
    return "\n".join((head, *figures))


if __name__ == "__main__":
    write_throughputs(estimate(), sys.argv[1])
