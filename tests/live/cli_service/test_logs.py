"""``leasehold logs``: every byte once, through restarts of the scheduler."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from scheduler.logs.output import LogChunk, LogEnd, LogGap


@pytest.fixture
def job(scheduler, leasehold):
    return leasehold("submit", "--", "./train").out.strip()


def put(scheduler, job, data, *, offset=0, stream="out", node="alpha", attempt=1, kept_from=0):
    chunk = LogChunk(
        stream=stream, node=node, attempt=attempt, offset=offset, data=data, kept_from=kept_from
    )
    scheduler.service.log.append((job, chunk))


def test_output_goes_where_the_job_sent_it(job, scheduler, leasehold):
    put(scheduler, job, "gr\u00fc".encode()[:3])
    put(scheduler, job, "gr\u00fc\u00df\n".encode()[3:], offset=3)
    put(scheduler, job, b"oops\n", stream="err")
    ran = leasehold("logs", job)
    assert (ran.code, ran.out, ran.err) == (0, "gr\u00fc\u00df\n", "oops\n")
    assert leasehold("logs", job, "--stream", "err").out == ""
    assert leasehold("logs", job, "--tail", "2", "--stream", "err").err == "s\n"


def test_a_heading_stands_where_the_node_changes(job, scheduler, leasehold):
    put(scheduler, job, b"1\n")
    put(scheduler, job, b"2\n", node="beta")
    ran = leasehold("logs", job)
    assert (ran.out, ran.err) == ("1\n2\n", "leasehold: attempt 1 on beta\n")


def test_pieces_as_json(job, scheduler, leasehold):
    put(scheduler, job, b"1\n")
    line = {"attempt": 1, "node": "alpha", "stream": "out", "offset": 0, "dropped": 0}
    assert json.loads(leasehold("logs", job, "--json").out) == line | {"text": "1\n"}


def test_output_that_is_not_kept_any_more_is_told(job, scheduler, leasehold):
    put(scheduler, job, b"end\n", offset=4096, kept_from=4096)
    put(scheduler, job, b"oops\n", stream="err")
    ran = leasehold("logs", job)
    assert ran.out == "end\n"
    told = (
        "leasehold: 4,096 bytes of the standard output of attempt 1 on alpha are not kept any more"
    )
    assert ran.err.splitlines() == [told, "oops"]
    pieces = [json.loads(line) for line in leasehold("logs", job, "--json").out.splitlines()]
    assert [piece["dropped"] for piece in pieces] == [4096, 0]
    # A tail that begins within kept output leaves out no requested byte.
    assert leasehold("logs", job, "--tail", "2", "--stream", "out").err == ""


def test_a_gap_in_the_middle_of_what_is_followed_is_told(job, scheduler, leasehold):
    put(scheduler, job, b"one\n")
    put(scheduler, job, b"two\n", offset=1004, kept_from=1004)
    scheduler.do(scheduler.service.finish, job)
    ran = leasehold("logs", "-f", job)
    assert ran.out == "one\ntwo\n"
    assert "1,000 bytes of the standard output" in ran.err


def test_an_attempt_without_output_is_told(job, scheduler, leasehold):
    scheduler.do(scheduler.service.run, job)
    ran = leasehold("logs", job, "--attempt", "1")
    assert (ran.code, ran.out) == (0, "")
    assert "no output of attempt 1 is kept" in ran.err
    for words in ([], ["--json"]):
        ran = leasehold("logs", job, "--attempt", "7", *words)
        assert (ran.code, ran.out) == (5, "")
        assert "job-1 has no attempt 7" in ran.err
    assert leasehold("logs", job).err == ""


def test_why_there_is_no_output_is_told(job, scheduler, leasehold):
    ran = leasehold("logs", job)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "leasehold: job-1 has not run yet; `leasehold explain job-1` says why\n"
    scheduler.do(scheduler.service.run, job)
    scheduler.do(scheduler.service.fail, job, "cannot start './train'")
    for words in ([], ["--attempt", "1"]):
        ran = leasehold("logs", job, *words)
        assert (ran.code, ran.out) == (0, "")
        assert ran.err == (
            "leasehold: there is no output; attempt 1 ended as failed: cannot start './train'; "
            "`leasehold explain job-1` says more\n"
        )


def test_following_shows_each_byte_once_through_a_restart(job, scheduler, leasehold, until):
    put(scheduler, job, b"one\n")
    put(scheduler, job, b"err\n", stream="err")

    def meanwhile() -> None:
        until(lambda: scheduler.service._news._waiters)
        scheduler.stop()
        put(scheduler, job, b"two\n", offset=4)
        put(scheduler, job, b"three\n", attempt=2)
        scheduler.start()
        until(lambda: scheduler.service._news._waiters)
        put(scheduler, job, b"four\n", attempt=2, offset=6)
        scheduler.do(scheduler.service.finish, job)

    other = threading.Thread(target=meanwhile)
    other.start()
    ran = leasehold("logs", "-f", job)
    other.join()
    assert ran.code == 0, ran.err
    assert ran.out == "one\ntwo\nthree\nfour\n"
    assert ran.err.count("err\n") == 1


def test_a_piece_that_overlaps_what_was_seen_is_cut(job, scheduler, leasehold):
    put(scheduler, job, b"abc")
    put(scheduler, job, b"bcde", offset=1)
    put(scheduler, job, b"cd", offset=2)
    assert leasehold("logs", job).out == "abcde"


def test_following_a_job_of_an_absent_scheduler_ends_with_3(leasehold):
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))  # bound and not listening: no other process takes it
        url = f"http://127.0.0.1:{port.getsockname()[1]}"
        assert leasehold("logs", "-f", "x", "--retry-for", "0", "--server", url).code == 3


def test_all_attempts_are_shown_and_marked_and_one_on_request(scheduler, leasehold, job):
    scheduler.do(scheduler.service.run, job)
    put(scheduler, job, b"one\n")
    scheduler.do(scheduler.service.run, job)
    put(scheduler, job, b"two\n", attempt=2)
    ran = leasehold("logs", job)
    assert (ran.code, ran.out) == (0, "one\ntwo\n")
    assert ran.err.splitlines() == [
        "leasehold: attempt 1 on alpha (v100)",
        "leasehold: attempt 2 on alpha (v100)",
    ]
    ran = leasehold("logs", job, "--attempt", "2")
    assert (ran.out, ran.err) == ("two\n", "")
    pieces = [json.loads(line) for line in leasehold("logs", job, "--json").out.splitlines()]
    assert [(piece["attempt"], piece["text"]) for piece in pieces] == [(1, "one\n"), (2, "two\n")]


def test_an_end_that_is_missing_is_told_and_no_success(scheduler, leasehold, job):
    put(scheduler, job, b"half\n")
    scheduler.do(scheduler.service.finish, job)
    gaps = tuple(LogGap(attempt=1, node="alpha", stream=name) for name in ("out", "err"))
    scheduler.service.ends[job] = LogEnd(complete=False, missing=gaps)
    ran = leasehold("logs", "-f", job)
    assert (ran.code, ran.out) == (1, "half\n")
    assert ran.err == (
        "leasehold: the end of the standard output and the standard error of attempt 1 on alpha "
        "is missing: the agent there has not sent it\n"
    )
    ran = leasehold("logs", job)
    assert ran.code == 0
    assert f"is not here yet; `leasehold logs -f {job}` waits for it" in ran.err


def test_output_of_an_agent_that_marks_no_ends_has_a_remark(scheduler, leasehold, job):
    put(scheduler, job, b"all of it, perhaps\n")
    scheduler.do(scheduler.service.finish, job)
    gap = LogGap(attempt=1, node="alpha", stream="out", told=False)
    scheduler.service.ends[job] = LogEnd(complete=None, missing=(gap,))
    ran = leasehold("logs", "-f", job)
    assert (ran.code, ran.out) == (0, "all of it, perhaps\n")
    assert "unknown whether the standard output of attempt 1 on alpha is complete" in ran.err
    assert leasehold("logs", job).err == ""


def test_following_waits_for_a_scheduler_that_does_not_lead_yet(job, scheduler, leasehold, until):
    """It answers 503 after a restart; before, it said that this was all."""
    put(scheduler, job, b"one\n")

    def meanwhile() -> None:
        until(lambda: scheduler.service._news._waiters)
        scheduler.service.leading = False
        scheduler.stop()
        scheduler.start()
        until(lambda: scheduler.service.refused >= 2)
        put(scheduler, job, b"two\n", offset=4)
        scheduler.do(scheduler.service.finish, job)
        scheduler.service.leading = True

    other = threading.Thread(target=meanwhile)
    other.start()
    ran = leasehold("logs", "-f", job)
    other.join()
    assert (ran.code, ran.out) == (0, "one\ntwo\n")
    assert ran.err.count("trying again until it is back") == 1


def test_reading_waits_for_a_scheduler_that_does_not_lead_yet(job, scheduler, leasehold, until):
    put(scheduler, job, b"one\n")
    scheduler.service.leading = False

    def meanwhile() -> None:
        until(lambda: scheduler.service.refused >= 1)
        scheduler.service.leading = True

    other = threading.Thread(target=meanwhile)
    other.start()
    ran = leasehold("logs", job)
    other.join()
    assert (ran.code, ran.out) == (0, "one\n")


def test_a_reader_of_the_release_before_is_served_as_it_was(job, scheduler):
    """It knows neither places nor attempts, and takes the line with ``end`` for the end."""
    import httpx

    put(scheduler, job, b"1\n")
    scheduler.do(scheduler.service.finish, job)
    url = f"{scheduler.url}/v1/jobs/{job}/log?stream=both&follow=true"
    lines = httpx.get(url, headers={"Accept": "application/x-ndjson"}).text.splitlines()
    piece, end = [json.loads(line) for line in lines if line]
    assert piece.keys() == {"attempt", "node", "stream", "offset", "kept_from", "data"}
    assert end["end"] is True


def test_silence_is_filled_so_that_nobody_takes_it_for_a_break(serve, leasehold, until):
    import httpx

    scheduler = serve(heartbeat_s=0.05)
    job = leasehold("submit", "--", "./train").out.strip()
    url = f"{scheduler.url}/v1/jobs/{job}/log?follow=true"
    with httpx.stream("GET", url, headers={"Accept": "application/x-ndjson"}) as answer:
        lines = answer.iter_lines()
        assert [next(lines) for _ in range(3)] == ["", "", ""]
        put(scheduler, job, b"1\n")
        scheduler.do(scheduler.service.finish, job)
        rest = [json.loads(line) for line in lines if line]
    assert rest[0]["data"] == "MQo="
    assert rest[-1] == {"end": True, "complete": True}


def test_why_there_is_no_output_is_told_of_what_ran_while_it_was_followed(
    job, scheduler, leasehold, until
):
    def meanwhile() -> None:
        until(lambda: scheduler.service._news._waiters)
        scheduler.do(scheduler.service.run, job)
        scheduler.do(scheduler.service.fail, job, "cannot start './train'")

    other = threading.Thread(target=meanwhile)
    other.start()
    ran = leasehold("logs", "-f", job)
    other.join()
    assert "attempt 1 ended as failed: cannot start './train'" in ran.err
