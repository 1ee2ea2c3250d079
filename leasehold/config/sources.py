"""Where settings come from. Every source gives values by key and says where each one stands."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leasehold.config.fields import SettingInfo, describe, setting_with_names
from scheduler.unreadable import not_text

if TYPE_CHECKING:
    from pathlib import Path

#: Variables that begin so are the agent's, and none of the daemon's.
_AGENT_PREFIX = "LEASEHOLD_AGENT__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A given value.

    Attributes:
        value: in the setting's type.
        origin: file, variable or flag.
    """

    value: Any
    origin: str


@dataclass(slots=True, kw_only=True)
class SettingSource:
    """The values of one source by key; its problems and out-of-date settings, by lines."""

    values: dict[str, Given] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def from_file(root: type[Any], path: Path) -> SettingSource:
    """Read a TOML file: a table per section.

    Args:
        root: the class of the configuration.
        path: the file.
    """
    source = SettingSource()
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        source.problems.append(f"{path}: this is not TOML: {error}")
        return source
    except UnicodeDecodeError as error:
        source.problems.append(f"{path}: this is {not_text(error.object)}")
        return source
    except OSError as error:
        source.problems.append(f"{path}: {error.strerror or error}")
        return source
    for key, value in _flatten(document).items():
        _take(source, root, key, value, origin=str(path), shown=f"{path}: {key}")
    return source


def from_environment(root: type[Any], environment: Mapping[str, str]) -> SettingSource:
    """Read ``LEASEHOLD_SECTION__NAME`` variables, and what settings name besides.

    Args:
        root: the class of the configuration, with the prefix of its variables.
        environment: all variables; those of other things are left alone.
    """
    source, prefix = SettingSource(), root.PREFIX
    for key, known in describe(root).items():
        for variable in reversed(known.variables):
            if text := environment.get(variable):
                _take(source, root, key, text, origin=variable, text=True)
    for variable, text in sorted(environment.items()):
        named = variable.removeprefix(prefix)
        foreign = variable.startswith(_AGENT_PREFIX) and prefix != _AGENT_PREFIX
        own = "__" in named or prefix.endswith("__") or named == "STATE_DIR"
        if named == variable or foreign or not own:
            continue
        key = named.lower().replace("__", ".")
        _take(source, root, key, text, origin=variable, text=True)
    return source


def from_flags(
    root: type[Any],
    flags: Mapping[str, tuple[str, Any]],
    texts: Mapping[str, tuple[str, str]],
) -> SettingSource:
    """Take what the command line gave.

    Args:
        root: the class of the configuration.
        flags: key -> (flag as the user wrote it, value); a value None was not given.
        texts: key -> (flag as the user wrote it, text that is still to be read).
    """
    source = SettingSource()
    for key, (flag, value) in flags.items():
        if value is not None:
            _take(source, root, key, value, origin=flag)
    for key, (flag, text) in texts.items():
        _take(source, root, key, text, origin=flag, text=True)
    return source


def _flatten(document: Mapping[str, Any]) -> dict[str, Any]:
    """Name what stands in tables by their keys; a parameter of the policy has three parts."""
    flat: dict[str, Any] = {}
    for name, value in document.items():
        if not isinstance(value, Mapping):
            flat[name] = value
            continue
        for inner, setting in value.items():
            key = f"{name}.{inner}"
            if isinstance(setting, Mapping):
                flat |= {f"{key}.{part}": _as_text(v) for part, v in setting.items()}
            else:
                flat[key] = setting
    return flat


def _as_text(value: Any) -> Any:
    """Return a policy's parameter as it would be written on the command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(str(_as_text(part)) for part in value)
    return str(value) if isinstance(value, str | int | float) else value


def _take(
    source: SettingSource,
    root: type[Any],
    key: str,
    value: Any,
    *,
    origin: str,
    shown: str = "",
    text: bool = False,
) -> None:
    settings, shown = describe(root), shown or origin
    known = settings.get(key)
    if key in root.GONE:
        source.warnings.append(
            f"{shown}: '{key}' is no setting any more: {root.GONE[key]}; take it out, since the "
            "next release refuses it"
        )
        return
    if known is None and setting_with_names(key, settings):
        if isinstance(value, str):
            source.values[key] = Given(value=value, origin=origin)
        else:
            source.problems.append(f"{shown}: {value!r} cannot be a parameter")
        return
    if known is None or known.kind is Mapping:
        source.problems.append(f"{shown}: {_unknown(root, key, settings)}")
        return
    try:
        taken = known.read(value) if text else known.check(value)
    except ValueError as error:
        source.problems.append(
            f"{shown}: {mask_secrets(key, repr(value))} is not allowed; give {error}"
        )
        return
    source.values[key] = Given(value=taken, origin=origin)


def _close(key: str, settings: Mapping[str, SettingInfo]) -> list[str]:
    """Return a setting with a similar name, in a section with a similar name; or none.

    A section that is right makes keys alike that have nothing else in common.
    """
    section, _, name = key.rpartition(".")
    names: dict[str, list[str]] = {}
    for other in settings:
        names.setdefault(other.rpartition(".")[0], []).append(other.rpartition(".")[2])
    for found in difflib.get_close_matches(section, names, n=3, cutoff=0.6):
        for close in difflib.get_close_matches(name, names[found], n=1, cutoff=0.6):
            return [f"{found}.{close}" if found else close]
    return []


def _unknown(root: type[Any], key: str, settings: Mapping[str, SettingInfo]) -> str:
    if key in settings:
        return f"'{key}' takes names with values; give {key}.NAME"
    name = key.rpartition(".")[2]
    near = [other for other in settings if other.rpartition(".")[2] == name]  # another section's
    near = near or _close(key, settings)
    hint = f"; did you mean '{near[0]}'?" if near else f"; `{root.REFERENCE}` lists all"
    return f"there is no setting '{key}'{hint}"


def mask_secrets(key: str, text: str) -> str:
    """Return a setting's text without its secrets: a database's password, keys."""
    if key == "secrets.keys":
        return "***"
    if key != "store.url":
        return text
    scheme, separator, rest = text.partition("://")
    credentials, at, host = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    masked = f"{scheme}{separator}{user}{colon}{'***' if colon else ''}{at}{host}"
    head, question, query = masked.partition("?")
    parts = ["password=***" if part.startswith("password=") else part for part in query.split("&")]
    return f"{head}{question}{'&'.join(parts)}"
