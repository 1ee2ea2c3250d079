"""How runs go, on stderr: a line each that moves in a terminal, a line at each end in a log."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from simulator.parallel import Listener, RunOutcome
    from simulator.progress import Progress


@contextmanager
def show_progress(labels: Sequence[str]) -> Iterator[Listener]:
    """Give a listener that shows how the runs of those names go."""
    from rich.console import Console  # noqa: PLC0415  not on the way to --help

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(labels)
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


class _Lines:
    """For logs: one line at each end."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self._ended = 0

    def started(self, index: int) -> None:
        """Say nothing yet."""

    def progressed(self, index: int, progress: Progress) -> None:
        """Say nothing yet."""

    def ended(self, index: int, outcome: RunOutcome) -> None:
        """Say how it ended, and how many have."""
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
        """Let the bar move."""
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
        """Fill the bar, or say why not."""
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
