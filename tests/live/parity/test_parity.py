"""The live service and the simulator say the same, command by command.

On one side ``LiveService`` with a store, a journal, snapshots, nodes that follow the agents'
protocol, and a clock that a test moves; on the other ``Simulation``. Nothing is rounded: times and
steps are the same floating-point numbers.
"""

import asyncio
import random

import pytest

from leasehold_testing.faults import Fault
from scheduler.domain.codec import encode
from scheduler.domain.facts.commands import ExtendLeases, GrantLease, RecordEvent, RevokeLease

CASES = [
    ("fifo", {}),
    ("max_min_fairness", {}),
    ("finish_time_fairness", {}),
    ("least_remaining_work", {}),
    ("makespan", {}),
    ("tiresias", {"round_length_s": 1000.0}),
    ("max_min_fairness", {"space_sharing": True}),
    ("max_min_fairness", {"round_length_s": 230.7, "pace": 40.0, "jobs": 30}),
]


#: With space sharing; the others take the same way.
QUICK = [6]


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        pytest.param(*case, marks=() if number in QUICK else pytest.mark.long)
        for number, case in enumerate(CASES)
    ],
)
def test_the_live_path_gives_the_simulators_log(case, policy, options):
    comparison = case(policy, **options)
    live = asyncio.run(comparison.live())
    assert comparison.difference(live, comparison.simulated()) is None

    grants = [command for command in live if isinstance(command, GrantLease)]
    assert any(len(command.lease.workers) > 1 for command in grants)
    assert any(isinstance(command, ExtendLeases) for command in live)
    assert sum(isinstance(command, RevokeLease) for command in live) > 40
    completed = comparison.stage_after.world.completions
    assert completed == {f"job-{i}": 1 for i in range(len(comparison.specs))}


@pytest.mark.long
def test_jobs_that_lose_their_work_or_must_not_be_preempted_give_the_simulators_log(case):
    manners = {i: {"unsaved": True} for i in range(0, 40, 4)}
    manners |= {i: {"unsaved": True, "preemptible": False} for i in range(1, 40, 8)}
    manners |= {i: {"min_run_time_s": 1500.0} for i in range(3, 40, 8)}
    comparison = case("max_min_fairness", manners=manners)
    live = asyncio.run(comparison.live())
    assert comparison.difference(live, comparison.simulated()) is None
    told = [command.kind for command in live if isinstance(command, RecordEvent)]
    assert told.count("job_completed") == len(comparison.specs)
    revoked = {command.lease_id for command in live if isinstance(command, RevokeLease)}
    grants = [command.lease for command in live if isinstance(command, GrantLease)]
    wasted = [one for one in grants if one.lease_id in revoked and int(one.job_id[4:]) % 4 == 0]
    assert len(wasted) > 5


@pytest.mark.long
@pytest.mark.parametrize("policy", ["max_min_fairness", "finish_time_fairness"])
@pytest.mark.parametrize("seed", [1])
def test_a_service_that_is_killed_again_and_again_gives_the_simulators_log(case, policy, seed):
    draw = random.Random(seed)
    comparison = case(policy)
    kills = 0

    async def disturb(stage, _moment):
        nonlocal kills
        if draw.random() < 0.15:
            kills += 1
            if draw.random() < 0.3:
                await stage.driver.write_snapshot()
            await stage.crash()
            await stage.start()
            await stage.settle()

    live = asyncio.run(comparison.live(disturb))
    assert comparison.difference(live, comparison.simulated()) is None
    assert kills > 20


@pytest.mark.long
@pytest.mark.parametrize("policy", ["least_remaining_work"])
def test_deaths_around_commits_change_nothing_either(case, policy, monkeypatch):
    monkeypatch.setattr("scheduler.runtime.driver.driver.COMMIT_RETRY_LEAST_S", 0.0)
    draw = random.Random(policy)
    comparison = case(policy)
    faults = dict.fromkeys(Fault, 0)

    def fault_of(entry):
        if entry.sequence < 5 or draw.random() > 0.25:
            return None
        fault = draw.choice(list(Fault))
        faults[fault] += 1
        return fault

    comparison.store.fault_of = fault_of
    live = asyncio.run(comparison.live())
    assert min(faults.values()) > 10
    # The process that died did not perform its committed decision, so it is in no log; actions of
    # the others are in the simulator's order.
    simulated = iter(encode(command) for command in comparison.simulated())
    assert all(encode(command) in simulated for command in live)
    assert comparison.stage_after.world.completions == {
        f"job-{i}": 1 for i in range(len(comparison.specs))
    }
