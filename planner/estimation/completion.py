"""Throughputs on worker types that a job type never ran on, from job types that did.

Log-throughputs form a matrix, job types x worker types, with holes. Its rows are taken as draws
from one normal distribution: a mean row (how fast each worker type is for the usual job) and a
covariance (which job types are large, and which worker types go together). The known entries of a
row then give the rest, with a deviation. With few rows the covariance stays near that of the ratio
rule (a factor of the job times a factor of the worker type). With many rows it finds the same as
low-rank completion: the few directions in which rows differ.

Sources: Paragon (Delimitrou and Kozyrakis, ASPLOS 2013) and Quasar (the same, ASPLOS 2014) complete
such a matrix by collaborative filtering, to classify an unknown program after short runs on few
machines; Gavel's estimator (Narayanan et al., OSDI 2020, section 6) matches a new job to the most
similar one that was profiled before. The normal model is the one of probabilistic principal
components (Tipping and Bishop, 1999), fitted by expectation-maximisation with a prior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.arrays import distinct_columns

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray

#: Prior deviation of a job type's size: its program decides how much work a step is.
_SIZE = 10.0
#: Prior deviation of log-throughput about the ratio rule.
_RATIO = 0.5
#: Prior deviation of a worker type's factor, before any job was seen on it.
_FACTOR = 0.7
#: Number of rows that the prior counts as; with fewer rows the ratio rule prevails. This and the
#: ratio's deviation were chosen on the bundled and Gavel's tables (``benchmarks/estimator.py``).
_PRIOR_ROWS = 6.0
#: Variance added to known entries, so that equal columns do not make the covariance singular.
_NUGGET = 0.03**2
_ITERATIONS = 25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpeedModel:
    """How log-throughputs of a job type are distributed over worker types.

    Attributes:
        mean: (K,) log steps/s of the usual job.
        covariance: (K, K).
        doubt: (K,) variance of ``mean`` itself, about its average.
    """

    mean: FloatArray
    covariance: FloatArray
    doubt: FloatArray

    def complete(
        self, known: BoolArray, logs: FloatArray, variance: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the likely values of a row.

        Args:
            known: (K,) known entries of the row; at least one.
            logs: (K,) log steps/s; read where known.
            variance: (K,) of ``logs``; read where known.

        Returns:
            (K,) log steps/s and (K,) their variance.
        """
        spread = self.covariance + np.diag(self.doubt)
        noise = np.diag(variance[known] + _NUGGET)
        gain = np.linalg.solve(spread[np.ix_(known, known)] + noise, spread[known]).T
        mean: FloatArray = self.mean + gain @ (logs[known] - self.mean[known])
        left = np.diag(spread) - np.einsum("ko,ok->k", gain, spread[known])
        return mean, np.maximum(left, _NUGGET)


def ratio_rule(logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fit job factor times worker-type factor by least squares in logs.

    Args:
        logs: (M, K) log steps/s, nan where unknown.

    Returns:
        (M,) factors of the job types and (K,) of the worker types, both as logs; the latter are 0
        on average, and 0 for a worker type without an entry.
    """
    there = ~np.isnan(logs)
    values = np.where(there, logs, 0.0)
    rows, columns = there.sum(axis=1), there.sum(axis=0)
    # Without job factors, K equations are left; the small ridge fixes entries without any link.
    weight = there / np.maximum(rows, 1)[:, None]
    left = np.diag(columns + 1e-6) - there.T @ weight
    right = values.sum(axis=0) - weight.T @ values.sum(axis=1)
    factor = np.linalg.solve(left, right)
    factor -= factor.mean()
    job: FloatArray = (values - there * factor).sum(axis=1) / np.maximum(rows, 1)
    return job, factor


def fit_speed_model(logs: FloatArray) -> SpeedModel:
    """Fit the model to the known entries.

    Args:
        logs: (M, K) log steps/s, nan where unknown; M may be 0, no row is all nan.
    """
    job, factor = ratio_rule(logs)
    size = len(factor)
    there = ~np.isnan(logs)
    prior = _SIZE**2 * np.ones((size, size)) + _RATIO**2 * np.eye(size)
    mean = factor + (float(job.mean()) if len(job) else 0.0)
    covariance = prior
    first, group = distinct_columns(there.T)
    parts = [(there[i], logs[group == g]) for g, i in enumerate(first.tolist())]
    for _ in range(_ITERATIONS if len(logs) > 1 else 0):
        mean, covariance = _step(parts, mean, covariance, prior)
    seen = there.sum(axis=0)
    doubt = _FACTOR**2 / (1.0 + seen * _FACTOR**2 / _RATIO**2)
    return SpeedModel(mean=mean, covariance=covariance, doubt=doubt)


def _step(
    parts: list[tuple[BoolArray, FloatArray]],
    mean: FloatArray,
    covariance: FloatArray,
    prior: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Do one step of expectation-maximisation; rows with the same holes are done together."""
    rows = 0
    total = np.zeros_like(mean)
    square = np.zeros_like(covariance)
    for known, logs in parts:
        inner = covariance[np.ix_(known, known)] + _NUGGET * np.eye(int(known.sum()))
        gain = np.linalg.solve(inner, covariance[known]).T
        off = (logs[:, known] - mean[known]) @ gain.T
        rows += len(logs)
        total += off.sum(axis=0)
        square += off.T @ off + len(logs) * (covariance - gain @ covariance[known])
    shift = total / rows
    spread = square - rows * np.outer(shift, shift)
    return mean + shift, (spread + _PRIOR_ROWS * prior) / (rows + _PRIOR_ROWS)
