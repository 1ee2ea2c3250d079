"""``leasehold run``: one command that is submitted, followed, and ends as its job does."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading

import pytest

from leasehold.client import Client
from scheduler.logs.output import LogChunk, LogEnd, LogGap


def put(scheduler, data, *, offset=0, stream="out", attempt=1):
    chunk = LogChunk(
        stream=stream, node="alpha", attempt=attempt, offset=offset, data=data, kept_from=0
    )
    scheduler.service.log.append(("job-1", chunk))


@pytest.fixture
def meanwhile(scheduler, until):
    """Return what does something as soon as the job is followed."""
    others = []

    def begin(work):
        def later():
            until(lambda: scheduler.service._news._waiters)
            work(scheduler.service)

        others.append(threading.Thread(target=later))
        others[-1].start()

    yield begin
    for other in others:
        other.join()


def ends(scheduler, **how):
    def work(service):
        scheduler.do(service.run, "job-1")
        scheduler.do(service.fail, "job-1", how.pop("message", ""), **how)

    return work


def test_output_goes_where_the_job_sent_it_and_success_is_0(scheduler, leasehold, meanwhile):
    def work(service):
        scheduler.do(service.run, "job-1")
        put(scheduler, b"one\n")
        put(scheduler, b"oops\n", stream="err")
        scheduler.do(service.finish, "job-1")

    meanwhile(work)
    ran = leasehold("run", "--workers", "2", "--", "./train", "--lr", "0.1", "--help")
    assert (ran.code, ran.out) == (0, "one\n")
    assert ran.err == "leasehold: job-1 submitted\noops\n"
    row = scheduler.service.store.job("job-1")
    assert row.spec["command"] == ["./train", "--lr", "0.1", "--help"]
    assert row.scale_factor == 2


@pytest.mark.parametrize(("how", "code", "said"), [
    ({"exit_code": 7}, 7, "job-1 failed with exit code 7"),
    ({"exit_code": -9, "message": "signal 9"}, 137, "job-1 failed: signal 9"),
    ({"exit_code": 256}, 1, "job-1 failed with exit code 1"),  # 0 would say that all is well
    ({"message": "cannot start './x'"}, 125, "job-1 failed: cannot start './x'"),
    ({"exit_code": -15, "reason": "time_limit"}, 124, "job-1 was stopped by --max-run-time"),
])  # fmt: skip
def test_a_failure_is_passed_on(how, code, said, *, scheduler, leasehold, meanwhile):
    meanwhile(ends(scheduler, **how))
    ran = leasehold("run", "--", "./x")
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.splitlines()[1:] == [f"leasehold: {said}"]


def test_what_fails_is_tried_again_only_on_request(scheduler, leasehold, meanwhile):
    meanwhile(ends(scheduler, exit_code=1))
    assert leasehold("run", "--", "./x").code == 1
    assert scheduler.service.store.job("job-1").spec["max_failures"] == 0
    ran = leasehold("submit", "--retries", "2", "--client-id", "mine", "--", "./x")
    assert ran.out == "job-2\n"
    scheduler.do(scheduler.service.finish, "job-2")
    # Under the id of a job that is there it is followed, and nothing is submitted.
    ran = leasehold("run", "--retries", "2", "--client-id", "mine", "--", "./x")
    assert ran.code == 0
    assert ran.err == "leasehold: job-2 was submitted before under this client id\n"
    assert scheduler.service.store.job("job-2").spec["max_failures"] == 2


def test_a_job_that_somebody_cancels_is_143(scheduler, leasehold, meanwhile):
    def work(_):
        with Client(scheduler.url) as client:
            client.cancel("job-1")

    meanwhile(work)
    ran = leasehold("run", "--", "./x")
    assert ran.code == 143
    assert "job-1 cancelled; `leasehold explain job-1` says more" in ran.err


@pytest.mark.parametrize("words", [["python", "train.py"], [], ["--"], ["x", "--", "y"]])
def test_a_command_that_is_not_behind_two_dashes_is_told(words, scheduler, leasehold):
    ran = leasehold("run", *words)
    assert ran.code == 2
    assert "give the command behind --" in ran.err
    assert scheduler.service.store.job("job-1") is None


def test_a_refusal_has_the_code_and_the_words_of_submit(scheduler, leasehold):
    refused = leasehold("submit", "--workers", "4000", "--", "./x")
    ran = leasehold("run", "--workers", "4000", "--", "./x")
    assert (ran.code, ran.out, ran.err) == (refused.code, "", refused.err)
    assert ran.code == 6


def test_every_byte_once_and_all_attempts_through_a_restart(scheduler, leasehold, meanwhile, until):
    def work(service):
        scheduler.do(service.run, "job-1")
        put(scheduler, b"one\n")
        scheduler.stop()
        put(scheduler, b"two\n", offset=4)
        scheduler.start()
        until(lambda: service._news._waiters)
        scheduler.do(service.run, "job-1")
        put(scheduler, b"three\n", attempt=2)
        scheduler.do(service.fail, "job-1", "", exit_code=3)

    meanwhile(work)
    ran = leasehold("run", "--", "./x")
    assert (ran.code, ran.out) == (3, "one\ntwo\nthree\n")
    assert "leasehold: attempt 2 on alpha (v100)\n" in ran.err


def test_an_end_of_output_that_is_missing_is_told_and_the_code_is_the_jobs(
    scheduler, leasehold, meanwhile
):
    gap = LogGap(attempt=1, node="alpha", stream="out")
    scheduler.service.ends["job-1"] = LogEnd(complete=False, missing=(gap,))
    meanwhile(ends(scheduler, exit_code=7))
    ran = leasehold("run", "--", "./x")
    assert ran.code == 7
    assert "the end of the standard output of attempt 1 on alpha is missing" in ran.err


# -- Ctrl-C ---------------------------------------------------------------------------------------


class Running:
    """``leasehold run`` in a process of its own, at a terminal or not."""

    def __init__(self, *options, terminal, until):
        self._until, self.err = until, ""
        ours, theirs = pty.openpty() if terminal else os.pipe()
        self._ours = (ours, theirs)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "leasehold", "run", *options, "--", "./x"],
            stdin=theirs if terminal else ours,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.err += line

    def says(self, words):
        self._until(lambda: words in self.err, 60)

    def end(self):
        """Return the exit code, and the standard output."""
        code = self.process.wait(60)
        out = self.process.stdout.read()
        self._reader.join(10)
        return code, out

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self._reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
        for end in self._ours:
            os.close(end)


@pytest.fixture
def running(scheduler, until):
    """Start ``leasehold run``; its job has printed a line, which it has shown."""
    with contextlib.ExitStack() as stack:

        def start(*options, terminal=True):
            put(scheduler, b"one\n")
            found = Running(*options, terminal=terminal, until=until)
            stack.callback(found.close)
            assert found.process.stdout.readline() == "one\n", found.err
            return found

        yield start


def test_ctrl_c_once_leaves_the_job_running_and_says_how_to_go_on(running, scheduler):
    ran = running()
    ran.process.send_signal(signal.SIGINT)
    assert ran.end() == (130, "")
    assert "job-1 goes on: `leasehold logs -f job-1` follows it, `leasehold cancel" in ran.err
    assert "Traceback" not in ran.err
    assert scheduler.service.store.job("job-1").status == "waiting"


def test_where_nobody_sits_no_second_one_is_waited_for(running, scheduler):
    ran = running(terminal=False)
    ran.process.send_signal(signal.SIGINT)
    assert ran.end() == (130, "")
    assert "once more" not in ran.err
    assert scheduler.service.store.job("job-1").status == "waiting"


def test_ctrl_c_twice_cancels_and_shows_the_last_words(running, scheduler):
    act, service = scheduler.service._act, scheduler.service

    def last_words(*args, **how):
        put(scheduler, b"saved\n", offset=4)
        return act(*args, **how)

    service._act = last_words
    ran = running()
    ran.process.send_signal(signal.SIGINT)
    ran.says("Ctrl-C once more within 3 s cancels it")
    ran.process.send_signal(signal.SIGINT)
    assert ran.end() == (143, "saved\n")  # and not the first line again
    assert "cancelling job-1; its output is followed to its end" in ran.err
    assert service.store.job("job-1").status == "cancelled"
    assert service.reason == "interrupted by its user"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cancel_on_interrupt_asks_nobody(number, running, scheduler):
    ran = running("--cancel-on-interrupt", terminal=False)
    ran.process.send_signal(number)
    assert ran.end() == (143, "")
    assert scheduler.service.store.job("job-1").status == "cancelled"


def test_ctrl_c_ends_it_while_nobody_answers_the_cancelling(running, scheduler):
    ran = running("--cancel-on-interrupt")
    scheduler.stop()
    ran.process.send_signal(signal.SIGINT)
    ran.says("cancelling job-1")
    ran.process.send_signal(signal.SIGINT)
    assert ran.end() == (130, "")
    assert "interrupted; `leasehold job job-1` shows its result" in ran.err
