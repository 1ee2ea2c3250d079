"""From sources to one checked configuration; all problems are reported at once."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from leasehold.config.agent_settings import AgentConfig, check_agent
from leasehold.config.fields import describe, setting_with_names
from leasehold.config.plausibility import (
    check,
    check_files,
    fill_derived,
    remarks_on,
    remarks_on_files,
)
from leasehold.config.settings import ServerConfig
from leasehold.config.sources import Given, SettingSource, from_environment, from_file, from_flags
from scheduler.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

C = TypeVar("C")

DEFAULT = "default"
_PARAMETERS = "policy.parameters."


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[C]):
    """A configuration and the origins of its values.

    Attributes:
        config: checked; derived values are filled in.
        origins: key -> file, variable, flag, ``default`` or ``derived``.
        path: the file that was read, or None.
        warnings: settings that are out of date, a line each with the file, variable or flag.
    """

    config: C
    origins: Mapping[str, str]
    path: Path | None
    warnings: tuple[str, ...] = ()


def load_config(
    *,
    path: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, tuple[str, Any]] | None = None,
    texts: Mapping[str, tuple[str, str]] | None = None,
    elsewhere: bool = False,
) -> Loaded[ServerConfig]:
    """Read the daemon's configuration: defaults, then the file, the environment and the flags.

    Args:
        path: the file; by default the one that ``LEASEHOLD_CONFIG`` names, else
            ``leasehold/leasehold.toml`` in ``$XDG_CONFIG_HOME`` (``~/.config``), else
            ``/etc/leasehold/leasehold.toml``, else none.
        environment: the process' own by default.
        flags: key -> (flag as the user wrote it, value); a value None was not given.
        texts: key -> (flag as the user wrote it, text that is still to be read).
        elsewhere: whether the daemon runs on another machine, so that its certificate and token
            need not be here.

    Raises:
        ConfigError: lists every problem with its file, variable or flag.
    """

    def all_checks(config: ServerConfig, origins: Mapping[str, str]) -> Iterator[str]:
        yield from check(config, origins)
        if not elsewhere:
            yield from check_files(config, origins)

    def all_remarks(config: ServerConfig, origins: Mapping[str, str]) -> Iterator[str]:
        yield from remarks_on(config, origins)
        if not elsewhere:
            yield from remarks_on_files(config, origins)

    return _load(
        ServerConfig,
        path=path,
        environment=environment,
        flags=flags,
        texts=texts,
        derive=fill_derived,
        check=all_checks,
        remark=all_remarks,
    )


def load_agent_config(
    *,
    path: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, tuple[str, Any]] | None = None,
) -> Loaded[AgentConfig]:
    """Read an agent's configuration, from the same places in the same order.

    Args:
        path: the file; by default the one that ``LEASEHOLD_AGENT_CONFIG`` names, else
            ``agent.toml`` in the folder of the daemon's.
        environment: the process' own by default.
        flags: key -> (flag as the user wrote it, value); a value None was not given.

    Raises:
        ConfigError: lists every problem with its file, variable or flag.
    """
    return _load(
        AgentConfig,
        path=path,
        environment=environment,
        flags=flags,
        texts=None,
        derive=lambda config, _: (config, set()),
        check=check_agent,
        remark=lambda _config, _origins: (),
    )


def _load(
    root: type[C],
    *,
    path: str | None,
    environment: Mapping[str, str] | None,
    flags: Mapping[str, tuple[str, Any]] | None,
    texts: Mapping[str, tuple[str, str]] | None,
    derive: Callable[[C, Mapping[str, str]], tuple[C, set[str]]],
    check: Callable[[C, Mapping[str, str]], Iterable[str]],
    remark: Callable[[C, Mapping[str, str]], Iterable[str]],
) -> Loaded[C]:
    environment = os.environ if environment is None else environment
    file = _find(root, path, environment)
    sources = [from_environment(root, environment), from_flags(root, flags or {}, texts or {})]
    if file is not None:
        sources.insert(0, from_file(root, file))
    problems = [problem for source in sources for problem in source.problems]
    given = _merge(sources)
    config, derived = derive(_build(root, given), environment)
    origins = _origins(root, given, derived)
    problems += check(config, origins)
    if problems:
        raise ConfigError(problems)
    return Loaded(
        config=config,
        origins=MappingProxyType(origins),
        path=file,
        warnings=(
            *(warning for source in sources for warning in source.warnings),
            *remark(config, origins),
        ),
    )


def _find(root: type[Any], path: str | None, environment: Mapping[str, str]) -> Path | None:
    named = path or environment.get(root.NAMED_BY)
    if named:
        return Path(named).expanduser()
    own = Path(environment.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    usual = (own / "leasehold" / root.FILE, Path("/etc/leasehold") / root.FILE)
    return next((candidate for candidate in usual if candidate.is_file()), None)


def _merge(sources: list[SettingSource]) -> dict[str, Given]:
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


def _build(root: type[C], given: Mapping[str, Given]) -> C:
    settings, empty = describe(root), root()
    flat: dict[str, Any] = {}
    for key, one in given.items():
        if key in settings:
            flat[key] = one.value
            continue
        taker = setting_with_names(key, settings)
        assert taker is not None
        flat.setdefault(taker, {})[key.removeprefix(f"{taker}.")] = one.value
    changes: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {}
    for key, found in flat.items():
        value = MappingProxyType(found) if isinstance(found, dict) else found
        section, _, name = key.rpartition(".")
        if section:
            sections.setdefault(section, {})[name] = value
        else:
            changes[name] = value
    for section, values in sections.items():
        changes[section] = dataclasses.replace(getattr(empty, section), **values)
    return root(**changes)


def _origins(root: type[Any], given: Mapping[str, Given], derived: set[str]) -> dict[str, str]:
    origins: dict[str, str] = {}
    settings = describe(root)
    for key, known in settings.items():
        named = {one.origin for name, one in given.items() if name.startswith(f"{key}.")}
        if key in given:
            origins[key] = given[key].origin
        elif key in derived:
            origins[key] = f"derived: {known.derived}"
        elif named:
            origins[key] = ", ".join(sorted(named))
        else:
            origins[key] = DEFAULT
    return origins
