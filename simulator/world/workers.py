"""Simulated workers: they run the jobs of their leases at the table's throughputs."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

import numpy as np

from scheduler.domain.configuration import CONSOLIDATED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.lease import Leases

_SLOT = np.dtype(
    [
        ("lease", np.int64),  # ascending
        ("job", np.int64),  # position of its job in the trace
        ("profile", np.int64),
        ("base", np.float64),  # steps done at since_s
        ("total", np.float64),
        ("rate", np.float64),  # steps/s
        ("since_s", np.float64),  # no progress before
        ("stop_s", np.float64),  # no progress after (checkpoint, own failure)
        ("finish_s", np.float64),  # when the job will be complete; inf if not by stop_s
        ("start_s", np.float64),  # when the lease began; the checkpoint interval starts here
        ("saved", np.float64),  # steps in the last periodic checkpoint before since_s
        ("until", np.float64),  # steps up to which the rate holds; the total if to the end
    ]
)


class LearningJobs(Protocol):
    """Jobs with rates that depend on their progress and on their concrete workers.

    Attributes:
        refresh_s: seconds between updates of the engine's rates.
    """

    refresh_s: float

    def rate(self, job: int, workers: tuple[int, ...], steps: float) -> tuple[float, float] | None:
        """Return steps/s of a job from a step on, and up to which step this rate holds.

        None for other jobs: their rate is in the table.

        Args:
            job: its position in the trace.
            workers: numbers of the workers that it holds alone.
            steps: steps that it has done.
        """
        ...

    def known(
        self, running: Sequence[tuple[int, tuple[int, ...]]], steps: FloatArray
    ) -> ConfigurationTable | None:
        """Return the present table of rates; None if it has not changed since the last call.

        Args:
            running: position and workers of each running job.
            steps: (N,) steps that each job of the trace has done.
        """
        ...


class SimulatedWorkers:
    """Running leases, and their progress, as arrays over slots in order of lease id.

    ``table`` has the true throughputs; the engine's own table does not matter here.
    """

    def __init__(
        self,
        cluster: Cluster,
        table: ConfigurationTable,
        overheads: NDArray[np.void],
        speed: FloatArray | None = None,
        *,
        checkpoint_interval_s: float = math.inf,
        pace: FloatArray | None = None,
        learning: LearningJobs | None = None,
    ) -> None:
        """Prepare idle workers.

        Args:
            cluster: the workers.
            table: the true throughputs.
            overheads: (N,) lease costs of each job of the trace, as ``columns`` makes them; the
                owner may change them.
            speed: (W,) relative to a healthy worker; all healthy by default.
            checkpoint_interval_s: how often running jobs checkpoint.
            pace: (N,) speed of each job relative to the table; None for the table's speed.
            learning: gives rates of jobs instead of the table; such jobs share no workers.
        """
        self._pace = pace
        self._learning = learning
        self._overheads = overheads
        self._interval_s = checkpoint_interval_s
        self._type_of: list[int] = cluster.worker_type_of.tolist()
        self._types = len(cluster.worker_types)
        self._table = table
        self._node_of: list[int] = cluster.node_of.tolist()
        #: whether it matters if a gang is on one node.
        self._local = any(
            way.locality == CONSOLIDATED
            for profile in table.profiles
            for way in profile.configurations
        )
        self._speed = speed if speed is not None else np.ones(cluster.workers)
        self._uniform = bool(np.all(self._speed == 1.0))
        self._slots: NDArray[np.void] = np.zeros(64, dtype=_SLOT)
        self._size = 0
        #: ids of the slots' leases, ascending; a list: bisect is faster than numpy on single
        #: look-ups.
        self._ids: list[int] = []
        #: slots of ended leases; they are removed when the next call needs the slots without gaps.
        self._gone: list[int] = []
        #: lease id -> its workers, for exactly the leases that run.
        self._workers_of: dict[int, tuple[int, ...]] = {}
        #: worker -> ids of the leases running on it.
        self._on_worker: list[list[int]] = [[] for _ in range(cluster.workers)]
        self._pair_index = {
            (int(a), int(b), tuple(demand)): p
            for p, ((a, b), demand) in enumerate(
                zip(table.pair_profiles, table.pair_demand.tolist(), strict=True)
            )
        }
        #: (profile, workers by type, whether they are on one node) -> steps/s alone.
        self._alone: dict[tuple[int, tuple[int, ...], bool], float] = {}
        #: (U, J + 1) the same by configuration, NaN until computed; the last column, for no
        #: configuration, stays NaN.
        self._alone_in: FloatArray = np.full(np.add(table.throughput.shape, (0, 1)), np.nan)
        #: workers held by type, each once however many share it.
        self._busy = [0] * self._types

    def __len__(self) -> int:
        return self._size - len(self._gone)

    def _close_ranks(self) -> None:
        """Move slots up over removed ones; once for all leases that ended at a time."""
        if not self._gone:
            return
        kept = np.ones(self._size, dtype=bool)
        kept[self._gone] = False
        self._size -= len(self._gone)
        words = self._slots.view(np.int64).reshape(len(self._slots), -1)  # rows move at once
        words[: self._size] = words.take(kept.nonzero()[0], axis=0)
        for slot in sorted(self._gone, reverse=True):
            del self._ids[slot]
        self._gone.clear()

    @property
    def busy(self) -> IntArray:
        """(K,) workers held by type, each once however many share it."""
        return np.array(self._busy, dtype=np.int64)

    @property
    def lease_ids(self) -> IntArray:
        """(n,) ids of the running leases, ascending."""
        self._close_ranks()
        return self._slots["lease"][: self._size].copy()

    @property
    def jobs(self) -> IntArray:
        """(n,) positions of the jobs of the running leases."""
        self._close_ranks()
        return self._slots["job"][: self._size].copy()

    def steps_done(self, now: float) -> FloatArray:
        """Return (n,) the steps done by the jobs of the running leases."""
        self._close_ranks()
        return self._steps(slice(self._size), now)

    def held(self) -> list[tuple[int, tuple[int, ...]]]:
        """Return the position and the workers of the job of each running lease."""
        jobs = self.jobs.tolist()
        return [(job, self._workers_of[i]) for job, i in zip(jobs, self._ids, strict=True)]

    def running(self, lease_ids: Iterable[int]) -> list[int]:
        """Return those of some leases that are running."""
        return [lease_id for lease_id in lease_ids if lease_id in self._workers_of]

    def jobs_of(self, lease_ids: Iterable[int]) -> IntArray:
        """Return (n,) positions of the jobs of running leases."""
        result: IntArray = self._slots["job"][[self._slot(lease_id) for lease_id in lease_ids]]
        return result

    @property
    def next_finish_s(self) -> float:
        """When the next job has done its last step; inf if no job will."""
        self._close_ranks()
        return float(self._slots["finish_s"][: self._size].min()) if self._size else math.inf

    @property
    def next_turn_s(self) -> float:
        """When the next job reaches a step at which its rate changes; inf if no job will."""
        if self._learning is None:
            return math.inf
        self._close_ranks()
        return float(self._turns_s().min(initial=math.inf))

    def _turns_s(self) -> FloatArray:
        """Return (n,) when each job reaches such a step; inf if it will not."""
        slots = self._slots[: self._size]
        left = np.where(slots["until"] < slots["total"], slots["until"] - slots["base"], math.inf)
        rate = slots["rate"]
        at_s = slots["since_s"] + np.divide(
            left, rate, out=np.full(len(slots), math.inf), where=rate > 0
        )
        return np.where(at_s < slots["stop_s"], at_s, math.inf)

    def ends(self) -> list[tuple[int, float]]:
        """Return the position of each running lease's job, and when it will be complete."""
        self._close_ranks()
        slots = self._slots[: self._size]
        return list(zip(slots["job"].tolist(), slots["finish_s"].tolist(), strict=True))

    def turn(self, now: float, *, everyone: bool = False) -> None:
        """Give their next rate to jobs that have reached such a step.

        Args:
            now: the time.
            everyone: whether to compute the rates of all other jobs again, too.
        """
        if self._learning is None:
            return
        self._close_ranks()
        slots = self._slots[: self._size]
        due, done = self._turns_s() <= now, self._steps(slice(self._size), now)
        some = due
        if everyone:
            alone = [len(self._on_worker[self._workers_of[i][0]]) == 1 for i in self._ids]
            some = due | (np.array(alone) & (done < slots["total"]) & (now < slots["stop_s"]))
        for slot in np.flatnonzero(some).tolist():
            self._turn(slot, float(slots["until"][slot] if due[slot] else done[slot]), now)

    def _turn(self, slot: int, step: float, now: float) -> None:
        """Give a job at a step its rate from there on."""
        row = self._slots[slot]
        workers = self._workers_of[int(row["lease"])]
        rates, until = self._learned_rates(
            [int(row["job"])], [int(row["profile"])], [workers], [step]
        )
        row["saved"] = self._saved(slot, now)
        row["base"], row["since_s"] = step, max(float(row["since_s"]), now)
        row["rate"] = rates[0]
        if not self._uniform:
            row["rate"] *= float(self._speed[list(workers)].min())
        row["until"] = min(until[0], float(row["total"]))
        self._predict(slot)

    def finished(self, now: float) -> list[int]:
        """Return the leases whose jobs have done all steps by now."""
        self._close_ranks()
        slots = self._slots[: self._size]
        ids: list[int] = slots["lease"][slots["finish_s"] <= now].tolist()
        return ids

    def start(
        self,
        leases: Leases,
        *,
        jobs: IntArray,
        now: float,
        base: FloatArray,
        total: FloatArray,
        fails_s: FloatArray,
    ) -> list[int]:
        """Begin to run the jobs of n leases.

        Args:
            leases: the leases.
            jobs: (n,) positions of their jobs.
            now: the time.
            base: (n,) the jobs' steps done so far.
            total: (n,) their steps in all.
            fails_s: (n,) when the jobs will fail on their own; inf for never.

        Returns:
            The leases that share workers from now on.
        """
        n = len(leases)
        while self._size + n > len(self._slots):
            self._slots = np.concatenate([self._slots, np.zeros_like(self._slots)])
        until = total
        if self._learning is None:
            rate = self._alone_rates(leases)
        else:
            rate, until = self._learned_rates(
                jobs.tolist(), leases.profile.tolist(), leases.workers, base.tolist()
            )
            until = np.minimum(until, total)
        if not self._uniform:
            rate = rate * [self._speed[list(workers)].min() for workers in leases.workers]
        if self._pace is not None:
            rate = rate * self._pace[jobs]
        cost = self._overheads
        since_s = now + cost["launch_s"][jobs] + cost["restore_s"][jobs] * (leases.attempt > 1)
        left_s = np.divide(total - base, rate, out=np.full(n, math.inf), where=rate > 0)
        done_s = since_s + left_s
        finish_s = done_s + cost["complete_s"][jobs]
        finish_s[(done_s > fails_s) | (until < total)] = math.inf
        rows = self._slots[self._size : self._size + n]
        rows["lease"] = np.arange(leases.first_id, leases.first_id + n)
        rows["job"], rows["profile"] = jobs, leases.profile
        rows["base"], rows["saved"], rows["total"] = base, base, total
        rows["rate"], rows["since_s"], rows["stop_s"] = rate, since_s, fails_s
        rows["finish_s"], rows["start_s"], rows["until"] = finish_s, now, until
        self._size += n
        self._ids += leases.ids
        sharing = self._take(leases)
        for lease_id in sharing:
            self._set_rate(lease_id, now)
        return sharing

    def _take(self, leases: Leases) -> list[int]:
        """Record the workers of leases; return the leases that share workers from now on."""
        sharing: list[int] = []
        for lease_id, workers in zip(leases.ids, leases.workers, strict=True):
            self._workers_of[lease_id] = workers
            for worker in workers:
                company = self._on_worker[worker]
                if not company:
                    self._busy[self._type_of[worker]] += 1
                company.append(lease_id)
            if len(self._on_worker[workers[0]]) > 1:
                sharing += self._on_worker[workers[0]]
        return sharing

    def stop_progress(self, lease_id: int, at_s: float) -> float:
        """Let a job make no progress after ``at_s`` (it checkpoints).

        Returns:
            When it will be complete all the same; inf if it will not.
        """
        slot = self._slot(lease_id)
        row = self._slots[slot]
        row["stop_s"] = min(float(row["stop_s"]), at_s)
        self._predict(slot)
        return float(row["finish_s"])

    def end(self, lease_ids: Sequence[int], now: float, *, lost: bool = False) -> FloatArray:
        """Stop running leases, in this order.

        Returns:
            (n,) the steps that their jobs have done; of those that are lost, the steps in their
            last periodic checkpoint.
        """
        held = [self._workers_of[lease_id] for lease_id in lease_ids]
        if len(lease_ids) > 1 and any(len(self._on_worker[workers[0]]) > 1 for workers in held):
            # A job left behind by another one is faster before it ends itself.
            each = [self.end([lease_id], now, lost=lost) for lease_id in lease_ids]
            return np.concatenate(each)
        slots = [self._slot(lease_id) for lease_id in lease_ids]
        if lost:
            done = np.array([self._saved(slot, now) for slot in slots])
        else:
            done = self._steps(slots, now)
        self._gone += slots
        for lease_id, workers in zip(lease_ids, held, strict=True):
            del self._workers_of[lease_id]
            for worker in workers:
                company = self._on_worker[worker]
                company.remove(lease_id)
                if not company:
                    self._busy[self._type_of[worker]] -= 1
            for other in self._on_worker[workers[0]]:
                self._set_rate(other, now)
        return done

    def _slot(self, lease_id: int) -> int:
        return bisect_left(self._ids, lease_id)

    def _done(self, slot: int, now: float) -> float:
        _, _, _, base, total, rate, since_s, stop_s, finish_s, *_ = self._slots[slot].item()
        if finish_s <= now:
            return float(total)
        done = base + rate * max(min(now, stop_s) - since_s, 0.0)
        return float(min(done, total))

    def _saved(self, slot: int, now: float) -> float:
        *_, since_s, stop_s, _, start_s, saved, _ = self._slots[slot].item()
        if math.isinf(self._interval_s):
            return float(saved)
        written_s = start_s + (min(now, stop_s) - start_s) // self._interval_s * self._interval_s
        return self._done(slot, written_s) if written_s > since_s else float(saved)

    def _steps(self, slots: slice | list[int], now: float) -> FloatArray:
        """Return (n,) the steps that the jobs of slots have done."""
        names = ("base", "total", "rate", "since_s", "stop_s", "finish_s")
        base, total, rate, since_s, stop_s, finish_s = (self._slots[name][slots] for name in names)
        done = base + rate * np.maximum(np.minimum(now, stop_s) - since_s, 0.0)
        return np.where(finish_s <= now, total, np.minimum(done, total))

    def _set_rate(self, lease_id: int, now: float) -> None:
        """Compute a lease's throughput again after a change of sharing."""
        slot = self._slot(lease_id)
        row, workers = self._slots[slot], self._workers_of[lease_id]
        others = [other for other in self._on_worker[workers[0]] if other != lease_id]
        partner = int(self._slots["profile"][self._slot(others[0])]) if others else None
        rate = self._rate(int(row["profile"]), partner, workers)
        if not self._uniform:  # a gang is as fast as its slowest worker
            rate *= float(self._speed[list(workers)].min())
        if self._pace is not None:
            rate *= float(self._pace[row["job"]])
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
        complete_s = float(self._overheads["complete_s"][row["job"]])
        last = row["until"] >= row["total"]
        row["finish_s"] = done_s + complete_s if last and done_s <= row["stop_s"] else math.inf

    def _rate(self, profile: int, partner: int | None, workers: tuple[int, ...]) -> float:
        """Return steps/s on workers alone, or beside a job of the partner's profile."""
        if partner is None:
            return self._alone_rate(profile, workers)
        demand = self._demand(workers)
        swap = profile > partner
        key = (partner, profile) if swap else (profile, partner)
        index = self._pair_index.get((*key, demand))
        if index is None:
            # The planner offered no such pair: each gets half the time.
            return 0.5 * self._alone_rate(profile, workers)
        return float(self._table.pair_throughput[index, 1 if swap else 0])

    def _learned_rates(
        self,
        jobs: Sequence[int],
        profiles: Sequence[int],
        workers: Sequence[tuple[int, ...]],
        steps: Sequence[float],
    ) -> tuple[FloatArray, FloatArray]:
        """Return (n,) steps/s of jobs from a step on, and (n,) the steps up to which they hold."""
        assert self._learning is not None
        found = [
            self._learning.rate(job, mine, step) or (self._alone_rate(profile, mine), math.inf)
            for job, profile, mine, step in zip(jobs, profiles, workers, steps, strict=True)
        ]
        return np.array([rate for rate, _ in found]), np.array([until for _, until in found])

    def _demand(self, workers: tuple[int, ...]) -> tuple[int, ...]:
        counts = [0] * self._types
        for worker in workers:
            counts[self._type_of[worker]] += 1
        return tuple(counts)

    def _alone_rates(self, leases: Leases) -> FloatArray:
        """Return (n,) steps/s of leases that do not share their workers."""
        if self._local:  # the workers decide, not the configuration's locality
            each = zip(leases.profile.tolist(), leases.workers, strict=True)
            return np.array([self._alone_rate(profile, workers) for profile, workers in each])
        rates: FloatArray = self._alone_in[leases.profile, leases.configuration]
        for i in np.flatnonzero(np.isnan(rates)).tolist():
            profile, configuration = int(leases.profile[i]), int(leases.configuration[i])
            rates[i] = self._alone_rate(profile, leases.workers[i])
            if configuration >= 0:
                self._alone_in[profile, configuration] = rates[i]
        return rates

    def _alone_rate(self, profile: int, workers: tuple[int, ...]) -> float:
        demand = self._demand(workers)
        near = not self._local or len({self._node_of[worker] for worker in workers}) == 1
        key = (profile, demand, near)
        rate = self._alone.get(key)
        if rate is None:
            ways = self._table.profiles[profile].configurations
            rates = [
                way.throughput
                for way in ways
                if way.demand == demand and (near or way.locality != CONSOLIDATED)
            ]
            rate = self._alone[key] = max(rates, default=0.0)
        return rate
