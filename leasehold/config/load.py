"""From sources to one checked configuration; everything that is wrong is told at once."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from leasehold.config.fields import describe
from leasehold.config.plausibility import check, derive
from leasehold.config.settings import ServerConfig
from leasehold.config.sources import Given, Source, from_environment, from_file, from_flags
from scheduler.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT = "default"
_PARAMETERS = "policy.parameters."


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration and where it comes from.

    Attributes:
        config: checked; what can be derived is filled in.
        origins: key -> file, variable, flag, ``default`` or ``derived``.
        path: the file that was read, or None.
        warnings: what is out of date, a line each with the file, variable or flag.
    """

    config: ServerConfig
    origins: Mapping[str, str]
    path: Path | None
    warnings: tuple[str, ...] = ()


def load_config(
    *,
    path: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, tuple[str, Any]] | None = None,
    texts: Mapping[str, tuple[str, str]] | None = None,
) -> Loaded:
    """Read the configuration: defaults, then the file, the environment and the flags.

    Args:
        path: the file; by default the one that ``LEASEHOLD_CONFIG`` names, else
            ``leasehold/leasehold.toml`` in ``$XDG_CONFIG_HOME`` (``~/.config``), else
            ``/etc/leasehold/leasehold.toml``, else none.
        environment: the process' own by default.
        flags: key -> (flag as the user wrote it, value); a value None was not given.
        texts: key -> (flag as the user wrote it, text that is still to be read).

    Raises:
        ConfigError: lists every problem with the file, variable or flag where it stands.
    """
    environment = os.environ if environment is None else environment
    file = _find(path, environment)
    sources = [from_environment(environment), from_flags(flags or {}, texts or {})]
    if file is not None:
        sources.insert(0, from_file(file))
    problems = [problem for source in sources for problem in source.problems]
    given = _merge(sources)
    config, derived = derive(_build(given), environment)
    origins = _origins(given, derived)
    problems += check(config, origins)
    if problems:
        raise ConfigError(problems)
    return Loaded(
        config=config,
        origins=MappingProxyType(origins),
        path=file,
        warnings=tuple(warning for source in sources for warning in source.warnings),
    )


def _find(path: str | None, environment: Mapping[str, str]) -> Path | None:
    named = path or environment.get("LEASEHOLD_CONFIG")
    if named:
        return Path(named).expanduser()
    own = Path(environment.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    usual = (own / "leasehold/leasehold.toml", Path("/etc/leasehold/leasehold.toml"))
    return next((candidate for candidate in usual if candidate.is_file()), None)


def _merge(sources: list[Source]) -> dict[str, Given]:
    """Lay later sources over earlier ones.

    Parameters belong to the policy that they were given with: naming another one drops them.
    """
    merged: dict[str, Given] = {}
    for source in sources:
        name = source.values.get("policy.name")
        before = merged.get("policy.name")
        if name is not None and (before is None or name.value != before.value):
            merged = {k: v for k, v in merged.items() if not k.startswith(_PARAMETERS)}
        merged |= source.values
    return merged


def _build(given: Mapping[str, Given]) -> ServerConfig:
    sections: dict[str, Any] = {}
    values: dict[str, dict[str, Any]] = {}
    parameters: dict[str, str] = {}
    for key, one in given.items():
        section, _, name = key.rpartition(".")
        if key.startswith(_PARAMETERS):
            parameters[name] = one.value
        elif section:
            values.setdefault(section, {})[name] = one.value
        else:
            sections[name] = one.value
    values.setdefault("policy", {})["parameters"] = MappingProxyType(parameters)
    empty = ServerConfig()
    for section, changes in values.items():
        sections[section] = dataclasses.replace(getattr(empty, section), **changes)
    return ServerConfig(**sections)


def _origins(given: Mapping[str, Given], derived: set[str]) -> dict[str, str]:
    origins: dict[str, str] = {}
    for key, known in describe(ServerConfig).items():
        if key in given:
            origins[key] = given[key].origin
        elif key in derived:
            origins[key] = f"derived: {known.derived}"
        else:
            origins[key] = DEFAULT
    named = {one.origin for key, one in given.items() if key.startswith(_PARAMETERS)}
    if named:
        origins["policy.parameters"] = ", ".join(sorted(named))
    return origins
