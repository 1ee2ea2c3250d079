"""Tables of the reference are those that follow from the sources."""

import pytest

from leasehold_testing.written import DOCS, TABLES, rewritten


@pytest.mark.parametrize("page", TABLES)
def test_a_page_has_the_tables_that_the_program_declares(page):
    text = (DOCS / page).read_text()
    assert rewritten(page, text) == text, "run `make written`"


def test_a_page_without_a_place_for_its_table_is_named():
    with pytest.raises(ValueError, match=r"monitor\.md has 0 places for the table 'metrics'"):
        rewritten("how-to/monitor.md", "# Monitor\n")
