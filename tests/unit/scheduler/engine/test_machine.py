"""Under any events in any order the engine stays consistent, fair to all, and never hangs."""

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leasehold_testing.answers import equal_shares, paired_shares
from leasehold_testing.shell import VirtualShell
from leasehold_testing.wait_reasons import checked_wait_reasons
from scheduler.domain.cluster import Cluster, Node, WorkerType, parse_cluster_spec
from scheduler.domain.configuration import (
    CONSOLIDATED,
    Configuration,
    ConfigurationTable,
    PairConfiguration,
    Profile,
)
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.facts.causes import Cause, FactKind
from scheduler.domain.jobs.job import Job
from scheduler.domain.lease_life import EndReason
from scheduler.domain.problem import Entity
from scheduler.engine.settings import EngineSettings
from scheduler.engine.tables.jobs import HELD, NONE, WAITING

CLUSTER = parse_cluster_spec("type-0:6,type-1:4", workers_per_node=4)
#: Steps/s of each profile on each worker type; types 2 and 3 join later, if at all.
RATES = [
    [2.0, 1.0, 4.0, 0.0],
    [1.0, 0.0, 0.0, 2.0],
    [3.0, 4.0, 5.0, 1.0],
    [3.0, 0.0, 2.0, 0.0],
    [1.0, 1.0, 1.0, 1.0],
    [9.0, 9.0, 9.0, 9.0],
    [0.0, 0.0, 0.0, 3.0],
    [2.0, 2.0, 2.1, 0.0],
]
GANGS = [1, 1, 2, 6, 3, 7, 1, 1]
SHARED = {
    (0, 0, 0): (1.5, 1.5),
    (0, 1, 0): (1.5, 0.75),
    (0, 0, 1): (0.75, 0.75),
    (2, 2, 0): (2.0, 2.0),
    (0, 0, 2): (2.0, 1.0),
}
#: (profile, worker type) of configurations that need one node.
CONSOLIDATED_WAYS = {(4, 0), (2, 1)}
MOST_JOBS, MOST_WORKERS = 14, 40
VARIANTS = [0, 0, 1, 2, 3]
SEEDS = 20
#: What most jobs do not say, and some do.
MANNERS = (
    {},
    {},
    {"checkpoints": False},
    {"checkpoints": False, "preemptible": False},
    {"min_run_time_s": 250.0},
)


def table_of(types, variant=0):
    """Lay the profiles out; variants turn the columns round, and 3 forgets a way to run.

    Equal value differs as well: figures are sure, in doubt, or unknown.
    """
    doubt = [0.0, 0.2, math.inf, 0.0][variant]

    def demand(k, workers):
        return tuple(workers if i == k else 0 for i in range(types))

    profiles = []
    for u, (rates, gang) in enumerate(zip(RATES, GANGS, strict=True)):
        ways = [
            Configuration(
                demand=demand(k, gang),
                throughput=rate,
                doubt=doubt,
                locality=CONSOLIDATED if (u, k) in CONSOLIDATED_WAYS else "any",
                plan="halves" if (u, k) in CONSOLIDATED_WAYS and variant else "",
            )
            for k, rate in enumerate(rates[:types])
            if rate > 0
        ]
        turn = variant % max(len(ways), 1)
        ways = ways[turn:] + ways[:turn]
        if variant == 3 and len(ways) > 1:
            ways.pop()
        profiles.append(
            Profile(job_type=f"profile-{u}", scale_factor=gang, configurations=tuple(ways))
        )
    pairs = [
        PairConfiguration(profiles=(a, b), demand=demand(k, GANGS[a]), throughput=rates)
        for (a, b, k), rates in SHARED.items()
        if k < types
    ]
    names = tuple(f"type-{k}" for k in range(types))
    return ConfigurationTable.build(names, tuple(profiles), tuple(pairs[variant:]))


#: The kind of an event, and the attribute that names its subject.
FACTS = {
    ev.ConfigurationsChanged: ("throughputs_changed", None),
    ev.JobCancelled: ("job_cancelled", "job_id"),
    ev.JobHeld: ("job_held", "job_id"),
    ev.JobReleased: ("job_released", "job_id"),
    ev.JobDeferred: ("job_deferred", "job_id"),
    ev.WeightChanged: ("weight_changed", "job_id"),
    ev.DeadlineChanged: ("deadline_changed", "job_id"),
    ev.RestartsMeasured: ("restarts_measured", None),
    ev.LengthsRevised: ("lengths_revised", None),
    ev.JobRequeued: ("job_requeued", "job_id"),
    ev.PolicyChanged: ("policy_changed", "policy"),
    ev.AllocationComputed: ("policy_answered", None),
    ev.AllocationFailed: ("policy_failed", None),
    ev.WorkersLost: ("workers_lost", None),
    ev.WorkersReturned: ("workers_returned", None),
    ev.WorkersDrained: ("workers_drained", None),
    ev.WorkersCordoned: ("workers_cordoned", None),
    ev.WorkersRetired: ("workers_retired", None),
    ev.AgentDied: ("agent_died", "node"),
}
ENDS = {
    EndReason.COMPLETED: "job_ended",
    EndReason.FAILED: "lease_failed",
    EndReason.LOST: "lease_lost",
}
TIMERS = {"retry": "wait_over", "grace": "policy_late"}


def facts_of(event, job_under):
    """Return {(fact, subject)} of an event, worked out by hand."""
    match event:
        case ev.JobSubmitted():
            found = {("job_arrived", event.job.job_id)}
        case ev.EntityChanged():
            found = {("share_changed", event.entity.name)}
        case ev.FundsChanged():
            found = {("budget_spent" if event.unfunded else "budget_freed", "")}
        case ev.NodesJoined():
            found = {("node_joined", ", ".join(node.name for node in event.nodes))}
        case ev.LeaseEnded():
            fact = ENDS.get(event.reason, "lease_ended")
            found = {(fact, job_under.get(event.lease_id, ""))}
        case ev.LeasesReleased():
            jobs = (job_under[lease_id] for lease_id in event.lease_ids.tolist())
            found = {("lease_ended", job_id) for job_id in ("", *jobs)}
        case ev.TimerFired():
            found = {(TIMERS.get(event.timer, "round"), "")}
        case _:
            fact, name = FACTS.get(type(event), ("", None))
            found = {(fact, getattr(event, name) if name else "")}
    return found


NUMBERS = st.sets(st.integers(0, MOST_WORKERS), min_size=1, max_size=5)


@pytest.fixture(autouse=True)
def reasons_hold():
    """After each decision, every waiting job has the reason that holds."""
    with checked_wait_reasons(pytest.fail):
        yield


class EngineMachine(RuleBasedStateMachine):
    @initialize(
        lead_s=st.sampled_from([0.0, 30.0]),
        pairs=st.booleans(),
        release_delay_s=st.sampled_from([0.0, 20.0, 500.0]),
        repeat_reports=st.booleans(),
        timer_delay_s=st.sampled_from([0.0, 0.5, 250.0]),
        answer_delay_s=st.sampled_from([0.0, 0.25, 5.0, None]),
        time_dependent=st.booleans(),
        empty=st.booleans(),
        strict=st.booleans(),
        fold_ends=st.booleans(),
    )
    def begin(self, *, lead_s, pairs, empty, strict, **faults):
        cluster = Cluster(worker_types=(), nodes=()) if empty else CLUSTER
        self.shell = VirtualShell(
            cluster,
            table_of(len(cluster.worker_types)),
            settings=EngineSettings(
                round_length_s=100.0,
                plan_lead_s=lead_s,
                refuse_what_cannot_fit=strict,
            ),
            allocate=paired_shares if pairs else equal_shares,
            **faults,
        )
        self.submitted = {}
        self.known = {}
        self.seen = 0
        self.job_under = {}
        #: names that nodes have had; "" stands for the node of no workers at all.
        self.nodes = {""}
        self.happened, self.looked = {("round", "")}, 0

    @property
    def engine(self):
        return self.shell.engine

    def must_be_refused(self, profile):
        """Whether the job can never run, found from the rates and by counting workers."""
        if not self.engine.settings.refuse_what_cannot_fit:
            return False
        fleet = self.engine.fleet
        count = [0] * len(fleet.type_names)
        for worker, kind in enumerate(fleet.type_of.tolist()):
            count[kind] += not fleet.retired[worker]
        ways = self.engine.table.profiles[profile].configurations
        return not any(all(d <= c for d, c in zip(way.demand, count, strict=True)) for way in ways)

    def workers(self, numbers):
        return tuple(sorted({n % self.engine.fleet.workers for n in numbers}))

    def pick(self, number):
        return f"job-{number % max(len(self.submitted), 1)}"

    @precondition(lambda self: len(self.submitted) < MOST_JOBS)
    @rule(
        profile=st.sampled_from([0, 0, 0, 1, 2, 2, 3, 4, 5, 6]),
        total_steps=st.sampled_from([1.0, 150.0, 400.0, 2000.0]),
        count=st.integers(1, 3),
        values=st.fixed_dictionaries(
            {"weight": st.sampled_from([1.0, 3.0]), "max_failures": st.integers(0, 2)}
        ),
        launch_constraints=st.sampled_from(MANNERS),
    )
    def submit(self, profile, total_steps, count, values, launch_constraints):
        jobs = []
        for _ in range(count):
            job_id = f"job-{len(self.submitted)}"
            self.submitted[job_id] = profile
            jobs.append(
                Job(
                    job_id=job_id,
                    job_type=f"profile-{profile}",
                    total_steps=total_steps,
                    scale_factor=GANGS[profile],
                    arrival_s=self.shell.now,
                    **values,
                    **launch_constraints,
                )
            )
        refused = self.must_be_refused(profile)
        self.shell.tell(*(ev.JobSubmitted(job=job, profile=profile) for job in jobs))
        for job in jobs:
            assert (self.shell.ended.get(job.job_id) == "job_refused") == refused

    @rule(number=st.integers(0, 99))
    def submit_again(self, number):
        job_id = self.pick(number)
        if job_id in self.engine.jobs.number_of:
            active = len(self.engine.jobs)
            self.shell.submit(Job(job_id=job_id, job_type="profile-0", total_steps=5.0))
            assert len(self.engine.jobs) == active
            # Control never does this. An upgrade would take it for a new life of the job, so it
            # must not lie behind the snapshot.
            self.shell.restart()

    @rule(elapsed_s=st.sampled_from([0.1, 1.0, 30.0, 70.0, 100.0, 350.0]))
    def let_time_pass(self, elapsed_s):
        self.shell.run(until_s=self.shell.now + elapsed_s)

    @rule(number=st.integers(0, 99))
    def cancel(self, number):
        self.shell.tell(ev.JobCancelled(job_id=self.pick(number)))

    @rule(number=st.integers(0, 99))
    def hold(self, number):
        self.shell.tell(ev.JobHeld(job_id=self.pick(number)))

    @rule(number=st.integers(0, 99))
    def release(self, number):
        self.shell.tell(ev.JobReleased(job_id=self.pick(number)))

    @rule(number=st.integers(0, 99), weight=st.sampled_from([0.5, 2.0, 5.0]))
    def change_weight(self, number, weight):
        self.shell.tell(ev.WeightChanged(job_id=self.pick(number), weight=weight))

    @rule(number=st.integers(0, 99))
    def requeue(self, number):
        self.shell.tell(ev.JobRequeued(job_id=self.pick(number)))

    @rule(number=st.integers(0, 99), deadline_s=st.sampled_from([None, 50.0, 5000.0]))
    def change_deadline(self, number, deadline_s):
        self.shell.tell(ev.DeadlineChanged(job_id=self.pick(number), deadline_s=deadline_s))

    @rule(name=st.sampled_from(["", "team"]), weight=st.sampled_from([1.0, 4.0]))
    def change_entity(self, name, weight):
        self.shell.tell(ev.EntityChanged(entity=Entity(name=name, weight=weight)))

    @rule(time_dependent=st.booleans(), record=st.booleans())
    def change_policy(self, **values):
        self.shell.tell(ev.PolicyChanged(policy="other", **values))

    @rule(variant=st.sampled_from(VARIANTS))
    def change_configurations(self, variant):
        table = table_of(len(self.engine.fleet.type_names), variant)
        self.shell.tell(ev.ConfigurationsChanged(table=table))

    @precondition(lambda self: self.engine.fleet.workers < MOST_WORKERS)
    @rule(
        size=st.integers(0, 8),
        kind=st.integers(0, 3),
        name=st.integers(0, 3),
        variant=st.sampled_from(VARIANTS),
    )
    def join(self, size, kind, name, variant):
        """A node joins, or comes back with other workers; its type may be new."""
        types = len(self.engine.fleet.type_names)
        kind = min(kind, types)
        node = Node(name=f"node-{name}", workers=(f"type-{kind}",) * size)
        old = tuple(self.engine.fleet.workers_of(node.name))
        new = (WorkerType(name=f"type-{kind}"),) if kind == types else ()
        self.shell.tell(
            ev.WorkersRetired(workers=old), ev.NodesJoined(nodes=(node,), worker_types=new)
        )
        if variant or new:
            types += len(new)
            self.shell.tell(ev.ConfigurationsChanged(table=table_of(types, variant)))

    @precondition(lambda self: self.engine.fleet.workers)
    @rule(numbers=NUMBERS)
    def lose_workers(self, numbers):
        # One event for each, although a gang may lie on several of them.
        self.shell.tell(*(ev.WorkersLost(workers=(w,)) for w in self.workers(numbers)))

    @precondition(lambda self: self.engine.fleet.workers)
    @rule(numbers=NUMBERS, wait_s=st.sampled_from([-10.0, 0.0, 20.0, 1000.0]))
    def drain_workers(self, numbers, wait_s):
        workers = self.workers(numbers)
        self.shell.tell(ev.WorkersDrained(workers=workers, by_s=self.shell.now + wait_s))

    @precondition(lambda self: self.engine.fleet.workers)
    @rule(numbers=NUMBERS)
    def cordon_workers(self, numbers):
        self.shell.tell(ev.WorkersCordoned(workers=self.workers(numbers)))

    @precondition(lambda self: self.engine.fleet.workers)
    @rule(numbers=NUMBERS)
    def return_workers(self, numbers):
        self.shell.tell(ev.WorkersReturned(workers=self.workers(numbers)))

    @rule()
    def restart(self):
        self.shell.restart()

    @rule()
    def upgrade(self):
        self.shell.upgrade()

    @rule(
        number=st.integers(0, 99),
        reason=st.sampled_from(
            [EndReason.FAILED, EndReason.COMPLETED, EndReason.LOST, EndReason.RELEASED]
        ),
    )
    def end_a_lease(self, number, reason):
        leases = sorted(self.shell.executions)
        if leases:
            self.shell.end(leases[number % len(leases)], reason)

    @rule(timer=st.sampled_from(["plan", "grace", "retry", "nonsense"]))
    def fire_a_timer_early(self, timer):
        self.shell.tell(ev.TimerFired(timer=timer))

    @rule(number=st.integers(0, 99), fails=st.booleans())
    def answer_in_any_order(self, number, fails):
        questions = self.shell.questions
        if not questions:
            return
        position = number % len(questions)
        old = position < len(questions) - 1
        before = self.engine.jobs.x.copy()
        (self.shell.fail if fails else self.shell.answer)(position)
        if old and len(before) == len(self.engine.jobs):
            assert np.array_equal(before, self.engine.jobs.x), "an old generation was not dropped"

    @rule(delay_s=st.sampled_from([0.0, 20.0, 500.0]))
    def change_release_delay(self, delay_s):
        self.shell.release_delay_s = delay_s

    @invariant()
    def gangs_run_whole_on_one_type_and_only_pairs_share(self):
        jobs = self.engine.jobs
        for run in self.shell.executions.values():
            lease = run.lease
            assert len(lease.workers) == GANGS[lease.profile]
            assert len(set(self.engine.fleet.type_of[list(lease.workers)])) == 1
        by_worker = {}
        for run in self.shell.executions.values():
            for worker in run.lease.workers:
                by_worker.setdefault(worker, []).append(run.lease)
        for leases in by_worker.values():
            assert len(leases) <= 2
            stay = [x for x in leases if x.lease_id not in self.engine.book.stopping]
            if len(stay) == 2:
                entries = {int(jobs["pair"][jobs.row_of(x.job_number)]) for x in stay}
                assert len(entries) == 1
                assert stay[0].workers == stay[1].workers

    @invariant()
    def members_of_a_pair_run_on_the_same_workers(self):
        jobs = self.engine.jobs
        places = {}
        for row in range(len(jobs)):
            entry = int(jobs["pair"][row])
            lease_id = int(jobs["lease"][row])
            if entry != NONE and lease_id not in self.engine.book.stopping:
                workers = self.engine.book.leases[lease_id].workers
                assert places.setdefault(entry, workers) == workers

    @invariant()
    def steps_only_grow_except_by_a_loss(self):
        fell_back = set()
        for _, entry in self.shell.log[self.seen :]:
            if isinstance(entry, ev.LeaseEnded) and entry.reason in {
                EndReason.LOST,
                EndReason.FAILED,
            }:
                fell_back.add(entry.lease_id)
        lost_jobs = {
            entry.lease.job_id
            for _, entry in self.shell.log
            if isinstance(entry, do.GrantLease) and entry.lease.lease_id in fell_back
        }
        job_of = self.engine.jobs.job_of.values()
        lost_jobs |= {job.job_id for job in job_of if not job.checkpoints}
        self.seen = len(self.shell.log)
        jobs = self.engine.jobs
        now = {
            job_id: float(jobs["steps_done"][jobs.row_of(n)])
            for job_id, n in jobs.number_of.items()
        }
        for job_id, steps in now.items():
            if job_id in self.known and job_id not in lost_jobs:
                assert steps >= self.known[job_id] - 1e-6
        self.known = now

    @invariant()
    def every_command_names_a_fact_that_has_happened(self):
        self.nodes |= {node.name for node in self.engine.cluster.nodes}
        for _, entry in self.shell.log[self.looked :]:
            if isinstance(entry, do.GrantLease):
                self.job_under[entry.lease.lease_id] = entry.lease.job_id
            if not isinstance(entry, get_args(do.Command)):
                self.happened |= facts_of(entry, self.job_under)
                continue
            cause = entry.cause
            assert isinstance(cause, Cause)
            if cause.fact.startswith("workers_"):
                assert cause.subject in self.nodes
                assert (cause.fact, "") in self.happened
            elif cause.fact is not FactKind.RESTARTED:
                assert (cause.fact, cause.subject) in self.happened, cause
            if isinstance(entry, do.GrantLease | do.RevokeLease):
                assert cause.ground is not None or cause.fact is not FactKind.ROUND
                assert cause.words() not in {"", f"in round {cause.round_number}"}
                assert not cause.rival or cause.rival in self.submitted
        self.looked = len(self.shell.log)

    @invariant()
    def no_worker_idles_while_a_runnable_job_that_fits_waits(self):
        if self.engine.state.blocked or self.engine.question_open:
            return
        jobs, book, table = self.engine.jobs, self.engine.book, self.engine.table
        free = self.engine.fleet.count(book.idle())
        most = self.engine.fleet.count_on_nodes(book.idle()).max(axis=0, initial=0)
        for row in np.flatnonzero(jobs["status"] == WAITING):
            may_run = jobs["retry_at_s"][row] + self.shell.timer_delay_s <= self.shell.now
            if not may_run or int(jobs["number"][row]) in book.planned:
                continue
            profile = jobs["profile"][row]
            fits = (table.throughput[profile] > 0) & (table.demand[profile] <= free).all(axis=1)
            near = self.engine.state.assigner.launch_constraints.consolidated[profile]
            fits &= ~near | (table.demand[profile] <= most).all(axis=1)
            assert not fits.any(), f"row {row} waits while {free} workers are idle"

    @invariant()
    def an_open_lease_is_never_past_its_deadline_while_timers_are_on_time(self):
        if self.shell.timer_delay_s or self.engine.question_open:
            return
        for run in self.shell.executions.values():
            if not run.stopping:
                assert run.deadline_s >= self.shell.now

    def teardown(self):
        """Once faults stop, every admitted job that is not held completes."""
        if not hasattr(self, "shell"):
            return
        shell = self.shell
        shell.answer_delay_s = 0.0
        shell.release_delay_s = shell.timer_delay_s = 0.0
        while shell.questions:
            shell.answer()
        jobs = self.engine.jobs
        shell.tell(ev.WorkersReturned(workers=tuple(range(self.engine.fleet.workers))))
        self.make_room()
        for job_id in list(jobs.number_of):
            if jobs["status"][jobs.row_of(jobs.number_of[job_id])] == HELD:
                shell.tell(ev.JobReleased(job_id=job_id))
        # All the work there can be, one job at a time at the lowest throughput, and a margin.
        shell.run_until_idle(at_most_s=100_000.0)
        shell.run(until_s=shell.now + 1_000.0)
        assert not shell.executions
        for job_id in self.submitted:
            assert job_id in shell.ended

    def make_room(self):
        """Let nodes join on which every job fits."""
        known = len(self.engine.fleet.type_names)
        self.shell.tell(
            ev.NodesJoined(
                nodes=tuple(Node(name=f"last-{k}", workers=(f"type-{k}",) * 7) for k in range(4)),
                worker_types=tuple(WorkerType(name=f"type-{k}") for k in range(known, 4)),
            ),
            ev.ConfigurationsChanged(table=table_of(4)),
        )


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=50, stateful_step_count=40)


class LongHistory(EngineMachine):
    """The same machine with the dice of numpy: long histories in which jobs prevail."""

    def walk(self, seed, steps):
        rng = np.random.default_rng(seed)

        def of(*values):
            return values[rng.integers(len(values))]

        def some():
            return set(rng.integers(0, MOST_WORKERS, rng.integers(1, 4)).tolist())

        def number():
            return int(rng.integers(99))

        self.begin(
            lead_s=of(0.0, 30.0),
            pairs=of(True, False),
            release_delay_s=of(0.0, 20.0, 120.0),
            repeat_reports=of(True, False),
            timer_delay_s=of(0.0, 0.0, 0.5, 250.0),
            answer_delay_s=of(0.0, 0.0, 0.25, 5.0, None),
            time_dependent=of(True, False),
            empty=seed % 3 == 0,
            strict=of(True, False),
        )
        reasons = (EndReason.FAILED, EndReason.COMPLETED, EndReason.LOST, EndReason.RELEASED)
        moves = [
            (9, lambda: self.let_time_pass(elapsed_s=of(1.0, 30.0, 70.0, 100.0))),
            (5, lambda: self.submit(
                profile=of(0, 0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 7),
                total_steps=of(150.0, 400.0, 2000.0),
                count=2, values={"weight": of(1.0, 3.0), "max_failures": 2},
            launch_constraints=of(*MANNERS),
            )),
            (2, lambda: self.join(
                size=int(rng.integers(1, 9)), kind=int(rng.integers(4)),
                name=int(rng.integers(4)), variant=of(*VARIANTS),
            )),
            (2, lambda: self.end_a_lease(number=number(), reason=of(*reasons))),
            (2, lambda: self.change_configurations(variant=of(*VARIANTS))),
            (1, self.restart),
            (1, lambda: self.hold(number=number())),
            (2, lambda: self.release(number=number())),
            (1, lambda: self.cancel(number=number())),
            (1, lambda: self.requeue(number=number())),
            (1, lambda: self.change_weight(number=number(), weight=of(0.5, 2.0))),
            (1, lambda: self.change_deadline(number=number(), deadline_s=of(None, 50.0))),
            (1, lambda: self.change_policy(time_dependent=of(True, False), record=of(True, False))),
            (1, lambda: self.lose_workers(numbers=some())),
            (1, lambda: self.drain_workers(numbers=some(), wait_s=of(-10.0, 0.0, 20.0, 1000.0))),
            (1, lambda: self.cordon_workers(numbers=some())),
            (3, lambda: self.return_workers(numbers=some() | some())),
            (2, self.upgrade),
            (3, lambda: self.answer_in_any_order(number=number(), fails=of(True, False, False))),
        ]  # fmt: skip
        moves = [move for weight, move in moves for _ in range(weight)]
        for _ in range(steps):
            if not self.engine.fleet.workers:
                self.join(size=6, kind=0, name=0, variant=0)
            if len(self.engine.jobs) >= MOST_JOBS:
                self.let_time_pass(elapsed_s=100.0)
            else:
                of(*moves)()
            self.gangs_run_whole_on_one_type_and_only_pairs_share()
            self.members_of_a_pair_run_on_the_same_workers()
            self.every_command_names_a_fact_that_has_happened()
            self.steps_only_grow_except_by_a_loss()
            self.no_worker_idles_while_a_runnable_job_that_fits_waits()
            self.an_open_lease_is_never_past_its_deadline_while_timers_are_on_time()
        self.teardown()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_long_histories_keep_every_law(seed):
    LongHistory().walk(seed, steps=150)
