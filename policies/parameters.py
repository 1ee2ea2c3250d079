"""Typed policy parameters: declared as dataclass fields, read from strings, checked by range."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.errors import ParameterError

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


def parameter(
    default: object,
    *,
    help: str,  # noqa: A002  the word that dataclass metadata and command lines use
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """Declare a parameter of a policy: a dataclass field with a description and a range.

    Args:
        default: the value if the user gives no other.
        help: one sentence for ``leasehold policies show``.
        ge: smallest allowed value.
        gt: value that it must exceed.
        le: largest allowed value.
        lt: value that it must stay below.
        choices: the allowed words.

    Returns:
        A dataclass field. It is typed ``Any`` so that ``alpha: float = parameter(1.0, ...)``
        checks.
    """
    bounds = {"ge": ge, "gt": gt, "le": le, "lt": lt, "choices": choices}
    metadata = {"help": help} | {k: v for k, v in bounds.items() if v is not None}
    if isinstance(default, Mapping):  # dataclasses take no unhashable default
        return field(default_factory=lambda: default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterInfo:
    """A parameter of a policy.

    Attributes:
        name: as users write it.
        type: in words: ``float``, ``float, optional``, ``numbers separated by commas``.
        default: the value if the user gives no other.
        range: the allowed values in words, or empty.
        help: one sentence.
    """

    name: str
    type: str
    default: object
    range: str
    help: str


def describe(policy: type[Any]) -> tuple[ParameterInfo, ...]:
    """Return the parameters of a policy class in the order of its fields.

    Raises:
        ParameterError: the class declares parameters and is no dataclass.
    """
    _check_decorated(policy)
    hints = _hints(policy)
    return tuple(
        ParameterInfo(
            name=f.name,
            type=_type_words(hints[f.name]),
            default=_default(f),
            range=_range_words(f.metadata),
            help=str(f.metadata.get("help", "")),
        )
        for f in dataclasses.fields(policy)
        if f.init
    )


def parse(policy: type[Any], given: Mapping[str, str]) -> dict[str, object]:
    """Turn ``--param name=text`` into typed values.

    Args:
        policy: a dataclass; the types of its fields say how a text is read.
        given: text by parameter name.

    Returns:
        Keyword arguments for the class; ranges are checked when it is built.

    Raises:
        ParameterError: an unknown name, a text that is no value of the field's type, or a class
            that declares parameters and is no dataclass.
    """
    _check_decorated(policy)
    hints = _hints(policy)
    known = [f.name for f in dataclasses.fields(policy) if f.init]
    values: dict[str, object] = {}
    for name, text in given.items():
        if name not in known:
            raise ParameterError(_unknown(policy, name, known))
        try:
            values[name] = _read(hints[name], text)
        except ValueError:
            raise ParameterError(
                f"policy '{policy.name}': parameter '{name}' has the value {text!r}, which is not "
                f"{_type_words(hints[name])}; {_known_words(known)}"
            ) from None
    return values


def as_text(policy: Any) -> dict[str, str]:
    """Return the parameters that differ from their defaults, as texts that ``parse`` reads."""
    given = ((f, getattr(policy, f.name)) for f in dataclasses.fields(policy) if f.init)
    return {f.name: _text(value) for f, value in given if value != _default(f)}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{_text(item)}" for key, item in value.items())
    return "none" if value is None else str(value)


def check_ranges(policy: Any) -> None:
    """Refuse a policy with fields outside their declared ranges.

    Raises:
        ParameterError: names policy, parameter, value and the allowed range; or the class declares
            parameters and is no dataclass.
    """
    _check_decorated(type(policy))
    for f in dataclasses.fields(policy):
        if not f.init:
            continue
        value = getattr(policy, f.name)
        items = value if isinstance(value, tuple) else (value,)
        if isinstance(value, Mapping):
            items = tuple(value.values())
        if not all(item is None or _within(item, f.metadata) for item in items):
            known = [g.name for g in dataclasses.fields(policy) if g.init]
            allowed = _range_words(f.metadata) or "a finite number"
            raise ParameterError(
                f"policy '{policy.name}': parameter '{f.name}' has the value {value!r}; "
                f"it must be {allowed}; {_known_words(known)}"
            )


def _check_decorated(policy: type[Any]) -> None:
    for owner in policy.__mro__:
        for name, value in vars(owner).items():
            if isinstance(value, dataclasses.Field):
                raise ParameterError(
                    f"policy '{getattr(policy, 'name', policy.__name__)}': '{name}' is declared as "
                    f"a parameter, and class {owner.__name__} is no dataclass; write "
                    "@dataclass(frozen=True, kw_only=True) above it"
                )


def _hints(policy: type[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(policy)
    except NameError as error:
        raise ParameterError(
            f"policy '{policy.name}': the type '{error.name}' of a parameter is not known at run "
            "time; import it outside of 'if TYPE_CHECKING'"
        ) from None


def _default(f: dataclasses.Field[Any]) -> object:
    if f.default_factory is not dataclasses.MISSING:
        return dict(f.default_factory())
    return None if f.default is dataclasses.MISSING else f.default


def _within(value: object, bounds: Mapping[str, Any]) -> bool:
    if "choices" in bounds:
        return value in bounds["choices"]
    if not isinstance(value, int | float):
        return True
    return (
        not math.isnan(value)
        and not value < bounds.get("ge", -math.inf)
        and not value > bounds.get("le", math.inf)
        and not value <= bounds.get("gt", -math.inf)
        and not value >= bounds.get("lt", math.inf)
    )


def _unknown(policy: type[Any], name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    return f"policy '{policy.name}' has no parameter '{name}'{hint}; {_known_words(known)}"


def _known_words(known: list[str]) -> str:
    return f"its parameters are: {', '.join(known)}" if known else "it has no parameters"


def _range_words(bounds: Mapping[str, Any]) -> str:
    if "choices" in bounds:
        return "one of " + ", ".join(bounds["choices"])
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    return " and ".join(f"{sign} {bounds[k]:g}" for k, sign in signs.items() if k in bounds)


def _type_words(hint: Any) -> str:
    hint, optional = _strip_optional(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        words = "words" if args[0] is str else "numbers"
        words += " separated by commas"
    elif origin is Mapping:
        words = "name:number pairs" if args[1] is float else "name:word pairs"
        words += " separated by commas"
    else:
        plain = {float: "a number", int: "a whole number", bool: "true or false", str: "a word"}
        words = plain[hint]
    return words + (", or none" if optional else "")


def _strip_optional(hint: Any) -> tuple[Any, bool]:
    args = typing.get_args(hint)
    if isinstance(hint, types.UnionType) and type(None) in args:
        return next(a for a in args if a is not type(None)), True
    return hint, False


def _read(hint: Any, text: str) -> object:
    hint, optional = _strip_optional(hint)
    text = text.strip()
    if optional and text.lower() in {"none", ""}:
        return None
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    parts = [part for part in text.split(",") if part.strip()]
    if origin is tuple:
        return tuple(_read(args[0], part) for part in parts)
    if origin is Mapping:
        pairs = [part.rsplit(":", 1) for part in parts]
        if any(len(pair) != 2 for pair in pairs):
            raise ValueError
        return types.MappingProxyType({k.strip(): _read(args[1], v) for k, v in pairs})
    if hint is bool:
        if text.lower() not in _TRUE + _FALSE:
            raise ValueError
        return text.lower() in _TRUE
    value: object = hint(text)
    return value
