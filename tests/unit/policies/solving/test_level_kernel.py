"""The compiled solver and the compiled examination agree with what numpy says."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from policies.kernels.level import total
from policies.solving.classes import ClassProblem
from policies.solving.discipline import MISS, _complaint, _examined, check_solution
from policies.solving.level import LevelProgram
from policies.solving.structured import solve_structured


def program_of(classes, *, kind):
    """State one of the three kinds of level programs."""
    ones = np.ones(classes.size)
    gain = 1.0 / classes.fastest_alone
    cost = classes.throughput * classes.count[:, None]
    if kind == "level":
        return LevelProgram(
            classes=classes, gain=gain, slope=ones, floor=np.zeros(classes.size), price=1.0
        )
    if kind == "both":
        floor = np.linspace(0.0, 0.01, classes.size)
        return LevelProgram(
            classes=classes, gain=gain, slope=ones, floor=floor, cost=cost, price=300.0
        )
    return LevelProgram(
        classes=classes, gain=gain, slope=0 * ones, floor=ones * 1e-3, cost=cost, price=0.0
    )


@pytest.mark.parametrize("kind", ["level", "both", "sum"])
@pytest.mark.parametrize("seed", range(8))
def test_an_answer_is_examined_as_numpy_examines_it(seed, kind, random_problem):
    problem = random_problem(seed, jobs=12, profiles=6, load=1.0, dead=0.0, pairs=False)
    program = program_of(ClassProblem.build(problem), kind=kind)
    raw = solve_structured(program)
    assert raw is not None
    for factor in (1.0, 1.2):  # one that is feasible, and one that has to be scaled down
        far = replace(raw, x=raw.x * factor)
        slow = check_solution(program, far)
        quick = _examined(program, far, MISS)
        if quick is None:
            assert _complaint(program, slow, MISS)
            continue
        assert not _complaint(program, slow, MISS)
        assert np.array_equal(quick.solution.x, slow.solution.x)
        assert quick.solution.level == slow.solution.level
        assert quick.solution.row_price == pytest.approx(slow.solution.row_price, rel=1e-12)
        assert quick.value == pytest.approx(slow.value, rel=1e-12)
        assert quick.bound == pytest.approx(slow.bound, rel=1e-12)


def test_a_missed_floor_and_an_unproven_value_do_not_stand(random_problem):
    problem = random_problem(1, jobs=12, profiles=6, load=1.0, dead=0.0, pairs=False)
    classes = ClassProblem.build(problem)
    held = program_of(classes, kind="sum")
    raw = solve_structured(held)
    assert _examined(held, replace(raw, x=raw.x * 1e-6), MISS) is None
    level = program_of(classes, kind="level")
    raw = solve_structured(level)
    assert _examined(level, raw, MISS) is not None
    assert _examined(level, replace(raw, x=raw.x * 0.99), MISS) is None


def test_a_job_that_needs_next_to_nothing_is_left_to_the_lift(random_problem):
    problem = random_problem(1, jobs=12, profiles=6, load=1.0, dead=0.0, pairs=False)
    classes = ClassProblem.build(problem)
    program = program_of(classes, kind="level")
    slope = program.slope.copy()
    slope[0] = 1e-9
    tiny = replace(program, slope=slope)
    raw = solve_structured(tiny)
    assert _examined(tiny, raw, MISS) is None
    assert not _complaint(tiny, check_solution(tiny, raw), MISS)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 127, 128, 129, 136, 257, 1025, 100_003])
def test_rounding_of_sums_grows_slowly_with_the_length(length):
    """Equal tenths show the rounding of a plain loop: 100,003 of them miss by 2e-12 of the sum."""
    rng = np.random.default_rng(length)
    drawn = rng.lognormal(0.0, 5.0, length) * rng.choice((-1.0, 1.0), length)
    for values in (drawn, np.full(length, 0.1)):
        miss = abs(total(values) - math.fsum(values))
        assert miss <= 4 * np.finfo(float).eps * math.fsum(abs(values))
