"""A change of any parameter of any policy changes the policy's answer."""

import pytest

from leasehold_testing.effects import Entry, check_effect, check_table
from leasehold_testing.played import configured, played
from policies.parameters import describe
from policies.registry import BUILT_IN, make_policy, policy_class
from policies.testing import make_problem, make_table
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile
from scheduler.domain.problem import Entity

#: Steps/s of four jobs on two worker types, each of which is better for some of them.
RATES = [[4.0, 1.0], [3.0, 2.0], [2.0, 3.0], [5.0, 4.5]]
ALIKE = [[1.0]] * 2
#: Every two of twelve jobs may share the first worker type.
SOME_PAIRS = [(a, b, 0) for a in range(12) for b in range(a + 1, 12)]


def problem(rates=RATES, *, scale_factor=None, shared=None, **figures):
    """Return a problem with one job for each row of rates; one worker of each type by default."""
    table = make_table(rates, scale_factor=scale_factor, shared=shared)
    return make_problem(table, **{"capacity": [1] * len(rates[0])} | figures)


def answered(name, of, parameters):
    """Return a policy's answer to a problem."""
    answer = make_policy(name, parameters).allocate(of)
    return answer.x.round(6).tolist(), answer.pair_jobs.tolist(), answer.pair_x.round(6).tolist()


def entry(parameter, first, second, of, **beside):
    """Return the entry of ``policy.parameter``: the answer to a problem with either text."""
    name, _, own = parameter.partition(".")

    def observe(text):
        return answered(name, of, {own: text} | beside)

    return parameter, Entry((first, second), observe)


def half_life(name):
    """Return the entry of a half-life: which jobs run after one project had all workers."""

    async def story(stage):
        for i in range(4):
            await stage.job(f"old-{i}", project="old", total_steps=1e6)
        await stage.wait(200, tick_s=5)
        for i in range(4):
            await stage.job(f"new-{i}", project="new", total_steps=1e6)
        await stage.wait(300, tick_s=5)
        return stage.leases()

    def observe(text):
        texts = {"policy.name": name, "policy.parameters.usage_half_life_s": text}
        return played(story, configured(texts), nodes={"n0": ("v100",) * 4})

    return f"{name}.usage_half_life_s", Entry(("20", "10000"), observe)


def growing(*bends):
    """Return a problem of jobs that run on 1, 2 or 4 of five workers, at count ** bend."""
    profiles = tuple(
        Profile(
            job_type=f"bend-{bend}",
            scale_factor=1,
            configurations=tuple(
                Configuration(demand=(count,), throughput=count**bend) for count in (1, 2, 4)
            ),
        )
        for bend in bends
    )
    return make_problem(ConfigurationTable.build(("type-0",), profiles), capacity=[5])


SERVED = {"attained_worker_s": [5e4, 0.0], "age_s": [9e4, 9e4]}
FIRST_SERVED = problem(ALIKE, **SERVED)
TEAMS = problem(
    [[1.0]] * 3, entity=[0, 0, 1], entities=(Entity(name="a"), Entity(name="b")), capacity=[1]
)
PACKED = problem([[10.0]] * 12, shared=dict.fromkeys(SOME_PAIRS, (8.0, 8.0)), capacity=[2])
MIDDLE = problem([[1.0]] * 3, scale_factor=[1, 2, 1], capacity=[2])
GANGS = problem(ALIKE, scale_factor=[5, 8], remaining_steps=[800.0, 500.0], capacity=[8])
GANG_FIRST = problem(ALIKE, scale_factor=[2, 1], remaining_steps=[100.0, 150.0], capacity=[2])
OLD_AND_LONG = problem(ALIKE, remaining_steps=[9e3, 1e2], total_steps=9e3, age_s=[9e5, 0.0])
MOVING = problem([[1.0, 1.1]], held=[0], restart_s=120.0, remaining_steps=1e5)
DEAR = {"cost_usd_per_hour": [5.0, 1.0]}
HURRIED = problem([[2.0, 1.0]], **DEAR, remaining_steps=150.0, time_left_s=100.0)
FOUR = problem(capacity=[2, 2])

ENTRIES = dict(
    [
        entry("allox.alpha", "1", "0.5", problem(ALIKE, **SERVED, remaining_steps=[1e2, 9e3])),
        entry("alpha_fairness.alpha", "0.5", "4", problem()),
        entry("fifo.backfill", "yes", "no", MIDDLE),
        entry("gandiva.seed", "0", "1", PACKED),
        entry("gandiva.migrations", "0", "40", problem()),
        entry("gittins.service_worker_s", "1e5", "1e4,1e6", FIRST_SERVED, quantum_worker_s="1"),
        entry("gittins.quantum_worker_s", "1", "1e6", FIRST_SERVED),
        entry("goodput.power", "-8", "1", growing(1.0, 0.5)),
        entry("goodput.waiting", "1", "9", growing(1.0, 1.0, 1.0, 1.0)),
        entry("goodput.relative_to", "least", "fair_share", growing(1.0, 0.5), power="-1"),
        entry("hierarchical.entity_weights", "a:1", "a:3", TEAMS),
        entry("hierarchical.entity_policies", "a:fairness", "a:fifo", TEAMS),
        half_life("hierarchical"),
        entry("least_remaining_work.shortness", "0", "2", problem()),
        entry("least_remaining_work.patience", "none", "0.01", OLD_AND_LONG),
        entry("least_remaining_work.whole", "yes", "no", GANGS),
        entry("least_remaining_work.horizon_s", "1000", "3600", MOVING),
        half_life("max_min_fairness"),
        entry("max_throughput.normaliser", "none", "best", problem()),
        entry("min_cost.normaliser", "cost", "none", problem(**DEAR)),
        entry("min_cost.slack", "0", "0.5", problem([[2.0, 3.0]] * 2)),
        entry("min_cost.deadlines", "yes", "no", HURRIED),
        entry("partitioned.policy", "fifo", "max_min_fairness", FOUR, k="2"),
        entry("partitioned.k", "1", "2", FOUR),
        entry("partitioned.params", "alpha:0.5", "alpha:4", problem(), policy="alpha_fairness"),
        entry("shortest_job_first.gang_power", "0", "2", GANG_FIRST),
        entry("tiresias.thresholds_worker_s", "1e3", "1e5", FIRST_SERVED),
        entry("tiresias.promote", "none", "0.5", FIRST_SERVED, thresholds_worker_s="1e3"),
    ]
)


def test_every_parameter_has_an_entry():
    check_table(
        ENTRIES,
        [f"{name}.{known.name}" for name in BUILT_IN for known in describe(policy_class(name))],
    )


@pytest.mark.parametrize("parameter", ENTRIES)
def test_a_parameter_changes_the_allocation(parameter):
    check_effect(parameter, ENTRIES[parameter])
