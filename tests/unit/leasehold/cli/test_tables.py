"""Tables fit the terminal; piped, nothing of them is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.cli.display import output
from leasehold.cli.display.columns import column_of, fit_columns, laid_out
from leasehold.cli.display.output import print_text, table

LONG = "a-very-long-name-of-a-job-that-somebody-has-made-up-for-a-night"


@pytest.fixture
def terminal(monkeypatch):
    """Return what sets how wide the terminal is; None for a pipe."""

    def of(width):
        from rich.console import Console

        made = Console(width=width or output._UNBOUNDED, force_terminal=width is not None)
        monkeypatch.setattr(output, "console", lambda: made)

    return of


def lines(made):
    return made.plain.splitlines()


def test_piped_a_table_is_as_wide_as_it_needs_to_be(terminal):
    terminal(None)
    rows = [(f"{LONG}-{i}", "x" * 300, "many words " * 50, 1.5) for i in range(2)]
    made = lines(table(("job", "~name", "why", ">steps"), rows, spare=("why",)))
    assert len(made) == 3
    for row, line in zip(rows, made[1:], strict=True):
        assert line.split("  ")[0] == row[0]
        assert row[1] in line
        assert row[2].strip() in line
        assert line.endswith("1.5")


def test_names_that_are_too_long_lose_their_middle(terminal):
    terminal(80)
    rows = [(f"{LONG}-{i}", f"node-{LONG}", f"{LONG}, {LONG}", 12) for i in range(12)]
    made = lines(table(("job", "node", "others", ">steps"), rows))
    assert max(map(len, made)) <= 80
    begins = [line for line in made[1:] if line.startswith("a-very-long")]
    assert [line.split("  ")[0].rsplit("-", 1)[1] for line in begins] == [str(i) for i in range(12)]
    assert all(line.split()[-1] == "12" for line in begins)  # figures are whole


def test_a_field_s_value_goes_on_in_the_next_line(terminal):
    terminal(40)
    made = lines(table(("field", "=value"), [("job", LONG), ("command", f"python {LONG}")]))
    assert max(map(len, made)) <= 40
    assert "".join(line[9:].strip() for line in made).count(LONG) == 2


def test_lists_are_parted_behind_their_commas(terminal):
    terminal(30)
    made = lines(table(("hook", "on"), [("ops", "job_failed,node_lost,job_completed")]))
    assert made[1:] == ["ops   job_failed,node_lost,", "      job_completed"]


def test_columns_are_spared_in_their_order_before_anything_is_shortened(terminal):
    row = ("job-1", "words " * 4, "more " * 4, "12345")
    for width, kept in ((80, 4), (45, 3), (25, 2)):
        terminal(width)
        headings = ("job", "one", "two", ">figure")
        made = lines(table(headings, [row], spare=("two", "one")))
        assert len(made[0].split()) == kept
        assert "\N{HORIZONTAL ELLIPSIS}" not in "".join(made)


def test_headings_of_figures_take_several_lines(terminal):
    terminal(30)
    made = lines(table(("project", ">most workers at once", ">jobs"), [("a", 1, 2)] * 2))
    assert max(map(len, made)) <= 30
    assert len(made) > 3


def test_long_lines_of_text_are_folded_beneath_their_beginning(terminal, capsys):
    text = "  " + "word " * 20 + "\n\nshort"
    terminal(30)
    print_text(text)
    said = capsys.readouterr().out.splitlines()
    assert max(map(len, said)) <= 30
    assert said[1].startswith("  word")
    assert said[-2:] == ["", "short"]
    terminal(None)
    print_text(text)
    assert capsys.readouterr().out == text + "\n"


CELLS = st.text("ab ,\u4e00", max_size=40)


@given(
    st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=5),
    st.lists(st.sampled_from(["head", "~two words", "=x", "a,b"]), min_size=5, max_size=5),
    st.integers(70, 120),
)
def test_whatever_the_cells_are_the_table_fits(cells, headings, width):
    columns = [
        column_of(heading, column, whole=i == 0)
        for i, (heading, column) in enumerate(zip(headings, cells, strict=False))
    ]
    from rich.cells import cell_len

    kept = fit_columns(columns, (), width=width, wrapped=True)
    for row in laid_out(kept, width=width):
        assert all(cell_len("  ".join(line)) <= width for line in row)
