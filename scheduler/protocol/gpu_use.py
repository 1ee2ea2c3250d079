"""The use of GPUs, as an agent reports it for a lease."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.protocol import fields


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """The use of a lease's GPUs on one node since an agent began to measure.

    Absolute, so that a lost or repeated report changes nothing; a restarted agent begins at 0.

    Attributes:
        used_s: GPU-seconds of computing: NVML's utilisation, times the seconds.
        measured_s: GPU-seconds that were measured.
        memory_bytes: bytes of the devices' memory in use at the last measurement.
    """

    used_s: fields.Elapsed
    measured_s: fields.Elapsed
    memory_bytes: fields.Count = 0
