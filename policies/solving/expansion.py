"""From class pairs to job pairs: spread a total evenly over the jobs of two classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray, IntArray


class PairedClasses(Protocol):
    """The part of ``ClassProblem`` that ``expand_pairs`` reads."""

    @property
    def class_of(self) -> IntArray:
        """(N,) class of each job."""

    @property
    def count(self) -> FloatArray:
        """(M,) jobs in each class."""

    @property
    def representative(self) -> IntArray:
        """(M,) position of the first job of each class."""

    @property
    def pair_classes(self) -> IntArray:
        """(P, 2) classes of each pair."""

    @property
    def pair_index(self) -> IntArray:
        """(P,) its row of the pair table."""

    @property
    def pair_throughput(self) -> FloatArray:
        """(P, 2) steps/s of either member."""


def expand_pairs(
    classes: PairedClasses, pair_x: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Spread every class pair's total over concrete job pairs.

    Every job of a class gets the same from a class pair, over at most count_a + count_b - 1 job
    pairs (count_a, for a class with itself).

    Args:
        classes: the classes and their pairs.
        pair_x: (P,) totals in units of one job pair's time.

    Returns:
        (Q, 2) job positions, (Q,) rows of the pair table, (Q,) fractions.
    """
    used = np.flatnonzero(pair_x > 0) if len(pair_x) else np.empty(0, dtype=np.int64)
    if not len(used):
        return np.empty((0, 2), dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    members = np.argsort(classes.class_of, kind="stable")
    ends = np.cumsum(classes.count.astype(np.int64))
    pairs = classes.pair_classes[used]
    plain = (classes.count[pairs] == 1).all(axis=1)
    chunks = [(classes.representative[pairs[plain]], used[plain], pair_x[used[plain]])]
    for p in used[~plain]:
        a, b = classes.pair_classes[p]
        first = members[ends[a] - int(classes.count[a]) : ends[a]]
        second = members[ends[b] - int(classes.count[b]) : ends[b]]
        if a == b:
            lopsided = classes.pair_throughput[p, 0] != classes.pair_throughput[p, 1]
            jobs, share = _among(first, both_ways=bool(lopsided))
        else:
            jobs, share = _between(first, second)
        chunks.append((jobs, np.full(len(jobs), p), share * pair_x[p]))
    jobs = np.concatenate([c[0] for c in chunks])
    which = np.concatenate([c[1] for c in chunks])
    return jobs, classes.pair_index[which], np.concatenate([c[2] for c in chunks])


def _between(first: IntArray, second: IntArray) -> tuple[IntArray, FloatArray]:
    """Pair the jobs of two classes by the north-west corner rule; shares sum to 1."""
    a, b = len(first), len(second)
    cuts = np.union1d(np.arange(a + 1) * b, np.arange(b + 1) * a)
    start = cuts[:-1]
    jobs = np.stack((first[start // b], second[start // a]), axis=1)
    return jobs, np.diff(cuts) / (a * b)


def _among(jobs: IntArray, *, both_ways: bool) -> tuple[IntArray, FloatArray]:
    """Pair the jobs of one class: neighbours; an odd rest of three in a triangle.

    Args:
        jobs: (n,) n >= 2.
        both_ways: each pair half the time in either order, since the order matters.
    """
    n = len(jobs)
    even = n if n % 2 == 0 else n - 3
    pairs = jobs[:even].reshape(-1, 2)
    share = np.full(len(pairs), 2.0 / n)
    if n % 2:
        i, j, k = jobs[even:]
        pairs = np.concatenate((pairs, np.array([[i, j], [j, k], [i, k]])))
        share = np.concatenate((share, np.full(3, 1.0 / n)))
    if both_ways:
        return np.concatenate((pairs, pairs[:, ::-1])), np.concatenate((share, share)) / 2
    return pairs, share
