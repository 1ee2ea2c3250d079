"""The use of GPUs, as an agent reports it for a lease."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.protocol.reading import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """The use of a lease's GPUs on one node since an agent began to measure.

    Absolute, so that a lost or repeated report changes nothing; a restarted agent begins at 0.

    Attributes:
        used_s: GPU-seconds of computing: NVML's utilisation, times the seconds.
        measured_s: GPU-seconds that were measured.
        memory_bytes: bytes of the devices' memory in use at the last measurement.
    """

    used_s: float
    measured_s: float
    memory_bytes: int = 0


def read_gpu_use(item: Reader, name: str) -> GpuUse:
    """Read a field with the use of a lease's GPUs.

    Raises:
        InputError: a figure is impossible, such as more use than time.
    """
    use = Reader.of(item.data[name], item.where(name))
    measured_s = use.number("measured_s", at_least=0.0)
    return GpuUse(
        used_s=use.number("used_s", at_least=0.0, at_most=measured_s),
        measured_s=measured_s,
        memory_bytes=use.integer("memory_bytes"),
    )
