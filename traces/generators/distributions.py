"""The distributions that generators draw from.

Gavel's figures are those of its generator (Narayanan et al., OSDI 2020, section 7.1). The
Philly-like figures are fitted to the public jobs of Jeon et al. (ATC 2019). They are the log-mean
of durations for single workers and gangs, with the deviation that reproduces their mean; shares of
gang sizes and virtual clusters; and arrivals by hour and weekday.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scheduler.domain.arrays import FloatArray, IntArray

#: Probability of each scale factor in Gavel's workloads with gangs.
MULTI_SIZES = {1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}

#: Share of each scale factor among Philly's jobs; the rarest, up to 128, are left out.
PHILLY_SIZES = {1: 0.932, 2: 0.022, 4: 0.023, 8: 0.02, 16: 0.002, 32: 0.001}

#: (log-mean, deviation) of Philly's durations in seconds, for one worker and for gangs.
PHILLY_DURATION = {"single": (6.72, 2.15), "gang": (9.3, 2.0)}

_LONGEST_S = 53 * 86_400.0  # Philly's longest job
_PEAK_HOUR, _SWING, _WEEKEND = (
    5.0,
    0.4,
    0.52,
)  # of arrivals: UTC hour, amplitude, share of a weekday
_ENTITIES, _SKEW = 14, 1.6  # virtual clusters, of shares in proportion to rank ** -1.6
_HOUR_S, _WEEK_H = 3600.0, 168


def gavel_durations(rng: np.random.Generator, jobs: int) -> FloatArray:
    """Return (jobs,) seconds: ``60 x 10^U(1.5, 3)`` in 4 of 5 cases, else ``60 x 10^U(3, 4)``."""
    short = rng.random(jobs) < 0.8
    exponent = np.where(short, rng.uniform(1.5, 3.0, jobs), rng.uniform(3.0, 4.0, jobs))
    result: FloatArray = 60.0 * 10.0**exponent
    return result


def philly_durations(rng: np.random.Generator, sizes: IntArray) -> FloatArray:
    """Return (jobs,) seconds, log-normal, between a second and 53 days; gangs run longer."""
    single, gang = PHILLY_DURATION["single"], PHILLY_DURATION["gang"]
    mean = np.where(sizes > 1, gang[0], single[0])
    deviation = np.where(sizes > 1, gang[1], single[1])
    return np.clip(rng.lognormal(mean, deviation), 1.0, _LONGEST_S)


def philly_entities(rng: np.random.Generator, jobs: int) -> list[str]:
    """Return (jobs,) names of virtual clusters, ``vc01`` the busiest."""
    share = np.arange(1, _ENTITIES + 1) ** -_SKEW
    drawn = rng.choice(_ENTITIES, size=jobs, p=share / share.sum())
    return [f"vc{i + 1:02d}" for i in drawn.tolist()]


def poisson_arrivals(rng: np.random.Generator, jobs: int, rate_per_hour: float) -> FloatArray:
    """Return (jobs,) ascending seconds with exponential gaps; the first is 0."""
    gaps = rng.exponential(_HOUR_S / rate_per_hour, jobs)
    gaps[0] = 0.0
    result: FloatArray = np.cumsum(gaps)
    return result


def weekly_profile() -> FloatArray:
    """Return (168,) relative arrival rates by hour from Monday 0:00; their mean is 1."""
    hour = np.arange(_WEEK_H)
    day = 1.0 + _SWING * np.cos(2 * np.pi * (hour % 24 + 0.5 - _PEAK_HOUR) / 24)
    profile: FloatArray = day * np.where(hour >= 5 * 24, _WEEKEND, 1.0)
    profile /= profile.mean()
    return profile


def diurnal_arrivals(rng: np.random.Generator, jobs: int, rate_per_hour: float) -> FloatArray:
    """Return (jobs,) ascending seconds of a Poisson process with a rate that follows the week.

    The profile starts on a Monday; then all times are shifted so that the first job arrives at 0.
    The points of a process of rate 1 pass through the inverse of the accumulated rate, which is
    exact.
    """
    profile = weekly_profile() * rate_per_hour
    unit = np.cumsum(rng.exponential(1.0, jobs))
    per_week = profile.sum()
    weeks, rest = np.divmod(unit, per_week)
    accumulated = np.concatenate([[0.0], np.cumsum(profile)])
    hours = np.interp(rest, accumulated, np.arange(_WEEK_H + 1.0)) + weeks * _WEEK_H
    result: FloatArray = (hours - hours[0]) * _HOUR_S
    return result
