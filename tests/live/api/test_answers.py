"""Answers as JSON."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import orjson
import pytest

from api.answers import dump_json, short_json
from scheduler.control.facts.requests import JobAction
from scheduler.views.types import AllocationView


def test_frozen_values_with_mappings_sets_and_arrays_have_a_form() -> None:
    view = AllocationView(
        policy="fifo",
        computed_s=None,
        solve_s=float("nan"),
        shares=MappingProxyType({"a": MappingProxyType({"v100": np.float64(0.5)})}),
        received={},
    )
    assert orjson.loads(dump_json(view)) == {
        "policy": "fifo",
        "computed_s": None,
        "solve_s": None,
        "shares": {"a": {"v100": 0.5}},
        "received": {},
    }
    assert (
        dump_json({"s": frozenset({"b", "a"}), "e": JobAction.HOLD})
        == b'{"s":["a","b"],"e":"hold"}'
    )
    with pytest.raises(TypeError):
        dump_json(object())


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (None, None),
        (True, True),
        (10**30, str(10**30)),
        ("text", "text"),
        ({"a": [1]}, {"a": [1]}),
        ("\ud800", "'\\ud800'"),
        (float("inf"), None),
    ],
)
def test_a_value_in_an_error_is_shown_in_a_form_that_is_json(value: object, form: object) -> None:
    assert short_json(value) == form


def test_a_long_value_in_an_error_is_cut() -> None:
    cut = short_json(["x" * 500])
    assert isinstance(cut, str)
    assert cut.endswith("...")
    assert len(cut) < 210
