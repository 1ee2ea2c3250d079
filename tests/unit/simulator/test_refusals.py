"""Jobs that can never run end at once, and inputs that make no sense are refused by name."""

from dataclasses import replace

import pytest

from scheduler.control.state.settings import ControlSettings, PolicyChoice
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.engine.settings import EngineSettings
from scheduler.errors import InputError, LeaseholdError, ParameterError
from simulator.request import Service, SimulationRequest, parse_window
from simulator.run import simulate
from traces.trace import Trace, TraceJob


def test_a_gang_larger_than_the_cluster_is_refused_and_nothing_hangs(simulation):
    result = simulation(
        200, 100, cluster="type-0:2", rates=[[2.0], [2.0]], gangs=[4, 1], profiles=[0, 1]
    ).run()
    assert [job.status for job in result.jobs] == ["refused", "completed"]
    assert result.jobs[0].attempts == 0
    assert result.summary.jobs == 2
    assert result.summary.jobs_completed == 1


def test_a_job_with_zero_throughput_everywhere_is_refused(simulation):
    result = simulation(200, rates=[[0.0]]).run()
    assert [job.status for job in result.jobs] == ["refused"]
    assert result.summary.jobs_completed == 0
    assert result.summary.makespan_s == 0.0
    assert result.summary.to_dict()["average_jct_s"] is None


def test_a_window_that_goes_beyond_the_trace_is_remarked_upon(simulation):
    result = simulation(100, 100, window=(1, 5)).run()
    assert result.warnings == (
        "the window 1:5 goes beyond the 2 jobs of the trace; 1 are measured",
    )
    assert simulation(100, 100, window=(0, 2)).run().warnings == ()


def test_a_window_beyond_the_trace_is_refused(simulation):
    with pytest.raises(ParameterError, match="window is 2:5, but the trace has 2 jobs"):
        simulation(100, 100, window=(2, 5))


def test_a_job_id_used_twice_is_refused(simulation):
    run = simulation(100)
    job = TraceJob(job_id="a", job_type="profile-0", total_steps=1.0)
    with pytest.raises(InputError, match="job 'a' is in the trace twice"):
        type(run)(
            cluster=parse_cluster_spec("type-0:1"),
            jobs=[job, job],
            profiles=[0, 0],
            table=run._engine.table,
            policy=run._policy,
            settings=run._engine.settings,
            overheads=run._overheads,
            failures=run._failures._model,
        )


def test_a_run_that_cannot_go_on_says_who_still_waits(simulation):
    run = simulation(100, changes=[(10.0, 0, True)])
    run._engine.state.set_timer = lambda *_: None  # an engine that forgets to be woken
    with pytest.raises(LeaseholdError, match=r"nothing more can happen at 10 s, but 1 .*job-0"):
        run.run()


@pytest.mark.parametrize("text", ["", "5", "a:b", "5:5", "7:3", "-1:4", "1:2:3"])
def test_a_window_that_is_none_is_refused_with_its_text(text):
    with pytest.raises(ParameterError, match=f"window is '{text}'"):
        parse_window(text)


def test_a_window_is_two_positions():
    assert parse_window("4000:5000") == (4000, 5000)


def test_a_request_refuses_rounds_and_windows_that_are_none():
    need = {"trace": "t", "throughputs": "h", "cluster": "c", "policy": "p"}
    with pytest.raises(ParameterError, match=r"round length is 0\.0 s"):
        SimulationRequest(**need, round_length_s=0.0)
    with pytest.raises(ParameterError, match="window is 5:5"):
        SimulationRequest(**need, window=(5, 5))


def test_a_request_is_labelled_as_a_user_would_write_it():
    request = SimulationRequest(
        trace="t",
        throughputs="h",
        cluster="c",
        policy="fifo",
        params={"backfill": "false"},
        agnostic=True,
        space_sharing=True,
    )
    assert request.label == "fifo:backfill=false+agnostic+packed"


TABLE = ThroughputTable(
    isolated={
        ("a", 1): {"v": 1.0, "k": 0.5},
        ("a", 4): {"v": 4.0, "k": 0.0},
        ("big", 8): {"k": 8.0},
        ("big", 16): {"v": 16.0},
    }
)


@pytest.mark.parametrize("service", [False, True])
def test_a_job_runs_only_where_the_table_has_a_row(service):
    jobs = tuple(
        TraceJob(job_id=name, job_type=job_type, total_steps=1000.0, scale_factors=counts)
        for name, job_type, counts in (
            ("zero beside", "a", (4, 8)),
            ("single", "a", (1,)),
            ("elastic", "big", (2, 4, 8, 16)),
            ("two", "big", (2,)),
        )
    )  # fmt: skip
    request = SimulationRequest(
        trace=Trace(jobs=jobs), throughputs=TABLE, cluster="k:8,v:1", policy="fifo", record=True
    )
    if service:
        engine = EngineSettings(plan_lead_s=15.0, refuse_what_cannot_fit=False)
        settings = ControlSettings(policy=PolicyChoice(name="fifo"), engine=engine)
        request = replace(request, service=Service(settings=settings, profile="test"))
    result = simulate(request)
    assert [job.status for job in result.jobs] == ["refused", "completed", "completed", "refused"]
    assert {len(s.workers) for s in result.leases if s.job_id == "elastic"} == {8}
    assert "no row cannot run (1, such as 'two' of type 'big' at 2)" in result.warnings[-1]
    # The trace's counts are derived, unless the table has a 0 or lacks a worker type.
    derived = simulate(replace(request, derive_counts=True))
    assert [job.status for job in derived.jobs][2:] == ["completed", "completed"]
    assert derived.jobs[0].status == "refused"


def test_a_gang_larger_than_the_cluster_is_told_its_size_and_not_to_add_rows():
    jobs = (TraceJob(job_id="wide", job_type="a", total_steps=10.0, scale_factors=(64,)),)
    result = simulate(
        SimulationRequest(trace=Trace(jobs=jobs), throughputs=TABLE, cluster="v:4", policy="fifo")
    )
    (warning,) = result.warnings
    assert "needs at least 64 workers of one type, more than the cluster has (v: 4)" in warning


def test_arrivals_by_the_calendar_are_remarked_upon():
    jobs = (TraceJob(job_id="a", job_type="a", total_steps=10.0, arrival_s=1.7e9),)
    result = simulate(
        SimulationRequest(trace=Trace(jobs=jobs), throughputs=TABLE, cluster="v:1", policy="fifo")
    )
    assert "the first job arrives 19,676 days after the start" in result.warnings[-1]
