"""Faults on demand: a database that goes away, and a process that dies, around a commit."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from leasehold_testing.memory_store import MemoryStore
from scheduler.errors import StoreFullError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.store.protocol import Entry, Head


class SimulatedCrash(BaseException):
    """The process has died; only the stage may catch this."""


class Fault(enum.Enum):
    """What happens to a commit."""

    AWAY_BEFORE = "the database goes away before it"
    AWAY_AFTER = "the database goes away after it, before the answer"
    FULL = "there is no room for it"
    DEATH_BEFORE = "the process dies before it"
    DEATH_AFTER = "the process dies after it, before anything else"


class ShakyStore(MemoryStore):
    """A store in memory that fails when a test says so.

    Attributes:
        fault_of: called with every entry that is to be committed; returns what happens to it.
    """

    def __init__(self, fault_of: Callable[[Entry], Fault | None] = lambda _entry: None) -> None:
        super().__init__()
        self.fault_of = fault_of

    def commit(self, entry: Entry, *, token: int) -> Head:
        """Append an entry, or fail as planned."""
        fault = self.fault_of(entry)
        if fault is Fault.DEATH_BEFORE:
            raise SimulatedCrash
        if fault is Fault.AWAY_BEFORE:
            raise StoreUnavailableError("the database is away")
        if fault is Fault.FULL:
            raise StoreFullError("the database's disk is full; make room")
        head = super().commit(entry, token=token)
        if fault is Fault.DEATH_AFTER:
            raise SimulatedCrash
        if fault is Fault.AWAY_AFTER:
            raise StoreUnavailableError("the database has gone away")
        return head
