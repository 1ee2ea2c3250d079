"""The soak test's own modules, which a script finds beside itself and pytest does not."""

import importlib
import sys
from pathlib import Path

import pytest


@pytest.fixture
def module(monkeypatch):
    """Import a module of this folder by name."""
    monkeypatch.syspath_prepend(Path(__file__).parent)

    def load(name):
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    yield load
    for name in ("evidence", "faults", "network", "processes", "soak"):
        sys.modules.pop(name, None)
