"""Forecasts at submission: futures without rounds, drawn from the past, and their errors."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from leasehold.cli.main import app
from policies.registry import make_policy
from scheduler.control.state.settings import ControlSettings
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.errors import ParameterError
from simulator.forecast.fluid import Arrivals, completion_s
from simulator.forecast.intervals import Calibration, Submissions, draw_futures
from simulator.forecast_score import ForecastScore, SubmissionForecast
from simulator.request import ForecastOptions, Service, SimulationRequest
from simulator.run import simulate
from traces.trace import Trace, TraceJob

TABLE = ThroughputTable(isolated={("a", 1): {"v100": 1.0}, ("a", 2): {"v100": 2.0}})
NEVER = 10**6


def job(name, steps, arrival_s=0.0, scale_factor=1):
    return TraceJob(
        job_id=name,
        job_type="a",
        total_steps=steps,
        arrival_s=arrival_s,
        scale_factors=(scale_factor,),
    )


def request(*jobs, workers=1, policy="max_min_fairness", **given):
    return SimulationRequest(
        trace=Trace(jobs=jobs),
        throughputs=TABLE,
        cluster=f"v100:{workers}",
        policy=policy,
        **({"round_length_s": 1.0} | given),
    )


def first_problem(asked):
    """Return the problem at the last submission of a run, and the number of its newest job."""
    seen = []
    before = Submissions.note

    def note(self, problem, job_of):
        seen.append(problem)
        before(self, problem, job_of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Submissions, "note", note)
        simulate(replace(asked, forecasts=ForecastOptions(jobs=1, futures=1)))
    jobs = max(problem.jobs for problem in seen)
    return next(problem for problem in seen if problem.jobs == jobs)


def arrivals(*of):
    """Return a block of jobs: (arrival, steps) each."""
    at_s, steps = (np.array(column, dtype=float) for column in zip(*of, strict=True))
    ones = np.ones(len(of), dtype=np.int64)
    return Arrivals(
        arrival_s=at_s,
        profile=0 * ones,
        scale_factor=ones,
        total_steps=steps,
        weight=ones.astype(float),
        entity=0 * ones,
    )


def ends(problem, number, *blocks, policy="max_min_fairness", most=NEVER):
    return completion_s(problem, make_policy(policy, {}), number, iter(blocks), most_questions=most)


def test_two_jobs_share_a_worker_until_the_shorter_is_done():
    problem = first_problem(request(job("x", 100.0), job("y", 300.0)))
    assert problem.now_s == 0.0
    assert ends(problem, 0) == pytest.approx(200.0)
    assert ends(problem, 1) == pytest.approx(400.0)


def test_who_comes_later_takes_a_share():
    problem = first_problem(request(job("x", 100.0), job("y", 300.0)))
    # Alone together for 30 s; then three share: x has 85 left, which takes 255 s.
    assert ends(problem, 0, arrivals((30.0, 500.0))) == pytest.approx(285.0)
    # Two blocks of one are the same as one block of two.
    apart = ends(problem, 1, arrivals((30.0, 50.0)), arrivals((60.0, 70.0)))
    assert apart == ends(problem, 1, arrivals((30.0, 50.0), (60.0, 70.0)))
    assert apart == pytest.approx(100.0 + 300.0 + 50.0 + 70.0)


def test_what_is_not_seen_to_the_end_has_no_end():
    problem = first_problem(request(job("x", 100.0), job("y", 300.0)))
    assert ends(problem, 1, most=1) is None
    gang = first_problem(
        request(job("x", 100.0), job("wide", 10.0, scale_factor=2), workers=2, policy="fifo")
    )
    alone = replace(gang, capacity=np.array([1.0]))
    assert ends(alone, 1, policy="fifo") is None  # no workers for it, and no job comes


@pytest.mark.parametrize("policy", ["max_min_fairness", "least_remaining_work", "fifo"])
def test_rounds_complete_jobs_when_the_replay_without_rounds_does(policy):
    rng = np.random.default_rng(4)
    jobs = [job(f"j{i}", float(rng.uniform(2e3, 2e4))) for i in range(8)]
    asked = request(*jobs, workers=4, policy=policy, round_length_s=20.0)
    came = {outcome.job_id: outcome.end_s for outcome in simulate(asked).jobs}
    problem = first_problem(asked)
    for number, one in enumerate(jobs):
        assert ends(problem, number, policy=policy) == pytest.approx(came[one.job_id], rel=0.05)


def test_futures_are_pieces_of_the_past_as_far_ahead_as_it_goes_back():
    hour = 3600.0
    past = arrivals(*((hour * i, float(i)) for i in range(1, 97)))
    now = 97 * hour
    drawn = list(draw_futures(past, now, np.random.default_rng(0)))
    at_s = np.concatenate([block.arrival_s for block in drawn])
    steps = np.concatenate([block.total_steps for block in drawn])
    assert (np.diff(at_s) >= 0).all()
    assert at_s[0] > now
    assert at_s[-1] <= now + 96 * hour + 24 * hour
    assert len(drawn) == 4  # days
    assert np.allclose(np.diff(at_s), hour, atol=hour)
    assert set(steps.tolist()) <= set(past.total_steps.tolist())
    for block in drawn:  # in the order of the past
        assert np.allclose(np.diff(block.total_steps), 1.0)
    other = next(draw_futures(past, now, np.random.default_rng(1)))
    assert other.total_steps.tolist() != drawn[0].total_steps.tolist()


def test_a_short_past_says_nothing_and_one_of_minutes_only_minutes():
    few = arrivals(*((float(i), 1.0) for i in range(4)))
    assert list(draw_futures(few, 10.0, np.random.default_rng(0))) == []
    burst = arrivals(*((float(i), float(i)) for i in range(60)))
    (block,) = draw_futures(burst, 60.0, np.random.default_rng(0))
    assert len(block) == 60
    assert 60.0 <= block.arrival_s.min() <= block.arrival_s.max() <= 120.0


def test_intervals_that_are_too_narrow_are_widened_by_what_they_missed():
    rng = np.random.default_rng(2)
    calibration = Calibration(0.9)
    narrow = wide = 0
    for i in range(1500):
        futures = np.sort(100.0 * np.exp(0.1 * rng.normal(size=20)))
        actual = 100.0 * float(np.exp(0.5 * rng.normal()))
        low, high = calibration.quantiles(futures, 0.0)
        below, above = calibration.widened(low, high, float(i))
        narrow += low <= actual <= high
        wide += below <= actual <= above
        calibration.learn(low, high, actual, ended_s=float(i))
    assert narrow / 1500 < 0.5
    assert 0.87 < wide / 1500 < 0.95


def test_nothing_is_learned_from_what_has_not_ended_yet():
    calibration = Calibration(0.9)
    for _ in range(50):
        calibration.learn(90.0, 110.0, 500.0, ended_s=1000.0)
    assert calibration.widened(90.0, 110.0, 999.0) == (90.0, 110.0)
    assert calibration.widened(90.0, 110.0, 1000.0) == pytest.approx((90.0, 500.0))


def test_a_run_forecasts_chosen_jobs_and_scores_them():
    jobs = [job(f"j{i}", 100.0, arrival_s=1000.0 * i) for i in range(15)]
    result = simulate(request(*jobs, forecasts=ForecastOptions(jobs=5)))
    assert [one.job_id for one in result.forecasts] == [f"j{i}" for i in range(0, 15, 3)]
    score = ForecastScore.of(result.forecasts)
    # Each is alone; no job comes while it runs.
    assert (score.jobs, score.coverage) == (5, 1.0)
    assert score.mean_error_alone == pytest.approx(0.0, abs=1e-6)
    assert score.mean_error < 0.1  # in some futures the next one comes earlier
    again = simulate(request(*jobs, forecasts=ForecastOptions(jobs=5)))
    assert again.forecasts == result.forecasts
    plain = simulate(request(*jobs))
    assert plain.forecasts == ()
    assert plain.jobs == result.jobs


@pytest.mark.long
def test_futures_in_which_others_come_are_longer_and_nearer_to_what_comes():
    rng = np.random.default_rng(7)
    at_s = np.cumsum(rng.exponential(120.0, size=150))
    jobs = [job(f"j{i}", float(rng.exponential(100.0) + 20), float(at_s[i])) for i in range(150)]
    result = simulate(
        request(*jobs, forecasts=ForecastOptions(jobs=40, futures=10), round_length_s=10.0)
    )
    score = ForecastScore.of(result.forecasts)
    assert score.mean_error < 0.9 * score.mean_error_alone
    assert all(one.alone_s <= one.jct_s * (1 + 1e-9) for one in result.forecasts)
    assert 0.8 <= score.coverage <= 1.0


def test_scores_leave_out_who_did_not_complete():
    ended = SubmissionForecast(
        job_id="a",
        submitted_s=0.0,
        jct_s=100.0,
        low_s=90.0,
        high_s=120.0,
        alone_s=80.0,
        actual_s=120.0,
    )
    assert ended.error == pytest.approx(0.2)
    assert ended.held is True
    waits = replace(ended, actual_s=None)
    assert (waits.error, waits.held) == (None, None)
    score = ForecastScore.of([ended, waits])
    assert (score.jobs, score.mean_error_alone) == (1, 0.5)
    assert ForecastScore.of([waits]).to_dict()["mean_error"] is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"jobs": -1}, "forecasts is -1"),
        ({"futures": 0}, "futures is 0"),
        ({"confidence": 1.0}, "confidence is 1.0"),
    ],
)
def test_bad_options_are_named(given, said):
    with pytest.raises(ParameterError, match=said):
        ForecastOptions(**given)


def test_a_service_is_not_scored():
    service = Service(settings=ControlSettings(), profile="leasehold.toml")
    with pytest.raises(ParameterError, match="forecasts is 3, and a configuration is replayed"):
        request(job("x", 1.0), service=service, forecasts=ForecastOptions(jobs=3))


def test_the_command_shows_the_score_and_writes_every_forecast(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    command = [
        *("simulate", "bundled:small", "--throughputs", "bundled", "--cluster", "v100:4,t4:4"),
        *("--policy", "fifo", "--limit", "12", "--forecasts", "6", "--futures", "3"),
    ]
    shown = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
    assert shown.exit_code == 0, shown.exception
    assert "90% intervals that held" in shown.stdout
    with (tmp_path / "out" / "forecasts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    for row in rows:
        low, made, high = (float(row[name]) for name in ("low_s", "jct_s", "high_s"))
        assert low <= made <= high
        assert row["held"] == str(low <= float(row["actual_s"]) <= high).lower()
    ran = CliRunner().invoke(app, [*command, "--json"])
    found = json.loads(ran.stdout)["forecasts"]
    assert found["jobs"] == 6
    assert found["coverage"] == pytest.approx(sum(row["held"] == "true" for row in rows) / 6)
    bad = CliRunner().invoke(app, [*command, "--confidence", "1.5"])
    assert bad.exit_code != 0
