"""Nodes get the images that they may soon need."""

import orjson

from scheduler.control.facts.requests import NodeAction, PolicyChoice
from scheduler.protocol.desired import desired_from_dict

NODES = {"n0": ("v100",), "n1": ("k80",)}


async def told(stage, node):
    """Return the images in a node's desired set, which says the same in both forms."""
    desired = await stage.do(stage.service.desired(node, after=(0, -1), wait_s=0.0))
    text = await stage.do(stage.service.desired_json(node, after=(0, -1), wait_s=0.0))
    assert desired_from_dict(orjson.loads(text)).images == desired.images
    return [image.name for image in desired.images]


def test_images_of_waiting_jobs_are_told_to_the_nodes_that_may_run_them(live):
    async def story(stage):
        await stage.job("first", image="team/first:1", total_steps=100.0)
        await stage.job("second", image="team/second:1", worker_types=("v100",), total_steps=100.0)
        secrets = {"image_pull_secrets": ["registry"]}
        await stage.job("third", image="team/third:1", kubernetes=secrets, total_steps=100.0)
        await stage.job("again", image="team/third:1", kubernetes=secrets, total_steps=100.0)
        await stage.job("plain", total_steps=100.0)
        await stage.job("held", image="team/held:1", held=True, total_steps=100.0)
        await stage.wait(2)
        waiting = {name for name in ("first", "second", "third") if stage.status(name) == "waiting"}
        assert "second" in waiting or "third" in waiting
        on_v100, on_k80 = await told(stage, "n0"), await told(stage, "n1")
        assert {f"team/{name}:1" for name in waiting} | {"team/third:1"} >= set(on_v100)
        assert "team/second:1" not in on_k80
        assert "team/third:1" in on_v100
        assert "team/third:1" in on_k80
        assert "team/held:1" not in on_v100 + on_k80
        desired = await stage.do(stage.service.desired("n0", after=(0, -1), wait_s=0.0))
        secrets_of = {image.name: image.pull_secrets for image in desired.images}
        assert secrets_of["team/third:1"] == ("registry",)

    live(story, nodes=NODES, prepull_images=4)


def test_a_node_hears_of_a_new_image_without_any_change_of_its_leases(live):
    async def story(stage):
        await stage.job("first", image="team/first:1", total_steps=100.0)
        await stage.wait(2)
        before = stage.state.nodes.by_name["n0"].revision
        await stage.job("second", image="team/second:1", total_steps=100.0)
        await stage.wait(2)
        assert stage.state.nodes.by_name["n0"].revision > before
        assert await told(stage, "n0") == ["team/second:1"]
        after = stage.state.nodes.by_name["n0"].revision
        await stage.wait(3)
        assert stage.state.nodes.by_name["n0"].revision == after

    live(story, engine={"round_length_s": 60.0}, prepull_images=4)


def test_planned_jobs_come_first_and_no_more_are_told_than_allowed(live):
    async def story(stage):
        for name in "abcde":
            await stage.job(name, image=f"team/{name}:1", total_steps=400.0)
        # Rounds last 10 s and are planned 4 s ahead: the next job's image is at the front then.
        stage.world.leave_s = 0.9
        for _ in range(300):
            await stage.wait(0.1, tick_s=0.1)
            if planned := list(stage.state.engine.book.planned.values()):
                break
        await stage.wait(0.2, tick_s=0.1)
        (plan,) = planned
        planned = stage.state.engine.jobs.job_of[plan.number].job_id
        names = await told(stage, "n0")
        assert names[0] == f"team/{planned}:1"
        assert len(names) == 2
        node_action = stage.service.node_action(
            "n0", NodeAction.CORDON, reason="because", actor="boss"
        )
        await stage.do(node_action)
        await stage.wait(1)
        assert await told(stage, "n0") == []

    live(story, prepull_images=2, tick_s=0.1, policy=PolicyChoice(name="max_min_fairness"))


def test_by_default_nothing_is_told(live):
    async def story(stage):
        for name in "ab":
            await stage.job(name, image=f"team/{name}:1", total_steps=400.0)
        await stage.wait(3)
        assert await told(stage, "n0") == []

    live(story)
