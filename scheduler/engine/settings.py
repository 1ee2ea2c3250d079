"""What an operator may set about rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.engine.rounds.urgency import Band
from scheduler.errors import ParameterError
from scheduler.operator_settings import RoundSettings, check_ranges

if TYPE_CHECKING:
    from scheduler.domain.problem import Entity


@dataclass(frozen=True, kw_only=True)
class EngineSettings(RoundSettings):
    """Settings of the round mechanism.

    Attributes:
        plan_lead_s: how long before a round ends the next one is planned and announced, so that
            jobs can checkpoint in time; 0 plans at the boundary.
        carry_credit: whether time promised and not received outlives a new allocation. Off only to
            compare with schedulers that forget it.
        refuse_what_cannot_fit: whether a job that the cluster could never run is refused. If not,
            nodes or throughputs may come later: the job is admitted and waits.
        entities: weights and inner policies of entities that are not the default.
    """

    plan_lead_s: float = 0.0
    carry_credit: bool = True
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
        check_ranges(self)
        if not 0 <= self.plan_lead_s < self.round_length_s:
            raise ParameterError(
                f"plan_lead_s is {self.plan_lead_s!r}; it must be >= 0 and shorter than the round "
                f"of {self.round_length_s} s"
            )
