"""What pods of others hold: counted by one for all, and read by the agent of each node."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from agent.kubernetes.node import watch as node_watch
from agent.kubernetes.node.foreign_pods import (
    COUNTED,
    SHARDS,
    PodCounter,
    count_pods,
    place_of,
    read_count,
    shard_of,
)
from agent.kubernetes.pods.pods import PodSettings
from scheduler.errors import InputError

SHARD = shard_of("n1")
MINE = f"counted-{SHARD}"


def foreign(name, *, node="n1", gpus=1, phase="Running", labels=(), uid=None):
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "others",
            "uid": uid or f"uid-{name}",
            "labels": dict(labels),
        },
        "spec": {"nodeName": node, "containers": [{"name": "x", "resources": limits}]},
        "status": {"phase": phase},
    }


def told(api, node="n1"):
    item = api.config_maps[f"counted-{shard_of(node)}"]
    return {pod: dict(held) for pod, held in read_count(item, node).items()}


def add(api, pod):
    api.pods[pod["metadata"]["name"]] = pod
    api.record("ADDED", pod)


@contextlib.asynccontextmanager
async def counting(stage, **more):
    for shard in range(SHARDS):
        if f"counted-{shard}" not in stage.api.config_maps:
            stage.api.add_config_map(f"counted-{shard}")
    counter = PodCounter(
        client=stage.client, namespace="gpus", name="counted", instance="leasehold", **more
    )
    stop = asyncio.Event()
    task = asyncio.ensure_future(count_pods(counter, stop))
    try:
        yield counter
    finally:
        stop.set()
        await task


def test_every_node_is_counted_in_one_of_the_config_maps():
    nodes = [f"node-{n}.example" for n in range(500)]
    found = {shard_of(node) for node in nodes}
    assert found == set(range(SHARDS))
    assert shard_of("n1") == shard_of("n1")


@pytest.mark.parametrize("text", ["counted", "gpus/", "/counted", "a/b/c"])
def test_a_place_that_is_none_is_named(text):
    with pytest.raises(InputError, match="NAMESPACE/NAME"):
        place_of(text)


def test_it_writes_what_pods_of_others_hold_and_keeps_up(play):
    async def scene(stage):
        add(stage.api, foreign("tenant"))
        add(stage.api, foreign("no-gpu", gpus=0))
        ours = {"app.kubernetes.io/managed-by": "leasehold-agent"}
        ours |= {"app.kubernetes.io/instance": "leasehold"}
        add(stage.api, foreign("ours", labels=ours))
        async with counting(stage) as counter:
            await stage.until(lambda: told(stage.api) == {"others/tenant": {"nvidia.com/gpu": 1}})
            add(stage.api, foreign("second", gpus=2))
            add(stage.api, foreign("elsewhere", node="n2"))
            await stage.until(lambda: "others/second" in told(stage.api))
            await stage.until(lambda: told(stage.api, "n2"))
            stage.api.status("tenant", phase="Succeeded")
            stage.api.vanish("second")
            await stage.until(lambda: told(stage.api) == {})
            assert "n1" not in counter.counted(SHARD)
        assert stage.api.config_maps[MINE]["metadata"]["annotations"][COUNTED]

    play(scene)


def test_what_somebody_else_has_written_there_is_taken_out(play):
    async def scene(stage):
        stage.api.add_config_map(MINE)
        stage.api.config_maps[MINE]["data"]["ghost"] = json.dumps({"a/b": {"nvidia.com/gpu": 1}})
        async with counting(stage, beat_s=0.1):
            await stage.until(lambda: "ghost" not in stage.api.config_maps[MINE]["data"])
            stage.api.config_maps[MINE]["data"]["n1"] = "{}"
            add(stage.api, foreign("tenant"))
            await stage.until(lambda: told(stage.api))
            stage.api.config_maps[MINE]["data"] = {}
            await stage.until(lambda: told(stage.api))

    play(scene)


def test_it_goes_on_when_a_config_map_cannot_be_written(play, failure, caplog, monkeypatch):
    monkeypatch.setattr("agent.kubernetes.node.foreign_pods._AGAIN_S", 0.05)
    caplog.set_level("INFO")

    async def scene(stage):
        add(stage.api, foreign("tenant"))
        stage.api.fault("PATCH", f"/configmaps/{MINE}", failure(403, "Forbidden", 'user "x"'), 2)
        async with counting(stage):
            await stage.until(lambda: told(stage.api))

    play(scene)
    said = [r.message for r in caplog.records if MINE in r.message]
    assert "cannot write ConfigMap gpus/" in said[0]
    assert "all is well again" in said[-1]


def test_an_agent_lets_nobody_have_what_was_counted_and_reads_no_pods_of_others(play):
    async def scene(stage):
        async with counting(stage):
            add(stage.api, foreign("tenant", gpus=3))
            await stage.until(
                lambda: set(stage.problems().values()) == {"taken by pod others/tenant"}
            )
            assert sorted(stage.problems()) == [1, 2, 3]
            stage.api.vanish("tenant")
            await stage.until(lambda: stage.problems() == {})
        asked = [
            (path, query)
            for _, path, query in stage.api.requests
            if path == "/api/v1/pods" and "spec.nodeName=n1" in query.get("fieldSelector", "")
        ]
        assert asked == [], "the agent has looked at all pods itself"

    play(scene, settings=PodSettings(foreign_pods="gpus/counted"))


def test_an_agent_says_what_is_wrong_with_the_count(play, monkeypatch):
    monkeypatch.setattr(node_watch, "OLD_S", 0.2)

    async def scene(stage):
        await stage.until(
            lambda: "there is no ConfigMap gpus/counted-" in str(stage.backend.remarks())
        )
        stage.api.add_config_map(MINE)
        await stage.until(lambda: "there is no" not in str(stage.backend.remarks()))
        stage.api.config_maps[MINE]["data"]["n1"] = "[]"
        stage.api.record("MODIFIED", stage.api.config_maps[MINE])
        await stage.until(lambda: "cannot be read" in str(stage.backend.remarks()))
        stage.api.config_maps[MINE]["data"]["n1"] = json.dumps({"a/b": {"nvidia.com/gpu": 1}})
        stage.api.record("MODIFIED", stage.api.config_maps[MINE])
        await stage.until(lambda: "a/b" in str(stage.problems()))
        await stage.until(lambda: "have not been counted for" in str(stage.backend.remarks()))
        meta = stage.api.config_maps[MINE]["metadata"]
        for beat in range(100):
            meta["annotations"] = {COUNTED: str(beat)}
            stage.api.record("MODIFIED", stage.api.config_maps[MINE])
            await asyncio.sleep(0.05)
            if "have not been counted" not in str(stage.backend.remarks()):
                return
        raise AssertionError(stage.backend.remarks())

    play(scene, settings=PodSettings(foreign_pods="gpus/counted"))


def test_an_agent_without_a_count_lets_all_of_its_workers_be_used(play):
    async def scene(stage):
        add(stage.api, foreign("tenant"))
        await asyncio.sleep(0.3)
        assert stage.problems() == {}
        assert not any(path == "/api/v1/pods" for _, path, _ in stage.api.requests)

    play(scene, settings=PodSettings(foreign_pods=""))
