"""Inputs that several of the tests here use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler.domain.throughputs.throughput import ThroughputTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def table() -> ThroughputTable:
    """Two job types that distribute and one that does not, on two worker types."""
    return ThroughputTable(
        isolated={
            ("a", 1): {"v100": 10.0, "k80": 2.0},
            ("a", 2): {"v100": 18.0, "k80": 4.0},
            ("b", 1): {"v100": 4.0, "k80": 0.0},
            ("b", 4): {"v100": 12.0},
            ("solo", 1): {"v100": 5.0, "k80": 5.0},
        },
        shared={
            (("a", 1), ("b", 1)): {"v100": (6.0, 3.0)},
            (("b", 1), ("a", 1)): {"v100": (3.0, 6.0)},
        },
        source="by hand",
    )


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Write a file into a folder of the test and return its path."""

    def _write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return _write
