"""Find policies by name: the built-in ones, and plugins of the group ``leasehold.policies``."""

from __future__ import annotations

import difflib
import importlib
import sys
import warnings
from contextlib import redirect_stdout
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from policies.base import Policy
from scheduler.errors import LeaseholdError, PolicyFaultError, UnknownPolicyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GROUP = "leasehold.policies"

#: name -> module:class. Imported on demand, so that naming one policy does not load all. Not entry
#: points, so that a source checkout that is not installed has them too.
BUILT_IN: dict[str, str] = {
    "allox": "policies.built_in.allox:AlloX",
    "alpha_fairness": "policies.built_in.alpha_fairness:AlphaFairness",
    "fifo": "policies.built_in.fifo:Fifo",
    "finish_time_fairness": "policies.built_in.finish_time_fairness:FinishTimeFairness",
    "gandiva": "policies.built_in.gandiva:Gandiva",
    "gittins": "policies.built_in.gittins:Gittins",
    "goodput": "policies.built_in.goodput:Goodput",
    "hierarchical": "policies.built_in.hierarchical:Hierarchical",
    "isolated": "policies.built_in.isolated:Isolated",
    "least_remaining_work": "policies.built_in.least_remaining_work:LeastRemainingWork",
    "makespan": "policies.built_in.makespan:Makespan",
    "max_min_fairness": "policies.built_in.max_min_fairness:MaxMinFairness",
    "max_throughput": "policies.built_in.max_throughput:MaxThroughput",
    "min_cost": "policies.built_in.min_cost:MinCost",
    "partitioned": "policies.built_in.partitioned:Partitioned",
    "proportional_fairness": "policies.built_in.proportional_fairness:ProportionalFairness",
    "shortest_job_first": "policies.built_in.shortest_job_first:ShortestJobFirst",
    "tiresias": "policies.built_in.tiresias:Tiresias",
    "water_filling": "policies.built_in.water_filling:WaterFilling",
}


class PolicyPluginWarning(UserWarning):
    """A plugin of the group ``leasehold.policies`` could not be used."""


def policy_names() -> tuple[str, ...]:
    """Return every name that can be used, sorted. Plugins are not imported."""
    return tuple(sorted({*BUILT_IN, *(plugin.name for plugin in _plugins())}))


def policy_class(name: str) -> type[Policy]:
    """Return the class of that name.

    Raises:
        UnknownPolicyError: there is no such policy, or its plugin cannot be used.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        built_in: type[Policy] = getattr(importlib.import_module(module), attribute)
        return built_in
    for plugin in _plugins():
        if plugin.name == name:
            return _load(plugin)
    raise UnknownPolicyError(_unknown(name))


def make_policy(name: str, params: Mapping[str, str] | None = None) -> Policy:
    """Build a policy from its name and the texts of its parameters.

    Args:
        name: as listed by ``policy_names``.
        params: text by parameter name.

    Raises:
        UnknownPolicyError: there is no such policy.
        ParameterError: a parameter has a wrong name, type or range.
        PolicyFaultError: a plugin's class cannot be built.
    """
    found = policy_class(name)
    try:
        return found.from_text(params or {})
    except LeaseholdError:
        raise
    except (Exception, SystemExit) as error:
        raise PolicyFaultError.of(name, error) from error


def usable_policies() -> dict[str, type[Policy]]:
    """Import and return every policy by name; a plugin that fails is left out with a warning."""
    found: dict[str, type[Policy]] = {}
    for name in policy_names():
        try:
            found[name] = policy_class(name)
        except UnknownPolicyError as error:
            warnings.warn(f"it is left out: {error}", PolicyPluginWarning, stacklevel=2)
    return found


def policy_origin(name: str) -> str:
    """Return ``built-in``, or the distribution that a plugin comes from."""
    if name in BUILT_IN:
        return "built-in"
    return next((_origin(plugin) for plugin in _plugins() if plugin.name == name), "unknown")


def _plugins() -> list[EntryPoint]:
    """Return the usable plugins: the first of each name, without those that hide a built-in."""
    kept: dict[str, EntryPoint] = {}
    for plugin in _in_order(entry_points(group=GROUP)):
        taken = "a built-in policy" if plugin.name in BUILT_IN else ""
        if plugin.name in kept:
            same = kept[plugin.name].value == plugin.value
            taken = "" if same else f"the plugin of {_origin(kept[plugin.name])}"
            if same:
                continue
        if taken:
            _warn(plugin, f"its name is taken by {taken}; rename its entry point")
        else:
            kept[plugin.name] = plugin
    return list(kept.values())


def _in_order(plugins: Iterable[EntryPoint]) -> list[EntryPoint]:
    return sorted(plugins, key=lambda p: (p.name, _origin(p), p.value))


def _load(plugin: EntryPoint) -> type[Policy]:
    try:
        with redirect_stdout(sys.stderr):  # its output is no part of a command's
            found = plugin.load()
    except (Exception, SystemExit) as error:  # a plugin may raise anything; the error names it
        reason = f"importing it raised {type(error).__name__}: {error}"
        raise UnknownPolicyError(_unusable(plugin, reason)) from error
    if not (isinstance(found, type) and issubclass(found, Policy)):
        reason = "it is not a subclass of policies.base.Policy"
        raise UnknownPolicyError(_unusable(plugin, reason))
    if getattr(found, "name", None) != plugin.name:
        reason = f"its class is named {getattr(found, 'name', None)!r}; make the two equal"
        raise UnknownPolicyError(_unusable(plugin, reason))
    return found


def _unusable(plugin: EntryPoint, reason: str) -> str:
    """Return the message that a plugin cannot be used, with the reason."""
    where = f"{plugin.value} of {_origin(plugin)}"
    return f"the plugin of policy '{plugin.name}' ({where}) cannot be used: {reason}"


def _warn(plugin: EntryPoint, reason: str) -> None:
    warnings.warn(
        f"policy plugin '{plugin.name}' ({plugin.value} of {_origin(plugin)}) is skipped: {reason}",
        PolicyPluginWarning,
        stacklevel=3,
    )


def _origin(plugin: EntryPoint) -> str:
    return plugin.dist.name if plugin.dist is not None else "an unnamed distribution"


def _unknown(name: str) -> str:
    names = policy_names()
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    return f"no policy is named '{name}'{hint}; there are: {', '.join(names)}"
