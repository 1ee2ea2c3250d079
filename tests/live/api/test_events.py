"""The history as pages and as a stream."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import api
import leasehold.daemon
import scheduler
from api.auth.roles import ANONYMOUS
from api.jobs.conversions import event_answer
from scheduler.control.facts.requests import JobAction, NodeAction
from scheduler.control.projects.budgets import TOLD
from scheduler.domain.rows import HistoryRow
from scheduler.engine.limits.reservations import RELEASED
from scheduler.views.history_kinds import EventKind

SSE = "text/event-stream"


def parse(raw: bytes) -> list[dict[str, Any]]:
    """Read server-sent events, without comments."""
    events = []
    for block in raw.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if fields:
            events.append(fields | {"data": json.loads(fields["data"])})
    return events


def auth(caller: Any) -> dict[str, str]:
    return {"Authorization": caller.headers["Authorization"], "Accept": SSE}


def test_pages_are_filtered_and_can_be_resumed(daemon: Any) -> None:
    user = daemon.caller("user", subject="ann")
    first, second = user.submit(), user.submit()
    daemon.service.run(second)
    daemon.caller("operator").post("/v1/nodes/alpha/cordon", json={"reason": "fan"})
    everything = user.get("/v1/events").json()
    assert [e["kind"] for e in everything["events"]] == [
        "job_submitted",
        "job_submitted",
        "lease_granted",
        "node_cordon",
    ]
    assert everything["last_event_id"] == 4
    assert everything["events"][3]["data"] == {"reason": "fan"}
    for query, ids in {
        "subject_kind=node": [4],
        f"subject={first}": [1],
        "kind=job_submitted&kind=node_cordon": [1, 2, 4],
        "after=2": [3, 4],
        "after=1&before=4": [2, 3],
        "descending=true&limit=2": [4, 3],
        "project=default": [1, 2, 3],
    }.items():
        page = user.get(f"/v1/events?{query}").json()
        assert [e["event_id"] for e in page["events"]] == ids, query
    assert user.get("/v1/events?after=4").json() == {"events": [], "last_event_id": 4}


def test_a_stream_begins_where_it_broke_off_and_goes_on(daemon: Any) -> None:
    user = daemon.caller("user")

    async def scenario() -> tuple[list[Any], list[Any]]:
        submit = {"json": {"name": "a", "command": ["b"]}}
        for _ in range(3):
            await user._request("POST", "/v1/jobs", **submit)
        stream = daemon.stream("/v1/events", **auth(user), Last_Event_ID="1")
        assert await stream.piece() == b": ping\n\n", "the headers go out at once"
        assert stream.status == 200
        assert stream.headers["content-type"].startswith(SSE)
        old = [parse(await stream.piece())[0] for _ in range(2)]
        await user._request("POST", "/v1/jobs", **submit)
        new = parse(await stream.piece())
        await stream.leave()
        return old, new

    old, new = daemon.run(scenario())
    assert [(e["id"], e["event"], e["data"]["subject"]) for e in old + new] == [
        ("2", "job_submitted", "job-2"),
        ("3", "job_submitted", "job-3"),
        ("4", "job_submitted", "job-4"),
    ]
    assert new[0]["data"]["event_id"] == 4


@pytest.mark.parametrize("query", ["?after=0", ""])
def test_a_stream_without_a_place_begins_with_what_is_new(daemon: Any, query: str) -> None:
    user = daemon.caller("user")
    user.submit()

    async def scenario() -> bytes:
        stream = daemon.stream(f"/v1/events{query}", **auth(user))
        await stream.piece()
        await asyncio.sleep(0.05)
        await user._request("POST", "/v1/jobs", json={"name": "a", "command": ["b"]})
        piece = await stream.piece()
        await stream.leave()
        return piece

    (event,) = parse(daemon.run(scenario()))
    assert event["id"] == ("1" if query else "2")


def test_a_stream_shows_only_what_the_token_may_see(daemon: Any) -> None:
    ann = daemon.caller("viewer", projects=("vision",))
    bob = daemon.caller("user")

    async def scenario() -> bytes:
        stream = daemon.stream("/v1/events?after=0", **auth(ann))
        await stream.piece()
        for project in ("speech", "vision", "speech"):
            job = {"name": "a", "command": ["b"], "project": project}
            await bob._request("POST", "/v1/jobs", json=job)
        piece = await stream.piece()
        await stream.leave()
        return piece + await stream.rest()

    assert [e["data"]["subject"] for e in parse(daemon.run(scenario()))] == ["job-2"]


def test_silence_is_broken_by_comments_and_a_stop_ends_the_stream(serve: Any) -> None:
    from api.app import stop_waiting

    daemon = serve(heartbeat_s=0.01)
    viewer = daemon.caller("viewer")

    async def scenario() -> bytes:
        stream = daemon.stream("/v1/events", **auth(viewer))
        pings = b"".join([await stream.piece() for _ in range(3)])
        stop_waiting(daemon.app)
        assert parse(await stream.rest()) == []
        assert stream.task.exception() is None
        return pings

    assert daemon.run(scenario()) == b": ping\n\n" * 3


def test_a_stream_asks_for_a_token_and_for_a_sound_place(daemon: Any) -> None:
    assert daemon.client.get("/v1/events", headers={"Accept": SSE}).status_code == 401
    viewer = daemon.caller("viewer")
    for headers in ({"Last-Event-ID": "x"}, {"Last-Event-ID": "9" * 30}):
        assert viewer.get("/v1/events", headers=headers).status_code == 422


def test_lines_are_chosen_by_actor_and_time(daemon: Any) -> None:
    user = daemon.caller("user", subject="ann")
    user.submit()
    daemon.service.now_s += 100.0
    daemon.caller("operator", subject="eve").post("/v1/nodes/alpha/cordon", json={"reason": "fan"})
    line = daemon.service.now_s
    for query, ids in {
        "actor=eve": [2],
        "actor=ann": [1],
        f"since_s={line}": [2],
        f"until_s={line}": [1],
        f"since_s={line - 100}&until_s={line + 1}": [1, 2],
    }.items():
        page = user.get(f"/v1/events?{query}").json()
        assert [e["event_id"] for e in page["events"]] == ids, query
    for bad in ("since_s=nan", "until_s=-1", "since_s=x"):
        assert user.get(f"/v1/events?{bad}").status_code == 422


@pytest.mark.parametrize("query", ["", "kind=job_failed", "subject_kind=job&subject=job-1"])
@pytest.mark.parametrize("confined", [False, True])
def test_a_page_without_lines_ends_where_the_history_does(
    daemon: Any, query: str, confined: bool
) -> None:
    """A stream waits for news from there; it would ask again and again if the page ended before."""
    viewer = daemon.caller("viewer", projects=("default",) if confined else ())
    daemon.caller("user").submit()
    for _ in range(3):
        daemon.caller("admin").post("/v1/tokens", json={"subject": "eve", "role": "viewer"})
    head = daemon.service.store.head().event_id
    page = viewer.get(f"/v1/events?{query}").json()
    assert page["last_event_id"] == head
    assert viewer.get(f"/v1/events?after={head}&{query}").json() == {
        "events": [], "last_event_id": head,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "known"),
    [
        ("kind=job_eaten", "job_held"),
        ("kind=job_compelted", "did you mean 'job_completed'? It must be"),
        ("subject_kind=jobs", "'job'"),
    ],
)
def test_an_unknown_kind_is_refused_with_those_that_there_are(
    daemon: Any, query: str, known: str
) -> None:
    answer = daemon.caller("viewer").get(f"/v1/events?{query}")
    assert answer.status_code == 422
    assert known in answer.json()["errors"][0]["problem"]


#: What writes to the history, and which argument says the kind.
NOTES = {
    "note": 0,
    "_note": 0,
    "record_event": 0,
    "record_event_for": 1,
    "record": 0,
    "remove_job": 1,
}


def test_every_kind_that_is_written_is_known() -> None:
    written = set()
    for package in (api, scheduler, leasehold.daemon):
        for file in Path(package.__file__).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if not isinstance(node, ast.Call):
                    continue
                if "RecordEvent" in {getattr(node.func, "id", ""), getattr(node.func, "attr", "")}:
                    kinds = (word.value for word in node.keywords if word.arg == "kind")
                    written |= {str(k.value) for k in kinds if isinstance(k, ast.Constant)}
                if not isinstance(node.func, ast.Attribute):
                    continue
                at = NOTES.get(node.func.attr, 9)
                if len(node.args) > at and isinstance(node.args[at], ast.Constant):
                    written.add(str(node.args[at].value))
    written |= {f"{action.value}_requested" for action in JobAction}
    written |= {f"node_{action.value}" for action in NodeAction}
    written.add("token_created")  # the first one, by hand
    written |= {*TOLD.values(), "webhook_failing", "webhook_paused", RELEASED}
    assert written - set(EventKind) == set()
    # Both words of an end come from a status.
    assert set(EventKind) - written <= {"job_completed", "job_failed", "job_cancelled"}


@pytest.mark.parametrize(
    ("told", "category"),
    [
        ({"reason": "completed"}, None),
        ({"reason": "failed"}, "user_error"),
        ({"reason": "lost", "trouble": "image"}, "image"),
        ({"reason": "oom", "trouble": "out_of_memory"}, "out_of_memory"),
        ({"reason": "released"}, "preemption"),
        ({"reason": "lost"}, "node_fault"),
    ],
)
def test_the_end_of_a_lease_is_of_a_kind(told: dict[str, str], category: str | None) -> None:
    row = HistoryRow(at_s=1.0, kind="lease_ended", subject_kind="job", subject="a", data=told)
    assert event_answer(row, ANONYMOUS)["data"] == told | {"category": category}
    other = dataclasses.replace(row, kind="lease_granted")
    assert event_answer(other, ANONYMOUS)["data"] == told
