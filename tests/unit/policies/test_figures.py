"""Plugins of the release before that compute ``figures`` for their program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import cvxpy as cp
import numpy as np
import pytest

from policies import program
from policies.program import ProgramPolicy
from policies.testing import make_problem, make_table
from scheduler.errors import SolveError

PROBLEM = make_problem(
    make_table([[4.0, 2.0], [2.0, 3.0], [1.0, 1.0]]),
    capacity=[1, 1],
    weight=[1.0, 2.0, 1.0],
    remaining_steps=[200.0, 1000.0, 7000.0],
)


@dataclass(frozen=True, kw_only=True)
class Delay(ProgramPolicy):
    name: ClassVar[str] = "delay"
    reads: ClassVar[tuple[str, ...]] = ("remaining_steps",)

    def objective(self, terms):
        speed = cp.multiply(1000.0 / terms.remaining_steps, terms.throughput)
        return cp.Minimize((terms.weight * terms.count) @ cp.inv_pos(speed))


def with_figures(importance):
    text = "Before: the method 'figures' goes with the next"
    with pytest.warns(DeprecationWarning, match=text) as warned:

        class Before(Delay):
            def figures(self, terms):
                return {"importance": importance, "pace": 1000.0 / terms.remaining_steps}

            def objective(self, terms):
                speed = terms.variable(terms.scaled_throughput("pace"))
                return cp.Minimize(terms.figure("importance") @ cp.inv_pos(speed))

    assert [one.filename for one in warned] == [__file__]
    return Before()


def test_a_policy_with_figures_answers_as_one_that_reads_the_terms_and_warns():
    before = with_figures(np.array([1.0, 2.0, 1.0])).allocate(PROBLEM)
    expected = Delay().allocate(PROBLEM)
    assert before.objective == pytest.approx(expected.objective, rel=1e-6)
    assert np.abs(before.x - expected.x).max() < 1e-4


@pytest.mark.parametrize("value", [np.inf, "much", None])
def test_a_figure_that_is_no_finite_number_is_named(value):
    with pytest.raises(SolveError, match="its figure 'importance' must be finite numbers"):
        with_figures(value).allocate(PROBLEM)


def test_a_figure_that_is_missing_is_named():
    with pytest.warns(DeprecationWarning, match="figures"):

        class Misspelt(Delay):
            def figures(self, terms):
                return {"pace": terms.weight}

            def objective(self, terms):
                return terms.figure("pase") @ terms.throughput

    with pytest.raises(SolveError, match="make no 'pase'; there are: pace"):
        Misspelt().allocate(PROBLEM)


def test_a_limit_of_the_release_before_is_found_with_a_warning():
    with pytest.warns(DeprecationWarning, match="MOST_CLASSES limits nothing now") as warned:
        assert program.MOST_CLASSES == 2048
    assert warned[0].filename == __file__
    with pytest.raises(AttributeError, match=r"'policies\.program' has no attribute 'MOST'"):
        program.MOST  # noqa: B018
