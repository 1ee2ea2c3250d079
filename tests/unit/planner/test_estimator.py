"""The estimator: figures by hand, learning, inference, and storage."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.estimation.completion import fit_speed_model, ratio_rule
from planner.estimation.estimator import Estimator
from scheduler.domain.throughputs.scaling import steps_per_s_at
from scheduler.domain.throughputs.ways import Source
from scheduler.errors import InputError

TYPES = ("t4", "v100", "a100")


def products(sizes=(1.0, 5.0, 0.3, 20.0), speeds=(1.0, 2.0, 6.0)):
    """Return an estimator of jobs with throughput size x speed, but for the last job."""
    estimator = Estimator()
    for i, size in enumerate(sizes[:-1]):
        for name, speed in zip(TYPES, speeds, strict=True):
            estimator.declare(f"job-{i}", 1, name, size * speed)
    return estimator


def test_of_an_unknown_job_on_unknown_workers_one_step_a_second_is_assumed() -> None:
    for worker_type in TYPES:
        estimate = Estimator().estimate("new", 1, worker_type)
        assert estimate.steps_per_s == 1.0
        assert estimate.source is Source.ASSUMED
        assert estimate.relative_deviation == 1.0
        assert (estimate.samples, estimate.declared, estimate.measured) == (0, None, None)


def test_an_assumed_gang_loses_a_tenth_of_the_speed_up_at_each_doubling() -> None:
    assert Estimator().estimate("new", 4, "v100").steps_per_s == pytest.approx(4 * 0.9**2)


def test_of_an_unknown_job_the_proportions_of_other_jobs_are_assumed() -> None:
    estimator = products()
    speeds = [estimator.estimate("new", 1, name).steps_per_s for name in TYPES]
    assert estimator.estimate("new", 1, "a100").source is Source.ASSUMED
    assert speeds[2] / speeds[0] == pytest.approx(6.0, rel=1e-3)
    assert np.prod(speeds) == pytest.approx(1.0)


def test_a_declared_figure_stands_until_something_is_measured() -> None:
    estimator = Estimator()
    assert estimator.declare("a", 1, "v100", 8.0)
    assert not estimator.declare("a", 1, "v100", 8.0)
    estimate = estimator.estimate("a", 1, "v100")
    assert (estimate.steps_per_s, estimate.source) == (pytest.approx(8.0), Source.DECLARED)
    assert estimate.relative_deviation == pytest.approx(0.2)
    assert estimate.declared == 8.0


def test_one_long_stretch_outweighs_a_declared_figure_by_its_precision() -> None:
    estimator = Estimator()
    estimator.declare("a", 1, "v100", 8.0)
    estimator.observe("a", 1, "v100", 9000.0, 1000.0)
    estimate = estimator.estimate("a", 1, "v100")
    variance = 0.05**2 + (1 / 9000) ** 2 + (0.5 / 1000) ** 2
    share = (1 / variance) / (1 / variance + 1 / 0.2**2)
    assert estimate.steps_per_s == pytest.approx(8.0 ** (1 - share) * 9.0**share)
    assert estimate.relative_deviation == pytest.approx((1 / variance + 25) ** -0.5)
    assert estimate.source is Source.MEASURED
    assert (estimate.samples, estimate.measured) == (1, pytest.approx(9.0))


def test_a_stretch_of_two_steps_does_not_outweigh_a_declared_figure() -> None:
    estimator = Estimator()
    estimator.declare("a", 1, "v100", 8.0)
    estimator.observe("a", 1, "v100", 2.0, 0.2)
    estimate = estimator.estimate("a", 1, "v100")
    assert estimate.source is Source.DECLARED
    assert 8.0 < estimate.steps_per_s < 8.2


def test_a_declared_figure_that_is_ten_times_too_large_soon_counts_for_nothing() -> None:
    estimator = Estimator()
    estimator.declare("a", 1, "v100", 80.0)
    estimator.observe("a", 1, "v100", 2880.0, 360.0)
    assert estimator.estimate("a", 1, "v100").steps_per_s == pytest.approx(8.0, rel=0.005)


def test_stretches_without_a_whole_step_are_put_together() -> None:
    estimator = Estimator()
    estimator.observe("slow", 1, "v100", 0.0, 300.0)
    assert estimator.estimate("slow", 1, "v100").source is Source.ASSUMED
    estimator.observe("slow", 1, "v100", 0.5, 300.0)
    estimator.observe("slow", 1, "v100", 1.5, 400.0)
    estimate = estimator.estimate("slow", 1, "v100")
    assert estimate.measured == pytest.approx(2.0 / 1000.0)
    assert estimate.samples == 1


def test_a_job_that_was_declared_not_to_run_runs_nowhere_until_it_does() -> None:
    estimator = products()
    estimator.declare("job-0", 1, "k80", 0.0)
    estimate = estimator.estimate("job-0", 1, "k80")
    assert (estimate.steps_per_s, estimate.source) == (0.0, Source.DECLARED)
    estimator.observe("job-0", 1, "k80", 100.0, 100.0)
    assert estimator.estimate("job-0", 1, "k80").steps_per_s == pytest.approx(1.0)


def test_a_declared_zero_decides_at_the_counts_beside_it() -> None:
    estimator = products()
    estimator.declare("job-0", 4, "k80", 0.0)
    assert estimator.estimate("job-0", 8, "k80").steps_per_s > 0.0  # it may lack memory at 4
    estimator.declare("job-0", 1, "k80", 0.5)
    assert estimator.estimate("job-0", 8, "k80").steps_per_s == 0.0
    assert estimator.estimate("job-0", 2, "k80").steps_per_s > 0.0
    assert estimator.estimate("job-0", 8, "v100").steps_per_s > 0.0
    estimator.declare("large", 2, "v100", 0.0)
    estimator.declare("large", 4, "v100", 8.0)
    assert estimator.estimate("large", 1, "v100").steps_per_s == 0.0  # it needs more memory
    assert estimator.estimate("large", 8, "v100").steps_per_s > 8.0
    estimator.observe("large", 2, "v100", 400.0, 100.0)
    assert estimator.estimate("large", 1, "v100").steps_per_s > 0.0


def test_a_program_that_became_twice_as_fast_is_learned_within_four_stretches() -> None:
    estimator = Estimator()
    for _ in range(50):
        estimator.observe("a", 1, "v100", 3600.0, 360.0)
    for _ in range(4):
        estimator.observe("a", 1, "v100", 7200.0, 360.0)
    assert estimator.estimate("a", 1, "v100").steps_per_s == pytest.approx(20.0, rel=0.1)


def test_one_odd_stretch_among_many_changes_little() -> None:
    estimator = Estimator()
    for i in range(50):
        estimator.observe("a", 1, "v100", 1800.0 if i == 30 else 3600.0, 360.0)
    assert estimator.estimate("a", 1, "v100").steps_per_s == pytest.approx(10.0, rel=0.02)


def test_stretches_that_scatter_leave_a_larger_deviation() -> None:
    steady, noisy = Estimator(), Estimator()
    for i in range(40):
        steady.observe("a", 1, "v100", 3600.0, 360.0)
        noisy.observe("a", 1, "v100", 3600.0 * (1.15 if i % 2 else 0.85), 360.0)
    assert steady.estimate("a", 1, "v100").relative_deviation < 0.02
    assert noisy.estimate("a", 1, "v100").relative_deviation > 0.03
    assert noisy.estimate("a", 1, "v100").steps_per_s == pytest.approx(10.0, rel=0.05)


def test_a_worker_type_never_run_on_follows_from_the_proportions_of_others() -> None:
    estimator = products()
    estimator.observe("job-3", 1, "v100", 40.0 * 360, 360.0)
    estimate = estimator.estimate("job-3", 1, "a100")
    assert estimate.source is Source.ESTIMATED
    assert estimate.steps_per_s == pytest.approx(120.0, rel=0.05)
    assert 0.02 < estimate.relative_deviation < 0.8
    assert estimator.estimate("job-3", 1, "t4").steps_per_s == pytest.approx(20.0, rel=0.05)


def test_a_worker_type_on_which_nobody_ran_is_as_fast_as_the_others_and_doubtful() -> None:
    estimator = products()
    estimate = estimator.estimate("job-0", 1, "b200")
    assert estimate.source is Source.ESTIMATED
    assert 1.0 < estimate.steps_per_s < 6.0
    assert estimate.relative_deviation >= 1.0


def test_jobs_that_are_like_the_new_one_count_more_than_the_average() -> None:
    # Half of the types gain much from an a100 and little from a v100, half the other way round.
    estimator = Estimator()
    rng = np.random.default_rng(0)
    for i in range(60):
        size, tilt = rng.lognormal(), 2.0 if i % 2 else 0.5
        for name, speed in zip(("t4", "v100", "a100"), (1.0, 3.0 / tilt, 3.0 * tilt), strict=True):
            estimator.declare(f"job-{i}", 1, name, size * speed)
    estimator.observe("new", 1, "t4", 1000.0, 1000.0)
    estimator.observe("new", 1, "v100", 1500.0, 1000.0)
    new = estimator.estimate("new", 1, "a100")
    assert new.steps_per_s == pytest.approx(6.0, rel=0.25)  # the ratio rule says 2.1
    assert new.relative_deviation < 0.6


def test_another_scale_factor_follows_the_rule_of_the_tables() -> None:
    estimator = Estimator()
    for scale, steps_per_s in ((1, 10.0), (4, 30.0)):
        estimator.declare("a", scale, "v100", steps_per_s)
    known = [(1, 10.0), (4, 30.0)]
    for scale in (2, 8):
        estimate = estimator.estimate("a", scale, "v100")
        assert estimate.source is Source.ESTIMATED
        assert estimate.steps_per_s == pytest.approx(steps_per_s_at(known, scale), rel=0.02)


def test_the_rule_for_scale_factors_by_hand() -> None:
    known = [(2, 10.0), (4, 16.0)]
    wanted = {1: 5.0, 2: 10.0, 3: 13.0, 4: 16.0, 8: 28.8, 16: 51.84}
    assert {n: pytest.approx(steps_per_s_at(known, n)) for n in wanted} == wanted


def test_scale_factor_and_worker_type_are_inferred_at_once() -> None:
    estimator = products()
    estimator.declare("job-3", 2, "v100", 40.0)
    assert estimator.estimate("job-3", 4, "a100").steps_per_s == pytest.approx(
        3 * 40 * 1.8, rel=0.1
    )


def test_declared_figures_are_the_estimates() -> None:
    estimator = Estimator()
    estimator.declare("a", 2, "v100", 3.0)
    estimator.declare("a", 2, "k80", 0.0)
    known = [(*key, e.steps_per_s) for *key, e in estimator.known()]
    assert known == [("a", 2, "k80", 0.0), ("a", 2, "v100", pytest.approx(3.0))]
    assert estimator.worker_types == ("k80", "v100")
    assert estimator.job_types == ("a",)
    assert not estimator.declare("a", 2, "v100", 3.0)
    assert estimator.declare("b", 1, "v100", 1.0)


def test_a_type_that_is_forgotten_is_as_new() -> None:
    estimator = products()
    estimator.forget("job-1")
    estimator.forget("nobody")
    assert estimator.estimate("job-1", 1, "v100").source is Source.ASSUMED
    assert "job-1" not in estimator.job_types


@pytest.mark.parametrize("figure", [-1.0, math.inf, math.nan])
def test_a_throughput_that_is_none_is_refused(figure) -> None:
    with pytest.raises(InputError, match=r"'a' on v100 .* steps/s >= 0"):
        Estimator().declare("a", 1, "v100", figure)


@pytest.mark.parametrize(("steps", "seconds"), [(-1.0, 1.0), (1.0, 0.0), (math.inf, 1.0)])
def test_a_stretch_that_cannot_be_is_refused(steps, seconds) -> None:
    with pytest.raises(InputError, match="give steps >= 0 and seconds > 0"):
        Estimator().observe("a", 1, "v100", steps, seconds)


def test_a_scale_factor_of_zero_is_refused() -> None:
    with pytest.raises(InputError, match="scale factor of 'a' is 0"):
        Estimator().declare("a", 0, "v100", 1.0)


def test_absurd_figures_lead_to_no_number_beyond_all_others() -> None:
    estimator = Estimator()
    tiny = 1.2e-38
    for job_type, scale, worker_type, steps_per_s in (
        *(("a", 1, "t4", 0.0), ("a", 1, "a100", tiny), ("a", 2, "v100", 1.0)),
        *(("b", 1, "t4", 1.0), ("b", 1, "a100", 1.0), ("b", 8, "t4", tiny)),
        *(("b", 8, "v100", 1.0), ("b", 8, "a100", 1.0)),
        *(("c", 8, "t4", 1.0), ("c", 8, "v100", 1.0)),
    ):
        estimator.declare(job_type, scale, worker_type, steps_per_s)
    for job_type in ("a", "b", "c", "d"):
        for scale in (1, 2, 8):
            for worker_type in TYPES:
                found = estimator.estimate(job_type, scale, worker_type)
                assert 0.0 <= found.steps_per_s <= 1e12


_CALLS = st.lists(
    st.tuples(
        st.sampled_from(["declare", "observe"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([1, 2, 8]),
        st.sampled_from(TYPES),
        st.floats(0.0, 1e4),
        st.floats(0.1, 1e4),
    ),
    max_size=25,
)


@given(calls=_CALLS, later=_CALLS)
def test_what_was_stored_goes_on_as_if_nothing_had_happened(calls, later) -> None:
    def play(estimator, calls):
        for what, job_type, scale, worker_type, one, other in calls:
            if what == "declare":
                estimator.declare(job_type, scale, worker_type, one)
            else:
                estimator.observe(job_type, scale, worker_type, one, other)
        return estimator

    def answers(estimator):
        return [
            estimator.estimate(job_type, scale, worker_type)
            for job_type in ("a", "b", "c", "d")
            for scale in (1, 2, 4)
            for worker_type in (*TYPES, "new")
        ]

    first = play(Estimator(), calls)
    second = Estimator.restore(json.loads(json.dumps(first.dump(), allow_nan=False)))
    assert answers(first) == answers(second)
    assert answers(play(first, later)) == answers(play(second, later))
    assert first.dump() == second.dump()
    assert all(e.steps_per_s >= 0 and e.relative_deviation >= 0 for e in answers(first))
    assert all(math.isfinite(e.steps_per_s) for e in answers(first))


def test_damaged_or_newer_data_are_refused() -> None:
    with pytest.raises(InputError, match="version 2; this release reads 1"):
        Estimator.restore({"version": 2})
    with pytest.raises(InputError, match="damaged"):
        Estimator.restore({"version": 1, "worker_types": []})


def test_the_ratio_rule_recovers_products_through_holes() -> None:
    job, worker = np.log([1.0, 5.0, 0.3]), np.log([1.0, 2.0, 6.0])
    logs = job[:, None] + worker
    logs[0, 2] = logs[1, 0] = logs[2, 1] = np.nan
    rows, columns = ratio_rule(logs)
    assert np.allclose(np.add.outer(rows, columns), np.add.outer(job, worker), atol=1e-4)


def test_a_model_of_nothing_is_its_prior() -> None:
    model = fit_speed_model(np.empty((0, 2)))
    assert np.allclose(model.mean, 0.0)
    mean, variance = model.complete(np.array([True, False]), np.array([2.0, 0.0]), np.zeros(2))
    assert mean[1] == pytest.approx(2.0, rel=0.1)  # the size carries over
    assert variance[1] > variance[0]


def test_the_model_states_its_own_error_rightly() -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(size=(60, 1)) + rng.normal(size=5) + 0.3 * rng.normal(size=(60, 5))
    logs = np.where(rng.random(truth.shape) < 0.3, np.nan, truth)
    logs = logs[(~np.isnan(logs)).sum(axis=1) > 0]
    truth = truth[: len(logs)] if len(logs) == len(truth) else truth
    model = fit_speed_model(logs)
    off = []
    for row, own in zip(logs, truth, strict=False):
        known = ~np.isnan(row)
        mean, variance = model.complete(known, np.nan_to_num(row), np.zeros(5))
        off += ((mean - own) / np.sqrt(variance))[~known].tolist()
    assert 0.6 < np.std(off) < 1.4
