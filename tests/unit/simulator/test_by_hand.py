"""Whole runs against figures worked out by hand."""

import math

import pytest

from simulator.world.overheads import Overhead

LOST, BACK = True, False


def test_a_job_alone_takes_its_steps_over_its_throughput(simulation):
    result = simulation(1000).run()
    assert result.jobs[0].end_s == pytest.approx(500)
    assert result.summary.average_jct_s == pytest.approx(500)
    assert result.summary.makespan_s == pytest.approx(500)
    assert result.summary.utilisation == pytest.approx(1.0)
    assert result.jobs[0].rho == pytest.approx(1.0)
    assert result.jobs[0].attempts == 1
    assert result.summary.preemptions == 0
    assert result.summary.lease_extension_rate == 1.0


def test_two_jobs_on_one_worker_take_turns(ends):
    # A runs 0-100, 200-300, 400-500; B runs 100-200, 300-400, 500-600.
    assert ends(600, 600) == pytest.approx([500, 600])


def test_a_gang_and_a_single_job_take_turns_on_the_whole_node(ends):
    # The gang of 4 needs everything; the single job runs beside no other job.
    result = ends(800, 400, cluster="type-0:4", rates=[[4.0], [2.0]], gangs=[4, 1], profiles=[0, 1])
    assert result == pytest.approx([300, 400])


def test_an_arrival_in_mid_round_is_served_at_once_on_an_idle_worker(simulation):
    result = simulation(800, 200, cluster="type-0:2", arrivals=[0, 130]).run()
    assert [job.start_s for job in result.jobs] == pytest.approx([0, 130])
    assert [job.end_s for job in result.jobs] == pytest.approx([400, 230])


def test_an_early_finish_frees_its_worker_at_once(simulation):
    # Both want the worker; A has 65 s of work, so B begins at 65 and not at the round's end.
    result = simulation(130, 400).run()
    assert [job.start_s for job in result.jobs] == pytest.approx([0, 65])
    assert [job.end_s for job in result.jobs] == pytest.approx([65, 265])


def test_overheads_shift_times_by_exactly_launch_checkpoint_and_restore(simulation):
    # 0-8 A launches, 8-100 it works (92 s), 100-102 it checkpoints.
    # 102-110 B launches, 110-300 it works (190 s: leaving at 200 would cost more than its lag),
    # 300-302 it checkpoints. 302-313 A launches and restores, works its last 88 s until 401.
    # 401-412 B launches and restores, works its last 85 s until 497.
    result = simulation(
        360, 550, overhead=Overhead(launch_s=8.0, checkpoint_s=2.0, restore_s=3.0)
    ).run()
    assert [job.end_s for job in result.jobs] == pytest.approx([401, 497])
    spans = [(s.job_id, s.start_s, s.end_s, s.reason) for s in result.leases]
    assert spans == [
        ("job-0", 0, pytest.approx(102), "released"),
        ("job-1", pytest.approx(102), pytest.approx(302), "released"),
        ("job-0", pytest.approx(302), pytest.approx(401), "completed"),
        ("job-1", pytest.approx(401), pytest.approx(497), "completed"),
    ]
    assert result.summary.preemptions == 2


def test_a_job_is_kept_until_its_launch_was_worth_it(simulation):
    # 0-20 A launches and works, at 100 for 80 s of four times 25: it goes on. At 200 it may be
    # preempted: it checkpoints until 205. B launches until 225 and works its 100 s until 325.
    result = simulation(600, 200, overhead=Overhead(launch_s=20.0, checkpoint_s=5.0)).run()
    spans = [(s.job_id, s.start_s, s.end_s, s.reason) for s in result.leases]
    assert spans == [
        ("job-0", 0, pytest.approx(205), "released"),
        ("job-1", pytest.approx(205), pytest.approx(325), "completed"),
        ("job-0", pytest.approx(325), pytest.approx(465), "completed"),
    ]


def test_jobs_that_leave_on_notice_hand_their_workers_over_before_the_round_ends(simulation):
    # 0-8 A launches. At 90 it gets notice, works on until 92 (84 s of work) and checkpoints until
    # 97. 97-105 B launches, and at 190 it lags less than a restart costs: it works its 150 s until
    # 255 and counts as complete at 258. 258-266 A launches, works its last 46 s, is complete at
    # 315.
    result = simulation(
        260,
        300,
        overhead=Overhead(launch_s=8.0, checkpoint_s=5.0, notice_s=2.0, complete_s=3.0),
        plan_lead_s=10.0,
    ).run()
    spans = [(s.job_id, s.start_s, s.end_s, s.reason) for s in result.leases]
    assert spans == [
        ("job-0", 0, pytest.approx(97), "released"),
        ("job-1", pytest.approx(97), pytest.approx(258), "completed"),
        ("job-0", pytest.approx(258), pytest.approx(315), "completed"),
    ]


def test_a_job_that_does_its_last_step_after_the_notice_is_complete(simulation):
    # A gets notice at 90 and is done at 91, before it would have stopped at 92; it is complete at
    # 99.
    result = simulation(
        182,
        100,
        overhead=Overhead(checkpoint_s=5.0, notice_s=2.0, complete_s=8.0),
        plan_lead_s=10.0,
    ).run()
    spans = [(s.job_id, s.start_s, s.end_s, s.reason) for s in result.leases]
    assert spans == [
        ("job-0", 0, pytest.approx(99), "completed"),
        ("job-1", pytest.approx(99), pytest.approx(157), "completed"),
    ]


def test_a_pair_runs_at_the_throughputs_of_the_table(simulation, always_together):
    # Together 1.5 and 1.2 steps/s until 200 s; then the second has 160 - 100 s of work left.
    result = simulation(
        300,
        360,
        rates=[[2.0], [2.0]],
        shared={(0, 1, 0): (1.5, 1.2)},
        profiles=[0, 1],
        policy=always_together,
    ).run()
    assert [job.end_s for job in result.jobs] == pytest.approx([200, 260])
    assert all(span.shared for span in result.leases)
    assert result.summary.utilisation == pytest.approx(1.0)
    assert result.series.busy.max() == 1


def test_a_lease_that_is_joined_later_counts_as_shared(simulation, always_together):
    result = simulation(
        300, 300, shared={(0, 0, 0): (1.5, 1.5)}, arrivals=[0, 50], policy=always_together
    ).run()
    assert {span.job_id: span.shared for span in result.leases if span.end_s > 100} == {
        "job-0": True,
        "job-1": True,
    }


def test_a_lost_worker_throws_a_job_back_to_its_last_checkpoint(simulation):
    # Checkpoints at 50 and 100 s; launch takes 20 s, so 80 s of work are safe when the worker is
    # lost at 130 s. It is back at 200 s: launch again, 170 s of work remain.
    result = simulation(
        500,
        overhead=Overhead(launch_s=20.0),
        changes=[(130.0, 0, LOST), (200.0, 0, BACK)],
        checkpoint_interval_s=50.0,
    ).run()
    assert result.jobs[0].end_s == pytest.approx(200 + 20 + 170)
    assert result.leases[0].reason == "lost"
    assert result.jobs[0].preemptions == 0
    assert result.summary.utilisation == pytest.approx((130 + 190) / 390)


def test_without_checkpoints_a_loss_costs_the_whole_lease(ends):
    options = {"changes": [(130.0, 0, LOST), (200.0, 0, BACK)]}
    assert ends(500, checkpoint_interval_s=math.inf, **options) == pytest.approx([450])


@pytest.mark.parametrize(
    ("lost_s", "ends_s"),
    [
        # The checkpoint at 60 s has 120 steps, made alone; 280 s together remain from 300 s.
        (110.0, [580, 640]),
        # The checkpoint at 120 s has 200 steps made alone and 20 made together.
        (130.0, [480, 590]),
    ],
)
def test_a_checkpoint_counts_the_speeds_before_and_after_a_partner_came(
    simulation, always_together, lost_s, ends_s
):
    # The second job comes at 70 s, joins at the round's end at 100 s, and loses its work.
    result = simulation(
        400,
        400,
        shared={(0, 0, 0): (1.0, 1.0)},
        arrivals=[0, 70],
        policy=always_together,
        changes=[(lost_s, 0, LOST), (300.0, 0, BACK)],
        checkpoint_interval_s=60.0,
    ).run()
    assert [job.end_s for job in result.jobs] == pytest.approx(ends_s)


def test_losing_two_workers_of_a_gang_at_one_moment_ends_its_lease_once(simulation):
    result = simulation(
        400,
        cluster="type-0:4",
        rates=[[2.0]],
        gangs=[4],
        changes=[(50.0, 0, LOST), (50.0, 1, LOST), (80.0, 0, BACK), (90.0, 1, BACK)],
    ).run()
    assert [span.reason for span in result.leases] == ["lost", "completed"]
    assert result.jobs[0].end_s == pytest.approx(90 + 200)


def test_a_gang_is_as_slow_as_its_slowest_worker(ends):
    assert ends(400, cluster="type-0:2", gangs=[2], speed=[1.0, 0.5]) == pytest.approx([400])


def test_a_failed_job_is_retried_after_a_growing_wait(simulation):
    # Fails after 30 s, waits 30 s, fails after 10 s, waits 60 s, then works 100 s.
    result = simulation(200, job_failures_s=[30.0, 10.0]).run()
    assert [(s.start_s, s.end_s) for s in result.leases] == [
        pytest.approx((0, 30)),
        pytest.approx((60, 70)),
        pytest.approx((130, 230)),
    ]
    assert [s.reason for s in result.leases] == ["failed", "failed", "completed"]


def test_a_job_that_fails_too_often_ends_as_failed(simulation):
    result = simulation(200, 100, job_failures_s=[30.0], max_failures=0).run()
    assert [job.status for job in result.jobs] == ["failed", "completed"]
    assert result.jobs[0].end_s is None
    assert result.summary.jobs_completed == 1


def test_a_job_that_waits_after_a_failure_is_not_reported_as_running(simulation):
    result = simulation(
        2000, 100, cluster="type-0:2", job_failures_s=[30.0], arrivals=[0, 0], window=(1, 2)
    ).run()
    assert result.summary.makespan_s == pytest.approx(50)
    assert [job.status for job in result.jobs] == ["waiting", "completed"]


def test_a_window_measures_its_jobs_and_ends_the_run_when_they_are_done(simulation):
    result = simulation(600, 400, 200, 4000, cluster="type-0:4", window=(1, 3)).run()
    assert result.summary.window == "1:3"
    assert result.summary.jobs == result.summary.jobs_completed == 2
    assert result.summary.makespan_s == pytest.approx(200)
    assert result.summary.average_jct_s == pytest.approx(150)
    assert [job.measured for job in result.jobs] == [False, True, True, False]
    assert [job.status for job in result.jobs] == ["running", "completed", "completed", "running"]
    assert [span.reason for span in result.leases if span.end_s == 200].count("open") == 2


def test_cost_and_utilisation_follow_from_the_workers_held(simulation):
    # 360 s on two workers at 3.00 an hour each, and 180 s on one at 0.50 an hour.
    result = simulation(
        720,
        180,
        cluster="type-0:2,type-1:2",
        rates=[[2.0, 0.0], [0.0, 1.0]],
        gangs=[2, 1],
        profiles=[0, 1],
        prices={"type-0": 3.0, "type-1": 0.5},
    ).run()
    assert result.summary.cost_usd == pytest.approx(2 * 0.1 * 3.0 + 0.05 * 0.5)
    assert result.summary.utilisation == pytest.approx((2 * 360 + 180) / (4 * 360))


def test_rho_compares_with_a_share_of_every_worker_type(simulation):
    # Alone on 2 fast and 2 slow workers its 1/1 share runs at (2*4 + 2*1) / 4 = 2.5 steps/s.
    result = simulation(400, cluster="type-0:2,type-1:2", rates=[[4.0, 1.0]]).run()
    jct = result.jobs[0].end_s
    assert result.jobs[0].rho == pytest.approx(jct / (400 / 2.5))


def test_rho_of_two_jobs_is_their_jct_over_that_on_half_of_the_cluster(simulation):
    result = simulation(400, 400, cluster="type-0:2", arrivals=[0, 0]).run()
    # Each has a worker of its own: exactly its half.
    assert [job.rho for job in result.jobs] == pytest.approx([1.0, 1.0])


def test_deadlines_that_pass_are_violations(simulation):
    result = simulation(200, 200, deadlines=[150.0, 150.0]).run()
    assert [job.end_s for job in result.jobs] == pytest.approx([100, 200])
    assert result.summary.slo_violations == 1


def test_the_series_counts_running_and_waiting_jobs(simulation):
    series = simulation(200, 200, 200, cluster="type-0:2").run().series
    assert series.running[0] == 2
    assert series.waiting[0] == 1
    assert series.running[-1] == series.waiting[-1] == 0
    assert series.busy[0].tolist() == [2]
