"""Descriptions of the settings of a configuration, and how their values are read."""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
import types
import typing
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.operator_settings import is_in_range, range_in_words

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")
_WORDS = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "text",
    tuple: "a list of texts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingInfo:
    """The description of a setting.

    Attributes:
        key: ``section.name``, or a name alone outside of sections.
        kind: ``int``, ``float``, ``bool``, ``str`` or ``Mapping``.
        optional: whether it may be absent.
        default: the value if none is given.
        help: one sentence.
        bounds: (name, value) of ``ge``, ``gt`` and ``le``.
        choices: the allowed words; any if empty.
        endless: whether ``inf`` is allowed.
        derived: from what the default is derived, in words.
        prefix: with which its environment variable begins.
        variables: further variables that set it.
    """

    key: str
    kind: type[Any]
    optional: bool
    default: object
    help: str
    bounds: tuple[tuple[str, float], ...]
    choices: tuple[str, ...]
    endless: bool
    derived: str
    prefix: str
    variables: tuple[str, ...]

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return self.prefix + self.key.upper().replace(".", "__")

    @property
    def words(self) -> str:
        """Its values, in words."""
        if self.choices:
            return " or ".join(self.choices)
        if self.kind is Mapping:
            return "names with values"
        limits = range_in_words(dict(self.bounds))
        return f"{_WORDS[self.kind]} {limits}".strip()

    def read(self, text: str) -> object:
        """Turn text of the environment into a value.

        Raises:
            ValueError: it is malformed; lists the allowed forms.
        """
        stripped = text.strip()
        if self.optional and stripped.lower() in {"", "none"}:
            return None
        if self.kind is bool:
            if stripped.lower() in _TRUE + _FALSE:
                return stripped.lower() in _TRUE
            raise ValueError(self.words)
        if self.kind is str:
            return self.check(text)
        if self.kind is tuple and stripped.startswith("["):
            try:
                return self.check(tomllib.loads(f"list = {stripped}")["list"])
            except tomllib.TOMLDecodeError:
                raise ValueError(self.words) from None
        if self.kind is tuple:
            return tuple(part for part in re.split(r"[,\s]+", stripped) if part)
        try:
            number: float = self.kind(stripped)
        except ValueError:
            raise ValueError(self.words) from None
        return self.check(number)

    def check(self, value: object) -> object:
        """Return a value in the setting's type.

        Raises:
            ValueError: it has another type or is out of range; names the right one.
        """
        if value is None and self.optional:
            return None
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if self.kind is tuple and isinstance(value, list | tuple):
            if not all(isinstance(part, str) for part in value):
                raise ValueError(self.words)
            return tuple(value)
        if not isinstance(value, self.kind) or (isinstance(value, bool) and self.kind is not bool):
            raise ValueError(self.words)
        if self.choices and value not in self.choices:
            raise ValueError(self.words)
        is_number = isinstance(value, int | float) and self.kind is not bool
        if is_number and not is_in_range(value, dict(self.bounds), endless=self.endless):
            raise ValueError(self.words)
        return value


def describe(root: type[Any]) -> dict[str, SettingInfo]:
    """Return every setting of a configuration by key, in the order of the classes' fields.

    Args:
        root: a dataclass of settings and of sections; ``PREFIX`` is that of its variables.
            Fields that are not declared with ``setting`` are left out.
    """
    return _described(typing.cast("Hashable", root))


@functools.cache
def _described(root: Any) -> dict[str, SettingInfo]:
    hints = typing.get_type_hints(root)
    found: dict[str, SettingInfo] = {}
    for outer in dataclasses.fields(root):
        hint = hints[outer.name]
        if dataclasses.is_dataclass(hint):
            inner_hints = typing.get_type_hints(hint)
            for inner in dataclasses.fields(hint):
                key = f"{outer.name}.{inner.name}"
                if inner.metadata:  # others are for code alone
                    found[key] = _info(root, key, inner_hints[inner.name], inner)
        else:
            found[outer.name] = _info(root, outer.name, hint, outer)
    return found


def setting_with_names(key: str, settings: Mapping[str, SettingInfo]) -> str | None:
    """Return the setting that takes names with values and of which a key is one."""
    takers = (known for known, info in settings.items() if info.kind is Mapping)
    return next((known for known in takers if key.startswith(f"{known}.")), None)


def _info(root: type[Any], key: str, hint: Any, declared: dataclasses.Field[Any]) -> SettingInfo:
    optional = False
    if typing.get_origin(hint) is types.UnionType:
        optional = True
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    if typing.get_origin(hint) is not None:
        hint = tuple if typing.get_origin(hint) is tuple else Mapping
    default = declared.default
    if declared.default_factory is not dataclasses.MISSING:
        default = declared.default_factory()
    told = declared.metadata
    return SettingInfo(
        key=key,
        kind=hint,
        optional=optional,
        default=default,
        help=told["help"],
        bounds=tuple(told["bounds"].items()),
        choices=told["choices"],
        endless=told["endless"],
        derived=told["derived"],
        prefix=root.PREFIX,
        variables=told["variables"],
    )
