"""The table of jobs, and the copy that people are shown."""

import random

import numpy as np
import pytest

from scheduler.domain.jobs.job import Job
from scheduler.engine.tables.jobs import JobTable


def equal(one, other):
    assert (one.number_of, one.job_of) == (other.number_of, other.job_of)
    mine, theirs = one.columns(), other.columns()
    assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    assert np.array_equal(one.x, other.x)
    assert np.array_equal(one.credit_s, other.credit_s)
    one.check_invariants()
    return True


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_that_follows_is_equal_and_nothing_else_changes_it(seed):
    """Ids come again under new numbers, and some rows come and go between two looks."""
    chance = random.Random(seed)
    table, number = JobTable(2), 0
    shown = None
    for _ in range(60):
        for _ in range(chance.randrange(6)):
            if len(table) and chance.random() < 0.5:
                table.remove(chance.randrange(len(table)))
                continue
            name = f"j{chance.randrange(8)}"
            if name not in table.number_of:
                job = Job(job_id=name, job_type="t", total_steps=10.0 + number)
                table.add(job, number=number, profile=0, entity=0)
                number += chance.randint(1, 3)
        if len(table):
            table["steps_done"][chance.randrange(len(table))] = chance.random()
            table.x[chance.randrange(len(table)), 0] = chance.random()
        if shown is None:
            shown = table.copy() if chance.random() < 0.2 else None
        elif chance.random() < 0.7:
            shown.follow(table)
            assert equal(shown, table)
            before = shown.columns()
            if len(table):
                table["weight"][:] += 1.0
            assert np.array_equal(shown["weight"], before["weight"])
    assert shown is not None
