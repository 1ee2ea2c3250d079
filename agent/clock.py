"""The clock that leases are measured on."""

from __future__ import annotations

import time


def lease_clock_s() -> float:
    """Return seconds since boot, time asleep included.

    CLOCK_BOOTTIME is the same for every process of the machine, so that the agent can hand a
    deadline to a supervisor. It runs while a laptop sleeps, as a lease does.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)
