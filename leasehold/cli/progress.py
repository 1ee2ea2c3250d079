"""A progress bar for simulations: simulated time and jobs done, on stderr."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simulator.progress import Progress


def simulated_time(seconds: float) -> str:
    """Write simulated seconds for people: ``3 d 04:05``."""
    days, rest = divmod(int(seconds), 86_400)
    return f"{days} d {rest // 3600:02d}:{rest % 3600 // 60:02d}"


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[Progress], None]]:
    """Show a bar while a simulation runs; nothing if stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs  simulated {task.fields[simulated]}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None, simulated=simulated_time(0.0))

        def report(progress: Progress) -> None:
            bar.update(
                task,
                total=progress.jobs,
                completed=progress.jobs_done,
                simulated=simulated_time(progress.now_s),
            )

        yield report
