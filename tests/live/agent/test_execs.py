"""Commands beside jobs as an agent serves them: reports at the end of time, job and command."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys

import pytest
import uvloop

from agent.backend import ENDED_WITH_JOB
from agent.execs import ExecRunner
from agent.process.beside import LocalCommand
from agent.process.clearing import Clearing
from agent.process.supervisor import start_ticks
from scheduler.protocol.desired import DesiredExec

TOO_LONG = "it ran for longer than 0.2 s, and was ended"


class Nothing:
    """A stream on which nothing is printed."""

    def __init__(self, ended):
        self._ended = ended

    async def read(self, _most):
        await self._ended.wait()
        return b""


class Command:
    """A command that ends when a test or the agent says so."""

    def __init__(self, *, with_job=False):
        self.over = asyncio.Event()
        self.returncode = None
        self.outputs = {"out": Nothing(self.over)}
        self.with_job = with_job

    def exit(self, code):
        if self.returncode is None:
            self.returncode = code
        self.over.set()

    async def feed(self, _data):
        pass

    async def wait(self):
        await self.over.wait()
        return self.returncode

    async def end(self):
        self.exit(137)

    async def cut_short(self):
        return ENDED_WITH_JOB if self.with_job else ""


class Link:
    """Keeps reports like the scheduler: each number once."""

    def __init__(self, on_told=lambda _number: None):
        self.taken, self.on_told, self.lost = [], on_told, 0

    async def tell_exec(self, _exec_id, told):
        if told["number"] == len(self.taken):
            self.taken.append(told)
        self.on_told(told["number"])
        if self.lost:
            self.lost -= 1
            raise ConnectionError("the answer is lost")
        return False, True


def served(command, link, *, most_s=0.2):
    """Let an agent serve a command to its end; returns the scheduler's records."""

    async def run():
        execs = ExecRunner(link, lambda _order: asyncio.sleep(0, command))
        order = DesiredExec(exec_id="e", lease_id=1, command=("x",), most_s=most_s)
        async with asyncio.timeout(120):
            execs.take((order,))
            await asyncio.gather(*execs._tasks.values())

    return run()


def last(link):
    return link.taken[-1]["exit_code"], link.taken[-1]["problem"]


def test_one_whose_time_is_over_is_ended_and_that_is_told_not_a_code():
    async def go():
        command, link = Command(), Link()
        await served(command, link)
        assert command.returncode == 137
        assert last(link) == (None, TOO_LONG)

    asyncio.run(go())


def test_one_that_has_ended_before_its_time_was_over_is_told_by_its_code():
    async def go():
        command, link = Command(), Link()
        command.exit(137)  # by its own hand, say
        await served(command, link, most_s=0.0)
        assert last(link) == (137, "")

    asyncio.run(go())


@pytest.mark.parametrize("lost", [0, 2])
def test_time_that_ends_while_a_report_is_on_its_way_is_told_all_the_same(lost):
    async def go():
        command = Command()
        began = asyncio.Event()

        class SlowLink(Link):
            async def tell_exec(self, exec_id, told):
                answer = await super().tell_exec(exec_id, told)
                if not began.is_set():  # taken, and answered only when the time is over
                    began.set()
                    await asyncio.sleep(0.5)
                return answer

        link = SlowLink()
        link.lost = lost
        command.outputs = {"out": Printed(command.over)}
        await served(command, link)
        assert last(link) == (None, TOO_LONG)
        printed = [base64.b64decode(p["data"]) for told in link.taken for p in told["pieces"]]
        assert printed == [b"hello"]

    asyncio.run(go())


class Printed(Nothing):
    """A stream on which one word is printed at once."""

    said = False

    async def read(self, most):
        if not self.said:
            self.said = True
            return b"hello"
        return await super().read(most)


@pytest.mark.parametrize("code", [137, -9, 126])
@pytest.mark.parametrize("with_job", [False, True])
def test_one_that_is_killed_with_its_job_is_told_so(code, with_job):
    async def go():
        command, link = Command(with_job=with_job), Link()
        command.exit(code)
        await served(command, link, most_s=60.0)
        # As shells say it.
        expected = (None, ENDED_WITH_JOB) if with_job else (137 if code < 0 else code, "")
        assert last(link) == expected

    asyncio.run(go())


@pytest.fixture
def leader():
    process = subprocess.Popen(["/bin/sleep", "900"])
    yield process
    process.kill()
    process.wait()


def spec_of(leader, folder):
    return {
        "leader": leader.pid,
        "ticks": start_ticks(leader.pid),
        "cell": None,
        "groups": [],
        "cwd": str(folder),
        "command": [sys.executable, "-c", "print('on', flush=True); input(); raise SystemExit(3)"],
    }


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])  # of `leasehold agent` and of `up`
def test_a_look_for_strays_kills_no_command(leader, tmp_path, run):
    async def go():
        command = await LocalCommand.begin(spec_of(leader, tmp_path), lambda: False)
        assert await command.outputs["out"].readexactly(3) == b"on\n"
        assert os.getpgid(command._process.pid) == command._process.pid
        Clearing(leases_dir=tmp_path, records={}).clear_strays()
        await command.feed(b"\n")
        assert await asyncio.wait_for(command.wait(), 60.0) == 3
        assert await command.cut_short() == ""

    run(go())


@pytest.mark.parametrize("stopping", [False, True])
def test_a_command_knows_that_its_job_has_ended_or_is_being_stopped(leader, tmp_path, stopping):
    async def go():
        command = await LocalCommand.begin(spec_of(leader, tmp_path), lambda: stopping)
        if not stopping:
            leader.kill()
            # It stays as a zombie.
            await asyncio.to_thread(os.waitid, os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)
        await command.end()
        assert await command.cut_short() == ENDED_WITH_JOB

    asyncio.run(go())
