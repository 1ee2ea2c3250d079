"""A reader of a page: types its commands, writes its files, and compares what is printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.runtime.intake import LETTERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[3]
#: For how long a reader repeats a command that does not print what the page shows.
PATIENCE_S = 120.0
#: Commands that go on until Ctrl-C, and for how long they are watched.
ENDLESS = re.compile(r"leasehold (watch|logs -f|top$)")
ENDLESS_S = 5
#: The environment is there already.
SET_UP = re.compile(r"python3 -m venv|pip install|export |source ")
#: An id: of a page, with a digit, or of the scheduler, which now and then has none. A word that
#: looks like one does no harm.
_ID = re.compile(
    rf"\b([a-z][a-z0-9-]*?)-(?:(?=[a-z0-9]*\d)(?:[0-9a-f]{{12}}|[a-z0-9]{{8}})|[{LETTERS}]{{8}})\b"
)
_FIGURE = re.compile(r"\d[\d,.:]*(?:[smhd%]\b|(?:d|h|m)\d+[hms]\b)?")


@dataclass(frozen=True, slots=True)
class Step:
    """A thing that a page asks its reader to do.

    Attributes:
        command: to type; empty for a file.
        shown: lines that the page shows below the command.
        file: to write.
        text: of the file.
    """

    command: str = ""
    shown: tuple[str, ...] = ()
    file: str = ""
    text: str = ""


def steps(page: str) -> Iterator[Step]:
    """Return the steps of a page in their order.

    A block is a file if it begins with a comment of its name, or if the text before names it as
    "file `NAME`".
    """
    before = 0
    for block in re.finditer(r"^```(\w*)\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        kind, text = block.groups()
        if kind in {"console", ""}:
            yield from _commands(text)
        named = re.search(r"file `([\w.-]+)`", page[before : block.start()].rpartition("\n#")[2])
        name = re.match(r"# ([\w-]+\.\w+)\n", text) or named
        if kind in {"toml", "yaml", "python", "csv", "json"} and name:
            yield Step(file=name.group(1), text=text)
        before = block.end()


def _commands(text: str) -> Iterator[Step]:
    if not re.search(r"^\$ ", text, re.MULTILINE):  # to be copied, and nothing is shown
        joined = re.sub(r"\\\n\s*", "", text)
        yield from map(Step, re.findall(r"^leasehold .*", joined, re.MULTILINE))
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *lines = part.splitlines()
        while lines and lines[0].startswith("> "):
            command += "\n" + lines.pop(0)[2:]
        yield Step(command=command, shown=tuple(lines))


def _without_folders(line: str) -> str:
    """Return a line with paths cut to their last parts: a folder may look like an id."""
    return re.sub(r"/\S*/", "/", line)


def masked(line: str) -> str:
    """Return a line without what differs between runs: ids, figures, paths and widths."""
    line = _ID.sub(r"\1-ID", _without_folders(line))
    return re.sub(r"\s+", " ", _FIGURE.sub("N", line)).strip()


def expected(shown: Sequence[str]) -> list[str]:
    """Return what must be printed, masked: headings of tables, and lines that are no rows."""
    lines = [line.strip() for line in shown if line.strip()]
    if lines and lines[0] == "...":
        lines = lines[1:]
    kept = [line for place, line in enumerate(lines) if place == 0 or "  " not in line]
    return [part for line in kept for part in map(str.strip, masked(line).split("...")) if part]


@dataclass
class Reader:
    """Follows pages in one folder, with a home of its own.

    Attributes:
        folder: the folder.
        ran: every command with its output, for the message of a failure.
    """

    folder: Path
    ran: list[str] = field(default_factory=list)
    _ids: dict[str, str] = field(default_factory=dict)
    _up: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.here = self.folder / "project"
        for folder in (self.here, self.folder / "home", self.folder / "shared"):
            folder.mkdir(parents=True)
        (self.here / "examples").symlink_to(ROOT / "examples")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LEASEHOLD", "XDG_"))}
        self._env = kept | {
            "HOME": str(self.folder / "home"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "LEASEHOLD_SERVER__PORT": "0",
            "COLUMNS": "200",
        }

    def follow(self, page: str, *, leave_out: Sequence[str] = ()) -> None:
        """Do all steps of a page.

        Args:
            page: its text; ``/shared`` lies in the reader's folder.
            leave_out: how the commands begin that need what is not there.

        Raises:
            AssertionError: a command ends with another code than the page shows, or does not print
                what it shows.
        """
        left = set(leave_out)
        for step in steps(page.replace("/shared", str(self.folder / "shared"))):
            skipped = {one for one in leave_out if step.command.startswith(one)}
            left -= skipped
            if step.file:
                (self.here / step.file).write_text(step.text)
            elif not skipped and not SET_UP.match(step.command):
                self.type(step)
        assert not left, f"the page has no command that begins so: {left}"

    def type(self, step: Step) -> None:
        """Run a command until it prints what the page shows."""
        if step.command.startswith("leasehold up"):
            self.start(step)
            return
        refused = len(step.shown) == 1 and step.shown[0].startswith("leasehold: ")
        end_s, pause_s = time.monotonic() + PATIENCE_S, 1.0
        while True:
            code, output = self._run(step.command)
            missing = self._compare(step.shown, output)
            if not missing and (code == 0 or refused):
                return
            why = f"ended with {code}, and did not print {missing}"
            assert code == 0, self._told(why)
            assert time.monotonic() < end_s, self._told(why)
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, 8.0)

    def _compare(self, shown: Sequence[str], output: str) -> list[str]:
        """Return what was not printed; note the ids in the place of the page's."""
        printed = {masked(line): line for line in output.splitlines()}
        for line in shown:
            if (same := printed.get(masked(line))) is not None:
                theirs, ours = (
                    [m.group() for m in _ID.finditer(_without_folders(x))] for x in (line, same)
                )
                self._ids |= dict(zip(theirs, ours, strict=True))
        return [part for part in expected(shown) if not any(part in line for line in printed)]

    def _run(self, command: str) -> tuple[int, str]:
        command = _ID.sub(lambda found: self._ids.get(found.group(), found.group()), command)
        endless = ENDLESS.match(command)
        if endless:
            command = f"timeout -s INT {ENDLESS_S} {command}"
        # The folder is kept for the next command, as in a terminal.
        typed = f"trap 'pwd > {self.folder}/here' EXIT\ncd {self.here}\n{command}"
        ran = subprocess.run(
            ["bash", "-c", typed],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._env,
            timeout=PATIENCE_S,
            check=False,
        )
        self.here = Path((self.folder / "here").read_text().strip())
        self.ran.append(f"$ {command}\n{ran.stdout}")
        return 0 if endless else ran.returncode, ran.stdout

    def start(self, step: Step) -> None:
        """Start ``leasehold up``, after Ctrl-C to the one before, and wait until it serves."""
        self.stop()
        log = self.folder / "up.log"
        with log.open("wb") as file:
            self._up = subprocess.Popen(
                ["bash", "-c", f"exec {step.command}"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self.here,
                start_new_session=True,
            )
        end_s = time.monotonic() + PATIENCE_S
        shown = step.shown or ("Leasehold 0.0.0 listens on http://127.0.0.1:1",)
        while missing := self._compare(shown, log.read_text()):
            assert self._up.poll() is None, log.read_text()
            assert time.monotonic() < end_s, f"{missing}\n{log.read_text()}"
            time.sleep(0.2)

    def stop(self) -> None:
        """Press Ctrl-C in the terminal of ``leasehold up``."""
        if self._up is None:
            return
        process, self._up = self._up, None
        process.send_signal(signal.SIGINT)
        try:
            code = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        assert code in {0, 130}, self._told(f"leasehold up ended with {code}")

    def _told(self, what: str) -> str:
        return "\n".join([*self.ran[-4:], what])
