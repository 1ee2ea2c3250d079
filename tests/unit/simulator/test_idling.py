"""Policies that leave workers idle on purpose, in whole runs, against figures worked out apart."""

import numpy as np
import pytest

from policies.registry import make_policy

#: USD per hour; steps per USD differ by job type.
PRICES = {"type-0": 4.0, "type-1": 1.0}


def cost_usd(run):
    return run.run().summary.cost_usd


def test_the_cheapest_work_costs_what_its_steps_cost_on_the_cheapest_workers(simulation):
    # 3 jobs of 3600 steps: 2/s for 4 USD/h on type 0, 1/s for 1 USD/h on type 1. All on type 1:
    # 3 h for 3 USD. Work-conserving the dear worker helps, and the bill is 5 USD or more.
    run = simulation(
        *(3600, 3600, 3600),
        cluster="type-0:1,type-1:1",
        rates=[[2.0, 1.0]],
        prices=PRICES,
        policy=make_policy("min_cost"),
    )
    result = run.run()
    assert result.summary.cost_usd == pytest.approx(3.0, rel=1e-6)
    assert result.summary.makespan_s == pytest.approx(3 * 3600.0, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_without_deadlines_nothing_is_paid_beyond_the_cheapest_price_of_every_step(
    simulation, seed
):
    rng = np.random.default_rng(seed)
    rates = rng.uniform(1, 10, (4, 2)).round(1)
    jobs = 12
    rows = rng.integers(0, 4, jobs).tolist()
    totals = rng.uniform(500, 20_000, jobs).round()
    run = simulation(
        *totals,
        cluster="type-0:2,type-1:2",
        rates=rates.tolist(),
        profiles=rows,
        arrivals=np.sort(rng.uniform(0, 3_000, jobs)).tolist(),
        prices=PRICES,
        policy=make_policy("min_cost"),
    )
    per_usd = (rates * 3600 / np.array([4.0, 1.0])).max(axis=1)
    assert cost_usd(run) == pytest.approx(float((totals / per_usd[rows]).sum()), rel=1e-5)


@pytest.mark.parametrize("seed", [2, 8])
def test_deadlines_that_can_be_met_are_met_although_workers_idle(simulation, seed):
    rng = np.random.default_rng(seed)
    jobs = 6
    totals = rng.uniform(1_000, 5_000, jobs).round()
    # There are three workers of each type for six jobs; alone on a dear one the most urgent needs
    # a third of its time.
    deadlines = (totals / 2.0 * rng.uniform(3.0, 5.0, jobs)).tolist()
    run = simulation(
        *totals,
        cluster="type-0:3,type-1:3",
        rates=[[2.0, 1.0]],
        deadlines=deadlines,
        prices=PRICES,
        policy=make_policy("min_cost"),
    )
    result = run.run()
    late = [job.job_id for job, due in zip(result.jobs, deadlines, strict=True) if job.end_s > due]
    assert late == []
    most = float(totals.sum()) / 2.0 * 4.0 / 3600  # all of it on the dear workers
    assert result.summary.cost_usd < most


def test_behind_a_gang_everybody_waits_where_backfilling_is_off(simulation):
    # Two of four workers are busy for 500 s; the gang of four waits for them, the others for it.
    shape = {
        "cluster": "type-0:4",
        "rates": [[2.0], [4.0], [1.0]],
        "gangs": [2, 4, 1],
        "profiles": [0, 1, 2, 2],
        "arrivals": [0, 10, 20, 130],
    }
    totals = (1000, 400, 100, 100)
    strict = simulation(*totals, **shape, policy=make_policy("fifo", {"backfill": "false"})).run()
    assert [job.start_s for job in strict.jobs] == pytest.approx([0, 500, 600, 600])
    assert [job.end_s for job in strict.jobs] == pytest.approx([500, 600, 700, 700])
    usual = simulation(*totals, **shape, policy=make_policy("fifo")).run()
    assert [job.start_s for job in usual.jobs] == pytest.approx([0, 500, 20, 130])


def test_a_job_that_has_missed_its_deadline_does_not_wait_beside_idle_workers(simulation):
    # X is for the cheap worker alone, which the two have to share: job 0 would end after 2000 s. It
    # is offered what X leaves over on the dear worker.
    run = simulation(
        *(1000, 5000),
        cluster="type-0:1,type-1:1",
        rates=[[2.0, 1.0]],
        deadlines=[50.0, None],
        prices=PRICES,
        policy=make_policy("min_cost"),
    )
    assert run.run().jobs[0].end_s <= 1000.0
