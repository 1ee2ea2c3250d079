"""Launches that nodes time: in the history once, and in the engine's cost of restarts."""

import re

import pytest

from scheduler.control.facts.requests import PolicyChoice
from scheduler.operator_settings import LearningSettings
from simulator.world.overheads import Overhead

NODES = {"n0": ("v100",), "n1": ("v100",)}
FAIR = {"policy": PolicyChoice(name="max_min_fairness")}


def cost(stage, name):
    jobs = stage.state.engine.jobs
    return float(jobs["restart_s"][jobs.row_of(jobs.number_of[name])])


async def submit_four(stage):
    for node in ("n0", "n1"):
        stage.node(node).launch = (20.0, 24.0, 30.0)
    for name in "abcd":
        stage.world.silent.add(name)  # its first step is not seen
        await stage.job(name, job_type="vision", total_steps=400.0)


def test_measured_launches_are_what_a_restart_costs(live):
    async def story(stage):
        await submit_four(stage)
        await stage.job("careful", job_type="vision", total_steps=400.0, restart_s=7.0)
        assert cost(stage, "a") == 0.0
        await stage.wait(35)
        assert len(stage.history("lease_launched")) >= 3
        assert [cost(stage, name) for name in "abcd"] == [30.0] * 4
        # A job's own declaration counts.
        assert cost(stage, "careful") == 7.0
        # A job that comes later is known from the start, also one of a type never seen.
        await stage.job("e", job_type="vision")
        await stage.job("f", job_type="speech")
        assert (cost(stage, "e"), cost(stage, "f")) == (30.0, 30.0)
        problem_costs = stage.state.leases.question
        assert problem_costs is None or set(problem_costs.problem.restart_s) <= {7.0, 30.0}
        await stage.restart()
        assert cost(stage, "a") == 30.0
        assert stage.state.knowledge.launch_s("vision") == 30.0

    live(story, nodes=NODES, **FAIR)


def test_small_changes_are_not_told_and_learning_can_be_switched_off(live):
    async def story(stage):
        await submit_four(stage)
        await stage.wait(35)
        assert [cost(stage, name) for name in "abcd"] == [0.0] * 4
        assert len(stage.history("lease_launched")) >= 3

    live(story, nodes=NODES, learning=LearningSettings(learn=False), **FAIR)


def test_a_launch_is_told_once_whoever_leads(live):
    async def story(stage):
        stage.node("n0").launch = (20.0, 24.0, None)
        await stage.job(total_steps=100.0)
        await stage.wait(2)
        (line,) = stage.history("lease_launched")
        assert line.figures == {"lease": 1, "node": "n0", "image_s": 20.0, "launch_s": 24.0}
        await stage.restart()
        await stage.wait(5)
        assert len(stage.history("lease_launched")) == 1

    live(story)


def test_a_first_step_is_recorded_once_also_after_a_restart(live):
    async def story(stage):
        await stage.job(total_steps=100.0)
        await stage.wait(5)
        (line,) = stage.history("first_step")
        assert line.figures == {"lease": 1, "first_step_s": 1.0, "running_s": 0.0}
        await stage.restart()
        await stage.wait(5)
        assert len(stage.history("first_step")) == 1

    live(story)


def test_a_first_step_is_not_recorded_if_a_restart_makes_its_time_unknown(live):
    async def story(stage):
        await stage.job(total_steps=100.0)
        assert not stage.history("first_step")
        await stage.restart()
        await stage.wait(5)
        assert not stage.history("first_step")

    live(story)


def test_the_devices_stand_in_the_history_and_the_times_in_the_metrics(live):
    async def story(stage):
        stage.node("n0").launch = (2.0, 4.0, 5.5)
        stage.node("n0").devices = ("GPU-a",)
        await stage.job(total_steps=100.0)
        await stage.wait(2)
        (line,) = stage.history("lease_launched")
        assert (line.data["ready_s"], line.data["devices"]) == (5.5, ["GPU-a"])
        text = stage.service.metrics().decode()
        for phase, seconds in (("image", 2.0), ("start", 4.0), ("ready", 5.5)):
            assert f'leasehold_launch_seconds_sum{{phase="{phase}"}} {seconds}' in text

    live(story)


async def slow_starters(stage, launch_s, *, steps_per_s=10.0, **values):
    """Submit two jobs of 100 s with programs that load data first."""
    stage.world.overhead = lambda *_: Overhead(launch_s=launch_s)
    stage.world.rate = lambda *_: steps_per_s
    for name in ("first", "second"):
        await stage.job(name, job_type="slow", total_steps=1000.0, **values)


@pytest.mark.parametrize("launch_s", [5.0, 9.5, 13.0])
@pytest.mark.parametrize("figures", [{"v100": 10.0}, {}])
def test_jobs_that_load_for_as_long_as_a_round_get_done(live, launch_s, figures):
    """Without learned launch times 9.5 s of each round of 10 s were lost."""

    async def story(stage):
        await slow_starters(stage, launch_s, throughputs=figures)
        jobs = stage.state.jobs.by_id
        await stage.run_until(lambda: not jobs, at_most_s=1.5 * 2 * (100.0 + launch_s))
        assert stage.status("first") == stage.status("second") == "completed"
        assert len(stage.ends("first")) + len(stage.ends("second")) <= 12
        learned_s = stage.state.knowledge.launches_s("slow")["v100:1"]
        assert learned_s == pytest.approx(launch_s, abs=1.0)

    live(story, policy=FAIR["policy"])


def test_a_launch_is_timed_also_by_reports_that_come_seldom(live):
    async def story(stage):
        await slow_starters(stage, 20.0, steps_per_s=0.05)
        await stage.wait(50)
        (lease,) = stage.state.leases.by_id.values()
        assert (lease.steps_live, lease.launch_s) == (1.0, None)
        await stage.wait(20)
        assert lease.launch_s == pytest.approx(20.0, abs=1.0)

    live(story, policy=PolicyChoice(name="fifo"))


def test_launches_are_learned_for_each_kind_of_workers(live):
    async def story(stage):
        seconds = {("v100", 1): 4.0, ("v100", 2): 9.0, ("k80", 1): 15.0}
        stage.world.overhead = lambda _job, kind, n: Overhead(launch_s=seconds.get((kind, n), 0.0))
        for n in range(3):
            for kind, workers in seconds:
                name = f"{kind}-{workers}-{n}"
                await stage.job(
                    name, job_type="net", worker_types=(kind,), scale_factors=(workers,)
                )
        await stage.wait(120)
        learned = dict(stage.state.knowledge.launches_s("net"))
        expected = {f"{kind}:{n}": s for (kind, n), s in seconds.items()}
        assert learned == pytest.approx(expected, abs=1.1)
        await stage.job("both", job_type="net", total_steps=1000.0)
        jobs, table = stage.state.engine.jobs, stage.state.engine.table
        row = jobs.row_of(jobs.number_of["both"])
        types = [
            table.worker_types[way.demand.index(1)]
            for way in table.profiles[jobs["profile"][row]].configurations
        ]
        costs = dict(zip(types, jobs.restarts_s[row].tolist(), strict=False))
        assert costs == pytest.approx({"v100": learned["v100:1"], "k80": learned["k80:1"]})

    live(story, nodes={"n0": ("v100", "v100"), "n1": ("k80",)}, policy=PolicyChoice(name="fifo"))


def test_a_launch_that_lies_before_a_restart_of_the_service_is_not_timed(live):
    async def story(stage):
        await slow_starters(stage, 5.0)
        await stage.wait(5)
        await stage.restart()
        await stage.wait(20)
        (lease,) = stage.state.leases.by_id.values()
        assert lease.counted
        assert lease.launch_s is None

    live(story, policy=PolicyChoice(name="fifo"))


def test_people_are_told_what_launches_take(live):
    async def story(stage):
        await slow_starters(stage, 20.0, progress_file="steps")
        await stage.wait(10)
        message = (await stage.explanation("first")).message
        (so_far,) = re.findall("it has reported no step yet, ([0-9]+) s after", message)
        assert 5 <= int(so_far) <= 10  # as of the last turn
        await stage.wait(15)
        assert "; its launch took 20 s" in (await stage.explanation("first")).message
        await stage.run_until(lambda: stage.status("first") == "completed", at_most_s=100.0)
        (line,) = stage.history("lease_ended")
        assert line.data["launching_s"] == pytest.approx(20.0, abs=1.0)
        assert line.data["held_s"] == pytest.approx(120.0, abs=1.0)
        message = (await stage.explanation("first")).message
        assert "; launches took 20 of the 120 s of its leases" in message
        metrics = stage.service.metrics().decode()
        labels = 'project="default",worker_type="v100"'
        (took,) = re.findall(
            rf"leasehold_launching_worker_seconds_total{{{labels}}} (\S+)", metrics
        )
        assert float(took) == line.data["launching_s"]
        assert 'leasehold_launch_seconds_count{phase="first_step"} 1.0' in metrics

    live(story, policy=PolicyChoice(name="fifo"))


def test_a_job_that_may_report_no_steps_is_not_said_to_launch(live):
    async def story(stage):
        stage.world.silent.add("job")
        await stage.job(total_steps=100.0)
        await stage.wait(10)
        assert "step" not in (await stage.explanation()).message
        await stage.run_until(lambda: stage.status() == "completed", at_most_s=120.0)
        (line,) = stage.history("lease_ended")
        assert "launching_s" not in line.data
        assert "launches took" not in (await stage.explanation()).message

    live(story)
