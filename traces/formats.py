"""Find trace formats by name: built-in ones, and plugins of the group ``leasehold.traces``."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable  # noqa: TC003  the dataclass names it
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, Protocol

from scheduler.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from traces.trace import ParsedTrace

GROUP: Final = "leasehold.traces"

#: name -> module:attribute, in the order in which formats are tried. Imported on demand. Not entry
#: points, so that a source checkout that is not installed has them too.
BUILT_IN: Final[dict[str, str]] = {
    "gavel": "traces.readers.gavel:GAVEL",
    "shockwave": "traces.readers.gavel:SHOCKWAVE",
    "philly": "traces.readers.microsoft:PHILLY",
    "msr-itp": "traces.readers.microsoft:ITP",
    "csv": "traces.readers.native:NATIVE_CSV",
    "jsonl": "traces.readers.native:NATIVE_JSONL",
}


class TracePluginWarning(UserWarning):
    """A plugin of the group ``leasehold.traces`` could not be used."""


class Parser(Protocol):
    """Reads a whole file."""

    def __call__(self, text: str, *, path: str) -> ParsedTrace:
        """Return the jobs of the lines, in their order.

        Args:
            text: the file's content; never blank.
            path: its name, for messages.

        Raises:
            TraceError: a line is malformed; ``traces.files.Line`` builds it with the place.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFormat:
    """A format of workloads.

    Attributes:
        parse: reads a whole file.
        starts: whether a file has this format, judged by its first line that is neither blank nor
            begins with ``#``. The first format that says yes is used; built-in ones come before
            plugins.
        shape: a few words about the look of its files, for messages.
    """

    parse: Parser
    starts: Callable[[str], bool]
    shape: str


def format_names() -> tuple[str, ...]:
    """Return every usable name: built-in ones, then those of plugins, which are not imported."""
    return (*BUILT_IN, *sorted({p.name for p in entry_points(group=GROUP)} - BUILT_IN.keys()))


def trace_format(name: str) -> TraceFormat:
    """Return the format of that name.

    Raises:
        InputError: no format has that name, or its plugin cannot be used.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        built_in: TraceFormat = getattr(importlib.import_module(module), attribute)
        return built_in
    plugins = {p.value: p for p in entry_points(group=GROUP) if p.name == name}
    if not plugins:
        known = ", ".join(format_names())
        raise InputError(f"unknown trace format '{name}'; known are {known}")
    if len(plugins) > 1:
        raise InputError(
            f"trace format '{name}' is that of two plugins ({', '.join(sorted(plugins))}); "
            "uninstall one"
        )
    (plugin,) = plugins.values()
    return _loaded(plugin)


def plugin_formats() -> dict[str, TraceFormat]:
    """Import and return the plugins by name; one that fails is left out with a warning."""
    found: dict[str, TraceFormat] = {}
    for name in format_names()[len(BUILT_IN) :]:
        try:
            found[name] = trace_format(name)
        except InputError as error:
            warnings.warn(f"skipped: {error}", TracePluginWarning, stacklevel=2)
    return found


def _loaded(plugin: EntryPoint) -> TraceFormat:
    origin = plugin.dist.name if plugin.dist is not None else "an unnamed distribution"
    called = f"trace format '{plugin.name}' ({plugin.value} of {origin})"
    try:
        found = plugin.load()
    except Exception as error:  # a plugin may raise anything; the error names it
        raise InputError(f"{called} failed: {type(error).__name__}: {error}") from error
    if not isinstance(found, TraceFormat):
        raise InputError(
            f"{called} is a {type(found).__name__}; it must be a traces.formats.TraceFormat"
        )
    return found
