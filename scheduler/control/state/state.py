"""The state that control decides by: the engine, and control's own books."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scheduler.control.state.budget_state import Budgets
from scheduler.control.state.node_evidence import NodeHealth
from scheduler.control.state.owners import Owners

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.facts.requests import PolicyChoice
    from scheduler.control.state.jobs import JobBook
    from scheduler.control.state.leases import LiveLeases
    from scheduler.control.state.nodes import NodeBook
    from scheduler.control.state.settings import ControlSettings
    from scheduler.domain.allocation import Allocation
    from scheduler.domain.arrays import FloatArray, IntArray
    from scheduler.domain.facts.commands import ComputeAllocation
    from scheduler.domain.reservation import Reservation
    from scheduler.domain.rows import IdempotencyRow
    from scheduler.domain.throughputs.knowledge import Knowledge
    from scheduler.engine.engine import Engine
    from scheduler.protocol.desired import DesiredImage

#: How many clients' keys are kept in memory.
RECENT_KEYS = 20_000


@dataclass(slots=True, kw_only=True)
class PolicyInForce:
    """The policy that answers.

    Attributes:
        choice: name and parameters.
        since_s: when it was chosen.
        actor: the user that chose it; empty for the configuration.
        last_solve_s: how long its last answer took; None before the first.
        last_failure: why it last failed to answer; empty since it answered.
        computed_s: when its answer in force was taken over; None before the first.
        newest_number: the engine's greatest job number that the answer in force covers.
        answer: the allocation in force, for views.
        question: the problem that the answer belongs to.
        baseline: job numbers (N,) and credits (N, J) when the answer came in force.
    """

    choice: PolicyChoice
    since_s: float
    actor: str = ""
    last_solve_s: float | None = None
    last_failure: str = ""
    computed_s: float | None = None
    newest_number: int = -1
    answer: Allocation | None = None
    question: ComputeAllocation | None = None
    baseline: tuple[IntArray, FloatArray] | None = None


@dataclass(slots=True, kw_only=True)
class ControlState:
    """Everything that decisions read and change.

    Attributes:
        engine: the functional core.
        leases: in force, by node.
        jobs: the active ones.
        nodes: the known ones.
        knowledge: the ways in which jobs can run, their throughputs and launch times.
        policy: the policy in force.
        time_dependent: whether the policy's answers change as time passes; None if it cannot be
            used.
        settings: an operator's settings of decisions.
        term: the leader's fencing token.
        progress: lease id -> steps that the engine has not received yet.
        table_due: whether the configuration table must be rebuilt.
        health: the evidence against nodes.
        next_look_s: when leases, nodes and limits are checked next.
        recent_keys: the newest clients' keys, oldest first.
        estimates_due: whether measured throughputs have changed since the table was built.
        images: node -> images that it may soon need.
        launches_due: whether launches were timed since the engine last received restart costs.
        batches_due: whether jobs with a changeable batch measured news since the table was built.
        mixed_due: whether rates of mixed gangs were measured since the table was built.
        asked: the policy that gave the answer in force, or that is asked; None before the first.
        budgets: the use of projects in this month, if one has a budget.
        owners: the uid of each owner's jobs.
        reservations: name -> reservation, in the order in which they were made.
        skipped: lease ids after the first and up to the second were skipped when a backup was
            restored, since leases of later than the backup have some of them.
    """

    engine: Engine
    leases: LiveLeases
    jobs: JobBook
    nodes: NodeBook
    knowledge: Knowledge
    policy: PolicyInForce
    time_dependent: bool | None
    settings: ControlSettings
    term: int
    progress: dict[int, float] = field(default_factory=dict)
    table_due: bool = False
    estimates_due: bool = False
    images: dict[str, tuple[DesiredImage, ...]] = field(default_factory=dict)
    launches_due: bool = False
    batches_due: bool = False
    mixed_due: bool = False
    skipped: tuple[int, int] = (0, 0)
    asked: PolicyChoice | None = None
    next_look_s: float = 0.0
    health: NodeHealth = field(default_factory=NodeHealth)
    recent_keys: dict[tuple[str, str], IdempotencyRow] = field(default_factory=dict)
    owners: Owners = field(default_factory=Owners)
    budgets: Budgets = field(default_factory=Budgets)
    reservations: Mapping[str, Reservation] = field(default_factory=dict)

    def remember_key(self, row: IdempotencyRow) -> None:
        """Remember a client's key, for a repeated request that read the store before the commit."""
        self.recent_keys[row.scope, row.key] = row
        if len(self.recent_keys) > RECENT_KEYS:
            del self.recent_keys[next(iter(self.recent_keys))]
