"""Turns: committed once in spite of faults of the database, and performed only then."""

import asyncio
import logging
import re
import time
from functools import partial

import pytest

from leasehold_testing.faults import Fault
from leasehold_testing.inline_solver import InlineSolver
from leasehold_testing.work import work
from policies.answering import PolicyAnswerer
from scheduler.control.facts.facts import ReservationDeleted, ReservationMade
from scheduler.control.facts.requests import (
    JobAction,
    NodeAction,
    PolicyChoice,
    ProjectLimits,
    Submission,
)
from scheduler.domain.facts import events as ev
from scheduler.domain.reservation import Reservation
from scheduler.errors import (
    NotLeadingError,
    ParameterError,
    SolveError,
    StaleLeaderError,
    SupersededError,
    UnknownPolicyError,
)
from scheduler.operator_settings import LearningSettings
from scheduler.runtime.driver.driver import CALM_BEFORE_S, PATIENT_PER_TURN
from scheduler.views.explain import WaitingJobs
from scheduler.views.metrics import Metrics
from scheduler.views.state_views import update_gauges


@pytest.mark.parametrize("fault", [Fault.AWAY_BEFORE, Fault.AWAY_AFTER])
def test_a_commit_that_fails_is_tried_again_and_happens_once(live, fault):
    async def story(stage):
        faults = [None, fault, fault, fault]
        stage.store.fault_of = lambda _entry: faults.pop() if faults else None
        await stage.job()
        assert stage.status() == "running"
        await stage.wait(8)
        assert stage.status() == "completed"
        assert stage.kinds("job").count("job_submitted") == 1
        assert stage.kinds("job").count("lease_granted") == 1

    live(story)


def test_nobody_is_told_of_a_lease_before_it_is_committed(live):
    async def story(stage):
        seen = []

        def fault_of(entry):
            granted = [row.lease_id for row in entry.projections.attempts if row.ended_s is None]
            if granted:
                seen.append((granted, [v.lease_id for v in stage.service.leases()]))

        stage.store.fault_of = fault_of
        await stage.job()
        assert seen == [([1], [])]

    live(story)


def test_a_leader_that_was_replaced_stops_and_its_callers_are_sent_away(live):
    async def story(stage):
        stage.store.acquire_leadership("another", now_s=stage.clock.now_s() + 2e9, ttl_s=10.0)
        driver = stage.driver
        call = asyncio.ensure_future(
            stage.service.submit([Submission(spec=stage.spec(), owner="me")], actor="me")
        )
        late = asyncio.ensure_future(
            driver.tell(work(lambda turn: turn.record_event("x", "y", "z")))
        )
        await asyncio.sleep(0)
        with pytest.raises(StaleLeaderError):
            await asyncio.wait_for(driver.run(), 60.0)
        for waiting in (call, late):
            with pytest.raises(NotLeadingError):
                await waiting
        with pytest.raises(NotLeadingError):
            await driver.tell(work(lambda _turn: None))
        await stage.crash()
        assert not stage.store.job("job")

    live(story)


def test_a_piece_of_work_that_fails_fails_for_its_caller_alone(live):
    async def story(stage):
        def wrong(_turn):
            raise ParameterError("wrong")

        bad = asyncio.ensure_future(stage.driver.tell(work(wrong)))
        good = asyncio.ensure_future(stage.driver.tell(work(lambda turn: turn.now_s)))
        await stage.settle()
        with pytest.raises(ParameterError, match="wrong"):
            await bad
        assert await good == stage.clock.now_s()

    live(story)


def test_a_step_nobody_waits_for_is_logged_when_it_fails(live, caplog):
    async def story(stage):
        def wrong(_turn):
            raise ParameterError("wrong")

        stage.driver.soon(work(wrong))
        await stage.settle()
        assert "a step of the scheduler failed" in caplog.text

    with caplog.at_level(logging.ERROR):
        live(story)


class Moody(InlineSolver):
    """Answers as a test sets."""

    def __init__(self):
        super().__init__(PolicyAnswerer())
        self.moods = []

    async def solve(self, policy, problem):
        mood = self.moods.pop() if self.moods else None
        if mood is not None:
            raise mood
        return await super().solve(policy, problem)


def test_where_the_policy_fails_the_last_good_allocation_stays(live):
    async def story(stage):
        await stage.job("a", total_steps=30.0)
        moody = stage.driver._solver = Moody()
        moody.moods = [SolveError("no answer"), SupersededError("newer")]
        await stage.job("b", total_steps=8.0)  # its question is superseded, so to say
        assert stage.driver.control.state.engine.question_open
        await stage.job("c", total_steps=8.0)  # its question fails
        assert not stage.driver.control.state.engine.question_open
        assert stage.service.policy().last_failure == "no answer"
        assert [row.kind for row in stage.history("allocation_failed")] == ["allocation_failed"]
        assert stage.status("a") == "running"
        await stage.wait(60)
        assert [stage.status(name) for name in "abc"] == ["completed"] * 3
        assert stage.service.policy().last_failure == ""

    live(story)


def test_an_answer_that_comes_too_late_is_dropped(live):
    async def story(stage):
        await stage.job("a", total_steps=30.0)
        question = stage.state.leases.question
        assert question is None
        asked = []

        class Slow(InlineSolver):
            async def solve(self, policy, problem):
                gate = asyncio.Event()
                asked.append(gate)
                await gate.wait()
                return await super().solve(policy, problem)

        stage.driver._solver = Slow(PolicyAnswerer())
        await stage.job("b")
        await stage.job("c")
        assert len(asked) == 2
        sequence = stage.store.head().sequence
        asked[0].set()
        await stage.settle()
        assert stage.store.head().sequence == sequence
        asked[1].set()
        await stage.settle()
        assert stage.store.head().sequence > sequence
        assert stage.service.policy().last_solve_s is not None

    live(story)


def test_each_planned_round_tells_how_good_it_is(live):
    async def story(stage):
        await stage.job("a", total_steps=40.0)
        await stage.job("b", total_steps=40.0)
        assert stage.service.policy().last_round is None
        await stage.wait(15)
        last = stage.service.policy().last_round
        assert last.gap == 0.0
        assert last.fluid_gap <= 0.001
        assert last.candidates > 0
        metrics = Metrics(process=False)
        view = stage.driver.view
        update_gauges(view, metrics, WaitingJobs(view), now_s=stage.clock.now_s())
        assert 'leasehold_round_gap{bound="whole"} 0.0' in metrics.render().decode()

    live(story, engine={"behind_rounds": 4.0, "ahead_rounds": 1.0})


def test_the_policy_is_switched_without_a_restart_and_the_choice_is_kept(live):
    async def story(stage):
        await stage.job("a", total_steps=40.0)
        await stage.job("b", total_steps=40.0)
        choice = PolicyChoice(name="max_min_fairness")
        view = await stage.do(stage.service.set_policy(choice, actor="boss"))
        assert (view.name, view.actor) == ("max_min_fairness", "boss")
        await stage.wait(45)
        assert len(stage.ends("a")) > 1
        assert len(stage.ends("b")) > 1
        await stage.restart()
        assert stage.service.policy().name == "max_min_fairness"
        with pytest.raises(UnknownPolicyError, match="no policy is named"):
            await stage.do(stage.service.set_policy(PolicyChoice(name="x"), actor="boss"))
        wrong = PolicyChoice(name="max_min_fairness", parameters={"x": "1"})
        with pytest.raises(ParameterError):
            await stage.do(stage.service.set_policy(wrong, actor="boss"))
        (line,) = stage.history("policy_changed")
        assert (line.data["before"], line.actor) == ("fifo", "boss")

    live(story)


def test_switching_heterogeneity_or_sharing_makes_another_table(live):
    async def story(stage):
        await stage.job(throughputs={"v100": 4.0, "k80": 1.0}, total_steps=90.0)
        table = stage.state.engine.table
        assert sorted(table.throughput[0].tolist()) == pytest.approx([1.0, 4.0])
        choice = PolicyChoice(name="fifo", agnostic=True)
        await stage.do(stage.service.set_policy(choice, actor="boss"))
        await stage.wait(1)
        rates = stage.state.engine.table.throughput[0].tolist()
        assert rates[0] == rates[1]
        assert stage.service.policy().agnostic

    live(story, nodes={"n0": ("v100",), "n1": ("k80",)})


def test_a_policy_whose_answers_age_is_asked_every_round_from_the_start_on(live):
    async def story(stage):
        assert stage.state.engine.time_dependent
        await stage.job(total_steps=90.0)
        before = stage.state.engine.generation
        await stage.wait(30)
        assert stage.state.engine.generation >= before + 3

    live(story, policy=PolicyChoice(name="finish_time_fairness"))


def test_another_configured_policy_is_asked_at_the_next_start(live):
    async def story(stage):
        from dataclasses import replace

        await stage.job(total_steps=90.0)
        generation = stage.state.engine.generation
        await stage.restart()
        assert stage.state.engine.generation == generation  # nothing is asked again
        stage.settings = replace(stage.settings, policy=PolicyChoice(name="finish_time_fairness"))
        await stage.restart()
        assert stage.state.engine.generation == generation + 1
        assert stage.state.engine.time_dependent

    live(story)


def test_throughputs_can_be_declared_for_types_that_run(live):
    async def story(stage):
        await stage.job(total_steps=90.0)
        figures = [("default/job", 1, "v100", 7.0), ("other", 2, "k80", 1.0)]
        pairs = [(("default/job", 1), ("other", 1), "k80", (0.9, 0.5))]
        declare = partial(stage.service.declare_throughputs, figures, pairs=pairs, actor="boss")
        assert await stage.do(declare()) == 3
        assert await stage.do(declare()) == 0
        await stage.wait(1)
        assert stage.state.engine.table.throughput.max() == pytest.approx(7.0)
        assert len(stage.history("throughputs_declared")) == 1
        await stage.restart()
        assert any(view.job_type == "other" for view in stage.service.throughputs())
        assert [pair.part for pair in stage.service.sharing()] == [0.9]

    live(story, learning=LearningSettings(learn=False))


def test_timers_are_told_last_and_ends_in_the_simulators_order():
    from scheduler.control.state.transaction import Transaction
    from scheduler.domain.lease_life import EndReason

    def end(lease_id, reason):
        return ev.LeaseEnded(lease_id=lease_id, reason=reason, steps_done=0.0)

    turn = Transaction(now_s=0.0)
    turn.emit(
        ev.TimerFired(timer="plan"),
        end(3, EndReason.RELEASED),
        ev.JobHeld(job_id="a"),
        end(5, EndReason.COMPLETED),
        end(2, EndReason.LOST),
        ev.JobReleased(job_id="a"),
    )
    assert [getattr(event, "lease_id", type(event).__name__) for event in turn.ordered()] == [
        5,
        2,
        3,
        "JobHeld",
        "JobReleased",
        "TimerFired",
    ]


def test_reports_wait_for_later_turns_where_there_are_many_and_people_do_not(live):
    async def story(stage):
        driver, order = stage.driver, []
        reports = [
            asyncio.ensure_future(
                driver.tell(work(lambda _turn, n=n: order.append(n)), patient=True)
            )
            for n in range(PATIENT_PER_TURN + 1)
        ]
        person = asyncio.ensure_future(driver.tell(work(lambda _turn: order.append("person"))))
        await asyncio.sleep(0)
        assert driver.pending
        await driver.turn()
        await asyncio.gather(person, *reports[:-1])
        assert not reports[-1].done()
        assert driver.pending
        await driver.turn()
        await reports[-1]
        assert order == ["person", *range(PATIENT_PER_TURN + 1)]

    live(story)


def test_others_get_a_word_in_while_a_turn_takes_much_work_in(live, monkeypatch):
    monkeypatch.setattr("scheduler.runtime.driver.driver.FACTS_SLICE_S", -1.0)

    async def story(stage):
        seen = []
        works = [asyncio.ensure_future(stage.driver.tell(work(seen.append))) for _ in range(3)]
        await asyncio.sleep(0)
        turn = asyncio.ensure_future(stage.driver.turn())
        while not turn.done():
            seen.append("other")
            await asyncio.sleep(0)
        await asyncio.gather(turn, *works)
        assert seen.index("other", 1) < len(seen) - 1

    live(story)


def test_a_turn_that_is_ended_while_it_takes_work_in_sends_everybody_away(live, monkeypatch):
    monkeypatch.setattr("scheduler.runtime.driver.driver.FACTS_SLICE_S", -1.0)

    async def story(stage):
        works = [asyncio.ensure_future(stage.driver.tell(work(lambda _: None))) for _ in range(3)]
        await asyncio.sleep(0)
        turn = asyncio.ensure_future(stage.driver.turn())
        await asyncio.sleep(0)
        turn.cancel()
        ends = await asyncio.gather(turn, *works, return_exceptions=True)
        assert [type(end) for end in ends[1:]] == [NotLeadingError] * 3

    live(story)


class ByFactsOnly:
    """Control as a shell may use it; any other use fails."""

    _ALLOWED = frozenset(
        {"transaction", "take", "decide", "publish", "snapshot"}
        | {"view", "question", "asked", "next_due_s", "round_due_s"}
    )

    def __init__(self, control):
        self._control = control

    def __getattr__(self, name):
        assert name in self._ALLOWED, f"the shell asks control for '{name}'"
        return getattr(self._control, name)


def test_the_daemon_changes_control_by_facts_only(live):
    async def story(stage):
        stage.check = False  # the stage itself looks deeper
        stage.driver.control = ByFactsOnly(stage.driver.control)
        await stage.job("a", total_steps=5.0)
        await stage.job("b", total_steps=500.0, depends_on=("a",))
        service = stage.service
        await stage.wait(20)
        await stage.do(service.act(["b"], JobAction.HOLD, actor="me"))
        await stage.do(service.node_action("n0", NodeAction.CORDON, reason="mend", actor="op"))
        await stage.do(service.set_policy(PolicyChoice(name="fifo"), actor="op"))
        await stage.do(service.set_project(ProjectLimits(project="p", max_jobs=1), actor="op"))
        assert service.cluster().jobs == {"held": 1}
        assert service.policy().name == "fifo"
        assert service.nodes()[0].state == "cordoned"
        await stage.do(service.explain(stage.row("b")))
        stage.driver.write_snapshot_soon()
        await stage.wait(5)

    live(story)


def test_a_refusal_waits_for_the_commit_of_what_it_tells(live):
    async def story(stage):
        seen = []
        rule = Reservation(
            name="r", worker_type="v100", workers=1, from_s=1e10, until_s=2e10, project="p"
        )

        def fault_of(entry):
            if any(row.key == "reservation/r" for row in entry.projections.settings):
                seen.append([answer.done() for _, answer in stage.driver._in_turn][:3])

        stage.store.fault_of = fault_of
        made = ReservationMade(reservation=rule, actor="me")
        lost = ReservationDeleted(name="none", actor="me")
        calls = [asyncio.ensure_future(stage.driver.tell(fact)) for fact in (lost, made, made)]
        await stage.wait(1)
        # Only the first has no more than the stored state before.
        assert seen == [[True, False, False]]
        assert calls[1].exception() is None
        for call, said in ((calls[0], "there is no"), (calls[2], "exists already")):
            assert said in str(call.exception())

    live(story)


@pytest.mark.parametrize("patience_s", [60.0, 0.0])
def test_a_reader_waits_while_a_new_round_is_stored_but_not_for_long(live, monkeypatch, patience_s):
    monkeypatch.setattr("scheduler.runtime.service.CALM_S", patience_s)

    async def story(stage):
        readers, waited = [], []

        def fault_of(entry):
            if not any(row.ended_s is None for row in entry.projections.attempts):
                return None
            readers[:] = readers or [asyncio.ensure_future(stage.service.until_calm())]
            waited.append(not readers[0].done())
            away = len(waited) < 4 if patience_s else waited[-1]
            return Fault.AWAY_BEFORE if away else None

        stage.store.fault_of = fault_of
        await stage.job()
        await readers[0]
        assert len(waited) >= 4 if patience_s else not waited[-1]
        assert waited[:4] == [True] * 4 if patience_s else waited[0]

    live(story)


def test_a_reader_does_not_wait_for_other_turns(live, monkeypatch):
    monkeypatch.setattr("scheduler.runtime.service.CALM_S", 60.0)

    async def story(stage):
        readers = []

        def fault_of(_entry):
            readers[:] = readers or [asyncio.ensure_future(stage.service.until_calm())]
            return None if readers[0].done() else Fault.AWAY_BEFORE

        stage.store.fault_of = fault_of
        call = stage.driver.tell(work(lambda turn: turn.record_event("x", "y", "z")))
        await asyncio.wait_for(stage.do(call), 30.0)
        assert readers[0].done()

    live(story)


def test_a_reader_waits_from_shortly_before_a_round_until_it_is_stored(live, monkeypatch):
    monkeypatch.setattr("scheduler.runtime.service.CALM_S", 60.0)

    async def story(stage):
        await stage.job(total_steps=1e6)
        due_s, number = stage.control.round_due_s, stage.state.engine.round_number
        await stage.run(due_s - CALM_BEFORE_S - 0.1)
        await stage.do(stage.service.until_calm())
        stage.clock.advance(due_s - CALM_BEFORE_S / 2)
        reader = asyncio.ensure_future(stage.service.until_calm())
        await stage.do(stage.driver.tell(work(lambda turn: turn.record_event("x", "y", "z"))))
        assert not reader.done(), "another turn lets no reader go on"
        await stage.advance(due_s)
        await reader
        assert stage.state.engine.round_number == number + 1

    live(story)


def sums_of_rounds(stage):
    """Return the seconds that rounds took so far, and their waits."""
    found = stage.service.metrics().decode()
    return [
        float(re.search(rf"leasehold_round_{name}_sum (.*)", found)[1])
        for name in ("seconds", "wait_seconds")
    ]


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_round_that_is_planned_late_took_from_when_it_could_be_planned(live, is_asked):
    async def story(stage):
        await stage.job(total_steps=1e6)
        stage.driver._metrics.clock = lambda: 0.0
        before = sums_of_rounds(stage)
        number = stage.state.engine.round_number
        stage.clock.advance(stage.control.round_due_s + 5.0)
        if is_asked:  # the policy answers at the same moment, so the round is not late
            await stage.job("other", total_steps=1e6)
        await stage.settle()
        assert stage.state.engine.round_number == number + 1
        late_s = [after - s for after, s in zip(sums_of_rounds(stage), before, strict=True)]
        assert late_s == pytest.approx([0.0 if is_asked else 5.0] * 2, abs=0.1)

    live(story)


def test_the_wait_of_a_round_is_that_for_its_commit(live):
    async def story(stage):
        clock_s = [0.0]

        def fault_of(_entry):
            clock_s[0] += 5.0

        stage.store.fault_of = fault_of
        stage.driver._metrics.clock = lambda: clock_s[0]
        decide = stage.control.decide

        def slowly(transaction):
            began_s = time.thread_time()
            while time.thread_time() < began_s + 0.01:
                pass
            clock_s[0] += time.thread_time() - began_s
            return decide(transaction)

        stage.control.decide = slowly
        await stage.job()
        turn_s, wait_s = sums_of_rounds(stage)
        assert turn_s > 5.009
        assert wait_s == pytest.approx(5.0, abs=0.1)

    live(story)
