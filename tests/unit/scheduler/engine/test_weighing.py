"""The value of a round to candidates, by hand; the workers that jobs can have, by a dictionary."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.rounds.value_kernels import entries_of_jobs, worth_of_round
from scheduler.engine.tables.jobs import NONE


def rated(*, deficit_s, left_s, held=False, always=False, second=NONE, workers=1):
    """Rate one candidate of job 0 in a round of 100 s, with a band of four rounds.

    A restart costs 10 s, the bonus of held workers is 40 s, and the head start 800 s; job 1 has
    50 s left.
    """
    urgent, bonus_s, lag_s, value = worth_of_round(
        *(np.array([0]), np.array([second]), np.array([held]), np.array([always])),
        *(np.array([float(deficit_s)]), np.array([workers]), np.array([float(left_s), 50.0])),
        *(np.array([10.0, 10.0]), 100.0, 40.0, 800.0, 400.0, 100.0, 0.1, 0.0, 3.0),
    )
    return bool(urgent[0]), bonus_s[0], lag_s[0], value[0]


def test_within_the_band_a_round_is_worth_the_part_of_the_work_that_it_does():
    assert rated(deficit_s=0, left_s=1000) == (False, 0.0, 0.0, pytest.approx(0.1))
    assert rated(deficit_s=-50, left_s=20) == (False, 0.0, -50.0, 1.0)  # it ends within the round
    assert rated(deficit_s=0, left_s=1000, second=1)[3] == 1.0  # as its partner does
    # Held workers count more by the cost of a move.
    assert rated(deficit_s=0, left_s=1000, held=True) == (False, 50.0, 50.0, pytest.approx(0.15))


def test_what_is_behind_by_a_round_and_a_tenth_of_what_it_has_left_is_urgent():
    assert not rated(deficit_s=199, left_s=1000)[0]
    assert rated(deficit_s=201, left_s=1000)[0]
    assert not rated(deficit_s=399, left_s=1e6)[0]  # but never later than by the band
    assert rated(deficit_s=401, left_s=1e6)[0]
    # It counts by worker, and more by each round that it is overdue.
    assert rated(deficit_s=250, left_s=1000, workers=4)[3] == pytest.approx(4 * 3.5)
    assert rated(deficit_s=0, left_s=1e6, always=True) == (True, 800.0, 800.0, pytest.approx(7.0))


@given(seed=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_entries_are_those_of_a_dictionary(seed):
    rng = np.random.default_rng(seed)
    jobs, count, types = (int(n) for n in rng.integers((1, 0, 1), (7, 12, 4)))
    first = rng.integers(0, jobs, size=count)
    second = np.where(rng.random(count) < 0.4, (first + 1) % jobs, NONE)
    second[second == first] = NONE
    demand = rng.integers(0, 4, size=(count, types))
    value, busy = rng.normal(size=count), rng.random(jobs) < 0.2
    free = rng.integers(0, 6, size=types)
    columns, entry, begin, part, worth, takes = entries_of_jobs(
        first, second, demand, value, free, busy
    )
    members = [[row for row in (first[c], second[c]) if row != NONE] for c in range(count)]
    runs = [
        c
        for c in range(count)
        if value[c] > 0 and not busy[members[c]].any() and (demand[c] <= free).all()
    ]
    expected = {
        row: [c for c in runs if first[c] == row] + [c for c in runs if second[c] == row]
        for row in range(jobs)
    }
    assert columns.tolist() == runs
    listed = [columns[entry[a:b]].tolist() for a, b in pairwise(begin)]
    assert listed == [list(cs) for cs in expected.values() if cs]
    for e, c in enumerate(columns[entry].tolist()):
        assert part[e] == 1.0 / len(members[c])
        assert worth[e] == value[c] * part[e]
        assert takes[e].tolist() == (demand[c] * part[e]).tolist()
