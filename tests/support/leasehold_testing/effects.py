"""A table of inputs, with two values of each and an observation that differs between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.config.agent_settings import AgentConfig
from leasehold.config.fields import describe
from leasehold.config.settings import ServerConfig
from scheduler.errors import LeaseholdError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Entry:
    """Two values of an input, and an observation that differs between them.

    Attributes:
        values: the two values.
        observe: composes the real parts with a value, and returns the result.
        composed: why the observation is a composed value; empty if it is behaviour.
        refused: whether the second value is refused, by an error that names the input.
    """

    values: tuple[Any, Any]
    observe: Callable[[Any], object]
    composed: str = ""
    refused: bool = False


def check_table(entries: Iterable[str], inputs: Iterable[str]) -> None:
    """Make sure that a table has one entry for each input, and no other entry.

    Raises:
        AssertionError: names the inputs without an entry, and the entries without an input.
    """
    listed, existing = set(entries), set(inputs)
    missing, unknown = sorted(existing - listed), sorted(listed - existing)
    assert not missing, f"no entry says what a change of these changes: {missing}"
    assert not unknown, f"these entries belong to nothing: {unknown}"


def check_effect(name: str, entry: Entry) -> None:
    """Make sure that a change of an input changes the observation, or is refused by its name.

    The first value is observed twice, so that an observation that is never the same fails.

    Raises:
        AssertionError: the change changes nothing, or the observation differs by itself.
    """
    one, other = entry.values
    first, again = entry.observe(one), entry.observe(one)
    assert first == again, f"{name}: two observations of {one!r} differ: {first!r}, {again!r}"
    if not entry.refused:
        second = entry.observe(other)
        assert first != second, f"{name}: {other!r} does as {one!r}: {first!r}"
        return
    with pytest.raises(LeaseholdError, match=name.rpartition(".")[2]):
        entry.observe(other)


#: Module of ``tests/live/settings`` -> the sections of the configuration with entries in it. Those
#: of all other sections, new ones among them, are in ``test_every_setting_of_keeping.py``.
SECTIONS = {
    "decisions": frozenset({"engine", "policy", "leases", "idle", "isolation", "budgets"}),
    "serving": frozenset({"server", "log"}),
    "neighbours": frozenset({"oidc", "kubernetes", "webhooks", "tracing"}),
}


def settings_of(module: str) -> list[str]:
    """Return the settings of the configuration file with entries in a module."""
    elsewhere = frozenset().union(*SECTIONS.values())
    return [
        key
        for key in describe(ServerConfig)
        if (section := key.partition(".")[0]) in SECTIONS.get(module, ())
        or (module == "keeping" and section not in elsewhere)
    ]


#: Sections of an agent's configuration with entries in ``test_every_setting_of_pods.py``. All
#: other settings of an agent have theirs in ``test_every_setting_of_the_agent.py``.
POD_SECTIONS = frozenset({"kubernetes", "start_timeout"})


def settings_of_agents(*, pods: bool) -> list[str]:
    """Return the settings of an agent: those of pods and of their start, or all others."""
    return [key for key in describe(AgentConfig) if (key.partition(".")[0] in POD_SECTIONS) == pods]
