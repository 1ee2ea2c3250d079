# ruff: noqa: D103  names of tests are sentences
"""The example format, as every command reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler.errors import TraceError
from traces import read_throughputs, read_trace

if TYPE_CHECKING:
    from pathlib import Path

ROWS = """Submit|ElapsedRaw|AllocTRES
2026-03-01T08:00:00|5400|billing=8,cpu=8,gres/gpu=1,mem=64G,node=1
2026-03-01T08:01:00|60|billing=8,cpu=8,mem=64G,node=1
2026-03-01T08:05:00|720|billing=32,cpu=32,gres/gpu=4,mem=256G,node=1
"""


def test_it_is_told_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(ROWS)
    trace = read_trace(path, throughputs=read_throughputs("bundled"))
    assert trace.format == "sacct"
    assert [(job.arrival_s, job.scale_factor) for job in trace.jobs] == [(0.0, 1), (300.0, 4)]


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(ROWS.replace("720", "-720"))
    with pytest.raises(TraceError, match=r"jobs\.txt:4: field 'ElapsedRaw' value '-720'"):
        read_trace(path, format="sacct", throughputs=read_throughputs("bundled"))
