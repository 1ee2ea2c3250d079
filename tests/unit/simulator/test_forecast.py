"""The forecast against hand computations, and against what came: the rest of the same replay."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from leasehold_testing.trace_jobs import with_fields
from policies.registry import make_policy
from scheduler.control.facts.facts import PolicySet
from scheduler.control.facts.requests import PolicyChoice, ProjectLimits
from scheduler.control.state.settings import ControlSettings
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.lease_life import EndReason
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.engine.settings import EngineSettings
from scheduler.errors import UnknownPolicyError
from scheduler.operator_settings import LearningSettings
from simulator.forecast.forecast import ForecastInput, Outlook, forecast, forecast_packed
from simulator.forecast.policy_trial import holdings_of, try_policy, try_policy_packed
from simulator.replay import Replay
from simulator.world.failures import FailureModel, NodeOutage
from simulator.world.nodes import Mishap
from simulator.world.overheads import Overheads
from traces.cluster import read_cluster
from traces.generators.generate import generate
from traces.tables.throughputs import read_throughputs
from traces.trace import Trace, TraceJob

TRUTH = ThroughputTable(isolated={("a", 1): {"v100": 2.0}, ("a", 2): {"v100": 4.0}})


def job(name, steps=200.0, arrival_s=0.0, **fields):
    return TraceJob(job_id=name, job_type="a", total_steps=steps, arrival_s=arrival_s, **fields)


def service(*jobs, workers=1, policy="fifo", believed=TRUTH, round_length_s=60.0, **given):
    """Return a replay of a service that knows its throughputs and learns nothing."""
    choice = PolicyChoice(
        name=policy,
        agnostic=given.pop("agnostic", False),
        space_sharing=given.pop("space_sharing", False),
    )
    options = {
        "cluster": read_cluster(f"v100:{workers}", workers_per_node=1),
        "throughputs": TRUTH,
        "declared": believed,
        "overheads": Overheads(),
        "failures": FailureModel(),
        "trace": Trace(jobs=with_fields(jobs, given.pop("conditions", {}))),
    }
    return Replay(
        policy=make_policy(policy, {}),
        settings=ControlSettings(
            engine=EngineSettings(
                round_length_s=round_length_s,
                plan_lead_s=13.0,
                refuse_what_cannot_fit=False,
                **given.pop("engine", {}),
            ),
            policy=choice,
            learning=LearningSettings(learn=False),
            node_timeout_s=30.0,
        ),
        **(options | given),
    )


def go_on(made, until):
    """Let a replay go on until something holds, or no more jobs are to end."""
    if made.now_s == 0.0 and not made.control.view.nodes.by_name:
        made.begin()
        made.step()
    while made.to_go and not until(made):
        made.step()


def asked(made):
    return ForecastInput(control=made.control.copied(), now_s=made.now_s)


def at(made, now_s):
    """Return the inputs of a forecast at the first moment from a time on."""
    go_on(made, lambda one: one.now_s >= now_s)
    return asked(made)


def promised(question, result):
    """Return job id -> (start, end) in the time of the replay."""
    now_s = question.now_s
    return {
        name: tuple(None if x is None else x + now_s for x in (one.start_s, one.completion_s))
        for name, one in result.times.items()
    }


def came(made):
    go_on(made, lambda _: False)
    return {job_id: (start_s, end_s) for job_id, start_s, end_s in made.times()}


# -- by hand ---------------------------------------------------------------------------------------


def test_nobody_waits_for_nothing():
    made = service(job("a", arrival_s=50.0))
    made.begin()
    result = forecast(asked(made))
    assert (result.times, result.complete, result.note) == ({}, True, "")


def test_a_running_job_needs_the_rest_of_its_steps_and_the_next_one_starts_then():
    made = service(job("a", 600.0), job("b", 200.0, arrival_s=20.0))
    question = at(made, 20.0)
    result = forecast(question)
    assert question.now_s == 20.0
    assert result.times["a"].start_s == 0.0
    assert promised(question, result)["a"][1] == pytest.approx(300.0)
    assert promised(question, result)["b"] == (pytest.approx(300.0), pytest.approx(400.0))
    assert result.complete
    assert result.reached_s == pytest.approx(380.0)


def test_jobs_over_their_quota_are_let_in_as_others_end():
    limits = (ProjectLimits(project="p", max_workers=1),)
    conditions = {name: {"project": "p"} for name in "abc"}
    jobs = [job(name, arrival_s=i) for i, name in enumerate("abc")]
    made = service(*jobs, workers=3, conditions=conditions, projects=limits)
    question = at(made, 2.0)
    assert promised(question, forecast(question)) == {
        "a": (2.0, pytest.approx(100.0)),
        "b": (pytest.approx(100.0), pytest.approx(200.0)),
        "c": (pytest.approx(200.0), pytest.approx(300.0)),
    }


def test_a_chain_of_jobs_is_foreseen_to_its_end():
    conditions = {"b": {"depends_on": ("a",)}, "c": {"depends_on": ("b",)}}
    made = service(job("a"), job("b"), job("c"), workers=2, conditions=conditions)
    question = at(made, 0.0)
    ends = {name: end_s for name, (_, end_s) in promised(question, forecast(question)).items()}
    assert ends == pytest.approx({"a": 100.0, "b": 200.0, "c": 300.0})


def test_a_job_that_runs_out_of_time_ends_then_and_its_dependents_with_it():
    conditions = {
        "a": {"max_run_time_s": 40.0},
        "b": {"depends_on": ("a",)},
    }
    made = service(job("a"), job("b"), job("c"), conditions=conditions)
    result = forecast(at(made, 0.0))
    assert result.complete
    assert result.times["a"].ending == "its time limit is over before it is done"
    assert result.times["b"].ending == "a job that it depends on does not complete"
    assert result.times["a"].completion_s is result.times["b"].completion_s is None
    assert result.times["c"].start_s == pytest.approx(40.0)


def holding(question, name):
    records = tuple(
        replace(one, status=JobStatus.HELD) if one.job_id == name else one
        for one in question.control.jobs
    )
    return replace(question, control=replace(question.control, jobs=records))


def test_who_waits_for_a_held_job_has_no_times_and_is_told_why():
    conditions = {"b": {"depends_on": ("a",)}, "c": {"depends_on": ("b",)}}
    question = at(service(job("a"), job("b"), job("c"), conditions=conditions), 0.0)
    result = forecast(holding(question, "b"))
    assert result.complete
    assert result.times.keys() == {"a", "c"}
    assert result.times["c"].unknown == "it waits for job 'b', whose end nobody knows"


def test_a_job_that_saves_nothing_begins_anew_and_is_left_running_after_its_first_loss():
    # They take turns by the minute, and a needs 150 s at a stretch. It has them when it has lost a
    # turn, while b waits.
    by_turns = {"behind_rounds": 1.0, "ahead_rounds": 0.0}
    made = service(job("a", 300.0), job("b", 400.0), policy="max_min_fairness", engine=by_turns)
    question = at(made, 0.0)
    plain = forecast(question)
    records = tuple(
        replace(one, spec=replace(one.spec, checkpoint_dir=None)) if one.job_id == "a" else one
        for one in question.control.jobs
    )
    lossy = forecast(replace(question, control=replace(question.control, jobs=records)))
    a_s, b_s = (lossy.times[name].completion_s for name in "ab")
    lost_s = b_s - 150.0 - 200.0
    assert 30.0 <= lost_s <= 60.0
    assert a_s < plain.times["b"].completion_s < b_s


def test_a_job_that_was_seen_to_be_faster_than_its_type_is_done_sooner():
    slow = ThroughputTable(isolated={("a", 1): {"v100": 0.5}})
    made = service(job("a", 600.0), job("b", arrival_s=100.0), believed=slow)
    question = at(made, 100.0)
    told = promised(question, forecast(question))
    assert told["a"][1] == pytest.approx(300.0, rel=0.02)
    assert told["b"][1] - told["b"][0] == pytest.approx(400.0, rel=0.02)  # nothing is known of it


def test_a_start_costs_what_a_restart_costs_but_who_runs_already_pays_nothing():
    jobs = job("a", 200.0, restart_s=10.0), job("b", 200.0, arrival_s=5.0, restart_s=10.0)
    question = at(service(*jobs), 5.0)
    told = promised(question, forecast(question))
    assert told["a"][1] == pytest.approx(100.0)
    assert told["b"] == (pytest.approx(100.0), pytest.approx(210.0))


def endless(question, *names):
    """Return the question without the lengths of some jobs."""
    records = tuple(
        replace(one, spec=replace(one.spec, total_steps=None)) if one.job_id in names else one
        for one in question.control.jobs
    )
    return replace(question, control=replace(question.control, jobs=records))


@pytest.mark.parametrize(
    ("policy", "preemptible", "workers"),
    [("fifo", True, 2), ("max_min_fairness", False, 2), ("fifo", True, 1)],
)
def test_who_waits_for_what_an_endless_job_holds_is_told_so_at_once(policy, preemptible, workers):
    conditions = {name: {"project": "p"} for name in "ab"}
    conditions["c"] = {"depends_on": ("b",)}
    made = service(
        job("a", 600.0, preemptible=preemptible),
        job("b", 200.0, arrival_s=1.0),
        job("c", 200.0, arrival_s=2.0),
        workers=workers,
        policy=policy,
        conditions=conditions,
        projects=(ProjectLimits(project="p", max_workers=1),),
    )
    result = forecast(endless(at(made, 20.0), "a"))
    assert result.work < 100
    assert (result.complete, result.note) == (True, "")
    assert result.times["b"].completion_s is None
    assert result.times["b"].unknown == "what it needs is held by a, whose end nobody knows"
    assert result.times["c"].unknown == "it waits for b, whose end nobody knows"


@pytest.mark.parametrize("policy", ["fifo", "max_min_fairness"])
def test_who_waits_for_a_node_that_is_away_is_told_so_at_once(policy):
    away = FailureModel(outages=(NodeOutage(node="v100-0", lost_s=10.0),))
    made = service(job("a", 6000.0), policy=policy, failures=away)
    result = forecast(at(made, 200.0))
    assert result.work < 100
    assert (result.complete, result.note) == (True, "")
    why = "what it needs is not in service, and nobody knows when it will be"
    assert result.times["a"].unknown == why


@pytest.mark.parametrize(
    ("policy", "known"), [("fifo", {"c": 400.0}), ("max_min_fairness", {"b": None, "c": 400.0})]
)
def test_what_can_still_end_beside_an_endless_job_is_foreseen(policy, known):
    # c has a worker of its own; under max-min a and b take turns at the quota.
    made = service(
        job("a", 600.0),
        job("b", 2000.0, arrival_s=1.0),
        job("c", 800.0, arrival_s=2.0),
        workers=2,
        policy=policy,
        conditions={name: {"project": "p"} for name in "ab"},
        projects=(ProjectLimits(project="p", max_workers=1),),
    )
    question = endless(at(made, 20.0), "a")
    times = promised(question, forecast(question))
    for name, end_s in known.items():
        assert times[name][1] is not None
        assert end_s is None or times[name][1] == pytest.approx(2.0 + end_s)


# -- against what came -----------------------------------------------------------------------------


def some_jobs(count):
    return [job(f"j{i}", 300.0 + 71.0 * (i % 7), 3.0 * i, weight=1.0 + i % 2) for i in range(count)]


@pytest.mark.parametrize(
    ("policy", "usual"),
    [("fifo", 1e-9), ("max_min_fairness", 0.03), ("finish_time_fairness", 0.06)],
)
def test_what_is_promised_comes(policy, usual):
    conditions = {f"j{i}": {"project": "p"} for i in range(0, 24, 3)}
    conditions["j5"] = {"depends_on": ("j1", "j2")}
    conditions["j10"] = {"depends_on": ("j5",)}
    made = service(
        *some_jobs(24),
        workers=6,
        policy=policy,
        conditions=conditions,
        projects=(ProjectLimits(project="p", max_workers=2),),
    )
    question = at(made, 80.0)
    waits = sum(record.blocked_on is not None for record in question.control.jobs)
    assert waits == 2  # for others to complete; the engine knows jobs that wait for the quota
    result = forecast(question)
    assert result.complete
    told, ends = promised(question, result), came(made)
    off = np.array([abs(told[i][1] - ends[i][1]) / (ends[i][1] - question.now_s) for i in told])
    assert len(off) > 15
    assert np.median(off) <= usual


def test_with_gangs_pairs_and_several_types_it_comes_about_as_promised():
    throughputs = read_throughputs("bundled")
    trace = generate("gavel", jobs=24, throughputs=throughputs, rate_per_hour=1e6, seed=3)
    made = service(
        trace=Trace(
            jobs=tuple(replace(one, total_steps=one.total_steps / 50) for one in trace.jobs)
        ),
        cluster=read_cluster("v100:4,a100:2", workers_per_node=4),
        throughputs=throughputs,
        believed=throughputs,
        policy="max_min_fairness",
        space_sharing=True,
        round_length_s=120.0,
    )
    question = at(made, 400.0)
    result = forecast(question)
    told, ends = promised(question, result), came(made)
    off = [abs(told[i][1] - ends[i][1]) / (ends[i][1] - question.now_s) for i in told]
    assert np.median(off) < 0.05


def test_an_agnostic_policy_is_foreseen_with_the_true_throughputs():
    truth = ThroughputTable(isolated={("a", 1): {"v100": 4.0, "k80": 1.0}})
    made = service(
        *some_jobs(8),
        cluster=read_cluster("v100:2,k80:2", workers_per_node=1),
        throughputs=truth,
        believed=truth,
        policy="max_min_fairness",
        agnostic=True,
    )
    question = at(made, 21.0)
    result = forecast(question)
    told, ends = promised(question, result), came(made)
    off = [abs(told[i][1] - ends[i][1]) / (ends[i][1] - question.now_s) for i in told]
    assert np.median(off) < 0.05


def test_leases_that_are_being_given_back_are_over_in_time():
    made = service(*some_jobs(4), workers=2, policy="max_min_fairness")
    go_on(made, lambda one: any(live.revoked for live in one.control.view.leases.by_id.values()))
    question = asked(made)
    told, ends = promised(question, forecast(question)), came(made)
    for name in told:
        assert told[name][1] == pytest.approx(ends[name][1], rel=0.1)


def test_a_job_that_waits_after_a_failure_starts_when_its_wait_is_over():
    mishaps = (("a", Mishap(steps=50.0, end=EndReason.FAILED)),)
    made = service(job("a"), job("b", 20.0), failures=FailureModel(mishaps=mishaps), workers=2)
    go_on(made, lambda one: "a" not in one.control.view.leases.of_job and one.now_s > 0.0)
    question = asked(made)
    told, ends = promised(question, forecast(question)), came(made)
    assert told["a"][0] == pytest.approx(question.now_s + 30.0, abs=1.0)
    assert told["a"][1] == pytest.approx(ends["a"][1])


def test_a_node_that_is_lost_stays_away():
    outages = (NodeOutage(node="v100-0", lost_s=10.0, back_s=1000.0),)
    made = service(job("a"), job("b"), job("c"), workers=2, failures=FailureModel(outages=outages))
    go_on(made, lambda one: any(node.lost for node in one.control.view.nodes.by_name.values()))
    result = forecast(asked(made))
    assert result.complete
    starts = sorted(one.start_s for one in result.times.values())
    assert starts[0] == 0.0
    assert starts[1] > 0.0  # one worker for the three of them


# -- its bounds ------------------------------------------------------------------------------------


def test_a_job_that_finds_no_room_is_told_so_at_once():
    made = service(job("a"), job("gang", scale_factors=(2,)), workers=2)
    go_on(made, lambda one: one.now_s >= 0.0)
    copied = made.control.copied()
    out = copied.engine.in_service.copy()
    out[1] = False
    copied = replace(copied, engine=replace(copied.engine, in_service=out))
    result = forecast(ForecastInput(control=copied, now_s=made.now_s), limit_s=1000.0)
    assert result.work < 100
    assert result.times["a"].completion_s is not None
    assert result.times["gang"].completion_s is None
    assert "not in service" in result.times["gang"].unknown


def test_beyond_the_limit_nobody_looks():
    made = service(job("a", 400.0), job("b", 400.0))
    result = forecast(at(made, 0.0), limit_s=250.0)
    assert result.times["a"].completion_s == pytest.approx(200.0)
    assert (result.times["b"].start_s, result.times["b"].completion_s) == (
        pytest.approx(200.0),
        None,
    )
    assert result.note == "looked 250 s ahead"
    assert not result.complete


def test_a_used_up_budget_gives_what_there_is():
    result = forecast(at(service(job("a", 400.0)), 0.0), most_work=0)
    assert (result.times["a"].start_s, result.times["a"].completion_s) == (0.0, None)
    assert "units of work" in result.note


def test_a_forecast_is_cut_by_its_work_and_so_the_same_however_slow_the_machine_is(monkeypatch):
    question = at(service(*some_jobs(20), workers=3, policy="max_min_fairness"), 60.0)
    whole = forecast(question)
    quick = forecast(question, most_work=whole.work // 3)
    assert whole.complete
    assert any(entry.completion_s is not None for entry in quick.times.values())
    assert not quick.complete
    ticks = iter(range(10**9))
    for clock in ("perf_counter", "monotonic", "time", "process_time"):
        monkeypatch.setattr(f"time.{clock}", lambda: 3600.0 * next(ticks))  # an hour at each look
    assert forecast(question, most_work=whole.work // 3) == quick
    assert forecast(question) == whole


def test_a_forecast_changes_nothing_of_the_service():
    made, twin = (service(*some_jobs(8), workers=3, policy="max_min_fairness") for _ in "ab")
    question = at(made, 21.0)
    first = forecast(question)
    assert forecast(question) == first
    at(twin, 21.0)
    assert came(made) == came(twin)


def test_the_state_travels_to_another_process(tmp_path):
    question = at(service(*some_jobs(6), workers=2), 15.0)
    (tmp_path / "asked").write_bytes(question.pack())
    program = (
        "import sys; from simulator.forecast.forecast import forecast_packed;"
        "print(repr(forecast_packed(open(sys.argv[1], 'rb').read())))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "asked")],
        capture_output=True,
        text=True,
        check=True,
    )
    here = forecast(question)
    assert found.stdout.strip() == repr(here)
    assert forecast_packed(question.pack()) == here


def test_an_unknown_policy_is_told():
    question = at(service(job("a")), 0.0)
    policy = replace(question.control.policy, choice=PolicyChoice(name="nonsense"))
    with pytest.raises(UnknownPolicyError):
        forecast(replace(question, control=replace(question.control, policy=policy)))


def test_past_service_and_age_are_known_to_the_policy():
    made = service(*some_jobs(6), workers=2, policy="max_min_fairness")
    question = at(made, 200.0)
    outlook = Outlook(question)
    problems = []
    answer = outlook._policy.allocate
    spy = type("Spy", (), {"name": "spy", "time_dependent": False})()
    spy.allocate = lambda problem: problems.append(problem) or answer(problem)
    outlook._run._policy = spy
    outlook.enter()
    while not problems:
        outlook.step()
    table = made.control.view.engine.jobs
    now_s = outlook._run.now_s
    rows = [table.row_of(n) for n in problems[0].job_number.tolist()]
    assert problems[0].age_s == pytest.approx(now_s - table["arrival_s"][rows])
    assert (problems[0].attained_worker_s >= table["attained_worker_s"][rows]).all()
    assert problems[0].attained_worker_s.sum() > 100.0


def test_a_policy_that_fails_leaves_the_jobs_unreached_and_is_named(monkeypatch):
    def fails(problem):
        raise ZeroDivisionError("boom")

    question = at(service(job("a", 100.0), job("b", 100.0, arrival_s=1.0)), 1.0)
    policy = type("Broken", (), {"name": "broken", "time_dependent": False})()
    policy.allocate = fails
    monkeypatch.setattr("simulator.forecast.forecast.make_policy", lambda name, params: policy)
    result = forecast(question)
    assert result.times["b"].start_s is None
    assert "policy 'broken' failed" in result.note


# -- trials of policies ---------------------------------------------------------------------------

TYPES = ThroughputTable(
    isolated={("a", 1): {"v100": 2.0, "k80": 1.9}, ("b", 1): {"v100": 8.0, "k80": 1.0}}
)
MIXED = [job(f"a{i}", 1e5) for i in range(3)] + [
    replace(job(f"b{i}", 1e4), job_type="b") for i in range(3)
]


def mixed(policy, **given):
    return service(
        *MIXED,
        policy=policy,
        cluster=read_cluster("v100:2,k80:2", workers_per_node=1),
        throughputs=TYPES,
        believed=TYPES,
        **given,
    )


@pytest.mark.parametrize(
    "choice",
    [
        PolicyChoice(name="shortest_job_first"),
        PolicyChoice(name="max_throughput"),
        PolicyChoice(name="max_min_fairness"),
        PolicyChoice(name="max_throughput", agnostic=True),
    ],
)
def test_a_trial_of_a_policy_says_what_its_change_then_brings(choice):
    question = at(mixed("fifo"), 30.0)
    found = try_policy(question, choice, time_dependent=False)
    assert found.note == ""
    fact = PolicySet(choice=choice, time_dependent=False, actor="olga")
    changed, kept = mixed("fifo", orders=[(question.now_s, fact)]), mixed("fifo")
    held = []
    for made in (kept, changed):
        at(made, question.now_s)
        number = made.control.state.engine.round_number
        go_on(made, lambda one, number=number: one.control.state.engine.round_number > number)
        held.append(holdings_of(made.control.state.engine))
    before, after = held
    differing = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert {one.job_id for one in found.changes} == differing
    for one in found.changes:
        assert (one.before, one.after) == (before.get(one.job_id, {}), after.get(one.job_id, {}))
    assert found.same == len(before.keys() & after.keys() - differing)


def test_a_trial_of_the_policy_in_force_changes_nothing():
    question = at(mixed("shortest_job_first"), 30.0)
    choice = PolicyChoice(name="shortest_job_first")
    found = try_policy_packed(question.pack(), choice, False)
    assert (found.changes, found.same, found.note) == ((), 4, "")
    assert try_policy(question, choice, time_dependent=False) == found


def break_policy(monkeypatch, broken):
    """Let a policy fail at each question."""

    def fails(problem):
        raise ZeroDivisionError("boom")

    policy = type("Broken", (), {"name": "broken", "time_dependent": False})()
    policy.allocate = fails
    monkeypatch.setattr(
        "simulator.forecast.forecast.make_policy",
        lambda name, params: policy if name == broken else make_policy(name, params),
    )


def test_a_trial_of_a_policy_that_fails_says_why(monkeypatch):
    break_policy(monkeypatch, "broken")
    question = at(mixed("fifo"), 30.0)
    found = try_policy(question, PolicyChoice(name="broken"), time_dependent=False)
    assert (found.changes, found.same) == ((), 0)
    assert "policy 'broken' failed" in found.note


def test_a_trial_on_a_cluster_in_which_nothing_happens_changes_nothing():
    idle = at(service(job("a", 10.0), policy="fifo"), 30.0)
    held = at(mixed("fifo"), 0.0)
    for question in (idle, held):
        for choice in (
            PolicyChoice(name="max_throughput", space_sharing=True),
            PolicyChoice(name="finish_time_fairness"),
        ):
            found = try_policy(question, choice, time_dependent=True)
            assert found.note == ""
    assert try_policy(idle, PolicyChoice(name="max_throughput"), time_dependent=False).changes == ()


def test_a_trial_beside_a_policy_that_fails_says_so(monkeypatch):
    question = at(mixed("fifo"), 30.0)

    break_policy(monkeypatch, "fifo")
    found = try_policy(question, PolicyChoice(name="max_throughput"), time_dependent=False)
    assert found.note.startswith("the policy in force gives no answer")
