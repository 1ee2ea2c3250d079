"""The table of changes is true of the sources: each change still goes to its listed files."""

import pytest

from leasehold_testing.changes import CHANGES, ROOT, SOURCES, Insertion, table

PAGE = ROOT / "docs" / "explanation" / "where-changes-go.md"


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_change_can_still_be_made(change):
    for path, text in change.applied().items():
        compile(text, path, "exec")
    for module, text in change.plugin.items():
        compile(text, module, "exec")
    compile(change.proof, change.proof_at, "exec")
    named = (*change.written, *change.suites)
    assert all((ROOT / path).exists() or (SOURCES / path).exists() for path in named)
    assert bool(change.edits) != bool(change.plugin)


def test_the_page_counts_what_the_changes_touch():
    page = PAGE.read_text()
    assert table() in page
    for change in CHANGES:
        row = next(line for line in page.splitlines() if line.startswith(f"| {change.name} | "))
        before, by_hand = (int(cell) for cell in row.split(" | ")[1:3])
        assert (before, by_hand) == (len(set(change.before)), len(change.by_hand))
        assert by_hand <= 2 < before or by_hand < before


def test_a_change_that_no_longer_fits_names_the_file_and_the_line():
    edit = Insertion(path="a.py", before="x = 1\n", text="y = 2\n")
    assert edit.applied("z = 0\nx = 1\n") == "z = 0\ny = 2\nx = 1\n"
    for source in ("x = 2\n", "x = 1\nx = 1\n"):
        with pytest.raises(LookupError, match=r"a\.py has [02] times 'x = 1"):
            edit.applied(source)
