"""A policy is asked in one way, and whatever it does wrong is an error that names it."""

from __future__ import annotations

import sys
from collections.abc import Callable  # noqa: TC003  a dataclass reads it
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from policies import registry
from policies.asking import ask
from policies.base import Policy
from policies.testing import make_problem, make_table
from scheduler.domain.allocation import Allocation
from scheduler.errors import PolicyFaultError, SolveError


@dataclass(frozen=True, kw_only=True)
class Doing(Policy):
    """Does what it is told."""

    name: ClassVar[str] = "doing"
    does: Callable[[object], object]

    def allocate(self, problem):
        return self.does(problem)


class Unbuilt(Doing):
    """Ends the program where it is built."""

    @classmethod
    def from_text(cls, params):
        sys.exit(4)


@pytest.fixture
def problem():
    return make_problem(make_table([[4.0, 1.0], [2.0, 2.0]]), capacity=[1, 1], profile=[0, 1, 1])


@pytest.mark.parametrize(("does", "said"), [
    (lambda _: sys.exit(3), r"policy 'doing' ended the program: sys.exit\(3\); this is a fault"),
    (lambda _: 1 / 0, "policy 'doing' failed with ZeroDivisionError: division by zero; this is a"),
])  # fmt: skip
def test_a_policy_that_raises_anything_is_named(problem, does, said):
    with pytest.raises(PolicyFaultError, match=said):
        ask(Doing(does=does), problem)


def test_a_policys_own_refusal_passes(problem):
    def refuse(_problem):
        raise SolveError("no idea")

    with pytest.raises(SolveError, match=r"^no idea$"):
        ask(Doing(does=refuse), problem)


def test_an_answer_is_held_against_its_bounds(problem):
    x = np.full(problem.throughput.shape, 0.25)
    answer = ask(Doing(does=lambda _: Allocation.singles(x)), problem)
    assert answer.x.tolist() == x.tolist()
    with pytest.raises(SolveError, match="its answer is a tuple"):
        ask(Doing(does=lambda _: (x,)), problem)


@pytest.mark.parametrize("change", [
    {"x": np.array([["a", "b"]] * 3)},
    {"pair_x": np.zeros((2, 2))},
    {"pair_x": np.ones(1) / 4, "pair_jobs": np.array([[0, 99]]), "pair_index": np.array([0])},
])  # fmt: skip
def test_an_answer_of_odd_parts_is_an_error_that_names_the_policy(problem, change):
    answer = replace(Allocation.singles(np.full(problem.throughput.shape, 0.25)), **change)
    with pytest.raises((PolicyFaultError, SolveError), match=r"policy 'doing' failed|its answer"):
        ask(Doing(does=lambda _: answer), problem)


def test_a_policy_that_cannot_be_built_is_named(monkeypatch):
    monkeypatch.setattr(registry, "policy_class", lambda _name: Unbuilt)
    with pytest.raises(PolicyFaultError, match=r"'unbuilt' ended the program: sys.exit\(4\)"):
        registry.make_policy("unbuilt")
