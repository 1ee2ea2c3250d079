"""Jobs of a trace that give their model: they run under plans, in both kinds of replays."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from planned_trace import planned_trace

from leasehold.cli.options import table_of
from planner.planned import Place, find_plan
from planner.plans.hardware import read_hardware
from planner.plans.plan import Plan
from scheduler.control.state.settings import ControlSettings, PolicyChoice
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.engine.settings import EngineSettings
from scheduler.errors import InputError, ParameterError
from simulator.catalogue import read_catalogue
from simulator.models import read_models
from simulator.request import Service, SimulationRequest
from simulator.run import simulate
from traces.bundle import bundled
from traces.cluster import read_cluster
from traces.reader import read_trace
from traces.trace import Trace, TraceJob

GPT2 = {
    "model_type": "gpt2",
    "n_layer": 24,
    "n_embd": 1024,
    "n_head": 16,
    "n_positions": 1024,
    "vocab_size": 50257,
}
TABLE = ThroughputTable(isolated={("plain", 1): {"t4": 2.0, "v100": 4.0}})


@pytest.fixture
def models(tmp_path):
    """Return the path of a file of models; one is in files beside it."""
    (tmp_path / "gpt2.json").write_text(json.dumps(GPT2))
    layers = "parameters,flops,kept_bytes,output_bytes\n1e6,1e9,1e6,1e4\n"
    (tmp_path / "layers.csv").write_text(layers)
    huge = GPT2 | {"n_embd": 16384, "n_layer": 200}
    document = {
        "huge": {"batch": 64, "config": huge},
        "gpt": {"batch": 64, "config": "gpt2.json"},
        "net": {"batch": 8, "layers": "layers.csv"},
    }
    (tmp_path / "models.yaml").write_text(yaml.safe_dump(document))
    return str(tmp_path / "models.yaml")


def job(name, counts=(1,), *, steps=500.0, job_type="gpt", **more):
    return TraceJob(job_id=name, job_type=job_type, total_steps=steps, scale_factors=counts, **more)


def request(models, *jobs, **more):
    given = {
        "trace": Trace(jobs=jobs),
        "throughputs": TABLE,
        "cluster": "t4:4,v100:4",
        "policy": "max_min_fairness",
        "models": models,
        "record": True,
    }
    return SimulationRequest(**given | more)


def rate(models, worker_type, count, job_type="gpt"):
    found = find_plan(read_models(models)[job_type], read_hardware(), Place(worker_type, 4, count))
    return found.steps_per_s


def test_a_job_runs_as_fast_as_the_fastest_plan_of_its_workers(models):
    result = simulate(request(models, job("one", (2,))))
    assert result.jobs[0].end_s == pytest.approx(500.0 / rate(models, "v100", 2))
    assert result.warnings == ()
    assert {Plan(**json.loads(lease.plan)).workers for lease in result.leases} == {2}


def test_plans_other_jobs_and_layers_run_beside_one_another(models):
    jobs = job("one", (1, 2, 4)), job("two", job_type="plain"), job("three", job_type="net")
    result = simulate(request(models, *jobs))
    assert {one.job_id: one.status for one in result.jobs} == dict.fromkeys(
        ("one", "two", "three"), "completed"
    )
    assert result.warnings == ()


def test_a_plan_of_one_node_is_not_spread_over_two(models):
    found = request(models, job("one", (2,)), cluster=read_cluster("v100:4", workers_per_node=2))
    wide = replace(found, cluster=read_cluster("v100:4", workers_per_node=1))
    narrow_s, wide_s = (simulate(one).jobs[0].end_s for one in (found, wide))
    assert narrow_s < wide_s


def test_policies_that_ignore_worker_types_see_equal_plans_and_jobs_run_as_they_are(models):
    result = simulate(request(models, job("one", (2,), worker_types=("t4",)), agnostic=True))
    assert result.jobs[0].end_s == pytest.approx(500.0 / rate(models, "t4", 2))


def test_the_service_replays_models_under_plans_too(models):
    engine = EngineSettings(round_length_s=60.0, plan_lead_s=13.0)
    settings = ControlSettings(engine=engine, policy=PolicyChoice(name="max_min_fairness"))
    inputs = {"trace": Trace(jobs=(job("one", (2,)), job("two", (2,)))), "throughputs": TABLE}
    found = SimulationRequest.of_service(
        Service(settings=settings, profile="usual"),
        cluster="t4:4,v100:4",
        models=models,
        record=True,
        **inputs,
    )
    result = simulate(found)
    assert all(Plan(**json.loads(lease.plan)).workers == 2 for lease in result.leases)
    for one in result.jobs:
        (lease,) = (lease for lease in result.leases if lease.job_id == one.job_id)
        took_s = 500.0 / rate(models, lease.worker_type, 2)
        assert one.end_s - lease.start_s == pytest.approx(took_s, abs=60.0)
        assert one.rho > 0.1


NPU = """
npu:
  tflops: {fp16: 500}
  memory_gb: 96
  memory_gb_per_s: 3000
  link_gb_per_s: 200
  per_node: 4
  network_gb_per_s: 50
"""


def test_models_are_planned_for_accelerators_of_a_file(models, tmp_path):
    (tmp_path / "hardware.yaml").write_text(NPU)
    hardware = str(tmp_path / "hardware.yaml")
    found = request(models, job("one", (2,)), cluster="npu:4", hardware=hardware)
    alone = simulate(found).jobs[0].end_s
    faster = find_plan(
        read_models(models)["gpt"], read_catalogue(hardware), Place("npu", 4, 2)
    ).steps_per_s
    assert alone == pytest.approx(500.0 / faster)
    with pytest.raises(InputError, match="worker type 'npu' of the cluster"):
        simulate(replace(found, hardware=None))
    # A service's own file counts in its replay, unless another is given.
    service = Service(
        settings=ControlSettings(
            engine=EngineSettings(round_length_s=60.0, plan_lead_s=13.0),
            policy=PolicyChoice(name="max_min_fairness"),
        ),
        profile="usual",
        hardware=hardware,
    )
    inputs = {"throughputs": TABLE, "cluster": "npu:4", "models": models}
    for given in ({}, {"hardware": None}):
        played = simulate(
            SimulationRequest.of_service(
                service, trace=Trace(jobs=(job("one", (2,)),)), **inputs, **given
            )
        )
        assert played.jobs[0].end_s == pytest.approx(alone, abs=60.0)


def test_a_job_without_steps_is_refused_by_name(models):
    with pytest.raises(InputError, match="job 'one' of type 'gpt' has no total_steps"):
        simulate(request(models, job("one", steps=None, duration_s=5.0)))


def test_a_job_whose_model_fits_nowhere_is_told_by_how_much(models):
    remark = simulate(request(models, job("one", job_type="huge"))).warnings[-1]
    assert "'one' of type 'huge': 1 x t4, 1 x v100: " in remark
    assert "GB too much" in remark


def test_a_type_in_both_files_is_refused(models, tmp_path):
    batch = {"initial": 128, "most": 4096, "least_per_worker": 32, "most_per_worker": 512}
    seconds = {"alpha_c": 0.02, "beta_c": 0.001}
    found = {"gpt": {"batch": batch, "noise": {0: 100}, "seconds": {"t4": seconds}}}
    (tmp_path / "batches.yaml").write_text(yaml.safe_dump(found))
    with pytest.raises(InputError, match=r"job type 'gpt' is in .* and in"):
        simulate(request(models, job("one"), batches=str(tmp_path / "batches.yaml")))


def test_shares_are_told_by_the_types_that_jobs_have(models):
    result = simulate(request(models, job("one", (2,))))
    assert result.allocations.by_job_type == ("gpt",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "it must map job types to models"),
        ("gpt: {batch: 64}", "gpt has neither config nor layers"),
        ("gpt: {batch: 64, config: none.json}", "there is no such file"),
        ("gpt: {batch: 0, layers: layers.csv}", "batch is 0"),
        ("1: {batch: 8, layers: layers.csv}", "which is no text"),
        ('gpt: "a\\0b"', "cannot be read"),
    ],
)
def test_a_file_of_models_that_cannot_be_used_is_refused_by_name(models, tmp_path, text, told):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(InputError, match=r"bad\.yaml") as raised:
        read_models(str(tmp_path / "bad.yaml"))
    assert told in str(raised.value)


def test_a_worker_type_that_nobody_knows_is_refused(models):
    with pytest.raises(InputError, match="worker type 'abacus' of the cluster"):
        simulate(request(models, job("one"), cluster="abacus:4,v100:4"))


def test_a_command_without_throughputs_and_models_says_so():
    with pytest.raises(ParameterError, match="give --throughputs FILE or --models FILE"):
        table_of(None, None)
    assert table_of(None, "models.yaml").job_types == ()
    assert table_of("bundled", "models.yaml") == "bundled"
    with pytest.raises(ParameterError, match="--locality asks for rows"):
        table_of(None, "models.yaml", locality=True)


def test_the_bundled_models_are_what_the_trace_needs():
    trace = read_trace(
        "bundled:planned",
        throughputs=ThroughputTable(isolated={}),
        further_types=dict.fromkeys(read_models("bundled"), ("h100",)),
    )
    assert trace.jobs == planned_trace().jobs
    assert {job.job_type for job in trace.jobs} == read_models("bundled").keys()
    cluster = read_cluster(str(bundled("mixed")))
    assert cluster.most_on_a_node == {"t4": 4, "a10g": 4, "v100": 8, "a100": 8, "h100": 8}
