"""Find sources of configurations by name: plugins of the group ``leasehold.sources``."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from scheduler.domain.sources import ConfigurationSource
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.metadata import EntryPoint

GROUP: Final = "leasehold.sources"


def source_names() -> tuple[str, ...]:
    """Return the names of all plugins, sorted, without importing them."""
    return tuple(sorted({plugin.name for plugin in entry_points(group=GROUP)}))


def make_sources(names: Iterable[str]) -> tuple[tuple[str, ConfigurationSource], ...]:
    """Make the sources of some names, in their order.

    Each entry point names a callable without arguments that returns a source.

    Raises:
        InputError: a name is unknown, given twice or used by two plugins, or its plugin fails; an
            operator must know that a requested source is missing.
    """
    made: dict[str, ConfigurationSource] = {}
    for name in names:
        if name in made:
            raise InputError(f"source '{name}' is named twice; name each once")
        made[name] = _make(name)
    return tuple(made.items())


def _make(name: str) -> ConfigurationSource:
    plugins = {p.value: p for p in entry_points(group=GROUP) if p.name == name}
    if not plugins:
        known = ", ".join(source_names()) or "none; install the package of one"
        raise InputError(f"no source of configurations is named '{name}'; there are: {known}")
    if len(plugins) > 1:
        raise InputError(
            f"source '{name}' is that of two plugins ({', '.join(sorted(plugins))}); uninstall one"
        )
    (plugin,) = plugins.values()
    try:
        source = plugin.load()()
    except Exception as error:  # a plugin may raise anything; name it
        raise InputError(f"{_called(plugin)} failed: {type(error).__name__}: {error}") from error
    if not isinstance(source, ConfigurationSource):
        raise InputError(
            f"{_called(plugin)} gives a {type(source).__name__}; it must be a "
            "scheduler.domain.sources.ConfigurationSource"
        )
    return source


def _called(plugin: EntryPoint) -> str:
    origin = plugin.dist.name if plugin.dist is not None else "an unnamed distribution"
    return f"source '{plugin.name}' ({plugin.value} of {origin})"
