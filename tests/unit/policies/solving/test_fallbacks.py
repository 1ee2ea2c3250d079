"""What happens when a solver stops short, and with jobs that run only in company."""

from __future__ import annotations

import numpy as np
import pytest

from policies.families import AlphaFair, FinishTime, MaxMin, WeightedSum
from policies.solving import (
    alpha_fair,
    columns,
    discipline,
    finish_time,
    level_then_sum,
    structured,
)
from policies.solving.classes import ClassProblem
from policies.solving.family import solve_family
from policies.solving.level import LevelProgram, LevelSolution
from policies.testing import make_problem, make_table
from scheduler.errors import SolveError


def everyone(classes):
    age, left = classes.problem.age_s, classes.problem.remaining_steps
    one = np.ones(classes.size)
    return {
        "max-min": MaxMin(coefficient=one),
        "sum": WeightedSum(coefficient=one),
        "finish": FinishTime(age=age, remaining=left, isolated_time=age + left),
        "log": AlphaFair(weight=one, coefficient=one),
        "alpha 3": AlphaFair(weight=one, coefficient=one, alpha=3.0),
    }


def apart(problem):
    return ClassProblem.build(problem, (np.arange(float(problem.jobs)),))


def test_a_kernel_that_stops_short_is_replaced(monkeypatch, random_problem):
    classes = apart(random_problem(1, dead=0.0, load=0.5))
    good = {name: solve_family(f, classes).value for name, f in everyone(classes).items()}
    monkeypatch.setattr(structured, "LIMIT", 2)
    for name, family in everyone(classes).items():
        answer = solve_family(family, classes)
        assert answer.solver in {"highs", "clarabel"}
        assert answer.value == pytest.approx(good[name], rel=2e-6)


def test_without_a_second_stage_the_first_stands(monkeypatch, random_problem):
    classes = apart(random_problem(1, dead=0.0, load=0.5))
    family = everyone(classes)["max-min"]
    level = solve_family(family, classes).value
    monkeypatch.setattr(level_then_sum, "answer_of_kernel", lambda *_, **__: None)
    monkeypatch.setattr(level_then_sum, "_both_at_once", lambda *_: None)
    monkeypatch.setattr(level_then_sum, "SMALL", 0)
    monkeypatch.setattr(level_then_sum, "FEW", 0)
    assert solve_family(family, classes).value == pytest.approx(level, rel=1e-7)


def test_columns_that_do_not_settle_are_replaced_by_all_pairs(monkeypatch, random_problem):
    classes = apart(random_problem(2, pairs=True, dead=0.0))
    family = everyone(classes)["max-min"]
    value = solve_family(family, classes).value
    monkeypatch.setattr(discipline, "MANY_PAIRS", 0)
    monkeypatch.setattr(columns, "ROUNDS", 0)
    answer = solve_family(family, classes)
    assert answer.solver == "highs"
    assert answer.value == pytest.approx(value, rel=1e-7)


def test_finish_times_that_do_not_converge_are_an_error(monkeypatch, random_problem):
    classes = apart(random_problem(5, jobs=20, pairs=True, dead=0.0, load=3.0))
    monkeypatch.setattr(finish_time, "STEPS", 1)
    monkeypatch.setattr(finish_time, "solve_structured_finish", lambda *_: None)
    with pytest.raises(SolveError, match="stopped at rho"):
        solve_family(everyone(classes)["finish"], classes)


def test_a_utility_that_is_not_finite_is_an_error(monkeypatch, random_problem):
    classes = apart(random_problem(2, pairs=True, dead=0.0))
    monkeypatch.setattr(alpha_fair, "utility", lambda *_: -np.inf)
    with pytest.raises(SolveError, match="some job receives nothing"):
        solve_family(everyone(classes)["log"], classes)


def test_utilities_that_are_not_quite_proven_are_told(monkeypatch, random_problem):
    classes = apart(random_problem(2, pairs=True, dead=0.0))
    assert solve_family(everyone(classes)["log"], classes).warnings == ()
    monkeypatch.setattr(alpha_fair, "USUAL", -1.0)
    (warning,) = solve_family(everyone(classes)["log"], classes).warnings
    assert "proven to" in warning


def test_jobs_that_run_only_in_company_are_given_company():
    # One worker. Neither job makes progress alone; together they do 2 and 4 steps/s.
    table = make_table([[0.0], [0.0]], shared={(0, 1, 0): (2.0, 4.0)})
    classes = ClassProblem.build(make_problem(table, capacity=[1], remaining_steps=8.0))
    expected = {"max-min": 2.0, "sum": 6.0, "finish": 0.5, "log": np.log(8.0), "alpha 3": -5 / 32}
    for name, family in everyone(classes).items():
        answer = solve_family(family, classes)
        assert answer.value == pytest.approx(expected[name], rel=1e-5), name
        assert answer.warnings == ()
        allocation = classes.expand(answer.x, answer.pair_x)
        assert allocation.pair_jobs.tolist() == [[0, 1]]
        assert allocation.pair_x == pytest.approx([1.0], rel=1e-5)


def test_a_fraction_that_a_floor_needs_is_no_noise(monkeypatch):
    """Of the little time that a job needs, a millionth part is spent in another way."""
    classes = ClassProblem.build(make_problem(make_table([[1.0, 2.0]]), capacity=[1, 1]))
    x = np.array([[4e-6, 4e-12]])
    solution = LevelSolution(
        x=x,
        pair_x=np.zeros(0),
        level=0.0,
        row_price=np.zeros(1),
        worker_price=np.zeros(2),
        time_price=np.zeros(1),
        solver="interior",
    )
    program = LevelProgram(
        classes=classes, gain=np.ones(1), slope=np.zeros(1), floor=x @ np.array([1.0, 2.0])
    )
    monkeypatch.setattr(discipline, "solve_structured", lambda *_: solution)
    checked = discipline.answer_of_kernel(program)
    assert checked is not None
    assert classes.expand(checked.solution.x).x.tolist() == x.tolist()
