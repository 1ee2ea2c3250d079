"""The gradient noise of drawn gradients, with known q and S; rules of the learning rate."""

from __future__ import annotations

import math

import numpy as np
import pytest

from leasehold.gradient_noise import GradientNoise, GradientNorms, gain, learning_rate_rule

INITIAL = 32


def drawn_norms(draws, sizes):
    """Return the norms of a step: gradients of so many samples each, of mean (1, -2, 0...)."""
    mean = np.zeros(10)
    mean[:2] = 1.0, -2.0  # q = 5
    each = [mean + 3.0 / math.sqrt(n) * draws.standard_normal(10) for n in sizes]  # S = 90
    large = np.average(each, axis=0, weights=sizes)
    return GradientNorms(
        small_sqr=float(np.mean([g @ g for g in each])),
        large_sqr=float(large @ large),
        small=len(sizes) / sum(1 / n for n in sizes),
        large=sum(sizes),
    )


@pytest.mark.parametrize("sizes", [(8, 8), (8, 8, 8, 8), (7, 8, 3, 20, 1), (64, 64)])
def test_q_and_v_are_found_whatever_the_sizes(sizes):
    draws, noise = np.random.default_rng(1), GradientNoise(initial=INITIAL)
    for _ in range(8000):
        noise.observe(drawn_norms(draws, sizes))
    assert noise.sqr == pytest.approx(5.0, rel=0.1)
    assert noise.variance == pytest.approx(90.0 / INITIAL, rel=0.1)
    assert noise.scale_samples == pytest.approx(18.0, rel=0.15)


def test_a_single_step_stands_without_bias_toward_zero():
    noise = GradientNoise(initial=INITIAL)
    noise.observe(GradientNorms(small_sqr=5 + 90 / 4, large_sqr=5 + 90 / 32, small=4, large=32))
    assert noise.sqr == pytest.approx(5.0)
    assert noise.variance == pytest.approx(90.0 / 32)


def test_the_average_forgets_by_samples_not_by_steps():
    def after(steps, size):
        noise = GradientNoise(initial=INITIAL)
        for q, count in ((100.0, steps), (5.0, steps)):
            for _ in range(count):
                small = size / 4
                noise.observe(
                    GradientNorms(
                        small_sqr=q + 90 / small, large_sqr=q + 90 / size, small=small, large=size
                    )
                )
        return noise.sqr

    assert after(800, 32) == pytest.approx(after(100, 256))
    assert 5.0 < after(800, 32) < 100.0


def test_what_is_not_finite_is_left_out_and_nothing_falls_below_zero():
    noise = GradientNoise(initial=INITIAL)
    assert noise.scale_samples == 0.0
    noise.observe(GradientNorms(small_sqr=math.inf, large_sqr=1.0, small=4, large=8))
    noise.observe(GradientNorms(small_sqr=math.nan, large_sqr=1.0, small=4, large=8))
    assert not noise.known
    noise.observe(GradientNorms(small_sqr=2.0, large_sqr=0.5, small=4, large=8))  # q is below 0
    assert noise.sqr > 0
    assert gain(INITIAL, noise.scale_samples, 64) == pytest.approx(2.0)
    noise = GradientNoise(initial=INITIAL)
    noise.observe(GradientNorms(small_sqr=1.0, large_sqr=1.5, small=4, large=8))  # S is below 0
    assert noise.variance > 0
    assert gain(INITIAL, noise.scale_samples, 64) == pytest.approx(1.0)


def test_the_state_is_taken_over_to_the_bit():
    draws, noise = np.random.default_rng(2), GradientNoise(initial=INITIAL)
    for _ in range(7):
        noise.observe(drawn_norms(draws, (5, 6)))
    again = GradientNoise(initial=INITIAL)
    again.load_state_dict(noise.state_dict())
    for one in (noise, again):
        one.observe(drawn_norms(np.random.default_rng(3), (5, 6)))
    assert again.state_dict() == noise.state_dict()


@pytest.mark.parametrize(
    ("rule", "factor"),
    [
        ("adascale", 2.5),
        ("linear", 4.0),
        ("sqrt", 2.0),
        ("fixed", 1.0),
        (lambda scale, gained: scale + 10 * gained, 29.0),
    ],
)
def test_rules_give_the_factor_of_the_learning_rate(rule, factor):
    assert learning_rate_rule(rule)(4.0, 2.5) == factor


def test_an_unknown_rule_is_named():
    with pytest.raises(ValueError, match="no learning rate rule 'cubic'; use adascale, linear"):
        learning_rate_rule("cubic")
