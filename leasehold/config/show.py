"""The configuration for people: values in force with their origins, and the reference."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leasehold.config.fields import describe
from leasehold.config.settings import ServerConfig
from leasehold.config.sources import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.config.fields import SettingInfo
    from leasehold.config.load import Loaded


def setting_rows(loaded: Loaded[Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield (key, value, origin) of every setting; passwords are masked."""
    for key in describe(type(loaded.config)):
        value: Any = loaded.config
        for part in key.split("."):
            value = getattr(value, part)
        if isinstance(value, str):
            value = mask_secrets(key, value)
        yield key, dict(value) if isinstance(value, Mapping) else value, loaded.origins[key]


def as_text(value: Any) -> str:
    """Return a value as TOML writes it; ``-`` for none."""
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {as_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, float):
        return "inf" if math.isinf(value) else f"{value:g}"
    if isinstance(value, tuple):
        return json.dumps(list(value))
    return json.dumps(value)


def reference_tables(root: type[Any] = ServerConfig) -> str:
    """Return every setting of a configuration as tables in Markdown, one for each section."""
    lines: list[str] = []
    section = None
    for info in describe(root).values():
        head = info.key.rpartition(".")[0]
        if head != section:
            section = head
            title = f"`[{head}]`" if head else "Outside of sections"
            lines += ["", f"## {title}", ""] if lines else [f"## {title}", ""]
            lines += ["| key | takes | default | variable | |", "|---|---|---|---|---|"]
        lines.append(_row(info))
    return "\n".join(lines) + "\n"


def _row(info: SettingInfo) -> str:
    name = info.key.rpartition(".")[2]
    default = info.derived or (as_text(info.default) if info.default is not None else "none")
    default = default if info.derived or default == "none" else f"`{default}`"
    variable = ", ".join(f"`{one}`" for one in (info.variable, *info.variables))
    if info.kind is Mapping:
        variable = f"`{info.variable}__NAME`"
    return f"| `{name}` | {info.words} | {default} | {variable} | {info.help} |"
