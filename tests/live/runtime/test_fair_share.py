"""Half-life fair share in the service: shown to people, and kept by a restart."""

import pytest

from scheduler.control.facts.requests import PolicyChoice, ProjectLimits

FOUR = {"n0": ("v100", "v100"), "n1": ("v100", "v100")}
CHOICE = PolicyChoice(name="hierarchical", parameters={"usage_half_life_s": "400"})


async def two_projects(stage):
    """Let `old` have everything for 200 s before `new` comes."""
    for i in range(4):
        await stage.job(f"old-{i}", project="old", total_steps=1e6)
    await stage.wait(200)
    for i in range(4):
        await stage.job(f"new-{i}", project="new", total_steps=1e6)
    await stage.wait(31)


def seen(stage):
    return {view.limits.project: view for view in stage.service.projects()}


@pytest.mark.parametrize("by_order", [False, True])
def test_who_had_everything_gives_way_and_a_restart_forgets_nothing(live, by_order):
    async def story(stage):
        if by_order:
            await stage.do(stage.service.set_policy(CHOICE, actor="boss"))
        await two_projects(stage)
        views = seen(stage)
        assert views["old"].usage_worker_s > 500
        assert 0 < views["new"].usage_worker_s < 150
        assert views["new"].effective_weight > 1.2
        assert views["old"].effective_weight < 0.8
        assert views["new"].running_workers > views["old"].running_workers
        (waits, *_) = [f"old-{i}" for i in range(4) if stage.status(f"old-{i}") == "waiting"]
        assert "; 'old' has had 1." in (await stage.explanation(waits)).message
        before = stage.control.state.engine.usage_s.tolist()
        await stage.restart()
        assert stage.control.state.engine.usage_s.tolist() == before
        again = seen(stage)
        assert again["old"].usage_worker_s == views["old"].usage_worker_s
        # Use changes the weight that an operator sets.
        await stage.do(
            stage.service.set_project(ProjectLimits(project="new", weight=3.0), actor="boss")
        )
        assert seen(stage)["new"].effective_weight > 3.0

    policy = PolicyChoice(name="hierarchical") if by_order else CHOICE
    live(story, nodes=FOUR, policy=policy)


def test_without_a_half_life_nothing_is_counted_or_shown(live):
    async def story(stage):
        await stage.job("one", project="old")
        await stage.wait(3)
        assert seen(stage)["old"].usage_worker_s is None
        assert seen(stage)["old"].effective_weight is None

    live(story, nodes=FOUR, policy=PolicyChoice(name="hierarchical"))
