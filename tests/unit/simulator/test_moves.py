"""How often jobs are moved, from trace to leases: under known figures, and under hidden ones."""

from collections import Counter

import pytest

from policies.registry import make_policy
from simulator.world.overheads import Overhead

#: Rates of one job type on 1, 2, 3 and 6 worker types, and the cluster: six equally fast workers.
SIX = [
    ("type-0:6", (1.0,)),
    ("type-0:3,type-1:3", (1.0, 1.0)),
    ("type-0:2,type-1:2,type-2:2", (1.0, 1.0, 1.0)),
    (",".join(f"type-{k}:1" for k in range(6)), (1.0,) * 6),
]


def leases_of(result):
    return Counter(lease.job_id for lease in result.leases)


@pytest.mark.parametrize("policy", ["max_min_fairness", "finish_time_fairness", "isolated"])
@pytest.mark.parametrize(("cluster", "rates"), SIX)
def test_eight_equal_jobs_on_six_equal_workers_need_two_leases_each(
    simulation, cluster, rates, policy
):
    result = simulation(
        *[50.0] * 8,
        cluster=cluster,
        rates=(rates,),
        policy=make_policy(policy, {}),
        round_length_s=15.0,
        keep_bonus=0.5,
    ).run()
    assert max(leases_of(result).values()) <= 2
    assert result.summary.makespan_s == pytest.approx(70.0)  # as on workers of one type


@pytest.mark.parametrize("launch_s", [0.0, 3.0])
def test_a_lone_job_on_idle_equal_workers_has_one_lease(simulation, launch_s):
    for policy in ("max_min_fairness", "isolated", "makespan", "proportional_fairness"):
        result = simulation(
            5000.0,
            cluster="type-0:2,type-1:2",
            rates=((1.0, 1.0),),
            policy=make_policy(policy, {}),
            overhead=Overhead(launch_s=launch_s),
        ).run()
        assert leases_of(result) == {"job-0": 1}


@pytest.fixture
def unseen(simulation):
    """Run two equal jobs on a worker each of two types; the policy sees the types alike."""

    def run(rates):
        policy = make_policy("isolated", {})
        cluster = "type-0:1,type-1:1"
        totals = (3000.0, 3000.0)
        return simulation(
            *totals, cluster=cluster, rates=(rates,), policy=policy, hidden=True
        ).run()

    return run


def test_an_agnostic_policys_turns_are_taken_where_types_differ(unseen):
    result = unseen((1.0, 0.25))
    assert min(leases_of(result).values()) > 5
    first, second = (job.jct_s for job in result.jobs)
    assert first == pytest.approx(second, rel=0.1)  # no job is on the slow type permanently


def test_an_agnostic_policys_turns_move_nobody_between_types_that_are_alike(unseen):
    assert leases_of(unseen((1.0, 1.0))) == {"job-0": 1, "job-1": 1}
