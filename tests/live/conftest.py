"""What several of the live suites need: a PostgreSQL of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold_testing.postgres import PrivatePostgres

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    programs = PrivatePostgres.find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    server = PrivatePostgres(programs)
    try:
        server.start()
        yield server
    finally:
        server.remove()
