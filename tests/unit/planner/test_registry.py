"""Sources are found by name; what cannot be used is named."""

from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from planner import registry
from planner.registry import make_sources, source_names
from scheduler.domain.sources import ConfigurationSource
from scheduler.errors import InputError


class Mine(ConfigurationSource):
    def ways(self, key, cluster):
        return ()


def broken():
    raise RuntimeError("no licence")


def plugin(name, value, distribution="somebody"):
    point = EntryPoint(name=name, value=value, group=registry.GROUP)
    vars(point)["dist"] = SimpleNamespace(name=distribution)
    return point


@pytest.fixture
def plugged(monkeypatch):
    def use(*plugins):
        monkeypatch.setattr(registry, "entry_points", lambda group: list(plugins))

    # The test module's own name, so that an entry point can import from it.
    monkeypatch.setitem(__import__("sys").modules, "my_source", __import__("sys").modules[__name__])
    return use


def test_sources_are_made_in_the_order_asked_for(plugged):
    plugged(plugin("b", "my_source:Mine"), plugin("a", "my_source:Mine"))
    assert source_names() == ("a", "b")
    made = make_sources(["b", "a"])
    assert [name for name, _ in made] == ["b", "a"]
    assert all(isinstance(source, Mine) for _, source in made)
    assert make_sources([]) == ()


def test_a_plugin_that_is_listed_twice_by_its_own_distribution_is_no_duplicate(plugged):
    plugged(plugin("a", "my_source:Mine"), plugin("a", "my_source:Mine"))
    assert len(make_sources(["a"])) == 1


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["c"], "no source of configurations is named 'c'; there are: a, bad, far, no, two"),
        (["a", "a"], "'a' is named twice"),
        (["two"], "that of two plugins"),
        (["bad"], r"'bad' \(my_source:broken of somebody\) failed: RuntimeError: no licence"),
        (["far"], "'far' .* failed: ModuleNotFoundError"),
        (["no"], "gives a dict; it must be a scheduler.domain.sources.ConfigurationSource"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(plugged, names, reason):
    plugged(
        plugin("a", "my_source:Mine"),
        plugin("two", "my_source:Mine"),
        plugin("two", "other:Mine", "another"),
        plugin("bad", "my_source:broken"),
        plugin("far", "no_such_module:X"),
        plugin("no", "builtins:dict"),
    )
    with pytest.raises(InputError, match=reason):
        make_sources(names)
