"""How well unmeasured throughputs are inferred from known ones.

A share of a table's entries is hidden at random, so that every row keeps one at least. Each hidden
entry is then estimated, by ``planner.estimation.estimator`` (the job type's other scale factors
and a normal model of all rows) and by the ratio rule alone (factor of the row times factor of the
worker type, least squares in logarithms). Besides, whole job types are treated as new: of all their
rows a single entry is known. The error is |estimate / truth - 1|.

Usage: python benchmarks/estimator.py [--table PATH ...] [--seeds N] [--json]
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.estimation.completion import ratio_rule
from planner.estimation.estimator import Estimator
from traces.tables.throughputs import read_throughputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.arrays import FloatArray

#: (job type, scale factor, worker type) -> steps/s
Cells = dict[tuple[str, int, str], float]

HIDDEN = (0.3, 0.5)
NEW = "new type, 1 entry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Errors over all seeds; relative, but for ``deviation``.

    Attributes:
        table: file.
        hidden: the hidden figures.
        entries: hidden entries, all seeds together.
        median: of the estimator.
        p90: as above.
        ratio_median: of the ratio rule alone.
        ratio_p90: as above.
        deviation: root mean square of the log error over the deviation that was stated; 1 is
            honest, below 1 cautious.
        fit_ms: to complete every hidden entry, the model's fit included.
    """

    table: str
    hidden: str
    entries: int
    median: float
    p90: float
    ratio_median: float
    ratio_p90: float
    deviation: float
    fit_ms: float


def cells_of(path: str) -> Cells:
    table = read_throughputs(path)
    return {
        (job_type, scale, worker_type): steps_per_s
        for (job_type, scale), row in sorted(table.isolated.items())
        for worker_type, steps_per_s in sorted(row.items())
        if steps_per_s > 0.0
    }


def hide(cells: Cells, share: float, rng: np.random.Generator) -> list[tuple[str, int, str]]:
    """Choose entries to hide; the last one of a row stays."""
    order = list(cells)
    rng.shuffle(order)
    left: dict[tuple[str, int], int] = {}
    for job_type, scale, _ in cells:
        left[job_type, scale] = left.get((job_type, scale), 0) + 1
    hidden = []
    for job_type, scale, worker_type in order:
        if len(hidden) < share * len(cells) and left[job_type, scale] > 1:
            left[job_type, scale] -= 1
            hidden.append((job_type, scale, worker_type))
    return hidden


def by_ratio(known: Cells, wanted: Sequence[tuple[str, int, str]]) -> FloatArray:
    """Return log steps/s of the wanted entries by the ratio rule alone."""
    rows = {key: i for i, key in enumerate(sorted({(j, s) for j, s, _ in known}))}
    columns = {name: k for k, name in enumerate(sorted({w for _, _, w in known}))}
    logs = np.full((len(rows), len(columns)), np.nan)
    for (job_type, scale, worker_type), steps_per_s in known.items():
        logs[rows[job_type, scale], columns[worker_type]] = math.log(steps_per_s)
    job, factor = ratio_rule(logs)
    return np.array([job[rows[j, s]] + factor[columns[w]] for j, s, w in wanted])


def by_estimator(
    known: Cells, wanted: Sequence[tuple[str, int, str]]
) -> tuple[FloatArray, FloatArray, float]:
    """Return log steps/s and stated deviation of the wanted entries, and the seconds it took."""
    estimator = Estimator()
    for key, steps_per_s in known.items():
        estimator.observe(*key, steps=steps_per_s * 36000.0, seconds=36000.0)
    begin = time.perf_counter()
    found = [estimator.estimate(*key) for key in wanted]
    seconds = time.perf_counter() - begin
    logs = np.log([estimate.steps_per_s for estimate in found])
    return logs, np.array([estimate.relative_deviation for estimate in found]), seconds


def compare(path: str, share: float, seeds: int) -> Row:
    """Hide a share of the entries, once for each seed."""
    cells = cells_of(path)
    cases = []
    for seed in range(seeds):
        hidden = hide(cells, share, np.random.default_rng(seed))
        cases.append((cells, hidden, hidden))
    return judge(path, f"{share:.0%}", cases)


def newcomers(path: str) -> Row:
    """Treat each job type as new, known at scale factor 1 on one worker type, each in turn."""
    cells = cells_of(path)
    cases = []
    for job_type in sorted({j for j, _, _ in cells}):
        own = [key for key in cells if key[0] == job_type]
        single = [key for key in own if key[1] == 1]
        for kept in single:
            hidden = [key for key in own if key != kept]
            wanted = [key for key in single if key != kept]
            if wanted:
                cases.append((cells, hidden, wanted))
    return judge(path, NEW, cases)


def judge(
    path: str,
    what: str,
    cases: Sequence[tuple[Cells, list[tuple[str, int, str]], list[tuple[str, int, str]]]],
) -> Row:
    """Estimate the wanted figures from those that are not hidden, and compare with the truth."""
    errors, ratio_errors, scores, spent = [], [], [], []
    for cells, hidden, wanted in cases:
        away = set(hidden)
        known = {key: value for key, value in cells.items() if key not in away}
        truth = np.log([cells[key] for key in wanted])
        logs, deviation, seconds = by_estimator(known, wanted)
        errors.append(np.abs(np.expm1(logs - truth)))
        ratio_errors.append(np.abs(np.expm1(by_ratio(known, wanted) - truth)))
        scores.append((logs - truth) / deviation)
        spent.append(seconds)
    error, ratio = np.concatenate(errors), np.concatenate(ratio_errors)
    return Row(
        table=path.rpartition("/")[2],
        hidden=what,
        entries=len(error),
        median=float(np.median(error)),
        p90=float(np.percentile(error, 90)),
        ratio_median=float(np.median(ratio)),
        ratio_p90=float(np.percentile(ratio, 90)),
        deviation=float(np.sqrt(np.mean(np.concatenate(scores) ** 2))),
        fit_ms=1000.0 * float(np.median(spent)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--table", action="append", help="throughput tables; bundled by default")
    parser.add_argument("--seeds", type=int, default=20, help="draws of what is hidden")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    rows = []
    for path in args.table or ["bundled"]:
        rows += [compare(path, share, args.seeds) for share in HIDDEN]
        rows.append(newcomers(path))
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    names = ("table", "hidden", "entries", "median", "p90", "ratio rule", "p90", "honesty", "ms")
    print(f"| {' | '.join(names)} |")
    print("|---" * len(names) + "|")
    for row in rows:
        errors = (row.median, row.p90, row.ratio_median, row.ratio_p90)
        shown = " | ".join(f"{error:.1%}" for error in errors)
        print(
            f"| {row.table} | {row.hidden} | {row.entries} | {shown} | {row.deviation:.2f} | "
            f"{row.fit_ms:.1f} |"
        )


if __name__ == "__main__":
    main()
