"""Allowed workers of a node: approved at its enrolment, by its first report or by an operator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leasehold_testing.control_shell import begin, new_control, report, submission, told
from scheduler.control.facts.facts import WorkersApproved
from scheduler.control.state.nodes import TOLD_AGAIN_S
from scheduler.errors import InputError


def enrolled(sequence, *types, leases=(), revision=0):
    return replace(report(sequence, *leases, types=types, revision=revision), enrolled=True)


def approved(node="n0", by="operator", **workers):
    return WorkersApproved(node=node, workers=workers, actor="boss", by=by)


def notes(shell, kind):
    rows = (row for decision in shell.log for row in decision.rows.history)
    return [row.data for row in rows if row.kind == kind]


def node_of(shell):
    return shell.control.view.nodes.by_name["n0"]


@pytest.fixture
def shell():
    return begin(types=())


def test_what_an_enrolled_agent_reports_first_is_what_its_node_may_have(shell):
    shell.tell(enrolled(3, "v100", "v100"), now_s=3.0)
    shell.tell(enrolled(4, "v100", "v100", "v100", "a100"), now_s=4.0)
    node = node_of(shell)
    assert (node.types, dict(node.refused)) == (("v100", "v100"), {"v100": 1, "a100": 1})
    assert dict(shell.control.view.nodes.approved["n0"]) == {"v100": 2}
    assert "a100" not in shell.control.state.engine.cluster.type_names
    assert [note["by"] for note in notes(shell, "workers_approved")] == ["first_report"]


def test_the_workers_of_an_enrolment_hold_before_the_node_is_known():
    shell = begin(types=())
    shell.control = new_control()
    shell.tell(approved(by="enrolment", v100=1), now_s=1.0)
    shell.tell(enrolled(1, *["a100"] * 4000, "v100", "v100"), now_s=2.0)
    node = node_of(shell)
    assert node.types == ("v100",)
    assert dict(node.refused) == {"a100": 4000, "v100": 1}
    assert shell.control.state.engine.cluster.workers == 1


def test_what_is_refused_is_told_once_and_again_after_an_hour(shell):
    shell.tell(enrolled(3, "v100"), now_s=3.0)
    for n, s in enumerate((4.0, 5.0, 6.0, 5.0 + TOLD_AGAIN_S), start=4):
        shell.tell(enrolled(n, *["v100"] * n), now_s=s)
    found = notes(shell, "workers_refused")
    assert [note["refused"] for note in found] == [{"v100": 3}, {"v100": 6}]
    assert len([w for decision in shell.log for w in decision.warnings]) == 2


def test_many_types_are_told_in_few_words(shell):
    shell.tell(enrolled(3, "v100"), now_s=3.0)
    shell.tell(enrolled(4, "v100", *(f"t{n}" for n in range(1000))), now_s=4.0)
    refused = notes(shell, "workers_refused")[0]["refused"]
    assert len(refused) == 17
    assert refused["others"] == 984


def test_jobs_go_on_while_growth_is_refused_and_its_approval_takes_it(shell):
    shell.tell(enrolled(3, "v100"), now_s=3.0)
    shell.tell(submission("a"), now_s=4.0)
    (before,) = told(shell).leases
    shell.tell(enrolled(4, "v100", "v100"), now_s=5.0)
    assert [lease.lease_id for lease in told(shell).leases] == [before.lease_id]
    shell.tell(approved(v100=2), now_s=6.0)
    shell.tell(enrolled(5, "v100", "v100"), now_s=7.0)
    node = node_of(shell)
    assert (node.types, dict(node.refused)) == (("v100", "v100"), {})


def test_leases_name_workers_as_their_node_calls_them(shell):
    """A new card stands in a slot before the ones that are approved."""
    shell.tell(approved(v100=2), now_s=3.0)
    workers = ("a100", "v100", "a100", "v100")
    shell.tell(enrolled(3, *workers), now_s=4.0)
    assert node_of(shell).indices == (1, 3)
    shell.tell(enrolled(4, *workers), now_s=4.5)
    shell.tell(submission("a", scale_factors=(2,)), now_s=5.0)
    assert told(shell).leases[0].workers == (1, 3)


def test_a_problem_of_a_refused_worker_is_none_of_an_approved_one(shell):
    shell.tell(approved(v100=1), now_s=3.0)
    shell.tell(enrolled(3, "a100", "v100"), now_s=4.0)

    def broken(sequence, index):
        fact = enrolled(sequence, "a100", "v100")
        workers = tuple(
            replace(worker, problem="broken" if worker.index == index else "")
            for worker in fact.report.workers
        )
        return replace(fact, report=replace(fact.report, workers=workers))

    engine = shell.control.state.engine
    shell.tell(broken(4, 0), now_s=5.0)
    assert engine.in_service[node_of(shell).first]
    shell.tell(broken(5, 1), now_s=6.0)
    assert not engine.in_service[node_of(shell).first]
    assert notes(shell, "workers_failed")[-1]["problems"] == {"1": "broken"}


def test_types_that_a_node_may_not_have_say_nothing_of_sharing(shell):
    shell.tell(approved(v100=1), now_s=3.0)
    fact = enrolled(3, "v100", "a100")
    workers = tuple(
        replace(w, sharing="exclusive" if w.worker_type == "a100" else "visible")
        for w in fact.report.workers
    )
    shell.tell(replace(fact, report=replace(fact.report, workers=workers)), now_s=4.0)
    assert shell.control.state.nodes.exclusive == frozenset()


def test_who_was_not_enrolled_may_have_any_workers_unless_somebody_says_otherwise():
    shell = begin(types=("v100",))
    shell.tell(report(3, types=("v100",) * 3), now_s=3.0)
    assert len(node_of(shell).types) == 3
    assert not shell.control.view.nodes.approved
    shell.tell(approved(v100=2), now_s=4.0)
    shell.tell(report(4, types=("v100",) * 3), now_s=5.0)
    assert len(node_of(shell).types) == 2


def test_a_count_that_cannot_be_approves_nothing(shell):
    shell.tell(approved(v100=1), now_s=3.0)
    shell.tell(approved(v100=-1), now_s=4.0)
    shell.tell(approved(v100=5000), now_s=4.0)
    assert [isinstance(answer.error, InputError) for answer in shell.answers[-2:]] == [True, True]
    assert dict(shell.control.state.nodes.approved["n0"]) == {"v100": 1}


def test_the_same_approval_once_more_is_no_news(shell):
    shell.tell(approved(v100=1), now_s=3.0)
    shell.tell(approved(v100=1, a100=0), now_s=4.0)
    assert len(notes(shell, "workers_approved")) == 1
