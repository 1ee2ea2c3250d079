"""GPU use of each lease, and of processes without a lease, from NVML."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.protocol.gpu_use import GpuUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.gpus.inventory import Inventory, LocalWorker

#: A sample counts for the time since the one before, at most for this: a machine may have slept.
LONGEST_S = 60.0
#: An idle GPU with more than this share of its memory in use is used by processes without a lease.
#: A desktop or a monitor of the driver takes less.
FOREIGN_SHARE = 0.25
#: The driver frees the memory of a lease's processes within this time after their end.
FREED_S = 30.0


@dataclass(slots=True)
class GpuMeter:
    """Adds up the use of GPUs for each lease.

    NVML's utilisation is the share of its last sample (a sixth of a second to one second) in which
    a kernel ran. It has none for an instance of MIG. For a GPU that two jobs share it cannot
    separate their kernels: both leases get the device's use.

    Attributes:
        inventory: the node's workers, and NVML.
        foreign: by local index, why an idle worker cannot be granted; replaced at each look.
    """

    inventory: Inventory
    foreign: dict[int, str] = field(default_factory=dict)
    _used: dict[int, GpuUse] = field(default_factory=dict)
    _held_s: dict[int, float] = field(default_factory=dict)  # worker -> when it was last held
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
        self._held_s |= dict.fromkeys((w for held in leases.values() for w in held), now_s)
        self.foreign = self._look_for_foreign(now_s)

    def _look_for_foreign(self, now_s: float) -> dict[int, str]:
        """Return which idle workers processes without a lease use, by local index."""
        found = {
            worker.index: _foreign_use(self.inventory.nvml, worker)
            for worker in self.inventory.workers
            if worker.index not in self.inventory.missing
            and now_s - self._held_s.get(worker.index, -math.inf) > FREED_S
        }
        return {index: text for index, text in found.items() if text}

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


def _foreign_use(nvml: Any, worker: LocalWorker) -> str:
    """Return how processes without a lease use an idle worker; empty if they do not."""
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(worker.uuid)
        used = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
    except nvml.NVMLError:
        return ""  # its health is looked at elsewhere
    if not worker.memory_bytes or used <= FOREIGN_SHARE * worker.memory_bytes:
        return ""
    pids = _pids_on(nvml, handle)
    named = f" ({', '.join(map(str, pids))})" if pids else ""
    return (
        f"{worker.worker_type} {worker.uuid}: processes without a lease{named} use "
        f"{used / 2**30:.1f} of {worker.memory_bytes / 2**30:.1f} GiB of its memory; it can be "
        "granted when they have ended"
    )


def _pids_on(nvml: Any, handle: Any) -> list[int]:
    """Return the first processes on a GPU; none if the driver does not list them."""
    try:
        return sorted({int(p.pid) for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)})[:8]
    except Exception:  # noqa: BLE001 - of an older driver, pynvml raises an error of another class
        return []
