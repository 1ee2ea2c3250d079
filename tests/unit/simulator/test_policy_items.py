"""How a list of policies is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.errors import ParameterError
from simulator.many.policy_items import PolicyItem, parse_policies


def test_names_are_parted_by_commas():
    assert [item.name for item in parse_policies(["fifo, makespan", "allox"])] == [
        "fifo",
        "makespan",
        "allox",
    ]


@pytest.mark.parametrize("flag", ["packed", "space_sharing"])
def test_options_follow_a_plus(flag):
    (item,) = parse_policies([f"max_min_fairness+{flag}+agnostic"])
    assert item == PolicyItem(name="max_min_fairness", params={}, agnostic=True, space_sharing=True)


def test_parameters_follow_a_colon_and_may_hold_commas():
    first, second = parse_policies(["tiresias:thresholds=1,2.5,inf=3,promote=8+packed,fifo"])
    assert first.params == {"thresholds": "1,2.5", "inf": "3", "promote": "8"}
    assert first.space_sharing
    assert second.name == "fifo"


def test_a_plus_inside_a_value_is_no_option():
    (item,) = parse_policies(["gittins:quantum=1e+4"])
    assert item.params == {"quantum": "1e+4"}


def test_the_same_policy_with_other_options_is_another_one():
    assert len(parse_policies(["fifo,fifo+packed,fifo:backfill=true"])) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no policies given"),
        ("fifo,fifo", "listed twice"),
        ("fifo+fast", "'fifo\\+fast' is not name"),
        ("=3", "'=3' is not name"),
        ("fifo:backfill", "'backfill' is not key=value"),
    ],
)
def test_what_cannot_be_read_is_named(text, message):
    with pytest.raises(ParameterError, match=message):
        parse_policies([text])


_NAMES = st.sampled_from(["fifo", "max_min_fairness", "a", "_b2"])
_ITEMS = st.builds(
    PolicyItem,
    name=_NAMES,
    params=st.dictionaries(
        _NAMES, st.sampled_from(["1", "0.5", "1e+4", "1,2,3", "policy.name", ""]), max_size=3
    ),
    agnostic=st.booleans(),
    space_sharing=st.booleans(),
)


@given(st.lists(_ITEMS, min_size=1, max_size=4, unique_by=str))
def test_what_is_written_is_what_is_read(items):
    texts = []
    for item in items:
        params = ",".join(f"{key}={value}" for key, value in item.params.items())
        text = f"{item.name}:{params}" if params else item.name
        texts.append(text + "+agnostic" * item.agnostic + "+packed" * item.space_sharing)
    assert parse_policies([",".join(texts)]) == items
