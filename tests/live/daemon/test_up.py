"""Daemon and agent in one process, seen from within."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from leasehold.cli.local.up import next_steps
from leasehold.daemon.agent import TOKEN_FILE
from leasehold.daemon.up import UpOptions, ensure_agent_token, run_up
from leasehold_testing.memory_store import MemoryStore
from scheduler.errors import ClusterError, InputError


def test_the_node_is_there_soon_after_the_start_and_leaves_nothing_behind(make_config, caplog):
    async def scenario():
        stop, said = asyncio.Event(), asyncio.get_running_loop().create_future()
        options = UpOptions(workers=("v100:2", "t4:1"), node="laptop")
        task = asyncio.create_task(
            run_up(make_config(), options, stop=stop, started=said.set_result)
        )
        running = await asyncio.wait_for(said, 60)
        headers = {"Authorization": f"Bearer {running.admin_token_file.read_text().strip()}"}
        async with httpx.AsyncClient(base_url=running.url, headers=headers) as client:
            for _ in range(600):
                answer = await client.get("/v1/nodes")
                nodes = answer.json().get("nodes", [])
                if nodes and nodes[0]["state"] == "ready":
                    break
                await asyncio.sleep(0.05)
            assert [node["name"] for node in nodes] == ["laptop"]
            types = [worker["worker_type"] for worker in nodes[0]["workers"]]
            assert types == ["v100", "v100", "t4"]
        stop.set()
        await task

    asyncio.run(scenario())
    # Its agent asks once the scheduler can answer.
    assert not [line for line in caplog.messages if "no good answer" in line]


def test_a_daemon_that_cannot_start_ends_it(make_config, tmp_path):
    (tmp_path / "file").touch()
    config = make_config(state_dir=tmp_path / "file")
    with pytest.raises(InputError, match="cannot be used"):
        asyncio.run(run_up(config, UpOptions(workers=("v100:1",)), stop=asyncio.Event()))


def test_workers_are_looked_for_before_anything_is_started(make_config, tmp_path):
    config = make_config()
    with pytest.raises(ClusterError):
        asyncio.run(run_up(config, UpOptions(workers=("v100",)), stop=asyncio.Event()))
    assert not (tmp_path / "state").exists()


def test_the_agents_token_is_made_once_and_again_when_it_is_no_good(tmp_path):
    store = MemoryStore()
    file = tmp_path / TOKEN_FILE
    ensure_agent_token(store, tmp_path, "laptop", now_s=1.0)
    first = file.read_text()
    ensure_agent_token(store, tmp_path, "laptop", now_s=2.0)
    assert file.read_text() == first
    (row,) = store.tokens()
    assert (row.role, row.subject) == ("agent", "laptop")
    store.revoke_token(row.token_id, now_s=3.0)
    ensure_agent_token(store, tmp_path, "laptop", now_s=4.0)
    second = file.read_text()
    assert second != first
    ensure_agent_token(store, tmp_path, "other", now_s=5.0)
    assert file.read_text() != second
    assert len(store.tokens()) == 3


def test_usual_places_need_not_be_said(monkeypatch, make_config, daemon):
    async def scenario():
        async with daemon(make_config()) as (running, _):
            return running

    running = asyncio.run(scenario())
    assert "export LEASEHOLD_SERVER" in next_steps(running)
    assert "export LEASEHOLD_STATE_DIR" in next_steps(running)
    monkeypatch.setenv("LEASEHOLD_STATE_DIR", str(running.state_dir))
    assert "export LEASEHOLD_STATE_DIR" not in next_steps(running)
