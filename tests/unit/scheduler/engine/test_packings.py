"""Rounds that serve owed time if gangs do not fit one by one, and the number of searches."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from leasehold_testing.mechanism import EXACT, credit_mechanism, follow, random_shares
from scheduler.engine.rounds import round_milp
from scheduler.engine.rounds.candidates import Candidates
from scheduler.engine.rounds.prices import find_prices, search_by_prices
from scheduler.engine.rounds.round_milp import SearchSchedule
from scheduler.engine.rounds.urgency import Band
from scheduler.engine.tables.jobs import NONE

CAPACITY = (8, 8, 4)
WIDE = Band(round_s=1.0, behind=4.0, ahead=3.0)


def sparse_mixture(seed):
    """Draw seven jobs of one, two and four workers, and an X that mixes a few rounds."""
    rng = np.random.default_rng(seed)
    gangs = rng.choice([1, 2, 4], size=7, p=[0.3, 0.3, 0.4]).astype(np.int64)
    count = int(rng.integers(2, 5))
    x = np.zeros((7, 3))
    for weight in rng.dirichlet(np.ones(count)):
        free = np.array(CAPACITY)
        for i in rng.permutation(7):
            fits = np.flatnonzero(free >= gangs[i])
            if len(fits):
                k = rng.choice(fits)
                free[k] -= gangs[i]
                x[i, k] += weight
    return x, gangs


def test_where_taking_gangs_one_by_one_falls_ever_further_behind_rounds_do_not():
    # Without the search a job of this draw is 5.7 rounds behind after 600, 17.2 after 2,400.
    x, gangs = sparse_mixture(41)
    lags = []
    for rounds in (500, 1000):
        searches = []
        mechanism = credit_mechanism(x, gangs, CAPACITY, keep_bonus=0.5, searches=searches)
        lags.append(follow(mechanism, x, rounds=rounds).lag)
        assert False not in searches
    assert True in searches
    assert lags[1] < 14


@given(seed=st.integers(0, 10**9), wide=st.booleans())
@settings(max_examples=25, deadline=None)
def test_an_x_that_can_be_realised_is(seed, wide):
    rng = np.random.default_rng(seed)
    capacity = rng.integers(2, 9, size=rng.integers(1, 4)).tolist()
    gangs = rng.choice([1, 2, 3, 4], size=rng.integers(3, 10)).astype(np.int64)
    x = random_shares(rng, gangs, capacity)
    searches = []
    mechanism = credit_mechanism(
        x, gangs, capacity, keep_bonus=0.5, band=WIDE if wide else EXACT, searches=searches
    )
    found = follow(mechanism, x, rounds=120)
    assert False not in searches  # no round is ever worth less than what X is owed then
    # Entries above NEARLY_ALWAYS may delay others by their head start.
    assert found.lag < 20


def test_what_cannot_be_realised_is_sought_ever_more_seldom():
    # Seven full-time jobs and an eighth of a gang of eight, on eight workers.
    x = np.array([[1.0]] * 7 + [[0.125]])
    gangs = np.array([1] * 7 + [8])
    searches = []
    follow(credit_mechanism(x, gangs, [8], keep_bonus=0.5, searches=searches), x, rounds=150)
    assert False in searches
    search, sought = SearchSchedule(), 0
    for _ in range(1000):
        may = search.may
        sought += may
        search.note(False if may else None)
    assert sought < 25
    search.begin(0.0)
    assert search.may


def candidates(rng, *, jobs, types, pairs, count=None):
    count = count or int(rng.integers(1, 9))
    first = rng.integers(0, jobs, size=count)
    second = np.full(count, NONE)
    if pairs and jobs > 1:
        shares = rng.random(count) < 0.4
        second[shares] = (first[shares] + rng.integers(1, jobs, size=shares.sum())) % jobs
    none = np.full(count, NONE)
    no = np.zeros(count, dtype=bool)
    demand = rng.integers(0, 4, size=(count, types))
    demand[:, 0] += demand.sum(axis=1) == 0
    return Candidates(
        first=first,
        second=second,
        configuration=none,
        pair=none,
        deficit_s=rng.normal(1.0, 3.0, size=count),
        held=no,
        always=no,
        demand=demand,
        elsewhere=no,
        promise=none,
        share=np.ones(count),
    )


@given(seed=st.integers(0, 10**9), types=st.integers(1, 3), pairs=st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_best_round_is_the_best_of_all(seed, types, pairs):
    rng = np.random.default_rng(seed)
    found = candidates(rng, jobs=int(rng.integers(1, 5)), types=types, pairs=pairs)
    free = rng.integers(0, 6, size=types)
    busy = np.zeros(5, dtype=bool)
    busy[rng.integers(0, 5)] = rng.random() < 0.3
    value = round_milp.candidate_worth(found, types)
    best, good = 0.0, []
    for runs in itertools.product((False, True), repeat=len(value)):
        runs = np.array(runs)  # noqa: PLW2901 - as a mask
        rows = np.concatenate((found.first[runs], found.second[runs]))
        rows = rows[rows >= 0]
        once = len(set(rows.tolist())) == len(rows) and not busy[rows].any()
        if once and (found.demand[runs].sum(axis=0) <= free).all():
            worth = float(value[runs & (value > 0)].sum())
            good = [*good, runs] if worth >= best - 1e-9 else good
            if worth > best + 1e-9:
                best, good = worth, [runs]
    chosen, bound = round_milp.best_choice(found, value, free, busy)
    assert chosen is not None
    assert (found.demand[chosen].sum(axis=0) <= free).all()
    assert value[chosen].sum() == pytest.approx(best)
    assert bound == pytest.approx(best)
    priced = find_prices(found, value, free, busy, reached=best)
    assert (priced.price >= 0).all()
    assert priced.bound >= best - 1e-9
    # The best choice stays, and others do not.
    must, may = priced.core(best - 1e-6)
    for runs in good:
        assert runs[must].all()
        assert (must | may)[runs & (value > 0)].all()
    if not pairs and best > 0:
        known = 0.9 * best
        must, may = priced.core(known)
        left = free - found.demand[must].sum(axis=0)
        runs, most = search_by_prices(found, priced, may, left, known)
        assert most == pytest.approx(best)
        assert value[must | runs].sum() == pytest.approx(best)
        again, most = search_by_prices(found, priced, may, left, best + 1e-6)
        assert not again.any()
        assert most == pytest.approx(best, abs=2e-6)


@given(seed=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_prices_prove_what_the_linear_relaxation_does(seed):
    """As scipy solves it, within 3 %, with jobs that want several types at once."""
    rng = np.random.default_rng(seed)
    found = candidates(rng, jobs=12, types=3, pairs=False, count=30)
    free, busy = rng.integers(1, 9, size=3), np.zeros(13, dtype=bool)
    value = rng.lognormal(0.0, 1.5, size=len(found.first))
    fits = np.flatnonzero((found.demand <= free).all(axis=1))
    jobs = found.first[fits] == np.arange(13)[:, None]
    relaxed = linprog(
        -value[fits],
        A_ub=np.vstack((found.demand[fits].T, jobs)),
        b_ub=np.concatenate((free, np.ones(13))),
        bounds=(0, 1),
    )
    fluid = find_prices(found, value, free, busy, reached=0.99 * -relaxed.fun).bound
    assert -relaxed.fun <= fluid + 1e-9
    assert fluid <= -relaxed.fun * 1.03 + 1e-9


def test_what_is_added_leaves_the_round_worth_what_is_owed():
    value = np.array([5.0, -1.0, -3.0, 2.0])
    runs = np.array([True, False, False, False])
    assert round_milp.affordable_candidates(value, runs, 3.0).tolist() == [False, True, False, True]
    assert round_milp.affordable_candidates(value, runs, 5.0).tolist() == [
        False,
        False,
        False,
        True,
    ]
