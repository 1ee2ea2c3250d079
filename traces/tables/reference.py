"""The reference worker type: the one that durations refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.errors import InputError

if TYPE_CHECKING:
    from scheduler.domain.throughputs.throughput import ThroughputTable

_USUAL = "v100"
_MOST = 0.9  # share of the profiles that it must run


def reference_worker_type(throughputs: ThroughputTable, wanted: str | None = None) -> str:
    """Return the worker type on which a job of duration d takes d seconds.

    Args:
        throughputs: the table.
        wanted: the choice of the user. None: ``v100`` (Gavel's) if it runs at least 9 of 10
            profiles, and else the fastest of the worker types that run the most profiles.

    Raises:
        InputError: the table does not know the wanted type.
    """
    known = throughputs.worker_types
    if wanted is not None and wanted not in known:
        raise InputError(
            f"reference worker type '{wanted}' is not in the throughput table; "
            f"it knows {', '.join(known)}"
        )
    if wanted is not None:
        return wanted
    rows = throughputs.isolated.values()
    if sum(row.get(_USUAL, 0.0) > 0.0 for row in rows) >= _MOST * len(rows):
        return _USUAL

    def standing(worker_type: str) -> tuple[int, float, str]:
        speeds = [row.get(worker_type, 0.0) for row in rows]
        wins = sum(s > 0.0 and s == max(r.values()) for s, r in zip(speeds, rows, strict=True))
        return sum(s > 0.0 for s in speeds), wins, worker_type

    return max(known, key=standing)
