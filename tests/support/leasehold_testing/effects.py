"""A table of inputs: for each one two values, and an observation that tells them apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.errors import LeaseholdError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Entry:
    """Two values of an input, and what shows that they differ.

    Attributes:
        values: the two values.
        observe: composes the real thing with one of them, and returns what it does.
        composed: why a composed value is looked at and not behaviour; empty where it is behaviour.
    """

    values: tuple[Any, Any]
    observe: Callable[[Any], object]
    composed: str = ""


def check_table(entries: Iterable[str], inputs: Iterable[str]) -> None:
    """Make sure that a table has one entry for each input, and no other entry.

    Raises:
        AssertionError: names the inputs without an entry, and the entries without an input.
    """
    listed, existing = set(entries), set(inputs)
    missing, unknown = sorted(existing - listed), sorted(listed - existing)
    assert not missing, f"no entry says what a change of these changes: {missing}"
    assert not unknown, f"these entries belong to nothing: {unknown}"


def check_effect(name: str, entry: Entry) -> None:
    """Make sure that a change of an input changes what is observed, or is refused by its name.

    The first value is observed twice, so that an observation that is never the same fails.

    Raises:
        AssertionError: the change changes nothing, or the observation differs by itself.
    """
    first, again, second = (_observed(entry, entry.values[i]) for i in (0, 0, 1))
    assert first == again, f"{name}: two observations of {entry.values[0]!r} differ"
    assert first != second, f"{name}: {entry.values[1]!r} does as {entry.values[0]!r}: {first!r}"
    for found in (first, second):
        if isinstance(found, _Refused):
            assert name.rpartition(".")[2] in found, f"{name}: the refusal names it not: {found}"


class _Refused(str):
    """Why a value is refused."""

    __slots__ = ()


def _observed(entry: Entry, value: object) -> object:
    try:
        return entry.observe(value)
    except LeaseholdError as error:
        return _Refused(error)
