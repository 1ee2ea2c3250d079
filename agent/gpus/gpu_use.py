"""GPU use of each lease, from NVML."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.protocol.gpu_use import GpuUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.gpus.inventory import Inventory

#: A sample counts for the time since the one before, at most for this: a machine may have slept.
LONGEST_S = 60.0


@dataclass(slots=True)
class GpuMeter:
    """Adds up the use of GPUs for each lease.

    NVML's utilisation is the share of its last sample (a sixth of a second to one second) in which
    a kernel ran. It has none for an instance of MIG. For a GPU that two jobs share it cannot
    separate their kernels: both leases get the device's use.

    Attributes:
        inventory: the node's workers, and NVML.
    """

    inventory: Inventory
    _used: dict[int, GpuUse] = field(default_factory=dict)
    _looked_s: dict[int, float] = field(default_factory=dict)  # lease -> when

    def look(self, leases: Mapping[int, Iterable[int]], now_s: float) -> None:
        """Sample the workers of leases; takes about a millisecond per GPU, in one thread only.

        Args:
            leases: lease id -> local indices of its workers. Other leases are dropped.
            now_s: on any steady clock.
        """
        seen: dict[int, tuple[float, int] | None] = {}
        used: dict[int, GpuUse] = {}
        for lease_id, workers in leases.items():
            since_s = now_s - self._looked_s.get(lease_id, now_s)
            before = self._used.get(lease_id)
            told = [seen[w] if w in seen else seen.setdefault(w, self._ask(w)) for w in workers]
            known = [one for one in told if one is not None]
            if known and len(known) == len(told) and before is None:
                before = GpuUse(used_s=0.0, measured_s=0.0)
            if before is None:
                continue
            took_s = min(since_s, LONGEST_S) if len(known) == len(told) else 0.0
            used[lease_id] = GpuUse(
                used_s=before.used_s + took_s * sum(share for share, _ in known),
                measured_s=before.measured_s + took_s * len(known),
                memory_bytes=sum(memory for _, memory in known),
            )
        self._used = used  # at once: reports are written in another thread
        self._looked_s = dict.fromkeys(leases, now_s)

    def of(self, lease_id: int) -> GpuUse | None:
        """Return the use of a lease's GPUs so far; None if it is not known."""
        use = self._used.get(lease_id)
        return use if use is not None and use.measured_s > 0.0 else None

    def _ask(self, worker: int) -> tuple[float, int] | None:
        """Return the share of time in which a GPU computes, and its memory in use."""
        nvml: Any = self.inventory.nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(self.inventory.workers[worker].uuid)
            share = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0
            return min(max(share, 0.0), 1.0), int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        except nvml.NVMLError:
            return None  # an instance of MIG, a GPU that is too old, or one that has broken
