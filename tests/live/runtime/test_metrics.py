"""The figures, as a scraper reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus
from scheduler.views.metrics import Metrics


def scrape(metrics):
    """Return {(name, labels): value} without the prefix."""
    return {
        (sample.name.removeprefix("leasehold_"), *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_everything_is_there_before_anything_happened():
    found = scrape(Metrics(version="1.2", process=False))
    assert found["info", "1.2"] == 1
    for reason in WaitReason:
        assert found["jobs_waiting", reason.value] == 0
    for status in ("waiting", "running", "held"):
        assert found["jobs", status] == 0
    for status in ("completed", "cancelled", "failed", "refused"):
        assert found["jobs_ended_total", status] == 0
    assert found["jct_seconds_count",] == 0


def test_queue_and_workers_show_what_is_and_forget_what_was():
    metrics = Metrics(process=False)
    metrics.set_jobs({"waiting": 3, "running": 1}, {"turn": 2, "quota": 1})
    metrics.set_workers({"v100": 4, "t4": 2}, {"v100": 3}, {"v100": 2})
    metrics.set_jobs({"running": 2}, {})
    metrics.set_workers({"v100": 4}, {"v100": 3}, {"v100": 2})
    metrics.set_agents(7)
    found = scrape(metrics)
    assert found["jobs", "waiting"] == 0
    assert found["jobs", "running"] == 2
    assert found["jobs_waiting", "turn"] == 0
    assert found["workers", "known", "v100"] == 4
    assert found["workers", "in_service", "v100"] == 3
    assert found["workers", "busy", "v100"] == 2
    assert ("workers", "known", "t4") not in found
    assert found["agents_connected",] == 7


def test_ends_of_jobs_are_counted_and_only_completions_have_a_jct():
    metrics = Metrics(process=False)
    metrics.submitted(2)
    metrics.submitted()
    metrics.job_ended(JobStatus.COMPLETED, jct_s=120.0)
    metrics.job_ended(JobStatus.COMPLETED)
    metrics.job_ended(JobStatus.FAILED, jct_s=5.0)
    found = scrape(metrics)
    assert found["jobs_submitted_total",] == 3
    assert found["jobs_ended_total", "completed"] == 2
    assert found["jobs_ended_total", "failed"] == 1
    assert found["jct_seconds_count",] == 1
    assert found["jct_seconds_sum",] == 120.0
    assert found["jct_seconds_bucket", "60.0"] == 0
    assert found["jct_seconds_bucket", "300.0"] == 1


def test_leases_rounds_and_solves():
    metrics = Metrics(process=False)
    metrics.leases_started(5)
    metrics.preempted()
    metrics.lease_ended("released")
    metrics.set_round(9)
    metrics.set_deviation(mean=0.25, largest=0.75)
    metrics.round_done(0.2, waited_s=0.05)
    metrics.committed(0.002)
    metrics.solved(1.5)
    metrics.solve_failed()
    metrics.set_leading(True)
    found = scrape(metrics)
    assert found["lease_starts_total",] == 5
    assert found["preemptions_total",] == 1
    assert found["lease_ends_total", "released"] == 1
    assert found["round_number",] == 9
    assert found["deviation_rounds", "mean"] == 0.25
    assert found["deviation_rounds", "max"] == 0.75
    assert found["round_seconds_sum",] == 0.2
    assert found["round_wait_seconds_sum",] == 0.05
    assert found["commit_seconds_count",] == 1
    assert found["solve_seconds_sum",] == 1.5
    assert found["solve_failures_total",] == 1
    assert found["leading",] == 1
    metrics.set_leading(False)
    assert scrape(metrics)["leading",] == 0


def test_stalls_are_counted_and_the_longest_is_kept():
    metrics = Metrics(process=False)
    for seconds in (0.3, 2.0, 0.5):
        metrics.stalled(seconds)
    found = scrape(metrics)
    assert found["event_loop_stalls_total",] == 3
    assert found["event_loop_longest_stall_seconds",] == 2.0


def test_two_daemons_in_one_process_do_not_share_figures():
    first, second = Metrics(process=False), Metrics(process=False)
    first.submitted()
    assert scrape(second)["jobs_submitted_total",] == 0


def test_the_process_reports_its_memory_and_the_stopwatch_is_replaceable():
    metrics = Metrics(clock=lambda: 42.0)
    assert scrape(metrics)["process_resident_memory_bytes",] > 0
    assert metrics.clock() == 42.0
