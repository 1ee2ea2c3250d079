"""Launches that take longer than a round: jobs get on nevertheless."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.lease_life import RevokeReason

if TYPE_CHECKING:
    from scheduler.domain.facts import commands as do
    from seeded.jobs import JobProcess
    from seeded.world import World

#: Within this time a scheduler knows how long launches of a job type take: the report of a node
#: may come late, and the next round is planned after it.
KNOWN_S = 20.0


class Launches:
    """Looks at the leases that end before their jobs have done a step.

    Args:
        world: the world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        #: (gang, time of a step) of each job type -> when its first launch was over.
        self._over_s: dict[tuple[int, float], float] = {}

    def began(self, process: JobProcess) -> None:
        """Note that the launch of a process is over."""
        self._over_s.setdefault(self._type_of(process.job), self._world.loop.now_s)

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
        over_s = None if row is None else self._over_s.get(self._type_of(row.job_id))
        if row is None or over_s is None or world.loop.now_s - over_s < KNOWN_S:
            return
        lines = world.models[row.job_id].lines
        if not any(line.kind == "step" and line.lease == row.lease_id for line in lines):
            world.blame(f"{row} loses its workers to another job before the first step")

    def _type_of(self, job_id: str) -> tuple[int, float]:
        order = self._world.orders[job_id]
        return order.gang, order.model["step_s"]
