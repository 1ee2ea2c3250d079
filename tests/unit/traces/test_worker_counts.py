"""Jobs of a trace that can run at several worker counts."""

import re
from dataclasses import replace

import pytest

from planner.oracle import build_table
from scheduler.control.state.settings import ControlSettings, PolicyChoice
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.jobs.job import counts_between
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.domain.throughputs.ways import CatalogueKey
from scheduler.engine.settings import EngineSettings
from scheduler.errors import InputError, TraceError
from simulator.request import Service, SimulationRequest
from simulator.run import simulate
from traces.reader import read_trace
from traces.readers.native import write_trace
from traces.trace import Trace, TraceJob

HEAD = "job_id,job_type,total_steps,scale_factor,arrival_s\n"


@pytest.fixture
def write(tmp_path):
    def write(text, name="trace.csv"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", HEAD + 'a,x,9,4 1 2,0\nb,x,9,"2,8",1\nc,x,9,3,2\n'),
        (
            "t.jsonl",
            (
                '{"job_id":"a","job_type":"x","total_steps":9,"scale_factor":[4,1,2],"arrival_s":0}\n'
                '{"job_id":"b","job_type":"x","total_steps":9,"scale_factor":"2 8","arrival_s":1}\n'
                '{"job_id":"c","job_type":"x","total_steps":9,"scale_factor":3,"arrival_s":2}\n'
            ),
        ),
    ],
)
def test_worker_counts_are_read_and_written(write, tmp_path, name, text):
    trace = read_trace(write(text, name))
    assert [job.scale_factors for job in trace.jobs] == [(1, 2, 4), (2, 8), (3,)]
    assert [job.scale_factor for job in trace.jobs] == [1, 2, 3]
    assert trace.scale_factors == (1, 2, 3, 4, 8)
    for again in ("again.csv", "again.jsonl"):
        write_trace(trace, tmp_path / again)
        assert read_trace(tmp_path / again).jobs == trace.jobs


@pytest.mark.parametrize(
    ("least", "most", "counts"),
    [(1, 1, (1,)), (1, 8, (1, 2, 4, 8)), (2, 7, (2, 4, 7)), (3, 4, (3, 4)), (5, 5, (5,))],
)
def test_a_range_is_the_fewest_doubled_and_the_most(least, most, counts):
    assert counts_between(least, most) == counts


def test_a_range_of_workers_is_read_and_written_as_counts(write, tmp_path):
    head = "job_id,job_type,total_steps,min_workers,max_workers,arrival_s\n"
    trace = read_trace(write(head + "a,x,9,2,6,0\nb,x,9,,4,1\nc,x,9,,,2\n"))
    assert [job.scale_factors for job in trace.jobs] == [(2, 4, 6), (1, 2, 4), (1,)]
    write_trace(trace, tmp_path / "again.csv")
    assert read_trace(tmp_path / "again.csv").jobs == trace.jobs


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("a,x,9,,2,,0", "min_workers.*'2'.*give max_workers too"),
        ("a,x,9,,4,2,0", "max_workers.*'2'.*at least min_workers, 4"),
        ("a,x,9,,0,2,0", "min_workers"),
        ("a,x,9,,1,two,0", "max_workers"),
        ("a,x,9,,1,10000000,0", "max_workers"),
        ("a,x,9,2,1,2,0", "scale_factor.*not both"),
    ],
)
def test_a_range_that_cannot_be_is_refused(write, row, said):
    head = "job_id,job_type,total_steps,scale_factor,min_workers,max_workers,arrival_s\n"
    with pytest.raises(TraceError) as refused:
        read_trace(write(head + row + "\n"))
    assert re.search(said, str(refused.value)), refused.value


@pytest.mark.parametrize("count", ["0 2", "1 two", "1.5", ","])
def test_what_is_no_count_is_refused(write, count):
    with pytest.raises(TraceError, match="scale_factor"):
        read_trace(write(HEAD + f'a,x,9,"{count}",0\n'))


@pytest.mark.parametrize("counts", [(2, 1), (1, 1), (), (0, 4), (1, 10**7)])
def test_a_job_has_its_counts_in_order_from_its_scale_factor(counts):
    with pytest.raises(InputError, match="scale_factors"):
        TraceJob(job_id="a", job_type="x", total_steps=1.0, scale_factors=counts)


def test_a_job_has_a_configuration_for_each_type_and_count():
    rates = {("x", 1): {"v100": 2.0, "k80": 1.0}, ("x", 2): {"v100": 3.0}}
    job = TraceJob(job_id="a", job_type="x", total_steps=1.0, scale_factors=(1, 2))
    cluster = parse_cluster_spec("v100:2,k80:2")
    table = build_table(cluster, ThroughputTable(isolated=rates), [CatalogueKey.of(job)])
    assert table.throughput.tolist() == [[2.0, 3.0, 1.0]]
    assert table.demand[0].tolist() == [[1, 0], [2, 0], [0, 1]]


def test_a_replay_runs_a_job_at_the_count_that_its_policy_chooses(write):
    table = write(
        "job_type,scale_factor,worker_type,steps_per_s\nx,1,v100,1\nx,4,v100,3\n", "r.csv"
    )
    done = {}
    for counts in ("1", "1 4"):
        result = simulate(
            SimulationRequest(
                trace=str(write(HEAD + f"a,x,3600,{counts},0\n")),
                throughputs=str(table),
                cluster="v100:4",
                policy="max_throughput",
            )
        )
        done[counts] = result.summary.makespan_s
    assert done["1"] == pytest.approx(3600.0, rel=0.01)
    assert done["1 4"] == pytest.approx(1200.0, rel=0.01)


@pytest.mark.parametrize("policy", ["isolated", "finish_time_fairness", "max_min_fairness"])
def test_rho_is_measured_by_the_smallest_count(policy):
    rates = ThroughputTable(isolated={("x", 1): {"v100": 1.0}, ("x", 8): {"v100": 6.0}})
    summaries = []
    for counts in ((1,), (1, 8)):
        jobs = tuple(
            TraceJob(job_id=f"j{i}", job_type="x", total_steps=3600.0, scale_factors=counts)
            for i in range(8)
        )
        request = SimulationRequest(
            trace=Trace(jobs=jobs), throughputs=rates, cluster="v100:8", policy=policy
        )
        summaries.append(simulate(request).summary)
    for summary in summaries:
        assert summary.average_jct_s == pytest.approx(3600.0)
        assert summary.rho_max == pytest.approx(1.0)


@pytest.mark.parametrize("service", [False, True])
def test_a_job_of_a_trace_runs_only_on_the_worker_types_that_it_allows(write, service):
    head = "job_id,job_type,total_steps,arrival_s,worker_types\n"
    path = write(head + "slow,x,100,0,k\nboth,x,100,0,v k\nfast,x,100,0,v\nnone,x,100,0,t\n")
    table = ThroughputTable(isolated={("x", 1): {"v": 10.0, "k": 1.0, "t": 1.0}})
    trace = read_trace(path, throughputs=table)
    assert [job.worker_types for job in trace.jobs] == [("k",), ("k", "v"), ("v",), ("t",)]
    request = SimulationRequest(
        trace=trace, throughputs=table, cluster="k:2,v:2", policy="fifo", record=True
    )
    if service:
        engine = EngineSettings(plan_lead_s=15.0, refuse_what_cannot_fit=False)
        settings = ControlSettings(policy=PolicyChoice(name="fifo"), engine=engine)
        request = replace(request, service=Service(settings=settings, profile="test"))
    result = simulate(request)
    assert [job.status for job in result.jobs] == ["completed"] * 3 + ["refused"]
    ran = {lease.job_id: lease.worker_type for lease in result.leases}
    assert (ran["slow"], ran["fast"]) == ("k", "v")


def test_a_worker_type_that_the_table_does_not_know_is_refused(write):
    path = write("job_type,total_steps,arrival_s,worker_types\nx,9,0,v a1OO\n")
    table = ThroughputTable(isolated={("x", 1): {"v": 1.0}})
    with pytest.raises(TraceError, match=r"trace.csv:2: field 'worker_types' value 'a1OO'.* v$"):
        read_trace(path, throughputs=table)
