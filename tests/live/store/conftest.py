"""Every store behind one fixture; PostgreSQL where its programs are installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold_testing.memory_store import MemoryStore
from scheduler.store.sql.store import SqlStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scheduler.store.protocol import Store


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a new, empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return str(request.getfixturevalue("postgres").new_database())


@pytest.fixture
def open_store() -> Iterator[Callable[[str], SqlStore]]:
    """Open stores that are closed after the test."""
    opened: list[SqlStore] = []

    def opener(url: str) -> SqlStore:
        opened.append(SqlStore.open(url))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, open_store: Callable[[str], SqlStore]
) -> Store:
    """Return an empty store of each kind."""
    if request.param == "memory":
        return MemoryStore()
    if request.param == "sqlite":
        return open_store(f"sqlite:///{tmp_path}/store.db")
    return open_store(request.getfixturevalue("postgres").new_database())
