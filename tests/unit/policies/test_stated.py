"""Programs that are stated once: the same answers, whatever was asked before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import program
from policies.parameters import parameter
from policies.program import ProgramPolicy
from policies.solving.stated import KEPT, room_for
from policies.testing import make_problem, make_table
from scheduler.errors import SolveError


@dataclass(frozen=True, kw_only=True)
class EachTime(ProgramPolicy):
    """Weighted delay, translated for each answer."""

    name: ClassVar[str] = "delay"
    reads: ClassVar[tuple[str, ...]] = ("remaining_steps",)

    power: float = parameter(1.0, gt=0.0, le=4.0, help="Above 1, long delays count for more.")

    def objective(self, terms):
        pace = 1000.0 / terms.remaining_steps
        speed = cp.multiply(pace, terms.throughput)
        return cp.Minimize((terms.weight * terms.count) @ cp.power(speed, -self.power))


@dataclass(frozen=True, kw_only=True)
class Once(EachTime):
    """The same, stated once."""

    def figures(self, terms):
        return {
            "importance": terms.weight * terms.count,
            "pace": 1000.0 / terms.remaining_steps,
        }

    def objective(self, terms):
        speed = terms.scaled_throughput("pace")
        return cp.Minimize(terms.figure("importance") @ cp.power(speed, -self.power))


def drawn(seed, *, most=14, types=3):
    """Draw jobs, some of one kind, some of which cannot run everywhere."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.5, 8.0, (int(rng.integers(1, 6)), types))
    rates[:, 1:][rng.random(rates[:, 1:].shape) < 0.2] = 0.0
    profile = rng.integers(0, len(rates), int(rng.integers(1, most)))
    return make_problem(
        make_table(rates.tolist(), scale_factor=rng.integers(1, 3, len(rates)).tolist()),
        capacity=rng.integers(2, 5, types),
        profile=profile,
        weight=rng.integers(1, 3, len(profile)),
        remaining_steps=rng.choice([200.0, 1000.0, 7000.0], len(profile)),
    )


@pytest.mark.parametrize("power", [1.0, 2.5])
def test_answers_are_those_of_a_program_that_is_translated_each_time(power):
    once, each_time = Once(power=power), EachTime(power=power)
    for seed in range(30):
        problem = drawn(seed)
        answer, expected = once.allocate(problem), each_time.allocate(problem)
        assert answer.objective == pytest.approx(expected.objective, rel=1e-6)
        assert answer.warnings == ()
        assert (answer.usage(problem) <= problem.capacity * (1 + 1e-9)).all()
        assert (answer.x[problem.table.throughput[problem.profile] == 0] == 0).all()


@settings(max_examples=30)
@given(seeds=st.lists(st.integers(0, 10_000), min_size=1, max_size=4))
def test_an_answer_does_not_depend_on_what_was_asked_before(seeds):
    alone, after = Once(), Once()
    for seed in seeds:
        after.allocate(drawn(seed))
    assert (after.allocate(drawn(1)).x == alone.allocate(drawn(1)).x).all()


def test_jobs_come_and_go_without_a_translation(monkeypatch):
    stated = []
    state = program._in_cvxpy
    monkeypatch.setattr(program, "_in_cvxpy", lambda *a: stated.append(1) or state(*a))
    rng = np.random.default_rng(5)
    policy = Once()
    for jobs in [9, 10, 9, 10, 10, 9]:
        table = make_table(rng.uniform(1, 8, (jobs, 3)).tolist())
        policy.allocate(make_problem(table, capacity=[2, 2, 2]))
    assert len(stated) == 1


def test_only_the_last_few_programs_are_kept():
    policy = Once()
    for jobs in range(1, 40):
        policy.allocate(make_problem(make_table([[1.0 + j] for j in range(jobs)]), capacity=[2]))
    assert len(policy._programs._kept) == KEPT


@given(classes=st.integers(1, 5000))
def test_there_is_room_for_all_classes_and_not_for_many_more(classes):
    assert classes <= room_for(classes) <= max(classes * 1.25, 4)


def limited(base, cost):
    class Thrifty(base):
        def constraints(self, terms):
            return [terms.cost <= cost, terms.time_fraction <= 0.7, terms.workers <= 1.5]

    return Thrifty()


def test_what_every_allocation_has_may_stand_in_constraints():

    table = make_table([[4.0, 2.0], [2.0, 3.0], [1.0, 1.0]])
    problem = make_problem(table, capacity=[2, 2], cost_usd_per_hour=[2.0, 1.0])
    answer = limited(Once, 2.5).allocate(problem)
    expected = limited(EachTime, 2.5).allocate(problem).objective
    assert answer.objective == pytest.approx(expected, rel=1e-6)
    assert answer.usage(problem) @ [2.0, 1.0] == pytest.approx(2.5, abs=1e-5)
    assert answer.time_fraction().max() <= 0.7 + 1e-6
    assert answer.usage(problem).max() <= 1.5 + 1e-6


def test_a_linear_program_goes_to_highs():
    class Sum(Once):
        def objective(self, terms):
            return terms.figure("importance") @ terms.throughput

    answer = Sum().allocate(make_problem(make_table([[4.0], [1.0]]), capacity=[1]))
    assert answer.solver == "highs"
    assert answer.x[:, 0].tolist() == [1.0, 0.0]


def test_a_figure_times_what_has_a_figure_is_slow_but_right():
    class Slow(Once):
        def objective(self, terms):
            speed = cp.multiply(terms.figure("pace"), terms.throughput)
            return cp.Minimize(terms.figure("importance") @ cp.power(speed, -self.power))

    class Mended(Once):
        def objective(self, terms):
            speed = terms.variable(cp.multiply(terms.figure("pace"), terms.throughput))
            return cp.Minimize(terms.figure("importance") @ cp.power(speed, -self.power))

    problem = drawn(3)
    expected = EachTime().allocate(problem).objective
    slow, mended = Slow().allocate(problem), Mended().allocate(problem)
    assert slow.objective == pytest.approx(expected, rel=1e-6)
    assert mended.objective == pytest.approx(expected, rel=1e-6)
    assert "use terms.variable(EXPRESSION)" in slow.warnings[0]
    assert not mended.warnings


@pytest.mark.parametrize("name", ["count", "weight", "remaining_steps", "cost_usd_per_hour"])
def test_figures_of_one_problem_have_no_place_in_what_is_stated_for_many(name):
    class Fixed(Once):
        def objective(self, terms):
            return terms.throughput @ getattr(terms, name)

    with pytest.raises(SolveError, match=r"read them there, and use terms\.figure"):
        Fixed().allocate(drawn(3))


def test_wrong_figures_are_named():
    class Endless(Once):
        def figures(self, terms):
            return super().figures(terms) | {"pace": np.full(len(terms.count), np.inf)}

    class Misspelt(Once):
        def objective(self, terms):
            return terms.figure("pase") @ terms.throughput

    with pytest.raises(SolveError, match="its figure 'pace' must be finite numbers"):
        Endless().allocate(drawn(3))
    with pytest.raises(SolveError, match="make no 'pase'; there are: importance, pace"):
        Misspelt().allocate(drawn(3))


def test_pairs_and_many_classes_are_translated_each_time(monkeypatch):
    table = make_table([[4.0], [2.0]], shared={(0, 1, 0): (3.0, 1.5)})
    paired = make_problem(table, capacity=[1])
    expected = EachTime().allocate(paired)
    assert Once().allocate(paired).objective == pytest.approx(expected.objective, rel=1e-6)
    monkeypatch.setattr(program, "MOST_CLASSES", 3)
    policy = Once()
    answer = policy.allocate(drawn(2))
    assert answer.objective == pytest.approx(EachTime().allocate(drawn(2)).objective, rel=1e-6)
    assert "_programs" not in vars(policy)
