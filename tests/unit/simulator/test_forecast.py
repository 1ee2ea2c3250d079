"""The forecast against hand computations, and against the run that it looks ahead of."""

import pickle

import numpy as np
import pytest

from planner.oracle import build_table
from policies.registry import make_policy
from policies.testing import make_table
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.ways import CatalogueKey
from scheduler.engine.settings import EngineSettings
from scheduler.errors import UnknownPolicyError
from simulator.failures import FailureModel
from simulator.forecast import ForecastInput, ForecastJob, Replay, forecast
from simulator.overheads import Overheads
from simulator.run import Simulation
from traces.generate import generate
from traces.throughputs import read_throughputs


def job(name, total, **values):
    return ForecastJob(job_id=name, job_type="profile-0", profile=0, total_steps=total, **values)


def state(*jobs, cluster="type-0:1", rates=((2.0,),), shared=None, gangs=None, **values):
    settings = {"round_length_s": 100.0, "keep_bonus": 0.0} | values.pop("engine", {})
    return ForecastInput(
        cluster=parse_cluster_spec(cluster),
        jobs=jobs,
        table=make_table(rates, scale_factor=gangs, shared=shared),
        settings=EngineSettings(**settings),
        **({"policy": "fifo"} | values),
    )


def times(result):
    return {name: (entry.start_s, entry.completion_s) for name, entry in result.times.items()}


def test_nobody_waits_for_nothing():
    result = forecast(state())
    assert (result.times, result.complete, result.note) == ({}, True, "")


def test_a_running_job_needs_the_rest_of_its_steps():
    result = forecast(state(job("a", 1000.0, steps_done=400.0, configuration=0), round_left_s=30.0))
    assert times(result) == {"a": (0, pytest.approx(300))}
    assert result.complete
    assert result.reached_s == pytest.approx(300)


def test_a_waiting_job_starts_when_the_one_before_it_is_done():
    jobs = job("a", 600.0, age_s=50.0, configuration=0), job("b", 200.0, age_s=20.0)
    result = forecast(state(*jobs, round_left_s=50.0))
    assert times(result) == {"a": (0, pytest.approx(300)), "b": (pytest.approx(300), 400)}


def test_whoever_came_first_goes_first_though_another_runs_now():
    # b runs until the round ends in 40 s, then a, which came first, takes the worker.
    jobs = job("a", 200.0, age_s=90.0), job("b", 200.0, age_s=20.0, configuration=0)
    result = forecast(state(*jobs, round_left_s=40.0))
    assert times(result) == {"a": (40, pytest.approx(140)), "b": (0, pytest.approx(200))}


def test_two_jobs_that_share_time_take_turns_from_the_end_of_the_current_round():
    # a 0-50 and 150-250; b 50-150 and 250-350.
    jobs = job("a", 300.0, configuration=0), job("b", 400.0)
    result = forecast(state(*jobs, policy="max_min_fairness", round_left_s=50.0))
    assert times(result) == {"a": (0, pytest.approx(250)), "b": (50, pytest.approx(350))}


def test_a_job_that_waits_after_a_failure_starts_when_its_wait_is_over():
    # b would be first, but may not start for 70 s; a has the worker until then and after it.
    jobs = job("b", 200.0, age_s=90.0, retry_in_s=70.0), job("a", 100.0, age_s=20.0)
    assert times(forecast(state(*jobs))) == {"b": (70, 170), "a": (0, pytest.approx(50))}


def test_a_job_that_saves_nothing_begins_anew_after_each_turn():
    # a 0-50 and 150-250 in vain, since it needs 150 s at a stretch; b 50-150 and 250-350.
    jobs = job("a", 300.0, configuration=0, safe_steps=0.0), job("b", 400.0)
    result = forecast(state(*jobs, policy="max_min_fairness", round_left_s=50.0))
    assert times(result) == {"a": (0, pytest.approx(500)), "b": (50, pytest.approx(350))}


def test_a_job_that_was_seen_to_be_faster_than_its_type_is_done_sooner():
    # 600 of its steps are left; the table says 2 a second, and it does 4.
    running = job("a", 1000.0, steps_done=400.0, configuration=0, speed=2.0)
    assert times(forecast(state(running, round_left_s=30.0))) == {"a": (0, pytest.approx(150))}


def test_a_job_whose_end_nobody_knows_goes_on_and_the_others_have_their_times():
    jobs = (
        job("service", 100.0, configuration=0, unknown="it says nothing"),
        job("b", 400.0, configuration=0),
        job("c", 300.0),
    )
    result = forecast(state(*jobs, cluster="type-0:2", round_left_s=100.0))
    assert times(result) == {
        "service": (0, None),
        "b": (0, pytest.approx(200)),
        "c": (pytest.approx(200), pytest.approx(350)),
    }
    assert result.complete
    assert result.times["service"].unknown == "it says nothing"


@pytest.mark.parametrize("policy", ["fifo", "max_min_fairness", "least_remaining_work"])
def test_a_job_whose_end_nobody_knows_is_never_taken_for_complete(policy):
    jobs = job("service", 100.0, configuration=0, unknown="?"), job("b", 400.0, age_s=1.0)
    replay = Replay(state(*jobs, policy=policy, round_left_s=100.0))
    replay.enter()
    while replay.to_go and replay.reached_s < 5000.0:
        replay.step()
        steps = dict(zip(("service", "b"), replay._engine.jobs["steps_done"], strict=False))
        assert steps["service"] <= 99.0
    assert replay.times()["service"].completion_s is None
    assert (replay.times()["b"].completion_s is None) is (policy != "max_min_fairness")


def test_a_start_costs_what_a_restart_costs_but_who_runs_already_pays_nothing():
    jobs = job("a", 200.0, restart_s=10.0, configuration=0), job("b", 200.0, restart_s=10.0)
    result = forecast(state(*jobs, round_left_s=100.0))
    assert times(result) == {"a": (0, pytest.approx(100)), "b": (100, pytest.approx(210))}


def test_jobs_that_share_workers_now_go_on_at_what_sharing_leaves_them():
    jobs = (
        job("a", 190.0, pair=0, partner="b"),
        job("b", 380.0, pair=0, partner="a"),
    )
    shared = {(0, 0, 0): (1.9, 1.9)}
    result = forecast(state(*jobs, policy="max_min_fairness", shared=shared, round_left_s=100.0))
    assert times(result) == {"a": (0, pytest.approx(100)), "b": (0, pytest.approx(195))}


def test_a_job_whose_partner_is_not_among_the_jobs_waits():
    result = forecast(state(job("a", 100.0, pair=0, partner="gone"), round_left_s=70.0))
    assert times(result) == {"a": (0, 50)}


def test_workers_out_of_service_serve_nobody():
    jobs = job("a", 200.0, configuration=0), job("b", 200.0)
    both = forecast(state(*jobs, cluster="type-0:2"))
    one = forecast(state(*jobs, cluster="type-0:2", out_of_service=(0,)))
    assert times(both)["b"] == (0, 100)
    assert times(one)["b"] == (100, 200)


def test_a_job_that_finds_no_room_is_not_reached_and_the_reason_is_told():
    gang = job("gang", 100.0, scale_factor=2)
    values = {"rates": ((2.0,),), "gangs": [2], "cluster": "type-0:2", "out_of_service": (1,)}
    result = forecast(state(gang, **values), limit_s=1000.0)
    assert times(result) == {"gang": (None, None)}
    assert not result.complete
    assert result.note


def test_beyond_the_limit_nobody_looks():
    jobs = job("a", 400.0, configuration=0), job("b", 400.0)
    result = forecast(state(*jobs), limit_s=150.0)
    assert times(result) == {"a": (0, pytest.approx(200)), "b": (200, None)}
    assert result.note == "looked 150 s ahead"
    assert not result.complete


def test_a_used_up_budget_gives_what_there_is():
    result = forecast(state(job("a", 400.0, configuration=0)), most_work=0)
    assert times(result) == {"a": (0, None)}
    assert "units of work" in result.note


def test_a_forecast_is_cut_by_its_work_and_so_the_same_however_slow_the_machine_is(monkeypatch):
    jobs = [job(f"j{i}", 1000.0 + 70 * i, age_s=float(100 - i)) for i in range(40)]
    asked = state(*jobs, policy="max_min_fairness", cluster="type-0:3")
    whole = forecast(asked)
    quick = forecast(asked, most_work=whole.work // 3)
    assert whole.complete
    assert any(entry.completion_s is not None for entry in quick.times.values())
    assert not quick.complete
    ticks = iter(range(10**9))
    for clock in ("perf_counter", "monotonic", "time", "process_time"):
        monkeypatch.setattr(f"time.{clock}", lambda: 3600.0 * next(ticks))  # an hour at each look
    assert forecast(asked, most_work=whole.work // 3) == quick
    assert forecast(asked) == whole


def test_a_job_that_can_never_run_is_not_reached():
    cluster = {"rates": ((2.0,), (1.0,)), "gangs": [1, 5]}
    large = ForecastJob(
        job_id="large", job_type="profile-1", profile=1, scale_factor=5, total_steps=1.0
    )
    result = forecast(state(job("a", 100.0), large, **cluster))
    assert times(result) == {"a": (0, 50), "large": (None, None)}


def test_an_unknown_policy_is_told():
    with pytest.raises(UnknownPolicyError):
        forecast(state(job("a", 1.0), policy="nonsense"))


def test_past_service_age_and_deadline_are_known_to_the_policy():
    jobs = (
        job("a", 500.0, age_s=1000.0, attained_worker_s=700.0, configuration=0, deadline_in_s=60.0),
        job("b", 500.0, age_s=10.0, attained_worker_s=5.0, deadline_in_s=-5.0),
    )
    replay = Replay(state(*jobs, round_left_s=30.0))
    asked = []
    answer = replay._policy.allocate
    replay._policy = type(
        "Spy",
        (),
        {"name": "spy", "allocate": lambda self, problem: asked.append(problem) or answer(problem)},
    )()
    replay.enter()
    problem = asked[0]
    assert problem.attained_worker_s == pytest.approx(np.array([700.0, 5.0]))
    assert problem.age_s == pytest.approx(np.array([1000.0, 10.0]))
    assert problem.time_left_s == pytest.approx(np.array([60.0, -5.0]))
    assert problem.held.tolist() == [0, -1]


def test_a_policy_told_wrong_throughputs_decides_by_them_while_jobs_run_at_the_true_ones():
    jobs = (job("a", 200.0),)
    cluster = {"cluster": "type-0:1,type-1:1", "rates": ((2.0, 4.0),)}
    told = make_table(((9.0, 1.0),))
    right = forecast(state(*jobs, **cluster, policy="max_min_fairness"))
    wrong = forecast(state(*jobs, **cluster, believed=told, policy="max_min_fairness"))
    assert times(right) == {"a": (0, 50)}
    assert times(wrong) == {"a": (0, 100)}


def test_the_state_travels_to_another_process():
    asked = state(job("a", 600.0, configuration=0), job("b", 200.0), round_left_s=50.0)
    assert times(forecast(pickle.loads(pickle.dumps(asked)))) == times(forecast(asked))


def simulated(policy, jobs=40):
    """Return a run of jobs that all come within the first three hours."""
    throughputs = read_throughputs("bundled")
    trace = generate("gavel", jobs=jobs, throughputs=throughputs, rate_per_hour=jobs / 3.0, seed=3)
    cluster = parse_cluster_spec("v100:6,a100:4")
    keys = list(dict.fromkeys(CatalogueKey.of_job(j) for j in trace.jobs))
    return Simulation(
        cluster=cluster,
        jobs=trace.jobs,
        profiles=[keys.index(CatalogueKey.of_job(j)) for j in trace.jobs],
        table=build_table(cluster, throughputs, keys),
        policy=make_policy(policy, {}),
        settings=EngineSettings(),
        overheads=Overheads(),
        failures=FailureModel(),
    )


def seen(run, policy):
    """Return what a live service would know at this moment of a run."""
    engine = run._engine
    jobs = []
    for row, (number, job) in enumerate(sorted(engine.jobs.job_of.items())):
        record = engine.jobs.record(row)
        assert record["number"] == number
        jobs.append(
            ForecastJob(
                job_id=job.job_id,
                job_type=job.job_type,
                profile=int(record["profile"]),
                scale_factor=job.scale_factor,
                total_steps=job.total_steps,
                steps_done=float(record["steps_done"]),
                age_s=run._now - job.arrival_s,
                attained_worker_s=float(record["attained_worker_s"]),
                attempts=int(record["attempts"]),
                configuration=int(record["configuration"]),
            )
        )
    return ForecastInput(
        cluster=run._cluster,
        jobs=tuple(jobs),
        table=engine.table,
        policy=policy,
        settings=engine.settings,
        round_left_s=engine.round_end_s - run._now,
    )


@pytest.mark.parametrize(
    ("policy", "usual", "mean"),
    [("fifo", 0.0, 1e-9), ("max_min_fairness", 0.01, 0.005), ("finish_time_fairness", 0.01, 0.005)],
)
def test_a_run_continued_from_its_middle_comes_to_the_same_ends(policy, usual, mean):
    run = simulated(policy)
    while run._next_job < len(run._jobs) or run._now < 5 * 3600.0:
        run._step()
    now, asked = run._now, seen(run, policy)
    assert sum(job.runs for job in asked.jobs) == 10
    assert sum(not job.runs for job in asked.jobs) > 5
    told = forecast(asked)
    ends = {job.job_id: job.end_s for job in run.run().jobs}
    expected = np.array([ends[job.job_id] - now for job in asked.jobs])
    found = np.array([told.times[job.job_id].completion_s for job in asked.jobs])
    off = np.abs(found - expected) / (expected + [job.age_s for job in asked.jobs])
    assert told.complete
    assert np.median(off) <= usual + 1e-9
    assert found.mean() == pytest.approx(expected.mean(), rel=mean)


def test_a_policy_that_fails_leaves_the_jobs_unreached_and_is_named(monkeypatch):
    def fails(problem):
        raise ZeroDivisionError("boom")

    policy = type("Broken", (), {"name": "broken", "time_dependent": False})()
    policy.allocate = fails
    monkeypatch.setattr("simulator.forecast.make_policy", lambda name, params: policy)
    result = forecast(state(job("a", 100.0, configuration=0), job("b", 100.0)))
    assert times(result) == {"a": (0, None), "b": (None, None)}
    assert "policy 'broken' failed" in result.note
