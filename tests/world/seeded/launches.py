"""Launches that take longer than a round: jobs get on nevertheless."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.estimation.launches import LEAST
from scheduler.domain.lease_life import RevokeReason

if TYPE_CHECKING:
    from scheduler.domain.facts import commands as do
    from seeded.jobs import JobProcess
    from seeded.world import World

#: Within this time after enough launches a scheduler knows how long they take: the report of a
#: node may come late, and the next round is planned after it.
KNOWN_S = 20.0


class Launches:
    """Looks at the leases that end before their jobs have done a step.

    Args:
        world: the world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        #: lease id -> when its launch was over; since the leader began.
        self._over_s: dict[int, float] = {}

    def began(self, process: JobProcess) -> None:
        """Note that the launch of a process is over."""
        self._over_s.setdefault(process.lease_id, self._world.loop.now_s)

    def loading(self) -> None:
        """Forget launches that a leader before may not have stored."""
        self._over_s.clear()

    def revoked(self, command: do.RevokeLease) -> None:
        """Look at a lease that another job takes the workers of."""
        world, scenario = self._world, self._world.scenario
        # These come before the worth of a launch.
        shared = scenario.quotas or scenario.bookings or scenario.budgets
        row = world.database.store.attempt(command.lease_id)
        if command.reason is not RevokeReason.OUTBID or not scenario.launch_s or shared:
            return
        known = [over_s for over_s in self._over_s.values() if over_s + KNOWN_S <= world.loop.now_s]
        if row is None or len(known) < LEAST:  # fewer launches do not count
            return
        lines = world.models[row.job_id].lines
        if not any(line.kind == "step" and line.lease == row.lease_id for line in lines):
            world.blame(f"{row} loses its workers to another job before the first step")
