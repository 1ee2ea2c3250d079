"""Runs that end at a given time."""

from dataclasses import replace

import pytest

from scheduler.control.state.settings import ControlSettings, PolicyChoice
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.engine.settings import EngineSettings
from scheduler.errors import ParameterError
from simulator.request import Service, SimulationRequest
from simulator.run import simulate
from traces.trace import Trace, TraceJob


@pytest.mark.parametrize("service", [False, True])
def test_a_run_ends_at_the_time_that_is_given(service):
    jobs = tuple(TraceJob(job_id=name, job_type="x", total_steps=100.0) for name in "abc")
    late = TraceJob(job_id="d", job_type="x", total_steps=1.0, arrival_s=900.0)
    request = SimulationRequest(
        trace=Trace(jobs=(*jobs, late)),
        throughputs=ThroughputTable(isolated={("x", 1): {"v": 1.0}}),
        cluster="v:1",
        policy="fifo",
        until_s=250.0,
    )
    if service:
        engine = EngineSettings(plan_lead_s=15.0, refuse_what_cannot_fit=False)
        settings = ControlSettings(policy=PolicyChoice(name="fifo"), engine=engine)
        request = replace(request, service=Service(settings=settings, profile="test"))
    result = simulate(request)
    summary = result.summary
    assert (summary.jobs, summary.jobs_completed) == (4, 2)
    assert (summary.makespan_s, summary.until_s) == (250.0, 250.0)
    assert [job.status for job in result.jobs] == ["completed", "completed", "running"]
    assert [job.waited_s for job in result.jobs] == [0.0, 100.0, 200.0]
    exact = simulate(replace(request, until_s=200.0)).summary
    assert (exact.jobs_completed, exact.makespan_s) == (2, 200.0)
    with pytest.raises(ParameterError, match="until is -1"):
        replace(request, until_s=-1.0)
