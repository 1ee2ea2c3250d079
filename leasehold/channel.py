"""The channel to the agent: a thread that reports progress and listens for the notice.

The training loop never waits for the channel: a step is one assignment to an attribute. If the
agent is away (it may restart under a running job), the channel retries. Meanwhile the notice file
and SIGTERM still work, and steps are written to a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

from leasehold.bounds import LONGEST_NAME, MOST_COUNT, MOST_RANKS

if TYPE_CHECKING:
    from types import FrameType

    from leasehold.surroundings import Surroundings

#: Longest wait for the agent to read the last report.
RECEIPT_MOST_S: Final = 1.0


class Channel:
    """Reports steps and receives the notice, in a separate thread.

    Args:
        surroundings: of this process; they name the endpoint.
        report_every_s: seconds between two reports.

    Raises:
        ValueError: no agent accepts the environment's values for this process.

    Attributes:
        steps_live: steps done; the loop counts here.
        steps_done: steps that are checkpointed.
        learning: measurements of a job with adaptive batches; replaced, not changed. They are sent
            once over each connection.
        noticed: the job must leave.
        leave_by_s: when SIGTERM comes, on ``time.monotonic``; None if not known.
    """

    def __init__(self, surroundings: Surroundings, *, report_every_s: float) -> None:
        if surroundings.leased:
            _check(surroundings)
        self.steps_live = 0
        self.steps_done = 0
        self.learning: dict[str, Any] | None = None
        self._learning_told: dict[str, Any] | None = None
        self.noticed = False
        self.leave_by_s: float | None = None
        self._surroundings = surroundings
        self._report_every_s = report_every_s
        self._socket: socket.socket | None = None
        self._unread = b""
        self._wake_reader, self._wake_writer = -1, -1
        self._closing = False
        self._took_sigterm, self._sigterm_before = False, signal.getsignal(signal.SIGTERM)
        _CHANNELS.add(self)
        self._thread: threading.Thread | None = None  # one made before a fork is dead after it

    def start(self) -> None:
        """Begin to report and listen."""
        self._wake_reader, self._wake_writer = os.pipe()
        self._thread = threading.Thread(target=self._run, name="leasehold", daemon=True)
        self._thread.start()

    def take_sigterm(self) -> None:
        """Take SIGTERM as a notice until the channel is closed, if this is the main thread."""
        if threading.current_thread() is threading.main_thread():
            self._sigterm_before = signal.signal(signal.SIGTERM, self._notice)
            self._took_sigterm = True

    def close(self) -> None:
        """Send a last report and stop; SIGTERM has its former effect again."""
        self._stop()
        self._give_sigterm_back()
        _CHANNELS.discard(self)

    def leave_to_parent(self) -> None:
        """Forget everything, in a forked child: the lease is its parent's.

        Signals have their former effect, so that the parent can end the child, and nothing keeps
        the parent's connection open. A channel that has not begun may begin in the child.
        """
        self._give_sigterm_back()
        if self._thread is not None:
            self._closing = True
            self._close_pipe()
            self._disconnect()

    def _close_pipe(self) -> None:
        for descriptor in (self._wake_reader, self._wake_writer):
            if descriptor >= 0:
                os.close(descriptor)
        self._wake_reader = self._wake_writer = -1

    def _notice(self, _number: int, _frame: FrameType | None) -> None:
        self.noticed = True

    def _give_sigterm_back(self) -> None:
        if self._took_sigterm:
            before = self._sigterm_before
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
            self._took_sigterm = False

    def _stop(self) -> None:
        if self._closing or self._thread is None or not self._thread.is_alive():
            return
        self._closing = True
        os.write(self._wake_writer, b"x")
        self._thread.join(timeout=RECEIPT_MOST_S + 1.0)
        self.leave_steps()
        if not self._thread.is_alive():
            self._close_pipe()

    def leave_steps(self) -> None:
        """Write the steps to the file that an agent reads after it was away."""
        path = self._surroundings.progress_file
        if path is None or self._surroundings.rank:
            return
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):  # the agent has forgotten the lease
            temporary.write_text(json.dumps(self._steps()))
            temporary.replace(path)

    def _steps(self) -> dict[str, int]:
        """Return the steps in the agent's form; one bad value makes it refuse the whole line."""
        told = {"steps_live": self.steps_live, "steps_done": self.steps_done}
        return {name: min(max(int(steps), 0), MOST_COUNT) for name, steps in told.items()}

    def _run(self) -> None:
        due_s = 0.0
        while not self._closing:
            if time.monotonic() >= due_s:
                self._look_at_file()
                self._report()
                due_s = time.monotonic() + self._report_every_s
            self._listen(max(due_s - time.monotonic(), 0.0))
        self._report()
        self._await_receipt()
        self._disconnect()

    def _await_receipt(self) -> None:
        """Wait until the agent has read the last report, and closes the connection.

        If this process closed it first, and the agent then answered an earlier report, the answer
        would fail and the agent would drop the reports that it has not read.
        """
        if self._socket is None:
            return
        end_s = time.monotonic() + RECEIPT_MOST_S
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while (left_s := end_s - time.monotonic()) > 0:
                ready, _, _ = select.select([self._socket], [], [], left_s)
                if ready and not self._socket.recv(4096):
                    return

    def _report(self) -> None:
        message: dict[str, Any] = {
            "secret": self._surroundings.secret,
            "rank": self._surroundings.rank,
        }
        try:
            agent, learning = self._connected(), self.learning
            if learning is not self._learning_told:
                message["learning"] = learning
            agent.sendall(json.dumps(message | self._steps()).encode() + b"\n")
            self._learning_told = learning
        except OSError:
            self._disconnect()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = connect(str(self._surroundings.endpoint), timeout_s=1.0)
        return self._socket

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._unread = None, b""
        self._learning_told = None  # the next agent does not know it

    def _listen(self, timeout_s: float) -> None:
        """Wait for a line of the agent, or for the end."""
        sources: list[int | socket.socket] = [self._wake_reader]
        if self._socket is not None:
            sources.append(self._socket)
        ready, _, _ = select.select(sources, [], [], timeout_s)
        if self._socket is None or self._socket not in ready:
            return
        try:
            data = self._socket.recv(4096)
        except OSError:
            data = b""
        if not data:
            self._disconnect()
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict) and message.get("notice"):
                leave_in_s = message.get("leave_in_s")
                if isinstance(leave_in_s, int | float):
                    self.leave_by_s = time.monotonic() + leave_in_s
                self.noticed = True

    def _look_at_file(self) -> None:
        path = self._surroundings.notice_file
        if path is not None and path.exists():
            self.noticed = True


#: The channels of this process.
_CHANNELS: Final[weakref.WeakSet[Channel]] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for channel in list(_CHANNELS):
        with contextlib.suppress(OSError, ValueError):
            channel.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)


def _check(surroundings: Surroundings) -> None:
    """Refuse values that each line would contain and the agent would refuse each time."""
    length, rank = len(surroundings.secret), surroundings.rank
    if length > LONGEST_NAME:
        raise ValueError(
            f"LEASEHOLD_SECRET has {length} characters, and the agent gives at most "
            f"{LONGEST_NAME}; leave the variable as the agent has set it"
        )
    if not 0 <= rank <= MOST_RANKS:
        raise ValueError(f"RANK is {rank}; give one from 0 to {MOST_RANKS}")


def connect(endpoint: str, *, timeout_s: float) -> socket.socket:
    """Return a connection to an agent's endpoint: a path, or ``tcp://host:port``.

    Raises:
        OSError: no process listens there.
    """
    if endpoint.startswith("tcp://"):
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        number = int(port) if port.isdecimal() else 0
        return socket.create_connection((host.strip("[]"), number), timeout=timeout_s)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout_s)
        made.connect(endpoint)
    except OSError:
        made.close()
        raise
    return made
