"""A job's history as the spans of a trace."""

from __future__ import annotations

from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.jobs.trace_ids import span_id, trace_id, traceparent
from scheduler.domain.rows import HistoryRow, JobRow
from scheduler.views.job_traces import spans_of

JOB = JobRow(
    job_id="train-1", number=1, name="train", project="vision", owner="ann", job_type="resnet",
    submitted_s=100.0, updated_s=300.0, status=JobStatus.FAILED, total_steps=9.0,
)  # fmt: skip


def history(*lines):
    return [
        HistoryRow(
            event_id=i, at_s=at_s, kind=kind, subject_kind="job", subject="train-1", data=data
        )
        for i, (at_s, kind, data) in enumerate(lines, 1)
    ]


FIRST_GRANT = {"lease": 7, "attempt": 1, "worker_type": "v100", "nodes": ["a", "b"]}
BEFORE_FIRST_STEP = (
    (100.0, "job_submitted", {}),
    (100.0, "job_admitted", {}),
    (110.0, "job_held", {"reason": "wrong data"}),
    (130.0, "job_released", {}),
    (160.0, "lease_granted", FIRST_GRANT),
    (165.0, "lease_launched", {"lease": 7}),
)
AFTER_FIRST_STEP = (
    (200.0, "job_preempted", {}),
    (200.0, "lease_ended", {"lease": 7, "reason": "released", "exit_code": 75}),
    (260.0, "lease_granted", {"lease": 9, "attempt": 2, "worker_type": "t4", "nodes": ["c"]}),
    (300.0, "lease_ended", {"lease": 9, "reason": "failed", "exit_code": 3}),
    (300.0, "job_failed", {"reason": "retries"}),
)
WHOLE = history(*BEFORE_FIRST_STEP, *AFTER_FIRST_STEP)


def test_waiting_and_attempts_cover_a_job_from_its_submission_to_its_end():
    spans = spans_of(JOB, WHOLE)
    assert [(s.name, s.start_s, s.end_s) for s in spans] == [
        ("waiting", 100.0, 160.0),
        ("attempt 1", 160.0, 200.0),
        ("waiting", 200.0, 260.0),
        ("attempt 2", 260.0, 300.0),
        ("train", 100.0, 300.0),
    ]
    assert {s.trace_id for s in spans} == {trace_id("train-1")}
    assert {s.parent_id for s in spans[:-1]} == {spans[-1].span_id}
    assert spans[-1].parent_id == ""
    assert len({s.span_id for s in spans}) == len(spans)


def test_events_of_a_span_are_what_happened_within_it():
    waiting, attempt, *_ = spans_of(JOB, WHOLE)
    assert [(e.name, e.at_s) for e in waiting.events] == [
        ("job_submitted", 100.0),
        ("job_admitted", 100.0),
        ("job_held", 110.0),
        ("job_released", 130.0),
    ]
    assert waiting.events[2].attributes == {"leasehold.reason": "wrong data"}
    assert [e.name for e in attempt.events] == ["lease_launched", "job_preempted"]


def test_an_attempt_has_its_nodes_and_its_end():
    spans = {s.name: s for s in spans_of(JOB, WHOLE)}
    one, two = spans["attempt 1"], spans["attempt 2"]
    assert one.attributes["leasehold.nodes"] == "a, b"
    assert one.attributes["leasehold.end.reason"] == "released"
    # A preempted attempt has not failed, though its exit code is 75.
    assert (one.failed, two.failed, spans["train"].failed) == (False, True, True)


def test_the_processes_of_an_attempt_get_the_id_of_its_span():
    second = spans_of(JOB, WHOLE)[3]
    assert traceparent("train-1", 2) == f"00-{second.trace_id}-{second.span_id}-01"


def test_a_span_that_has_ended_does_not_change_later():
    whole = spans_of(JOB, WHOLE)
    for count in range(len(WHOLE) + 1):
        some = spans_of(JOB, WHOLE[:count])
        assert some == whole[: len(some)]


def test_a_requeued_job_continues_its_trace():
    later = ((400.0, "job_requeued", {}), (410.0, "lease_granted", {"attempt": 3}))
    last = spans_of(JOB, [*WHOLE, *history(*later)])[-1]
    assert (last.name, last.start_s, last.end_s) == ("waiting", 300.0, 410.0)
    assert last.span_id == span_id("train-1", "waiting 3")


def test_an_attempt_contains_its_launch_and_its_first_step():
    step = (191.0, "first_step", {"lease": 7, "running_s": 12.0, "first_step_s": 30.5})
    spans = spans_of(JOB, history(*BEFORE_FIRST_STEP, step, *AFTER_FIRST_STEP))
    launch, first, attempt = spans[1:4]
    assert [(s.name, s.start_s, s.end_s) for s in (launch, first)] == [
        ("launch", 160.0, 172.0),
        ("first step", 172.0, 190.5),
    ]
    assert launch.parent_id == first.parent_id == attempt.span_id
    assert [e.name for e in attempt.events] == ["lease_launched", "first_step", "job_preempted"]
    assert len({s.span_id for s in spans}) == len(spans)


def test_an_attempt_whose_grant_is_deleted_is_left_out():
    spans = spans_of(JOB, WHOLE[6:])
    assert [s.name for s in spans] == ["waiting", "attempt 2", "train"]
