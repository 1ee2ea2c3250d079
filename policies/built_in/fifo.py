"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from policies.base import Policy
from policies.greedy import first_come_first_served, serve_in_order
from policies.parameters import parameter

if TYPE_CHECKING:
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Fifo(Policy):
    """Serve jobs in order of arrival, each on the free workers on which it finishes first.

    Program: none; X in {0, 1}, greedily in order of arrival. A job behind a gang that finds no room
    may run until the gang has room (the gang then takes precedence, so it cannot starve). With
    ``backfill=false`` it waits if it would take a worker type on which the gang can run, and these
    workers stay idle meanwhile; other types serve the jobs behind the gang. A gang that nothing in
    service can run holds up no other.

    An elastic job gets an efficient count first, and more workers if no waiting job can use them;
    see ``serve_in_order``.

    Source: the FIFO of Gavel (Narayanan et al., OSDI 2020, section 4.3), here with backfilling.
    """

    name: ClassVar[str] = "fifo"

    backfill: bool = parameter(
        True, help="Let later jobs use the worker types of a waiting job that does not fit."
    )

    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem; see the class."""
        order = first_come_first_served(problem)
        return serve_in_order(problem, order, backfill=self.backfill, may_use_remaining_work=False)
