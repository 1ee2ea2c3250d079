"""How busy GPUs are, as an agent tells it of a lease."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.protocol.reading import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """How busy the GPUs of a lease on one node were since an agent began to look.

    Absolute, so that a report which is lost or comes twice changes nothing; an agent that starts
    anew begins at 0.

    Attributes:
        used_s: GPU-seconds of computing: what NVML calls utilisation, times the seconds.
        measured_s: GPU-seconds that were looked at.
        memory_bytes: of the devices' memory that was in use when they were looked at last.
    """

    used_s: float
    measured_s: float
    memory_bytes: int = 0


def gpu_use(item: Reader, name: str) -> GpuUse:
    """Read a field that says how busy the GPUs of a lease are.

    Raises:
        InputError: it says what cannot be, such as more use than time.
    """
    use = Reader.of(item.data[name], item.where(name))
    measured_s = use.number("measured_s", at_least=0.0)
    return GpuUse(
        used_s=use.number("used_s", at_least=0.0, at_most=measured_s),
        measured_s=measured_s,
        memory_bytes=use.integer("memory_bytes"),
    )
