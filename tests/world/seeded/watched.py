"""The solver, the link and the service of a world, which record their actions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from leasehold_testing.inline_solver import InlineSolver
from policies.answering import PolicyAnswerer
from scheduler.errors import SolveError
from scheduler.runtime.service import LiveService

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from agent.link.http_link import HttpLink
    from scheduler.control.facts.requests import PolicyChoice
    from scheduler.domain.answers import Solved
    from scheduler.domain.problem import Problem
    from scheduler.protocol.desired import Desired
    from scheduler.runtime.driver.driver import Driver, Told
    from seeded.machines import Machine


class WorldSolver(InlineSolver):
    """Answers after a while; a newer question takes the place of one that waits.

    Args:
        chance: how long it takes, and whether it fails.
        mean_s: how long it takes.

    Attributes:
        fails: part of the questions to which there is no answer.
        asked: called with each problem.
        done: as above, as soon as it is answered, or is not.
    """

    def __init__(self, chance: random.Random, mean_s: float) -> None:
        super().__init__(PolicyAnswerer())
        self._chance, self._mean_s = chance, mean_s
        self.fails: Callable[[], float] = lambda: 0.0
        self.asked: Callable[[Problem], None] = lambda _problem: None
        self.done: Callable[[Problem], None] = lambda _problem: None

    async def solve(self, policy: PolicyChoice, problem: Problem) -> Solved:
        """Answer a problem."""
        self.asked(problem)
        took_s = self._chance.expovariate(1.0 / self._mean_s)
        await asyncio.sleep(took_s)
        self.done(problem)
        if self._chance.random() < self.fails():
            raise SolveError(f"policy '{policy.name}' did not answer in time")
        return replace(await super().solve(policy, problem), solve_s=took_s)


class WatchedLink:
    """The agent's link, which keeps the ends of leases in the newest set.

    Args:
        link: the real one.
        machine: the agent's.

    Attributes:
        newest: (term, revision) of it.
        until_s: lease id -> its end on the machine's steady clock.
    """

    def __init__(self, link: HttpLink, machine: Machine) -> None:
        self._link, self._machine = link, machine
        self.report, self.append_log = link.report, link.append_log
        self.newest = (0, -1)
        self.until_s: dict[int, float] = {}

    async def desired(self, *, after: tuple[int, int], instance: str = "") -> Desired:
        """Return the desired set."""
        sent_s = self._machine.steady_s()
        desired = await self._link.desired(after=after, instance=instance)
        if (desired.term, desired.revision) > self.newest:
            self.newest = (desired.term, desired.revision)
            self.until_s = {
                lease.lease_id: sent_s + desired.held_s + lease.remaining_s
                for lease in desired.leases
            }
        elif (desired.term, desired.revision) == self.newest:
            self.until_s.clear()  # of two figures for one end the later one counts
        return desired


class WatchedService(LiveService):
    """The service, with a check of each turn."""

    watch: Callable[[WatchedService, Driver], None]
    failed: Callable[[str], None]
    terms: set[int]
    host: str

    async def begin(self, token: int, suspects: Sequence[Told] = ()) -> Driver:
        """Begin to lead; see ``LiveService``."""
        driver = await super().begin(token, suspects)
        if token in self.terms:
            self.failed(f"with token {token} the state was loaded again: a turn has failed")
        self.terms.add(token)
        turn = driver.turn

        async def watched() -> None:
            await turn()
            self.watch(self, driver)

        driver.turn = watched  # type: ignore[method-assign]  # watched in place
        self.watch(self, driver)
        return driver
