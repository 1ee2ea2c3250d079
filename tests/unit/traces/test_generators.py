"""Generators against the distributions that they state."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.errors import InputError
from traces import generate, read_throughputs
from traces.generators.distributions import (
    MULTI_SIZES,
    PHILLY_SIZES,
    gavel_durations,
    weekly_profile,
)

N = 20_000


def durations(trace, table, worker_type="v100"):
    return np.array(
        [
            j.total_steps / table.steps_per_s(j.job_type, j.scale_factor, worker_type)
            for j in trace.jobs
        ]
    )


@pytest.fixture(scope="module")
def fine() -> ThroughputTable:
    """So fast that rounding to whole steps does not show, and with gangs of every size."""
    sizes = (1, 2, 4, 8, 16, 32)
    isolated = {(t, n): {"v100": 1e4 * n} for t in "abcde" for n in sizes}
    return ThroughputTable(isolated=isolated | {("solo", 1): {"v100": 1e4}})


@pytest.fixture(scope="module")
def multi(fine):
    return generate("gavel", jobs=N, throughputs=fine, rate_per_hour=5.0, multi=True, seed=3)


def test_gavels_durations_are_uniform_in_the_exponent_of_two_ranges(fine, multi):
    exponent = np.log10(durations(multi, fine) / 60.0)
    short = exponent[exponent < 3.0]
    assert len(short) / N == pytest.approx(0.8, abs=0.01)
    assert stats.kstest(short, stats.uniform(1.5, 1.5).cdf).pvalue > 0.01
    assert stats.kstest(exponent[exponent >= 3.0], stats.uniform(3.0, 1.0).cdf).pvalue > 0.01
    # By hand: E[10^U(a, b)] = (10^b - 10^a) / ((b - a) ln 10).
    short_mean = (1e3 - 10**1.5) / (1.5 * np.log(10))
    mean = 60 * (0.8 * short_mean + 0.2 * (1e4 - 1e3) / np.log(10))
    assert gavel_durations(np.random.default_rng(0), 200_000).mean() == pytest.approx(
        mean, rel=0.02
    )


def test_gavels_arrivals_have_exponential_gaps_and_start_at_0(multi):
    arrivals = np.array([j.arrival_s for j in multi.jobs])
    assert arrivals[0] == 0.0
    gaps = np.diff(arrivals)
    assert gaps.mean() == pytest.approx(720.0, rel=0.03)
    assert stats.kstest(gaps, stats.expon(scale=720.0).cdf).pvalue > 0.01


@pytest.mark.parametrize(("kind", "shares"), [("gavel", MULTI_SIZES), ("philly", PHILLY_SIZES)])
def test_gang_sizes_have_their_odds(fine, kind, shares):
    trace = generate(kind, jobs=N, throughputs=fine, multi=True, seed=1)
    counts = Counter(j.scale_factor for j in trace.jobs)
    expected = np.array(list(shares.values())) * N
    observed = np.array([counts[n] for n in shares])
    assert observed.sum() == N
    assert stats.chisquare(observed, expected).pvalue > 0.01


def test_job_types_are_uniform_and_those_that_do_not_distribute_have_no_gangs(multi):
    single = Counter(j.job_type for j in multi.jobs if j.scale_factor == 1)
    gangs = Counter(j.job_type for j in multi.jobs if j.scale_factor > 1)
    assert set(single) == set("abcde") | {"solo"}
    assert set(gangs) == set("abcde")
    assert stats.chisquare(list(single.values())).pvalue > 0.01
    assert stats.chisquare(list(gangs.values())).pvalue > 0.01


def test_without_gangs_and_rate_all_jobs_are_single_and_arrive_at_0(fine):
    trace = generate("gavel", jobs=50, throughputs=fine)
    assert trace.scale_factors == (1,)
    assert trace.span_s == 0.0
    assert len({j.job_id for j in trace.jobs}) == 50


def test_the_same_seed_gives_the_same_trace_and_another_one_does_not(fine):
    made = [generate(k, jobs=40, throughputs=fine, rate_per_hour=2, multi=True, seed=s)
            for k in ("gavel", "philly") for s in (0, 0, 1)]  # fmt: skip
    assert made[0] == made[1]
    assert made[0].jobs != made[2].jobs
    assert made[3] == made[4]
    assert made[3].jobs != made[5].jobs


def test_philly_like_durations_have_a_heavy_tail_that_gangs_stretch(fine):
    trace = generate("philly", jobs=N, throughputs=fine, multi=True, seed=2)
    size = np.array([j.scale_factor for j in trace.jobs])
    took = durations(trace, fine)
    single, gang = took[size == 1], took[size > 1]
    # The public jobs: medians 1,117 s and about 18,000 s, means 8,301 s and about 81,000 s.
    assert np.median(single) == pytest.approx(np.exp(6.72), rel=0.05)
    assert single.mean() == pytest.approx(8301, rel=0.25)
    assert np.median(gang) == pytest.approx(np.exp(9.3), rel=0.15)
    assert np.quantile(single, 0.99) > 40 * np.median(single)
    assert took.max() <= 53 * 86_400 * 1.001


def test_philly_like_arrivals_follow_the_week_and_keep_their_mean_rate(fine):
    trace = generate("philly", jobs=N, throughputs=fine, rate_per_hour=30.0, seed=4)
    arrivals = np.array([j.arrival_s for j in trace.jobs])
    assert arrivals[0] == 0.0
    assert (np.diff(arrivals) >= 0).all()
    assert N / arrivals[-1] * 3600 == pytest.approx(30.0, rel=0.05)
    # The first gap moved all by less than an hour, so hours of the week still line up.
    weeks = 3
    full = arrivals[arrivals < weeks * 7 * 86_400] / 3600
    by_hour = np.bincount((full % 168).astype(int), minlength=168)
    assert np.corrcoef(by_hour, weekly_profile())[0, 1] > 0.9
    assert weekly_profile().mean() == pytest.approx(1.0)


def test_philly_like_entities_are_of_unequal_size(fine):
    trace = generate("philly", jobs=2000, throughputs=fine)
    counts = Counter(j.entity for j in trace.jobs)
    assert counts.most_common(1)[0][0] == "vc01"
    assert counts["vc01"] > 10 * counts["vc14"] > 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "slurm"}, "unknown kind of workload 'slurm'; known are gavel, philly"),
        ({"jobs": 0}, "jobs is 0"),
        ({"rate_per_hour": 0.0}, r"rate_per_hour is 0\.0"),
        ({"reference_worker_type": "x"}, "'x' is not in the throughput table"),
    ],
)
def test_arguments_out_of_range_are_refused(fine, change, said):
    arguments = {"kind": "gavel", "jobs": 3, "throughputs": fine} | change
    with pytest.raises(InputError, match=said):
        generate(arguments.pop("kind"), **arguments)


def test_a_scale_factor_that_nothing_runs_at_is_refused():
    table = ThroughputTable(isolated={("a", 1): {"v100": 0.0, "k80": 1.0}})
    with pytest.raises(InputError, match="no job type runs at scale factor 1 on v100"):
        generate("gavel", jobs=1, throughputs=table, reference_worker_type="v100")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "rate", "gangs"),
    [("sat_single_n1000_rate0.60", 0.60, False), ("sat_multi_n600_rate0.58", 0.58, True)],
)
def test_gavels_own_traces_come_from_the_same_distributions(shared_data, name, rate, gangs):
    from traces import read_trace

    table = read_throughputs(shared_data / "gavel" / "simulation_throughputs.json")
    theirs = read_trace(shared_data / "gavel" / "traces" / f"{name}_seed0.trace")
    ours = generate("gavel", jobs=3000, throughputs=table, rate_per_hour=rate, multi=gangs, seed=8)
    assert stats.ks_2samp(durations(theirs, table), durations(ours, table)).pvalue > 0.01
    gaps = [np.diff([j.arrival_s for j in t.jobs]) for t in (theirs, ours)]
    assert stats.ks_2samp(*gaps).pvalue > 0.01
    assert {j.job_type for j in theirs.jobs} == {j.job_type for j in ours.jobs}
    assert theirs.scale_factors == ours.scale_factors
    for size in ours.scale_factors:
        kinds = [{j.job_type for j in t.jobs if j.scale_factor == size} for t in (theirs, ours)]
        assert kinds[0] <= kinds[1]
