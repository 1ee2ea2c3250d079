"""What control decides by: the engine, and what is known beside it."""

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
    from scheduler.control.state.leases import Leases
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

#: Clients' keys that are kept in memory.
RECENT_KEYS = 20_000


@dataclass(slots=True, kw_only=True)
class PolicyInForce:
    """The policy that answers.

    Attributes:
        choice: name and parameters.
        since_s: when it was chosen.
        actor: by whom; empty for the configuration.
        last_solve_s: how long its last answer took; None before the first.
        last_failure: why it last failed to answer; empty since it answered.
        computed_s: when its answer in force was taken over; None before the first.
        newest_number: the engine's greatest job number that the answer in force knows.
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
        jobs: that have not ended.
        nodes: that are known.
        knowledge: in what ways jobs can run, how fast, and what starting them takes.
        policy: who answers.
        time_dependent: whether the policy's answers change as time passes; None where it cannot be
            used.
        settings: what an operator may set about decisions.
        term: the leader's fencing token.
        progress: lease id -> steps that the engine has not been told yet.
        table_due: whether the configuration table must be made anew.
        health: what is held against nodes.
        next_look_s: when leases, nodes and limits are looked at again.
        recent_keys: clients' keys that became known last, oldest first.
        estimates_due: whether measured throughputs have changed since the table was made.
        images: node -> images that it may soon need.
        launches_due: whether launches were timed since the engine was last told.
        batches_due: whether jobs whose batch may change have measured news since then.
        mixed_due: whether rates of mixed gangs were measured since then.
        asked: the policy whose answer is in force or on its way; None before the first.
        budgets: what projects have used in this month, where one has a budget.
        owners: which uid the jobs of each owner run under.
        reservations: name -> reservation, in the order in which they were made.
    """

    engine: Engine
    leases: Leases
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
    asked: PolicyChoice | None = None
    next_look_s: float = 0.0
    health: NodeHealth = field(default_factory=NodeHealth)
    recent_keys: dict[tuple[str, str], IdempotencyRow] = field(default_factory=dict)
    owners: Owners = field(default_factory=Owners)
    budgets: Budgets = field(default_factory=Budgets)
    reservations: Mapping[str, Reservation] = field(default_factory=dict)

    def remember_key(self, row: IdempotencyRow) -> None:
        """Note a client's key, for those who looked for it before it was committed."""
        self.recent_keys[row.scope, row.key] = row
        if len(self.recent_keys) > RECENT_KEYS:
            del self.recent_keys[next(iter(self.recent_keys))]
