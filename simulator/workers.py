"""Simulated workers: they run the jobs of their leases at the table's throughputs."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.lease import Lease
    from simulator.overheads import Overhead

_SLOT = np.dtype(
    [
        ("lease", np.int64),  # ascending
        ("base", np.float64),  # steps done at since_s
        ("total", np.float64),
        ("rate", np.float64),  # steps/s
        ("since_s", np.float64),  # no progress before
        ("stop_s", np.float64),  # no progress after (checkpoint, own failure)
        ("finish_s", np.float64),  # when the job will be complete; inf if not by stop_s
        ("start_s", np.float64),  # when the lease began; checkpoints are counted from then
        ("saved", np.float64),  # steps in the last periodic checkpoint before since_s
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What is known of a running lease besides its numbers."""

    lease: Lease
    overhead: Overhead
    fails_s: float


class SimulatedWorkers:
    """Leases that run, and their progress, as arrays over slots in order of lease id.

    The truth about throughputs is in ``table``; what the engine believes does not matter here.
    """

    def __init__(
        self,
        cluster: Cluster,
        table: ConfigurationTable,
        speed: FloatArray | None = None,
        *,
        checkpoint_interval_s: float = math.inf,
    ) -> None:
        self._interval_s = checkpoint_interval_s
        self._type_of: list[int] = cluster.worker_type_of.tolist()
        self._types = len(cluster.worker_types)
        self._table = table
        self._speed = speed if speed is not None else np.ones(cluster.workers)
        self._uniform = bool(np.all(self._speed == 1.0))
        self._slots: NDArray[np.void] = np.zeros(64, dtype=_SLOT)
        self._size = 0
        #: ids of the slots' leases, ascending; a list, since bisect beats numpy on single look-ups.
        self._ids: list[int] = []
        #: slots whose lease has ended; they are passed over only after the ranks are closed.
        self._gone: list[int] = []
        #: lease id -> execution, for exactly the slots.
        self.executions: dict[int, Execution] = {}
        #: worker -> ids of the leases running on it.
        self._on_worker: list[list[int]] = [[] for _ in range(cluster.workers)]
        self._pair_index = {
            (int(a), int(b), tuple(demand)): p
            for p, ((a, b), demand) in enumerate(
                zip(table.pair_profiles, table.pair_demand.tolist(), strict=True)
            )
        }
        #: (profile, first worker's type, gang) -> steps/s alone.
        self._alone: dict[tuple[int, tuple[int, ...]], float] = {}
        #: workers held by type, each once however many share it.
        self.busy: IntArray = np.zeros(self._types, dtype=np.int64)

    def __len__(self) -> int:
        return self._size - len(self._gone)

    def _close_ranks(self) -> None:
        """Move slots up over those that are gone; once for all that ended at a time."""
        if not self._gone:
            return
        kept = np.ones(self._size, dtype=bool)
        kept[self._gone] = False
        self._size -= len(self._gone)
        self._slots[: self._size] = self._slots[: len(kept)][kept]
        for slot in sorted(self._gone, reverse=True):
            del self._ids[slot]
        self._gone.clear()

    @property
    def lease_ids(self) -> IntArray:
        """(n,) ids of the running leases, ascending."""
        self._close_ranks()
        return self._slots["lease"][: self._size].copy()

    def steps_done(self, now: float) -> FloatArray:
        """Return (n,) the steps done by the jobs of the running leases."""
        self._close_ranks()
        slots = self._slots[: self._size]
        elapsed = np.minimum(now, slots["stop_s"]) - slots["since_s"]
        done: FloatArray = slots["base"] + slots["rate"] * np.maximum(elapsed, 0.0)
        total: FloatArray = slots["total"]
        return np.where(slots["finish_s"] <= now, total, np.minimum(done, total))

    @property
    def next_finish_s(self) -> float:
        """When the next job will have done its last step; inf if none will."""
        self._close_ranks()
        return float(self._slots["finish_s"][: self._size].min()) if self._size else math.inf

    def finished(self, now: float) -> list[int]:
        """Return the leases whose jobs have done all steps by now."""
        self._close_ranks()
        slots = self._slots[: self._size]
        ids: list[int] = slots["lease"][slots["finish_s"] <= now].tolist()
        return ids

    def start(
        self,
        lease: Lease,
        *,
        now: float,
        base: float,
        total: float,
        overhead: Overhead,
        fails_s: float,
    ) -> None:
        """Begin to run a lease's job.

        Args:
            lease: the lease.
            now: when.
            base: the job's steps done so far.
            total: its steps in all.
            overhead: what launch and restore cost.
            fails_s: when the job will fail by itself; inf for never.
        """
        if self._size == len(self._slots):
            self._slots = np.concatenate([self._slots, np.zeros_like(self._slots)])
        restore_s = overhead.restore_s if lease.attempt > 1 else 0.0
        since_s = now + overhead.launch_s + restore_s
        alone = not self._on_worker[lease.workers[0]]
        rate = self._slowed(self._alone_rate(lease.profile, self._demand(lease)), lease)
        done_s = since_s + (total - base) / rate if rate > 0 else math.inf
        finish_s = done_s + overhead.complete_s if done_s <= fails_s else math.inf
        self._slots[self._size] = (
            *(lease.lease_id, base, total, rate, since_s, fails_s, finish_s),
            *(now, base),
        )
        self._size += 1
        self._ids.append(lease.lease_id)
        self.executions[lease.lease_id] = Execution(lease=lease, overhead=overhead, fails_s=fails_s)
        for worker in lease.workers:
            if not self._on_worker[worker]:
                self.busy[self._type_of[worker]] += 1
            self._on_worker[worker].append(lease.lease_id)
        if not alone:
            for lease_id in self._on_worker[lease.workers[0]]:
                self._set_rate(lease_id, now)

    def stop_progress(self, lease_id: int, at_s: float) -> float:
        """Let a job make no progress after ``at_s`` (it checkpoints).

        Returns:
            when it will be complete all the same; inf if it will not.
        """
        slot = self._slot(lease_id)
        row = self._slots[slot]
        row["stop_s"] = min(float(row["stop_s"]), at_s)
        self._predict(slot)
        return float(row["finish_s"])

    def end(self, lease_id: int, now: float) -> float:
        """Stop running a lease; returns the steps that its job has done."""
        slot = self._slot(lease_id)
        done = self._done(slot, now)
        self._gone.append(slot)
        lease = self.executions.pop(lease_id).lease
        for worker in lease.workers:
            self._on_worker[worker].remove(lease_id)
            if not self._on_worker[worker]:
                self.busy[self._type_of[worker]] -= 1
        for other in self._on_worker[lease.workers[0]]:
            self._set_rate(other, now)
        return done

    def saved(self, lease_id: int, now: float) -> float:
        """Return the steps in the last periodic checkpoint of a job: what a loss now leaves."""
        return self._saved(self._slot(lease_id), now)

    def leases_on(self, worker: int) -> list[int]:
        """Return the ids of the leases that run on a worker."""
        return list(self._on_worker[worker])

    def _slot(self, lease_id: int) -> int:
        return bisect_left(self._ids, lease_id)

    def _slowed(self, rate: float, lease: Lease) -> float:
        """Return a rate on the lease's workers: a gang is as fast as its slowest."""
        if self._uniform:
            return rate
        return rate * float(self._speed[list(lease.workers)].min())

    def _done(self, slot: int, now: float) -> float:
        _, base, total, rate, since_s, stop_s, finish_s, *_ = self._slots[slot].item()
        if finish_s <= now:
            return float(total)
        done = base + rate * max(min(now, stop_s) - since_s, 0.0)
        return float(min(done, total))

    def _saved(self, slot: int, now: float) -> float:
        *_, since_s, stop_s, _, start_s, saved = self._slots[slot].item()
        if math.isinf(self._interval_s):
            return float(saved)
        written_s = start_s + (min(now, stop_s) - start_s) // self._interval_s * self._interval_s
        return self._done(slot, written_s) if written_s > since_s else float(saved)

    def _set_rate(self, lease_id: int, now: float) -> None:
        """Work out a lease's throughput anew: its company on the workers has changed."""
        slot = self._slot(lease_id)
        row = self._slots[slot]
        lease = self.executions[lease_id].lease
        others = [other for other in self._on_worker[lease.workers[0]] if other != lease_id]
        rate = self._rate(lease, self.executions[others[0]].lease if others else None)
        rate = self._slowed(rate, lease)
        if rate == row["rate"]:
            self._predict(slot)
            return
        row["saved"] = self._saved(slot, now)
        row["base"] = self._done(slot, now)
        row["since_s"] = max(float(row["since_s"]), now)
        row["rate"] = rate
        self._predict(slot)

    def _predict(self, slot: int) -> None:
        row = self._slots[slot]
        rate = float(row["rate"])
        left = float(row["total"]) - float(row["base"])
        done_s = float(row["since_s"]) + left / rate if rate > 0 else math.inf
        complete_s = self.executions[int(row["lease"])].overhead.complete_s
        row["finish_s"] = done_s + complete_s if done_s <= row["stop_s"] else math.inf

    def _rate(self, lease: Lease, partner: Lease | None) -> float:
        demand = self._demand(lease)
        if partner is None:
            return self._alone_rate(lease.profile, demand)
        swap = lease.profile > partner.profile
        key = (partner.profile, lease.profile) if swap else (lease.profile, partner.profile)
        index = self._pair_index.get((*key, demand))
        if index is None:
            # The planner offered no such pair: each gets half the time.
            return 0.5 * self._alone_rate(lease.profile, demand)
        return float(self._table.pair_throughput[index, 1 if swap else 0])

    def _demand(self, lease: Lease) -> tuple[int, ...]:
        counts = [0] * self._types
        for worker in lease.workers:
            counts[self._type_of[worker]] += 1
        return tuple(counts)

    def _alone_rate(self, profile: int, demand: tuple[int, ...]) -> float:
        key = (profile, demand)
        rate = self._alone.get(key)
        if rate is None:
            same = (self._table.demand[profile] == demand).all(axis=1)
            rates = self._table.throughput[profile][same]
            rate = self._alone[key] = float(rates.max()) if len(rates) else 0.0
        return rate
