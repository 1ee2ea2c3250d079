# ruff: noqa: INP001 - a script of the image, and of the Makefile
"""Compile every loop that the daemon uses.

They go into the cache that NUMBA_CACHE_DIR names, or else lie beside the sources.
"""

import sys

from policies.answering import PolicyAnswerer
from policies.registry import policy_names
from scheduler.engine.warm_up import warm_up
from scheduler.errors import LeaseholdError


def main() -> None:
    """Run a round, and ask each policy a small question."""
    warm_up()
    for name in policy_names():
        try:
            PolicyAnswerer().warm((name, ()))
        except LeaseholdError as error:  # it needs a parameter, or answers no such small question
            sys.stderr.write(f"{name} is not compiled ahead: {error}\n")


main()
