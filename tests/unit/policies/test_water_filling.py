"""Water filling and hierarchical fairness, against level-by-level linear programs of scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from policies.registry import make_policy
from policies.shares import equal_share_throughput
from policies.solving import max_min
from policies.testing import make_problem, make_table
from scheduler.domain.problem import Entity
from scheduler.errors import ParameterError, SolveError


def lexicographic(reference, coefficient):
    """Return the sorted levels: raise all, and freeze a job when it alone cannot rise further."""
    n, c = reference.rate.shape
    rate = np.asarray(coefficient)[:, None] * reference.rate
    frozen: dict[int, float] = {}

    def best(objective, rising, extra):
        rows, right = [], []
        for m in range(n):
            row = np.append(-rate[m], 1.0 if m in rising else 0.0)
            rows.append(row)
            right.append(-frozen[m] * (1 - 1e-9) if m in frozen else -extra * (m not in rising))
        rows += [np.append(r, 0.0) for r in reference.rows]
        answer = linprog(
            -objective, A_ub=np.array(rows), b_ub=np.concatenate([right, reference.bounds])
        )
        assert answer.status == 0
        return -answer.fun

    while len(frozen) < n:
        rising = set(range(n)) - set(frozen)
        level = best(np.append(np.zeros(c), 1.0), rising, 0.0)
        stuck = [
            m
            for m in rising
            if best(np.append(rate[m], 0.0), set(), level * (1 - 1e-9)) <= level * (1 + 1e-6)
        ]
        assert stuck
        frozen |= dict.fromkeys(stuck, level)
    return np.sort(list(frozen.values()))


@pytest.mark.parametrize(("seed", "pairs"), [(s, p) for s in range(5) for p in (False, True)])
def test_every_level_is_as_high_as_scipy_s(problem_of, reference_of, seed, pairs) -> None:
    problem = problem_of(seed, jobs=5, pairs=pairs, gangs=seed % 2 == 1)
    answer = make_policy("water_filling").allocate(problem)
    coefficient = problem.scale_factor / (problem.weight * equal_share_throughput(problem))
    levels = np.sort(coefficient * answer.effective_throughput(problem))
    assert levels == pytest.approx(lexicographic(reference_of(problem), coefficient), rel=3e-5)
    assert answer.objective == pytest.approx(levels[0], rel=1e-6)
    fair = make_policy("max_min_fairness").allocate(problem)
    assert answer.objective == pytest.approx(fair.objective, rel=1e-6)


def team_problem(entity, *, capacity=(6,), gangs=None, **figures):
    table = make_table([[1.0]] * (1 if gangs is None else len(gangs)), scale_factor=gangs)
    profile = [0] * len(entity) if gangs is None else list(range(len(gangs)))
    given = {"entities": (Entity(name="a", weight=2.0), Entity(name="b"))} | figures
    return make_problem(table, capacity=capacity, profile=profile, entity=entity, **given)


def test_entities_share_by_weight_and_jobs_evenly_inside() -> None:
    # 3 workers as 2 : 1; a's two jobs get 1 each, b's four 1/4 each.
    problem = team_problem([0, 0, 1, 1, 1, 1], capacity=(3,))
    answer = make_policy("hierarchical").allocate(problem)
    assert answer.time_fraction() == pytest.approx([1, 1, 0.25, 0.25, 0.25, 0.25], abs=2e-5)


def test_what_an_entity_cannot_use_goes_to_the_others() -> None:
    # a is due 3 of 4.5 workers and can use 1 only; b's four jobs get the other 3.5.
    problem = team_problem([0, 1, 1, 1, 1], capacity=(4.5,))
    answer = make_policy("hierarchical").allocate(problem)
    assert answer.time_fraction() == pytest.approx([1] + [0.875] * 4, abs=2e-5)


def test_jobs_of_a_fifo_entity_are_served_in_order_of_arrival() -> None:
    # b is due 1.5 of 3 workers: its first job all the time, its second half of it.
    entities = (Entity(name="a"), Entity(name="b", policy="fifo"))
    problem = team_problem([0, 1, 0, 1, 0, 1], capacity=(3,), entities=entities)
    answer = make_policy("hierarchical").allocate(problem)
    assert answer.time_fraction() == pytest.approx([0.5, 1, 0.5, 0.5, 0.5, 0], abs=2e-5)


def test_weights_count_inside_an_entity() -> None:
    problem = team_problem([0, 0, 1], capacity=(1.5,), weight=[3.0, 1.0, 1.0])
    answer = make_policy("hierarchical").allocate(problem)
    assert answer.time_fraction() == pytest.approx([0.75, 0.25, 0.5], abs=2e-5)


def test_parameters_replace_the_entities_weights_and_rules() -> None:
    problem = team_problem([0, 0, 1, 1], capacity=(2,))
    policy = make_policy("hierarchical", {"entity_weights": "a:1,b:3", "entity_policies": "b:fifo"})
    # b is due 1.5 of 2 workers: 1 and 0.5; a's two jobs share 0.5.
    assert policy.allocate(problem).time_fraction() == pytest.approx([0.25, 0.25, 1, 0.5], abs=2e-5)
    with pytest.raises(ParameterError, match="must be one of fairness, fifo"):
        make_policy("hierarchical", {"entity_policies": "a:lottery"})
    with pytest.raises(ParameterError, match="must be > 0"):
        make_policy("hierarchical", {"entity_weights": "a:0"})


def test_gangs_count_with_all_their_workers() -> None:
    # Equal entities: the gang of 2 gets half of 2 workers, that is half of the time.
    entities = (Entity(name="a"), Entity(name="b"))
    problem = team_problem([0, 1, 1], capacity=(2,), gangs=[2, 1, 1], entities=entities)
    answer = make_policy("hierarchical").allocate(problem)
    assert answer.time_fraction() == pytest.approx([0.5, 0.5, 0.5], abs=2e-5)


@pytest.mark.parametrize("seed", range(3))
def test_one_entity_is_plain_water_filling(problem_of, seed) -> None:
    problem = problem_of(seed, weight=1.0, pairs=seed == 1)
    flat = make_policy("water_filling").allocate(problem).effective_throughput(problem)
    nested = make_policy("hierarchical").allocate(problem).effective_throughput(problem)
    assert nested == pytest.approx(flat, rel=3e-5)


def test_jobs_that_cannot_run_get_nothing_and_are_named() -> None:
    problem = team_problem([0, 1], capacity=(2,), gangs=[1, 8])
    for name in ("water_filling", "hierarchical"):
        answer = make_policy(name).allocate(problem)
        assert answer.time_fraction() == pytest.approx([1, 0])
        assert answer.warnings[0].endswith("at scale factor 8")


@pytest.mark.parametrize("seed", [18, 91, 134, 11080])
def test_weights_a_hundredfold_apart_leave_every_level_solvable(problem_of, seed) -> None:
    rng = np.random.default_rng(seed)
    problem = problem_of(
        seed,
        jobs=20,
        gangs=True,
        weight=rng.choice([1.0, 0.1, 10.0], 20),
        entity=rng.integers(0, 2, 20),
        entities=(Entity(name="a", weight=2.0), Entity(name="b", policy="fifo")),
    )
    answer = make_policy("hierarchical").allocate(problem)
    assert (answer.usage(problem) <= problem.capacity + 1e-9).all()
    assert answer.usage(problem).sum() > 0


def test_a_level_is_proven_if_a_trace_of_one_job_is_all_of_another() -> None:
    """Jobs 1 and 3 can rise by 1e5 times what jobs 0 and 2 give up; scipy says .666664."""
    table = make_table([[10, 1e-4], [1e-3, 0.1], [1e4, 0.1], [1e-4, 1]])
    problem = make_problem(table, capacity=[1, 1], weight=[5.0, 1, 1, 1])
    answer = make_policy("water_filling").allocate(problem)
    assert not answer.warnings
    share = problem.scale_factor / (problem.weight * equal_share_throughput(problem))
    assert (share * answer.effective_throughput(problem)).min() == pytest.approx(
        0.666664433, rel=1e-6
    )


def test_those_who_rise_take_nothing_from_those_who_cannot() -> None:
    """The job of weight 4 was left 1.2 millionths below its level."""
    table = make_table([[6.66, 0.0, 4.08], [5.91, 9.63, 7.98]])
    problem = make_problem(table, capacity=[4, 4, 3], profile=[0, 1, 1], weight=[1.0, 1.0, 4.0])
    answer = make_policy("water_filling").allocate(problem)
    assert answer.effective_throughput(problem)[2] >= 9.63 * (1 - 1e-6)


def test_levels_without_a_proven_answer_are_told(monkeypatch) -> None:
    """Job 0 is lifted to all of the first type. How far job 1 could rise nothing can say."""
    table = make_table([[1.0, 0.0], [1.0, 2.0]])
    problem = make_problem(table, capacity=[1, 1], weight=[4.0, 1.0])
    honest, asked = max_min.solve_level, []

    def only_first(*program):
        asked.append(program)
        if len(asked) > 1:
            raise SolveError("no digits left")
        return honest(*program)

    monkeypatch.setattr(max_min, "solve_level", only_first)
    monkeypatch.setattr(max_min, "answer_of_kernel", lambda *_, **__: None)
    answer = make_policy("water_filling").allocate(problem)
    assert "the jobs that are best off (1) are not lifted further" in answer.warnings[0]
    assert answer.effective_throughput(problem)[0] == pytest.approx(1.0, rel=1e-6)
    assert answer.time_fraction().max() <= 1 + 1e-9


def test_levels_go_on_if_nothing_proves_that_no_job_can_rise(monkeypatch) -> None:
    """The first job of the queue has the one worker; that the others get nothing takes a proof."""
    honest = max_min.solve_level

    def no_rest(program, *before):
        if program.price == 0:
            raise SolveError("no digits left")
        return honest(program, *before)

    monkeypatch.setattr(max_min, "solve_level", no_rest)
    queue = (Entity(name="a", policy="fifo"),)
    problem = team_problem([0] * 4, capacity=(1,), entities=queue)
    answer = make_policy("hierarchical").allocate(problem)
    assert answer.time_fraction() == pytest.approx([1, 0, 0, 0], abs=1e-5)


def test_a_solver_that_goes_round_in_circles_is_stopped(any_problem_of) -> None:
    """HiGHS never ended on one of the programs by which a level is refined here."""
    problem = any_problem_of(6904, wide=True)
    answer = make_policy("hierarchical").allocate(problem)
    assert (answer.usage(problem) <= problem.capacity * (1 + 1e-9)).all()
