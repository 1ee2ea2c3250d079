"""Commands that people run beside their jobs' processes: ``leasehold exec``.

They are no decisions: the leader keeps them in memory, and the next leader does not know them. The
agent ends a command that the leader does not know. An order goes to its node with the next desired
set.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta

from scheduler.errors import AdmissionError, ConflictError, InputError, NotFoundError
from scheduler.protocol.desired import DesiredExec
from scheduler.runtime.signals import News, first_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from scheduler.clock import Clock
    from scheduler.control.state.leases import Member
    from scheduler.control.state.view import PublishedState

#: The most commands at once: in all, of one user, and of one job.
MOST, MOST_OF_USER, MOST_OF_JOB = 64, 16, 4
#: The most bytes that a command may print, and may leave unread before it has to wait.
MOST_OUTPUT, MOST_UNREAD = 16 * 2**20, 2**20
#: How long a node may take to start an order, how long it may be silent, and how long no client may
#: read.
TAKEN_UP_S, SILENT_S, UNREAD_S = 30.0, 30.0, 60.0
#: How long a command that has ended is kept.
KEPT_S: Final = 60.0
_SHOWN: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOutput:
    """Output of a command: ``out`` or ``err``."""

    stream: Literal["out", "err"]
    data: Annotated[bytes, Meta(max_length=3 * 2**19)]


@dataclass(slots=True, kw_only=True)
class Exec:
    """A command.

    Attributes:
        exec_id: cannot be guessed.
        job_id: the job that it runs beside.
        node: the node on which it runs.
        order: the order for the node.
        actor: the user that asked for it.
        told: whether the order was sent.
        asked_again: whether the node has asked for its desired set again since then.
        begun_s: when a user asked for it.
        read_s: when a client last asked for its output.
        heard_s: when the node last reported on it, or None.
        pieces: unread pieces of its output.
        first: number of the first unread piece.
        printed: bytes so far.
        reports: number of the node's reports that were taken in.
        exit_code: how it ended; 128 plus the signal's number if a signal ended it, None if there is
            a problem.
        problem: why it did not run, or was ended.
        stopped: whether the node must end it.
        done_s: when it had ended, or None.
    """

    exec_id: str
    job_id: str
    node: str
    order: DesiredExec
    actor: str
    begun_s: float
    read_s: float
    told: bool = False
    asked_again: bool = False
    heard_s: float | None = None
    pieces: list[ExecOutput] = field(default_factory=list)
    first: int = 0
    printed: int = 0
    reports: int = 0
    exit_code: int | None = None
    problem: str = ""
    stopped: bool = False
    done_s: float | None = None
    news: News = field(default_factory=News)

    def end(self, now_s: float, *, exit_code: int | None = None, problem: str = "") -> None:
        """Note how it ended."""
        if self.done_s is None:
            self.problem, self.done_s = self.problem or problem, now_s
            self.exit_code = None if self.problem else exit_code  # no code if there is a problem
        self.tell()

    def tell(self) -> None:
        """Wake the clients that wait for output."""
        self.news.set()
        self.news = News()


class Execs:
    """The commands of a leader.

    Args:
        clock: the time.
        view: returns the published state; raises if this process does not lead.
        wake: makes a node's desired set be sent.
        note: appends a line of history.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        view: Callable[[], PublishedState],
        wake: Callable[[Sequence[str]], None],
        note: Callable[..., Awaitable[None]],
    ) -> None:
        self._clock = clock
        self._view = view
        self._wake = wake
        self._note = note
        self._known: dict[str, Exec] = {}

    def forget(self) -> None:
        """Drop all commands: this process does not lead any more."""
        now_s = self._clock.now_s()
        for one in self._known.values():
            one.end(now_s, problem="the leader has changed; commands end with the old leader")
        self._known.clear()

    async def begin(
        self,
        job_id: str,
        command: Sequence[str],
        *,
        stdin: bytes,
        rank: int | None,
        node: str | None,
        most_s: float,
        actor: str,
    ) -> Exec:
        """Start a command beside a running job.

        Args:
            job_id: of the job.
            command: with its arguments.
            stdin: its standard input.
            rank: the rank of the gang's process beside which it runs; the first one by default.
            node: the node on which it runs, instead of a rank.
            most_s: how long it may run.
            actor: the user that asks.

        Raises:
            ConflictError: the job does not run.
            InputError: the job has no such rank or node.
            AdmissionError: there are too many commands.
        """
        view, now_s = self._view(), self._clock.now_s()
        self._sweep(now_s)
        live = view.leases.by_id.get(view.leases.of_job.get(job_id, -1))
        if live is None:
            raise ConflictError(f"job '{job_id}' holds no workers now; exec needs one that runs")
        running = [one for one in self._known.values() if one.done_s is None]
        own = sum(one.actor == actor for one in running)
        of_job = sum(one.job_id == job_id for one in running)
        if len(running) >= MOST or own >= MOST_OF_USER or of_job >= MOST_OF_JOB:
            raise AdmissionError(
                f"{len(running)} commands run beside jobs already, {own} of '{actor}' and {of_job} "
                f"beside this job; at most {MOST}, {MOST_OF_USER} and {MOST_OF_JOB} may; wait for "
                "one to end"
            )
        member, position = _place(live.members, rank, node)
        order = DesiredExec(
            exec_id=secrets.token_hex(16),
            lease_id=live.lease.lease_id,
            position=position,
            command=tuple(command),
            stdin=stdin,
            most_s=most_s,
        )
        one = Exec(
            exec_id=order.exec_id,
            job_id=job_id,
            node=member.node,
            order=order,
            actor=actor,
            begun_s=now_s,
            read_s=now_s,
        )
        shown = " ".join(command)[:_SHOWN]
        data = {"node": member.node, "lease": order.lease_id, "command": shown}
        await self._note("job_exec", "job", job_id, actor=actor, data=data)  # before it runs
        self._known[one.exec_id] = one
        self._wake((member.node,))
        return one

    def waiting(self, node: str) -> bool:
        """Return whether there are unsent orders for a node."""
        return bool(self._known) and any(self._untold(node))

    def orders(self, node: str) -> tuple[DesiredExec, ...]:
        """Return the orders for a node; each is sent once."""
        if not self._known:
            return ()
        found = self._untold(node)
        for one in self._known.values():
            one.asked_again |= one.told and one.node == node
        for one in found:
            one.told = True
        return tuple(one.order for one in found)

    def _untold(self, node: str) -> list[Exec]:
        return [
            one
            for one in self._known.values()
            if one.node == node and not one.told and one.done_s is None
        ]

    def heard(
        self,
        node: str,
        exec_id: str,
        *,
        number: int,
        pieces: Sequence[ExecOutput],
        exit_code: int | None,
        problem: str,
    ) -> tuple[bool, bool]:
        """Take in a node's report on a command.

        Returns:
            Whether the command is to end, and whether there is room for more of its output.

        Raises:
            NotFoundError: the node has no command of that id.
        """
        one = self._known.get(exec_id)
        if one is None or one.node != node:
            raise NotFoundError("there is no such command on this node")
        now_s = self._clock.now_s()
        self._sweep(now_s)
        one.heard_s = now_s
        if number == one.reports:  # not a repeated report
            one.reports += 1
            one.pieces += pieces
            one.printed += sum(len(piece.data) for piece in pieces)
            if one.printed > MOST_OUTPUT:
                one.stopped = True
                one.problem = f"it has printed more than {MOST_OUTPUT} bytes, and was ended"
            if exit_code is not None or problem:
                one.end(now_s, exit_code=exit_code, problem=problem)
            elif pieces:
                one.tell()
        unread = sum(len(piece.data) for piece in one.pieces)
        return one.stopped or one.done_s is not None, unread < MOST_UNREAD

    async def read(self, job_id: str, exec_id: str, *, after: int, wait_s: float) -> Exec:
        """Return a command when it has printed a piece ``after`` or later, or has ended.

        Pieces before ``after`` have been read, and are dropped.

        Raises:
            NotFoundError: the job has no command of that id.
        """
        one = self._of(job_id, exec_id)
        one.read_s = self._clock.now_s()
        dropped = min(max(after - one.first, 0), len(one.pieces))
        del one.pieces[:dropped]
        one.first += dropped
        if not one.pieces and one.done_s is None:
            await first_of(one.news, within_s=wait_s)
            one.read_s = self._clock.now_s()
            self._sweep(one.read_s)
        return one

    def stop(self, job_id: str, exec_id: str) -> None:
        """End a command.

        Raises:
            NotFoundError: the job has no command of that id.
        """
        one = self._of(job_id, exec_id)
        one.stopped = True
        if not one.told:
            one.end(self._clock.now_s(), problem="it was ended before it began")

    def _of(self, job_id: str, exec_id: str) -> Exec:
        self._view()
        self._sweep(self._clock.now_s())
        one = self._known.get(exec_id)
        if one is None or one.job_id != job_id:
            raise NotFoundError(f"there is no such command of job '{job_id}' any more")
        return one

    def _sweep(self, now_s: float) -> None:
        for one in list(self._known.values()):
            if one.done_s is not None:
                if now_s - max(one.done_s, one.read_s) > KEPT_S:
                    del self._known[one.exec_id]
            elif one.heard_s is None and now_s - one.begun_s > TAKEN_UP_S:
                one.end(now_s, problem=_not_begun(one))
            elif one.heard_s is not None and now_s - one.heard_s > SILENT_S:
                one.end(now_s, problem=f"node '{one.node}' has been silent for {SILENT_S:g} s")
            elif now_s - one.read_s > UNREAD_S:
                one.stopped = True


def _not_begun(one: Exec) -> str:
    """Return why a node has not started a command for so long."""
    why = f"node '{one.node}' has not begun it within {TAKEN_UP_S:g} s"
    if one.asked_again:
        return (
            f"{why}, though its agent is there: upgrade it if it is of an earlier release, which "
            "knows no exec"
        )
    return f"{why}: its agent is away"


def _place(members: Sequence[Member], rank: int | None, node: str | None) -> tuple[Member, int]:
    """Return the member on which a command runs, and the position of the process beside it."""
    if node is not None:
        for member in members:
            if member.node == node:
                return member, 0
        names = ", ".join(member.node for member in members)
        raise InputError(f"node: the job does not run on '{node}'; it runs on {names}")
    for member in members:
        if member.rank <= (rank or 0) < member.rank + len(member.local):
            return member, (rank or 0) - member.rank
    total = sum(len(member.local) for member in members)
    raise InputError(f"rank: the job has no rank {rank}; it has 0 to {total - 1}")
