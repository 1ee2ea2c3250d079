"""Equal shares and the isolated policy, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.registry import make_policy
from policies.shares import equal_share, equal_share_throughput, isolated_throughput
from policies.testing import make_problem, make_table
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile
from scheduler.domain.quota import Caps

if TYPE_CHECKING:
    from scheduler.domain.problem import Problem


def test_an_equal_share_is_a_job_s_part_of_every_type_and_at_most_all_its_time() -> None:
    table = make_table([[8, 2]])
    crowded = make_problem(table, capacity=[2, 1], profile=[0] * 4)
    assert equal_share(crowded).tolist() == [0.5, 0.25]
    assert equal_share_throughput(crowded)[0] == 4.5
    roomy = make_problem(table, capacity=[4, 12], profile=[0, 0])
    assert equal_share(roomy).tolist() == [0.25, 0.75]


def test_types_that_cannot_run_the_job_or_its_gang_count_zero() -> None:
    table = make_table([[8, 0], [8, 2]], scale_factor=[1, 2])
    problem = make_problem(table, capacity=[2, 1], profile=[0, 1])
    share = equal_share(problem)
    assert equal_share_throughput(problem).tolist() == pytest.approx([8 * share[0], 8 * share[0]])


def test_of_several_counts_the_one_that_does_most_per_worker_is_what_a_share_is_worth() -> None:
    def configuration(demand: tuple[int, int], rate: float) -> Configuration:
        return Configuration(demand=demand, throughput=rate)

    elastic = Profile(
        job_type="elastic",
        scale_factor=1,
        configurations=(
            configuration((1, 0), 3.0),
            configuration((2, 0), 5.0),
            configuration((0, 1), 2.0),
            configuration((1, 1), 9.0),
        ),
    )
    mixed = Profile(job_type="mixed", scale_factor=2, configurations=(configuration((1, 1), 6.0),))
    table = ConfigurationTable.build(("a", "b"), (elastic, mixed))
    problem = make_problem(table, capacity=[2, 2], profile=[0, 1, 1, 1])
    share = equal_share(problem)
    assert equal_share_throughput(problem)[0] == pytest.approx(3 * share[0] + 2 * share[1])
    assert equal_share_throughput(problem)[1] == pytest.approx(6.0)
    assert make_policy("isolated").allocate(problem).x[0].tolist() == pytest.approx(
        [0.5, 0, 0.5, 0]
    )


def test_who_could_use_more_workers_is_promised_no_more() -> None:
    """Eight jobs on eight workers, fixed at one or allowed eight at a poor speed-up."""

    def jobs(*counts: tuple[int, float]) -> Problem:
        ways = tuple(Configuration(demand=(n,), throughput=rate) for n, rate in counts)
        profile = Profile(job_type="x", scale_factor=counts[0][0], configurations=ways)
        return make_problem(
            ConfigurationTable.build(("a",), (profile,)), capacity=[8], profile=[0] * 8
        )

    fixed, free = jobs((1, 1.0)), jobs((1, 1.0), (8, 6.0))
    assert isolated_throughput(free).tolist() == isolated_throughput(fixed).tolist() == [1.0] * 8
    assert make_policy("isolated").allocate(free).x.tolist() == [[1.0, 0.0]] * 8
    # One that does more per worker at its larger count is worth as much as it can be.
    super_linear = jobs((1, 1.0), (8, 16.0))
    assert isolated_throughput(super_linear).tolist() == [2.0] * 8
    assert make_policy("isolated").allocate(super_linear).x.tolist() == [[0.0, 0.125]] * 8


def test_a_job_that_nothing_can_run_has_no_share() -> None:
    problem = make_problem(make_table([[1.0], [1.0]], scale_factor=[1, 4]), capacity=[2])
    assert np.isnan(equal_share_throughput(problem)).tolist() == [False, True]
    answer = make_policy("isolated").allocate(problem)
    assert answer.x[:, 0].tolist() == [1.0, 0.0]


def test_isolated_gangs_get_a_gang_s_part_of_the_time() -> None:
    table = make_table([[6, 3], [6, 3]], scale_factor=[1, 2])
    problem = make_problem(table, capacity=[2, 4], profile=[0, 1, 0, 0])
    answer = make_policy("isolated").allocate(problem)
    # A quarter of the cluster is 0.5 and 1 workers: 1.5 > 1, so the single job is scaled down.
    np.testing.assert_allclose(answer.x[0], [1 / 3, 2 / 3])
    np.testing.assert_allclose(answer.x[1], [0.25, 0.5])
    np.testing.assert_allclose(answer.effective_throughput(problem), isolated_throughput(problem))
    assert (answer.usage(problem) <= problem.capacity).all()


def mixed_and_single() -> ConfigurationTable:
    def profile(*ways: tuple[tuple[int, int], float]) -> Profile:
        made = tuple(Configuration(demand=demand, throughput=rate) for demand, rate in ways)
        return Profile(job_type="x", scale_factor=sum(ways[0][0]), configurations=made)

    single = profile(((1, 0), 1.0), ((0, 1), 1.0))
    return ConfigurationTable.build(("v", "k"), (profile(((1, 1), 1.0)), single))


@pytest.mark.parametrize(
    ("capacity", "mixed", "single"),
    [([1, 1], 0.5, [0.5, 0.5]), ([4, 1], 0.5, [0.8, 0.2]), ([6, 4], 1.0, [0.6, 0.4])],
)
def test_a_gang_of_several_types_gets_what_its_scarcest_share_serves(
    capacity: list[float], mixed: float, single: list[float]
) -> None:
    problem = make_problem(mixed_and_single(), capacity=capacity)
    answer = make_policy("isolated").allocate(problem)
    np.testing.assert_allclose(answer.x, [[mixed, 0], single])
    np.testing.assert_allclose(isolated_throughput(problem), [mixed, 1.0])


def test_a_gang_of_several_types_is_promised_no_less_when_there_are_more_workers() -> None:
    promised = [
        isolated_throughput(make_problem(mixed_and_single(), capacity=[n, n]))[0]
        for n in (1, 2, 20)
    ]
    assert promised == [0.5, 1.0, 1.0]


def test_of_several_counts_one_that_the_quota_has_room_for_is_taken() -> None:
    elastic = Profile(
        job_type="x",
        scale_factor=1,
        configurations=(
            Configuration(demand=(1,), throughput=1.0),
            Configuration(demand=(2,), throughput=2.2),
        ),
    )
    caps = Caps(
        limit=np.array([1.0]),
        counts=np.ones((1, 1), dtype=bool),
        member=np.array([[True], [False]]),
        group=np.array([0, 1]),
    )
    problem = make_problem(
        ConfigurationTable.build(("v",), (elastic,)), capacity=[4], profile=[0, 0]
    )
    answer = make_policy("isolated").allocate(replace(problem, caps=caps))
    np.testing.assert_allclose(answer.x, [[1.0, 0.0], [0.0, 1.0]])
