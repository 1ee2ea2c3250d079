"""A shell for control in virtual time: a clock that jumps, and nodes that exist only as numbers.

It does at once what the daemon does with agents and a network: reports arrive when they are made,
desired sets when they are decided, and all consequences happen before the clock moves on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scheduler.control.facts.facts import LeaseUntold, NodeReported, NodesHeard
from scheduler.domain.lease_life import LeasePhase
from scheduler.runtime.desired_sets import DesiredSets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scheduler.control.control import Control, Decision
    from scheduler.control.facts.facts import AllocationAnswered, Fact
    from scheduler.domain.facts.commands import ComputeAllocation
    from simulator.world.nodes import SimulatedNode


class Shell:
    """Passes facts to control, and performs its decisions.

    Args:
        control: the control; only this shell passes facts to it.
        answer: asks the policy.
        on_decision: called with every decision, after its publication.
        now_s: start of the clock.

    Attributes:
        control: the control.
        now_s: the time; the owner of the shell moves it, forwards only.
        nodes: by name.
        away: names of nodes that are silent.
    """

    def __init__(
        self,
        control: Control,
        *,
        answer: Callable[[ComputeAllocation], AllocationAnswered],
        on_decision: Callable[[Decision], None],
        now_s: float = 0.0,
    ) -> None:
        self.control = control
        self.now_s = now_s
        self.nodes: dict[str, SimulatedNode] = {}
        self.away: set[str] = set()
        self._just_lost: set[str] = set()
        self._answer, self._on_decision = answer, on_decision
        #: node -> time of its next action without news.
        self._wakes: dict[str, float] = {}
        self._sets = DesiredSets(self._note_untold)
        #: leases that could not be sent to nodes, and that control does not know of yet.
        self._untold: list[LeaseUntold] = []

    def add(self, node: SimulatedNode) -> None:
        """Add a node; control hears of it when it is first among ``with_news``."""
        self.nodes[node.name] = node
        self._wakes[node.name] = math.inf

    @property
    def next_s(self) -> float:
        """When the next event happens without outside facts; inf if never."""
        moment = min(min(self._wakes.values(), default=math.inf), self.control.next_due_s)
        if any(self._is_missed(name) for name in self.away):
            moment = min(moment, self.now_s + self.control.view.settings.tick_s)
        return moment

    def _is_missed(self, name: str) -> bool:
        """Return whether control has yet to detect that a node is away, or to end its leases."""
        view = self.control.view
        node = view.nodes.by_name.get(name)
        return node is not None and (not node.lost or bool(view.leases.on_node.get(name)))

    def lose(self, name: str) -> None:
        """Let a node die with everything on it; control detects its silence."""
        self.nodes[name].reboot()
        self.away.add(name)
        self._just_lost.add(name)
        self._wakes[name] = math.inf

    def bring_back(self, name: str) -> None:
        """Bring a dead node back; it must be among ``with_news`` then."""
        self.away.discard(name)

    def happen(self, facts: Iterable[Fact], with_news: Iterable[str]) -> None:
        """Handle facts and all their consequences without time passing.

        Args:
            facts: outside facts at this time.
            with_news: nodes with something to report, beside those that are due and those on which
                something runs.
        """
        names = dict.fromkeys(with_news)
        for name, at_s in self._wakes.items():
            if at_s <= self.now_s:
                self.nodes[name].act()
                names[name] = None
        # Agents report the progress of their jobs every few seconds; here, whenever it can matter.
        names |= {name: None for name, node in self.nodes.items() if node.runs}
        self._settle(list(facts), names)

    def _settle(self, facts: list[Fact], with_news: dict[str, None]) -> None:
        # Agents poll continuously, so a node that is lost now was there until now.
        heard = [name for name in self.nodes if name not in self.away or name in self._just_lost]
        self._just_lost.clear()
        if heard:
            facts.append(NodesHeard(heard_s=dict.fromkeys(heard, self.now_s)))
        while True:
            reports = [self._report_of(name) for name in with_news if name not in self.away]
            facts += reports
            decision = self.control.handle(*facts, now_s=self.now_s)
            self.control.publish(decision)
            self._on_decision(decision)
            for fact in reports:
                self.nodes[fact.report.node].delivered(fact.report)
            facts, with_news = [], self._send_desired_sets(decision.told)
            facts, self._untold = [*facts, *self._untold], []
            for fact in reports:
                self._wakes[fact.report.node] = self.nodes[fact.report.node].next_s
            if decision.question is not None:
                facts.append(self._answer(decision.question))
            if not facts and not with_news and self.control.next_due_s > self.now_s:
                return

    def _report_of(self, name: str) -> NodeReported:
        return NodeReported(report=self.nodes[name].report(), address="", version="replay")

    def _send_desired_sets(self, names: Sequence[str]) -> dict[str, None]:
        """Send nodes their desired sets; return those that have something to report."""
        with_news: dict[str, None] = {}
        for name in names:
            node = self.nodes.get(name)
            if node is None or name in self.away:
                continue
            before = _held(node)
            desired = self._sets.of(self.control.view, name, now_s=self.now_s, held_s=0.0)
            node.accept(desired, sent_s=self.now_s)
            node.act()
            self._wakes[name] = node.next_s
            if _held(node) != before:
                with_news[name] = None
        return with_news

    def _note_untold(self, lease_id: int, node: str, message: str) -> None:
        self._untold.append(LeaseUntold(lease_id=lease_id, node=node, message=message))


def _held(node: SimulatedNode) -> list[tuple[int, object, bool]]:
    """Return the part of a node's lease reports that is news."""
    waiting = [(want, LeasePhase.STARTING, False) for want in node.view.wanted]
    return [(i, run.end, run.noticed) for i, run in node.runs.items()] + [
        one for one in waiting if one[0] not in node.runs
    ]
