"""Whatever happens in whatever order, the engine stays consistent, fair to all, and never hangs."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.domain import commands as do
from scheduler.domain import events as ev
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.job import Job
from scheduler.domain.lease import EndReason
from scheduler.engine.jobs import HELD, NONE, WAITING
from scheduler.engine.settings import EngineSettings
from scheduler.testing.answers import equal_shares, paired_shares
from scheduler.testing.problems import make_table
from scheduler.testing.shell import VirtualShell

CLUSTER = parse_cluster_spec("type-0:6,type-1:4", workers_per_node=4)
TABLE = make_table(
    [[2.0, 1.0], [1.0, 0.0], [3.0, 4.0], [3.0, 0.0], [1.0, 1.0], [9.0, 9.0], [0.0, 0.0]],
    scale_factor=[1, 1, 2, 6, 3, 7, 1],
    shared={
        (0, 0, 0): (1.5, 1.5),
        (0, 1, 0): (1.5, 0.75),
        (0, 0, 1): (0.75, 0.75),
        (2, 2, 0): (2.0, 2.0),
    },
)
#: Profile 5 is larger than each type and profile 6 runs nowhere: both must be refused.
REFUSED = {5, 6}
MOST_JOBS = 14


class EngineMachine(RuleBasedStateMachine):
    @initialize(
        lead_s=st.sampled_from([0.0, 30.0]),
        pairs=st.booleans(),
        release_delay_s=st.sampled_from([0.0, 20.0, 500.0]),
        repeat_reports=st.booleans(),
        timer_delay_s=st.sampled_from([0.0, 0.5, 250.0]),
        answer_delay_s=st.sampled_from([0.0, 0.25, 5.0, None]),
        time_dependent=st.booleans(),
    )
    def begin(self, *, lead_s, pairs, **faults):
        self.shell = VirtualShell(
            CLUSTER,
            TABLE,
            settings=EngineSettings(round_length_s=100.0, plan_lead_s=lead_s),
            allocate=paired_shares if pairs else equal_shares,
            **faults,
        )
        self.engine = self.shell.engine
        self.submitted = {}
        self.lost = set()
        self.known = {}
        self.seen = 0

    def pick(self, number):
        return f"job-{number % max(len(self.submitted), 1)}"

    @precondition(lambda self: len(self.submitted) < MOST_JOBS)
    @rule(
        profile=st.sampled_from([0, 0, 0, 1, 2, 2, 3, 4, 5, 6]),
        total_steps=st.sampled_from([1.0, 150.0, 400.0, 2000.0]),
        weight=st.sampled_from([1.0, 3.0]),
        max_failures=st.integers(0, 2),
        count=st.integers(1, 3),
    )
    def submit(self, profile, total_steps, weight, max_failures, count):
        jobs = []
        for _ in range(count):
            job_id = f"job-{len(self.submitted)}"
            self.submitted[job_id] = profile
            jobs.append(
                Job(
                    job_id=job_id,
                    job_type=f"profile-{profile}",
                    total_steps=total_steps,
                    scale_factor=TABLE.profiles[profile].scale_factor,
                    arrival_s=self.shell.now,
                    weight=weight,
                    max_failures=max_failures,
                )
            )
        self.shell.tell(*(ev.JobSubmitted(job=job, profile=profile) for job in jobs))

    @rule(number=st.integers(0, 99))
    def submit_again(self, number):
        job_id = self.pick(number)
        if job_id in self.engine.jobs.number_of:
            active = len(self.engine.jobs)
            self.shell.submit(Job(job_id=job_id, job_type="profile-0", total_steps=5.0))
            assert len(self.engine.jobs) == active

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

    @rule(workers=st.sets(st.integers(0, CLUSTER.workers - 1), min_size=1, max_size=4))
    def lose_workers(self, workers):
        self.lost |= workers
        # One event for each, although a gang may lie on several of them.
        self.shell.tell(*(ev.WorkersLost(workers=(w,)) for w in sorted(workers)))

    @rule(workers=st.sets(st.integers(0, CLUSTER.workers - 1), min_size=1, max_size=6))
    def return_workers(self, workers):
        self.lost -= workers
        self.shell.tell(ev.WorkersReturned(workers=tuple(sorted(workers))))

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
    def jobs_that_can_never_run_are_refused(self):
        for job_id, profile in self.submitted.items():
            refused = self.shell.ended.get(job_id) == "job_refused"
            if profile in REFUSED:
                assert refused

    @invariant()
    def gangs_run_whole_on_one_type_and_only_pairs_share(self):
        jobs = self.engine.jobs
        for run in self.shell.executions.values():
            lease = run.lease
            assert len(lease.workers) == TABLE.profiles[lease.profile].scale_factor
            assert len(set(CLUSTER.worker_type_of[list(lease.workers)])) == 1
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
    def no_worker_idles_while_a_runnable_job_that_fits_waits(self):
        if self.engine.state.blocked or self.engine.question_open:
            return
        jobs, book = self.engine.jobs, self.engine.book
        free = np.bincount(CLUSTER.worker_type_of[book.idle()], minlength=2)
        for row in np.flatnonzero(jobs["status"] == WAITING):
            may_run = jobs["retry_at_s"][row] + self.shell.timer_delay_s <= self.shell.now
            if not may_run or int(jobs["number"][row]) in book.planned:
                continue
            profile = jobs["profile"][row]
            fits = (TABLE.throughput[profile] > 0) & (TABLE.demand[profile] <= free).all(axis=1)
            assert not fits.any(), f"row {row} waits while {free} workers are idle"

    @invariant()
    def an_open_lease_is_never_past_its_deadline_while_timers_are_on_time(self):
        if self.shell.timer_delay_s or self.engine.question_open:
            return
        for run in self.shell.executions.values():
            if not run.stopping:
                assert run.deadline_s >= self.shell.now

    def teardown(self):
        """Once faults stop, every admitted job that nobody holds completes."""
        if not hasattr(self, "shell"):
            return
        shell = self.shell
        shell.answer_delay_s = 0.0
        shell.release_delay_s = shell.timer_delay_s = 0.0
        while shell.questions:
            shell.answer()
        jobs = self.engine.jobs
        shell.tell(ev.WorkersReturned(workers=tuple(range(CLUSTER.workers))))
        for job_id in list(jobs.number_of):
            if jobs["status"][jobs.row_of(jobs.number_of[job_id])] == HELD:
                shell.tell(ev.JobReleased(job_id=job_id))
        # All the work there can be, one job at a time at the lowest throughput, and a margin.
        shell.run_until_idle(at_most_s=100_000.0)
        shell.run(until_s=shell.now + 1_000.0)
        assert not shell.executions
        for job_id in self.submitted:
            assert job_id in shell.ended


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, derandomize=True
)
