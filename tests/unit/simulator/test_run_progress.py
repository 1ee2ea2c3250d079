"""How runs are shown in a notebook, with a stand-in for its front end."""

from __future__ import annotations

import sys
import types

import pytest

from simulator.many import run_progress
from simulator.many.parallel import RunOutcome
from simulator.progress import Progress
from simulator.request import SimulationRequest

REQUEST = SimulationRequest(trace="t", throughputs="t", cluster="c", policy="fifo")


class Page:
    """Keeps a cell's output."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def display(self, data, *, raw, display_id):
        assert raw
        assert display_id
        self.shown.append(data)
        return self

    def update(self, data, *, raw):
        assert raw
        self.shown.append(data)


@pytest.fixture
def page(monkeypatch):
    """Return the page of a notebook that we seem to run in."""
    page = Page()
    shell = types.SimpleNamespace(kernel=object())
    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython = lambda: shell
    display.display = page.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(run_progress, "_REDRAWN_EVERY_S", 0.0)
    return page


def test_a_notebook_has_a_bar_for_each_run_and_nothing_at_the_end(page):
    with run_progress.show_progress(["fifo", "<fair>"]) as listener:
        listener.started(0)
        listener.progressed(0, Progress(now_s=7200.0, jobs_done=3, jobs=12))
        listener.ended(1, RunOutcome(request=REQUEST, error="no room"))
    drawn = [data["text/html"] for data in page.shown]
    assert "waiting" in drawn[0]
    assert "<progress value='0.250'></progress></td><td>3 of 12 jobs, 2.0 h" in drawn[2]
    assert "&lt;fair&gt;" in drawn[2]
    assert "failed: no room" in drawn[3]
    assert drawn[4] == ""


def test_a_notebook_is_not_flooded(page, monkeypatch):
    monkeypatch.setattr(run_progress, "_REDRAWN_EVERY_S", 3600.0)
    with run_progress.show_progress(["fifo"]) as listener:
        for done in range(100):
            listener.progressed(0, Progress(now_s=1.0, jobs_done=done, jobs=100))
    assert len(page.shown) == 2  # the first page, and the empty one at the end


def test_a_log_has_a_line_for_each_end_or_nothing(capsys):
    for log, lines in ((True, 1), (False, 0)):
        with run_progress.show_progress(["fifo"], log=log) as listener:
            listener.started(0)
            listener.ended(0, RunOutcome(request=REQUEST, error="no room"))
        assert len(capsys.readouterr().err.splitlines()) == lines
