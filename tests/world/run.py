"""Worlds from seeds: whole clusters in which everything goes wrong, and their invariants.

    python tests/world/run.py --seeds 1-50          these
    python tests/world/run.py --seconds 120         new ones for so long
    python tests/world/run.py --seeds 17 --trace    one of them, with all that happens in it

The same seed is the same world, bit for bit.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "chaos"), str(HERE.parent / "support")]

if "--plant" in sys.argv:  # before anything else is imported
    sys.path.append(str(HERE / "planted"))
    from plant import plant

    plant(sys.argv[sys.argv.index("--plant") + 1])

from seeded.world import Outcome, World  # noqa: E402 - its place is found above


def main() -> int:
    """Read the arguments, run, and return how many worlds went wrong, 100 at most."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=_seeds, help="such as 7 or 1-50")
    parser.add_argument("--seconds", type=float, help="try new seeds for so long")
    parser.add_argument("--trace", action="store_true", help="print all that happens")
    parser.add_argument("--log", action="store_true", help="print what the programs log")
    parser.add_argument("--verbose", action="store_true", help="print a line for each seed")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first that fails")
    parser.add_argument("--plant", help="with a fault in it; see planted/plant.py")
    options = parser.parse_args()
    logging.basicConfig(level=logging.DEBUG if options.log else logging.CRITICAL + 1)
    warnings.simplefilter("ignore")
    seeds = options.seeds or _new_seeds()
    until = time.monotonic() + (options.seconds or float("inf"))
    if options.seeds is None and options.seconds is None:
        until = time.monotonic() + 60.0
    began_s, virtual_s, failed, count = time.process_time(), 0.0, [], 0
    for seed in seeds:
        outcome = World(seed, trace=options.trace).run()
        count, virtual_s = count + 1, virtual_s + outcome.until_s
        if options.verbose or options.trace:
            print(f"seed {seed}: {outcome.digest[:16]}, {outcome.until_s:.0f} s, {outcome.counts}")
        if outcome.problems:
            failed.append(seed)
            tell(outcome)
            if options.fail_fast:
                break
        if time.monotonic() > until:
            break
    cpu_s = time.process_time() - began_s
    print(
        f"{count} worlds of {virtual_s:.0f} s in {cpu_s:.0f} s of processor time, "
        f"{60 * count / max(cpu_s, 1e-9):.0f} a minute; {len(failed)} went wrong"
        + (f": {failed}" if failed else "")
    )
    return min(len(failed), 100)


def tell(outcome: Outcome) -> None:
    """Say what went wrong in a world, and how to see it again."""
    print(f"seed {outcome.seed} went wrong:")
    for problem in outcome.problems[:8]:
        print(f"    {problem[:700]}")
    print(f'    again: make test-world ARGS="--seeds {outcome.seed} --trace"', flush=True)


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _new_seeds() -> range:
    first = random.SystemRandom().randrange(10**8) * 10_000
    print(f"new seeds, from {first} on", flush=True)
    return range(first, first + 10_000)


if __name__ == "__main__":
    sys.exit(main())
