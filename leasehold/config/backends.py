"""Find what runs an agent's jobs by name: ours, and plugins of the group ``leasehold.backends``."""

from __future__ import annotations

import importlib
import importlib.util
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from agent.backend import NodeBackend
from leasehold.config.backend_names import BUILT_IN, GROUP, unknown_backend
from leasehold.distributions import SCHEDULER
from scheduler.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.metadata import EntryPoint

    from leasehold.config.agent_settings import AgentConfig


def make_backend(config: AgentConfig, environment: Mapping[str, str]) -> NodeBackend:
    """Make the backend that a configuration names.

    Raises:
        InputError: its name is unknown, or it is a plugin's and cannot be used.
        MissingExtraError: a package that it needs is not installed.
    """
    if problem := unknown_backend(config.backend):
        raise InputError(problem)
    known = BUILT_IN.get(config.backend)
    if known is None:
        return _of_plugin(config, environment)
    if known.module and importlib.util.find_spec(known.module) is None:
        raise MissingExtraError(
            f"backend '{config.backend}' needs more than is installed here (there is no module "
            f"'{known.module}'); get it by: "
            f"pip install '{SCHEDULER}[{','.join(known.extras)}]'"
        )
    module, _, name = known.made_by.partition(":")
    made: NodeBackend = getattr(importlib.import_module(module), name)(config, environment)
    return made


def _of_plugin(config: AgentConfig, environment: Mapping[str, str]) -> NodeBackend:
    plugins = {p.value: p for p in entry_points(group=GROUP) if p.name == config.backend}
    if len(plugins) > 1:
        raise InputError(
            f"backend '{config.backend}' is that of two plugins ({', '.join(sorted(plugins))}); "
            "uninstall one"
        )
    (plugin,) = plugins.values()
    try:
        make: Callable[[AgentConfig, Mapping[str, str]], Any] = plugin.load()
        made = make(config, environment)
    except Exception as error:  # for any error of a plugin, the message names the plugin
        raise InputError(f"{_called(plugin)} failed: {type(error).__name__}: {error}") from error
    if not isinstance(made, NodeBackend):
        raise InputError(
            f"{_called(plugin)} gives a {type(made).__name__}; it must be an "
            "agent.backend.NodeBackend"
        )
    return made


def _called(plugin: EntryPoint) -> str:
    origin = plugin.dist.name if plugin.dist is not None else "an unnamed distribution"
    return f"backend '{plugin.name}' ({plugin.value} of {origin})"
