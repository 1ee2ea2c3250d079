"""Certificates: their statements are true, and rounds meet their bounds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold_testing.mechanism import EXACT, credit_mechanism, follow, random_shares
from scheduler.engine.rounds import choose_round, round_milp
from scheduler.engine.rounds.certificate import FAR, Certificate
from scheduler.engine.rounds.urgency import Band
from simulator.api import read_trace, simulate

BAND = Band(round_s=1.0, behind=4.0, ahead=1.0)


@pytest.fixture
def proofs(monkeypatch):
    """Yield (certificate, exact best value) of every round that is chosen."""
    found = []
    improve, prove = choose_round.improve_choice, choose_round.certify
    best = []

    def improved(partial_choice, begun, candidates, chosen, value):
        runs, most = round_milp.best_choice(candidates, value, begun.free, begun.busy)
        assert runs is not None
        assert most == pytest.approx(value[runs].sum())
        best.append(float(value[runs].sum()))
        return improve(partial_choice, begun, candidates, chosen, value)

    def proven(*arguments, **keywords):
        result = prove(*arguments, **keywords)
        if best:
            found.append((result, best.pop()))
        return result

    monkeypatch.setattr(choose_round, "improve_choice", improved)
    monkeypatch.setattr(choose_round, "certify", proven)
    return found


@pytest.mark.parametrize("capacity", [(8,), (8, 8, 4)])
def test_bounds_hold_and_rounds_are_close_to_the_best_of_whole_workers(proofs, capacity):
    rng = np.random.default_rng(len(capacity))
    for _ in range(6):
        gangs = rng.choice([1, 2, 4], size=14, p=[0.5, 0.3, 0.2]).astype(np.int64)
        x = random_shares(rng, gangs, capacity)
        left = rng.lognormal(2.0, 1.5, size=14)
        mechanism = credit_mechanism(
            x, gangs, capacity, keep_bonus=0.5, band=BAND, rounds_left=left
        )
        follow(mechanism, x, rounds=40)
    assert len(proofs) > 200
    gaps = np.array([1.0 - proof.value / best if best else 0.0 for proof, best in proofs])
    for proof, best in proofs:
        assert proof.bound >= best - 1e-6 * best
        assert proof.fluid >= proof.bound - 1e-9
        assert proof.gap <= 1.0
    served = gaps[gaps > FAR + 1e-6]
    assert len(served) <= 0.02 * len(gaps)  # rounds that serve owed time instead
    assert np.median(gaps) < 0.01
    assert np.percentile(gaps, 99) < 0.03


@given(seed=st.integers(0, 10**9))
@settings(max_examples=20, deadline=None)
def test_without_a_band_a_round_carries_its_distance_alone(seed):
    rng = np.random.default_rng(seed)
    gangs = np.ones(6, dtype=np.int64)
    x = random_shares(rng, gangs, (3,))
    found = []
    prove = choose_round.certify

    def proven(*arguments, **keywords):
        found.append(prove(*arguments, **keywords))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose_round, "certify", proven)
        mechanism = credit_mechanism(x, gangs, (3,), keep_bonus=0.0, band=EXACT)
        follow(mechanism, x, rounds=30)
    assert len(found) == 30
    assert all(math.isnan(proof.gap) and math.isnan(proof.fluid_gap) for proof in found)
    assert max(proof.behind_rounds for proof in found) <= 1.0 + 1e-9
    assert max(proof.off_rounds for proof in found) <= 1.0 + 1e-9


def test_gaps_are_parts_of_the_bounds():
    proof = Certificate(
        value=9.0, bound=10.0, fluid=12.0, behind_rounds=1.0, off_rounds=0.5, candidates=3
    )
    assert proof.gap == pytest.approx(0.1)
    assert proof.fluid_gap == pytest.approx(0.25)


def test_a_replay_says_how_good_its_rounds_were():
    trace = read_trace("bundled:small")
    cluster = "v100:4,a100:2,t4:4"
    run = simulate(trace, policy="max_min_fairness", throughputs="bundled", cluster=cluster)
    assert 0.0 <= run.summary.round_gap <= run.summary.round_gap_p99 <= 0.03
    assert run.summary.round_gap <= run.summary.round_fluid_gap
    assert run.summary.off_rounds > 0.0
    run = simulate(trace, policy="finish_time_fairness", throughputs="bundled", cluster=cluster)
    assert math.isnan(run.summary.round_gap)
    assert run.summary.off_rounds > 0.0
