"""A node that misses its reports gets nothing new until it speaks again."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold_testing.control_shell import Shell, begin, report, submission
from scheduler.control.facts.facts import NodeOrdered, NodesHeard
from scheduler.control.facts.requests import NodeAction
from scheduler.control.state.nodes import SILENT
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.lease_life import LeasePhase
from scheduler.protocol.reports import LeaseReport
from scheduler.views.explain import WaitingJobs, explain
from scheduler.views.state_views import node_views as seen_nodes

#: Just beyond the silence after which nothing new is granted, with the default of 60 s.
QUIET_S = 60.0 * SILENT + 1.0


class Fleet:
    """Two nodes with a worker each; a test says which of them speak."""

    def __init__(self) -> None:
        self.shell: Shell = begin(types=())
        self.now_s, self.sequence = 2.0, 2
        self.wait(1.0, "near", "far")
        self.wait(1.0, "near", "far")

    @property
    def state(self) -> Any:
        return self.shell.control.state

    def wait(self, seconds: float, *speak: str) -> None:
        """Let time pass; then these nodes report, and the first one makes control look."""
        self.now_s += seconds
        self.sequence += 1
        for name in speak:
            held = [
                LeaseReport(
                    lease_id=live.lease.lease_id, token=live.lease.token, state=LeasePhase.RUNNING
                )
                for live, _ in self.state.leases.held_by(name)
            ]
            known = self.state.nodes.by_name.get(name)
            revision = 0 if known is None else known.revision
            fact = report(self.sequence, *held, node=name, revision=revision)
            self.shell.tell(fact, now_s=self.now_s)
        self.shell.tell(now_s=self.now_s)

    def submit(self, *names: str) -> None:
        self.shell.tell(submission(*names, total_steps=1e6), now_s=self.now_s)

    def held(self, name: str) -> list[str]:
        return [live.lease.job_id for live, _ in self.state.leases.held_by(name)]

    def shown(self, name: str) -> Any:
        return next(node for node in seen_nodes(self.shell.control.view) if node.name == name)

    def kinds(self) -> list[str]:
        rows = [row for decision in self.shell.log for row in decision.rows.history]
        return [row.kind for row in rows if row.subject == "far"]


def test_a_silent_node_gets_no_new_lease_until_it_reports() -> None:
    fleet = Fleet()
    fleet.wait(QUIET_S, "near")
    fleet.submit("a", "b")
    assert len(fleet.held("near")) == 1
    assert fleet.held("far") == []
    assert fleet.shown("far").state == "silent"
    assert "silent since 1970-01-01T00:00:04" in fleet.shown("far").reason
    assert fleet.kinds().count("node_silent") == 1
    fleet.wait(1.0, "far")
    assert len(fleet.held("far")) == 1
    assert fleet.shown("far").state == "ready"


def test_a_poll_is_a_word_as_well() -> None:
    fleet = Fleet()
    fleet.wait(QUIET_S, "near")
    fleet.submit("a", "b")
    fleet.shell.tell(NodesHeard(heard_s={"far": fleet.now_s}), now_s=fleet.now_s)
    assert len(fleet.held("far")) == 1


def test_a_node_that_speaks_in_time_is_not_taken_for_silent() -> None:
    fleet = Fleet()
    fleet.wait(60.0 * SILENT - 1.0, "near")
    fleet.submit("a", "b")
    assert len(fleet.held("far")) == 1
    assert "node_silent" not in fleet.kinds()


def test_leases_of_a_silent_node_stay() -> None:
    fleet = Fleet()
    fleet.submit("a", "b")
    before = fleet.held("far")
    fleet.wait(QUIET_S, "near")
    assert fleet.held("far") == before
    assert all(not live.revoked for live, _ in fleet.state.leases.held_by("far"))


@pytest.mark.parametrize("action", [NodeAction.CORDON, NodeAction.DRAIN])
def test_an_order_outlives_the_silence(action: NodeAction) -> None:
    fleet = Fleet()
    fleet.wait(QUIET_S, "near")
    order = NodeOrdered(node="far", action=action, actor="me", reason="new fan")
    fleet.shell.tell(order, now_s=fleet.now_s)
    fleet.wait(1.0, "near", "far")
    fleet.submit("a", "b")
    assert fleet.held("far") == []
    back = NodeOrdered(node="far", action=NodeAction.UNCORDON, actor="me")
    fleet.shell.tell(back, now_s=fleet.now_s)
    assert len(fleet.held("far")) == 1


def test_uncordoning_a_silent_node_lets_nothing_start_there() -> None:
    fleet = Fleet()
    fleet.wait(QUIET_S, "near")
    back = NodeOrdered(node="far", action=NodeAction.UNCORDON, actor="me")
    fleet.shell.tell(back, now_s=fleet.now_s)
    fleet.submit("a", "b")
    assert fleet.held("far") == []


def test_what_waits_for_a_silent_node_is_told_so() -> None:
    fleet = Fleet()
    fleet.wait(QUIET_S, "near")
    fleet.shell.tell(submission("gang", scale_factors=(2,)), now_s=fleet.now_s)
    view = fleet.shell.control.view
    told = explain(view, view.jobs.by_id["gang"].to_row(), WaitingJobs(view))
    assert told.reason is WaitReason.WORKERS_OUT
    assert "silent: 1 (far)" in told.message


def test_a_node_that_stays_silent_is_lost_and_comes_back_like_others() -> None:
    fleet = Fleet()
    fleet.wait(QUIET_S, "near")
    fleet.wait(QUIET_S, "near")
    assert fleet.shown("far").state == "lost"
    fleet.wait(1.0, "near", "far")
    assert fleet.shown("far").state == "ready"
    fleet.submit("a", "b")
    assert len(fleet.held("far")) == 1
