"""Each change of the table is made in a copy of the tree, and works."""

import pytest

from leasehold_testing.changes import CHANGES, ROOT, SOURCES, made


@pytest.mark.long
@pytest.mark.skipif(SOURCES != ROOT, reason="made in the sources alone")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_change_touches_what_the_table_says_and_works(change, tmp_path):
    outcome = made(change, tmp_path)
    assert outcome.passed, outcome.said
    assert outcome.by_hand == tuple(sorted(change.by_hand))
    assert outcome.written == tuple(sorted(change.written))
