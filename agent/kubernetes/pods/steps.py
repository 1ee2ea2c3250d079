"""Steps in the output of pods: the search, and when a lease's last figures have come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.kubernetes.pods.logs import output_file
from agent.logs.matching import Matching

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.kubernetes.pods.record import PodRecord


class PodSteps:
    """Has the output of a node's pods searched.

    Args:
        logs_dir: a folder per lease.
        on_change: called when the output of a lease was searched to its end.
    """

    def __init__(self, *, logs_dir: Path, on_change: Callable[[], None]) -> None:
        self._logs_dir = logs_dir
        self._matching = Matching(on_change=on_change)

    async def run(self) -> None:
        """Search until cancelled."""
        await self._matching.run()

    def begin(self, record: PodRecord) -> None:
        """Search a lease's output; of a gang only that of the first process."""
        lease = record.lease
        if lease.progress_regex is None or lease.rank or record.end is not None:
            return
        record.watch = self._matching.watch(
            lease.lease_id,
            expression=lease.progress_regex,
            files=(output_file(self._logs_dir / str(lease.lease_id), lease.rank),),
            state=record.found_file,
        )

    def all_in(self, record: PodRecord) -> bool:
        """Return whether the last figures of a lease have come, or the wait for them is over.

        Its pod has ended; its output may still be on its way through the API server.
        """
        watch = record.watch
        if watch is None or watch.finished:
            return True
        if record.output_over:
            self._matching.finish(watch)
        return record.patience_over()

    def end(self, lease_id: int) -> None:
        """Forget a lease."""
        self._matching.drop(lease_id)
