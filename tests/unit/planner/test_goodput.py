"""Goodput: times by hand, fits against the model that made the data, batches by brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.learning.goodput import (
    FREE,
    BatchLimits,
    StepTime,
    ThroughputModel,
    best_batch,
    efficiency,
    fit_throughput,
    gain,
    noise_scale,
    rates_by_count,
)
from scheduler.errors import InputError

TRUE = ThroughputModel(
    alpha_c=0.05, beta_c=0.002, alpha_n=0.12, beta_n=0.004, alpha_r=0.03, beta_r=0.002, gamma=2.0
)


def measured(nodes, workers, batch, model=TRUE):
    return StepTime(
        nodes=nodes,
        workers=workers,
        batch_per_worker=batch,
        pass_s=model.pass_s(batch),
        last_pass_s=model.iteration_s(nodes=nodes, workers=workers, batch_per_worker=batch),
    )


def test_an_iteration_is_passes_and_one_exchange_that_overlaps():
    grad, sync = 0.05 + 0.002 * 20, 0.12 + 0.004 * 6
    expected = 3 * grad + math.sqrt(grad**2 + sync**2)
    found = TRUE.iteration_s(nodes=2, workers=8, batch_per_worker=20, accumulation=3)
    assert found == pytest.approx(expected)
    on_one_node = math.sqrt(grad**2 + (0.03 + 0.002 * 2) ** 2)
    assert TRUE.iteration_s(nodes=1, workers=4, batch_per_worker=20) == pytest.approx(on_one_node)
    assert TRUE.iteration_s(nodes=1, workers=1, batch_per_worker=20) == pytest.approx(grad)


def test_the_fit_finds_the_model_that_made_the_data():
    data = [measured(-(-n // 4), n, b) for n in (1, 2, 4, 8, 16) for b in (8, 16, 32, 64)]
    model = fit_throughput(data)
    for nodes, workers, batch in ((1, 3, 24), (3, 12, 48), (6, 24, 10)):
        args = {"nodes": nodes, "workers": workers, "batch_per_worker": batch}
        assert model.iteration_s(**args) == pytest.approx(TRUE.iteration_s(**args), rel=0.08)


def test_what_was_never_tried_is_taken_for_free_but_not_cheaper_than_on_one_node():
    alone = fit_throughput([measured(1, 1, b) for b in (8, 16, 32)])
    assert alone.alpha_r == pytest.approx(FREE)
    assert alone.beta_r == pytest.approx(FREE)
    assert alone.alpha_n == pytest.approx(1.1 * FREE)
    assert alone.pass_s(24) == pytest.approx(TRUE.pass_s(24), rel=0.02)
    one_node = fit_throughput([measured(1, n, b) for n in (1, 2, 4) for b in (8, 16, 32)])
    assert one_node.alpha_n == pytest.approx(1.1 * one_node.alpha_r)
    assert one_node.beta_n == pytest.approx(1.1 * one_node.beta_r)
    assert one_node.alpha_r > 0.01


def test_of_one_batch_alone_half_the_time_is_fixed():
    model = fit_throughput([measured(1, 1, 16)])
    assert model.alpha_c == pytest.approx(TRUE.pass_s(16) / 2)
    assert model.pass_s(16) == pytest.approx(TRUE.pass_s(16), rel=0.02)


def test_efficiency_falls_from_one_and_gain_stays_below_the_noise():
    phi = noise_scale(128, grad_sqr=2.0, grad_var=10.0)
    assert phi == 640.0
    assert efficiency(128, phi, 128) == 1.0
    batches = [128, 256, 1024, 65536]
    worth = [efficiency(128, phi, m) for m in batches]
    assert worth == sorted(worth, reverse=True)
    for m in batches:  # AdaScale's own form of it
        assert gain(128, phi, m) == pytest.approx((10 + 2) / (10 * 128 / m + 2))
    assert gain(128, phi, 1e12) == pytest.approx(1 + 640 / 128)
    assert efficiency(128, noise_scale(128, 0.0, 1.0), 4096) == 1.0


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 32])
@pytest.mark.parametrize("noise", [0.0, 500.0, 1e5])
def test_no_batch_learns_faster(workers, noise):
    limits = BatchLimits(initial=128, most=4096, least_per_worker=32, most_per_worker=256)
    nodes = -(-workers // 4)
    best = best_batch(TRUE, limits, noise, nodes=nodes, workers=workers)
    rates = []
    for b in range(32, 257):
        for s in range(32):
            m = workers * b * (s + 1)
            if 128 <= m <= 4096 and not (workers == 1 and m > 128 and s == 0):
                step_s = TRUE.iteration_s(
                    nodes=nodes, workers=workers, batch_per_worker=b, accumulation=s
                )
                rates.append(gain(128, noise, m) / step_s)
    assert best.steps_per_s >= 0.95 * max(rates)  # the grid has four batches to a doubling
    m = workers * best.batch_per_worker * (best.accumulation + 1)
    assert m <= 4096
    assert 32 <= best.batch_per_worker <= 256


def test_a_job_whose_batch_may_not_change_has_its_throughput_as_goodput():
    limits = BatchLimits(initial=64, most=64, most_per_worker=64)
    rates = rates_by_count(TRUE, limits, 1000.0, [1, 2, 4, 128], workers_per_node=4)
    assert list(rates) == [1, 2, 4]  # 128 workers would have half a sample each
    for n, rate in rates.items():
        step_s = TRUE.iteration_s(nodes=1, workers=n, batch_per_worker=64 / n)
        assert rate == pytest.approx(1 / step_s)


def test_candidates_reach_from_the_initial_batch_to_the_largest():
    limits = BatchLimits(initial=100, most=1000, most_per_worker=1000)
    assert limits.candidates[0] == 100
    assert limits.candidates[-1] == 1000
    assert (np.diff(np.log2(limits.candidates)) < 0.26).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fit_throughput([]), "there are none"),
        (lambda: measured(0, 1, 8), "field 'nodes' is 0"),
        (lambda: BatchLimits(initial=64, most=32, most_per_worker=8), "field 'initial' is 64"),
        (
            lambda: BatchLimits(initial=8, most=32, least_per_worker=9, most_per_worker=8),
            "field 'least_per_worker' is 9",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(make, message):
    with pytest.raises(InputError, match=message):
        make()
