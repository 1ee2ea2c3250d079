"""Columns: follow a job's configurations from one configuration table to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.configuration import ANYWHERE
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from scheduler.domain.arrays import IntArray
    from scheduler.domain.configuration import Configuration, ConfigurationTable


def follow_configurations(old: ConfigurationTable, new: ConfigurationTable) -> dict[int, IntArray]:
    """Follow the configurations of each profile to a new table.

    A configuration is matched by its demand, and among several of one demand by its locality and
    plan, if they still exist. A configuration that may span nodes never becomes one that may not.

    Args:
        old: the table so far; its profiles are the first ones of the new table.
        new: the table that takes its place, over the same worker types.

    Returns:
        For each profile with moved columns (J,): the new column of each old configuration,
        NONE if it is gone.
    """
    moved = {}
    for u, (before, after) in enumerate(zip(old.profiles, new.profiles, strict=False)):
        if before.configurations is after.configurations:
            continue
        columns = _matched(before.configurations, after.configurations)
        if columns != list(range(len(columns))):
            moved[u] = np.array(columns, dtype=np.int64)
    return moved


def _matched(old: tuple[Configuration, ...], new: tuple[Configuration, ...]) -> list[int]:
    """Return the position in ``new`` of each of ``old``; no position is used twice."""
    columns = [NONE] * len(old)
    free = list(range(len(new)))
    for exact in (True, False):
        for j, way in enumerate(old):
            if columns[j] == NONE:
                fits = (i for i in free if _same(way, new[i], exact=exact))
                columns[j] = next(fits, NONE)
                if columns[j] != NONE:
                    free.remove(columns[j])
    return columns


def _same(one: Configuration, other: Configuration, *, exact: bool) -> bool:
    if one.demand != other.demand:
        return False
    if exact:
        return (one.locality, one.plan) == (other.locality, other.plan)
    return other.locality in (one.locality, ANYWHERE)
