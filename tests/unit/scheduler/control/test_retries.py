"""Each end of a lease is of a kind, and a job may bound how many of a kind it has."""

from __future__ import annotations

import pytest

from leasehold_testing.control_shell import Shell, begin, report, submission
from scheduler.control.facts.facts import JobActionAsked
from scheduler.control.facts.requests import JobAction
from scheduler.control.leases.retries import Category, category_of, retries_in_words
from scheduler.domain.facts.troubles import Trouble
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.protocol.desired import LEFT_UNASKED
from scheduler.protocol.reports import LeaseReport


@pytest.mark.parametrize(
    ("reason", "trouble", "category"),
    [
        (EndReason.COMPLETED, None, None),
        (EndReason.CANCELLED, None, None),
        (EndReason.FAILED, None, Category.USER_ERROR),
        (EndReason.FAILED, Trouble.OUT_OF_MEMORY, Category.OUT_OF_MEMORY),
        (EndReason.OOM, None, Category.OUT_OF_MEMORY),
        (EndReason.LOST, None, Category.NODE_FAULT),
        (EndReason.LOST, Trouble.DISK, Category.NODE_FAULT),
        (EndReason.LOST, Trouble.IMAGE, Category.IMAGE),
        (EndReason.FAILED, Trouble.IMAGE_NAME, Category.IMAGE),
        (EndReason.RELEASED, None, Category.PREEMPTION),
    ],
)
def test_every_end_is_of_a_kind(
    reason: EndReason, trouble: Trouble | None, category: Category | None
) -> None:
    assert category_of(reason, trouble) is category


class Story:
    """One node, one job, and a node that says how the job's leases end."""

    def __init__(self, **spec: object) -> None:
        self.shell: Shell = begin()
        self.shell.tell(submission("a", **spec), now_s=3.0)
        self.now_s, self.sequence = 4.0, 2

    def end(self, reason: EndReason, code: str = "") -> None:
        """Let time pass until the job holds a lease, and end that."""
        state = self.shell.control.state
        while not state.leases.by_id:
            self.now_s = max(self.shell.control.next_due_s, self.now_s + 1.0)
            self.told()
        (live,) = state.leases.by_id.values()
        ended = LeaseReport(
            lease_id=live.lease.lease_id,
            token=live.lease.token,
            state=LeasePhase.ENDED,
            reason=reason,
            exit_code=1,
            message="so",
            reason_code=code,
        )
        self.told(ended)

    def told(self, *leases: LeaseReport) -> None:
        self.sequence += 1
        node = self.shell.control.state.nodes.by_name["n0"]
        self.now_s += 0.5
        fact = report(self.sequence, *leases, revision=node.revision)
        self.shell.tell(fact, now_s=self.now_s)

    @property
    def final(self) -> tuple[str, str] | None:
        ended = [r for decision in self.shell.log for r in decision.ended]
        return (ended[-1].status.value, ended[-1].reason) if ended else None


@pytest.mark.parametrize(
    ("field", "reason", "code", "category"),
    [
        ("max_node_faults", EndReason.LOST, "", "node_fault"),
        ("max_image_failures", EndReason.LOST, "ImagePullBackOff", "image"),
        ("max_preemptions", EndReason.RELEASED, "", "preemption"),
        ("max_out_of_memory", EndReason.OOM, "", "out_of_memory"),
    ],
)
def test_one_end_too_many_of_a_kind_that_a_job_bounds_ends_it(
    field: str, reason: EndReason, code: str, category: str
) -> None:
    story = Story(**{field: 1})
    story.end(reason, code)
    assert story.final is None
    record = story.shell.control.state.jobs.by_id["a"]
    assert retries_in_words(record) == f"; retries used: {category.replace('_', ' ')} 1 of 1"
    story.end(reason, code)
    assert story.final == ("failed", f"too_many_{category}")
    settings = [row for d in story.shell.log for row in d.rows.settings if row.key == "spent/a"]
    assert [row.value for row in settings][-1] is None, "nothing of it is kept"


def test_ends_of_other_kinds_are_not_counted() -> None:
    story = Story(max_node_faults=0)
    story.end(EndReason.RELEASED)
    story.end(EndReason.FAILED)
    assert story.final is None
    story.end(EndReason.LOST)
    assert story.final == ("failed", "too_many_node_fault")


def test_a_job_that_leaves_by_itself_was_not_preempted_and_waits_longer_each_time() -> None:
    story = Story(max_preemptions=0)
    began_s = story.now_s
    for _ in range(3):
        story.end(EndReason.RELEASED, LEFT_UNASKED)
    assert story.final is None
    assert story.shell.control.state.jobs.by_id["a"].spent == {}
    lines = [row for d in story.shell.log for row in d.rows.history]
    kinds = [row.kind for row in lines if row.kind in {"job_interrupted", "job_preempted"}]
    assert kinds == ["job_interrupted"] * 3
    ends = [row.data for row in lines if row.kind == "lease_ended"]
    assert {(end["trouble"], "category" in end) for end in ends} == {("left_unasked", False)}
    assert story.now_s - began_s > 30.0
    assert story.shell.control.state.engine.jobs["losses"].tolist() == [3]


def test_without_bounds_a_job_is_tried_again_as_before() -> None:
    story = Story()
    for _ in range(4):
        story.end(EndReason.LOST)
        story.end(EndReason.RELEASED)
    assert story.final is None
    assert not [r for d in story.shell.log for r in d.rows.settings if r.key.startswith("spent/")]


def test_two_reasons_to_fail_at_once_are_one_end() -> None:
    story = Story(max_failures=0, max_out_of_memory=0)
    story.end(EndReason.OOM)
    assert story.final == ("failed", "too_many_out_of_memory")


def test_what_people_ask_for_costs_no_retry() -> None:
    story = Story(max_preemptions=0)
    while not story.shell.control.state.leases.by_id:
        story.told()
    asked = JobActionAsked(job_ids=("a",), action=JobAction.REQUEUE, actor="me")
    story.shell.tell(asked, now_s=story.now_s)
    story.end(EndReason.RELEASED)
    assert story.final is None
