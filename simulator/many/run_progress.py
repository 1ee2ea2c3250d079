"""Display of the progress of runs: a bar each in a terminal or notebook, or lines in a log."""

from __future__ import annotations

import html
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from simulator.many.parallel import RunListener, RunOutcome
    from simulator.progress import Progress


#: Least seconds between updates of a notebook: its pages keep all updates.
_REDRAWN_EVERY_S: Final = 0.25


@contextmanager
def show_progress(labels: Sequence[str], *, log: bool = True) -> Iterator[RunListener]:
    """Yield a listener that shows the progress of runs.

    Args:
        labels: names of the runs.
        log: write a line at each end if there is neither a terminal nor a notebook.
    """
    if (display := _notebook()) is not None:
        shown = _Notebook(labels, display)
        try:
            yield shown
        finally:
            shown.clear()
        return
    from rich.console import Console  # noqa: PLC0415  not on the way to --help

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(labels) if log else Silent()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn  # noqa: PLC0415 - keeps the start quick
    from rich.progress import Progress as Bars  # noqa: PLC0415 - keeps the start quick

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Bars(*columns, console=console) as bars:
        yield _Bars(labels, bars)


def _notebook() -> Any:
    """Return the display function of the notebook that this code runs in, or None."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import display  # noqa: PLC0415 - it is there

    return display


class Silent:
    """Shows nothing."""

    def started(self, index: int) -> None:
        """Do nothing."""

    def progressed(self, index: int, progress: Progress) -> None:
        """Do nothing."""

    def ended(self, index: int, outcome: RunOutcome) -> None:
        """Do nothing."""


class _Notebook:
    """For notebooks: a bar for each run, removed when all runs have ended."""

    def __init__(self, labels: Sequence[str], display: Any) -> None:
        self._labels = labels
        #: Note beside each bar, and how full it is, 0 to 1.
        self._notes = ["waiting"] * len(labels)
        self._shares = [0.0] * len(labels)
        self._drawn_at = time.monotonic()
        self._handle = display(self._page(), raw=True, display_id=True)

    def started(self, index: int) -> None:
        """Show that it reads its inputs."""
        self._set(index, 0.0, "reading")

    def progressed(self, index: int, progress: Progress) -> None:
        """Move the bar to the jobs done."""
        note = f"{progress.jobs_done:,} of {progress.jobs:,} jobs, {progress.now_s / 3600:,.1f} h"
        self._set(index, progress.jobs_done / max(1, progress.jobs), note)

    def ended(self, index: int, outcome: RunOutcome) -> None:
        """Show how it ended."""
        self._set(index, float(outcome.result is not None), end_note(outcome))

    def clear(self) -> None:
        """Remove the bars."""
        self._handle.update({"text/html": "", "text/plain": ""}, raw=True)

    def _set(self, index: int, share: float, note: str) -> None:
        self._shares[index], self._notes[index] = share, note
        now = time.monotonic()
        if now - self._drawn_at >= _REDRAWN_EVERY_S:
            self._drawn_at = now
            self._handle.update(self._page(), raw=True)

    def _page(self) -> dict[str, str]:
        rows = [
            f"<tr><td>{html.escape(label)}</td><td><progress value='{share:.3f}'></progress></td>"
            f"<td>{html.escape(note)}</td></tr>"
            for label, share, note in zip(self._labels, self._shares, self._notes, strict=True)
        ]
        ended = sum(share == 1.0 for share in self._shares)
        text = f"{ended} of {len(self._labels)} runs have ended"
        return {"text/html": f"<table>{''.join(rows)}</table>", "text/plain": text}


class _Lines:
    """For logs: one line at each end."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self._ended = 0

    def started(self, index: int) -> None:
        """Do nothing yet."""

    def progressed(self, index: int, progress: Progress) -> None:
        """Do nothing yet."""

    def ended(self, index: int, outcome: RunOutcome) -> None:
        """Write how it ended, and how many runs have ended."""
        self._ended += 1
        count = f"[{self._ended}/{len(self._labels)}]"
        sys.stderr.write(f"{count} {self._labels[index]}: {end_note(outcome)}\n")
        sys.stderr.flush()


class _Bars:
    """For terminals: a bar each."""

    def __init__(self, labels: Sequence[str], bars: Bars) -> None:
        self._bars = bars
        self._tasks: list[TaskID] = [
            bars.add_task(label.replace("[", r"\["), start=False, total=None, note="waiting")
            for label in labels
        ]

    def started(self, index: int) -> None:
        """Start the bar."""
        self._bars.start_task(self._tasks[index])
        self._bars.update(self._tasks[index], note="reading")

    def progressed(self, index: int, progress: Progress) -> None:
        """Move the bar to the jobs done."""
        self._bars.update(
            self._tasks[index],
            completed=progress.jobs_done,
            total=progress.jobs,
            note=f"{progress.now_s / 3600:,.1f} h simulated",
        )

    def ended(self, index: int, outcome: RunOutcome) -> None:
        """Fill the bar, or show why the run failed."""
        if outcome.result is not None:
            jobs = outcome.result.summary.jobs
            self._bars.update(self._tasks[index], completed=jobs, total=jobs)
        self._bars.update(self._tasks[index], note=end_note(outcome))


def end_note(outcome: RunOutcome) -> str:
    """Return how a run ended, in a few words."""
    if outcome.result is None:
        return f"failed: {outcome.error}"
    summary = outcome.result.summary
    return f"average JCT {summary.average_jct_s / 3600:,.2f} h, {summary.cpu_s:,.1f} CPU s"
