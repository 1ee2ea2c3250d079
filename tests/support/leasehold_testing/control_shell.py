"""A minimal shell around control, and short names for its facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.knowledge import LearnedKnowledge
from policies.registry import make_policy
from scheduler.control.control import Control
from scheduler.control.facts.facts import AllocationAnswered, JobsSubmitted, NodeReported
from scheduler.control.facts.requests import PolicyChoice, Submission
from scheduler.control.state.settings import ControlSettings
from scheduler.domain.answers import Solved
from scheduler.domain.jobs.spec import JobSpec
from scheduler.protocol.reports import NodeReport, WorkerReport
from scheduler.runtime.desired_sets import DesiredSets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.control.control import Decision
    from scheduler.control.facts.facts import Fact
    from scheduler.control.state.transaction import Answered
    from scheduler.domain.sources import ConfigurationSource
    from scheduler.protocol.desired import Desired
    from scheduler.protocol.reports import LeaseReport

POLICY = PolicyChoice(name="max_min_fairness")


def new_control(
    sources: Sequence[tuple[str, ConfigurationSource]] = (),
    *,
    policy: PolicyChoice = POLICY,
    **settings: Any,
) -> Control:
    """Return a control that knows nothing."""
    chosen = ControlSettings(policy=policy, **settings)
    return Control.new(chosen, knowledge=LearnedKnowledge(sources=sources))


def report(
    sequence: int,
    *leases: LeaseReport,
    types: tuple[str, ...] = ("v100",),
    revision: int = 0,
    node: str = "n0",
) -> NodeReported:
    """Return a node's report."""
    told = NodeReport(
        node=node,
        incarnation=1.0,
        sequence=sequence,
        term=1,
        revision=revision,
        workers=tuple(WorkerReport(index=i, worker_type=t) for i, t in enumerate(types)),
        leases=leases,
    )
    return NodeReported(report=told, address="10.0.0.1", version="test")


def submission(*names: str, **spec: Any) -> JobsSubmitted:
    """Return the fact of a submission of jobs under their ids."""
    usual: dict[str, Any] = {"command": ("x",), "total_steps": 100.0, "throughputs": {"v100": 1.0}}
    items = tuple(
        Submission(spec=JobSpec(name=n, **usual | spec), owner="me", job_id=n) for n in names
    )
    return JobsSubmitted(
        submissions=items, job_ids=names, digests=tuple("d" for _ in names), actor="me"
    )


class Shell:
    """The least that a shell does: it publishes, and lets the policy answer at once."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.log: list[Decision] = []
        self.answers: list[Answered] = []
        self.choice = control.state.settings.policy
        self.policy = make_policy(self.choice.name, self.choice.parameters)

    def tell(self, *facts: Fact, now_s: float) -> Decision:
        """Handle facts and publish the decisions, until no question is left."""
        while True:
            decision = self.control.handle(*facts, now_s=now_s)
            self.control.publish(decision)
            self.log.append(decision)
            self.answers += decision.answers
            if decision.question is None:
                return decision
            solved = Solved(allocation=self.policy.allocate(decision.question.problem), solve_s=0.0)
            facts = (
                AllocationAnswered(policy=self.choice, question=decision.question, answer=solved),
            )

    def commands(self, kind: type) -> list[Any]:
        """Return the engine's commands of a kind so far."""
        return [c for decision in self.log for c in decision.commands if isinstance(c, kind)]


def begin(*, types: tuple[str, ...] = ("v100",), **settings: Any) -> Shell:
    """Return a shell to which one node has reported."""
    shell = Shell(new_control(**settings))
    shell.tell(report(1, types=types), now_s=1.0)
    shell.tell(report(2, types=types), now_s=2.0)
    return shell


def told(shell: Shell, node: str = "n0") -> Desired:
    """Return the desired set of a node."""
    sets = DesiredSets(lambda *_: None)
    return sets.of(shell.control.view, node, now_s=4.0, held_s=0.0)
