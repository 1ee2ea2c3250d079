"""An agent that cannot write begins no lease and says why; what runs goes on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import subprocess
import threading

import pytest

import agent.disk
from agent.disk import DISK_FULL, disk_problem
from agent.logs.job_output import write_json
from agent.process.lease_files import LeaseFolder
from scheduler.domain.facts.troubles import REMEDIES, Trouble, trouble_of
from scheduler.domain.lease_life import EndReason
from scheduler.protocol.bounds import MOST_COUNT

LASTING = "import time; print('on', flush=True); time.sleep(60)"
FAILING = "import sys, time; print('on', flush=True); time.sleep(1); sys.exit(3)"


class FullDisk:
    """Lets nothing new be written by this process's agent while it is full."""

    def __init__(self, monkeypatch, code):
        self.full, self.code = False, code
        write = agent.disk._write
        monkeypatch.setattr("agent.disk._write", lambda *a, **b: self._refuse() or write(*a, **b))
        monkeypatch.setattr(
            "agent.process.lease_files.write_json", lambda *a: self._refuse() or write_json(*a)
        )

    def _refuse(self):
        if self.full:
            raise OSError(self.code, os.strerror(self.code))


def problems_of(node):
    report = node.report()
    return {w.index: w.problem for w in report.workers if w.problem} if report else {}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_idle_workers_are_out_of_service_until_the_agent_can_write_again(node, monkeypatch, code):
    disk = FullDisk(monkeypatch, code)

    async def scenario():
        running = node.lease(1, LASTING)
        node.want(running)
        async with node.agent(disk_every_s=0.05):
            await node.until(lambda: node.runs(1))
            disk.full = True
            problems = await node.until(lambda: problems_of(node))
            assert set(problems) == {1, 2, 3}  # and not 0, on which a job runs
            assert str(node.state_dir) in problems[1]
            assert os.strerror(code) in problems[1]
            node.want(running, node.lease(2, LASTING, workers=(1,)))
            refused = await node.until(lambda: node.ended(2))
            assert refused.reason is EndReason.RELEASED
            assert refused.message == problems[1]
            assert node.runs(1)
            disk.full = False
            await node.until(lambda: not problems_of(node))
            node.want(running, node.lease(3, LASTING, workers=(1,)))
            await node.until(lambda: node.runs(3))

    asyncio.run(scenario())


def test_a_full_disk_is_found_before_a_lease_is_begun(node, monkeypatch):
    disk = FullDisk(monkeypatch, errno.ENOSPC)

    async def scenario():
        node.want()
        async with node.agent(disk_every_s=3600.0):
            await node.until(node.report)
            disk.full = True
            node.want(node.lease(1, LASTING))
            refused = await node.until(lambda: node.ended(1))
            assert refused.reason is EndReason.RELEASED
            assert set(await node.until(lambda: problems_of(node))) == {0, 1, 2, 3}

    asyncio.run(scenario())


def test_a_look_that_began_before_the_disk_was_full_does_not_overrule_a_newer_one(
    node, monkeypatch
):
    disk = FullDisk(monkeypatch, errno.ENOSPC)
    write, ends, looks = agent.disk._write, threading.Event(), []

    def slow(*arguments, **options):
        in_turn = threading.current_thread() is threading.main_thread()
        try:
            write(*arguments, **options)
        finally:
            looks.extend([] if in_turn else ["look"])
        if not in_turn:
            ends.wait(20.0)

    monkeypatch.setattr("agent.disk._write", slow)

    async def scenario():
        node.want()
        async with node.agent(disk_every_s=3600.0):
            await node.until(lambda: looks)
            disk.full = True
            node.want(node.lease(1, LASTING))
            await node.until(lambda: node.ended(1))
            ends.set()
            await node.until(lambda: len(looks) > 1)  # it looks again
            assert set(await node.until(lambda: problems_of(node))) == {0, 1, 2, 3}

    asyncio.run(scenario())


def test_what_fails_while_the_disk_is_full_ends_with_that_trouble(node, monkeypatch):
    disk = FullDisk(monkeypatch, errno.ENOSPC)

    async def scenario():
        node.want(node.lease(1, FAILING))
        async with node.agent(disk_every_s=0.05):
            await node.until(lambda: "on" in node.log(1))
            disk.full = True
            ended = await node.until(lambda: node.ended(1))
            assert ended.message.startswith("exit code 3; the agent cannot write in")
            assert ended.reason_code == DISK_FULL
            assert trouble_of(ended.reason_code, ended.message) is Trouble.DISK
            assert "room" in REMEDIES[Trouble.DISK]
            # The end has the reason that its worker is not granted, so it is no failure of the
            # job's.
            assert 0 in problems_of(node)

    asyncio.run(scenario())


def test_a_running_lease_is_renewed_and_ended_gently_on_a_full_disk(node, monkeypatch):
    disk = FullDisk(monkeypatch, errno.ENOSPC)
    program = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("asked", flush=True), sys.exit(0)))
print("on", flush=True)
time.sleep(60)
"""

    async def scenario():
        # So long that a slow machine, too, starts it before it must be asked to leave.
        node.want(node.lease(1, program, remaining_s=25.0, grace_s=5.0, notice_s=0.0))
        async with node.agent(disk_every_s=0.05):
            await node.until(lambda: "on" in node.log(1))
            before = LeaseFolder(node.state_dir / "leases" / "1").read("control.json")
            disk.full = True
            node.want(node.lease(1, program, remaining_s=90.0, grace_s=5.0, notice_s=0.0))
            folder = LeaseFolder(node.state_dir / "leases" / "1")
            await node.until(
                lambda: (
                    (folder.read("control.json") or before)["deadline_s"]
                    > before["deadline_s"] + 30.0
                )
            )
            node.want()
            ended = await node.until(lambda: node.ended(1))
            assert ended.reason is EndReason.CANCELLED
            assert "asked" in node.log(1)

    asyncio.run(scenario())


def test_orders_that_grow_are_written_over_the_old_ones(tmp_path, monkeypatch):
    folder = LeaseFolder(tmp_path)
    folder.write("control.json", {"a": "long " * 10, "b": None})
    disk = FullDisk(monkeypatch, errno.ENOSPC)
    disk.full = True
    for value in ({"a": "x"}, {"a": "y" * 100, "b": MOST_COUNT}):
        folder.write_over("control.json", value)
        assert folder.read("control.json") == value
    with pytest.raises(FileNotFoundError):
        folder.write_over("new.json", {})
    with pytest.raises(OSError, match="No space"):
        folder.write("control.json", {})


@contextlib.contextmanager
def small_disk(folder, options="size=2m"):
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_job_that_fills_the_disk_is_told_apart_on_a_real_one(node):
    filling = """
import sys, time
print("on", flush=True)
with open("filling", "wb", buffering=0) as file:
    while True:
        file.write(b"x" * 65536)
"""
    with small_disk(node.state_dir):

        async def scenario():
            node.want(node.lease(1, filling, working_dir=""))
            async with node.agent(disk_every_s=0.1):
                ended = await node.until(lambda: node.ended(1))
                assert ended.reason in {EndReason.FAILED, EndReason.LOST}
                assert "No space left on device" in ended.message
                assert ended.reason_code == DISK_FULL
                await node.until(lambda: set(problems_of(node)) == {0, 1, 2, 3})
                for path in (node.state_dir / "work").glob("*/filling"):
                    path.unlink()
                await node.until(lambda: not problems_of(node))
                node.want(node.lease(2, LASTING))
                await node.until(lambda: node.runs(2))

        asyncio.run(scenario())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_disk_that_nothing_can_be_written_to_is_named(tmp_path):
    with small_disk(tmp_path / "disk", "size=2m,ro"):
        assert "mount it so that it can be written" in disk_problem(tmp_path / "disk")
    with small_disk(tmp_path / "full", "size=64k"):
        assert not disk_problem(tmp_path / "full", flush=True)
        (tmp_path / "full" / "more").write_bytes(b"x" * 4096)
        assert "make room there" in disk_problem(tmp_path / "full")
        assert sorted(p.name for p in (tmp_path / "full").iterdir()) == ["more"]
