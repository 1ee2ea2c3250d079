"""The process that searches output for steps, driven by hand."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time

import pytest

from agent.logs.job_output import RotatedLog
from agent.logs.matcher import LAG_BYTES, LINE_BYTES, PIECE_BYTES, OutputSearch, Tail
from agent.logs.matching import MOST_DEATHS, Matching, found_before


def search(tmp_path, pattern, *texts):
    tails = []
    for number, text in enumerate(texts):
        path = tmp_path / f"stdout.{number}.log"
        path.write_bytes(text)
        tails.append(Tail(path=path))
    made = OutputSearch(lease_id=1, pattern=pattern, tails=tails, state=tmp_path / "found")
    made.begin()
    return made


def to_the_end(made):
    made.finishing = True
    turns = 0
    while made.turn():
        turns += 1
        assert turns < 10_000
    assert made.finished
    return made.steps, made.saved


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"step (\d+)", b"step 3\nno\nstep 12\nstep 5\n", (12, 0)),
        (r"step (\d+)", b"step 3\nstep 4", (4, 0)),
        (r"step (?P<steps>\d+)", b"\xff step 7\n", (7, 0)),
        (r"saved (?P<saved>\d+)", b"saved 9\n", (0, 9)),
        (r"(?P<steps>\d+)/(?P<saved>\d+)", b"12/10\n", (12, 10)),
        (r"step (\w+)", b"step two\n", (0, 0)),
        (r"step (\d+)", b"step 5\nstep " + b"9" * 4000 + b"\n", (5, 0)),
        (r"^(\d+)/100", b"".join(b"\r%d/100 |%s|" % (n, b"#" * 80) for n in range(90)), (89, 0)),
        (r"step (\d+)$", b"step 3\r\nstep 4\r\n", (4, 0)),
        (r"\r(\d+) done", b"0 of\r3 done\r4 done\n", (3, 0)),
        (r"\x0D(\d+) done", b"0 of\r3 done\r4 done\n", (3, 0)),
        (r"C:\\runs\\(\d+)", b"\rC:\\runs\\3\rC:\\runs\\4\r", (4, 0)),
        (r"step (\d+)", b"step 5\nstep %d\nstep %d\n" % (2**53, 2**53 - 1), (2**53 - 1, 0)),
    ],
)
def test_steps_are_found_in_output(tmp_path, pattern, text, found):
    assert to_the_end(search(tmp_path, pattern, text)) == found
    assert found_before(tmp_path / "found") == (0, 0)


def test_what_was_told_lies_in_the_file_and_the_next_process_goes_on_there(tmp_path):
    made = search(tmp_path, r"step (\d+)", b"step 3\nstep 4")
    assert made.turn()
    news = made.news()
    assert (news["steps_live"], news["steps_done"], news["finished"]) == (3, 0, False)
    assert found_before(tmp_path / "found") == (3, 0)
    next_one = OutputSearch(
        lease_id=1,
        pattern=r"step (\d+)",
        tails=[Tail(path=tmp_path / "stdout.0.log")],
        state=tmp_path / "found",
    )
    next_one.begin()
    assert (next_one.steps, next_one.tails[0].offset) == (3, len("step 3\n"))
    with (tmp_path / "stdout.0.log").open("ab") as file:
        file.write(b"4\n")
    assert to_the_end(next_one) == (44, 0)


@pytest.mark.parametrize(
    "spoilt",
    [b"", b"[]", b'{"steps_live": 1e400}', b"[" * 10000, b'{"steps_live": true, "offsets": 3}'],
)
def test_a_file_that_a_job_has_written_over_harms_nobody(tmp_path, spoilt):
    (tmp_path / "found").write_bytes(spoilt)
    assert found_before(tmp_path / "found") == (0, 0)
    assert to_the_end(search(tmp_path, r"step (\d+)", b"step 3\n")) == (3, 0)
    (tmp_path / "found").unlink()
    os.mkfifo(tmp_path / "found")
    assert found_before(tmp_path / "found") == (0, 0)


def test_the_output_of_all_processes_of_a_node_counts(tmp_path):
    assert to_the_end(search(tmp_path, r"step (\d+)", b"step 3\n", b"step 8\n", b"")) == (8, 0)


def test_of_a_long_line_only_the_beginning_is_searched(tmp_path):
    long = b"step 1 " + b"x" * PIECE_BYTES + b" step 2\nstep 1\n"
    assert to_the_end(search(tmp_path, r"step (\d+)", long)) == (1, 0)
    short = b"x" * (LINE_BYTES - 6) + b"step 2\nstep 1\n"
    assert to_the_end(search(tmp_path, r"step (\d+)", short)) == (2, 0)


def test_of_output_that_is_far_ahead_the_newest_is_searched(tmp_path):
    lines = b"".join(b"step %d\n" % n for n in range(LAG_BYTES // 6))
    assert len(lines) > LAG_BYTES
    made = search(tmp_path, r"step (\d+)", lines)
    assert made.turn()
    assert len(lines) - LAG_BYTES // 2 <= made.tails[0].offset
    assert made.news()["skipped"] == len(lines) - LAG_BYTES // 2
    assert to_the_end(made) == (LAG_BYTES // 6 - 1, 0)


def test_output_is_followed_over_rotations_also_by_another_writer(tmp_path):
    path = tmp_path / "stdout.0.log"
    made = search(tmp_path, r"step (\d+)", b"")
    written = 0
    for _ in range(3):  # an agent on Kubernetes writes the files itself, and is restarted
        log = RotatedLog(path=path, max_bytes=100, backups=1)
        log.recall()
        for _ in range(30):
            written += 1
            log.write(b"step %d\n" % written)
            while made.turn():
                pass
            assert made.steps == written
        log.close()
    assert made.tails[0].skipped == 0


def test_nothing_but_a_regular_file_is_read_as_output(tmp_path):
    made = search(tmp_path, r"step (\d+)", b"")
    (tmp_path / "stdout.0.log").unlink()
    os.mkfifo(tmp_path / "stdout.0.log")
    assert to_the_end(made) == (0, 0)


def test_an_expression_that_re2_does_not_know_is_told_and_never_searched(tmp_path):
    made = search(tmp_path, r"(?=step)step (\d+)", b"step 3\n")
    assert (made.turn(), made.finished) == (False, True)
    assert "RE2 has no lookahead" in made.news()["problem"]
    assert made.news() is None


class Desk:
    """An agent's side of the process, with a file of output."""

    def __init__(self, folder, **settings):
        self.folder, self.output = folder, folder / "stdout.0.log"
        self.changed = asyncio.Event()
        self.matching = Matching(on_change=self.changed.set, **settings)

    def watch(self, expression, lease_id=1):
        return self.matching.watch(
            lease_id, expression=expression, files=[self.output], state=self.folder / "found"
        )

    async def until(self, condition):
        end_s = time.monotonic() + 60
        while not (found := condition()):
            assert time.monotonic() < end_s
            await asyncio.sleep(0.01)
        return found

    def pid(self):
        process = self.matching._process
        return process and process.pid


def play(scene, tmp_path, **settings):
    async def main():
        desk = Desk(tmp_path, **settings)
        task = asyncio.create_task(desk.matching.run())
        try:
            await scene(desk)
        finally:
            task.cancel()
            await asyncio.wait([task])
        pid = desk.pid()
        assert pid is None  # none is left behind

    asyncio.run(main())


def test_a_process_that_was_killed_is_started_again_and_goes_on(tmp_path):
    async def scene(desk):
        desk.output.write_text("step 1\n")
        watch = desk.watch(r"step (\d+)")
        await desk.until(lambda: watch.steps == 1)
        first = desk.pid()
        os.kill(first, signal.SIGKILL)
        with desk.output.open("a") as file:
            file.write("step 2\nstep 3")
        await desk.until(lambda: watch.steps == 2)
        assert desk.pid() != first
        desk.matching.finish(watch)
        await desk.until(lambda: watch.finished)
        assert (watch.steps, watch.saved, watch.tells_saved, watch.problem) == (3, 0, False, "")

    play(scene, tmp_path)


def test_an_expression_that_takes_long_delays_nobody_elses(tmp_path):
    async def scene(desk):
        desk.output.write_text("a" * 4000 + "\n" + ("aaaa\n" * 1000 + "a" * 4000 + "\n") * 100)
        slow = desk.watch("(" + "(a*)*" * 90 + ")b")
        other = desk.folder / "other.log"
        other.write_text("step 5\n")
        quick = desk.matching.watch(
            2, expression=r"step (\d+)", files=[other], state=desk.folder / "other"
        )
        desk.matching.finish(quick)
        await desk.until(lambda: quick.finished)
        assert (quick.steps, slow.finished) == (5, False)

    play(scene, tmp_path)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("raise SystemExit(3)", "ended with code 3"),
        ("print('no JSON', flush=True)", "is malformed"),
        ("print('[1]', flush=True)", "is malformed"),
        ("print('{\"lease\": []}', flush=True)", "is malformed"),
        ("print('x' * 100_000, flush=True)", "is malformed"),
        ("import time; time.sleep(60)", "silent"),
    ],
)
def test_a_process_that_never_works_turns_progress_off_with_a_reason(
    tmp_path, monkeypatch, program, words
):
    monkeypatch.setattr("agent.logs.matching.RESTART_MOST_S", 0.2)

    async def scene(desk):
        watch = desk.watch(r"step (\d+)")
        await desk.until(lambda: watch.finished)
        await desk.until(desk.changed.is_set)
        assert f"has ended {MOST_DEATHS} times" in watch.problem
        assert words in watch.problem

    play(scene, tmp_path, command=(sys.executable, "-c", program), silence_s=1.0)


def test_a_program_that_is_not_there_turns_progress_off_too(tmp_path, monkeypatch):
    monkeypatch.setattr("agent.logs.matching.RESTART_MOST_S", 0.2)

    async def scene(desk):
        watch = desk.watch(r"step (\d+)")
        await desk.until(lambda: watch.finished)
        assert "cannot be started" in watch.problem

    play(scene, tmp_path, command=("/no/such/program",))


def test_nothing_is_started_while_nobody_has_an_expression(tmp_path):
    async def scene(desk):
        await asyncio.sleep(0)
        assert desk.pid() is None
        watch = desk.watch(r"step (\d+)")
        await desk.until(desk.pid)
        desk.matching.drop(watch.lease_id)

    play(scene, tmp_path)


def test_figures_never_shrink(tmp_path):
    (tmp_path / "found").write_text(json.dumps({"steps_live": 9, "steps_done": 4}))

    async def scene(desk):
        desk.output.write_text("step 5\n")
        watch = desk.watch(r"step (\d+)")
        assert (watch.steps, watch.saved) == (9, 4)
        desk.matching.finish(watch)
        await desk.until(lambda: watch.finished)
        assert (watch.steps, watch.saved) == (9, 4)

    play(scene, tmp_path)
