"""Gangs that are slower on several nodes than on one."""

import json
from dataclasses import replace

import pytest

from scheduler.control.state.settings import ControlSettings, PolicyChoice
from scheduler.errors import InputError, ParameterError
from simulator.request import Service, SimulationRequest
from simulator.run import simulate
from traces.tables.throughputs import read_throughputs, write_throughputs
from traces.trace import Trace, TraceJob

TABLE = {
    "v": {"('a', 1)": {"null": 1.0}, "('a', 2)": {"null": 2.0}, "('a', 4)": {"null": 4.0}},
    "v_unconsolidated": {"('a', 2)": {"null": 0.5}},
}


def job(name, workers, steps, arrival_s=0.0):
    return TraceJob(
        job_id=name, job_type="a", total_steps=steps, scale_factors=(workers,), arrival_s=arrival_s
    )


@pytest.fixture
def request_of(tmp_path):
    path = tmp_path / "table.json"
    path.write_text(json.dumps(TABLE))

    def make(*jobs, locality=True, **how):
        return SimulationRequest(
            trace=Trace(jobs=jobs),
            throughputs=str(path),
            cluster="v:4",
            workers_per_node=2,
            policy="fifo",
            record=True,
            locality=locality,
            **how,
        )

    return make


@pytest.mark.parametrize(("workers_per_node", "end_s"), [(1, 800.0), (2, 200.0)])
def test_a_gang_has_the_speed_of_where_its_workers_are(request_of, workers_per_node, end_s):
    request = replace(request_of(job("gang", 2, 400)), workers_per_node=workers_per_node)
    result = simulate(request)
    assert [outcome.end_s for outcome in result.jobs] == [end_s]
    assert result.warnings == ()


def test_a_gang_that_must_be_on_one_node_is_refused_if_none_is_large_enough(request_of):
    result = simulate(request_of(job("gang", 4, 400)))
    assert [outcome.status for outcome in result.jobs] == ["refused"]
    wide = simulate(replace(request_of(job("gang", 4, 400)), workers_per_node=4))
    assert [outcome.end_s for outcome in wide.jobs] == [100.0]


def test_rows_about_several_nodes_are_not_left_out_without_a_word(request_of):
    result = simulate(request_of(job("gang", 2, 400), locality=False))
    assert "(v_unconsolidated), which is left out; --locality heeds it" in result.warnings[0]
    assert simulate(request_of(job("single", 1, 400), locality=False)).warnings == ()


def test_what_is_written_says_how_fast_gangs_are_on_several_nodes(request_of, tmp_path):
    table = read_throughputs(request_of().throughputs, locality=True)
    assert table.spread == {("a", 2): {"v": 0.5}, ("a", 4): {"v": 0.0}}
    write_throughputs(table, tmp_path / "t.csv")
    again = read_throughputs(tmp_path / "t.csv", locality=True)
    assert (again.isolated, again.spread) == (table.isolated, table.spread)


def test_a_replay_of_a_service_and_a_table_without_figures_refuse_it(request_of):
    request = request_of(job("gang", 2, 400))
    assert simulate(request).settings["locality"] == "True"
    table = read_throughputs(request.throughputs, locality=True)
    settings = ControlSettings(policy=PolicyChoice(name="fifo"))
    replay = replace(request, service=Service(settings=settings, profile="test"))
    for given in (replay, replace(replay, throughputs=table, locality=False)):
        with pytest.raises(ParameterError, match=r"a configuration is replayed; .* --locality"):
            simulate(given)
    with pytest.raises(ParameterError, match="read it with locality=True"):
        simulate(replace(request, throughputs=replace(table, spread={})))


def test_a_table_that_does_not_say_it_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("job_type,scale_factor,worker_type,steps_per_s\na,2,v,1\n")
    with pytest.raises(InputError, match=r"t.csv does not say how fast gangs are on several nodes"):
        read_throughputs(tmp_path / "t.csv", locality=True)
