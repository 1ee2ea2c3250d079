"""The backends of agents, by name: ours, and plugins of the group ``leasehold.backends``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final

GROUP: Final = "leasehold.backends"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """A backend of ours.

    Attributes:
        made_by: module:function, from the agent's configuration and the environment to the backend.
        module: that it cannot do without, beside what every agent has; empty: none.
        extras: of the distribution, which bring it.
    """

    made_by: str
    module: str = ""
    extras: tuple[str, ...] = ()


BUILT_IN: Final[dict[str, BuiltIn]] = {
    "kubernetes": BuiltIn(
        made_by="leasehold.daemon.backends:pods",
        module="kubernetes",
        extras=("agent", "kubernetes"),
    ),
    "process": BuiltIn(made_by="leasehold.daemon.backends:processes"),
}


def backend_names() -> tuple[str, ...]:
    """Return every name that can be used, sorted. Plugins are not imported."""
    return tuple(sorted({*BUILT_IN, *(plugin.name for plugin in entry_points(group=GROUP))}))


def unknown_backend(name: str) -> str:
    """Say that no backend has that name; empty if one has it."""
    names = backend_names()
    return "" if name in names else f"no backend is named '{name}'; there are: {', '.join(names)}"
