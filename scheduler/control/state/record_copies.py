"""Shallow copies of control's records, for readers while control continues."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from scheduler.control.state.jobs import JobRecord
from scheduler.control.state.leases import LiveLease, Member
from scheduler.control.state.nodes import NodeState

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


def _copier(kind: type[_T]) -> Callable[[_T], _T]:
    """Return a function that copies dataclasses as ``copy.copy`` does, in a third of the time."""
    names = tuple(f.name for f in fields(kind))  # type: ignore[arg-type]  # it is a dataclass
    values: Callable[[_T], tuple[Any, ...]] = attrgetter(*names)
    return lambda one: kind(**dict(zip(names, values(one), strict=True)))


job_twin, node_twin = _copier(JobRecord), _copier(NodeState)
_lease_twin, _member_twin = _copier(LiveLease), _copier(Member)


def lease_twin(live: LiveLease) -> LiveLease:
    """Return a copy of a lease and of its members."""
    twin = _lease_twin(live)
    twin.members = tuple(map(_member_twin, live.members))
    return twin
