"""Base class of policies: a name, typed parameters, and an answer to an allocation problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from policies.parameters import check_ranges, parse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from scheduler.domain.allocation import Allocation
    from scheduler.domain.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Policy(ABC):
    """Base of every policy.

    A subclass is a frozen, keyword-only dataclass; its fields are its parameters, with
    types, defaults, descriptions and ranges (``policies.parameters.parameter``).

    ``allocate`` must be deterministic: equal problems give equal allocations. State that has to
    survive between calls (Gandiva's pairs, say) lives in the instance and is rebuilt when lost.

    Attributes:
        name: what users write; snake case.
        time_dependent: whether the answer changes while jobs only make progress. If so, the engine
            asks again as time passes; if not, only when jobs, weights or workers change.
    """

    name: ClassVar[str]
    time_dependent: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse parameters outside their ranges."""
        check_ranges(self)

    @property
    def half_life_s(self) -> float:
        """Half-life of the entities' past usage in seconds; 0 if the policy ignores past usage.

        A policy that uses it has the parameter ``usage_half_life_s``. The problem's
        ``entity_usage_s`` holds the decayed usage.
        """
        return float(getattr(self, "usage_half_life_s", 0.0))

    @classmethod
    def from_text(cls, params: Mapping[str, str]) -> Self:
        """Build the policy from the texts of its parameters.

        Raises:
            ParameterError: names policy, parameter, value, and the allowed values.
        """
        return cls(**parse(cls, params))

    @abstractmethod
    def allocate(self, problem: Problem) -> Allocation:
        """Answer the problem.

        Args:
            problem: N >= 1 jobs; every job has a configuration of positive throughput that fits the
                capacity, or else receives zeros.

        Returns:
            An allocation that keeps every job's time <= 1 and every worker type within capacity.

        Raises:
            SolveError: no solver gave an answer that passed its checks.
        """
