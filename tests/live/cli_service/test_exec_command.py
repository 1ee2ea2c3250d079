"""``leasehold exec``: its requests, output and exit codes."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import pytest

from leasehold.cli import exit_codes

EXEC = "0" * 32


class FakeExecs:
    """Answers every command with some output in two parts."""

    def __init__(self, *, code: int | None = 7, problem: str = "") -> None:
        self.code, self.problem = code, problem
        self.begun: list[tuple[list[str], bytes, dict[str, object]]] = []
        self.stopped: list[str] = []

    async def begin(self, job_id, command, *, stdin, **rest):
        self.begun.append((command, stdin, {"job_id": job_id} | rest))
        return SimpleNamespace(exec_id=EXEC, node="alpha")

    async def read(self, job_id, exec_id, *, after, wait_s):
        parts = [("out", b"one\n"), ("err", b"oops\n"), ("out", b"two\n")]
        pieces = [SimpleNamespace(stream=s, data=d) for s, d in parts[after : after + 2]]
        done = after + 2 >= len(parts)
        return SimpleNamespace(
            pieces=pieces,
            first=after,
            done_s=1.0 if done else None,
            exit_code=self.code if done else None,
            problem=self.problem if done else "",
        )

    def stop(self, job_id, exec_id):
        self.stopped.append(exec_id)


@pytest.fixture
def job(scheduler, leasehold, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    found = leasehold("submit", "--name", "t", "--", "true").out.strip()
    scheduler.service.run(found)
    return found


def test_output_and_exit_code_are_the_commands(scheduler, leasehold, job, monkeypatch):
    scheduler.service.execs = execs = FakeExecs()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped\n")))
    ran = leasehold("exec", job, "--timeout", "2m", "--rank", "0", "--", "cat", "-n")
    assert (ran.code, ran.out, ran.err) == (7, "one\ntwo\n", "oops\n")
    ((command, stdin, rest),) = execs.begun
    assert (command, stdin) == (["cat", "-n"], b"piped\n")
    assert (rest["rank"], rest["node"], rest["most_s"]) == (0, None, 120.0)


def test_as_json_each_piece_is_a_line_and_the_end_another(scheduler, leasehold, job):
    scheduler.service.execs = FakeExecs()
    ran = leasehold("exec", job, "--json", "--", "cat")
    assert (ran.code, ran.err) == (7, "")
    assert [json.loads(line) for line in ran.out.splitlines()] == [
        {"stream": "out", "text": "one\n"},
        {"stream": "err", "text": "oops\n"},
        {"stream": "out", "text": "two\n"},
        {"exit_code": 7, "problem": ""},
    ]


def test_the_help_says_where_the_command_stands(leasehold, monkeypatch):
    assert "-- COMMAND" in leasehold("exec", "--help").out.split("Run a command")[0]


def test_a_command_that_ends_otherwise_is_told(scheduler, leasehold, job):
    scheduler.service.execs = FakeExecs(code=None, problem="the job's lease has ended")
    ran = leasehold("exec", job, "--", "ls")
    assert ran.code == exit_codes.NO_CODE
    assert "the job's lease has ended" in ran.err


def test_an_interrupt_ends_the_command(scheduler, leasehold, job, monkeypatch):
    scheduler.service.execs = execs = FakeExecs()

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("leasehold.cli.service.execute._follow", interrupted)
    assert leasehold("exec", job, "--", "ls").code == exit_codes.INTERRUPTED
    assert execs.stopped == [EXEC]


def test_what_cannot_be_run_is_refused(scheduler, leasehold, job, monkeypatch):
    assert "give the command behind --" in leasehold("exec", job).err
    assert "nothing runs" in leasehold("exec", job, "--", "ls").err
    assert leasehold("exec", "nobody", "--", "ls").code != 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(300_000))))
    assert "bytes are piped in, which is the most" in leasehold("exec", job, "--", "ls").err
