"""Launches that take as long as a round or longer: replays end under every policy, and soon."""

import pytest

import leasehold
from policies.registry import policy_names
from scheduler.domain.throughputs.throughput import ThroughputTable
from simulator.api import simulate
from traces.trace import Trace, TraceJob

ROUND_S = 300.0
LENGTHS_S = (1000.0, 700.0, 1500.0)


def replayed(*arguments, **more):
    """Replay jobs with launches that take a while; return the summary."""
    return simulated(*arguments, **more).summary


def simulated(policy, launch_s, cluster, tmp_path, *, counts=(1,), lengths_s=LENGTHS_S):
    overheads = tmp_path / "overheads.yaml"
    overheads.write_text(f"default: {{launch_s: {launch_s}}}\n")
    rates = {("any", n): {"v": n**0.8, "k": 0.5 * n**0.8} for n in counts}
    jobs = tuple(
        TraceJob(
            job_id=f"job-{i}",
            job_type="any",
            total_steps=length_s,
            scale_factors=counts,
        )
        for i, length_s in enumerate(lengths_s)
    )
    found = simulate(
        Trace(jobs=jobs),
        throughputs=ThroughputTable(isolated=rates),
        cluster=cluster,
        policy=policy,
        round_length_s=ROUND_S,
        overheads=overheads,
        progress=False,
    )
    assert found.summary.jobs_completed == len(jobs)
    return found


@pytest.mark.parametrize("policy", policy_names())
@pytest.mark.parametrize("rounds", [0.5, 1.0, 1.3])
def test_launches_end_under_every_policy(policy, rounds, tmp_path):
    one, several = (1,), (1, 2)
    for cluster, counts in (("v:1", one), ("v:1,k:1", one), ("v:2", several), ("v:2,k:2", several)):
        launch_s = rounds * ROUND_S
        first = replayed("fifo", launch_s, cluster, tmp_path, counts=counts)
        found = replayed(policy, launch_s, cluster, tmp_path, counts=counts)
        assert found.makespan_s <= 1.5 * first.makespan_s


@pytest.mark.parametrize(("launch_s", "part"), [(100.0, ""), (300.0, "23%")])
def test_launches_that_take_over_a_tenth_of_the_time_are_remarked_on(launch_s, part, tmp_path):
    """One after the other on one worker: 3 launches, and 1,000 s of work on average."""
    found = simulated("fifo", launch_s, "v:1", tmp_path, lengths_s=(1000.0, 1000.0, 1000.0))
    assert found.summary.launching == pytest.approx(launch_s / (1000.0 + launch_s))
    remarks = [text for text in found.warnings if "launches and restores took" in text]
    assert [text.split()[4] for text in remarks] == [part] * bool(part)


def test_two_jobs_on_one_worker_whose_launch_takes_nearly_a_round(tmp_path):
    found = replayed("max_min_fairness", 299.0, "v:1", tmp_path, lengths_s=(1000.0, 1000.0))
    assert found.makespan_s == 2 * (299.0 + 1000.0)


@pytest.mark.parametrize("config", [None, "[engine]\nround_length_s = 300\n"])
def test_a_launch_costs_what_it_costs_on_the_workers_that_a_job_gets(config, tmp_path):
    """One job runs on ``v`` only. The other runs on ``k`` only, and launches there for 90 s."""
    overheads, settings = tmp_path / "overheads.yaml", tmp_path / "leasehold.toml"
    overheads.write_text("default: {launch_s: 20, workers: {'k:1': {launch_s: 90}}}\n")
    settings.write_text(config or "")
    jobs = tuple(
        TraceJob(job_id=kind, job_type=kind, total_steps=600.0) for kind in ("fast", "slow")
    )
    found = simulate(
        Trace(jobs=jobs),
        throughputs=ThroughputTable(isolated={("fast", 1): {"v": 1.0}, ("slow", 1): {"k": 0.5}}),
        cluster="v:1,k:1",
        overheads=overheads,
        progress=False,
        **(
            {"policy": "fifo", "round_length_s": ROUND_S}
            if config is None
            else {"service": leasehold.read_service(settings)}
        ),
    )
    assert found.summary.makespan_s == pytest.approx(1290.0, abs=1.0)
    assert found.summary.average_jct_s == pytest.approx((620.0 + 1290.0) / 2, abs=1.0)


def test_a_job_does_not_move_to_a_faster_worker_if_it_would_end_no_sooner_there(tmp_path):
    found = replayed("max_min_fairness", 390.0, "v:1,k:1", tmp_path, lengths_s=(1000.0, 700.0))
    assert (found.makespan_s, found.preemptions) == (390.0 + 2000.0, 0)
