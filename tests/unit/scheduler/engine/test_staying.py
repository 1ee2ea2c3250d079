"""While nobody waits, jobs change places for a real gain only, and not for the noise of figures."""

import numpy as np
import pytest

from policies.testing import make_table
from scheduler.domain import events as ev
from scheduler.domain.allocation import Allocation

STAY = {"stay": True, "keep_bonus": 0.5}


def by_noise(problem):
    """Have each job all its time on one type: as throughputs are larger in sum."""
    straight, crossed = np.eye(2), np.eye(2)[::-1]
    t = problem.throughput
    return Allocation.singles(straight if (t * straight).sum() >= (t * crossed).sum() else crossed)


def half_each(problem):
    return Allocation.singles(np.full_like(problem.throughput, 0.5))


def noisy(rng, spread):
    """Return two job types that are equally fast on both types but for the noise."""
    return make_table(np.exp(rng.normal(0.0, spread, size=(2, 2))))


def exchange(start, job, allocate, tables, *, keeps=True):
    """Run two jobs on two workers while the figures change, and return how often each began."""
    shell = start("type-0:1,type-1:1", rates=((1.0, 1.0),) * 2, allocate=allocate, settings=STAY)
    shell.submit(job("a"), profile=0)
    shell.submit(job("b"), profile=1)
    for i, table in enumerate(tables, start=1):
        shell.run(until_s=100.0 * i - 10.0)
        shell.tell(ev.ConfigurationsChanged(table=table))
        if not keeps:
            shell.engine.jobs["steps_safe"][:] = 0.0
    return shell.engine.jobs["attempts"].tolist()


@pytest.mark.parametrize("allocate", [by_noise, half_each])
def test_noise_of_the_figures_moves_nobody_while_nobody_waits(start, job, allocate):
    rng = np.random.default_rng(7)
    tables = [noisy(rng, 0.03) for _ in range(30)]
    assert exchange(start, job, allocate, tables) == [1, 1]


def test_jobs_change_places_once_where_both_gain(start, job):
    crossed = make_table([[0.7, 1.0], [1.0, 0.7]])
    straight = make_table([[1.0, 1.1], [1.1, 1.0]])
    tables = [straight] * 5 + [crossed] * 20
    assert exchange(start, job, by_noise, tables) == [2, 2]


def test_a_much_faster_type_is_still_shared_by_turns(start, job):
    unlike = make_table([[1.0, 0.3], [1.0, 0.3]])
    assert min(exchange(start, job, half_each, [unlike] * 20)) > 5


def test_jobs_that_keep_nothing_begin_anew_once_at_most(start, job):
    unlike = make_table([[1.0, 0.3], [1.0, 0.3]])
    assert exchange(start, job, half_each, [unlike] * 20, keeps=False) == [2, 2]
