"""Array types of the domain, and steps with arrays. An array's declaration states its shape."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]


def distinct_columns(keys: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Return the distinct columns in lexicographic order, as ``np.unique`` does, but faster.

    Args:
        keys: (C, N) values to compare, none of them NaN.

    Returns:
        (D,) the first place of each distinct column, and (N,) the number of each column among them.
    """
    order = np.lexsort(keys[::-1]) if len(keys) else np.arange(keys.shape[1])
    there = keys[:, order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (there[:, 1:] != there[:, :-1]).any(axis=0)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(begins) - 1
    return order[begins], number


def true_entries(mask: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the rows and columns of true entries, as ``np.nonzero`` does, but faster for few.

    Args:
        mask: (N, J), few of it true.
    """
    flat, width = np.flatnonzero(mask), max(mask.shape[1], 1)
    return flat // width, flat % width
