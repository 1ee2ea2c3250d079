"""Steps/s that jobs declare: when they count, and how often the fit is made for them."""

from dataclasses import replace

import pytest

from leasehold_testing.control_shell import Shell, begin, new_control, report, submission
from planner.estimation import estimator as estimators
from planner.estimation import fitting
from planner.knowledge import LearnedKnowledge
from scheduler.control.control import Control
from scheduler.control.facts.facts import JobActionAsked, ThroughputsDeclared, ThroughputsForgotten
from scheduler.control.facts.requests import JobAction
from scheduler.control.state.control_copy import copy_of, state_of
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.throughputs.knowledge import Part
from scheduler.errors import NotFoundError

MADE_UP = {f"made-up-{k}": 1.0 + k for k in range(64)}


@pytest.fixture
def fits(monkeypatch):
    """Return the shapes of the matrices that were fitted."""
    shapes, real = [], fitting.fit_speed_model

    def counted(logs):
        shapes.append(logs.shape)
        return real(logs)

    monkeypatch.setattr(fitting, "fit_speed_model", counted)
    return shapes


def declared(shell):
    """Return job type and worker type -> declared figure."""
    known = shell.control.state.knowledge.known()
    return {(job_type, name): estimate.declared for job_type, _, name, estimate in known}


def join(shell, node, *types, now_s):
    for sequence in (1, 2, 3):
        shell.tell(report(sequence, types=types, node=node), now_s=now_s + sequence)


def test_figures_for_worker_types_that_no_node_has_are_not_learned():
    shell = begin()
    shell.tell(submission("a", job_type="t", throughputs=MADE_UP | {"v100": 3.0}), now_s=3.0)
    assert shell.answers[-2].result[0].created
    assert declared(shell) == {("t", "v100"): 3.0}
    assert shell.control.state.knowledge.dump(Part.THROUGHPUTS)["worker_types"] == ["v100"]


def test_they_count_as_soon_as_such_a_node_joins():
    shell = Shell(new_control())
    for name, rate in (("a", 3.0), ("b", 4.0)):
        shell.tell(submission(name, job_type="t", throughputs={"a100": rate}), now_s=1.0)
    shell.tell(submission("c", job_type="u", throughputs={"a100": 5.0}), now_s=1.0)
    assert declared(shell) == {}
    join(shell, "n0", "v100", now_s=2.0)
    assert declared(shell) == {}
    join(shell, "n1", "a100", "a100", now_s=10.0)
    assert declared(shell) == {("t", "a100"): 4.0, ("u", "a100"): 5.0}
    engine = shell.control.state.engine
    on_a100 = engine.table.worker_types.index("a100")
    way = engine.table.profiles[1].configurations[on_a100]
    assert way.throughput == pytest.approx(5.0)


def test_what_was_declared_before_such_a_node_joins_stays():
    shell = Shell(new_control())
    figures = (("t", 1, "a100", 7.0),)
    shell.tell(ThroughputsDeclared(figures=figures, actor="op"), now_s=1.0)
    shell.tell(submission("a", job_type="t", throughputs={"a100": 3.0}), now_s=2.0)
    join(shell, "n0", "a100", now_s=3.0)
    assert declared(shell) == {("t", "a100"): 7.0}


def test_figures_of_a_job_that_has_ended_count_if_it_is_requeued():
    shell = Shell(new_control())
    shell.tell(submission("a", job_type="t", throughputs={"a100": 3.0}), now_s=1.0)
    row = replace(shell.control.state.jobs.by_id["a"].to_row(), status=JobStatus.CANCELLED)
    cancel = JobActionAsked(job_ids=("a",), action=JobAction.CANCEL, rows={}, actor="me")
    shell.tell(cancel, now_s=2.0)
    join(shell, "n0", "a100", now_s=3.0)
    assert declared(shell) == {}
    again = {"action": JobAction.REQUEUE, "rows": {"a": row}, "actor": "me"}
    shell.tell(JobActionAsked(job_ids=("a",), **again), now_s=8.0)
    assert declared(shell) == {("t", "a100"): 3.0}


def test_many_jobs_of_one_turn_cost_one_fit(fits):
    types = tuple(f"type-{k}" for k in range(8))
    shell = begin(types=types)
    figures = dict.fromkeys(types[:4], 2.0)
    shell.tell(submission("first", throughputs=figures), now_s=3.0)
    fits.clear()
    names = [f"job-{i}" for i in range(20)]
    facts = [
        submission(name, throughputs=figures | {types[4]: i + 1.0}) for i, name in enumerate(names)
    ]
    decision = shell.control.handle(*facts, submission("m", "n", throughputs=figures), now_s=4.0)
    assert [job.created for answer in decision.answers for job in answer.result] == [True] * 22
    assert fits == [(23, 5)]


def test_made_up_worker_types_cost_nothing(fits):
    shell = begin()
    facts = [
        submission(f"job-{i}", throughputs={f"{name}-{i}": rate for name, rate in MADE_UP.items()})
        for i in range(20)
    ]
    shell.tell(*facts, now_s=3.0)
    assert len(shell.control.state.jobs) == 20
    assert fits == []
    assert declared(shell) == {}


def test_a_batch_still_refuses_a_job_that_is_known_to_run_nowhere():
    shell = begin()
    nowhere = (("t", 1, "v100", 0.0),)
    shell.tell(ThroughputsDeclared(figures=nowhere, actor="op"), now_s=2.5)
    shell.tell(submission("a", job_type="t", throughputs={}), now_s=3.0)
    (refused,) = shell.answers[-1].result
    assert "known to run on none" in refused.refusal


def test_job_types_without_an_active_job_are_forgotten_beyond_the_bound(monkeypatch):
    monkeypatch.setattr(estimators, "MOST_REMEMBERED", 3)
    shell = begin()
    shell.tell(submission(*"abc"), now_s=3.0)
    cancel = JobActionAsked(job_ids=("b", "c"), action=JobAction.CANCEL, rows={}, actor="me")
    shell.tell(cancel, now_s=4.0)
    shell.tell(submission("d", "e"), now_s=5.0)
    assert {job_type for job_type, _ in declared(shell)} == {"default/a", "default/d", "default/e"}


def test_a_job_type_is_forgotten_by_hand():
    shell = begin()
    shell.tell(submission("a", job_type="t", throughputs={"v100": 3.0}), now_s=3.0)
    decision = shell.tell(ThroughputsForgotten(job_type="t", actor="op"), now_s=4.0)
    (line,) = [line for one in shell.log for line in one.rows.history if "forgotten" in line.kind]
    assert (line.subject, line.actor, line.data["figures"]) == ("t", "op", 1)
    assert declared(shell) == {}
    stored = [s for one in shell.log for s in one.rows.settings if s.key == Part.THROUGHPUTS]
    assert stored[-1].value["cells"] == []
    decision = shell.control.handle(ThroughputsForgotten(job_type="t", actor="op"), now_s=5.0)
    assert isinstance(decision.answers[0].error, NotFoundError)


def test_a_copy_learns_of_the_same_nodes_the_same():
    shell = Shell(new_control())
    shell.tell(submission("a", job_type="t", throughputs={"a100": 3.0}), now_s=1.0)
    copied = copy_of(shell.control.state)
    twin = Shell(Control(state_of(copied, LearnedKnowledge(copied.knowledge))))
    for one in (shell, twin):
        join(one, "n0", "a100", now_s=2.0)
    assert declared(shell) == declared(twin) == {("t", "a100"): 3.0}
