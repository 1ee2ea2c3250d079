"""The job table: the columns that each round reads and writes, as arrays."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.domain.facts.reasons import BITS, WaitReason
from scheduler.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.jobs.job import Job

WAITING, RUNNING, HELD = 0, 1, 2

#: No configuration, no lease, no pair.
NONE = -1

_ROW = np.dtype(
    [
        ("number", np.int64),  # running number; strictly ascending over the rows
        ("profile", np.int64),  # row of the configuration table
        ("scale_factor", np.int64),
        ("entity", np.int64),  # index into the engine's entities
        ("status", np.int64),  # WAITING, RUNNING or HELD; ended jobs have no row
        ("lease", np.int64),  # id of the lease held, NONE unless RUNNING (or stopping while HELD)
        ("configuration", np.int64),  # single configuration run now, NONE if waiting or sharing
        ("pair", np.int64),  # entry of the pair table run now, NONE otherwise
        ("charged", np.int64),  # 1 while the time it runs counts against X, 0 for a bonus
        ("attempts", np.int64),  # leases granted so far, also in an earlier life
        ("failures", np.int64),  # own failures that count
        ("failed_held_s", np.float64),  # ``held_s`` at its last failure
        ("failed_steps", np.float64),  # ``steps_safe`` at its last failure
        ("losses", np.int64),  # leases in a row that were lost, or left at once, without progress
        ("deaths", np.int64),  # agents in a row that died soon after its starts
        ("weight", np.float64),
        ("total_steps", np.float64),
        ("steps_done", np.float64),  # last reported; never above total_steps
        ("steps_safe", np.float64),  # steps done when its last lease ended
        ("arrival_s", np.float64),
        ("deadline_s", np.float64),  # inf without one
        ("attained_worker_s", np.float64),  # worker-seconds received
        ("held_s", np.float64),  # seconds under leases that have ended
        ("workers_held", np.float64),  # workers held now, half of them in a pair
        ("restart_s", np.float64),
        ("retry_at_s", np.float64),  # may not run before; inf: not until another event
        ("rank", np.float64),  # order in which left-over workers are offered; inf without one
        ("x_only", np.int64),  # 1 if it gets no left-over workers, see ``Allocation.no_backfill``
        ("unpreemptible", np.int64),  # 1 if it runs to its end once it has begun
        ("saves", np.int64),  # 1 if the job surely saves its work before it must leave
        ("wasted", np.int64),  # leases in a row that were taken back and lost all work
        ("kept", np.int64),  # why its lease goes on in this round: ``Protection``
        ("min_run_s", np.float64),  # time for which a lease is not taken back
        ("lost_s", np.float64),  # seconds of the wasted leases
        ("group", np.int64),  # index into the engine's groups of jobs under the same quotas
        ("unfunded", np.int64),  # 1 while the budget of its project is spent
        ("ahead_s", np.float64),  # seconds beyond its turn for which it was kept and charged
        ("wait_reasons", np.int64),  # why it waits: bits of ``WaitReason``, see ``wait_reasons``
    ]
)
#: Rows as plain bytes: numpy copies named columns one by one, which takes 25 times as long.
_PLAIN = np.dtype((np.void, _ROW.itemsize))


class JobTable:
    """Active jobs in order of arrival, one row each, without holes.

    Columns are read and written by name: ``table["weight"]`` is a view of length N. ``x`` and
    ``credit_s`` are (N, J) views: the allocation in force, and the seconds by which each
    configuration lags behind the time that X has promised so far (negative: it is ahead).
    ``restarts_s`` is the (N, J) view of the seconds that a change to each configuration costs; the
    column ``restart_s`` is the cost if no configuration is given.
    """

    def __init__(self, width: int = 1) -> None:
        self._rows: NDArray[np.void] = np.zeros(16, dtype=_ROW)
        self._x: FloatArray = np.zeros((16, width))
        self._credit_s: FloatArray = np.zeros((16, width))
        self._restarts_s: FloatArray = np.zeros((16, width))
        self._size = 0
        #: views of the columns that were read since the table last grew or shrank.
        self._views: dict[str, NDArray[Any]] = {}
        #: the column ``number`` as a list: bisect is faster than numpy on single look-ups.
        self._numbers: list[int] = []
        #: job id -> number, for exactly the jobs that have a row.
        self.number_of: dict[str, int] = {}
        #: number -> job, for exactly the jobs that have a row.
        self.job_of: dict[int, Job] = {}
        #: (job id, number) of rows removed since the last ``copy`` or ``follow``; None if there is
        #: no copy.
        self._gone: list[tuple[str, int]] | None = None

    def __len__(self) -> int:
        return self._size

    def copy(self) -> JobTable:
        """Return a copy, which changes only through ``follow``."""
        twin = JobTable()
        twin.number_of, twin.job_of = self.number_of.copy(), self.job_of.copy()
        self._gone = []
        twin._numbers = self._numbers.copy()
        twin._take_columns(self)
        return twin

    def follow(self, table: JobTable) -> None:
        """Become equal to the table of which this is the newest copy.

        Job ids are hashed and counted one by one, so only new ones are copied; for ten thousand
        jobs that takes a third of the time of a copy.
        """
        gone, table._gone = table._gone, []
        newest = self._numbers[-1] if self._numbers else NONE
        for job_id, number in gone or ():
            if self.job_of.pop(number, None) is not None:
                del self.number_of[job_id]
        added = table._numbers[bisect_left(table._numbers, newest + 1) :]
        for number in added:
            job = self.job_of[number] = table.job_of[number]
            self.number_of[job.job_id] = number
        if gone:
            self._numbers = table._numbers.copy()
        else:
            self._numbers += added
        self._take_columns(table)

    def _take_columns(self, table: JobTable) -> None:
        """Copy arrays, in place if they fit: allocating memory costs more than filling it."""
        if (len(self._rows), self._x.shape) != (len(table._rows), table._x.shape):
            self._rows = np.empty_like(table._rows)
            self._x, self._credit_s = np.empty_like(table._x), np.empty_like(table._x)
            self._restarts_s = np.empty_like(table._x)
        size = self._size = table._size
        self._rows.view(_PLAIN)[:size] = table._rows.view(_PLAIN)[:size]
        self._x[:size], self._credit_s[:size] = table.x, table.credit_s
        self._restarts_s[:size] = table.restarts_s
        self._views = {}

    def __getitem__(self, column: str) -> NDArray[Any]:
        """Return the view of a column, of length N."""
        view = self._views.get(column)
        if view is None:
            view = self._views[column] = self._rows[column][: self._size]
        return view

    def record(self, row: int) -> Any:
        """Return one row; its columns are read and written by name, faster than by column."""
        return self._rows[row]

    def floats(self, column: str) -> FloatArray:
        """Return a copy of a column of floats."""
        return np.array(self[column], dtype=np.float64)

    def ints(self, column: str) -> IntArray:
        """Return a copy of a column of integers."""
        return np.array(self[column], dtype=np.int64)

    @property
    def x(self) -> FloatArray:
        """(N, J) the allocation in force for single configurations."""
        return self._x[: self._size]

    @property
    def credit_s(self) -> FloatArray:
        """(N, J) seconds promised by X and not yet received."""
        return self._credit_s[: self._size]

    @property
    def restarts_s(self) -> FloatArray:
        """(N, J) seconds of work that a change to each configuration costs."""
        return self._restarts_s[: self._size]

    def restarts_held(self, rows: IntArray) -> FloatArray:
        """Return (R,) the restart cost of each row in its configuration, or its usual one."""
        held = self["configuration"][rows]
        there: FloatArray = self.restarts_s[rows, np.maximum(held, 0)]
        return np.where(held == NONE, self["restart_s"][rows], there)

    def widen(self, width: int) -> None:
        """Make room for ``width`` configurations per job."""
        capacity, before = self._x.shape
        if width <= before:
            return
        size = self._size
        x, credit_s = (np.zeros((capacity, width)) for _ in range(2))
        x[:size, :before], credit_s[:size, :before] = self.x, self.credit_s
        restarts_s = np.empty((capacity, width))
        restarts_s[:size, :before] = self.restarts_s
        restarts_s[:size, before:] = self["restart_s"][:, None]
        self._x, self._credit_s, self._restarts_s = x, credit_s, restarts_s

    def move_columns(self, profile: int, columns: IntArray) -> None:
        """Move X, credits and running configurations of a profile to other columns.

        Args:
            profile: row of the configuration table.
            columns: (J,) new column of each configuration, NONE if it is gone; its credit is
                dropped, and a job that runs in it goes on as a bonus.
        """
        rows = np.flatnonzero(self["profile"] == profile)
        kept = np.flatnonzero(columns != NONE)
        for array in (self.x, self.credit_s):
            before = array[rows]
            after = np.zeros_like(before)
            after[:, columns[kept]] = before[:, kept]
            array[rows] = after
        held = self["configuration"][rows]
        now = np.append(columns, NONE)[held]
        self["configuration"][rows] = now
        self["charged"][rows[(held != NONE) & (now == NONE)]] = 0

    def add(self, job: Job, *, number: int, profile: int, entity: int, group: int = 0) -> None:
        """Append a waiting job; ``number`` must be larger than every number before it."""
        if self._size == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._x = np.concatenate([self._x, np.zeros_like(self._x)])
            self._credit_s = np.concatenate([self._credit_s, np.zeros_like(self._credit_s)])
            self._restarts_s = np.concatenate([self._restarts_s, np.zeros_like(self._restarts_s)])
        i = self._size
        self._size += 1
        self._views.clear()
        deadline_s = np.inf if job.deadline_s is None else job.deadline_s
        self._rows[i] = (
            *(number, profile, job.scale_factor, entity, WAITING, NONE, NONE, NONE, 0),
            *(job.attempts_before, 0, 0.0, 0.0, 0, 0, job.weight),
            *(job.total_steps, job.steps_before, job.steps_before),
            *(job.arrival_s, deadline_s, 0.0, 0.0, 0.0),
            *(job.usual_restart_s, -np.inf, np.inf, 0),
            *(not job.preemptible, job.checkpoints, 0, 0, job.min_run_time_s, 0.0, group, 0, 0.0),
            BITS[WaitReason.NO_ALLOCATION],
        )
        self._x[i] = 0.0
        self._credit_s[i] = 0.0
        self._restarts_s[i] = job.usual_restart_s
        self._numbers.append(number)
        self.number_of[job.job_id] = number
        self.job_of[number] = job

    def remove(self, row: int) -> Job:
        """Drop a row; later rows move up. Returns its job."""
        number = self._numbers.pop(row)
        last = self._size - 1
        for array in (self._rows.view(_PLAIN), self._x, self._credit_s, self._restarts_s):
            array[row:last] = array[row + 1 : self._size]
        self._size = last
        self._views.clear()
        job = self.job_of.pop(number)
        del self.number_of[job.job_id]
        if self._gone is not None:
            self._gone.append((job.job_id, number))
        return job

    def row_of(self, number: int) -> int:
        """Return the row of a job number, -1 if it has no row (any more)."""
        row = bisect_left(self._numbers, number)
        return row if row < self._size and self._numbers[row] == number else NONE

    def rows_of(self, numbers: IntArray) -> IntArray:
        """Return the rows of job numbers, -1 for a job without a row."""
        own = self["number"]
        rows = np.searchsorted(own, numbers)
        rows[rows == self._size] = 0
        found = own[rows] == numbers if self._size else np.zeros(len(numbers), dtype=bool)
        return np.where(found, rows, NONE)

    def runnable(self, at_s: float) -> BoolArray:
        """Return (N,) which jobs may hold a lease at that time."""
        result: BoolArray = (self["status"] != HELD) & (self["retry_at_s"] <= at_s)
        result &= self["unfunded"] == 0
        return result

    def steps_left(self) -> FloatArray:
        """Return (N,) steps that each job is expected to have left, > 0.

        A job that runs past its length is longer than estimated. The estimate is then that it runs
        as long again; otherwise it would seem nearly done until its end.
        """
        total, done = self["total_steps"], self["steps_done"]
        left = total - done
        result: FloatArray = np.where(left > 1e-9 * total, left, total)
        return result

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return a copy of every column by name, for a snapshot."""
        assert _ROW.names is not None
        return {name: self[name].copy() for name in _ROW.names}

    def restore(
        self,
        jobs: Iterable[Job],
        columns: Mapping[str, NDArray[Any]],
        x: FloatArray,
        credit_s: FloatArray,
        restarts_s: FloatArray | None = None,
    ) -> None:
        """Fill an empty table with stored rows; jobs in the order of their rows.

        A column that the storing release did not have begins with zeros; ``restarts_s`` then begins
        with the values of the column ``restart_s``.
        """
        assert _ROW.names is not None
        self._size = len(x)
        self._views.clear()
        self._rows = np.zeros(max(16, self._size), dtype=_ROW)
        for name in _ROW.names:
            self[name][:] = columns.get(name, 0)
        self._x = np.zeros((len(self._rows), x.shape[1]))
        self._credit_s = np.zeros_like(self._x)
        self.x[:] = x
        self.credit_s[:] = credit_s
        self._restarts_s = np.zeros_like(self._x)
        self.restarts_s[:] = self["restart_s"][:, None] if restarts_s is None else restarts_s
        self._numbers = self["number"].tolist()
        self.job_of = dict(zip(self._numbers, jobs, strict=True))
        self.number_of = {job.job_id: number for number, job in self.job_of.items()}

    def check_invariants(self) -> None:
        """Raise InvariantError if rows contradict each other."""
        numbers = self["number"]
        checks = {
            "numbers ascend strictly": bool(np.all(np.diff(numbers) > 0)),
            "numbers are listed": numbers.tolist() == self._numbers,
            "ids and rows correspond": sorted(self.number_of.values()) == numbers.tolist()
            and sorted(self.job_of) == numbers.tolist(),
            "a running job holds a lease": bool(
                np.all((self["status"] != RUNNING) | (self["lease"] >= 0))
            ),
            "a waiting job holds none": bool(
                np.all((self["status"] != WAITING) | (self["lease"] == NONE))
            ),
            "a job runs alone or in a pair": bool(
                np.all((self["configuration"] == NONE) | (self["pair"] == NONE))
            ),
            "steps done stay within the total": bool(
                np.all(self["steps_done"] <= self["total_steps"])
            ),
            "X is a time fraction": bool(
                np.all(self.x >= 0) and np.all(self.x.sum(axis=1) <= 1 + 1e-6)
            ),
        }
        broken = [name for name, holds in checks.items() if not holds]
        if broken:
            raise InvariantError(f"job table: {'; '.join(broken)}")
