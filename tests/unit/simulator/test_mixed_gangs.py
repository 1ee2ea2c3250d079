"""Mixed gangs in replays: of the engine alone, and of the service."""

import json
from dataclasses import replace

import pytest

from policies.registry import policy_names
from scheduler.control.facts.requests import PolicyChoice
from scheduler.control.state.settings import ControlSettings
from scheduler.engine.settings import EngineSettings
from simulator.request import Service, SimulationRequest
from simulator.run import simulate
from traces.reader import read_trace
from traces.readers.native import write_trace
from traces.tables.throughputs import read_throughputs
from traces.trace import Trace, TraceJob

TABLE = {
    "v100": {"('a', 2)": {"null": 4.0}, "('a', 4)": {"null": 8.0}},
    "k80": {"('a', 2)": {"null": 2.0}, "('a', 4)": {"null": 4.0}},
}


@pytest.fixture
def request_of(tmp_path):
    path = tmp_path / "table.json"
    path.write_text(json.dumps(TABLE))

    def make(*jobs, cluster, service=False, policy="max_min_fairness"):
        request = SimulationRequest(
            trace=Trace(jobs=jobs),
            throughputs=str(path),
            cluster=cluster,
            workers_per_node=1,
            policy=policy,
            record=True,
        )
        if not service:
            return request
        engine = EngineSettings(round_length_s=60.0, plan_lead_s=13.0)
        settings = ControlSettings(engine=engine, policy=PolicyChoice(name=policy))
        return replace(request, service=Service(settings=settings, profile="test"))

    return make


def job(name, *, workers, steps=400.0, **fields):
    workers = (workers,) if isinstance(workers, int) else workers
    return TraceJob(job_id=name, job_type="a", total_steps=steps, scale_factors=workers, **fields)


def ends(result):
    return {one.job_id: (str(one.status), one.end_s) for one in result.jobs}


@pytest.mark.parametrize("service", [False, True])
def test_a_gang_larger_than_any_type_runs_on_two_types(request_of, service):
    alone = simulate(request_of(job("j", workers=4), cluster="v100:2,k80:2", service=service))
    assert ends(alone)["j"][0] == "refused"
    request = request_of(
        job("j", workers=4, mixed_gangs=True), cluster="v100:2,k80:2", service=service
    )
    result = simulate(request)
    status, end_s = ends(result)["j"]
    assert status == "completed"
    # Two v100 do half of 8 steps/s, two k80 half of 4, and 5 % go to the overhead.
    assert end_s == pytest.approx(400.0 / 5.7, abs=3.0)


@pytest.mark.parametrize("service", [False, True])
@pytest.mark.parametrize("policy", ["fifo", "max_min_fairness", "least_remaining_work"])
def test_all_is_done_sooner_if_what_is_left_of_two_types_makes_a_gang(request_of, policy, service):
    def jobs(*, mixed):
        return [job(name, workers=2, steps=1200.0, mixed_gangs=mixed) for name in ("one", "two")]

    last = {
        mixed: max(
            end_s
            for _, end_s in ends(
                simulate(
                    request_of(
                        *jobs(mixed=mixed), cluster="v100:3,k80:1", service=service, policy=policy
                    )
                )
            ).values()
        )
        for mixed in (False, True)
    }
    # One after the other they take 600 s; a v100 and a k80 do 2.85 steps/s beside the first gang.
    assert last[False] == pytest.approx(600.0, abs=5.0)
    assert last[True] < 480.0


def test_a_trace_says_which_jobs_may_and_is_read_back(tmp_path, request_of):
    request = request_of(job("j", workers=4, mixed_gangs=True), cluster="v100:2,k80:2")
    throughputs = read_throughputs(request.throughputs)
    for name in ("t.csv", "t.jsonl"):
        path = tmp_path / name
        write_trace(request.trace, path)
        assert read_trace(path, throughputs=throughputs).jobs == request.trace.jobs
    assert "mixed_gangs" in (tmp_path / "t.csv").read_text()
    write_trace(Trace(jobs=(job("j", workers=2),)), path := tmp_path / "plain.csv")
    assert "mixed_gangs" not in path.read_text(), "few jobs say it"


def test_the_worker_seconds_of_a_gang_count_for_both_types(request_of):
    request = request_of(job("j", workers=4, mixed_gangs=True), cluster="v100:2,k80:2")
    result = simulate(request)
    (lease,) = result.leases
    assert len(lease.workers) == 4
    assert lease.worker_type == "k80 + v100"
    held = [result.worker_types[result.worker_type_of[worker]] for worker in lease.workers]
    assert sorted(held) == ["k80", "k80", "v100", "v100"]
    assert result.series.busy.max(axis=0).tolist() == [2, 2]


@pytest.mark.parametrize("policy", policy_names())
def test_every_policy_serves_mixed_gangs_beside_other_jobs(request_of, policy):
    jobs = [
        job("large", workers=4, mixed_gangs=True),
        job("elastic", workers=(2, 4), mixed_gangs=True, arrival_s=30.0),
        job("plain", workers=2, arrival_s=60.0),
    ]
    request = request_of(*jobs, cluster="v100:3,k80:3", policy=policy)
    assert {status for status, _ in ends(simulate(request)).values()} == {"completed"}
