"""What people order during a replay, and what breaks at known times."""

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from leasehold.cli.main import app
from leasehold_testing.trace_jobs import with_fields
from policies.registry import make_policy
from scheduler.control.facts.requests import PolicyChoice
from scheduler.control.state.settings import ControlSettings
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.engine.settings import EngineSettings
from scheduler.errors import InputError
from simulator.replay import Replay
from simulator.world.failures import FailureModel, read_failures
from simulator.world.orders import read_orders
from simulator.world.overheads import Overheads
from traces.cluster import read_cluster
from traces.trace import Trace, TraceJob

TRUTH = ThroughputTable(isolated={("a", 1): {"v100": 2.0}})
PAGE = Path(__file__).resolve().parents[3] / "docs/reference/overheads-and-failures.md"


def job(name, steps=200.0, arrival_s=0.0, **fields):
    return TraceJob(job_id=name, job_type="a", total_steps=steps, arrival_s=arrival_s, **fields)


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "file.yaml"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def replay(file):
    """Return what replays jobs on nodes v100-0, v100-1, ... of one worker each."""

    def run(*jobs, orders="[]", failures="{}", workers=1, policy="fifo", **given):
        names = {"jobs": [one.job_id for one in jobs]}
        names["nodes"] = [f"v100-{i}" for i in range(workers)]
        made = Replay(
            cluster=read_cluster(f"v100:{workers}", workers_per_node=1),
            trace=Trace(jobs=with_fields(jobs, given.pop("conditions", {}))),
            throughputs=TRUTH,
            policy=make_policy(policy, {}),
            settings=ControlSettings(
                engine=EngineSettings(
                    round_length_s=60.0, plan_lead_s=13.0, refuse_what_cannot_fit=False
                ),
                policy=PolicyChoice(name=policy),
                node_timeout_s=30.0,
            ),
            overheads=Overheads(),
            failures=read_failures(file(failures)),
            orders=read_orders(file(orders), **names),
            **given,
        )
        made.log = []
        return made, made.run()

    return run


def ends(result):
    return {one.job_id: (one.status, one.end_s) for one in result.jobs}


def history(made, *kinds):
    rows = [row for decision in made.log for row in decision.rows.history]
    return [(row.kind, row.at_s) for row in rows if row.kind in kinds]


def test_another_policy_is_in_force_from_its_time_on(replay):
    # First come, first served: b waits for 200 s. By the least remaining work it goes first when
    # the next round begins at 60 s, for which a leaves on notice.
    jobs = job("a", 400.0), job("b", 20.0, arrival_s=1.0)
    _, before = replay(*jobs)
    made, after = replay(*jobs, orders="- {at_s: 30, policy: least_remaining_work}")
    assert ends(before) == {"a": ("completed", 200.0), "b": ("completed", 210.0)}
    assert ends(after)["b"][1] < 80.0
    assert 210.0 <= ends(after)["a"][1] < 230.0
    assert history(made, "policy_changed") == [("policy_changed", 30.0)]
    assert made.control.view.policy.actor == "orders"


def test_a_policy_goes_on_with_what_it_remembers_when_it_is_back(replay):
    orders = "- {at_s: 10, policy: max_min_fairness}\n- {at_s: 70, policy: fifo}"
    made, _ = replay(job("a", 400.0), orders=orders)
    assert len(made._policies) == 2


def test_a_drained_node_takes_no_job_until_it_is_let_in_again(replay):
    orders = "- {at_s: 30, drain: v100-0, reason: disks}\n- {at_s: 500, uncordon: v100-0}"
    made, result = replay(job("a", 200.0), orders=orders)
    (one,) = result.jobs
    assert one.attempts == 2
    (status, end_s) = ends(result)["a"]
    assert status == "completed"
    assert 500.0 < end_s < 600.0
    assert history(made, "node_drain", "node_uncordon") == [
        ("node_drain", 30.0),
        ("node_uncordon", 500.0),
    ]


def test_jobs_are_cancelled_held_released_and_changed(replay):
    orders = """
    - {at_s: 10, hold: b}
    - {at_s: 150, release: b}
    - {at_s: 20, cancel: [c]}
    - {at_s: 20, set: [a, b], weight: 2, deadline_s: 1000}
    """
    made, result = replay(job("a"), job("b", arrival_s=1.0), job("c", arrival_s=2.0), orders=orders)
    assert {name: end for name, end in ends(result).items() if name != "c"} == {
        "a": ("completed", 100.0),
        "b": ("completed", 250.0),
    }
    assert ends(result)["c"][0] == "cancelled"
    assert [kind for kind, _ in history(made, "job_changed")] == ["job_changed"] * 2


def test_a_job_that_stays_held_is_named_and_the_others_have_results(replay):
    _, result = replay(job("a"), job("b"), orders="- {at_s: 10, hold: a}")
    assert ends(result)["b"][0] == "completed"
    (warning,) = result.warnings
    assert "they would wait without end (held): a" in warning


def test_an_order_that_comes_too_late_is_told(replay):
    _, result = replay(job("a"), job("b"), orders="- {at_s: 150, hold: a}")
    (warning,) = result.warnings
    assert "an order could not be carried out: at 150 s, job 'a' has ended as completed" in warning


def test_a_job_that_has_ended_is_taken_up_again(replay):
    _, result = replay(job("a"), job("b"), orders="- {at_s: 150, requeue: a}")
    assert result.warnings == ()
    assert [one.attempts for one in result.jobs] == [2, 1]


def test_a_quota_counts_from_its_time_on(replay):
    conditions = {name: {"project": "p"} for name in "ab"}
    orders = "- {at_s: 10, project: p, max_workers: 1}"
    jobs = job("a", arrival_s=20.0), job("b", arrival_s=20.0)
    _, result = replay(*jobs, conditions=conditions, orders=orders, workers=2)
    assert sorted(end for _, end in ends(result).values()) == [120.0, 220.0]


RESERVED = (
    "{at_s: 10, reserve: r, worker_type: v100, workers: 1, from_s: 120, until_s: 400, project: p}"
)


def test_reserved_workers_are_there_at_the_begin_and_go_back_at_the_end(replay):
    conditions = {"own": {"project": "p"}}
    jobs = job("a", 600.0), job("b", 600.0), job("own", 200.0, arrival_s=5.0)
    made, result = replay(*jobs, conditions=conditions, orders=f"- {RESERVED}", workers=2)
    own = next(one for one in result.jobs if one.job_id == "own")
    # The other one leaves on notice, 13 s before the round's end.
    assert (own.start_s, own.end_s) == (107.0, 207.0)
    ended = sorted(ends(result)[name] for name in "ab")
    # It waits for the other's worker, since its own one idles until the window ends.
    assert ended == [("completed", 300.0), ("completed", pytest.approx(300.0 + 193.0))]
    told = ("reservation_made", "reservation_ended")
    assert history(made, *told) == [("reservation_made", 10.0), ("reservation_ended", 400.0)]
    assert result.warnings == ()


def test_a_reservation_that_is_given_up_leaves_its_workers_to_others(replay):
    orders = f"- {RESERVED}\n- {{at_s: 150, unreserve: r}}"
    made, result = replay(job("a", 600.0), orders=orders)
    assert ends(result)["a"] == ("completed", 343.0)  # it stood still from 107 s on
    assert history(made, "reservation_deleted") == [("reservation_deleted", 150.0)]


def test_a_reservation_for_one_job_goes_with_it(replay):
    orders = f"- {RESERVED.replace('project: p', 'job: own')}"
    jobs = job("a", 600.0), job("own", 200.0)
    made, result = replay(*jobs, orders=orders, workers=1)
    released = history(made, "reservation_released", "reservation_ended")
    # A line of the reservation's, and one of the job's.
    assert released == [("reservation_released", ends(result)["own"][1])] * 2
    assert released[0][1] < 400.0
    assert ends(result)["a"][1] < 450.0  # it does not wait for the window's end


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (
            RESERVED.replace("workers: 1", "workers: 3"),
            "asks for 3 workers of type 'v100'; there are 1",
        ),
        (RESERVED.replace("v100", "k80"), "is 'k80', which the cluster does not have; it has v100"),
        ("{at_s: 10, unreserve: x}", "there is no reservation 'x'"),
    ],
)
def test_a_reservation_that_is_refused_is_told_and_the_rest_goes_on(replay, order, said):
    _, result = replay(job("a", 200.0), orders=f"- {order}")
    assert ends(result)["a"] == ("completed", 100.0)
    (warning,) = result.warnings
    assert said in warning


def test_a_budget_can_be_ordered(replay):
    conditions = {"a": {"project": "p"}}
    orders = "- {at_s: 0, project: p, budget_gpu_hours: 0.02}\n- {at_s: 300, project: p}"
    _, result = replay(job("a", 400.0), conditions=conditions, orders=orders)
    # 72 worker-seconds: the round of 60 s to 120 s is the last one; 80 s are left for after 300 s.
    assert 380.0 <= ends(result)["a"][1] <= 395.0


def test_a_lost_node_is_found_out_by_its_silence_and_comes_back_empty(replay):
    failures = "checkpoint_interval_s: 10\noutages: [{node: v100-0, lost_s: 45, back_s: 300}]"
    made, result = replay(job("a", 200.0), failures=failures)
    (lost, back) = history(made, "node_lost", "node_returned")
    assert lost[1] == pytest.approx(45.0 + 30.0, abs=1.5)
    assert back == ("node_returned", 300.0)
    # Done and saved at 40 s: 80 of 200 steps; the rest begins when the node is back.
    assert ends(result)["a"] == ("completed", pytest.approx(360.0))


def test_a_node_that_never_comes_back_leaves_its_jobs_to_others(replay):
    failures = "outages: [{node: v100-0, lost_s: 10}, {node: v100-1, lost_s: 10, back_s: 20}]"
    made, result = replay(job("a", 200.0), failures=failures, workers=2)
    assert ends(result)["a"][0] == "completed"
    assert result.jobs[0].attempts == 2
    assert [kind for kind, _ in history(made, "node_lost")] == ["node_lost"]


@pytest.mark.parametrize(("retry", "status"), [(True, "completed"), (False, "failed")])
def test_a_job_out_of_memory_is_tried_again_where_it_may_be(replay, retry, status):
    failures = "mishaps: [{job: a, steps: 100, end: out_of_memory}]"
    conditions = {"a": {"retry_oom": retry}}
    made, result = replay(job("a"), conditions=conditions, failures=failures)
    assert ends(result)["a"][0] == status
    ended = [row for d in made.log for row in d.rows.history if row.kind == "lease_ended"]
    assert (ended[0].at_s, ended[0].data["trouble"]) == (50.0, "out_of_memory")


def test_equal_orders_and_failures_give_equal_results(replay):
    orders = "- {at_s: 100, policy: max_min_fairness}\n- {at_s: 130, cordon: v100-1}"
    failures = "outages: [{node: v100-0, lost_s: 30, back_s: 200}]"
    jobs = [job(f"j{i}", 150.0 + i, 20.0 * i) for i in range(6)]
    first, second = (replay(*jobs, orders=orders, failures=failures, workers=3) for _ in "ab")
    assert ends(first[1]) == ends(second[1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1", "give a list of orders"),
        ("- 3", "order 1: it is 3; give a mapping with at_s and one of policy, cordon"),
        ("- {at_s: 1}", "order 1: give one of policy, .*; it has none of them"),
        ("- {at_s: 1, hold: a, cancel: a}", "it has hold, cancel"),
        ("- {at_s: 0, hold: a}\n- {hold: a}", "order 2: 'at_s' is missing"),
        ("- {at_s: -1, hold: a}", "order 1: 'at_s' is -1; it must be a number >= 0"),
        ("- {at_s: soon, hold: a}", "'at_s' is 'soon'"),
        ("- {at_s: .inf, hold: a}", "'at_s' is inf"),
        ("- {at_s: 1, hold: z}", "'hold' is 'z'; there is none of that name in the trace"),
        ("- {at_s: 1, cancel: [a, z]}", "'cancel' is 'z'"),
        ("- {at_s: 1, drain: n9}", "'drain' is 'n9'; there is none of that name in the cluster"),
        ("- {at_s: 1, drain: [n0]}", r"'drain' is \['n0'\]"),
        ("- {at_s: 1, drain: n0, force: 1}", "unknown key 'force'; known beside 'drain' are at_s"),
        ("- {at_s: 1, drain: n0, reason: 3}", "'reason' is 3; it must be a text"),
        ("- {at_s: 1, policy: best}", "order 1: .*'best'"),
        ("- {at_s: 1, policy: fifo, parameters: {x: 1}}", "'x'"),
        ("- {at_s: 1, policy: fifo, parameters: 3}", "'parameters' is 3"),
        ("- {at_s: 1, policy: fifo, agnostic: 1}", "'agnostic' is 1; it must be true or false"),
        ("- {at_s: 1, set: a}", "give 'weight', 'deadline_s' or both"),
        ("- {at_s: 1, set: a, weight: 0}", "'weight' is 0; it must be > 0"),
        ("- {at_s: 1, set: a, deadline_s: never}", "'deadline_s' is 'never'"),
        ("- {at_s: 1, project: p, max_workers: -1}", "project 'p': 'max_workers' is -1"),
        (
            "- {at_s: 1, reserve: r, worker_type: v100, workers: 1, from_s: 2}",
            "'until_s' is missing",
        ),
        (
            f"- {RESERVED.replace('workers: 1', 'workers: 1.5')}",
            "'workers' is 1.5; it must be a whole",
        ),
        (
            f"- {RESERVED.replace('until_s: 400', 'until_s: 100')}",
            "until_s is 100, which is not after from_s",
        ),
        (f"- {RESERVED.replace(', project: p', '')}", "project, user and job are empty"),
        (f"- {RESERVED.replace('project: p', 'team: p')}", "unknown key 'team'; known beside"),
        ("- {at_s: 1, reserve: '', worker_type: v100, workers: 1}", "'reserve' is ''; .* a name"),
        ("- {at_s: 1, unreserve: 3}", "'unreserve' is 3; it must be a text"),
        ("{", "orders file .*: the YAML is malformed"),
        ("[" * 3000, "nested too deeply"),
    ],
)
def test_an_order_that_cannot_be_used_is_named(file, text, message):
    with pytest.raises(InputError, match=message):
        read_orders(file(text), jobs={"a"}, nodes={"n0"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("outages: 3", "'outages' is 3; it must be a list"),
        ("outages: [{node: n0}]", r"an entry of 'outages' is \{'node': 'n0'\}; give node, lost_s"),
        ("outages: [{node: n0, lost_s: 9, back_s: 9}]", "'back_s' is 9; it must be above 9"),
        ("outages: [{node: n0, lost_s: -1}]", "'lost_s' is -1"),
        ("mishaps: [{job: a, steps: 3}]", "an entry of 'mishaps'"),
        ("mishaps: [{job: a, steps: 3, end: oom}]", "it must be failed or out_of_memory"),
        ("mishaps: [{job: a, steps: few, end: failed}]", "'steps' is 'few'"),
    ],
)
def test_a_mishap_that_cannot_be_is_named(file, text, message):
    with pytest.raises(InputError, match=message):
        read_failures(file(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("outages: [{node: n9, lost_s: 1}]", "no node 'n9' in the cluster"),
        ("mishaps: [{job: z, steps: 3, end: failed}]", "no job 'z' in the trace"),
    ],
)
def test_a_mishap_of_nobody_is_named(file, text, message):
    with pytest.raises(InputError, match=message):
        read_failures(file(text)).check_names(nodes={"n0"}, jobs={"a"})


def test_without_a_file_nothing_is_lost_and_nobody_has_a_mishap():
    assert FailureModel().mishaps_of_jobs() == {}


@pytest.fixture
def command(tmp_path):
    (tmp_path / "leasehold.toml").write_text("")
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for text in blocks:
        document = yaml.safe_load(text)
        kind = "orders" if isinstance(document, list) else "failures"
        if isinstance(document, list) or "outages" in document:
            (tmp_path / f"{kind}.yaml").write_text(text)

    def run(*flags):
        flags = [str(tmp_path / flag) if "." in flag else flag for flag in flags]
        options = ["--throughputs", "bundled", "--cluster", "v100:8,a100:4", "--limit", "40"]
        return CliRunner().invoke(app, ["simulate", "bundled", *options, *flags])

    return run


def test_the_examples_of_the_reference_run(command):
    files = ["--orders", "orders.yaml", "--failures", "failures.yaml"]
    ended = command("--config", "leasehold.toml", *files, "--json")
    assert ended.exit_code == 0, ended.exception
    assert '"jobs_completed": 38' in ended.stdout  # two are cancelled


@pytest.mark.parametrize(
    ("flag", "message"),
    [("--orders", "--orders needs --config"), ("--failures", "only replays of the service know")],
)
def test_the_engine_alone_takes_no_orders_and_loses_no_nodes(command, flag, message):
    ended = command("--policy", "fifo", flag, f"{flag[2:]}.yaml")
    assert ended.exit_code != 0
    assert message in str(ended.exception)
