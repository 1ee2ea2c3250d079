"""Any history of work and faults: in the end every job has completed once, and nothing twice."""

import asyncio
import contextlib
import random
import tempfile
from collections import Counter
from pathlib import Path

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leasehold_testing.faults import Fault, ShakyStore
from leasehold_testing.stage import Stage, canonical, picture
from scheduler.control.facts.requests import (
    JobAction,
    NodeAction,
    PolicyChoice,
    ProjectLimits,
    Submission,
)
from scheduler.control.jobs.submit import fit_of
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.jobs.spec import JobSpec
from scheduler.domain.lease_life import EndReason
from scheduler.engine import version
from scheduler.engine.settings import EngineSettings
from scheduler.errors import ConflictError
from scheduler.operator_settings import LearningSettings
from scheduler.protocol.desired import desired_from_dict
from scheduler.runtime.desired_sets import DesiredSets
from scheduler.runtime.driver import driver as driver_module
from scheduler.runtime.settings import RuntimeSettings
from scheduler.store.queries import HistoryQuery
from scheduler.views import state_views
from scheduler.views.explain import WaitingJobs, count_reasons, explain, reason_of
from simulator.world.nodes import Mishap, SimulatedWorld

SETTINGS = RuntimeSettings(
    engine=EngineSettings(
        round_length_s=10.0,
        plan_lead_s=3.0,
        retry_backoff_s=1.0,
        refuse_what_cannot_fit=False,
    ),
    policy=PolicyChoice(name="least_remaining_work"),
    margin_s=1.0,
    node_timeout_s=12.0,
    snapshot_entries=6,
    learning=LearningSettings(least_s=2.0),
)
NODES = {"n0": ("v100", "v100"), "n1": ("v100", "k80"), "n2": ("k80", "k80")}
SPEED = {"v100": 3.0, "k80": 1.0}
POLICIES = ("least_remaining_work", "max_min_fairness", "fifo")

VERSION = version.DECIDER

nodes = st.sampled_from(sorted(NODES))


class Play:
    """A service with three nodes, and everything that may be done to them."""

    def __init__(self):
        driver_module.COMMIT_RETRY_LEAST_S = 0.0
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.faults = []
        self.checks = 0
        store = ShakyStore(self.fault_of)
        world = SimulatedWorld(
            now_s=lambda: 0.0,
            rate=lambda _job, kind, workers, _partner: SPEED[kind] * workers,
            checkpoint_every=5.0,
            leave_s=0.5,
            term_s=0.2,
        )
        self.stage = Stage(Path(self.folder.name), SETTINGS, store=store, world=world)
        self.jobs, self.mishaps, self.cancelled, self.old = {}, {}, set(), []
        self.glance = None
        for name, types in NODES.items():
            self.stage.add_node(name, *types)
        self.do(self.stage.start())
        self.do(self.stage.settle())

    def fault_of(self, _entry):
        """Look at everything in the middle of a commit, and say what happens to it."""
        view, store = self.stage.driver.view, self.stage.store
        assert picture(view) == self.stage.published, "seen before it was committed"
        for look in (state_views.node_views, state_views.allocation_view):
            look(view)
        state_views.project_views(view, WaitingJobs(view), now_s=view.engine.now_s)
        state_views.lease_views(view, now_s=view.engine.now_s)
        glance = WaitingJobs(view)
        if self.glance is None or not self.glance.shows(view):
            self.glance = WaitingJobs(view)
        cluster = state_views.cluster_view(view, glance, now_s=view.engine.now_s)
        assert state_views.cluster_view(view, self.glance, now_s=view.engine.now_s) == cluster, (
            "out of date"
        )
        assert cluster.jobs == Counter(r.status.value for r in view.jobs.by_id.values())
        for record in view.jobs.by_id.values():
            closer = fit_of(view, record.spec).reason
            assert glance.misfit(record) == (None if closer is WaitReason.TURN else closer)
        state_views.live_jobs(view, list(self.jobs), self.glance, now_s=view.engine.now_s)
        each = [reason_of(view, record, glance) for record in view.jobs.by_id.values()]
        all_at_once = sorted(count_reasons(view, WaitingJobs(view)).elements())
        assert all_at_once == sorted(reason for reason in each if reason is not None)
        for job_id in self.jobs:
            explain(view, store.job(job_id), glance)
        for name in NODES:
            now = {"now_s": view.engine.now_s, "held_s": 0.0}
            sets = DesiredSets(lambda *_: None)
            desired = sets.of(view, name, **now)
            assert desired_from_dict(orjson.loads(sets.json_of(view, name, **now))) == desired
            for lease in desired.leases:
                assert store.attempt(lease.lease_id) is not None, "told before it was committed"
        return self.faults.pop() if self.faults else None

    def do(self, call):
        return self.loop.run_until_complete(call)

    # -- work -------------------------------------------------------------------------------------

    def submit(self, steps, gang, counted):
        job_id = f"j{len(self.jobs)}"
        spec = JobSpec(
            name=job_id,
            command=("train",),
            scale_factors=(gang,),
            total_steps=float(steps) if counted else None,
            duration_s=None if counted else float(steps),
            job_type=f"type-{steps % 3}",
            checkpoint_dir="/checkpoints",
            project="p",
            max_failures=1000,
            notice_s=0.5,
            grace_s=1.0,
        )
        self.stage.world.totals[job_id] = float(steps)
        if not counted:
            self.stage.world.silent.add(job_id)
        item = Submission(spec=spec, owner="me", job_id=job_id, client_id=job_id)
        if self.stage.running:
            self.do(self.stage.advance(self.stage.clock.now_s(), [item]))
            if self.stage.store.job(job_id) is not None:
                self.jobs[job_id] = spec

    def wait(self, seconds):
        self.do(self.stage.run(self.stage.clock.now_s() + seconds, tick_s=1.0))

    @property
    def answers(self):
        """Whether a call of the service comes back for certain."""
        return self.stage.running and not self.faults

    def act(self, job_id, action):
        (acted,) = self.do(self.stage.do(self.stage.service.act([job_id], action, actor="me")))
        return acted

    def order(self, job_id, action):
        row = self.stage.store.job(job_id)
        if not self.answers or row.status is JobStatus.COMPLETED:
            return  # a requeue would rightly let it complete again
        self.act(job_id, action)
        if action is JobAction.CANCEL:
            self.cancelled.add(job_id)

    def order_node(self, name, action):
        if self.answers and name in self.stage.state.nodes.by_name:
            service = self.stage.service
            self.do(self.stage.do(service.node_action(name, action, reason="", actor="me")))

    def switch(self, name):
        if self.answers:
            choice = PolicyChoice(name=name)
            self.do(self.stage.do(self.stage.service.set_policy(choice, actor="me")))

    def limit(self, workers):
        if self.answers:
            limits = ProjectLimits(project="p", max_workers=workers)
            self.do(self.stage.do(self.stage.service.set_project(limits, actor="me")))

    # -- faults -----------------------------------------------------------------------------------

    def cut(self, name):
        link = self.stage.links[name]
        link.cut = not link.cut
        self.do(self.stage.settle())

    def disturb_node(self, name, how):
        getattr(self.stage.node(name), how)()
        self.do(self.stage.settle())

    def break_worker(self, name, local):
        problems = self.stage.node(name).problems
        if problems.pop(local, None) is None:
            problems[local] = "broken"
        self.do(self.stage.settle())

    def repeat_a_report(self, name):
        self.old.append(self.stage.node(name).report())
        for report in self.old[-4::3] if self.answers else ():
            # What an agent said before its restart is refused while its successor reports.
            newest = self.stage.node(report.node).report().incarnation
            overtaken = (ConflictError,) if report.incarnation < newest else ()
            with contextlib.suppress(*overtaken):
                self.do(self.stage.do(self.stage.service.report(report, address="", version="")))

    def let_a_job_fail(self, job_id, steps, end):
        self.mishaps[job_id] = self.mishaps.get(job_id, 0) + (end is not EndReason.LOST)
        mishap = Mishap(steps=float(steps), end=end)
        self.stage.world.mishaps.setdefault(job_id, []).append(mishap)

    def shake(self, faults):
        self.faults += faults

    def kill_the_service(self):
        if self.stage.running:
            self.do(self.stage.crash())
        else:
            self.do(self.stage.start())
            self.do(self.stage.settle())

    def upgrade(self):
        """Kill the service, and begin again with a release that may decide otherwise."""
        if self.stage.running:
            self.do(self.stage.crash())
        version.DECIDER += 1
        store = self.stage.store
        held = {a.lease_id: (a.job_id, a.token, a.workers) for a in store.open_attempts()}
        until = {a.lease_id: a.deadline_s for a in store.open_attempts()}
        steps = {job_id: store.job(job_id).steps_done for job_id in self.jobs}
        self.do(self.stage.start())
        state = self.stage.state
        leases = [live.lease for live in state.leases.by_id.values()]
        assert {i.lease_id: (i.job_id, i.token, i.workers) for i in leases} == held
        for lease_id, live in state.leases.by_id.items():
            assert live.promised_s == until[lease_id]
            assert live.deadline_s <= until[lease_id]
        assert state.engine.newest_lease >= max(held, default=0)
        assert {job_id: store.job(job_id).steps_done for job_id in self.jobs} == steps
        self.do(self.stage.settle())

    # -- invariants ------------------------------------------------------------------------------

    def check(self):
        for job_id, spec in self.jobs.items():
            rows = self.stage.store.attempts(job_id)
            assert [row.attempt for row in rows] == list(range(1, len(rows) + 1))
            steps = [row.steps_done for row in rows if row.ended_s is not None]
            assert steps == sorted(steps)
            assert all(done <= (spec.total_steps or spec.duration_s) for done in steps)
            assert all(row.ended_s is not None for row in rows[:-1])
            job = self.stage.store.job(job_id)
            assert job.failures <= self.mishaps.get(job_id, 0), "failed without a mishap"
            assert job.status is not JobStatus.FAILED
        assert not self.stage.world.overlaps
        self.checks += 1
        if self.stage.running and self.checks % 5 == 0:
            assert canonical(self.stage.recovered()) == canonical(self.stage.state)

    def heal(self):
        """Make everything good, and see that every job comes to its end."""
        stage = self.stage
        self.faults.clear()
        if not stage.running:
            self.do(stage.start())
        for name, link in stage.links.items():
            link.cut = False
            stage.node(name).problems.clear()
        self.do(stage.settle())
        self.wait(2.0)
        for name, node in stage.state.nodes.by_name.items():
            if node.order is not None:
                self.order_node(name, NodeAction.UNCORDON)
        self.limit(None)
        for job_id in self.jobs:
            if stage.store.job(job_id).status is JobStatus.HELD:
                self.act(job_id, JobAction.RELEASE)
        self.do(stage.run_until(lambda: not stage.state.jobs.by_id, at_most_s=2000.0))
        self.check()
        engine = stage.state.engine
        assert (engine.in_service | engine.retired).all()
        assert not engine.cordoned[engine.in_service].any()
        for job_id in self.jobs:
            self.check_ended(job_id)
        assert not any(stage.world.running.values())

    def check_ended(self, job_id):
        spec, store = self.jobs[job_id], self.stage.store
        job = store.job(job_id)
        if job_id in self.cancelled and job.status is JobStatus.CANCELLED:
            return
        assert job.status is JobStatus.COMPLETED, job
        assert job.steps_done == (spec.total_steps or spec.duration_s)
        ends = [row.end_reason.value for row in store.attempts(job_id)]
        assert ends.count("completed") == 1
        assert ends[-1] == "completed"
        query = HistoryQuery(subject=job_id, kinds=("job_completed",), limit=100)
        assert len(store.history(query)) == 1

    def end(self):
        version.DECIDER = VERSION
        try:
            self.heal()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
            self.folder.cleanup()


ENDS = (EndReason.FAILED, EndReason.OOM, EndReason.LOST)
DISTURBANCES = ("restart_agent", "reboot", "wipe")


class Live(RuleBasedStateMachine):
    @initialize(jobs=st.lists(st.tuples(st.integers(3, 60), st.integers(1, 3)), min_size=2))
    def begin(self, jobs):
        self.play = Play()
        for steps, gang in jobs[:6]:
            self.play.submit(steps, gang, steps % 4 > 0)

    @rule(steps=st.integers(3, 60), gang=st.sampled_from([1, 1, 2, 3]), counted=st.booleans())
    def submit(self, steps, gang, counted):
        self.play.submit(steps, gang, counted)

    @rule(seconds=st.floats(0.3, 5.0))
    def wait_a_little(self, seconds):
        self.play.wait(seconds)

    @rule(seconds=st.floats(5.0, 20.0))
    def wait(self, seconds):
        self.play.wait(seconds)

    @precondition(lambda self: self.play.jobs)
    @rule(data=st.data(), action=st.sampled_from(JobAction))
    def order(self, data, action):
        self.play.order(data.draw(st.sampled_from(sorted(self.play.jobs))), action)

    @rule(name=nodes, action=st.sampled_from(NodeAction))
    def order_node(self, name, action):
        self.play.order_node(name, action)

    @rule(name=st.sampled_from(POLICIES))
    def switch(self, name):
        self.play.switch(name)

    @rule(workers=st.sampled_from([None, 1, 3]))
    def limit(self, workers):
        self.play.limit(workers)

    @rule(name=nodes)
    def cut(self, name):
        self.play.cut(name)

    @rule(name=nodes, how=st.sampled_from(DISTURBANCES))
    def disturb_node(self, name, how):
        self.play.disturb_node(name, how)

    @rule(name=nodes, local=st.sampled_from([0, 1]))
    def break_worker(self, name, local):
        self.play.break_worker(name, local)

    @rule(name=nodes)
    def repeat_a_report(self, name):
        self.play.repeat_a_report(name)

    @precondition(lambda self: self.play.jobs)
    @rule(data=st.data(), steps=st.integers(0, 40), end=st.sampled_from(ENDS))
    def let_a_job_fail(self, data, steps, end):
        self.play.let_a_job_fail(data.draw(st.sampled_from(sorted(self.play.jobs))), steps, end)

    @rule(faults=st.lists(st.sampled_from(Fault), min_size=1, max_size=3))
    def shake(self, faults):
        self.play.shake(faults)

    @rule()
    def kill_the_service(self):
        self.play.kill_the_service()

    @rule()
    def upgrade(self):
        self.play.upgrade()

    @invariant()
    def nothing_is_counted_twice(self):
        if hasattr(self, "play"):
            self.play.check()

    def teardown(self):
        if hasattr(self, "play"):
            self.play.end()


TestLive = Live.TestCase
TestLive.settings = settings(max_examples=12, stateful_step_count=20)


def play_at_random(seed, length=120, upgrades=0):
    """Go through a long history drawn from a seed; ``upgrades`` of about 35 steps are such."""
    draw = random.Random(seed)
    play = Play()
    for _ in range(length):
        kind = draw.choices(range(14), [8, 12, 5, 2, 1, 2, 2, 2, 1, 4, 2, 2, 2, upgrades])[0]
        name = draw.choice(sorted(NODES))
        job = draw.choice(sorted(play.jobs)) if play.jobs else None
        if kind == 0:
            play.submit(draw.randint(3, 150), draw.choice([1, 1, 2, 3]), draw.random() < 0.7)
        elif kind == 1:
            play.wait(draw.uniform(0.3, 12.0))
        elif kind == 2 and job:
            play.order(job, draw.choice(list(JobAction)))
        elif kind == 3:
            play.order_node(name, draw.choice(list(NodeAction)))
        elif kind == 4:
            play.switch(draw.choice(POLICIES))
        elif kind == 5:
            play.cut(name)
        elif kind == 6:
            play.disturb_node(name, draw.choice(DISTURBANCES))
        elif kind == 7:
            play.break_worker(name, draw.choice([0, 1]))
        elif kind == 8:
            play.repeat_a_report(name)
        elif kind == 9 and job:
            play.let_a_job_fail(job, draw.randint(0, 40), draw.choice(ENDS))
        elif kind == 10:
            play.shake([draw.choice(list(Fault)) for _ in range(draw.randint(1, 3))])
        elif kind == 11:
            play.kill_the_service()
        elif kind == 12:
            play.limit(draw.choice([None, 1, 2, 3]))
        elif kind == 13:
            play.upgrade()
        play.check()
    play.end()
    assert any(play.stage.store.attempts(job_id) for job_id in play.jobs), "nothing ran"


def seeds(*numbers):
    """Return seeds of which all but the first are for long runs."""
    return [numbers[0], *(pytest.param(seed, marks=pytest.mark.long) for seed in numbers[1:])]


@pytest.mark.parametrize("seed", seeds(0, 1, 2, 3))
def test_a_long_history_of_faults_loses_and_doubles_nothing(seed):
    play_at_random(seed)


@pytest.mark.parametrize("seed", seeds(5, 4, 6, 7, 8, 9))
def test_nor_does_one_with_upgrades(seed):
    play_at_random(seed, upgrades=6)
