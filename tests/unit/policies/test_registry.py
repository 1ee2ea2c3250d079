"""Policies are found by name, built-in or plugged in; what cannot be used is named."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import ClassVar

import pytest

from policies import registry
from policies.base import Policy
from policies.parameters import parameter
from policies.registry import (
    BUILT_IN,
    PolicyPluginWarning,
    make_policy,
    policy_class,
    policy_names,
    policy_origin,
    usable_policies,
)
from scheduler.errors import UnknownPolicyError


@dataclass(frozen=True, kw_only=True)
class Mine(Policy):
    """Do nothing."""

    name: ClassVar[str] = "mine"
    level: float = parameter(1.0, help="A level.")

    def allocate(self, problem):
        raise NotImplementedError


NOT_A_POLICY = 3


def plugin(name, value, distribution="somebody"):
    point = EntryPoint(name=name, value=value, group=registry.GROUP)
    vars(point)["dist"] = SimpleNamespace(name=distribution)
    return point


@pytest.fixture
def plugged(monkeypatch):
    def use(*plugins):
        monkeypatch.setattr(registry, "entry_points", lambda group: list(plugins))

    # The test module's own name, so that an entry point can import from it.
    monkeypatch.setitem(__import__("sys").modules, "my_plugin", __import__("sys").modules[__name__])
    use()
    return use


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_built_in_policy_can_be_made_by_its_own_name(name) -> None:
    policy = make_policy(name)
    assert policy.name == name
    assert type(policy) is policy_class(name)
    assert type(policy).__doc__


def test_an_unknown_name_lists_what_there_is_and_what_was_meant(plugged) -> None:
    with pytest.raises(UnknownPolicyError, match="did you mean 'max_min_fairness'") as caught:
        make_policy("max_min_fairnes")
    for name in BUILT_IN:
        assert name in str(caught.value)


def test_a_plugin_is_used_by_the_name_of_its_entry_point(plugged) -> None:
    plugged(plugin("mine", "my_plugin:Mine"))
    assert make_policy("mine", {"level": "3"}) == Mine(level=3.0)
    assert "mine" in policy_names()
    assert usable_policies()["mine"] is Mine
    assert policy_origin("mine") == "somebody"
    assert policy_origin("fifo") == "built-in"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module:X", "importing it raised ModuleNotFoundError"),
        ("my_plugin:NOT_A_POLICY", "it is not a subclass of policies.base.Policy"),
        ("my_plugin:Mine", "its class is named 'mine'"),
    ],
)
def test_a_broken_plugin_is_skipped_with_a_warning_that_names_it(plugged, value, reason) -> None:
    plugged(plugin("broken", value))
    with pytest.warns(PolicyPluginWarning, match=f"'broken' .*of somebody.*{reason}"):
        assert "broken" not in usable_policies()
    with pytest.raises(UnknownPolicyError, match=f"'broken' .*cannot be used: {reason}") as caught:
        make_policy("broken")
    assert "did you mean" not in str(caught.value)


def test_a_plugin_cannot_hide_a_built_in_policy(plugged) -> None:
    plugged(plugin("fifo", "my_plugin:Mine"))
    with pytest.warns(PolicyPluginWarning, match="its name is taken by a built-in policy"):
        assert "fifo" in policy_names()
    assert type(make_policy("fifo")).__name__ == "Fifo"


def test_of_two_plugins_of_one_name_the_first_distribution_is_used_with_a_warning(plugged) -> None:
    plugged(plugin("mine", "other:Mine", "b-dist"), plugin("mine", "my_plugin:Mine", "a-dist"))
    with pytest.warns(PolicyPluginWarning, match="of b-dist.*taken by the plugin of a-dist"):
        assert policy_class("mine") is Mine


def test_a_plugin_that_is_listed_twice_by_its_own_distribution_is_no_duplicate(plugged) -> None:
    plugged(plugin("mine", "my_plugin:Mine"), plugin("mine", "my_plugin:Mine"))
    assert policy_class("mine") is Mine
    vars(registry.entry_points("")[0])["dist"] = None
    assert policy_origin("nobody") == "unknown"
