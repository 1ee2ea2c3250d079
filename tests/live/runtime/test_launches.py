"""Launches that nodes time: in the history once, and in what the engine takes restarts to cost."""

from scheduler.control.requests import PolicyChoice

NODES = {"n0": ("v100",), "n1": ("v100",)}
FAIR = {"policy": PolicyChoice(name="max_min_fairness")}


def cost(stage, name):
    jobs = stage.state.engine.jobs
    return float(jobs["restart_s"][jobs.row_of(jobs.number_of[name])])


async def submit_four(stage):
    for node in ("n0", "n1"):
        stage.node(node).launch = (20.0, 24.0, 30.0)
    for name in "abcd":
        await stage.job(name, job_type="vision", total_steps=400.0)


def test_measured_launches_are_what_a_restart_costs(live):
    async def story(stage):
        await submit_four(stage)
        await stage.job("careful", job_type="vision", total_steps=400.0, restart_s=7.0)
        assert cost(stage, "a") == 0.0
        await stage.wait(35)
        assert len(stage.history("lease_launched")) >= 3
        assert [cost(stage, name) for name in "abcd"] == [30.0] * 4
        # What a job says of itself stands.
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

    live(story, nodes=NODES, learn=False, **FAIR)


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
