"""Fixtures and settings that every part's tests may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every run, and no failure because a shared machine was slow.
settings.register_profile("leasehold", derandomize=True, deadline=None, database=None)
settings.load_profile("leasehold")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real traces: $LEASEHOLD_SHARED_DATA, or ../shared/data."""
    named = os.environ.get("LEASEHOLD_SHARED_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[1] / "../shared/data"
    if not folder.is_dir():
        pytest.skip(
            f"no shared data at {folder}; LEASEHOLD_SHARED_DATA may name the folder with gavel/"
        )
    return folder.resolve()
