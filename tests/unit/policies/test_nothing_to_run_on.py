"""Jobs that can run nowhere at present wait without spoiling the others' shares."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from policies.registry import make_policy, policy_names
from policies.testing import make_problem, make_table
from scheduler.domain.problem import Entity

#: Profile 2 runs nowhere, profile 3 only on a type without workers, profile 4 is too large.
TABLE = make_table(
    [[2.0, 1.0, 4.0], [1.0, 3.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 5.0], [9.0, 9.0, 9.0]],
    scale_factor=[1, 2, 1, 1, 40],
)
SHARING = make_table(
    [[2.0, 1.0, 4.0], [1.0, 3.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 5.0], [9.0, 9.0, 9.0]],
    scale_factor=[1, 1, 1, 1, 40],
    shared={(0, 0, 0): (1.5, 1.5), (0, 1, 0): (1.5, 0.75), (0, 3, 2): (1.0, 4.0)},
)
SOME, NONE = (4.0, 2.0, 0.0), (0.0, 0.0, 0.0)
ENTITIES = (Entity(name="a"), Entity(name="b", weight=2.0, policy="fifo"), Entity(name="c"))


def ask(name, table, profile, capacity):
    """Return problem and answer; a warning of numpy (a division by zero, say) is an error."""
    n = len(profile)
    problem = make_problem(
        table,
        capacity=capacity,
        profile=profile,
        age_s=np.linspace(900.0, 100.0, n),
        attained_worker_s=np.linspace(500.0, 0.0, n),
        time_left_s=np.linspace(1e4, 1e5, n),
        entity=np.arange(n) % 3,
        entities=ENTITIES,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return problem, make_policy(name).allocate(problem)


def check_feasible(problem, answer):
    assert answer.x.shape == problem.throughput.shape
    assert np.isfinite(answer.x).all()
    assert np.isfinite(answer.pair_x).all()
    assert (answer.x >= 0).all()
    assert (answer.time_fraction() <= 1 + 1e-9).all()
    assert (answer.usage(problem) <= problem.capacity + 1e-6).all()
    if answer.rank is not None:
        assert not np.isnan(answer.rank).any()


@pytest.mark.parametrize("table", [TABLE, SHARING], ids=["alone", "sharing"])
@pytest.mark.parametrize("name", policy_names())
def test_who_can_run_runs_although_others_cannot(name, table):
    problem, answer = ask(name, table, [2, 0, 3, 1, 4, 0, 2], SOME)
    check_feasible(problem, answer)
    received = answer.effective_throughput(problem)
    assert (received[[0, 2, 4, 6]] == 0).all()
    assert received[[1, 3, 5]].sum() > 0
    # Six workers have room for all three.
    assert (received[[1, 3, 5]] > 0).all()


@pytest.mark.parametrize("table", [TABLE, SHARING], ids=["alone", "sharing"])
@pytest.mark.parametrize("capacity", [SOME, NONE], ids=["some", "none"])
@pytest.mark.parametrize("name", policy_names())
def test_where_nobody_can_run_nobody_is_promised_time(name, capacity, table):
    problem, answer = ask(name, table, [2, 3, 4, 2], capacity)
    check_feasible(problem, answer)
    assert not answer.x.any()
    assert not answer.pair_x.any()


@pytest.mark.parametrize("name", policy_names())
def test_without_any_worker_in_service_nobody_is_promised_time(name):
    problem, answer = ask(name, SHARING, [0, 1, 0, 3], NONE)
    check_feasible(problem, answer)
    assert not answer.x.any()
    assert not answer.pair_x.any()


@pytest.mark.parametrize("name", policy_names())
def test_those_who_cannot_run_change_nothing_for_the_others(name):
    """The law behind it: leave them out of the question, and the answer is the same."""
    problem, whole = ask(name, TABLE, [0, 2, 1, 0, 2], SOME)
    kept = np.array([0, 2, 3])
    per_job = {
        field: getattr(problem, field)[kept]
        for field in (
            *("job_number", "profile", "scale_factor", "weight", "total_steps", "age_s"),
            *("remaining_steps", "time_left_s", "attained_worker_s", "entity", "held", "restart_s"),
        )
    }
    alone = make_policy(name).allocate(replace(problem, **per_job))
    thr = whole.effective_throughput(problem)[kept]
    expected = alone.effective_throughput(replace(problem, **per_job))
    assert thr == pytest.approx(expected, rel=1e-4, abs=1e-6)
