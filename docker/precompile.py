# ruff: noqa: INP001 - a script of the image
"""Compile every loop that the daemon uses, into the cache that NUMBA_CACHE_DIR names."""

import asyncio
import sys

from policies.registry import policy_names
from scheduler.engine.warm_up import warm_up
from scheduler.errors import LeaseholdError
from scheduler.runtime.protocol import PolicyChoice
from scheduler.runtime.solver import InlineSolver


async def main() -> None:
    """Run a round, and ask each policy a small question."""
    warm_up()
    for name in policy_names():
        try:
            await InlineSolver().warm(PolicyChoice(name=name))
        except LeaseholdError as error:  # it needs a parameter, or answers no such small question
            sys.stderr.write(f"{name} is not compiled ahead: {error}\n")


asyncio.run(main())
