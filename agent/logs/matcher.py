"""The process that searches jobs' output for steps with the users' expressions.

It holds no deadline and no event loop: a slow expression makes only this process slow. It reads the
files that output is written to anyway, so no queue can grow, and serves the leases in turns. If a
job prints more than can be searched, older output is skipped: only the newest figures matter.

It receives orders and sends results as lines of JSON; when the orders end, it ends. Its results and
positions are stored in a file per lease, so that the next process continues there.

| line to it | means |
|---|---|
| ``lease``, ``expression``, ``files``, ``state`` | search these files; ``state`` is its file |
| ``lease``, ``finish`` | the output is complete: search it to its end and report that |
| ``lease``, ``drop`` | drop it |
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.logs.job_output import SPOILT, read_regular, write_json
from agent.logs.log_files import end_of, read_piece
from scheduler.domain.jobs.expressions import progress_expression
from scheduler.errors import InputError
from scheduler.protocol import bounds

#: The searched part of a line.
LINE_BYTES: Final = 4096
#: Bytes that are read at once.
PIECE_BYTES: Final = 2**18
#: Output that is further behind is skipped, down to half of this.
LAG_BYTES: Final = 2**23
#: Longest turn of a lease while others wait, except for its last line.
TURN_S: Final = 0.1
#: A carriage return in an expression, once ``\\\\`` is left out.
_RETURN: Final = re.compile(r"\r|\\(?:r|x0d|x\{0*d\}|0?15)", re.IGNORECASE)
#: Between two checks for output while there is no more.
POLL_S: Final = 0.2
#: Between two signs of life.
SIGN_S: Final = 5.0
#: Between two reports on one lease while its figures grow.
TELL_S: Final = 0.2
#: A number with more digits is not plausible, and takes long to read.
MOST_DIGITS: Final = 100
#: The niceness of this process: ends of leases wait for it, some seconds.
NICE: Final = 5


@dataclass(kw_only=True)
class Tail:
    """One file of output and its searched part.

    Attributes:
        path: the stream's newest file.
        offset: bytes of the stream that are done.
        cut: the rest of the line at ``offset`` is not searched.
        skipped: skipped bytes.
    """

    path: Path
    offset: int = 0
    cut: bool = False
    skipped: int = 0
    _seen: tuple[int, int] | None = field(default=None, init=False)

    def piece(self) -> bytes:
        """Return what follows, up to ``PIECE_BYTES``; empty if there is nothing."""
        if not self._news():
            return b""
        end = end_of(self.path)
        if end is not None and end < self.offset:
            self.offset = 0  # the file was started again
        if end is not None and end - self.offset > LAG_BYTES:
            self._skip(end - LAG_BYTES // 2)
        if end is None or end > self.offset:
            self._seen = None  # there is more, or the index is not up to date: check again
        found = read_piece(self.path, self.offset, PIECE_BYTES)
        if found.offset > self.offset:
            self._skip(found.offset)
        return found.data

    def _news(self) -> bool:
        """Return whether the file has changed since all of it was read."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        now = status.st_ino, status.st_size
        before, self._seen = self._seen, now
        return now != before

    def _skip(self, offset: int) -> None:
        self.skipped += offset - self.offset
        self.offset, self.cut = offset, True


@dataclass(kw_only=True)
class OutputSearch:
    """The search of one lease's output."""

    lease_id: int
    pattern: str
    tails: list[Tail]
    state: Path
    steps: int = 0
    saved: int = 0
    problem: str = ""
    tells_saved: bool = False
    absurd: bool = False
    finishing: bool = False
    finished: bool = False
    _seeks_returns: bool = field(default=False, init=False)
    _expression: Any = field(default=None, init=False)
    _told: dict[str, Any] = field(default_factory=dict, init=False)
    _told_s: float = field(default=0.0, init=False)

    def begin(self) -> None:
        """Read the results of an earlier process, and compile the expression."""
        with contextlib.suppress(*SPOILT, AttributeError):
            data = json.loads(read_regular(self.state, 65536))
            self.steps, self.saved = read_count(data["steps_live"]), read_count(data["steps_done"])
            offsets = data.get("offsets", {})
            for tail in self.tails:
                tail.offset = read_count(offsets.get(tail.path.name, 0))
        self._seeks_returns = bool(_RETURN.search(self.pattern.replace("\\\\", "")))
        try:
            self._expression = progress_expression(self.pattern)
        except InputError as error:
            self.problem = f"progress_regex {self.pattern!r} {error}"
            self.finished = True
        else:
            self.tells_saved = "saved" in self._expression.groupindex

    def turn(self) -> bool:
        """Search a piece of each file, while there is time; return whether there was any."""
        if self.finished:
            return False
        found, end_s = False, time.monotonic() + TURN_S
        for _ in self.tails:
            tail = self.tails.pop(0)
            self.tails.append(tail)
            found |= self._search(tail, tail.piece(), end_s)
            if time.monotonic() >= end_s:
                return True
        self.finished = self.finishing and not found
        return found

    def _search(self, tail: Tail, data: bytes, end_s: float) -> bool:
        """Search whole lines, and at the end the rest, until the time is up.

        A carriage return ends a line, too, unless the expression has one.

        Returns:
            whether there was anything to search.
        """
        begin = 0
        if not self._seeks_returns:
            data = data.replace(b"\r", b"\n")  # of progress bars, which begin their line again
        last = self.finishing and len(data) < PIECE_BYTES  # no output follows
        while begin < len(data) and (not begin or time.monotonic() < end_s):
            end = data.find(b"\n", begin)
            whole = end >= 0
            line = data[begin : end if whole else len(data)]
            if not whole and len(line) < LINE_BYTES and not last:
                break  # the rest of the line will come
            if not tail.cut:
                self._take(line[:LINE_BYTES])
            tail.cut = not whole
            begin += len(line) + whole
        tail.offset += begin
        return begin > 0

    def _take(self, line: bytes) -> None:
        """Search one line for numbers of steps."""
        # Bytes are searched several times as fast as text, because offsets in text must be counted.
        text = line if line.isascii() else line.decode(errors="replace").encode()
        found = self._expression.search(text)
        if found is None:
            return
        names = self._expression.groupindex
        live = found["steps"] if "steps" in names else None
        if not live and not self.tells_saved:
            live = found[1]
        self.steps = max(self.steps, self._whole(live))
        if self.tells_saved:
            self.saved = max(self.saved, self._whole(found["saved"]))

    def _whole(self, found: bytes | None) -> int:
        """Return the number that a group has found; 0 if it is not a number, or absurd."""
        text = (found or b"").decode(errors="replace")
        if not text.isdecimal():
            return 0
        number = bounds.step_count(int(text)) if len(text) < MOST_DIGITS else None
        self.absurd |= number is None
        return number or 0

    def news(self) -> dict[str, Any] | None:
        """Return the unreported results, after storing them in the file."""
        now_s = time.monotonic()
        figures: dict[str, Any] = {
            "steps_live": self.steps,
            "steps_done": self.saved,
            "problem": self.problem,
            "tells_saved": self.tells_saved,
            "absurd": self.absurd,
            "skipped": sum(tail.skipped for tail in self.tails),
        }
        due = now_s - self._told_s >= TELL_S or self.finished
        tell = figures | {"lease": self.lease_id, "finished": self.finished}
        if tell == self._told or not due:
            return None
        self._told, self._told_s = tell, now_s
        offsets = {tail.path.name: tail.offset for tail in self.tails}
        with contextlib.suppress(OSError):  # a full disk: the next process repeats a part
            write_json(self.state, figures | {"offsets": offsets})
        return tell


def read_count(value: object) -> int:
    """Return a number of steps or bytes from a file that a job may have overwritten."""
    return bounds.step_count(value) or 0


@dataclass(kw_only=True)
class Matcher:
    """All searches of one agent."""

    searches: dict[int, OutputSearch] = field(default_factory=dict)
    _rest: bytes = b""

    def run(self) -> None:
        """Serve until standard input ends."""
        busy, sign_s = False, 0.0
        while self._listen(0.0 if busy else POLL_S):
            busy = False
            for search in tuple(self.searches.values()):
                busy |= search.turn()
                news = search.news()
                if news is not None:
                    _tell(news)
                sign_s = _live(sign_s)
            sign_s = _live(sign_s)

    def _listen(self, wait_s: float) -> bool:
        """Take in orders; return False at the end."""
        ready, _, _ = select.select([0], [], [], wait_s)
        if not ready:
            return True
        data = os.read(0, 65536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))
        return bool(data)

    def _obey(self, order: dict[str, Any]) -> None:
        lease_id = order["lease"]
        if order.get("drop"):
            self.searches.pop(lease_id, None)
        elif order.get("finish"):
            if lease_id in self.searches:
                self.searches[lease_id].finishing = True
        else:
            tails = [Tail(path=Path(name)) for name in order["files"]]
            search = OutputSearch(
                lease_id=lease_id,
                pattern=order["expression"],
                tails=tails,
                state=Path(order["state"]),
            )
            search.begin()
            self.searches[lease_id] = search


def _live(told_s: float) -> float:
    """Send a sign of life if the last one is long ago; return the time of the last one."""
    if time.monotonic() - told_s < SIGN_S:
        return told_s
    _tell({})
    return time.monotonic()


def _tell(news: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(news) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent
    os.nice(NICE)
    with contextlib.suppress(BrokenPipeError):
        Matcher().run()


if __name__ == "__main__":
    main()
