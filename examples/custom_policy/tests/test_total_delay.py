# ruff: noqa: D103  names of tests are sentences
"""The example policy, against a solution by hand."""

from __future__ import annotations

import numpy as np
import pytest

from policies.parameters import describe
from policies.registry import make_policy, policy_class
from policies.testing import make_problem, make_table


def test_the_plugin_is_found_by_its_name() -> None:
    assert type(make_policy("total_delay", {"power": "2"})).__name__ == "TotalDelay"


def test_two_jobs_on_one_worker_share_it_by_the_square_roots_of_their_lengths() -> None:
    # Minimise r1/x1 + r2/x2 with x1 + x2 = 1: x is proportional to sqrt(r), here 1 : 3.
    problem = make_problem(make_table([[1.0], [1.0]]), capacity=[1], remaining_steps=[100, 900])
    allocation = make_policy("total_delay").allocate(problem)
    assert allocation.x[:, 0] == pytest.approx([0.25, 0.75], abs=1e-4)


def test_the_answer_keeps_within_the_cluster() -> None:
    rates = np.random.default_rng(0).uniform(1, 9, (12, 3))
    problem = make_problem(make_table(rates.tolist()), capacity=[2, 1, 1])
    allocation = make_policy("total_delay").allocate(problem)
    assert (allocation.usage(problem) <= problem.capacity + 1e-9).all()
    assert (allocation.time_fraction() <= 1 + 1e-9).all()


def test_every_parameter_changes_the_answer() -> None:
    values = {"power": ("1", "3")}
    assert set(values) == {known.name for known in describe(policy_class("total_delay"))}
    problem = make_problem(make_table([[1.0], [1.0]]), capacity=[1], remaining_steps=[100, 900])
    for name, texts in values.items():
        one, other = (make_policy("total_delay", {name: t}).allocate(problem).x for t in texts)
        assert abs(one - other).max() > 0.01, name
