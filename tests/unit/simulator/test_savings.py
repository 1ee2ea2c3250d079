"""Savings over a plain queue: figures by hand, and how often intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.errors import InputError
from simulator.many.savings import (
    UseByJob,
    _number_blocks,
    check_same_jobs,
    compare_with_queue,
    make_queue_trace,
    sum_use_by_job,
)
from simulator.request import SimulationRequest
from simulator.run import simulate
from traces.reader import read_trace
from traces.tables.throughputs import read_throughputs
from traces.trace import Trace, TraceJob

PRICES = {"slow": 1.0, "fast": 3.0}
TABLE = ThroughputTable(
    isolated={("a", 1): {"slow": 1.0, "fast": 4.0}, ("a", 2): {"slow": 2.0, "fast": 8.0}}
)


def trace_of(*jobs):
    return Trace(
        jobs=tuple(
            TraceJob(job_type="a", **{"job_id": str(i), "total_steps": 3600.0, **job})
            for i, job in enumerate(jobs)
        )
    )


def run(trace, cluster, policy="fifo", **options):
    return simulate(
        SimulationRequest(
            trace=trace,
            throughputs=TABLE,
            cluster=parse_cluster_spec(cluster, workers_per_node=2, prices=PRICES),
            policy=policy,
            record=True,
            **options,
        )
    )


def run_queue(trace, cluster):
    return run(make_queue_trace(trace), cluster, agnostic=True)


def use(gpu_s, *, arrival_s=None, jct_s=None):
    gpu_s = np.asarray(gpu_s, dtype=float)
    return UseByJob(
        arrival_s=np.arange(len(gpu_s)) * 3600.0 if arrival_s is None else np.asarray(arrival_s),
        jct_s=gpu_s if jct_s is None else np.asarray(jct_s, dtype=float),
        gpu_s=gpu_s,
        usd=gpu_s * 2.0 / 3600.0,
        preemptions=0,
    )


def compare(*draws, **options):
    queue, policy = compare_with_queue(["queue", "policy"], draws, **options)
    return queue, policy


def test_gpu_time_and_price_are_summed_by_job():
    trace = trace_of({"total_steps": 100.0}, {"total_steps": 400.0, "scale_factors": (2,)})
    found = sum_use_by_job(run_queue(trace, "slow:3"), {"slow": 7.2})
    assert found.gpu_s.tolist() == [100.0, 400.0]
    assert found.usd == pytest.approx([0.2, 0.8])
    assert found.jct_s.tolist() == [100.0, 200.0]


@pytest.mark.parametrize("options", [{}, {"space_sharing": True}])
def test_use_by_job_adds_up_to_the_cost_of_the_run(options):
    table = read_throughputs("bundled")
    result = simulate(
        SimulationRequest(
            trace=read_trace("bundled", throughputs=table),
            throughputs=table,
            cluster="bundled",
            policy="max_min_fairness",
            record=True,
            **options,
        )
    )
    assert any(lease.shared for lease in result.leases) == bool(options)
    assert result.summary.jobs_completed == result.summary.jobs
    prices = {"t4": 0.526, "v100": 3.06, "a100": 4.10}
    assert sum_use_by_job(result, prices).usd.sum() == pytest.approx(result.summary.cost_usd)


def test_the_savings_of_two_jobs_are_those_worked_out_by_hand():
    """Each job takes 1 h on the slow worker and 0.25 h on the fast one; they do not overlap."""
    trace = trace_of({}, {"arrival_s": 7200.0})
    runs = [run_queue(trace, "slow:1,fast:1"), run(trace, "slow:1,fast:1")]
    queue, policy = compare([sum_use_by_job(result, PRICES) for result in runs])
    assert (queue.gpu_hours, queue.usd, queue.mean_jct_s) == pytest.approx((2.0, 2.0, 3600.0))
    assert queue.saved is None
    assert (policy.gpu_hours, policy.usd, policy.mean_jct_s) == pytest.approx((0.5, 1.5, 900.0))
    saved = policy.saved
    assert (saved.gpu_hours.value, saved.usd.value, saved.mean_jct.value) == pytest.approx(
        (1.5, 0.5, 0.75)
    )
    # Two jobs are too few for an interval.
    assert saved.gpu_hours.low is saved.gpu_hours.high is None


def test_the_queue_fills_worker_types_in_the_order_of_the_cluster():
    for cluster, jct_s in (("slow:1,fast:1", 3600.0), ("fast:1,slow:1", 900.0)):
        assert run_queue(trace_of({}), cluster).jobs[0].jct_s == pytest.approx(jct_s)


def test_the_queue_never_preempts_and_serves_first_come_first_served():
    jobs = [
        {"total_steps": steps, "arrival_s": at, "entity": entity}
        for steps, at, entity in ((5000.0, 0.0, "a"), (10.0, 1.0, "b"), (10.0, 2.0, "a"))
    ]
    result = run_queue(trace_of(*jobs), "slow:1")
    assert result.summary.preemptions == 0
    assert [job.end_s for job in result.jobs] == pytest.approx([5000.0, 5010.0, 5020.0])


def test_an_elastic_job_holds_its_smallest_count_in_the_queue():
    trace = trace_of({"scale_factors": (1, 2)})
    assert run(trace, "slow:2").jobs[0].jct_s == pytest.approx(1800.0)
    assert run_queue(trace, "slow:2").jobs[0].jct_s == pytest.approx(3600.0)


def test_a_saving_that_is_the_same_for_every_job_has_an_interval_without_width():
    queue, policy = compare((use([100.0] * 40), use([50.0] * 40)))
    assert (policy.jobs, policy.gpu_hours) == (40, pytest.approx(2000 / 3600))
    saved = policy.saved
    for amount, value in (
        (saved.gpu_hours, queue.gpu_hours / 2),
        (saved.usd, queue.usd / 2),
        (saved.mean_jct, 0.5),
    ):
        assert [amount.value, amount.low, amount.high] == pytest.approx([value] * 3)


def test_a_policy_that_uses_more_has_a_negative_saving():
    _, policy = compare((use([100.0] * 40), use([120.0] * 40)))
    assert policy.saved.usd.value == pytest.approx(-40 * 20 * 2 / 3600)


def test_only_jobs_that_completed_in_every_run_are_compared():
    before = use([10.0, 10.0, 10.0], jct_s=[10.0, np.nan, 10.0])
    after = use([5.0, 1.0, 6.0], jct_s=[5.0, 5.0, np.nan])
    queue, policy = compare((before, after))
    assert (queue.jobs, policy.jobs) == (1, 1)
    assert policy.saved.gpu_hours.value == pytest.approx(5 / 3600)
    with pytest.raises(InputError, match="no job completed under each of queue, policy"):
        compare((use([1.0], jct_s=[np.nan]), use([1.0])))


def test_a_cluster_without_prices_saves_no_money():
    free = use([10.0] * 40)
    free.usd[:] = 0.0
    _, policy = compare((free, free))
    assert (policy.saved.usd.value, policy.saved.usd.low, policy.saved.usd.high) == (0, 0, 0)


def test_figures_of_several_traces_are_means_and_the_interval_covers_each():
    _, policy = compare(*((use([100.0] * 30), use([k] * 30)) for k in (40.0, 80.0)))
    saved = policy.saved.mean_jct
    assert saved.value == pytest.approx(0.4)
    assert [saved.low, saved.high] == pytest.approx([0.2, 0.6])


def test_equal_seeds_give_equal_intervals():
    rng = np.random.default_rng(0)
    pair = use(rng.random(100)), use(rng.random(100))
    assert compare(pair, seed=3) == compare(pair, seed=3)
    assert compare(pair, seed=3) != compare(pair, seed=4)


@pytest.mark.parametrize(
    ("arrival_s", "blocks"),
    [
        ([0.0, 86_399.0, 86_400.0, 30 * 86_400.0], [0, 0, 1, 2]),  # days without jobs are left out
        (np.arange(21) * 3600.0, [*range(20), 19]),  # 20 hours: a part is an hour
        ([5.0, 5.0, 5.0], [0, 0, 0]),
    ],
)
def test_a_block_is_a_day_or_a_part_of_a_short_trace(arrival_s, blocks):
    assert _number_blocks(np.array(arrival_s)).tolist() == blocks


@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_intervals_hold_the_true_saving_as_often_as_their_confidence_says(confidence):
    """200 months of 30 days; each day has a saving of its own around 0.3."""
    rng, held = np.random.default_rng(5), 0
    for month in range(200):
        days = np.repeat(np.arange(30), 8)
        size = rng.lognormal(3.0, 0.5, len(days))
        part = np.repeat(0.3 + rng.normal(0.0, 0.15, 30), 8)
        pair = use(size, arrival_s=days * 86_400.0), use(size * (1.0 - part))
        _, policy = compare(pair, confidence=confidence, seed=month)
        held += policy.saved.mean_jct.low <= 0.3 <= policy.saved.mean_jct.high
    # The standard deviation of the share is at most 3.5 %.
    assert held / 200 == pytest.approx(confidence, abs=0.08)


def test_traces_may_differ_in_their_job_types_only():
    one = trace_of({}, {"arrival_s": 5.0})
    other = trace_of({"total_steps": 7.0}, {"arrival_s": 5.0})
    check_same_jobs([one, other])
    with pytest.raises(InputError, match=r"trace b\.csv has other jobs than a\.csv"):
        check_same_jobs(
            [
                Trace(jobs=one.jobs, source="a.csv"),
                Trace(jobs=one.jobs[:1], source="b.csv"),
            ]
        )
