"""Expected times: the live state, replayed; and what is said where there are none."""

from concurrent.futures import BrokenExecutor

import pytest

from scheduler.daemon import forecasts
from scheduler.daemon.forecasts import FRESH_S, SimulatedForecaster, forecast_input
from scheduler.errors import InputError
from scheduler.runtime.explaining import explain
from scheduler.testing.links import InlineExecutor


@pytest.fixture
def in_this_process(monkeypatch):
    """Let replays run at once, so that tests can put something in their place."""
    monkeypatch.setattr(forecasts, "ProcessPoolExecutor", lambda **_options: InlineExecutor())


async def times(stage, forecaster, name):
    explanation = explain(stage.state, stage.row(name))
    return await stage.do(forecaster.add_times(stage.state, explanation))


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
    monkeypatch.setattr(forecasts, "forecast", lambda question, **_options: made.append(question))

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


@pytest.mark.parametrize(
    ("error", "words"),
    [(InputError("no such policy"), "no such policy"), (BrokenExecutor(), "died")],
)
def test_what_prevents_a_forecast_is_said(live, in_this_process, monkeypatch, error, words):
    def fail(_question, **_options):
        raise error

    monkeypatch.setattr(forecasts, "forecast", fail)

    async def story(stage):
        forecaster = SimulatedForecaster(stage.clock)
        await stage.job("a", total_steps=100.0)
        await stage.wait(1)
        told = await times(stage, forecaster, "a")
        assert told.completes_s is None
        assert words in told.forecast

    live(story)


def test_jobs_that_are_held_and_workers_that_are_out_are_left_out(live):
    async def story(stage):
        await stage.job("a", total_steps=100.0)
        await stage.job("b", total_steps=100.0, held=True)
        await stage.wait(1)
        question = forecast_input(stage.state, stage.clock.now_s())
        assert [job.job_id for job in question.jobs] == ["a"]
        assert question.jobs[0].runs
        assert question.out_of_service == ()
        stage.node("n1").reboot()
        stage.remove_node("n1")
        await stage.wait(20)
        assert forecast_input(stage.state, stage.clock.now_s()).out_of_service == (1,)

    live(story, nodes={"n0": ("v100",), "n1": ("v100",)})
