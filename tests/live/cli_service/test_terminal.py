"""What jobs write does not act on the terminal that shows it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.cli.display.output import plain_cell
from scheduler.logs.output import LogChunk
from scheduler.logs.terminal_text import TerminalText, fit_for_terminal

#: Bytes of a job, and the terminal's text of them.
SHOWN = [
    (b"plain\n\ttext\r", "plain\n\ttext\r"),
    ("gr\u00fc\u00df".encode(), "gr\u00fc\u00df"),
    (b"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m\x1b[0m"),
    (b"\x1b[1;38:5:9mred", "\x1b[1;38:5:9mred\x1b[0m"),
    (b"a\x1b[2J\x1b[Hb\x1b[6nc\x1b[?1049hd", "abcd"),
    (b"\x1b]0;title\x07a\x1b]52;c;ZXZpbA==\x1b\\b", "ab"),
    (b"\x1bP$q\x1b\\a\x1b_x\x1b\\b", "ab"),
    ("a\u009b2Jb\u009d0;x\u009cc".encode(), "abc"),
    (b"\x1bc\x07\x08\x7f\x00", "\ufffdc\ufffd\ufffd\ufffd\ufffd"),
    (b"a\x1b", "a\ufffd"),
    (b"a\x1b[3", "a\ufffd[3"),
    (b"\xff\xc3", "\ufffd\ufffd"),
    ("\u202egnp.exe".encode(), "\ufffdgnp.exe"),
]


def shown(data, sizes=()):
    text, made = TerminalText(), []
    for size in sizes:
        made.append(text.feed(data[:size]))
        data = data[size:]
    return "".join([*made, text.feed(data), text.end()])


@pytest.mark.parametrize(("data", "text"), SHOWN)
def test_a_terminal_gets_text_and_colours(data, text):
    assert shown(data) == text


@given(st.data(), st.sampled_from(SHOWN))
def test_it_does_not_matter_where_pieces_end(draw, case):
    data, text = case
    sizes = draw.draw(st.lists(st.integers(0, 5), max_size=20))
    assert shown(data, sizes) == text


@given(st.binary(max_size=200), st.lists(st.integers(0, 50), max_size=5))
def test_nothing_but_colours_gets_through(data, sizes):
    rest = shown(data, sizes)
    for part in rest.split("\x1b")[1:]:
        assert part.startswith("[")
        assert part[1:].lstrip("0123456789:;").startswith("m")
    others = set(map(chr, [*range(32), *range(127, 160)])) - {"\t", "\n", "\r", "\x1b"}
    assert not others & set(rest)


def test_what_never_ends_is_not_waited_for():
    assert len(shown(b"\x1b]" + b"x" * 10_000, [1000] * 10)) >= 10_000


def test_cells_and_lines_hold_no_control_characters():
    evil = "a\x1b[2Jb\x9bc\u202e"
    assert plain_cell(evil) == "a\ufffd[2Jb\ufffdc\ufffd"
    assert not {"\x1b", "\x9b", "\u202e"} & set(fit_for_terminal(evil))


EVIL = b"\x1b[2Jout\x1b]0;title\x07\n"


@pytest.fixture
def job(scheduler, leasehold):
    job_id = leasehold("submit", "--", "./train").out.strip()
    chunk = LogChunk(stream="out", node="alpha", attempt=1, offset=0, data=EVIL, kept_from=0)
    scheduler.service.log.append((job_id, chunk))
    return job_id


def on_a_terminal(scheduler, *arguments):
    """Return a command's output in a terminal."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "leasehold", *arguments]
    env = dict(os.environ) | {"LEASEHOLD_SERVER": scheduler.url}
    with subprocess.Popen(command, stdout=follower, stderr=subprocess.STDOUT, env=env) as process:
        os.close(follower)
        parts = []
        with contextlib.suppress(OSError):  # a terminal's error once no process is left
            while part := os.read(leader, 4096):
                parts.append(part)
        assert process.wait(60) == 0
    os.close(leader)
    return b"".join(parts)


def test_a_jobs_output_does_not_act_on_a_terminal_unless_it_is_asked_to(job, scheduler, leasehold):
    assert on_a_terminal(scheduler, "logs", job) == b"out\r\n"
    assert on_a_terminal(scheduler, "logs", job, "--raw") == EVIL.replace(b"\n", b"\r\n")
    assert leasehold("logs", job).out.encode() == EVIL, "a pipe gets every byte"


def test_json_escapes_what_terminals_act_upon(scheduler, leasehold, job):
    data = "\u009b2J\u202e\x1b".encode()
    chunk = LogChunk(stream="out", node="beta", attempt=1, offset=0, data=data, kept_from=0)
    scheduler.service.log.append((job, chunk))
    line = leasehold("logs", job, "--json").out.splitlines()[-1]
    assert not {"\u009b", "\u202e", "\x1b"} & set(line)
    assert json.loads(line)["text"] == "\u009b2J\u202e\x1b"


@pytest.mark.parametrize("begin", ["\x9d", "\x1b]", "\x90", "\x1b[", "\x9b"])
@pytest.mark.parametrize("end", ["", "\x07", "\n"])
def test_many_beginnings_of_sequences_take_no_longer_than_other_text(begin, end):
    """Each of them once made the reader look to the end of the text."""
    text = TerminalText()
    shown = text.feed((begin * 100_000 + end).encode()) + text.end()
    assert "\x1b" not in shown
    assert "\x9d" not in shown
