"""Distinct columns, and the entries of a mask."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.domain.arrays import distinct_columns, true_entries


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("columns", [0, 1, 200])
@pytest.mark.parametrize("kind", [float, int, bool])
def test_distinct_columns_are_those_of_numpy(rows: int, columns: int, kind: type) -> None:
    rng = np.random.default_rng(rows + columns)
    keys = rng.integers(-1, 3, (rows, columns)).astype(kind)
    unique, first, index = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    found_first, found_index = distinct_columns(keys)
    assert (keys[:, found_first] == unique).all()
    assert found_first.tolist() == first.tolist()
    assert found_index.tolist() == index.ravel().tolist()


def test_columns_without_values_are_all_alike() -> None:
    first, index = distinct_columns(np.zeros((0, 3)))
    assert first.tolist() == [0]
    assert index.tolist() == [0, 0, 0]


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (40, 7)])
def test_true_entries_are_those_of_numpy(shape: tuple[int, int]) -> None:
    mask = np.random.default_rng(2).random(shape) < 0.1
    for one in (mask, np.asfortranarray(mask)):
        found = true_entries(one)
        assert [array.tolist() for array in found] == [array.tolist() for array in np.nonzero(one)]
