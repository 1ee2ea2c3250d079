"""Control alone: facts in, decisions out; no clock, no store, no event loop."""

from dataclasses import replace

import pytest

from leasehold_testing.control_shell import (
    Shell,
    begin,
    new_control,
    report,
    submission,
    told,
)
from scheduler.control.facts.facts import (
    JobActionAsked,
    NodeOrdered,
    ProjectSet,
)
from scheduler.control.facts.requests import (
    JobAction,
    NodeAction,
    ProjectLimits,
)
from scheduler.control.jobs.submit import fit_of
from scheduler.control.state.snapshot import take_snapshot
from scheduler.domain.codec import encode
from scheduler.domain.configuration import CONSOLIDATED, Configuration
from scheduler.domain.facts import commands as do
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.domain.sources import ConfigurationSource
from scheduler.errors import NotFoundError
from scheduler.protocol.desired import desired_from_dict, to_dict
from scheduler.protocol.reports import LeaseReport
from scheduler.runtime.desired_sets import DesiredSets


class OnTwo(ConfigurationSource):
    """Two workers of one node are three times as fast, split in halves."""

    def ways(self, key, cluster):
        demand = tuple(2 if name == "v100" else 0 for name in cluster.type_names)
        way = {"locality": CONSOLIDATED, "plan": "halves"}
        plain = Configuration(demand=demand, throughput=0.0)  # not in any other way
        return (plain, Configuration(demand=demand, throughput=3.0, doubt=0.1, **way))


def test_the_plan_of_a_configuration_is_in_the_lease_that_agents_are_told():
    shell = begin(types=("v100", "v100"), sources=[("on two", OnTwo())])
    shell.tell(submission("a", scale_factors=(2,), throughputs={}), now_s=3.0)
    (lease,) = told(shell).leases
    assert (lease.plan, lease.workers) == ("halves", (0, 1))
    assert desired_from_dict(to_dict(told(shell))).leases[0].plan == "halves"
    (live,) = shell.control.state.leases.by_id.values()
    assert not live.learned
    kept = take_snapshot(shell.control.state).control["leases"]
    assert kept[0][5:7] == ["halves", False]
    # Its report says nothing of two workers without the plan.
    for sequence, now_s in enumerate((10.0, 80.0, 150.0), start=3):
        running = LeaseReport(
            lease_id=live.lease.lease_id,
            token=live.lease.token,
            state=LeasePhase.RUNNING,
            steps_live=int(now_s),
        )
        shell.tell(report(sequence, running, types=("v100", "v100"), revision=9), now_s=now_s)
    assert list(shell.control.state.knowledge.known()) == []


def test_a_lease_without_a_plan_is_learned_from_and_told_as_before():
    shell = begin()
    shell.tell(submission("a"), now_s=3.0)
    (live,) = shell.control.state.leases.by_id.values()
    assert (live.plan, live.learned) == ("", True)
    plain = to_dict(told(shell))
    assert "plan" not in plain["leases"][0]  # as the previous release reports it
    assert desired_from_dict(plain) == told(shell)


def test_a_job_that_no_node_is_large_enough_for_is_told_so():
    shell = begin(sources=[("on two", OnTwo())])
    shell.tell(report(3, types=("v100",)), now_s=2.5)
    second = replace(report(1).report, node="n1")
    shell.tell(replace(report(1), report=second), now_s=2.6)
    spec = submission("a", scale_factors=(2,), throughputs={}).submissions[0].spec
    fit = fit_of(shell.control.view, spec)
    assert (fit.fits, fit.reason) == (False, WaitReason.TOO_LARGE)
    assert "at least 2 workers of one type on one node" in fit.message
    (option,) = fit.configurations
    assert (option.locality, option.plan, option.workers_in_service) == (CONSOLIDATED, "halves", 1)


def test_a_job_goes_from_its_submission_to_its_end_by_facts_alone():
    shell = begin()
    shell.tell(submission("a"), now_s=3.0)
    (grant,) = shell.commands(do.GrantLease)
    assert shell.answers[-2].result[0].job_id == "a"
    assert shell.control.view.jobs.by_id["a"].status is JobStatus.RUNNING
    lease = LeaseReport(
        lease_id=grant.lease.lease_id,
        token=grant.lease.token,
        state=LeasePhase.ENDED,
        reason=EndReason.COMPLETED,
    )
    decision = shell.tell(report(3, lease, revision=9), now_s=90.0)
    assert not shell.control.view.jobs.by_id
    (ended,) = [record for one in shell.log for record in one.ended]
    assert (ended.job_id, ended.status) == ("a", JobStatus.COMPLETED)
    assert decision.now_s == 90.0


def test_nothing_that_was_decided_is_seen_before_it_is_published():
    control = begin().control
    decision = control.handle(submission("a"), now_s=3.0)
    assert decision.answers[0].result[0].created
    assert "a" in control.state.jobs.by_id
    assert not control.view.jobs.by_id
    assert not control.view.engine.jobs.number_of
    control.publish(decision)
    assert list(control.view.jobs.by_id) == ["a"]
    assert list(control.view.engine.jobs.number_of) == ["a"]


def test_an_order_about_a_node_is_seen_when_it_is_published():
    control = begin().control
    decision = control.handle(
        NodeOrdered(node="n0", action=NodeAction.CORDON, actor="op"), now_s=3.0
    )
    seen = control.view.nodes.by_name["n0"]
    assert seen.order is None
    assert not control.view.engine.cordoned.any()
    control.publish(decision)
    assert control.view.nodes.by_name["n0"].order is NodeAction.CORDON
    assert control.view.engine.cordoned.all()


def test_an_order_without_a_reason_keeps_that_of_the_order_before():
    shell = begin()
    node = shell.control.state.nodes.by_name["n0"]
    for action, reason, kept in (
        (NodeAction.CORDON, "fan", "fan"),
        (NodeAction.CORDON, "", "fan"),
        (NodeAction.DRAIN, "", "fan"),
        (NodeAction.DRAIN, "new fan", "new fan"),
        (NodeAction.UNCORDON, "", ""),
        (NodeAction.CORDON, "", ""),
    ):
        shell.tell(NodeOrdered(node="n0", action=action, reason=reason, actor="op"), now_s=3.0)
        assert node.reason == kept


def test_a_fact_that_is_refused_changes_nothing_and_the_others_are_taken_in():
    control = begin().control
    wrong = NodeOrdered(node="gone", action=NodeAction.DRAIN, actor="op")
    decision = control.handle(wrong, submission("a"), now_s=3.0)
    refused, taken = decision.answers
    assert isinstance(refused.error, NotFoundError)
    assert refused.fact is wrong
    assert taken.error is None
    assert [row.job_id for row in decision.rows.jobs] == ["a"]


def test_equal_facts_give_equal_decisions():
    def run():
        shell = begin()
        shell.tell(
            ProjectSet(limits=ProjectLimits(project="p", max_workers=1), actor="op"), now_s=3.0
        )
        shell.tell(submission("a", "b", "c", project="p"), now_s=4.0)
        shell.tell(JobActionAsked(job_ids=("a",), action=JobAction.HOLD, actor="me"), now_s=5.0)
        for moment in range(6, 60, 6):
            shell.tell(report(moment), now_s=float(moment))
        return [
            ([encode(event) for event in one.events], one.rows, one.told, one.now_s)
            for one in shell.log
        ]

    assert run() == run()


@pytest.mark.parametrize("parts", [True, False])
def test_facts_may_be_taken_in_one_by_one(parts):
    control = begin().control
    facts = [submission("a"), submission("b", depends_on=("a",))]
    if parts:
        transaction = control.transaction(3.0)
        for fact in facts:
            control.take(transaction, fact)
        decision = control.decide(transaction)
    else:
        decision = control.handle(*facts, now_s=3.0)
    assert [row.job_id for row in decision.rows.jobs] == ["a", "b"]
    assert control.state.jobs.by_id["b"].waits_for == {"a"}


def test_where_nothing_follows_nothing_is_stored():
    control = begin().control
    decision = control.handle(now_s=2.5)
    assert not decision.is_stored
    assert decision.events == ()


def test_facts_that_one_control_has_taken_in_give_the_same_decisions_in_another():
    shell = begin()
    facts = []
    handle = shell.control.handle

    def recording(*told, now_s):
        facts.append((told, now_s))
        return handle(*told, now_s=now_s)

    shell.control.handle = recording
    shell.tell(submission("a", "b"), now_s=3.0)
    for moment in range(10, 100, 10):
        shell.tell(report(moment), now_s=float(moment))
    other = begin().control
    for (given, now_s), first in zip(facts, shell.log[-len(facts) :], strict=True):
        second = other.handle(*given, now_s=now_s)
        other.publish(second)
        assert [encode(event) for event in second.events] == [
            encode(event) for event in first.events
        ]
        assert (second.rows, second.told) == (first.rows, first.told)


def test_a_part_of_a_gang_that_ended_under_an_earlier_leader_is_not_begun_again():
    """Its node may know a desired set without it, and forgets its desired sets."""
    shell = Shell(new_control())
    nodes = ("n0", "n1")
    for sequence in (1, 2):
        first = report(sequence)
        both = [replace(first, report=replace(first.report, node=node)) for node in nodes]
        shell.tell(*both, now_s=float(sequence))
    shell.tell(submission("gang", scale_factors=(2,)), now_s=3.0)
    shell.tell(now_s=4.0)
    (grant,) = shell.commands(do.GrantLease)
    state = shell.control.state
    live = state.leases.by_id[grant.lease.lease_id]
    assert [member.wanted for member in live.members] == [True, True]
    ended = LeaseReport(
        lease_id=live.lease.lease_id,
        token=live.lease.token,
        state=LeasePhase.ENDED,
        reason=EndReason.CANCELLED,
    )
    told = report(3, ended)
    decision = shell.tell(replace(told, report=replace(told.report, term=0)), now_s=5.0)
    assert "n0" in decision.told
    assert [row.key for row in decision.rows.settings] == [f"ended/{live.lease.lease_id}/n0"]
    sets = DesiredSets(lambda *_: None)
    desired = sets.of(shell.control.view, "n0", now_s=5.0, held_s=0.0)
    assert desired.leases == ()
