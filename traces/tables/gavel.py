"""Gavel's throughput table (JSON).

The format is that of the artifact of Narayanan et al., "Heterogeneity-Aware Cluster Scheduling
Policies for Deep Learning Workloads" (OSDI 2020).
"""

from __future__ import annotations

import ast
import json
import math
from typing import TYPE_CHECKING, Any, NoReturn

from scheduler.domain.throughputs.throughput import ProfileKey, ThroughputTable
from scheduler.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ALONE = "null"
#: Suffix of worker types for gangs on several nodes.
SPREAD = "_unconsolidated"


def parse_gavel_throughputs(
    text: str, *, path: str, unconsolidated: bool = False
) -> ThroughputTable:
    """Read Gavel's throughput table.

    The layout is worker type -> "('job type', scale factor)" -> "null" -> steps/s alone, and beside
    "null" the key of another job -> [steps/s of this one, of the other one] while they share.

    Args:
        text: the JSON.
        path: the file's name, for messages.
        unconsolidated: keep the worker types ``<type>_unconsolidated``.

    Raises:
        TraceError: the JSON is malformed; names the place and the value.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(
            f"the JSON is corrupt: {error.msg} in column {error.colno}",
            path=path,
            line=error.lineno,
        ) from error
    return _TableReader(text, path).read(data, unconsolidated=unconsolidated)


class _TableReader:
    """Turns Gavel's nested objects into a table; keeps the text to find lines for messages."""

    def __init__(self, text: str, path: str) -> None:
        self._text = text
        self._path = path
        self._keys: dict[str, ProfileKey] = {}
        self._isolated: dict[ProfileKey, dict[str, float]] = {}
        self._shared: dict[tuple[ProfileKey, ProfileKey], dict[str, tuple[float, float]]] = {}

    def read(self, data: Any, *, unconsolidated: bool) -> ThroughputTable:
        left_out = []
        for worker_type, rows in self._entries(data, ()):
            if worker_type.endswith(SPREAD) and not unconsolidated:
                left_out.append(worker_type)
                continue
            for name, row in self._entries(rows, (worker_type,)):
                self._read_row(worker_type, name, row)
        if not self._isolated:
            raise TraceError("the table has no rows; give at least one", path=self._path)
        return ThroughputTable(
            isolated=self._isolated,
            shared=self._shared,
            source=self._path,
            left_out=tuple(left_out),
        )

    def _read_row(self, worker_type: str, name: str, row: Any) -> None:
        place = (worker_type, name)
        key = self._key(name, place)
        seen_alone = False
        for other, value in self._entries(row, place):
            if other == _ALONE:
                seen_alone = True
                steps_per_s = self._steps(value, (*place, other))
                self._isolated.setdefault(key, {})[worker_type] = steps_per_s
                continue
            pair = self._pair(value, (*place, other))
            partner = self._key(other, (*place, other))
            self._shared.setdefault((key, partner), {})[worker_type] = pair
            self._shared.setdefault((partner, key), {}).setdefault(worker_type, pair[::-1])
        if not seen_alone:
            self._fail('the entry "null" (steps/s alone) is missing; add it', place, None)

    def _entries(self, value: Any, place: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        if not isinstance(value, dict):
            self._fail("this must be a JSON object", place, value)
        yield from value.items()

    def _key(self, name: str, place: tuple[str, ...]) -> ProfileKey:
        if name not in self._keys:
            self._keys[name] = self._parse_key(name, place)
        return self._keys[name]

    def _parse_key(self, name: str, place: tuple[str, ...]) -> ProfileKey:
        try:
            key = ast.literal_eval(name)
        except (ValueError, SyntaxError):
            key = None
        match key:
            case (str(job_type), int(scale_factor)) if scale_factor >= 1:
                known: ProfileKey = (job_type, scale_factor)
            case _:
                self._fail("a key must read \"('job type', scale factor)\"", place, name)
        return known

    def _pair(self, value: Any, place: tuple[str, ...]) -> tuple[float, float]:
        if not isinstance(value, list) or len(value) != 2:
            self._fail("a pair must be [steps/s of this job, of the other]", place, value)
        return self._steps(value[0], place), self._steps(value[1], place)

    def _steps(self, value: Any, place: tuple[str, ...]) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            self._fail("steps/s must be a finite number >= 0", place, value)
        return float(value)

    def _fail(self, problem: str, place: tuple[str, ...], value: Any) -> NoReturn:
        at = 0
        for name in place:
            at = max(self._text.find(json.dumps(name), at), at)
        raise TraceError(
            problem,
            path=self._path,
            line=self._text.count("\n", 0, at) + 1,
            field=" / ".join(place) or "table",
            value=value,
        )
