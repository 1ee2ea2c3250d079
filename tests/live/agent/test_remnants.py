"""Nothing outlives its lease: jobs that hide, that kill their supervisor, that cannot be killed.

Processes are found by a word in their command lines, which nothing in the program looks at.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.process import clearing, remnants
from leasehold_testing.hiding import HIDE, pids_with, unique_word
from scheduler.domain.lease_life import EndReason


@pytest.fixture
def word():
    yield from unique_word()


def supervisor_of(node, lease_id):
    text = (node.state_dir / "leases" / str(lease_id) / "running.json").read_text()
    return json.loads(text)["pid"]


def wait_for(condition):
    end_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end_s, "the condition did not come to hold in time"
        time.sleep(0.01)


def run(main):
    asyncio.run(asyncio.wait_for(main, 100))


def test_a_job_that_kills_its_supervisor_leaves_nothing_behind(node, word):
    program = f"{HIDE}\nhide({word!r})\nwhile not seen({word!r}): pass\nos.kill(os.getppid(), 9)"

    async def main():
        async with node.agent():
            for lease_id in (1, 2, 3):
                node.want(node.lease(lease_id, program))
                report = await node.until(lambda n=lease_id: node.ended(n))
                assert report.reason is EndReason.LOST
                assert pids_with(word) == []  # at the very moment at which the end is reported

    run(main())


def test_what_is_killed_is_listed_once_and_the_end_names_node_and_file(node, word, caplog):
    child = f'subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", {word!r}])'
    program = f"""
import os, subprocess, sys
for _ in range(4): {child}
sys.stdout.write("up")
sys.stdout.flush()
import time; time.sleep(60)
"""

    async def main():
        node.want(node.lease(1, program))
        async with node.agent():
            await node.until(lambda: "up" in node.log(1) and node.runs(1))
            await node.until(lambda: len(pids_with(word)) == 4)
            pids = sorted(pids_with(word))
            os.kill(supervisor_of(node, 1), signal.SIGKILL)
            report = await node.until(lambda: node.ended(1))
        log = node.state_dir / "logs" / "1" / "supervisor.log"
        assert report.message.endswith(f"; see {log} on node n1")
        assert log.exists()
        lines = [
            r.getMessage()
            for r in caplog.records
            if "killing its leftover processes" in r.getMessage()
        ]
        listed = [int(pid) for pid in re.findall(r"(\d+) \(state", lines[0])]
        assert set(pids) <= set(listed)
        assert listed == sorted(set(listed))

    run(main())


@pytest.mark.parametrize("stopped", [True, False])
def test_what_has_left_its_session_ends_with_a_supervisor_that_is_busy_or_killed(
    node, word, stopped
):
    program = f"{HIDE}\nfor _ in range(5): hide({word!r})\nprint('up', flush=True); time.sleep(60)"

    async def main():
        node.want(node.lease(1, program))
        async with node.agent():
            await node.until(lambda: "up" in node.log(1) and node.runs(1))
            await node.until(lambda: len(pids_with(word)) == 5)
            os.kill(supervisor_of(node, 1), signal.SIGSTOP if stopped else signal.SIGKILL)
            node.want(node.lease(2, "print('next')", job_id="other"))
            await node.until(lambda: node.ended(2), 60)
            assert pids_with(word) == []

    run(main())


def test_a_job_that_goes_on_forking_has_ended_when_its_lease_has(node, word):
    program = f"""{HIDE}
if len(sys.argv) == 1:
    for _ in range(20): hide({word!r})
    print("up", flush=True)
    end_s = time.time() + 60
    while time.time() < end_s: hide({word!r}); time.sleep(0.01)
"""

    async def main():
        node.want(node.lease(1, program))
        async with node.agent():
            await node.until(lambda: "up" in node.log(1) and node.runs(1))
            node.want()
            await node.until(lambda: node.ended(1) or node.of(1) is None, 60)
            assert pids_with(word) == []

    run(main())


def test_an_agent_kills_what_is_left_of_a_lease_that_it_does_not_know(node, word):
    away = f'subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", {word!r}]'
    program = f"import subprocess, sys, time\n{away}, start_new_session=True)\ntime.sleep(300)"

    async def main():
        node.want(node.lease(1, program))
        first = node.start_agent()
        await node.until(lambda: node.runs(1) and pids_with(word))
        first.kill()
        first.wait()
        os.kill(supervisor_of(node, 1), signal.SIGKILL)
        shutil.rmtree(node.state_dir / "leases" / "1")
        assert pids_with(word)
        node.want()
        (node.folder / "report.json").unlink()
        node.start_agent()
        await node.until(node.report)
        assert pids_with(word) == []

    run(main())


def test_a_job_cannot_say_that_it_has_ended_and_go_on(node, word):
    ending = {"code": 0, "error": "", "terminated": False, "killed": False, "expired": False}
    ending |= {"oom_kills": 0, "memory_error": False, "ended_s": 0.0}
    program = f"""{HIDE}
import json
hide({word!r})
open(os.environ["LEASEHOLD_LEASE_FOLDER"] + "/exit.json", "w").write({json.dumps(ending)!r})
print("up", flush=True)
while not os.path.exists({str(node.folder / "seen")!r}):
    time.sleep(0.01)
os.kill(os.getppid(), 9)
"""

    async def main():
        node.want(node.lease(1, program))
        async with node.agent():
            await node.until(lambda: "up" in node.log(1))
            assert pids_with(word)
            (node.folder / "seen").touch()
            await node.until(lambda: node.ended(1))
            assert pids_with(word) == []

    run(main())


def test_a_worker_with_a_process_that_cannot_be_killed_has_a_problem_until_it_is_gone(
    node, word, monkeypatch
):
    program = f"{HIDE}\nhide({word!r})\nprint('up', flush=True); time.sleep(60)"
    kill = os.kill

    def refuse(pid, number):
        """As the kernel does if the process is another user's."""
        if number == signal.SIGKILL and pid in pids_with(word):
            raise PermissionError
        kill(pid, number)

    monkeypatch.setattr(clearing, "STUCK_S", 0.2)

    def problem():
        return node.report().workers[0].problem

    async def main():
        node.want(node.lease(1, program))
        async with node.agent():
            await node.until(lambda: "up" in node.log(1) and node.runs(1) and pids_with(word))
            monkeypatch.setattr(os, "kill", refuse)
            kill(supervisor_of(node, 1), signal.SIGKILL)
            (stuck,) = pids_with(word)
            await node.until(problem)
            assert f"lease 1 cannot be killed: {stuck} (state S" in problem()
            assert all(worker.problem == "" for worker in node.report().workers[1:])
            node.want(node.lease(2, "print('next')", job_id="other"))
            await node.until(lambda: node.of(2))
            assert node.ended(1) is None
            assert node.log(2) == ""
            monkeypatch.setattr(os, "kill", kill)
            await node.until(lambda: node.ended(2))
            assert pids_with(word) == []
            await node.until(lambda: not problem())

    run(main())


def test_a_supervisor_stays_with_what_it_cannot_kill_and_says_so(tmp_path):
    program = """
import os, sys
from pathlib import Path
from agent.process import supervisor
supervisor.STUCK_S = 0.1
kill = os.kill
child = os.posix_spawn(sys.executable, [sys.executable, "-c", "import time; time.sleep(300)"], {})
supervisor.os.kill = lambda pid, n: None if not Path(sys.argv[1], "free").exists() else kill(pid, n)
control = supervisor.SupervisorOrders(path=Path(sys.argv[1]))
boss = supervisor.Supervisor(folder=Path(sys.argv[1]), launch={}, control=control)
print(child, flush=True)
boss.finish()
print("finished")
"""

    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        told = tmp_path / "remnants.json"
        wait_for(told.exists)
        assert json.loads(told.read_text()) == {"pids": [child]}
        assert process.poll() is None
        (tmp_path / "free").touch()
        assert process.stdout.readline() == "finished\n"
    assert not Path(f"/proc/{child}").exists()


def test_a_number_that_belongs_to_another_process_by_now_is_spared():
    table = remnants.list_processes()
    me = table[os.getpid()]
    assert (me.parent, me.session) == (os.getppid(), os.getsid(0))
    stale = remnants.Process(
        pid=me.pid, parent=me.parent, session=me.session, ticks=me.ticks - 1, state="R", lives=True
    )
    remnants.kill_processes([stale])  # would end this test


def test_a_process_whose_first_thread_has_ended_still_lives(word):
    program = """
import ctypes, sys, threading, time
threading.Thread(target=time.sleep, args=(300,)).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""

    command = [sys.executable, "-c", program, word]
    marked = {"LEASEHOLD_LEASE_FOLDER": "/lease/7"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=marked) as process:
        wait_for(lambda: remnants.list_processes()[process.pid].state == "Z")
        assert remnants.list_processes()[process.pid].lives
        assert remnants.lease_folders(process.pid) == {"/lease/7"}
        process.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user needs root")
def test_a_process_of_another_user_in_a_pid_namespace_of_its_own_cannot_claim_a_lease(tmp_path):
    marked = {"LEASEHOLD_LEASE_FOLDER": "/lease/7", "PATH": os.environ["PATH"]}
    command = ["unshare", "--pid", "--fork", "--kill-child"]
    confined = [*command, "setpriv", "--reuid", "1900000000", "--clear-groups"]
    for prefix, claims in ((command, True), (confined, False), ([], True)):
        tried = [*prefix, "/bin/sh", "-c", "echo up; exec sleep 300"]
        with subprocess.Popen(tried, stdout=subprocess.PIPE, env=marked, text=True) as process:
            process.stdout.readline()
            table = remnants.list_processes()
            children = [one.pid for one in table.values() if one.parent == process.pid]
            (pid,) = children if prefix else [process.pid]
            assert (remnants.lease_folders(pid) == {"/lease/7"}) == claims
            process.kill()


def test_an_agent_says_whether_the_one_before_it_was_stopped_or_died(node):
    async def main():
        node.want()

        def told():
            report = node.report()
            return report is not None and (report.incarnation, report.crashed)

        async with node.agent():
            _, crashed = await node.until(told)
            assert not crashed  # there was none
        async with node.agent():
            _, crashed = await node.until(told)
            assert not crashed  # it was stopped
        (node.folder / "report.json").unlink()
        process = node.start_agent()
        await node.until(node.report)
        process.kill()
        process.wait()
        before, crashed = told()
        assert not crashed
        node.start_agent()
        await node.until(lambda: told()[0] > before)
        assert told()[1]

    run(main())


def test_an_agent_comes_after_the_one_before_it_though_the_clock_was_set_back(node):
    async def main():
        node.want()
        async with node.agent():
            await node.until(node.report)
        memory = node.state_dir / "agent.json"
        known = json.loads(memory.read_text())
        known["incarnation"] += 7200.0  # it ran two hours ahead
        memory.write_text(json.dumps(known))
        (node.folder / "report.json").unlink()
        async with node.agent():
            report = await node.until(node.report)
        assert report.incarnation > known["incarnation"]
        assert json.loads(memory.read_text())["incarnation"] == report.incarnation

    run(main())
