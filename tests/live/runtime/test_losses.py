"""A job that is lost again and again, and a job that ends one agent after the other."""

import pytest

from scheduler.control.facts.requests import JobAction
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.lease_life import EndReason
from simulator.world.nodes import Mishap

TWO = {"n0": ("v100",), "n1": ("v100",)}


def lose(stage, times):
    stage.world.mishaps["job"] = [Mishap(steps=0.0, end=EndReason.LOST) for _ in range(times)]


def node_of(stage, job_id="job"):
    return stage.node(stage.store.attempts(job_id)[-1].nodes[0])


async def die(stage, node):
    """The node's agent dies, and is started again."""
    node.restart_agent(crashed=True)
    await stage.wait(0.5)


def test_a_job_that_is_lost_again_and_again_waits_longer_each_time_and_says_so(live):
    async def story(stage):
        lose(stage, 100)
        await stage.job(total_steps=30.0)
        await stage.wait(60)
        # At 0, 0, 4, 12, 28 and 60 s after the start; without a wait it would be two a second.
        assert 4 <= len(stage.ends()) <= 7
        assert stage.row().failures == 0
        explanation = await stage.explanation()
        assert explanation.reason is WaitReason.BACKOFF
        losses = sum(end == "lost" for end in stage.ends())
        words = f"it was lost, or left by itself, {losses} times in a row without progress"
        assert words in explanation.message
        assert "next try in" in explanation.message
        assert stage.history("job_interrupted")[-1].data["losses"] >= 2

    live(story, engine={"retry_backoff_s": 4.0})


def test_a_single_loss_is_followed_by_the_next_attempt_at_once(live):
    async def story(stage):
        lose(stage, 1)
        await stage.job(total_steps=30.0)
        await stage.wait(1)
        assert (stage.status(), stage.ends()) == ("running", ["lost", None])

    live(story, engine={"retry_backoff_s": 60.0})


def test_a_job_that_two_agents_died_of_is_held_and_says_why(live):
    async def story(stage):
        await stage.job(total_steps=500.0)
        for _ in range(2):
            await stage.wait(2)
            node = node_of(stage)
            node.reboot()
            await stage.wait(1)
        assert stage.status() == "held"
        why = "2 agents in a row died soon after it had been started on their nodes, "
        why += f"the last one on node '{node.name}'"
        assert why in stage.row().reason
        explanation = await stage.explanation()
        assert explanation.reason is WaitReason.HELD
        assert why in explanation.message
        assert "release it" in explanation.unblocks
        assert why in stage.history("job_held")[0].data["reason"]
        assert stage.history("agent_died")[-1].figures == {"suspects": ["job"]}
        await stage.restart()
        assert why in (await stage.explanation()).message
        await stage.act(JobAction.RELEASE, "job")
        await stage.wait(15)
        assert (stage.status(), stage.row().reason) == ("running", "")

    live(story, nodes=TWO)


def test_deaths_are_counted_over_a_restart_of_the_scheduler(live):
    async def story(stage):
        await stage.job(total_steps=500.0)
        await stage.wait(2)
        node_of(stage).reboot()
        await stage.wait(1)
        await stage.restart()
        await stage.wait(2)
        node_of(stage).reboot()
        await stage.wait(1)
        assert stage.status() == "held"

    live(story, nodes=TWO)


@pytest.mark.parametrize("node_timeout_s", [12.0, 200.0])
def test_a_job_that_takes_its_machine_down_is_held_however_long_the_reboot_takes(
    live, node_timeout_s
):
    """Time during which the machine is off is no time during which the job ran."""

    async def story(stage):
        await stage.job(total_steps=5000.0)
        for _ in range(2):
            await stage.run_until(lambda: stage.status() == "running", at_most_s=600)
            await stage.wait(2)
            node = node_of(stage)
            stage.links[node.name].cut = True
            node.reboot()
            await stage.wait(90)
            stage.links[node.name].cut = False
            await stage.wait(2)
        assert stage.status() == "held"
        assert "2 agents in a row died" in stage.row().reason

    live(story, nodes=TWO, engine={"round_length_s": 300.0}, node_timeout_s=node_timeout_s)


def test_a_death_is_told_once_although_the_scheduler_restarts(live):
    async def story(stage):
        await stage.job(total_steps=500.0)
        await stage.wait(2)
        await die(stage, node_of(stage))
        for _ in range(2):
            await stage.restart()
            await stage.wait(5)
        assert len(stage.history("agent_died")) == 1

    live(story)


@pytest.mark.parametrize("why", ["stopped", "saved", "late", "never"])
def test_an_innocent_job_is_not_held(live, why):
    async def story(stage):
        await stage.job(total_steps=500.0)
        for _ in range(3):
            await stage.wait(62 if why == "late" else 3)
            node_of(stage).restart_agent(crashed=why != "stopped")
            await stage.wait(0.5)
        assert stage.status() == "running"

    def play(story):
        settings = {"engine": {"hold_after_deaths": 0}} if why == "never" else {}
        live(story, nodes=TWO, **settings)

    async def saving(stage):
        stage.world.checkpoint_every = 1.0
        await story(stage)

    play(saving if why == "saved" else story)


def test_who_is_on_a_node_with_a_guilty_job_is_suspected_once(live):
    async def story(stage):
        await stage.job("innocent", total_steps=500.0)
        await stage.job("guilty", total_steps=500.0)
        await stage.wait(2)
        for _ in range(3):
            await die(stage, stage.node("n0"))
        assert stage.status("innocent") == "running"
        assert [row.data["suspects"] for row in stage.history("agent_died")][1:] == [[], []]

    live(story, nodes={"n0": ("v100", "v100")})


def test_a_job_alone_on_a_node_whose_agent_dies_again_is_held(live):
    async def story(stage):
        await stage.job(total_steps=500.0)
        await stage.wait(2)
        for _ in range(2):
            await die(stage, stage.node("n0"))
        assert stage.status() == "held"

    live(story)


@pytest.mark.parametrize("returns", [False, True])
def test_a_job_that_a_dead_agent_was_never_told_of_is_no_suspect(live, returns):
    async def story(stage):
        node = stage.node("n0")
        stage.links["n0"].cut = True
        node.wipe()
        await stage.wait(2)
        await stage.job(total_steps=500.0)  # granted to a node without known death
        await stage.run_until(lambda: stage.status() == "running", at_most_s=30)
        if returns:
            stage.links["n0"].cut = False
            node.restart_agent(crashed=True)
        await stage.run_until(lambda: stage.history("agent_died"), at_most_s=90)
        assert stage.history("agent_died")[-1].figures == {"suspects": []}

    live(story)


def test_a_node_that_falls_silent_counts_as_a_death(live):
    async def story(stage):
        await stage.job(total_steps=500.0)
        for _ in range(2):
            await stage.wait(2)
            node = node_of(stage)
            node.wipe()
            stage.links[node.name].cut = True
            lost = len(stage.history("node_lost"))
            await stage.run_until(lambda n=lost: len(stage.history("node_lost")) > n, at_most_s=60)
            await stage.run_until(
                lambda n=node: stage.status() == "held" or node_of(stage) is not n, at_most_s=60
            )
        assert stage.status() == "held"
        assert "agents in a row died" in stage.row().reason

    live(story, nodes=TWO)
