"""The sources of a real job's steps, and attacks on its agent by them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import pytest

import agent.lease_record
import agent.logs.matching
from agent.clock import lease_clock_s
from agent.logs.job_output import NotRegularError, read_regular
from agent.process.acting import Reach
from agent.process.lease_files import LeaseFolder
from agent.process.steps_file import StepsFile
from scheduler.domain.lease_life import EndReason

STEPS = "import time\nfor i in range(1, 1000): print('step', i, flush=True); time.sleep(0.02)"
SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(60)"


def run(main):
    asyncio.run(asyncio.wait_for(main, 100))


# -- expressions -----------------------------------------------------------------------------------


def test_the_last_steps_of_the_output_are_in_the_report_of_the_end(node):
    program = "print('step 3 saved 2\\n' * 20000 + 'step 8 saved 7', end='')"

    async def main():
        lease = node.lease(1, program, progress_regex=r"step (\d+) saved (?P<saved>\d+)")
        other = node.lease(2, "print('step 5')", progress_regex=r"step (\d+)", workers=(1,))
        node.want(lease, other)
        async with node.agent():
            report = await node.until(lambda: node.ended(1), 60)
            assert (report.reason, report.steps_done, report.steps_live) == ("completed", 7, 7)
            report = await node.until(lambda: node.ended(2), 60)
            # It reports no saved steps, and has left by itself.
            assert (report.steps_done, report.steps_live) == (5, 5)

    run(main())


def test_an_expression_that_kept_python_busy_for_ever_holds_nobody_up(node):
    text = "import time\nprint('a' * 4000, flush=True)\ntime.sleep(60)"

    async def main():
        node.want(
            node.lease(1, text, progress_regex="((a+)+)b", remaining_s=4.0),
            node.lease(2, STEPS, progress_regex=r"step (\d+)", workers=(1,)),
        )
        async with node.agent():
            await node.until(lambda: node.of(2) and node.of(2).steps_live > 3, 60)
            report = await node.until(lambda: node.ended(1), 60)
            assert report.reason is EndReason.RELEASED  # at its deadline

    run(main())


def test_a_job_of_an_expression_that_re2_does_not_know_runs_on_and_says_why(node):
    async def main():
        program, expression = f"print('step 3')\n{SLEEP}", r"(?<=step )(\d+)"
        node.want(node.lease(1, program, progress_regex=expression))
        async with node.agent():
            await node.until(lambda: node.runs(1) and node.of(1).progress_problem, 60)
            assert "RE2 has no lookahead, lookbehind" in node.of(1).progress_problem
            assert len(node.processes_of(1)) >= 1
        async with node.agent():  # the next one says it too
            (node.folder / "report.json").unlink()
            await node.until(lambda: node.of(1) and node.of(1).progress_problem, 60)
            node.want(node.lease(1, program, progress_regex=expression, remaining_s=2.0))
            report = await node.until(lambda: node.ended(1), 60)
        assert (report.reason, report.steps_live) == (EndReason.RELEASED, 0)

    run(main())


def test_what_was_printed_while_no_agent_looked_is_found_by_the_next(node):
    program = """
import pathlib, time
print("step 1", flush=True)
while not pathlib.Path("go").exists(): time.sleep(0.01)
print("step 2")
"""

    async def main():
        node.want(node.lease(1, program, progress_regex=r"step (?P<steps>\d+)"))
        first = node.start_agent()
        await node.until(lambda: node.of(1) and node.of(1).steps_live == 1, 60)
        first.send_signal(signal.SIGKILL)
        first.wait()
        (node.folder / "report.json").unlink()
        (node.folder / "go").touch()
        await node.until((node.state_dir / "leases" / "1" / "exit.json").exists, 60)
        async with node.agent():
            report = await node.until(lambda: node.ended(1), 60)
        assert (report.reason, report.steps_done) == (EndReason.COMPLETED, 2)

    run(main())


def test_an_end_waits_for_its_figures_no_longer_than_it_may(node, monkeypatch):
    monkeypatch.setattr("agent.lease_record.LAST_FIGURES_S", 0.3)
    monkeypatch.setattr(
        "agent.process.backend.Matching",
        lambda on_change: agent.logs.matching.Matching(
            on_change=on_change, command=("sleep", "60")
        ),
    )

    async def main():
        node.want(node.lease(1, "print('step 3')", progress_regex=r"step (\d+)"))
        async with node.agent():
            report = await node.until(lambda: node.ended(1), 60)
        assert (report.reason, report.steps_live) == (EndReason.COMPLETED, 0)

    run(main())


class Remembered(agent.lease_record.LeaseRecord):
    """What both backends remember, with nothing under it."""

    def runs(self):
        return True

    def report(self):
        raise AssertionError("nobody asks")


def test_a_record_of_no_backend_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        agent.lease_record.LeaseRecord(lease=None, tenant=None, boot="b", deadline_s=0.0)


@pytest.mark.parametrize(("left_s", "most_s"), [(100.0, 10.0), (8.0, 4.0), (0.5, 0.5), (-3.0, 0.5)])
def test_figures_are_waited_for_while_the_deadline_allows_it(node, monkeypatch, left_s, most_s):
    now_s = 1000.0
    monkeypatch.setattr(agent.lease_record, "lease_clock_s", lambda: now_s)
    record = Remembered(lease=node.lease(1, ""), tenant=None, boot="b", deadline_s=now_s + left_s)
    assert not record.patience_over()
    now_s += most_s - 0.01
    assert not record.patience_over()
    now_s += 0.02
    assert record.patience_over()


# -- files of the job ------------------------------------------------------------------------------


def test_a_fifo_as_progress_file_holds_nobody_up_and_the_reason_is_told(node):
    os.mkfifo(node.folder / "steps")

    async def main():
        node.want(
            node.lease(1, SLEEP, progress_file="steps"),
            node.lease(2, STEPS, progress_regex=r"step (\d+)", workers=(1,)),
        )
        async with node.agent():
            await node.until(lambda: node.of(1) and node.of(1).progress_problem, 60)
            assert "is a FIFO, no regular file" in node.of(1).progress_problem
            await node.until(lambda: node.of(2).steps_live > 3, 60)
            (node.folder / "steps").unlink()
            (node.folder / "real").write_text("at step 17")
            (node.folder / "steps").symlink_to("real")
            await node.until(lambda: node.of(1).steps_done == 17, 60)
            assert node.of(1).progress_problem == ""
            (node.folder / "real").write_text("at step 19")
            node.want(node.lease(1, SLEEP, progress_file="steps", remaining_s=2.0))
            report = await node.until(lambda: node.ended(1), 60)
            assert report.steps_done == 19

    run(main())


def test_a_job_that_puts_fifos_into_its_lease_folder_holds_nobody_up(node):
    program = """
import os, pathlib, time
folder = pathlib.Path(os.environ["LEASEHOLD_PROGRESS_FILE"]).parent
for name in ("progress.json", "notice.json", "output.json", "control.json", "running.json"):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
print("up", flush=True)
time.sleep(60)
"""

    async def main():
        node.want(
            node.lease(1, program, remaining_s=5.0),
            node.lease(2, STEPS, progress_regex=r"step (\d+)", workers=(1,)),
        )
        async with node.agent():
            await node.until(lambda: "up" in node.log(1), 60)
            await node.until(lambda: node.of(2).steps_live > 3, 60)
            report = await node.until(lambda: node.ended(1), 60)
            assert report.reason in {EndReason.RELEASED, EndReason.CANCELLED}

    run(main())


def test_a_hanging_file_system_holds_up_one_thread_and_nobody_else(tmp_path, monkeypatch):
    hang, read = threading.Event(), []

    def hanging(path, most_bytes):
        read.append(path)
        hang.wait(60)
        return b"3 of 4"

    monkeypatch.setattr("agent.process.acting.read_regular", hanging)
    monkeypatch.setattr("agent.process.steps_file.EVERY_S", 0.0)
    settled = threading.Event()
    file = StepsFile(Reach(uid=None, base=None, name=tmp_path / "steps"), on_settled=settled.set)
    for _ in range(5):
        file.look()
        file.look_last()
    assert (len(read), file.number, file.settled) == (1, None, False)
    hang.set()
    end_s = time.monotonic() + 60
    while not file.settled:
        assert time.monotonic() < end_s
        file.look_last()  # the reading that hung was begun before the end
        time.sleep(0.001)
    assert settled.wait(60)
    assert (len(read), file.number) == (2, 4)


@pytest.mark.parametrize(
    ("text", "number"),
    [("", None), ("none", None), ("step 7, 9", 9), ("1" * 4096, 0), ("5 " * 4000 + "6", 5)],
)
def test_the_last_number_of_a_file_counts(node, tmp_path, text, number):
    (tmp_path / "steps").write_text(text)
    settled = threading.Event()
    file = StepsFile(Reach(uid=None, base=None, name=tmp_path / "steps"), on_settled=settled.set)
    file.look_last()
    assert settled.wait(60)
    record = Remembered(
        lease=node.lease(1, ""),
        tenant=agent.lease_record.tenant_of(node.lease(1, ""), "s"),
        boot="b",
        deadline_s=lease_clock_s(),
    )
    record.advance(file.number, file.number)
    assert record.tenant.steps_done == (number or 0)  # absurd ones are ignored


def test_only_regular_files_are_opened_and_no_more_is_read_than_asked_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    for name in ("fifo", "link", ".", "/dev/zero", "/dev/tty"):
        with pytest.raises(NotRegularError, match="no regular file"):
            read_regular(tmp_path / name, 10)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "nothing", 10)
    (tmp_path / "file").write_bytes(b"x" * 100)
    (tmp_path / "link2").symlink_to("file")
    assert read_regular(tmp_path / "link2", 10) == b"x" * 10
    assert LeaseFolder(tmp_path).read("fifo") is None
