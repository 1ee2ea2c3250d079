"""The tools for tests of plugins, under their name and under that of the release before."""

import importlib
import sys

import pytest

from policies import testing


def test_the_name_of_the_release_before_works_and_warns():
    sys.modules.pop("scheduler.testing.problems", None)
    with pytest.warns(DeprecationWarning, match=r"import both of its names from policies\.testing"):
        before = importlib.import_module("scheduler.testing.problems")
    assert before.make_problem is testing.make_problem
    assert before.make_table is testing.make_table
