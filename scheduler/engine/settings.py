"""What an operator may set about rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.engine.rounds.urgency import Band
from scheduler.errors import ParameterError

if TYPE_CHECKING:
    from scheduler.domain.problem import Entity


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of the round mechanism.

    Attributes:
        round_length_s: the scheduling quantum.
        plan_lead_s: how long before a round ends the next one is planned and announced, so that
            jobs can checkpoint in time; 0 plans at the boundary.
        refresh_rounds: a time-dependent policy is asked again every so many rounds.
        keep_bonus: how much further behind, in rounds, another job must be before it takes the
            workers of a job that holds them; damps restarts at the price of a larger deviation.
        behind_rounds: rounds behind X from which on a job comes first, however much it has left to
            do, >= 1. Below, a job that ends sooner goes before a job that is further behind.
        ahead_rounds: rounds that a job may be ahead of X. With 0, and 1 behind, rounds follow X as
            closely as they can: the job that is further behind goes first. Some policies always
            want that, see ``Allocation.follow_exactly``.
        carry_credit: whether time promised and not received outlives a new allocation. Off only to
            compare with schedulers that forget it.
        solve_grace_s: how long idle workers wait for a fresh allocation before waiting jobs are
            served by the old one.
        retry_backoff_s: wait after a job's first own failure, and after the second of its leases
            in a row that is lost without its having got on; doubles with each further one.
        avoid_node_s: how long a job avoids a node on which its lease could not be started; doubles
            each time in a row, up to sixteen times as long. It is also the least time for which a
            job avoids a node on which it failed. 0: not at all.
        hold_after_deaths: a job is held after so many agents in a row have died soon after its
            starts; 0 for never.
        patience_s: longest time for which a lease is protected from the job that is due on its
            workers, since its own job asks for a least time, or has lost its work before; 0: never.
        refuse_what_cannot_fit: whether a job that the cluster could never run is refused. Off where
            nodes or throughputs may come later: then it is admitted and waits.
        entities: weights and inner policies of entities that are not the default.
    """

    round_length_s: float = 360.0
    plan_lead_s: float = 0.0
    refresh_rounds: int = 1
    keep_bonus: float = 0.5
    behind_rounds: float = 4.0
    ahead_rounds: float = 1.0
    carry_credit: bool = True
    solve_grace_s: float = 1.0
    retry_backoff_s: float = 30.0
    avoid_node_s: float = 60.0
    hold_after_deaths: int = 2
    patience_s: float = 86_400.0
    refuse_what_cannot_fit: bool = True
    entities: tuple[Entity, ...] = ()

    def band(self, *, follow_exactly: bool) -> Band:
        """Return how far what runs may depart from X.

        Args:
            follow_exactly: whether rounds are to follow X as closely as they can, see
                ``Allocation``.
        """
        if follow_exactly:
            return Band(round_s=self.round_length_s, behind=1.0, ahead=0.0)
        return Band(round_s=self.round_length_s, behind=self.behind_rounds, ahead=self.ahead_rounds)

    def __post_init__(self) -> None:
        """Refuse settings under which rounds make no sense."""
        if not (math.isfinite(self.round_length_s) and self.round_length_s > 0):
            raise ParameterError(f"round_length_s is {self.round_length_s!r}; it must be > 0")
        if not 0 <= self.plan_lead_s < self.round_length_s:
            raise ParameterError(
                f"plan_lead_s is {self.plan_lead_s!r}; it must be >= 0 and shorter than the round "
                f"of {self.round_length_s} s"
            )
        if self.refresh_rounds < 1:
            raise ParameterError(f"refresh_rounds is {self.refresh_rounds!r}; it must be >= 1")
        if self.hold_after_deaths < 0:
            raise ParameterError(
                f"hold_after_deaths is {self.hold_after_deaths!r}; it must be >= 0"
            )
        for name, least in (("keep_bonus", 0), ("ahead_rounds", 0), ("behind_rounds", 1)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise ParameterError(f"{name} is {value!r}; it must be >= {least}")
        for name in ("solve_grace_s", "retry_backoff_s", "avoid_node_s", "patience_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ParameterError(f"{name} is {value!r}; it must be a number of seconds >= 0")
