"""A grid of runs - arrival rate x policy x seed - that can be continued after a stop.

Every finished cell is a file, named by a hash of its inputs. So a sweep that was stopped, or that
gets more rates or seeds, runs only the missing cells.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from simulator.staging import staged_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from simulator.request import SimulationRequest
    from simulator.result import Summary

#: Grows when the meaning of a cell changes, so that older files do not count as current.
_FORMAT: Final = 1
#: Fields of a request that name files; their content counts.
_FILES: Final = ("trace", "throughputs", "cluster", "overheads", "failures")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCell:
    """One run of the grid.

    Attributes:
        rate_per_hour: mean arrivals per hour.
        seed: of the generated trace and of the run.
        request: the run.
    """

    rate_per_hour: float
    seed: int
    request: SimulationRequest

    @property
    def label(self) -> str:
        """The cell as shown to users."""
        return f"{self.request.label} rate {self.rate_per_hour:g}/h seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """The result of one cell.

    Attributes:
        policy: label of the policy.
        rate_per_hour: mean arrivals per hour.
        seed: of the cell.
        figures: the summary without timings, by key; None for unknown figures.
    """

    policy: str
    rate_per_hour: float
    seed: int
    figures: Mapping[str, str | int | float | None]

    def figure(self, key: str) -> float:
        """Return a figure, NaN if it is unknown."""
        value = self.figures.get(key)
        return float("nan") if value is None else float(value)


class CellStore:
    """Finished cells, a file each."""

    def __init__(self, folder: Path, *, version: str) -> None:
        """Open a store.

        Args:
            folder: the folder of the files.
            version: of the program; cells of another version are run again.
        """
        self._folder = folder
        self._version = version
        self._digests: dict[str, str] = {}

    def find(self, cell: SweepCell) -> CellResult | None:
        """Return the cell's result if it was finished before from the same inputs."""
        try:
            stored = json.loads(self._path(cell).read_text(encoding="utf-8"))
            figures = dict(stored["figures"])
        except (OSError, ValueError, KeyError, TypeError):
            return None  # not finished, or not readable: it is run again
        return _result(cell, figures)

    def put(self, cell: SweepCell, summary: Summary) -> CellResult:
        """Store a cell, whole or not at all, and return its result."""
        figures = summary.to_dict(timings=False)
        stored = {
            "policy": cell.request.label,
            "rate_per_hour": cell.rate_per_hour,
            "seed": cell.seed,
            "inputs": self._inputs(cell),
            "figures": figures,
        }
        with staged_file(self._path(cell)) as file:
            file.write(json.dumps(stored, indent=2) + "\n")
        return _result(cell, figures)

    def _path(self, cell: SweepCell) -> Path:
        text = json.dumps(self._inputs(cell), sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        policy = re.sub(r"[^\w.+=,-]+", "-", cell.request.label)
        return self._folder / f"{policy}-{cell.rate_per_hour:g}-{cell.seed}-{key}.json"

    def _inputs(self, cell: SweepCell) -> dict[str, Any]:
        """Return all inputs that determine the result; files count by their content."""
        inputs = asdict(cell.request)
        for name in _FILES:
            inputs[name] = self._digest(inputs[name])
        return {**inputs, "version": self._version, "format": _FORMAT}

    def _digest(self, name: str | None) -> str | None:
        """Return a file's hash, or a name that is no file as it is."""
        if name is None:
            return None
        if name not in self._digests:
            path = Path(name)
            content = path.read_bytes() if path.is_file() else None
            self._digests[name] = (
                name if content is None else f"sha256:{hashlib.sha256(content).hexdigest()}"
            )
        return self._digests[name]


def _result(cell: SweepCell, figures: Mapping[str, str | int | float | None]) -> CellResult:
    return CellResult(
        policy=cell.request.label,
        rate_per_hour=cell.rate_per_hour,
        seed=cell.seed,
        figures=figures,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A figure of one policy at one rate, over the seeds.

    Attributes:
        rate_per_hour: mean arrivals per hour.
        mean: over the seeds.
        low: the smallest.
        high: the largest.
        seeds: number of seeds.
    """

    rate_per_hour: float
    mean: float
    low: float
    high: float
    seeds: int


def curves_by_policy(results: Iterable[CellResult], key: str) -> dict[str, list[Point]]:
    """Return a figure against the rate, by policy in order of first appearance.

    Cells in which the figure is unknown are left out.
    """
    values: dict[str, dict[float, list[float]]] = {}
    for result in results:
        at_rate = values.setdefault(result.policy, {}).setdefault(result.rate_per_hour, [])
        value = result.figure(key)
        if value == value:  # noqa: PLR0124  not NaN
            at_rate.append(value)
    return {
        policy: [
            Point(
                rate_per_hour=rate,
                mean=sum(seen) / len(seen),
                low=min(seen),
                high=max(seen),
                seeds=len(seen),
            )
            for rate, seen in sorted(rates.items())
            if seen
        ]
        for policy, rates in values.items()
    }
