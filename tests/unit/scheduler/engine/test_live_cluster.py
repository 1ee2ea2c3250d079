"""Nodes that join, drain and leave, throughputs that change, and jobs that wait for all of it."""

import numpy as np
import pytest

from leasehold_testing.shell import VirtualShell
from scheduler.domain.cluster import Cluster, Node, WorkerType
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.jobs.job import Job
from scheduler.domain.lease_life import EndReason
from scheduler.domain.problem import Entity
from scheduler.engine.engine import Engine
from scheduler.engine.settings import EngineSettings
from scheduler.engine.snapshot import dump, restore
from scheduler.engine.tables.columns import follow_configurations
from scheduler.errors import InputError

PATIENT = {"refuse_what_cannot_fit": False}


def node(name, count, kind="type-0"):
    return Node(name=name, workers=(kind,) * count)


def join(*nodes, kinds=()):
    return ev.NodesJoined(nodes=nodes, worker_types=tuple(WorkerType(name=kind) for kind in kinds))


def table(types, *ways, gang=1):
    """One profile; each way is (worker type index, steps/s)."""
    return ConfigurationTable.build(
        tuple(f"type-{k}" for k in range(types)),
        (
            Profile(
                job_type="profile-0",
                scale_factor=gang,
                configurations=tuple(
                    Configuration(
                        demand=tuple(gang if i == k else 0 for i in range(types)), throughput=rate
                    )
                    for k, rate in ways
                ),
            ),
        ),
    )


def told(shell, *kinds):
    return [entry.kind for _, entry in shell.history(do.RecordEvent) if entry.kind in kinds]


def test_an_empty_cluster_takes_jobs_and_asks_nothing_until_a_node_joins(job):
    settings = EngineSettings(round_length_s=100.0, **PATIENT)
    shell = VirtualShell(Cluster(worker_types=(), nodes=()), table(0), settings=settings)
    shell.submit(job("a", total_steps=300.0))
    shell.run(until_s=500.0)
    assert not shell.history(do.ComputeAllocation)
    assert shell.engine.jobs["status"].tolist() == [0]

    shell.tell(
        join(node("alpha", 2), kinds=["type-0"]), ev.ConfigurationsChanged(table=table(1, (0, 2.0)))
    )
    assert shell.running() == {"a": (0,)}
    shell.run_until_idle(at_most_s=1000.0)
    assert shell.now == pytest.approx(500.0 + 300.0 / 2.0)


def test_a_job_that_no_node_fits_is_refused_or_waits_as_the_settings_say(start, job):
    for settings, ended in (({}, {"a": "job_refused"}), (PATIENT, {})):
        shell = start("type-0:2", gangs=[3], settings=settings)
        shell.submit(job("a", scale_factor=3))
        assert shell.ended == ended
        shell.tell(join(node("beta", 3)))
        assert ("a" in shell.running()) == (not ended)


def test_retired_workers_no_longer_count_for_admission_but_lost_ones_do(start, job):
    for lose, ended in ((ev.WorkersLost, {}), (ev.WorkersRetired, {"a": "job_refused"})):
        shell = start("type-0:2", gangs=[2])
        shell.tell(lose(workers=(1,)))
        shell.submit(job("a", scale_factor=2))
        assert shell.ended == ended


def test_the_present_workers_are_those_that_are_not_retired(start):
    shell = start("type-0:8")
    before = shell.engine.present
    assert before is shell.engine.present
    assert before.nodes == shell.engine.cluster.nodes
    shell.tell(ev.WorkersRetired(workers=(0, 1, 2, 3, 4)))
    after = shell.engine.present
    assert after.most_on_a_node == {"type-0": 3}
    assert [node.name for node in after.nodes] == [before.nodes[1].name]
    assert restore(dump(shell.engine), shell.engine.settings).present == after
    shell.tell(ev.WorkersRetired(workers=(5, 6, 7)))
    assert shell.engine.present.nodes == ()
    assert shell.engine.present.most_on_a_node == {"type-0": 0}


def test_retired_workers_never_return_and_their_jobs_are_interrupted(start, job):
    shell = start("type-0:1")
    shell.submit(job("a"))
    shell.tell(ev.WorkersRetired(workers=(0,)))
    shell.tell(ev.WorkersReturned(workers=(0,)))
    assert not shell.engine.in_service.any()
    assert shell.running() == {}
    assert told(shell, "job_interrupted", "job_failed") == ["job_interrupted"]


def test_a_node_that_comes_back_with_other_workers_gets_new_numbers(start, job):
    shell = start("type-0:2")
    (name,) = (n.name for n in shell.engine.cluster.nodes)
    shell.submit(job("a"))
    shell.tell(ev.WorkersRetired(workers=(0, 1)), join(node(name, 3)))
    assert [n.name for n in shell.engine.cluster.nodes] == [f"{name}~retired-0", name]
    assert shell.engine.fleet.workers_of(name) == range(2, 5)
    assert shell.engine.fleet.workers_of("nobody") == range(0)
    assert shell.running() == {"a": (2,)}
    shell.tell(ev.WorkersRetired(workers=(2, 3, 4)), join(node(name, 0)), join(node(name, 0)))
    assert len({n.name for n in shell.engine.cluster.nodes}) == 4
    assert shell.engine.cluster is shell.engine.cluster


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([join(node("type-0-0", 1))], "node 'type-0-0' is here already; retire its workers"),
        ([join(node("b", 1)), join(node("b", 1))], r"here already; .* \(2 to 2\)"),
        ([join(node("b", 1, "new"))], "type 'new', which is not among the worker types"),
        ([join(kinds=["type-0"])], "worker type 'type-0' is known already"),
        ([join(node("b", 1)), ev.WorkersDrained(workers=(3,), by_s=0.0)], "numbered 0 to 2"),
        ([ev.WorkersDrained(workers=(0,), by_s=np.nan)], "by_s nan; it must be a time"),
        ([ev.WorkersCordoned(workers=(2,))], "worker 2 does not exist"),
        ([ev.DeadlineChanged(job_id="a", deadline_s=np.nan)], "deadline_s of job 'a' is nan"),
        (
            [ev.RestartsMeasured(job_ids=("a",), restart_s=np.array([-1.0]))],
            "restart_s of job 'a' is -1.0",
        ),
        (
            [ev.RestartsMeasured(job_ids=("a", "b"), restart_s=np.array([1.0]))],
            "2 jobs and 1 times",
        ),
        (
            [ev.LengthsRevised(job_ids=("a",), total_steps=np.array([0.0]))],
            "total_steps of job 'a' is 0.0; it must be > 0",
        ),
        (
            [ev.LengthsRevised(job_ids=("a", "b"), total_steps=np.array([1.0]))],
            "2 jobs and 1 step counts",
        ),
        (
            [join(kinds=["b"]), ev.ConfigurationsChanged(table=table(1))],
            "the cluster has type-0, b",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(start, events, said):
    shell = start("type-0:2")
    with pytest.raises(InputError, match=said):
        shell.engine.handle(*events, now=0.0)
    assert shell.engine.cluster.spec == "type-0:2"


def test_an_empty_cluster_says_that_it_has_no_workers():
    engine = Engine(Cluster(worker_types=(), nodes=()), EngineSettings())
    with pytest.raises(InputError, match="worker 0 does not exist; no node has joined yet"):
        engine.handle(ev.WorkersLost(workers=(0,)), now=0.0)


# -- drain and cordon -----------------------------------------------------------------------------


@pytest.mark.parametrize(("by_s", "end_s"), [(30.0, 30.0), (500.0, 100.0), (0.0, 10.0)])
def test_a_drained_worker_is_given_back_in_time_and_its_job_goes_elsewhere(start, job, by_s, end_s):
    shell = start("type-0:2")
    shell.submit(job("a"))
    shell.run(until_s=10.0)
    shell.tell(ev.WorkersDrained(workers=(0,), by_s=by_s))
    (revoked,) = (entry for _, entry in shell.history(do.RevokeLease))
    assert (revoked.by_s, revoked.reason) == (end_s, "drain")
    shell.run(until_s=150.0)
    assert shell.running() == {"a": (1,)}
    assert told(shell, "job_preempted", "job_interrupted") == ["job_preempted"]
    assert shell.engine.jobs["failures"].tolist() == [0]
    assert shell.engine.jobs["steps_done"].tolist() == pytest.approx([150.0], abs=50.0)


def test_a_cordoned_worker_keeps_its_job_and_takes_no_other(start, job):
    shell = start("type-0:2")
    shell.submit(job("a", total_steps=450.0))
    shell.tell(ev.WorkersCordoned(workers=(0,)))
    for name in "bcd":  # three compete for worker 1 alone
        shell.submit(job(name))
    shell.run(until_s=440.0)
    grants = {entry.lease.job_id: 0 for _, entry in shell.history(do.GrantLease)}
    for _, entry in shell.history(do.GrantLease):
        grants[entry.lease.job_id] += 1
        assert entry.lease.workers == ((0,) if entry.lease.job_id == "a" else (1,))
    assert grants["a"] == 1
    assert min(grants.values()) == 1
    assert shell.engine.jobs.x[0].tolist() == [1.0]
    question = shell.history(do.ComputeAllocation)[-1][1].problem
    assert (question.capacity.tolist(), question.jobs) == ([1.0], 3)
    shell.run(until_s=900.0)
    assert shell.ended["a"] == "job_completed"
    assert all(0 not in workers for workers in shell.running().values())

    shell.tell(ev.WorkersReturned(workers=(0,)))
    assert sorted(shell.running().values()) == [(0,), (1,)]


def test_nothing_is_asked_while_every_job_keeps_cordoned_workers(start, job):
    shell = start("type-0:1")
    shell.submit(job("a"))
    shell.tell(ev.WorkersCordoned(workers=(0,)))
    shell.run(until_s=350.0)
    assert shell.running() == {"a": (0,)}
    assert len(shell.history(do.ComputeAllocation)) == 1
    assert shell.engine.cordoned.tolist() == shell.engine.in_service.tolist() == [True]


# -- configurations -------------------------------------------------------------------------------


def test_what_runs_and_what_is_owed_follow_their_columns(start, job):
    shell = start("type-0:1,type-1:1", rates=[[1.0, 2.0]], answer_delay_s=None)
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.answer()
    shell.run(until_s=30.0)
    jobs = shell.engine.jobs
    before = jobs.x.copy(), jobs.credit_s.copy(), jobs["configuration"].tolist()
    assert before[2] == [1, 0]
    shell.tell(ev.ConfigurationsChanged(table=table(2, (1, 2.5), (0, 1.0))))
    assert jobs.x.tolist() == before[0][:, ::-1].tolist()
    assert jobs.credit_s.tolist() == before[1][:, ::-1].tolist()
    assert jobs["configuration"].tolist() == [0, 1]
    shell.run(until_s=450.0)
    assert len(shell.history(do.RevokeLease)) <= 2


def test_a_new_worker_type_adds_a_column_between_others(start, job):
    shell = start("type-0:1")
    shell.submit(job("a"))
    shell.tell(
        join(node("beta", 1, "type-1"), kinds=["type-1"]),
        ev.ConfigurationsChanged(table=table(2, (1, 9.0), (0, 1.0))),
    )
    assert shell.engine.jobs["configuration"].tolist() == [1]
    assert shell.running() == {"a": (0,)}
    shell.run(until_s=250.0)
    assert shell.running() == {"a": (1,)}


def test_a_job_may_end_its_round_in_a_configuration_that_is_gone(start, job):
    shell = start("type-0:1,type-1:1", rates=[[3.0, 1.0]])
    shell.submit(job("a"))
    shell.run(until_s=50.0)
    shell.tell(ev.ConfigurationsChanged(table=table(2, (1, 1.0))))
    jobs = shell.engine.jobs
    assert (jobs["configuration"].tolist(), jobs["charged"].tolist()) == ([-1], [0])
    assert shell.running() == {"a": (0,)}
    shell.run(until_s=99.0)
    assert shell.running() == {"a": (0,)}
    shell.run(until_s=101.0)
    assert shell.running() == {"a": (1,)}


def test_a_job_finds_its_configuration_again_when_it_comes_back(start, job):
    shell = start("type-0:1,type-1:1", rates=[[3.0, 1.0]])
    shell.submit(job("a"))
    shell.tell(ev.ConfigurationsChanged(table=table(2, (1, 1.0))))
    shell.tell(ev.ConfigurationsChanged(table=table(2, (1, 1.0), (0, 3.0))))
    assert shell.engine.jobs["configuration"].tolist() == [1]
    assert shell.running() == {"a": (0,)}


def test_an_answer_about_other_columns_is_dropped(start, job):
    shell = start("type-0:1,type-1:1", rates=[[1.0, 2.0]], answer_delay_s=None)
    shell.submit(job("a"))
    stale = shell._computed(shell.questions.pop())
    shell.tell(ev.ConfigurationsChanged(table=table(2, (1, 2.0), (0, 1.0))), stale)
    assert not shell.engine.jobs.x.any()
    assert shell.engine.question_open


def test_ways_of_one_demand_are_told_apart_by_locality_and_plan():
    def of(*ways):
        configurations = tuple(
            Configuration(demand=demand, throughput=1.0, plan=plan) for demand, plan in ways
        )
        profile = Profile(job_type="a", scale_factor=1, configurations=configurations)
        return ConfigurationTable.build(("x", "y"), (profile,))

    old = of(((1, 0), "p"), ((1, 0), "q"), ((0, 1), ""))
    assert follow_configurations(old, old) == {}
    assert (
        follow_configurations(old, of(((1, 0), "p"), ((1, 0), "q"), ((0, 1), ""), ((1, 1), "")))
        == {}
    )
    turned = follow_configurations(old, of(((1, 0), "q"), ((0, 1), ""), ((1, 0), "new")))
    assert {u: columns.tolist() for u, columns in turned.items()} == {0: [2, 0, 1]}
    fewer = follow_configurations(old, of(((0, 1), ""), ((1, 0), "new")))
    assert {u: columns.tolist() for u, columns in fewer.items()} == {0: [1, -1, 0]}


# -- jobs, policies, entities ---------------------------------------------------------------------


def test_a_requeued_job_gives_its_workers_back_at_once_and_waits_anew(start, job):
    shell = start("type-0:1")
    shell.submit(job("a"))
    shell.run(until_s=10.0)
    shell.release_delay_s = 5.0
    shell.tell(ev.JobRequeued(job_id="a"))
    shell.tell(ev.JobRequeued(job_id="a"))
    (revoked,) = (entry for _, entry in shell.history(do.RevokeLease))
    assert (revoked.by_s, revoked.reason) == (10.0, "requeue")
    shell.run(until_s=20.0)
    assert told(shell, "job_requeued", "job_preempted") == ["job_requeued", "job_preempted"]
    assert shell.engine.jobs["failures"].tolist() == [0]
    (lease,) = shell.engine.book.leases.values()
    assert (lease.attempt, lease.start_s) == (2, 15.0)
    shell.tell(ev.JobRequeued(job_id="nobody"), ev.JobHeld(job_id="a"), ev.JobRequeued(job_id="a"))
    assert told(shell, "job_requeued") == ["job_requeued"]


def test_a_job_that_is_submitted_again_counts_on(start, job):
    shell = start("type-0:1")
    shell.submit(job("a", total_steps=100.0, attempts_before=3, steps_before=40.0))
    (lease,) = shell.engine.book.leases.values()
    assert lease.attempt == 4
    shell.run_until_idle(at_most_s=60.0)
    assert shell.now == pytest.approx(60.0)
    for values in ({"attempts_before": -1}, {"steps_before": -1.0}, {"steps_before": 101.0}):
        with pytest.raises(InputError, match=f"'{next(iter(values))}' has the value"):
            Job(job_id="a", job_type="t", total_steps=100.0, **values)


def test_a_policy_change_asks_anew_and_drops_the_answer_under_way(start, job):
    shell = start("type-0:1", answer_delay_s=None)
    shell.submit(job("a"))
    shell.tell(ev.PolicyChanged(policy="other", time_dependent=True))
    assert told(shell, "policy_changed") == ["policy_changed"]
    assert [question.generation for question in shell.questions] == [1, 2]
    shell.answer()
    assert shell.engine.question_open
    assert shell.engine.time_dependent
    shell.answer()
    assert not shell.engine.question_open
    shell.tell(ev.PolicyChanged(policy="other", time_dependent=False, record=False))
    assert shell.engine.generation == 3
    assert told(shell, "policy_changed") == ["policy_changed"]


def test_deadlines_and_entities_reach_the_next_question(start, job):
    shell = start("type-0:1")
    shell.submit(job("a", entity="team", deadline_s=50.0))
    team = Entity(name="team", weight=4.0, policy="fifo")
    shell.tell(
        ev.DeadlineChanged(job_id="a", deadline_s=70.0),
        ev.DeadlineChanged(job_id="nobody", deadline_s=70.0),
        ev.EntityChanged(entity=team),
        ev.EntityChanged(entity=Entity(name="new")),
    )
    problem = shell.history(do.ComputeAllocation)[-1][1].problem
    assert problem.time_left_s.tolist() == [70.0]
    assert problem.entities == shell.engine.entities == (team, Entity(name="new"))
    assert problem.entity.tolist() == [0]
    shell.tell(ev.DeadlineChanged(job_id="a", deadline_s=None))
    assert shell.history(do.ComputeAllocation)[-1][1].problem.time_left_s.tolist() == [np.inf]


def test_measured_restarts_reach_the_next_question(start, job):
    shell = start("type-0:1")
    shell.submit(job("a"))
    shell.submit(job("b", restart_s=2.0))
    costs = np.array([7.0, 8.0])
    shell.tell(ev.RestartsMeasured(job_ids=("b", "nobody"), restart_s=costs))
    problem = shell.history(do.ComputeAllocation)[-1][1].problem
    assert problem.restart_s.tolist() == [0.0, 7.0]
    asked = len(shell.history(do.ComputeAllocation))
    shell.tell(ev.RestartsMeasured(job_ids=("nobody",), restart_s=np.array([9.0])))
    assert len(shell.history(do.ComputeAllocation)) == asked


def test_restarts_are_known_for_each_configuration_and_follow_a_new_table(start, job):
    shell = start("type-0:1,type-1:1", rates=[[3.0, 1.0]])
    shell.submit(job("a", restart_s=3.0))
    costs = {"job_ids": ("a",), "restart_s": np.array([7.0])}
    shell.tell(ev.RestartsMeasured(**costs, restarts=({"type-1:1": 50.0, "type-2": 9.0},)))
    jobs = shell.engine.state.jobs
    assert jobs["restart_s"].tolist() == [7.0]
    assert jobs.restarts_s[0, :2].tolist() == [7.0, 50.0]
    shell.tell(ev.ConfigurationsChanged(table=table(2, (1, 9.0), (0, 1.0))))
    assert shell.engine.state.jobs.restarts_s[0, :2].tolist() == [50.0, 7.0]
    shell.restart()
    assert shell.engine.state.jobs.restarts_s[0, :2].tolist() == [50.0, 7.0]


def test_revised_lengths_reach_the_next_question_and_never_lie_below_what_is_done(start, job):
    shell = start("type-0:1")
    shell.submit(job("a"))
    shell.submit(job("b"))
    lengths = np.array([70.0, 80.0])
    shell.tell(ev.LengthsRevised(job_ids=("b", "nobody"), total_steps=lengths))
    problem = shell.history(do.ComputeAllocation)[-1][1].problem
    assert problem.total_steps.tolist() == [10_000.0, 70.0]
    assert problem.remaining_steps.tolist() == [10_000.0, 70.0]
    asked = len(shell.history(do.ComputeAllocation))
    shell.tell(ev.LengthsRevised(job_ids=("nobody",), total_steps=np.array([9.0])))
    assert len(shell.history(do.ComputeAllocation)) == asked


def test_a_job_is_complete_when_its_lease_says_so_not_when_its_estimate_is_reached(start, job):
    shell = start("type-0:1")
    shell.submit(job("a", total_steps=50.0))
    lease_ids = np.array(sorted(shell.executions))
    shell.executions[lease_ids[0]].lease  # noqa: B018  it runs
    shell.engine.handle(
        ev.ProgressReported(lease_ids=lease_ids, steps_done=np.array([5000.0])), now=10.0
    )
    assert shell.engine.jobs["steps_done"].tolist() == [50.0]
    shell.engine.handle(
        ev.LeaseEnded(lease_id=1, reason=EndReason.RELEASED, steps_done=70.0), now=20.0
    )
    assert shell.engine.jobs["attained_worker_s"].tolist() == [20.0]
    assert (shell.engine.held_before_s("a"), shell.engine.held_before_s("nobody")) == (20.0, 0.0)
    assert shell.engine.now_s == 20.0
    assert shell.engine.round_end_s == 100.0
    assert not shell.engine.retired.any()
