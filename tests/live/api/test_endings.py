"""What goes on ends with the token that it was asked for with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

#: A path that goes on, and what ``Accept`` says.
STREAMS = [
    ("/v1/events", "text/event-stream"),
    ("/v1/jobs/{job}/log?follow=true", "application/x-ndjson"),
    ("/v1/jobs/{job}/log?follow=true", "text/plain"),
]
QUICK = {"token_check_s": 0.01, "heartbeat_s": 0.05}


async def _ended(stream: Any) -> None:
    await asyncio.wait_for(stream.rest(), 30)
    await asyncio.wait_for(stream.task, 30)


async def _until(condition: Callable[[], Any]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to pass")


@pytest.mark.parametrize(("path", "accept"), STREAMS)
@pytest.mark.parametrize("how", ["revoked elsewhere", "expired"])
def test_a_stream_ends_soon_after_its_token(
    serve: Callable[..., Any], path: str, accept: str, how: str
) -> None:
    daemon = serve(**QUICK)
    job = daemon.caller("user").submit()
    daemon.service.run(job)
    expires_s = daemon.clock() + 100.0 if how == "expired" else None
    secret = daemon.secret("user", subject="eve", expires_s=expires_s)
    other = daemon.secret("user", subject="ann")

    async def scenario() -> None:
        # By headers of their own: the fixture's names have no place for '-'.
        eve = daemon.stream(path.format(job=job), Accept=accept, Authorization=f"Bearer {secret}")
        ann = daemon.stream(path.format(job=job), Accept=accept, Authorization=f"Bearer {other}")
        if accept != "text/plain":  # which says nothing where there is nothing
            await eve.piece()
        await _until(lambda: len(daemon.app.state.context.streams) == 2)
        if how == "expired":
            daemon.clock.seconds += 101.0
        else:
            # Past the interface, as another process would do it.
            (row,) = [r for r in daemon.service.store.tokens() if r.subject == "eve"]
            daemon.service.store.revoke_token(row.token_id, now_s=daemon.clock())
            daemon.clock.seconds += 4.0  # the last reading is too old by then
        await _ended(eve)
        assert not ann.task.done()
        await ann.leave()

    daemon.run(scenario())
    assert not daemon.app.state.context.streams


def test_an_agent_that_waits_is_told_that_its_token_has_ended(serve: Callable[..., Any]) -> None:
    daemon = serve(**QUICK)
    secret = daemon.secret("agent", subject="alpha")

    async def scenario() -> None:
        now = daemon.bearer(secret)
        first = await now._request("GET", "/v1/agent/desired")
        asked = first.json()
        waiting = asyncio.create_task(
            now._request(
                "GET",
                "/v1/agent/desired",
                params={"term": asked["term"], "revision": asked["revision"], "wait_s": 60},
            )
        )
        await _until(lambda: daemon.app.state.context.waiting)
        (row,) = daemon.service.store.tokens()
        daemon.service.store.revoke_token(row.token_id, now_s=daemon.clock())
        daemon.clock.seconds += 4.0
        answer = await asyncio.wait_for(waiting, 30)
        assert answer.status_code == 401

    daemon.run(scenario())


def test_one_token_reads_so_many_streams_and_no_more(serve: Callable[..., Any]) -> None:
    daemon = serve(max_streams=2, **QUICK)
    eve, ann = (f"Bearer {daemon.secret('user', subject=name)}" for name in ("eve", "ann"))
    accept = "text/event-stream"

    async def scenario() -> None:
        streams = [daemon.stream("/v1/events", Accept=accept, Authorization=eve) for _ in range(2)]
        for one in streams:
            await one.piece()
        refused = daemon.stream("/v1/events", Accept=accept, Authorization=eve)
        await _ended(refused)
        assert refused.status == 429
        assert "2 streams are read with the token of 'eve'" in (await _again(daemon, eve))
        other = daemon.stream("/v1/events", Accept=accept, Authorization=ann)
        await other.piece()
        await streams.pop().leave()
        again = daemon.stream("/v1/events", Accept=accept, Authorization=eve)
        await again.piece()
        for one in (*streams, other, again):
            await one.leave()

    daemon.run(scenario())


async def _again(daemon: Any, authorization: str) -> str:
    caller = daemon.client
    caller.headers = {"Authorization": authorization, "Accept": "text/event-stream"}
    answer = await caller._request("GET", "/v1/events")
    return str(answer.json()["detail"])
