"""The reference page speaks of every policy and of every parameter."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.parameters import describe
from policies.registry import BUILT_IN, policy_class

PAGE = Path(__file__).parents[3] / "docs/reference/policies.md"


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_the_policy_has_a_row_with_its_parameters_and_when_it_answers_anew(name) -> None:
    policy = policy_class(name)
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}` |"))
    for info in describe(policy):
        if (name, info.name) != ("partitioned", "params"):  # given as policy.NAME
            assert f"`{info.name}`" in row
    if name != "partitioned":
        assert row.endswith("| time |" if policy.time_dependent else "| changes |")
