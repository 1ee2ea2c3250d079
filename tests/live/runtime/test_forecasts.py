"""Expected times: the live state, replayed; and the message if there are none."""

import asyncio
import threading
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor

import pytest

from leasehold.daemon import forecasts
from leasehold.daemon.forecasts import FRESH_S, LISTED_S, SimulatedForecaster
from leasehold_testing.links import InlineExecutor
from scheduler.control.facts.requests import JobAction, PolicyChoice, ProjectLimits, Submission
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.lease_life import EndReason
from scheduler.errors import ConflictError, InputError, UnknownPolicyError
from scheduler.operator_settings import LearningSettings
from scheduler.views.explain import WaitingJobs, explain
from scheduler.views.types import ExpectedStarts
from simulator.forecast.forecast import ForecastInput, Outlook, forecast
from simulator.world.nodes import Mishap


@pytest.fixture
def in_this_process(monkeypatch):
    """Let replays run at once, so that tests can put something in their place."""
    monkeypatch.setattr(forecasts, "ProcessPoolExecutor", lambda **_options: InlineExecutor())


async def times(stage, forecaster, name):
    explanation = explain(stage.driver.view, stage.row(name), WaitingJobs(stage.driver.view))
    return await stage.do(forecaster.add_times(stage.driver.copied, explanation))


def test_a_waiting_job_is_told_when_it_starts_and_ends(live, in_this_process):
    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock)
        await stage.job("first", total_steps=8.0, throughputs={"v100": 1.0})
        await stage.wait(2)
        await stage.job("second", total_steps=5.0, throughputs={"v100": 1.0})
        await stage.wait(0.5)
        began_s = stage.store.attempts("first")[0].start_s
        running = await times(stage, forecaster, "first")
        waiting = await times(stage, forecaster, "second")
        # One worker, first come first served: the second begins when the first one is done.
        assert running.starts_s is None
        assert running.completes_s == pytest.approx(began_s + 8.0, abs=1.0)
        assert waiting.starts_s == pytest.approx(running.completes_s, abs=0.1)
        assert waiting.completes_s == pytest.approx(waiting.starts_s + 5.0, abs=0.1)
        assert "replay" in waiting.forecast
        forecaster.close()

    live(story)


def test_a_replay_answers_for_some_seconds(live, in_this_process, monkeypatch):
    made = []
    monkeypatch.setattr(
        forecasts, "forecast_packed", lambda question, **_options: made.append(question)
    )

    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock)
        await stage.job("a", total_steps=100.0)
        await stage.wait(1)
        await times(stage, forecaster, "a")
        await times(stage, forecaster, "a")
        assert len(made) == 1
        await stage.wait(FRESH_S + 1.0)
        await times(stage, forecaster, "a")
        assert len(made) == 2

    live(story)


def test_a_list_of_jobs_has_the_starts_of_the_last_replay_and_does_not_wait(live, in_this_process):
    async def story(stage):
        forecaster = stage.service._forecaster = SimulatedForecaster(stage.clock)
        await stage.job("first", total_steps=60.0, throughputs={"v100": 1.0})
        await stage.wait(2)
        await stage.job("second", total_steps=5.0, throughputs={"v100": 1.0})
        await stage.wait(0.5)

        async def replayed():
            making = forecaster._making
            await stage.do(asyncio.wait({making}))
            return forecaster._made_s

        none = ExpectedStarts()
        assert stage.service.starts(["first", "second"]) == none  # this question begins a replay
        began_s = await replayed()
        told = stage.service.starts(["first", "second", "nothing"])
        ends_s = (await stage.explanation("first")).completes_s
        assert told.start_s == {"second": pytest.approx(ends_s, abs=1.0)}  # the other one runs
        assert told.made_s == began_s
        assert stage.service.starts([]) == none
        assert forecaster._making is None
        await stage.wait(LISTED_S + 1.0)
        assert stage.service.starts(["second"]) == told  # the last one, while another is made
        assert await replayed() > began_s
        await stage.wait(40.0)
        assert stage.row("second").status != "waiting"
        assert stage.service.starts(["second"]).start_s == {}  # no time that has passed
        await replayed()
        forecaster.close()

    live(story)


def test_a_job_that_is_tried_is_told_when_it_would_start_and_then_does(live, in_this_process):
    async def story(stage):
        stage.service._forecaster = SimulatedForecaster(stage.clock)
        await stage.job("first", total_steps=8.0, throughputs={"v100": 1.0})
        await stage.wait(2)
        spec = stage.spec("second", total_steps=5.0, throughputs={"v100": 1.0})
        before = stage.store.head()
        told = await stage.do(stage.service.fit(spec, owner="ann", forecast=True))
        ends_s = (await stage.explanation("first")).completes_s
        assert told.starts_s == pytest.approx(ends_s, abs=1.0)
        assert told.completes_s == pytest.approx(told.starts_s + 5.0, abs=0.1)
        assert "replay" in told.forecast
        assert stage.store.head() == before
        assert list(stage.driver.view.jobs.by_id) == ["first"]
        plain = await stage.do(stage.service.fit(spec, owner="ann"))
        assert (plain.starts_s, plain.forecast) == (None, "")
        await stage.job("second", total_steps=5.0, throughputs={"v100": 1.0})
        await stage.wait(20)
        (attempt,) = stage.store.attempts("second")
        assert attempt.start_s == pytest.approx(told.starts_s, abs=1.5)
        stage.service._forecaster.close()

    live(story)


@pytest.mark.parametrize(
    ("error", "words"),
    [(InputError("no such policy"), "no such policy"), (BrokenExecutor(), "died")],
)
def test_a_job_is_tried_without_times_if_the_replay_fails(
    live, in_this_process, monkeypatch, error, words
):
    def fail(_question):
        raise error

    monkeypatch.setattr(forecasts, "forecast_packed", fail)

    async def story(stage):
        stage.service._forecaster = SimulatedForecaster(stage.clock)
        told = await stage.do(stage.service.fit(stage.spec(), owner="ann", forecast=True))
        assert told.fits
        assert told.starts_s is None
        assert words in told.forecast
        again = await stage.do(stage.service.fit(stage.spec(), owner="ann", forecast=True))
        assert again == told  # it is not stuck
        large = stage.spec(scale_factors=(64,))
        assert (await stage.do(stage.service.fit(large, forecast=True))).forecast == ""

    live(story)


def test_one_job_is_tried_at_a_time_and_not_for_ever(live, monkeypatch):
    gate, whole = threading.Event(), forecasts.forecast_packed

    def slow(question):
        gate.wait(60)
        return whole(question)

    monkeypatch.setattr(forecasts, "ProcessPoolExecutor", lambda **_options: ThreadPoolExecutor(1))
    monkeypatch.setattr(forecasts, "forecast_packed", slow)

    async def story(stage):
        forecaster = stage.service._forecaster = SimulatedForecaster(stage.clock, patience_s=0.01)
        spec = stage.spec(total_steps=5.0)
        first = await stage.service.fit(spec, owner="ann", forecast=True)
        assert "takes too long" in first.forecast
        second = await stage.service.fit(spec, owner="bob", forecast=True)
        assert "another job is tried" in second.forecast
        gate.set()
        while forecaster._tries_job:  # noqa: ASYNC110 - a thread of the replay ends it
            await asyncio.sleep(0.01)
        forecaster._patience_s = 60.0
        assert (await stage.service.fit(spec, owner="bob", forecast=True)).starts_s is not None
        forecaster.close()

    live(story)


def test_slow_replays_are_made_seldom_for_lists_and_old_ones_are_not_told(
    live, in_this_process, monkeypatch
):
    made, whole = [], forecasts.forecast_packed

    def counted(question):
        made.append(question)
        return whole(question)

    monkeypatch.setattr(forecasts, "forecast_packed", counted)

    async def story(stage):
        forecaster = stage.service._forecaster = SimulatedForecaster(stage.clock)
        await stage.job("first", total_steps=900.0, throughputs={"v100": 1.0})
        await stage.job("second", total_steps=5.0, throughputs={"v100": 1.0})
        await stage.wait(1)
        stage.service.starts(["second"])
        await stage.do(asyncio.wait({forecaster._making}))
        forecaster._took_s = 12.0
        await stage.wait(5 * LISTED_S)
        assert list(stage.service.starts(["second"]).start_s) == ["second"]
        assert len(made) == 1
        await stage.wait(30.0)
        stage.service.starts(["second"])
        await stage.do(asyncio.wait({forecaster._making}))
        assert len(made) == 2
        await stage.wait(4 * LISTED_S)
        assert stage.service.starts(["second"]) == ExpectedStarts()
        await stage.do(asyncio.wait({forecaster._making}))
        forecaster.close()

    live(story)


def test_a_replay_that_fails_is_not_begun_again_at_each_look(
    live, in_this_process, monkeypatch, caplog
):
    made = []

    def fail(question):
        made.append(question)
        raise RuntimeError("a fault")

    monkeypatch.setattr(forecasts, "forecast_packed", fail)

    async def story(stage):
        forecaster = stage.service._forecaster = SimulatedForecaster(stage.clock)
        await stage.job("a", total_steps=100.0)
        await stage.wait(1)
        for _ in range(3):
            stage.service.starts(["a"])
            if forecaster._making is not None:
                await stage.do(asyncio.wait({forecaster._making}))
        assert len(made) == 1
        forecaster.close()

    live(story)
    assert "a replay of the cluster failed" in caplog.text


def test_who_asks_after_a_change_is_told_what_knows_the_change(live, in_this_process):
    async def story(stage):
        forecaster = stage.service._forecaster = SimulatedForecaster(stage.clock)
        await stage.job("a", total_steps=100.0)
        await stage.job("b", total_steps=5.0, held=True)
        await stage.wait(1)
        assert (await stage.explanation("b")).starts_s is None
        made_s = forecaster._made_s
        await stage.wait(0.5)
        await stage.act(JobAction.RELEASE, "b")
        told = await stage.explanation("b")
        assert forecaster._made_s > made_s
        assert told.completes_s is not None
        made_s = forecaster._made_s
        await stage.wait(0.5)  # nodes report, no user changes anything
        await stage.explanation("b")
        assert forecaster._made_s == made_s

    live(story)


@pytest.mark.parametrize(
    ("error", "words"),
    [(InputError("no such policy"), "no such policy"), (BrokenExecutor(), "died")],
)
def test_what_prevents_a_forecast_is_said(live, in_this_process, monkeypatch, error, words):
    def fail(_question, **_options):
        raise error

    monkeypatch.setattr(forecasts, "forecast_packed", fail)

    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock)
        await stage.job("a", total_steps=100.0)
        await stage.wait(1)
        told = await times(stage, forecaster, "a")
        assert told.completes_s is None
        assert words in told.forecast

    live(story)


def test_who_asks_while_a_long_replay_goes_on_hears_that_and_later_gets_its_times(
    live, monkeypatch
):
    gate = threading.Event()
    whole = forecasts.forecast_packed

    def slow(question):
        gate.wait(60)
        return whole(question)

    monkeypatch.setattr(forecasts, "ProcessPoolExecutor", lambda **_options: ThreadPoolExecutor(1))
    monkeypatch.setattr(forecasts, "forecast_packed", slow)

    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock, patience_s=0.01)
        await stage.job("a", total_steps=100.0)
        await stage.wait(1)
        explanation = explain(stage.driver.view, stage.row("a"), WaitingJobs(stage.driver.view))
        for _ in range(2):
            told = await forecaster.add_times(stage.driver.copied, explanation)
            assert "ask again" in told.forecast
        gate.set()
        forecaster._patience_s = 60.0
        told = await forecaster.add_times(stage.driver.copied, explanation)
        assert told.completes_s == pytest.approx(stage.clock.now_s() + 99.0, abs=1.0)
        forecaster.close()

    live(story)


def test_a_forecast_after_the_deadline_is_marked(live, in_this_process):
    async def story(stage):
        stage.service._forecaster = SimulatedForecaster(stage.clock)
        for name, deadline_s in (("early", 5.0), ("late", 500.0)):
            await stage.job(name, total_steps=20.0, deadline_s=stage.clock.now_s() + deadline_s)
        await stage.wait(1)
        told = [(await stage.explanation(name)).forecast for name in ("early", "late")]
        assert told[0] == f"after its deadline, {told[1]}"
        assert told[1].startswith("by a replay")
        stage.service._forecaster.close()

    live(story, nodes={"n0": ("v100", "v100")})


def asked(stage):
    return ForecastInput(control=stage.control.copied(), now_s=stage.clock.now_s())


def test_jobs_that_are_held_and_workers_that_are_out_are_left_out(live):
    async def story(stage):
        await stage.job("a", total_steps=100.0, throughputs={"v100": 1.0})
        await stage.job("b", total_steps=100.0, throughputs={"v100": 1.0}, held=True)
        await stage.wait(1)
        told = forecast(asked(stage))
        assert told.times.keys() == {"a"}
        assert told.times["a"].start_s == 0.0
        await stage.job("c", total_steps=100.0, throughputs={"v100": 1.0})
        await stage.wait(1)
        assert forecast(asked(stage)).times["c"].start_s == 0.0
        stage.node("n1").reboot()
        stage.remove_node("n1")
        await stage.wait(30)
        # One worker is left for both, which take turns.
        assert forecast(asked(stage)).reached_s == pytest.approx(170.0, abs=30.0)

    live(story, nodes={"n0": ("v100",), "n1": ("v100",)})


def test_where_nothing_is_known_of_a_job_its_end_is_unknown_until_its_first_report(
    live, in_this_process
):
    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock)
        stage.world.rate = lambda _job, _kind, _workers, _partner: 0.25  # not the one assumed
        await stage.job("a", total_steps=100.0, throughputs={})
        began_s = stage.clock.now_s()
        await stage.wait(1)
        told = await times(stage, forecaster, "a")
        assert told.completes_s is None
        assert told.forecast.startswith("unknown: nobody knows how fast job type 'default/a' runs")
        await stage.wait(7)  # the first step has been reported
        for _ in range(4):
            told = await times(stage, forecaster, "a")
            assert told.completes_s - began_s == pytest.approx(400.0, rel=0.15)
            await stage.wait(6)
        assert told.completes_s - began_s == pytest.approx(400.0, rel=0.05)
        forecaster.close()

    live(story, learning=LearningSettings(learn=False))


def test_a_job_that_differs_from_its_type_is_forecast_by_its_own_reports(live, in_this_process):
    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock)
        stage.world.rate = lambda _job, _kind, _workers, _partner: 5.0
        await stage.job("a", total_steps=500.0, throughputs={"v100": 1.0})
        began_s = stage.clock.now_s()
        await stage.wait(10)
        told = await times(stage, forecaster, "a")
        assert told.completes_s - began_s == pytest.approx(100.0, rel=0.05)
        forecaster.close()

    live(story, learning=LearningSettings(learn=False))


def test_a_job_of_unknown_length_says_so_and_so_does_one_that_waits_for_it(live, in_this_process):
    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock)
        stage.world.silent.update({"a", "b"})
        await stage.job("a", total_steps=None, throughputs={})
        await stage.wait(1)
        await stage.job("b", total_steps=None, duration_s=30.0, throughputs={})
        await stage.wait(1)
        told = await times(stage, forecaster, "a")
        assert told.forecast == "unknown: it says neither how many steps it takes nor how long"
        told = await times(stage, forecaster, "b")
        assert (told.starts_s, told.completes_s) == (None, None)
        assert "held by a, whose end nobody knows" in told.forecast
        forecaster.close()

    live(story)


def test_a_job_that_takes_longer_than_it_said_ends_at_an_unknown_time(live, in_this_process):
    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock)
        stage.world.silent.add("a")
        stage.world.totals["a"] = 1000.0
        await stage.job("a", total_steps=None, duration_s=20.0, throughputs={})
        began_s = stage.clock.now_s()
        await stage.wait(8)
        told = await times(stage, forecaster, "a")
        assert told.completes_s - began_s == pytest.approx(20.0, abs=1.0)
        await stage.wait(15)
        told = await times(stage, forecaster, "a")
        assert told.forecast == "unknown: it takes longer than the 20 s that it said"
        await stage.wait(20)
        # Control has revised its length, and the replay begins with that one.
        (one,) = Outlook(asked(stage))._prospects
        (total,) = stage.state.engine.jobs["total_steps"].tolist()
        assert total > 20.0
        assert one.most_told == pytest.approx(0.99 * total)
        assert one.steps_done == pytest.approx(stage.state.engine.jobs["steps_done"][0])
        forecaster.close()

    live(story)


def test_what_a_preemption_leaves_of_a_job_is_what_it_has_saved(live):
    async def story(stage):
        stage.world.checkpoint_every = 3.0
        await stage.job("plain", total_steps=None, duration_s=50.0, throughputs={})
        stage.world.silent.add("plain")
        await stage.job("saves", total_steps=50.0)
        await stage.job("will", total_steps=50.0, checkpoint_dir="/checkpoints")
        await stage.wait(5)
        found = Outlook(asked(stage))._prospects
        assert {one.job.job_id: (one.saves, one.safe_steps) for one in found} == {
            "plain": (False, 0.0),
            "saves": (True, 0.0),
            "will": (True, 0.0),
        }

    live(story, nodes={"n0": ("v100",), "n1": ("v100",), "n2": ("v100",)})


def test_a_job_over_its_quota_is_told_when_it_will_be_let_in(live, in_this_process):
    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock)
        limits = ProjectLimits(project="p", max_workers=1)
        await stage.do(stage.service.set_project(limits, actor="op"))
        for name in ("first", "second"):
            await stage.job(name, total_steps=20.0, throughputs={"v100": 1.0}, project="p")
        await stage.wait(2)
        began_s = stage.store.attempts("first")[0].start_s
        told = await times(stage, forecaster, "second")
        assert told.reason is WaitReason.QUOTA
        assert told.starts_s == pytest.approx(began_s + 20.0, abs=1.0)
        assert told.completes_s == pytest.approx(began_s + 40.0, abs=1.5)
        forecaster.close()
        # And the promises are kept.
        await stage.wait(45)
        (attempt,) = stage.store.attempts("second")
        assert attempt.start_s == pytest.approx(told.starts_s, abs=1.5)
        assert attempt.ended_s == pytest.approx(told.completes_s, abs=2.0)

    live(story, nodes={"n0": ("v100",), "n1": ("v100",)})


def test_who_waits_for_the_quota_of_a_job_without_an_end_is_told_so(live, in_this_process):
    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock)
        limits = ProjectLimits(project="p", max_workers=1)
        await stage.do(stage.service.set_project(limits, actor="op"))
        await stage.job("endless", total_steps=None, throughputs={}, project="p")
        await stage.job("b", total_steps=20.0, throughputs={"v100": 1.0}, project="p")
        await stage.wait(2)
        told = await times(stage, forecaster, "b")
        assert told.reason is WaitReason.QUOTA
        assert (told.starts_s, told.completes_s) == (None, None)
        assert "held by endless, whose end nobody knows" in told.forecast
        forecaster.close()

    live(story, nodes={"n0": ("v100",), "n1": ("v100",)})


def test_a_job_is_told_when_the_one_that_it_waits_for_is_done(live, in_this_process):
    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock)
        await stage.job("first", total_steps=20.0, throughputs={"v100": 1.0})
        await stage.job(
            "second", total_steps=10.0, throughputs={"v100": 1.0}, depends_on=("first",)
        )
        await stage.wait(2)
        told = await times(stage, forecaster, "second")
        assert told.reason is WaitReason.DEPENDENCY
        first = await times(stage, forecaster, "first")
        assert told.starts_s == pytest.approx(first.completes_s, abs=0.1)
        forecaster.close()
        await stage.wait(35)
        (attempt,) = stage.store.attempts("second")
        assert attempt.start_s == pytest.approx(told.starts_s, abs=1.5)

    live(story, nodes={"n0": ("v100",), "n1": ("v100",)})


def test_a_job_that_will_run_into_its_limit_is_told_so_and_so_is_who_waits_for_it(
    live, in_this_process
):
    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock)
        spec = {"total_steps": 50.0, "throughputs": {"v100": 1.0}}
        await stage.job("long", **spec, max_run_time_s=20.0)
        await stage.job("after", **spec, depends_on=("long",))
        await stage.wait(2)
        words = {
            name: (await times(stage, forecaster, name)).forecast for name in ("long", "after")
        }
        assert words["long"].endswith("not complete: its time limit is over before it is done")
        assert words["after"].endswith("complete: a job that it depends on does not complete")
        forecaster.close()

    live(story)


def test_what_is_being_stored_is_in_no_forecast_yet(live):
    async def story(stage):
        driver, gate = stage.driver, asyncio.Event()
        commit = driver._commit

        async def slow(entry):
            await gate.wait()
            return await commit(entry)

        driver._commit = slow
        item = Submission(spec=stage.spec("a", total_steps=9.0), owner="me", job_id="a")
        asking = asyncio.ensure_future(stage.service.submit([item], actor="me"))
        for _ in range(5):
            await asyncio.sleep(0)
        turn = asyncio.ensure_future(driver.turn())
        for _ in range(5):
            await asyncio.sleep(0)
        copying = asyncio.ensure_future(driver.copied())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not copying.done()
        gate.set()
        await turn
        assert [record.job_id for record in (await copying).jobs] == ["a"]
        await asking

    live(story)


def test_a_job_that_waits_after_a_failure_is_not_forecast_to_start_before(live, in_this_process):
    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock)
        stage.world.mishaps["crash"] = [Mishap(steps=2.0, end=EndReason.FAILED)]
        await stage.job("crash", total_steps=20.0, throughputs={"v100": 1.0})
        await stage.wait(4)
        failed_s = stage.store.attempts("crash")[0].ended_s
        told = await times(stage, forecaster, "crash")
        assert told.reason is WaitReason.BACKOFF
        assert told.starts_s == pytest.approx(failed_s + 40.0, abs=0.1)
        forecaster.close()

    live(story, engine={"retry_backoff_s": 40.0})


# -- trials of policies ----------------------------------------------------------------------------


@pytest.fixture
def queue(live):
    """Return control with a long job that runs and a short one that waits, and the clock."""
    found = []

    async def story(stage):
        await stage.job("long", total_steps=1000.0, throughputs={"v100": 1.0})
        await stage.wait(2)
        await stage.job("short", total_steps=50.0, throughputs={"v100": 1.0})
        await stage.wait(0.5)
        found.extend((stage.control.copied(), stage.clock))

    live(story)
    return found


def tries(queue, *choices):
    """Return the results of trials that are asked for at once."""
    copy, clock = queue

    async def copied():
        return copy

    async def story():
        forecaster = SimulatedForecaster(clock)
        asked = (forecaster.try_policy(copied, one, time_dependent=False) for one in choices)
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(story())


def test_a_trial_of_a_policy_names_the_jobs_that_would_move(queue):
    shortest = PolicyChoice(name="shortest_job_first")
    found, refused = tries(queue, shortest, shortest)
    assert found.note == ""
    assert {one.job_id: (one.before, one.after) for one in found.changes} == {
        "long": ({"v100": 1}, {}),
        "short": ({}, {"v100": 1}),
    }
    assert isinstance(refused, ConflictError)
    assert "another policy is being tried" in str(refused)


def test_a_trial_that_takes_too_long_is_stopped_and_the_next_one_goes_on(queue, monkeypatch):
    monkeypatch.setattr(forecasts, "TRIAL_S", 0.05)
    (late,) = tries(queue, PolicyChoice(name="fifo"))
    assert "takes more than 0.05 s, and was stopped" in str(late)
    monkeypatch.setattr(forecasts, "TRIAL_S", 60.0)
    (found,) = tries(queue, PolicyChoice(name="fifo"))
    assert found.same == 1
    (wrong,) = tries(queue, PolicyChoice(name="nonsense"))
    assert isinstance(wrong, UnknownPolicyError)


def test_a_trial_goes_on_if_its_caller_leaves_and_no_other_one_begins_meanwhile(queue):
    copy, clock = queue

    async def copied():
        return copy

    async def story():
        forecaster = SimulatedForecaster(clock)
        choice = PolicyChoice(name="fifo")
        first = asyncio.ensure_future(forecaster.try_policy(copied, choice, time_dependent=False))
        await asyncio.wait({first}, timeout=0.1)
        first.cancel()
        await asyncio.wait({first})
        with pytest.raises(ConflictError, match="another policy is being tried"):
            await forecaster.try_policy(copied, choice, time_dependent=False)
        while forecaster._trial is not None:  # noqa: ASYNC110 - it tells nothing of its end
            await asyncio.sleep(0.05)
        found = await forecaster.try_policy(copied, choice, time_dependent=False)
        assert found.same == 1

    asyncio.run(story())


def test_a_trial_ends_with_the_scheduler(queue):
    copy, clock = queue

    async def copied():
        return copy

    async def story():
        forecaster = SimulatedForecaster(clock)
        choice = PolicyChoice(name="fifo")
        trial = asyncio.ensure_future(forecaster.try_policy(copied, choice, time_dependent=False))
        await asyncio.wait({trial}, timeout=0.5)
        forecaster.close()
        with pytest.raises(ConflictError, match="died"):
            await trial

    asyncio.run(story())


def test_a_service_without_replays_tries_no_policy(live):
    async def story(stage):
        with pytest.raises(UnknownPolicyError):
            await stage.service.try_policy(PolicyChoice(name="nonsense"))
        with pytest.raises(ConflictError, match="no replays"):
            await stage.service.try_policy(PolicyChoice(name="fifo"))

    live(story)
