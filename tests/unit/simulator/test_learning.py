"""Jobs with a changing batch, in replays."""

import pytest
import yaml

from planner.learning.goodput import BatchLimits, ThroughputModel, best_batch
from scheduler.control.state.settings import ControlSettings, PolicyChoice
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.errors import InputError, ParameterError, TraceError
from simulator.request import ForecastOptions, Service, SimulationRequest
from simulator.run import simulate
from traces.trace import Trace, TraceJob

BATCH = {"initial": 128, "most": 4096, "least_per_worker": 32, "most_per_worker": 512}
SECONDS = {"alpha_c": 0.02, "beta_c": 0.001, "alpha_r": 0.05, "alpha_n": 0.3, "gamma": 2.0}
#: Three times as fast.
FAST = SECONDS | {"alpha_c": 0.02 / 3, "beta_c": 0.001 / 3}
FILE = {
    "net": {
        "batch": BATCH,
        "noise": {0: 100, 2000: 20_000},
        "seconds": {"slow": SECONDS, "fast": FAST},
    }
}
TABLE = ThroughputTable(isolated={("plain", 1): {"slow": 2.0, "fast": 2.0}})

ODD = ThroughputTable(isolated={("plain", 1): {"slow": 2.0, "odd": 2.0}})


def rate(workers, noise, *, nodes=1, seconds=SECONDS):
    """Return what ``planner.learning.goodput`` says of a job, on slow workers by default."""
    model = ThroughputModel(**seconds)
    best = best_batch(model, BatchLimits(**BATCH), noise, nodes=nodes, workers=workers)
    return best.steps_per_s


def job(name, counts=(1,), *, steps=4000.0, job_type="net", arrival_s=0.0):
    return TraceJob(
        job_id=name,
        job_type=job_type,
        total_steps=steps,
        scale_factors=counts,
        arrival_s=arrival_s,
    )


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "batches.yaml"
    path.write_text(yaml.safe_dump(FILE))

    def make(*jobs, cluster="slow:4", policy="fifo", trace=None, table=TABLE, **how):
        request = SimulationRequest(
            trace=trace or Trace(jobs=jobs),
            throughputs=table,
            cluster=cluster,
            policy=policy,
            round_length_s=60.0,
            record=True,
            batches=str(path),
            **how,
        )
        return simulate(request)

    return make


def test_a_job_learns_faster_from_the_step_at_which_its_noise_grows(run):
    result = run(job("one", (4,)))
    assert rate(4, 20_000) > 1.9 * rate(4, 100)
    expected_s = 2000 / rate(4, 100) + 2000 / rate(4, 20_000)
    assert result.jobs[0].end_s == pytest.approx(expected_s, rel=1e-9)
    assert result.warnings == ()


def test_progress_and_noise_outlive_a_preemption(run):
    result = run(
        job("one"),
        job("two", arrival_s=30.0),
        cluster="slow:1",
        policy="max_min_fairness",
    )
    alone_s = 2000 / rate(1, 100) + 2000 / rate(1, 20_000)
    assert result.jobs[0].preemptions + result.jobs[1].preemptions > 3
    assert max(one.end_s for one in result.jobs) == pytest.approx(2 * alone_s, rel=1e-9)


@pytest.mark.parametrize(("workers_per_node", "nodes"), [(4, 1), (2, 2)])
def test_a_gang_is_as_fast_as_its_nodes_allow(run, workers_per_node, nodes):
    result = run(job("gang", (4,), steps=2000.0), workers_per_node=workers_per_node)
    expected_s = 2000 / rate(4, 100, nodes=nodes)
    assert result.jobs[0].end_s == pytest.approx(expected_s, rel=1e-9)
    assert rate(4, 100, nodes=1) > 1.1 * rate(4, 100, nodes=2)


def test_the_engine_is_told_that_more_workers_became_worth_it(run):
    """One fast worker is the better place at first, four slow ones are once the noise has grown."""
    assert rate(4, 100) < rate(1, 100, seconds=FAST) < rate(1, 20_000, seconds=FAST)
    assert rate(1, 20_000, seconds=FAST) < rate(4, 20_000)
    result = run(job("one", (1, 4)), cluster="fast:1,slow:4", policy="max_throughput")
    first, *_, last = result.leases
    assert (first.worker_type, len(first.workers)) == ("fast", 1)
    assert (last.worker_type, len(last.workers)) == ("slow", 4)
    turned_s = 2000 / rate(1, 100, seconds=FAST)
    assert turned_s <= last.start_s <= turned_s + 120.0
    done_on_fast = 2000 + (last.start_s - turned_s) * rate(1, 20_000, seconds=FAST)
    expected_s = last.start_s + (4000 - done_on_fast) / rate(4, 20_000)
    assert result.jobs[0].end_s == pytest.approx(expected_s, rel=1e-9)


def test_other_jobs_are_as_fast_as_the_table_says(run):
    result = run(job("plain", job_type="plain", steps=1000.0), job("net"), cluster="slow:2")
    assert {one.job_id: one.end_s for one in result.jobs}["plain"] == pytest.approx(500.0)
    assert {one.job_type for one in result.jobs} == {"plain", "net"}


def test_a_job_type_runs_only_where_its_step_times_are_known(run):
    result = run(job("one"), cluster="odd:1,slow:1", table=ODD)
    assert [span.worker_type for span in result.leases] == ["slow"]
    assert run(job("one"), cluster="odd:1", table=ODD).jobs[0].status == "refused"


def test_a_job_type_does_not_run_at_counts_at_which_no_batch_fits(run):
    """256 workers would each get fewer than the 32 samples that they need at least."""
    result = run(job("wide", (256,)), cluster="slow:256", workers_per_node=256)
    assert result.jobs[0].status == "refused"


def test_a_policy_may_be_kept_from_seeing_that_types_differ(run):
    both = {"cluster": "slow:1,fast:1", "policy": "max_throughput"}
    assert [span.worker_type for span in run(job("one"), **both).leases] == ["fast"]
    assert run(job("one"), agnostic=True, **both).leases[0].worker_type == "slow"


def test_forecasts_and_replays_of_a_configuration_refuse_such_jobs(run):
    with pytest.raises(ParameterError, match=r"batches is '.*', and forecasts are asked for"):
        run(job("one"), forecasts=ForecastOptions(jobs=1))
    service = Service(settings=ControlSettings(policy=PolicyChoice(name="fifo")), profile="x")
    with pytest.raises(ParameterError, match="and a configuration is replayed"):
        run(job("one"), service=service)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"net": 3}, r"'net' is 3; give batch, noise, seconds"),
        ({"net": {"batch": BATCH, "noise": {0: 1}}}, r"'net': 'seconds' is missing"),
        ({"net": FILE["net"] | {"rate": 1}}, r"'net': 'rate' is not known"),
        ({"net": FILE["net"] | {"batch": BATCH | {"initial": 1.5}}}, r"batch.initial is 1.5"),
        ({"net": FILE["net"] | {"batch": BATCH | {"initial": 5000}}}, r"field 'initial' is 5000"),
        ({"net": FILE["net"] | {"noise": {5: 1}}}, r"noise: begin at step 0"),
        ({"net": FILE["net"] | {"noise": {0: -1}}}, r"noise: 0: -1; both must be numbers >= 0"),
        ({"net": FILE["net"] | {"seconds": {}}}, r"seconds: map worker types"),
        ({"net": FILE["net"] | {"seconds": {"slow": {}}}}, r"seconds.slow: 'beta_c' is missing"),
        (
            {"net": FILE["net"] | {"seconds": {"slow": SECONDS | {"gamma": 0.5}}}},
            r"seconds.slow.gamma is 0.5; it must be a number >= 1",
        ),
        (
            {"net": FILE["net"] | {"seconds": {"slow": SECONDS | {"beta_c": 0}}}},
            r"seconds.slow.beta_c is 0; it must be a number > 0",
        ),
        ([], r"map job types to"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(run, tmp_path, change, message):
    (tmp_path / "batches.yaml").write_text(yaml.safe_dump(change))
    with pytest.raises(InputError, match=message):
        run(job("one"))


def test_a_file_that_is_missing_is_named(run, tmp_path):
    (tmp_path / "batches.yaml").unlink()
    with pytest.raises(InputError, match=r"batch file .*batches\.yaml"):
        run(job("one"))


def after(steps, seconds):
    """Return the steps of a job on one slow worker that had done some, so many seconds later."""
    to_turn_s = max(2000 - steps, 0) / rate(1, 100)
    if seconds <= to_turn_s:
        return steps + seconds * rate(1, 100)
    return max(steps, 2000) + (seconds - to_turn_s) * rate(1, 20_000)


def test_a_loss_throws_a_job_back_to_its_newest_checkpoint_at_both_rates(run, tmp_path):
    failures = tmp_path / "failures.yaml"
    failures.write_text(
        yaml.safe_dump({"mtbf_s": 700, "repair_s": 30, "checkpoint_interval_s": 100})
    )
    result = run(job("one", steps=9000.0), cluster="slow:1", failures=str(failures), seed=2)
    *lost, last = result.leases
    assert {span.reason for span in lost} == {"lost"}
    done, ends = 0.0, []
    for span in lost:
        written_s = (span.end_s - span.start_s) // 100 * 100
        done = after(done, written_s)
        ends.append(done)
    assert min(ends) < 2000 < max(ends), "some are lost before the noise grows, some after"
    assert after(done, last.end_s - last.start_s) == pytest.approx(9000.0, rel=1e-9)


def test_completion_is_not_put_off_by_what_is_told_meanwhile(run, tmp_path):
    overheads = tmp_path / "overheads.yaml"
    overheads.write_text(yaml.safe_dump({"default": {"launch_s": 30, "complete_s": 200}}))
    result = run(job("one", (4,)), overheads=str(overheads))
    expected_s = 30 + 2000 / rate(4, 100) + 2000 / rate(4, 20_000) + 200
    assert result.jobs[0].end_s == pytest.approx(expected_s, rel=1e-9)


def test_a_trace_file_names_types_that_only_the_batch_file_knows(run, tmp_path):
    trace = tmp_path / "trace.csv"
    head = "job_id,job_type,total_steps,arrival_s,worker_types\n"
    trace.write_text(head + "one,net,2000,0,fast\n")
    bare = ThroughputTable(isolated={("plain", 1): {"slow": 2.0}})
    result = run(trace=str(trace), cluster="slow:1,fast:1", table=bare)
    assert [span.worker_type for span in result.leases] == ["fast"]
    assert result.warnings == ()
    trace.write_text(head + "one,nett,2000,0,\n")
    with pytest.raises(TraceError, match=r"does not know this job type.*close to it are 'net'"):
        run(trace=str(trace), table=bare)
    trace.write_text(head + "one,net,2000,0,\n")
    with pytest.raises(InputError, match=r"'v9' of the cluster .* or the batch file; it may be"):
        run(trace=str(trace), cluster="v9:1", table=bare)
