"""How closely rounds follow X: our mechanism beside the greedy rule of Gavel (OSDI 2020).

Both are given the same random allocations, each a mixture of full rounds, so that a perfect
schedule could realise them. Deviations are in rounds; restarts are jobs that began or changed
workers, per round.

    python benchmarks/rounds.py [--json] [--rounds 300] [--draws 4]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.settings import EngineSettings

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from leasehold_testing.mechanism import Deviation, credit_mechanism, follow, random_shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold_testing.mechanism import Mechanism
    from scheduler.domain.arrays import FloatArray, IntArray

GANGS, GANG_ODDS = (1, 2, 4, 8), (0.7, 0.1, 0.15, 0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kind of cluster and load."""

    name: str
    jobs: int
    capacity: tuple[int, ...]
    gangs: bool = False


CASES = (
    Case(name="one type", jobs=30, capacity=(12,)),
    Case(name="one type, crowded", jobs=100, capacity=(10,)),
    Case(name="three types", jobs=30, capacity=(6, 6, 6)),
    Case(name="three types, large", jobs=150, capacity=(36, 36, 36)),
    Case(name="five types", jobs=60, capacity=(3, 5, 9, 4, 6)),
    Case(name="gangs, one type", jobs=30, capacity=(16,), gangs=True),
    Case(name="gangs, three types", jobs=60, capacity=(12, 12, 12), gangs=True),
    Case(name="gangs, three types, large", jobs=150, capacity=(36, 36, 36), gangs=True),
)


def greedy_mechanism(x: FloatArray, gangs: IntArray, capacity: Sequence[int]) -> Mechanism:
    """Return the rule of Gavel, section 5: X over the share of a type's time received so far.

    Type after type, jobs are taken in order of priority while they fit; ties go to the larger
    deficit, then to the larger X.
    """
    received = np.zeros_like(x)

    def choose(credit: FloatArray, held: IntArray) -> tuple[IntArray, IntArray]:
        ran = np.flatnonzero(held >= 0)
        received[ran, held[ran]] += 1.0
        share = received / np.maximum(received.sum(axis=0), 1.0)
        priority = np.where(share > 0, x / np.where(share > 0, share, 1.0), 1e9 * x)
        chosen = np.full(len(x), -1, dtype=np.int64)
        for k, room in enumerate(capacity):
            free = room
            for i in np.lexsort((-x[:, k], -credit[:, k], -priority[:, k])).tolist():
                if x[i, k] > 0 and chosen[i] < 0 and gangs[i] <= free:
                    free -= int(gangs[i])
                    chosen[i] = k
        return chosen, chosen

    return choose


def measure(case: Case, *, rounds: int, draws: int) -> dict[str, Deviation]:
    """Run both mechanisms on a case; the worst, and the means, over the draws."""
    found: dict[str, list[Deviation]] = {"ours, no bonus": [], "ours": [], "greedy": []}
    usual = EngineSettings().keep_bonus
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        gangs = rng.choice(GANGS, p=GANG_ODDS, size=case.jobs) if case.gangs else np.ones(case.jobs)
        gangs = gangs.astype(np.int64)
        x = random_shares(rng, gangs, case.capacity)
        mechanisms = {
            "ours, no bonus": credit_mechanism(x, gangs, case.capacity, keep_bonus=0.0),
            "ours": credit_mechanism(x, gangs, case.capacity, keep_bonus=usual),
            "greedy": greedy_mechanism(x, gangs, case.capacity),
        }
        for name, mechanism in mechanisms.items():
            found[name].append(follow(mechanism, x, rounds=rounds))
    return {name: _together(deviations) for name, deviations in found.items()}


def _together(deviations: Sequence[Deviation]) -> Deviation:
    return Deviation(
        largest=max(d.largest for d in deviations),
        lag=max(d.lag for d in deviations),
        ahead=max(d.ahead for d in deviations),
        mean=float(np.mean([d.mean for d in deviations])),
        restarts=float(np.mean([d.restarts for d in deviations])),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=300, help="rounds per draw")
    parser.add_argument("--draws", type=int, default=4, help="random allocations per case")
    options = parser.parse_args()
    results = {
        case.name: measure(case, rounds=options.rounds, draws=options.draws) for case in CASES
    }
    if options.json:
        print(json.dumps({n: {m: asdict(d) for m, d in r.items()} for n, r in results.items()}))
        return
    columns = [f.name for f in fields(Deviation)]
    print(f"{'case':28}{'mechanism':16}" + "".join(f"{name:>10}" for name in columns))
    for name, row in results.items():
        for mechanism, deviation in row.items():
            figures = "".join(f"{getattr(deviation, c):>10.2f}" for c in columns)
            print(f"{name:28}{mechanism:16}{figures}")


if __name__ == "__main__":
    main()
