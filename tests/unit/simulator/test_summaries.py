"""The comparison's table in terminals of several widths."""

from __future__ import annotations

import io
import re
from dataclasses import fields, replace

import pytest

from simulator.result import Summary
from simulator.tables.summaries import print_summaries

NUMBERS = {f.name: 2 for f in fields(Summary)}
FIFO = Summary(**{**NUMBERS, "policy": "fifo", "cluster": "t4:1", "window": "all", "seed": 0})
FAIR = replace(FIFO, policy="max_min_fairness", average_jct_s=7200.0, cost_usd=9.5)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _shown(file: io.StringIO) -> list[str]:
    print_summaries([FIFO, FAIR], file=file)
    return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()


@pytest.mark.parametrize("width", [50, 80, 120])
def test_a_narrow_terminal_shows_fewer_columns_and_cuts_none(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    lines = _shown(_Terminal())
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    assert "done" in lines[1]


def test_a_file_gets_every_column():
    lines = _shown(io.StringIO())
    assert "solve" in lines[0]
    assert "p50 (ms)" in lines[1]


def test_the_best_figure_of_a_column_is_starred():
    header, units, fifo, fair, note = _shown(io.StringIO())
    assert "average" in header
    assert "JCT (h)" in units
    assert "0.001*" in fifo
    assert "2.00 " in fair
    assert fair.count("*") == 0
    assert note == "* best of its column"


def test_costs_and_deadlines_are_left_out_where_there_are_none():
    free = replace(FIFO, cost_usd=0.0, slo_violations=0)
    file = io.StringIO()
    print_summaries([free], file=file)
    assert "cost" not in file.getvalue()
    assert "SLOs" not in file.getvalue()
    assert "best" not in file.getvalue()
