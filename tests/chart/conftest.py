"""Values files as helm renders them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for chart_rendering

from chart_rendering import CHART, rendered_file


@pytest.fixture(scope="session")
def everything():
    return rendered_file(CHART / "ci" / "everything-values.yaml")


@pytest.fixture(scope="session")
def ha():
    return rendered_file(CHART / "ci" / "postgresql-ha-values.yaml")


@pytest.fixture(scope="session")
def minimal():
    return rendered_file(CHART / "ci" / "minimal-values.yaml")
