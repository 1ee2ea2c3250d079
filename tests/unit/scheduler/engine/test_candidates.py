"""Candidates and new allocations, against their definitions entry by entry."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold_testing.drawn_rounds import rounds
from scheduler.domain.allocation import Allocation
from scheduler.domain.facts import events as ev
from scheduler.engine.limits.node_exclusions import Exclusions
from scheduler.engine.rounds.allocation import apply_allocation
from scheduler.engine.rounds.candidates import NEARLY_ALWAYS, NEGLIGIBLE, single_candidates
from scheduler.engine.rounds.migration import spread_credit
from scheduler.engine.rounds.round_milp import total_owed
from scheduler.engine.tables.jobs import NONE
from scheduler.engine.tables.pairs import PairTable

LENGTH_S = 100.0


def lag_s(jobs, equivalent, row, column, lead_s):
    """Return the lag of one configuration, its total X, and whether it or one alike is held."""
    profile = jobs["profile"][row]
    group = equivalent.group[profile]
    alike = np.flatnonzero(group == group[column]) if equivalent.shared[profile] else [column]
    held = jobs["configuration"][row]
    lags_s = jobs.credit_s[row] + jobs.x[row] * lead_s
    if held != NONE and jobs["charged"][row]:
        lags_s[held] -= lead_s
    total = sum(jobs.x[row, alike])
    return sum(lags_s[alike]) + total * LENGTH_S, total, held in alike


@given(rounds(), st.sampled_from([0.0, 20.0]), st.integers(0, 99))
@settings(max_examples=300, deadline=None)
def test_candidates_are_the_configurations_of_x_that_lag(drawn, lead_s, seed):
    jobs, table, equivalent, _ = drawn
    jobs.x[jobs.x < 0.1] = 0.0
    rng = np.random.default_rng(seed)
    barred, eligible = rng.random(jobs.x.shape) < 0.1, rng.random(len(jobs)) < 0.9
    ahead_s, bars = 10.0, Exclusions(configuration=barred, row=barred.any(axis=1))
    lags, found = single_candidates(
        jobs,
        table,
        equivalent,
        held=jobs.ints("configuration"),
        profile=jobs.ints("profile"),
        eligible=eligible,
        length_s=LENGTH_S,
        lead_s=lead_s,
        ahead_s=ahead_s,
        exclusions=bars,
        caps=None,
    )
    expected, expected_s, owed = [], [], 0.0
    busy = rng.random(len(jobs)) < 0.3
    for row, column in np.ndindex(jobs.x.shape):
        deficit_s, total, alike = lag_s(jobs, equivalent, row, column, lead_s)
        workers = table.demand[jobs["profile"][row], column].sum()
        if not (busy[row] or barred[row, column]):
            owed += deficit_s * jobs.x[row, column] * workers
        least_s = (-1 if alike else 1) * NEGLIGIBLE * LENGTH_S - ahead_s
        if jobs.x[row, column] <= NEGLIGIBLE or deficit_s <= least_s:
            continue
        if eligible[row] and not barred[row, column]:
            moves = alike and jobs["configuration"][row] != column
            expected.append((row, column, alike, moves, total > NEARLY_ALWAYS))
            expected_s.append(deficit_s)
    told = (found.first, found.configuration, found.held, found.elsewhere, found.always)
    assert list(zip(*(column.tolist() for column in told), strict=True)) == expected
    assert found.deficit_s.tolist() == pytest.approx(expected_s)
    assert found.share.tolist() == jobs.x[found.first, found.configuration].tolist()
    for one, other in np.ndindex(len(found.first), len(found.first)):
        places = [(found.first[i], found.configuration[i]) for i in (one, other)]
        rows, columns = zip(*places, strict=True)
        group = equivalent.group[jobs["profile"][rows[0]]]
        shared = equivalent.shared[jobs["profile"][rows[0]]]
        same = rows[0] == rows[1] and shared and group[columns[0]] == group[columns[1]]
        both = found.promise[one] == found.promise[other] != NONE
        assert both == same
    asked = {"pairs": None, "busy": busy, "types": table.demand.shape[2], "exclusions": bars}
    assert total_owed(jobs, table, lags, **asked) == pytest.approx(owed)


@given(rounds(), st.integers(0, 10**6))
@settings(max_examples=300, deadline=None)
def test_an_allocation_is_put_in_force_as_its_entries_say(drawn, seed):
    jobs, _, equivalent, _ = drawn
    rng = np.random.default_rng(seed)
    width = jobs.x.shape[1]
    # Some jobs came since the question, and some of the question have left.
    asked = np.flatnonzero(rng.random(len(jobs) + 3) < 0.8)
    given_x = rng.choice([-1e-9, 0.0, 0.0, 0.3, 1.0 + 1e-9], size=(len(asked), width))
    x = np.zeros_like(jobs.x)
    for at, number in enumerate(asked.tolist()):
        if number < len(jobs):
            x[number] = np.clip(given_x[at], 0.0, 1.0)
    before = jobs.copy()
    before.x[:] = x
    spread_credit(before, equivalent)
    ahead_s = jobs["ahead_s"][:] = rng.choice([0.0, 50.0], size=len(jobs))
    answer = ev.AllocationComputed(
        generation=1, job_number=asked, allocation=Allocation.singles(given_x)
    )
    apply_allocation(answer, jobs, PairTable(), (), equivalent, round_length_s=LENGTH_S)
    assert jobs.x.tolist() == x.tolist()
    for row, column in np.ndindex(x.shape):
        credit_s = before.credit_s[row, column]
        if x[row, column] == 0.0:
            credit_s = min(credit_s, 0.0)
        assert jobs.credit_s[row, column] == max(credit_s, -LENGTH_S - ahead_s[row])


@given(rounds(), st.integers(1, 9))
@settings(deadline=None)
def test_a_job_of_more_configurations_changes_nothing_of_the_others(drawn, more):
    jobs, *_ = drawn
    width = jobs.x.shape[1]
    jobs.restarts_s[:] = np.arange(width)
    before = jobs.copy()
    jobs.widen(width + more)
    for name in ("x", "credit_s", "restarts_s"):
        assert getattr(jobs, name)[:, :width].tolist() == getattr(before, name).tolist()
    assert not jobs.x[:, width:].any()
    assert not jobs.credit_s[:, width:].any()
    assert (jobs.restarts_s[:, width:] == jobs["restart_s"][:, None]).all()
