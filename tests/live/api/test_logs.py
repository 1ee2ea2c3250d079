"""What jobs print."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import pytest

from api.app import stop_waiting
from scheduler.logs.output import LogChunk, LogEnd, LogGap, LogWanted


def chunk(data: bytes, *, node: str = "alpha", stream: str = "out", attempt: int = 1) -> LogChunk:
    return LogChunk(stream=stream, node=node, attempt=attempt, offset=0, data=data)


@pytest.fixture
def job(daemon: Any) -> str:
    return str(daemon.caller("user").submit())


def test_output_is_plain_bytes_of_the_streams_asked_for(daemon: Any, job: str) -> None:
    daemon.service.log += [
        (job, chunk(b"one\n\xff<b>")),
        (job, chunk(b"oops\n", stream="err")),
        (job, chunk(b"again\n", attempt=2)),
        ("job-9", chunk(b"another's\n")),
    ]
    viewer = daemon.caller("viewer")
    path = f"/v1/jobs/{job}/log"
    whole = viewer.get(path)
    assert whole.content == b"one\n\xff<b>oops\nagain\n"
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert viewer.get(f"{path}?stream=err").content == b"oops\n"
    assert viewer.get(f"{path}?attempt=2").content == b"again\n"
    assert viewer.get(f"{path}?tail_bytes=2&stream=err").content == b"s\n"
    assert viewer.get(f"{path}?tail_bytes=0").content == b""
    for bad in ("stream=x", "tail_bytes=-1", "attempt=0", "follow=maybe"):
        assert viewer.get(f"{path}?{bad}").status_code == 422


def test_pieces_of_a_gang_have_headings(daemon: Any, job: str) -> None:
    daemon.service.run(job, nodes=("alpha", "beta"))
    daemon.service.log += [
        (job, chunk(b"1\n")),
        (job, chunk(b"2")),
        (job, chunk(b"", node="gamma")),
        (job, chunk(b"3\n", node="beta")),
        (job, chunk(b"4\n", node="beta", stream="err")),
    ]
    daemon.service.finish(job)
    text = "==> alpha (out) <==\n1\n2\n==> beta (out) <==\n3\n==> beta (err) <==\n4\n"
    viewer = daemon.caller("viewer")
    assert viewer.get(f"/v1/jobs/{job}/log").text == text
    assert viewer.get(f"/v1/jobs/{job}/log?follow=true").text == text


def test_following_goes_on_until_the_job_has_ended(daemon: Any, job: str) -> None:
    viewer = daemon.caller("viewer")
    daemon.service.log.append((job, chunk(b"first\n")))

    async def scenario() -> bytes:
        stream = daemon.stream(f"/v1/jobs/{job}/log?follow=true", **viewer.headers)
        first = await stream.piece()
        assert first == b"first\n"
        daemon.service.log.append((job, chunk(b"second\n")))
        daemon.service.finish(job)
        return first + await stream.rest()

    assert daemon.run(scenario()) == b"first\nsecond\n"


def test_following_ends_when_the_service_stops(daemon: Any, job: str) -> None:
    viewer = daemon.caller("viewer")
    daemon.service.log.append((job, chunk(b"first\n")))

    async def scenario() -> bytes:
        stream = daemon.stream(f"/v1/jobs/{job}/log?follow=true", **viewer.headers)
        await stream.piece()
        stop_waiting(daemon.app)
        return await stream.rest()

    assert daemon.run(scenario()) == b""


NDJSON = {"Accept": "application/x-ndjson"}


def pieces(raw: bytes) -> list[tuple[object, ...]]:
    """Read lines of JSON; the last one says that this is the end."""
    *lines, end = [json.loads(line) for line in raw.splitlines() if line]
    assert end["end"] is True
    return [
        (p["attempt"], p["node"], p["stream"], p["offset"], base64.b64decode(p["data"]))
        for p in lines
    ]


def test_pieces_say_where_they_belong_and_keep_every_byte(daemon: Any, job: str) -> None:
    daemon.service.log += [(job, chunk(b"\xc3")), (job, chunk(b"\xa9\n", stream="err"))]
    viewer = daemon.caller("viewer")
    known = [(1, "alpha", "out", 0, b"\xc3"), (1, "alpha", "err", 0, b"\xa9\n")]
    answer = viewer.get(f"/v1/jobs/{job}/log", headers=NDJSON)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert pieces(answer.content) == known
    daemon.service.finish(job)
    followed = viewer.get(f"/v1/jobs/{job}/log?follow=true", headers=NDJSON)
    assert pieces(followed.content) == known


def test_how_much_is_not_kept_any_more_is_in_a_header_and_in_the_pieces(
    daemon: Any, job: str
) -> None:
    late = dataclasses.replace(chunk(b"the end\n"), offset=500, kept_from=500)
    daemon.service.log += [(job, late), (job, chunk(b"all of it\n", stream="err"))]
    viewer = daemon.caller("viewer")
    answer = viewer.get(f"/v1/jobs/{job}/log")
    assert answer.headers["x-leasehold-dropped-bytes"] == "500"
    answer = viewer.get(f"/v1/jobs/{job}/log", headers=NDJSON)
    assert answer.headers["x-leasehold-dropped-bytes"] == "500"
    lines = [json.loads(line) for line in answer.content.splitlines()]
    assert [line.get("kept_from") for line in lines] == [500, 0, None]
    # A reader that asks for the end alone misses nothing.
    tail = viewer.get(f"/v1/jobs/{job}/log?stream=out&tail_bytes=4")
    assert (tail.text, tail.headers["x-leasehold-dropped-bytes"]) == ("end\n", "0")


def test_silence_between_pieces_is_broken_and_a_stop_is_told_from_the_end(
    serve: Any,
) -> None:
    daemon = serve(heartbeat_s=0.01)
    job = daemon.caller("user").submit()
    viewer = daemon.caller("viewer")

    async def scenario() -> bytes:
        path = f"/v1/jobs/{job}/log?follow=true"
        stream = daemon.stream(path, **viewer.headers, **NDJSON)
        for _ in range(3):
            assert await stream.piece() == b"\n"
        daemon.service.log.append((job, chunk(b"late\n")))
        while (piece := await stream.piece()) == b"\n":
            pass
        assert json.loads(piece)["offset"] == 0
        stop_waiting(daemon.app)
        return await stream.rest()

    assert b"end" not in daemon.run(scenario())


def end_of(raw: bytes) -> Any:
    return json.loads(raw.splitlines()[-1])


def test_the_last_line_and_a_header_say_whether_that_is_all(daemon: Any, job: str) -> None:
    daemon.service.log.append((job, chunk(b"one\n")))
    viewer = daemon.caller("viewer")
    path = f"/v1/jobs/{job}/log"
    assert viewer.get(path).headers["x-leasehold-complete"] == "false"
    assert end_of(viewer.get(path, headers=NDJSON).content) == {"end": True, "complete": False}
    daemon.service.finish(job)
    assert viewer.get(path).headers["x-leasehold-complete"] == "true"
    for query in ("", "?follow=true", "?attempts=all"):
        answer = viewer.get(path + query, headers=NDJSON)
        assert end_of(answer.content) == {"end": True, "complete": True}
    gap = LogGap(attempt=1, node="alpha", stream="err")
    daemon.service.ends[job] = LogEnd(complete=False, missing=(gap,))
    told = {"attempt": 1, "node": "alpha", "stream": "err", "told": True}
    for query in ("", "?follow=true"):
        answer = viewer.get(path + query, headers=NDJSON)
        assert end_of(answer.content) == {"end": True, "complete": False, "missing": [told]}
    daemon.service.ends[job] = LogEnd(complete=None)
    assert viewer.get(path).headers["x-leasehold-complete"] == "unknown"
    assert end_of(viewer.get(path, headers=NDJSON).content)["complete"] is None


def test_a_scheduler_that_does_not_lead_sends_whoever_reads_output_away(
    daemon: Any, job: str
) -> None:
    """Output lies with the leader; a standby answered with nothing, and that this was all."""
    daemon.service.finish(job)
    daemon.service.leading = False
    viewer = daemon.caller("viewer")
    for query in ("", "?follow=true", "?attempts=all"):
        answer = viewer.get(f"/v1/jobs/{job}/log{query}", headers=NDJSON)
        assert answer.status_code == 503
        assert float(answer.headers["retry-after"]) > 0


def test_a_leader_that_ceases_to_lead_ends_no_output(daemon: Any, job: str) -> None:
    viewer = daemon.caller("viewer")
    daemon.service.log.append((job, chunk(b"first\n")))

    async def scenario(headers: dict[str, str]) -> bytes:
        daemon.service.leading = True
        path = f"/v1/jobs/{job}/log?follow=true"
        stream = daemon.stream(path, **viewer.headers, **headers)
        while await stream.piece() == b"\n":
            pass
        daemon.service.leading = False
        daemon.service._tell()
        return bytes(await stream.rest())

    assert b'"end"' not in daemon.run(scenario(NDJSON))
    assert daemon.run(scenario({})) == b""


def test_all_attempts_as_text_have_headings(daemon: Any, job: str) -> None:
    daemon.service.log += [(job, chunk(b"1\n")), (job, chunk(b"2\n", attempt=2))]
    viewer = daemon.caller("viewer")
    text = viewer.get(f"/v1/jobs/{job}/log?attempts=all").text
    assert text == "==> attempt 1 on alpha (out) <==\n1\n==> attempt 2 on alpha (out) <==\n2\n"


def test_what_is_known_already_is_told_by_places(
    daemon: Any, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[LogWanted] = []
    follow = daemon.service.follow_log

    def spy(job_id: str, wanted: LogWanted) -> Any:
        asked.append(wanted)
        return follow(job_id, wanted)

    monkeypatch.setattr(daemon.service, "follow_log", spy)
    daemon.service.finish(job)
    viewer = daemon.caller("viewer")
    path = f"/v1/jobs/{job}/log?follow=true&attempts=all"
    viewer.get(f"{path}&since=1/alpha/out/70&since=2/b-1.c/err/0")
    assert asked[0].since == {"1/alpha/out": 70, "2/b-1.c/err": 0}
    assert (asked[0].every, asked[0].follow) == (True, True)
    for bad in ("1/alpha/out", "x/alpha/out/1", "1/../x/out/1", "1/alpha/both/1", "1/alpha/out/-1"):
        assert viewer.get(f"{path}&since={bad}").status_code == 422
    assert viewer.get(path + "&since=1/a/out/1" * 101).status_code == 422
