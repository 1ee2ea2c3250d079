"""The clock that leases are measured on."""

from __future__ import annotations

import time


def lease_clock_s() -> float:
    """Return seconds since boot, time asleep included.

    CLOCK_BOOTTIME is the same for every process of the machine, so that a deadline can be handed
    from the agent to a supervisor, and it goes on while a laptop sleeps: a lease does, too.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)
