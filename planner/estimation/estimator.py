"""The estimator: throughputs that were measured, declared, or are inferred from others."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from planner.estimation.fitting import MOST_COLUMNS, fit_known
from planner.estimation.measured import MOST_STEPS_PER_S, MeasuredFigure
from scheduler.domain.throughputs.scaling import may_run_at, steps_per_s_at
from scheduler.domain.throughputs.ways import Estimate, Source
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from planner.estimation.fitting import Fitted, Row
    from scheduler.domain.throughputs.throughput import ProfileKey

_VERSION: Final = 1
#: Most rows that are stored; one row is a job type at a scale factor.
MOST_REMEMBERED: Final = 4096
#: Bound on the logarithm of inferred steps/s: a line through absurd figures has no limit.
MOST_LOG = math.log(1e12)
#: Relative deviation that the rule for other scale factors adds per doubling.
_PER_DOUBLING = 0.2
#: Relative deviation if nothing is known: a factor of e.
_UNKNOWN = 1.0


class Estimator:
    """Learns throughputs. Deterministic: no clock, no randomness; the order of calls decides.

    Own figures come first. A declared figure is a prior with a relative deviation of 0.2; every
    stretch of running is a measurement with one of about 0.05, more if it is short; the two are
    weighted by their precision, in logarithms. Measurements fade, so that the last ten long
    stretches decide. Two surprises in a row of the same sign (beyond three deviations) remove
    nearly all earlier ones, since the program has changed. A declared figure that measurements
    contradict loses weight. The source is "measured" once measurements carry at least half.

    A cell without figures of its own is 0 if a declared 0 implies it (``may_run_at``). Otherwise it
    is estimated: from the job type's other scale factors on the same worker type
    (``scheduler.domain.throughputs.scaling``) and from its other worker types by completion
    (``planner.estimation.completion``), both at once. If nothing is known of a job type, the usual
    proportions among worker types count: one step/s on one worker, on average over the types.

    The time of a fit is bounded (``planner.estimation.fitting``), and so is the memory: see
    ``forget_oldest``.
    """

    def __init__(self) -> None:
        #: (job type, scale factor) -> worker type -> cell; in the order of first mention.
        self._rows: dict[ProfileKey, dict[str, MeasuredFigure]] = {}
        #: job type -> its scale factors in ``_rows``.
        self._scales: dict[str, list[int]] = {}
        #: worker types mentioned -> their column, in the order of first mention.
        self._columns: dict[str, int] = {}
        #: worker types of the cluster, as last set by ``serve``.
        self._served: tuple[str, ...] = ()
        #: job types with figures that an operator declared.
        self._kept: set[str] = set()
        #: None if it must be fitted again.
        self._model: Fitted | None = None
        #: rows completed with that model.
        self._completed: dict[ProfileKey, Row] = {}
        #: number of changes to the figures.
        self._learned = 0
        #: (job type, scale factor, worker type) -> value of ``_learned`` at the figure's last
        #: change.
        self._learned_at: dict[tuple[str, int, str], int] = {}

    # -- learning ---------------------------------------------------------------------------------

    def serve(self, worker_types: Sequence[str]) -> None:
        """Set the worker types of the cluster: they come first if a fit cannot take all."""
        if self._served != tuple(worker_types):
            self._served = tuple(worker_types)
            if len(self._columns) > MOST_COLUMNS:
                self._forget_model()

    def declare(
        self,
        job_type: str,
        scale_factor: int,
        worker_type: str,
        steps_per_s: float,
        *,
        keep: bool = False,
    ) -> bool:
        """Store a declared figure; it replaces the one declared before.

        Args:
            job_type: key.
            scale_factor: workers.
            worker_type: hardware class.
            steps_per_s: of the whole job; 0 if it does not run.
            keep: whether ``forget_oldest`` must not forget the job type.

        Returns:
            Whether the figure has changed.

        Raises:
            InputError: the figure or the scale factor is out of range.
        """
        _check_scale(job_type, scale_factor)
        if not 0.0 <= steps_per_s <= MOST_STEPS_PER_S:
            raise InputError(
                f"throughput of '{job_type}' on {worker_type} is {steps_per_s!r}; "
                "give a number of steps/s >= 0"
            )
        steps_per_s = 0.0 if steps_per_s < 1.0 / MOST_STEPS_PER_S else float(steps_per_s)
        cell = self._cell(job_type, scale_factor, worker_type)
        if keep:
            self._kept.add(job_type)
        if cell.declared == steps_per_s:
            return False
        cell.declared = steps_per_s
        self._forget_model()
        self._learned_at[job_type, scale_factor, worker_type] = self._learned
        return True

    def observe(
        self, job_type: str, scale_factor: int, worker_type: str, steps: float, seconds: float
    ) -> None:
        """Add a stretch of running alone, without the launch. Constant time.

        Args:
            job_type: key.
            scale_factor: workers held.
            worker_type: of these workers.
            steps: steps done in the stretch; less than one is kept for the next stretch.
            seconds: length of the stretch.

        Raises:
            InputError: steps, seconds or the scale factor are out of range.
        """
        _check_scale(job_type, scale_factor)
        if not (0.0 <= steps < math.inf and 0.0 < seconds < math.inf):
            raise InputError(
                f"'{job_type}' on {worker_type} was seen to do {steps!r} steps in {seconds!r} s; "
                "give steps >= 0 and seconds > 0"
            )
        if self._cell(job_type, scale_factor, worker_type).take(steps, seconds):
            self._forget_model()
            self._learned_at[job_type, scale_factor, worker_type] = self._learned

    def forget(self, *job_types: str) -> int:
        """Drop all figures of job types, declared and measured; return how many there were."""
        gone = [(name, scale) for name in job_types for scale in self._scales.pop(name, ())]
        figures = sum(len(self._rows.pop(key)) for key in gone)
        if gone:
            left = {name for row in self._rows.values() for name in row}
            self._columns = {
                name: k for k, name in enumerate(n for n in self._columns if n in left)
            }
            self._learned_at = {c: at for c, at in self._learned_at.items() if c[0] in self._scales}
            self._kept.intersection_update(self._scales)
            self._forget_model()
        return figures

    def forget_measured(self, job_type: str, scale_factor: int, worker_type: str) -> None:
        """Drop the measured figure of a job type on some workers; a declared one stays."""
        row = self._rows.get((job_type, scale_factor), {})
        cell = row.get(worker_type)
        if cell is not None and (cell.weight or cell.open_s):
            row[worker_type] = MeasuredFigure(declared=cell.declared)
            self._forget_model()
            self._learned_at[job_type, scale_factor, worker_type] = self._learned

    def forget_oldest(self, active: Iterable[str]) -> None:
        """Drop job types until at most ``MOST_REMEMBERED`` rows are left.

        Job types without measurements go first, then those that were mentioned first. Figures that
        an operator declared stay.

        Args:
            active: job types that stay; read only if there are too many rows.
        """
        beyond = len(self._rows) - MOST_REMEMBERED
        if beyond <= 0:
            return
        stay = self._kept.union(active)
        able = [job_type for job_type in self._scales if job_type not in stay]
        gone = []
        for job_type in sorted(able, key=self._is_measured):
            if beyond <= 0:
                break
            gone.append(job_type)
            beyond -= len(self._scales[job_type])
        self.forget(*gone)

    def _is_measured(self, job_type: str) -> bool:
        rows = (self._rows[job_type, scale] for scale in self._scales[job_type])
        return any(cell.weight for row in rows for cell in row.values())

    # -- answers ----------------------------------------------------------------------------------

    def estimate(self, job_type: str, scale_factor: int, worker_type: str) -> Estimate:
        """Return the best figure; there always is one."""
        own = self.own(job_type, scale_factor, worker_type)
        if own is not None:
            return own
        if not self._may_run(job_type, scale_factor, worker_type):
            return Estimate(steps_per_s=0.0, relative_deviation=0.0, source=Source.ESTIMATED)
        log, variance, source = self._inferred(job_type, scale_factor, worker_type)
        return Estimate(
            steps_per_s=math.exp(min(max(log, -MOST_LOG), MOST_LOG)),
            relative_deviation=math.sqrt(variance),
            source=source,
        )

    def own(self, job_type: str, scale_factor: int, worker_type: str) -> Estimate | None:
        """Return the declared or measured figure; None if it would have to be inferred."""
        cell = self._rows.get((job_type, scale_factor), {}).get(worker_type)
        if cell is not None and cell.known:
            return _own(cell)
        if cell is not None and cell.never:
            return Estimate(
                steps_per_s=0.0, relative_deviation=0.0, source=Source.DECLARED, declared=0.0
            )
        return None

    def _may_run(self, job_type: str, scale_factor: int, worker_type: str) -> bool:
        """Return whether figures at other scale factors allow that a job type runs."""
        cells = (
            (scale, self._rows[job_type, scale].get(worker_type))
            for scale in self._scales.get(job_type, ())
        )
        told = [(scale, not c.never) for scale, c in cells if c and (c.known or c.never)]
        return may_run_at(told, scale_factor)

    def declared(self, job_type: str, scale_factor: int, worker_type: str) -> float | None:
        """Return the declared figure; None without one."""
        cell = self._rows.get((job_type, scale_factor), {}).get(worker_type)
        return None if cell is None else cell.declared

    def revision(self, job_type: str, scale_factor: int, worker_type: str) -> tuple[bool, int]:
        """Return a value that differs whenever ``estimate`` may.

        With an own figure it changes with that figure; an inference changes with all figures.
        """
        cell = self._rows.get((job_type, scale_factor), {}).get(worker_type)
        if cell is not None and (cell.known or cell.never):
            return True, self._learned_at.get((job_type, scale_factor, worker_type), 0)
        return False, self._learned

    def known(self) -> Iterator[tuple[str, int, str, Estimate]]:
        """Yield job type, scale factor, worker type and estimate of all figures, sorted."""
        for (job_type, scale_factor), row in sorted(self._rows.items()):
            for worker_type in sorted(row):
                if row[worker_type].known or row[worker_type].never:
                    estimate = self.estimate(job_type, scale_factor, worker_type)
                    yield job_type, scale_factor, worker_type, estimate

    def counts(self, job_type: str) -> tuple[int, ...]:
        """Return the worker counts at which a job type was ever mentioned."""
        return tuple(self._scales.get(job_type, ()))

    @property
    def worker_types(self) -> tuple[str, ...]:
        """All worker types that were ever mentioned, sorted."""
        return tuple(sorted(self._columns))

    @property
    def job_types(self) -> tuple[str, ...]:
        """All job types that were ever mentioned, sorted."""
        return tuple(sorted(self._scales))

    def _inferred(
        self, job_type: str, scale_factor: int, worker_type: str
    ) -> tuple[float, float, Source]:
        row = self._completed_row(job_type, scale_factor)
        if row is not None:
            if worker_type not in row:  # no job was ever seen there: as fast as the others
                logs, variances = zip(*row.values(), strict=True)
                mean = sum(logs) / len(logs)
                return mean, max(variances) + _UNKNOWN**2, Source.ESTIMATED
            return *row[worker_type], Source.ESTIMATED
        log = math.log(steps_per_s_at([(1, 1.0)], scale_factor))
        if worker_type in self._columns and self._knows_any():
            fitted = self._fitted()
            column, mean_row = fitted.columns.get(worker_type), fitted.model.mean
            if column is not None:
                log += float(mean_row[column] - mean_row.mean())
        return log, _UNKNOWN**2, Source.ASSUMED

    def _completed_row(self, job_type: str, scale_factor: int) -> Row | None:
        """Return all worker types of a row; None if nothing is known of the job type."""
        key = job_type, scale_factor
        if key not in self._completed:
            given = self._given(job_type, scale_factor)
            if not given:
                return None
            self._completed[key] = self._fitted().complete(given)
        return self._completed[key]

    def _given(self, job_type: str, scale_factor: int) -> Row:
        """Return the known figures of a row, its own or from other scale factors."""
        curves: dict[str, list[tuple[int, float]]] = {}
        given: Row = {}
        for scale in sorted(self._scales.get(job_type, ())):
            for worker_type, cell in self._rows[job_type, scale].items():
                if not cell.known:
                    continue
                log, variance, _ = cell.belief()
                curves.setdefault(worker_type, []).append((scale, math.exp(log)))
                variance += (_PER_DOUBLING * math.log2(scale / scale_factor)) ** 2
                if worker_type not in given or variance < given[worker_type][1]:
                    given[worker_type] = log, variance
        return {
            worker_type: (math.log(steps_per_s_at(curves[worker_type], scale_factor)), variance)
            for worker_type, (_, variance) in given.items()
        }

    def _fitted(self) -> Fitted:
        if self._model is None:
            self._model = fit_known(self._rows.values(), list(self._columns), self._served)
        return self._model

    def _knows_any(self) -> bool:
        return any(cell.known for row in self._rows.values() for cell in row.values())

    # -- state ------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return all learned figures as plain JSON values."""
        kept = {"kept": sorted(self._kept)} if self._kept else {}
        return {
            "version": _VERSION,
            **kept,
            "worker_types": list(self._columns),
            "cells": [
                [job_type, scale_factor, worker_type, *cell.dump()]
                for (job_type, scale_factor), row in self._rows.items()
                for worker_type, cell in row.items()
            ],
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> Estimator:
        """Return the estimator that ``dump`` stored.

        Raises:
            InputError: the data are damaged, or of a newer release.
        """
        if data.get("version") != _VERSION:
            raise InputError(
                f"stored throughputs have version {data.get('version')!r}; this release reads "
                f"{_VERSION}; run the release that wrote them"
            )
        estimator = cls()
        names = [field.name for field in fields(MeasuredFigure)]
        try:
            for worker_type in data["worker_types"]:
                estimator._columns[str(worker_type)] = len(estimator._columns)
            for job_type, scale_factor, worker_type, *values in data["cells"]:
                cell = MeasuredFigure(**dict(zip(names, values, strict=True)))
                estimator._row(job_type, scale_factor)[worker_type] = cell
            estimator._kept.update(data.get("kept", ()))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"stored throughputs are damaged: {error!r}") from error
        return estimator

    def _cell(self, job_type: str, scale_factor: int, worker_type: str) -> MeasuredFigure:
        if worker_type not in self._columns:
            self._columns[worker_type] = len(self._columns)
            self._forget_model()
        return self._row(job_type, scale_factor).setdefault(worker_type, MeasuredFigure())

    def _row(self, job_type: str, scale_factor: int) -> dict[str, MeasuredFigure]:
        row = self._rows.get((job_type, scale_factor))
        if row is None:
            row = self._rows[job_type, scale_factor] = {}
            self._scales.setdefault(job_type, []).append(scale_factor)
        return row

    def _forget_model(self) -> None:
        self._learned += 1
        self._model = None
        self._completed.clear()


def _own(cell: MeasuredFigure) -> Estimate:
    log, variance, measured = cell.belief()
    return Estimate(
        steps_per_s=math.exp(log),
        relative_deviation=math.sqrt(variance),
        source=Source.MEASURED if measured else Source.DECLARED,
        samples=cell.samples,
        declared=cell.declared,
        measured=math.exp(cell.log) if cell.weight else None,
    )


def _check_scale(job_type: str, scale_factor: int) -> None:
    if scale_factor < 1:
        raise InputError(f"scale factor of '{job_type}' is {scale_factor!r}; it must be >= 1")
