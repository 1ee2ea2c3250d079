"""A replay of the service: quotas, dependencies, limits and lost workers, by virtual time."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from leasehold.cli.main import app
from leasehold_testing.trace_jobs import with_fields
from planner.oracle import build_table
from policies.registry import make_policy
from scheduler.control.facts.requests import PolicyChoice, ProjectLimits
from scheduler.control.state.settings import ControlSettings
from scheduler.domain.configuration import Configuration
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.sources import ConfigurationSource
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.domain.throughputs.ways import CatalogueKey
from scheduler.engine.settings import EngineSettings
from scheduler.errors import InputError
from simulator.replay import Replay
from simulator.simulation import Simulation
from simulator.world.failures import FailureModel
from simulator.world.overheads import Overhead, Overheads
from simulator.world.projects import read_projects
from traces.cluster import read_cluster
from traces.trace import Trace, TraceJob

TRUTH = ThroughputTable(isolated={("a", 1): {"v100": 2.0}, ("a", 2): {"v100": 4.0}})


def replay(*jobs, conditions=None, workers=2, agnostic=False, lead_s=13.0, **given):
    settings = ControlSettings(
        engine=EngineSettings(
            round_length_s=60.0, plan_lead_s=lead_s, refuse_what_cannot_fit=False
        ),
        policy=PolicyChoice(name="max_min_fairness", agnostic=agnostic),
    )
    options = {
        "cluster": read_cluster(f"v100:{workers}", workers_per_node=1),
        "throughputs": TRUTH,
        "overheads": Overheads(),
        "failures": FailureModel(),
    }
    return Replay(
        trace=Trace(jobs=with_fields(jobs, conditions or {})),
        policy=make_policy("max_min_fairness", {}),
        settings=settings,
        record=True,
        **(options | given),
    )


def job(name, steps=200.0, arrival_s=0.0, **fields):
    return TraceJob(job_id=name, job_type="a", total_steps=steps, arrival_s=arrival_s, **fields)


def outcomes(result):
    return {one.job_id: (one.status, one.start_s, one.end_s) for one in result.jobs}


@pytest.mark.parametrize("lead_s", [0.0, 10.0])
def test_settings_under_which_no_job_can_stop_in_time_are_refused(lead_s):
    """A lease that is given for less than its job needs to stop would be given again at once."""
    with pytest.raises(InputError, match=rf"plan_lead_s is {lead_s:g}; it must be at least 11 s"):
        replay(job("one"), lead_s=lead_s)


def test_a_lone_job_runs_at_the_true_throughput():
    result = replay(job("one", steps=200.0)).run()
    assert outcomes(result) == {"one": ("completed", 0.0, 100.0)}
    assert result.summary.utilisation == pytest.approx(0.5)
    assert result.summary.jobs_completed == 1


def test_jobs_have_their_id_as_name_if_the_trace_names_none():
    made = replay(job("one"), replace(job("two"), name="train"))
    made.log = []
    made.run()
    rows = [row for one in made.log for row in one.rows.jobs]
    assert {row.job_id: row.name for row in rows} == {"one": "one", "two": "train"}
    lines = [row for one in made.log for row in one.rows.history if row.kind == "job_submitted"]
    assert [line.data["name"] for line in lines] == ["one", "train"]


def test_under_a_quota_of_one_two_jobs_take_turns_though_workers_are_idle():
    limits = (ProjectLimits(project="p", max_workers=1),)
    conditions = {name: {"project": "p"} for name in ("one", "two")}
    made = replay(job("one"), job("two"), conditions=conditions, projects=limits)
    result = made.run()
    assert max(one.end_s for one in result.jobs) == 200.0
    spans = sorted((lease.start_s, lease.end_s) for lease in result.leases)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_a_job_waits_for_the_one_that_it_depends_on():
    conditions = {"two": {"depends_on": ("one",)}}
    result = replay(job("one"), job("two"), conditions=conditions).run()
    assert outcomes(result)["two"] == ("completed", 100.0, 200.0)


def test_a_job_over_its_limit_fails_and_takes_its_dependents_with_it():
    conditions = {
        "one": {"max_run_time_s": 30.0},
        "two": {"depends_on": ("one",)},
    }
    made = replay(job("one"), job("two"), conditions=conditions)
    made.log = []
    result = made.run()
    assert outcomes(result)["one"][0] == "failed"
    told = {row.kind: row for one in made.log for row in one.rows.history}
    assert told["time_limit"].at_s == pytest.approx(30.0, abs=1.0)
    ended = {record.job_id: record for one in made.log for record in one.ended}
    assert ended["one"].reason == "time_limit"
    states = {row.job_id: row for one in made.log for row in one.rows.states}
    assert (states["two"].status, states["two"].reason) == (
        JobStatus.CANCELLED,
        "dependency_failed",
    )


def test_a_project_over_its_jobs_has_the_next_one_refused_and_says_so():
    limits = (ProjectLimits(project="p", max_jobs=1),)
    conditions = {name: {"project": "p"} for name in ("one", "two")}
    result = replay(job("one"), job("two"), conditions=conditions, projects=limits).run()
    assert outcomes(result)["two"][0] == "refused"
    assert "may have 1" in result.warnings[0]


def test_throughputs_are_learned_and_launches_take_their_time():
    costs = Overheads(default=Overhead(launch_s=10.0))
    made = replay(job("one", steps=2000.0), overheads=costs)
    result = made.run()
    assert outcomes(result)["one"][2] == pytest.approx(1010.0)
    (known,) = [e for *_, e in made.control.view.knowledge.known() if e.samples]
    assert known.measured == pytest.approx(2.0, rel=0.05)


def test_a_worker_that_is_lost_sends_its_job_elsewhere_and_back_to_its_checkpoint():
    failures = FailureModel(mtbf_s=300.0, repair_s=50.0, checkpoint_interval_s=20.0)
    made = replay(job("one", steps=2000.0), failures=failures, seed=3)
    result = made.run()
    (only,) = result.jobs
    assert only.status == "completed"
    assert only.attempts > 1
    assert only.end_s > 1000.0


def test_a_replay_says_which_jobs_can_never_run():
    conditions = {"one": {"project": "p"}}
    limits = (ProjectLimits(project="p", max_workers=1),)
    made = replay(job("one", scale_factors=(1,)), conditions=conditions, projects=limits, workers=1)
    made._shell.nodes.clear()
    made._shell._wakes.clear()
    result = made.run()
    assert result.summary.jobs_completed == 0
    assert "before these jobs do, since they would wait without end" in result.warnings[-1]
    assert result.warnings[-1].endswith(": one")


def test_equal_replays_are_equal():
    def run():
        made = replay(*(job(f"j{i}", 150.0 + i, 20.0 * i) for i in range(12)))
        result = made.run()
        return outcomes(result), result.summary.to_dict(timings=False), result.leases

    assert run() == run()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "mapping of project names"),
        ("p: 3", "project 'p': it is 3"),
        ("p: {gpus: 3}", "unknown key 'gpus'"),
        ("p: {max_workers: 1.5}", "'max_workers' is 1.5"),
        ("p: {weight: 0}", "'weight' is 0"),
        ("p: {inner_policy: best}", "'inner_policy' is 'best'"),
        ("p: {max_jobs: true}", "'max_jobs' is True"),
        ("p: {wieght: 2}", r"unknown key 'wieght' \(did you mean 'weight'\?\)"),
        ("p: {gpus: 3, weight: 0}\nq: 7", "'gpus'.*; 'weight' is 0.*; project 'q': it is 7"),
    ],
)
def test_limits_that_cannot_be_are_refused_by_name(tmp_path, text, message):
    path = tmp_path / "projects.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_projects(str(path))


TRACE = """job_id,job_type,total_steps,arrival_s,project,depends_on
one,"ResNet-50 (batch size 64)",20000,0,p,
two,"ResNet-50 (batch size 64)",20000,0,p,one
"""


def simulated(tmp_path, *flags):
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "leasehold.toml").write_text("[engine]\nround_length_s = 120\n")
    (tmp_path / "projects.yaml").write_text("p: {max_workers: 4}\n")
    trace, cluster = str(tmp_path / "trace.csv"), ["--cluster", "v100:2"]
    return CliRunner().invoke(
        app, ["simulate", trace, "--throughputs", "bundled", *cluster, *flags]
    )


def test_the_command_replays_a_configuration(tmp_path):
    config = ["--config", str(tmp_path / "leasehold.toml")]
    limits = ["--projects", str(tmp_path / "projects.yaml")]
    found = json.loads(simulated(tmp_path, *config, *limits, "--json").stdout)
    assert found["profile"] == "leasehold.toml"
    assert found["jobs_completed"] == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--policy", "fifo"], "replay it with `leasehold simulate --config FILE`"),
        ([], "--policy is missing"),
        (["--policy", "fifo", "--projects", "p.yaml"], "--projects needs --config"),
        (["--config", "CONFIG", "--policy", "fifo"], "--policy and --config"),
        (["--config", "CONFIG", "--round-length", "60"], "--round-length and --config"),
    ],
)
def test_flags_that_contradict_each_other_are_named(tmp_path, flags, message):
    flags = [str(tmp_path / "leasehold.toml") if flag == "CONFIG" else flag for flag in flags]
    ended = simulated(tmp_path, *flags)
    assert ended.exit_code != 0
    assert message in str(ended.exception)


class Halves(ConfigurationSource):
    """Two workers of one node run a job split in halves, three times as fast."""

    def ways(self, key, cluster):
        demand = tuple(key.scale_factors[0] for _ in cluster.type_names)
        return (Configuration(demand=demand, throughput=12.0, doubt=0.0, plan="halves"),)


def test_a_replay_runs_jobs_by_the_plans_of_a_plugin():
    plain = replay(job("one", steps=1200.0, scale_factors=(2,))).run()
    planned = replay(
        job("one", steps=1200.0, scale_factors=(2,)), sources=[("halves", Halves())]
    ).run()
    assert outcomes(plain)["one"][2] == pytest.approx(300.0)
    assert outcomes(planned)["one"][2] == pytest.approx(100.0)
    assert [lease.plan for lease in plain.leases] == [""]
    assert [lease.plan for lease in planned.leases] == ["halves"]


class ByType(ConfigurationSource):
    """In halves a job is slow on the k80 and fast on the v100."""

    def ways(self, key, cluster):
        rates = {"k80": 3.0, "v100": 12.0}
        sizes = len(cluster.type_names)
        return tuple(
            Configuration(
                demand=tuple(2 * (i == k) for i in range(sizes)),
                throughput=rates[name],
                doubt=0.0,
                plan="halves",
            )
            for k, name in enumerate(cluster.type_names)
        )


def test_planned_jobs_run_as_fast_as_they_are_whatever_an_agnostic_policy_is_shown():
    made = replay(
        job("one", steps=2400.0, scale_factors=(2,)),
        cluster=read_cluster("k80:2,v100:2", workers_per_node=2),
        throughputs=ThroughputTable(isolated={("a", 2): {"k80": 0.1, "v100": 0.1}}),
        sources=[("by type", ByType())],
        agnostic=True,
    )
    rates, result = {"k80": 3.0, "v100": 12.0}, made.run()
    assert {lease.worker_type for lease in result.leases} == rates.keys()
    done = [rates[lease.worker_type] * (lease.end_s - lease.start_s) for lease in result.leases]
    assert sum(done) == pytest.approx(2400.0)


def test_the_series_of_a_replay_show_the_cluster_after_what_happened():
    result = replay(job("one", steps=200.0, arrival_s=10.0)).run()
    busy = dict(zip(result.series.time_s.tolist(), result.series.busy[:, 0].tolist(), strict=True))
    assert busy[10.0] == 1
    assert busy[110.0] == 0


def ideal(*jobs):
    """Run jobs without the service around the engine, on the same two workers."""
    cluster = read_cluster("v100:2", workers_per_node=1)
    return Simulation(
        cluster=cluster,
        jobs=[one.engine_job() for one in jobs],
        profiles=[0] * len(jobs),
        table=build_table(cluster, TRUTH, [CatalogueKey(job_type="a", scale_factors=(1,))]),
        policy=make_policy("max_min_fairness", {}),
        settings=EngineSettings(round_length_s=60.0),
        overheads=Overheads(),
        failures=FailureModel(),
        record=True,
    )


@pytest.mark.parametrize("made", [replay, ideal])
def test_jobs_of_a_trace_that_save_nothing_lose_their_work_and_get_done(made):
    plain = [job(name, steps=1400.0, checkpoint_dir=None) for name in ("one", "two", "three")]
    result = made(*plain, job("saves", steps=1400.0)).run()
    assert {one.status for one in result.jobs} == {"completed"}
    spans = {one.job_id: [] for one in result.jobs}
    for span in result.leases:
        spans[span.job_id].append(span.end_s - span.start_s)
    assert max(len(spans[one.job_id]) for one in plain) in {2, 3, 4}
    assert all(spans[one.job_id][-1] == pytest.approx(700.0) for one in plain)
    assert sum(spans["saves"]) == pytest.approx(700.0, abs=1.0)


@pytest.mark.parametrize("made", [replay, ideal])
def test_jobs_of_a_trace_may_ask_not_to_be_preempted(made):
    jobs = [job(name, steps=600.0, preemptible=False) for name in ("one", "two", "three")]
    result = made(*jobs, job("short", steps=600.0, min_run_time_s=200.0)).run()
    assert {one.attempts for one in result.jobs if one.job_id != "short"} == {1}
    short = [one.end_s - one.start_s for one in result.leases if one.job_id == "short"]
    assert min(short[:-1], default=200.0) >= 200.0


@pytest.mark.parametrize("failing", [False, True])
def test_jobs_that_can_never_end_are_named_and_the_others_have_results(failing):
    """A spent budget begins anew each month, and workers fail again and again."""
    limits = (ProjectLimits(project="p", budget_gpu_hours=0.001),)
    model = FailureModel(mtbf_s=1e7, repair_s=60.0) if failing else FailureModel()
    made = replay(
        job("one"),
        job("two"),
        conditions={"two": {"project": "p"}},
        projects=limits,
        failures=model,
    )
    result = made.run()
    assert {one.job_id: one.status for one in result.jobs}["one"] == "completed"
    assert result.summary.jobs_completed == 1
    assert result.summary.until_s < 1000.0, "the time without work does not count"
    assert [one for one in result.warnings if "(budget): two" in one]


def test_a_job_that_waits_for_long_is_no_job_that_never_ends():
    limits = (ProjectLimits(project="p", budget_gpu_hours=0.04),)
    made = replay(job("one", steps=600.0), conditions={"one": {"project": "p"}}, projects=limits)
    result = made.run()
    assert result.jobs[0].status == "completed"
    assert result.jobs[0].end_s > 20 * 86_400.0
