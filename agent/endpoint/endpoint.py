"""The job-facing endpoint: jobs report their progress here and receive notices to leave.

A Unix socket with one JSON object per line in each direction. A job sends::

    {"secret": "...", "rank": 0, "steps_live": 120, "steps_done": 100}

and gets this line, at once, and again whenever it changes while the connection is open::

    {"notice": false}      or      {"notice": true, "leave_in_s": 9.5}

Everything but ``secret`` may be left out. A job with a changeable batch also sends
``learning``, see ``scheduler.protocol.learning``, which holds until it sends another one.
A line that cannot be used is answered with ``error`` and changes nothing: one that is too long, or
a figure beyond the bounds of ``scheduler.protocol.bounds``. Lines after it are taken.
With ``"code": true`` a line ``{"code_bytes": 4711}`` follows, and after it so many bytes: the code
that the lease is started in. Or a line with ``error`` follows that gives the reason.
Pods cannot reach the socket and use the same lines over TCP. With ``"guard": true`` the answer also
has ``deadline_s``, the lease's deadline on the clock of ``agent.clock``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.clock import lease_clock_s
from agent.endpoint.peers import Peers, peer_of, room_for_connections
from scheduler.errors import InputError
from scheduler.protocol.bounds import (
    LINE_BYTES,
    LONGEST_NAME,
    MOST_CONNECTIONS,
    MOST_RANKS,
    clean_text,
)
from scheduler.protocol.learning import Learning
from scheduler.protocol.reading import Reader, decode_json, read_as

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

#: Longest path that the kernel accepts for a Unix socket, without its NUL.
LONGEST_SOCKET_PATH = 107
#: A line of this length is answered before its end.
PATIENCE_BYTES = 1 << 16
#: How long a connection may take to name its lease.
STRANGER_MOST_S = 30.0
#: How long a connection may take to read its pending output when the agent ends.
CLOSE_MOST_S = 1.0
#: How long a connection may take to read the code of a lease, and how many may at once: the code is
#: in memory meanwhile.
CODE_MOST_S = 60.0
MOST_CODES = 2
#: Lines that a stranger's connection, or all connections of a lease together, may send at once; and
#: lines in each second after that.
STRANGER_LINES, STRANGER_LINES_PER_S = 16, 4.0
LEASE_LINES, LEASE_LINES_PER_S = MOST_CONNECTIONS, 256.0
#: Lines without the secret of a lease, after which a connection is closed.
MOST_REFUSED = 16
#: Passes of the event loop from the acceptance of a connection until ``_serve`` has it.
PASSES_TO_SERVE = 4

_log = logging.getLogger("leasehold.agent")


class Pace:
    """Limits the rate of lines, so that other connections and the agent get their turns.

    Args:
        at_once: lines that may come at once.
        per_s: lines in each second after that.
    """

    def __init__(self, at_once: int, per_s: float) -> None:
        self._most, self._per_s = at_once, per_s
        self._left, self._at_s = float(at_once), lease_clock_s()

    async def wait(self) -> None:
        """Wait until the next line may be taken; other tasks run in any case."""
        now_s = lease_clock_s()
        more = (now_s - self._at_s) * self._per_s
        self._left, self._at_s = min(self._left + more, self._most) - 1.0, now_s
        await asyncio.sleep(max(-self._left / self._per_s, 0.0))


@dataclass(kw_only=True)
class Tenant:
    """A lease, for the endpoint.

    Attributes:
        lease_id: its id.
        secret: its processes identify themselves with it.
        steps_live: steps that were done.
        steps_done: steps that were checkpointed.
        learning: the job's measurements, if its batch may change and it reported them.
        leave_by_s: when SIGTERM comes, on the lease clock; None while the job may stay.
        was_noticed: whether it ever had a notice; a job may heed one that was withdrawn.
        deadline_s: the lease's deadline, on the lease clock; None if no guard needs it.
        code: returns the lease's code, for a pod that fetches it; raises InputError and OSError.
            None if the code is unpacked already, or there is none.
        bringing: whether a connection is receiving it.
    """

    lease_id: int
    secret: str
    steps_live: int = 0
    steps_done: int = 0
    learning: Learning | None = None
    leave_by_s: float | None = None
    was_noticed: bool = False
    deadline_s: float | None = None
    code: Callable[[], Awaitable[bytes]] | None = field(default=None, repr=False)
    bringing: bool = False
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    pace: Pace = field(default_factory=lambda: Pace(LEASE_LINES, LEASE_LINES_PER_S), repr=False)

    def advance(self, live: int | None, done: int | None) -> None:
        """Take in numbers of steps; they never shrink."""
        self.steps_live = max(self.steps_live, live or 0)
        self.steps_done = max(self.steps_done, done or 0)

    def reply(self, *, guard: bool = False) -> bytes:
        """Return the line with the job's notice, and for its guard with the deadline."""
        message: dict[str, object] = {"notice": self.leave_by_s is not None}
        if self.leave_by_s is not None:
            message["leave_in_s"] = round(max(self.leave_by_s - lease_clock_s(), 0.0), 3)
        if guard:
            message["deadline_s"] = self.deadline_s
        return json.dumps(message).encode() + b"\n"


class Endpoint:
    """Serves the jobs of one node.

    Args:
        path: of the socket; kept over restarts of the agent, so that jobs find it again.
        on_progress: called after a job has reported.
        listen: (host, port) to listen on as well, host "" for all addresses of IPv4 and IPv6;
            None: the socket only.
        stranger_most_s: how long a connection may take to name its lease.
    """

    def __init__(
        self,
        path: Path,
        *,
        on_progress: Callable[[], None] | None = None,
        listen: tuple[str, int] | None = None,
        stranger_most_s: float = STRANGER_MOST_S,
    ) -> None:
        if len(str(path).encode()) > LONGEST_SOCKET_PATH:
            raise InputError(
                f"the socket path {path} has {len(str(path))} characters; the kernel takes "
                f"{LONGEST_SOCKET_PATH}: choose a shorter state folder"
            )
        self.path = path
        self._on_progress = on_progress
        #: A folder in which jobs of other users find the socket, too; None if there are no such
        #: jobs.
        self.door: Path | None = None
        self._tenants: dict[int, Tenant] = {}
        self._listen = listen
        self._servers: list[asyncio.Server] = []
        self._stranger_most_s = stranger_most_s
        self._peers = Peers(room_for_connections())
        self._serving: set[asyncio.Task[None]] = set()
        self._codes = asyncio.Semaphore(MOST_CODES)

    @property
    def port(self) -> int:
        """The TCP port that the endpoint listens on; 0 if it listens on none."""
        for server in self._servers[1:]:
            for listener in server.sockets:
                return int(listener.getsockname()[1])
        return 0

    def admit(self, tenant: Tenant) -> None:
        """Serve a lease's processes from now on."""
        self._tenants[tenant.lease_id] = tenant

    def dismiss(self, lease_id: int) -> None:
        """Stop serving a lease."""
        tenant = self._tenants.pop(lease_id, None)
        for writer in tuple(tenant.writers) if tenant else ():
            writer.close()

    def notify(self, lease_id: int, leave_by_s: float | None) -> None:
        """Send a lease's processes a notice to leave, or its withdrawal."""
        tenant = self._tenants[lease_id]
        if tenant.leave_by_s == leave_by_s:
            return
        tenant.leave_by_s = leave_by_s
        tenant.was_noticed |= leave_by_s is not None
        for writer in tenant.writers:
            writer.write(tenant.reply())

    async def open(self) -> None:
        """Begin to listen; a socket that a dead agent left behind is replaced."""
        self.path.unlink(missing_ok=True)
        # A server that serves from the beginning takes a turn of the event loop to be made. A
        # caller that is cancelled in that turn never receives it, and its socket stays open.
        self._servers.append(
            await asyncio.start_unix_server(
                self._serve, path=self.path, limit=LINE_BYTES, start_serving=False
            )
        )
        self.path.chmod(0o600 if self.door is None else 0o666)  # its folder is closed to others
        if self.door is not None:
            link = self.door / self.path.name
            link.unlink(missing_ok=True)
            link.hardlink_to(self.path)
        if self._listen is not None:
            host, port = self._listen
            try:
                server = await asyncio.start_server(
                    self._serve, host, port, limit=LINE_BYTES, start_serving=False
                )
            except OSError as error:
                raise InputError(
                    f"cannot listen on {host or 'all addresses'} port {port} for jobs: "
                    f"{error.strerror}; "
                    "choose another port"
                ) from error
            self._servers.append(server)
        for server in self._servers:
            await server.start_serving()

    async def close(self) -> None:
        """Stop listening and cut the connections."""
        await self._stop_accepting()
        for server in self._servers:
            server.close()
        writers = self._peers.all
        for lease_id in tuple(self._tenants) if self._servers else ():
            self.dismiss(lease_id)
        for writer in writers:
            writer.close()
            # A job that does not read its connection must not keep the agent from ending.
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_MOST_S):
                    await writer.wait_closed()
            writer.transport.abort()
        if self._serving:  # connections of jobs that have just left are closing by themselves
            await asyncio.wait(self._serving, timeout=CLOSE_MOST_S)
            await asyncio.sleep(0)  # a transport closes in the turn after its last line
        while self._servers:  # from Python 3.12 on this waits for the connections, too
            await self._servers.pop().wait_closed()

    async def _stop_accepting(self) -> None:
        """Accept no more connections, and wait until those just accepted are known.

        A server that is closed in between loses their sockets.
        """
        loop = asyncio.get_running_loop()
        for server in self._servers:
            for listener in server.sockets:
                loop.remove_reader(listener)
        for _ in range(PASSES_TO_SERVE):
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tenant: Tenant | None = None
        self._peers.add(writer, peer_of(writer))
        pace, refused = Pace(STRANGER_LINES, STRANGER_LINES_PER_S), 0
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            while line := await self._next_line(reader, writer, known=tenant is not None):
                tenant, asks_code = self._take(line, writer, tenant)
                if tenant is None:
                    refused += 1
                    if refused == MOST_REFUSED:
                        break
                else:
                    self._peers.know(writer, tenant.lease_id)
                await (pace if tenant is None else tenant.pace).wait()
                if asks_code and tenant is not None:
                    await self._give_code(tenant, writer)
                await writer.drain()
        except (ConnectionError, TimeoutError):
            pass
        except Exception:  # noqa: BLE001 - it ends this connection, and nothing else
            _log.exception("a connection of a job is closed: its message could not be handled")
        finally:
            if tenant is not None:
                tenant.writers.discard(writer)
            self._peers.remove(writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _next_line(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, known: bool
    ) -> bytes:
        """Return the next line, empty at the end; lines that are too long are answered here.

        A job that has named its lease may be silent while its lease lasts.

        Raises:
            TimeoutError: the connection has not named its lease in time.
        """
        size, told = 0, False
        async with asyncio.timeout(None if known else self._stranger_most_s):
            while True:
                try:
                    line = await reader.readuntil()
                except asyncio.IncompleteReadError as error:
                    line = error.partial
                except asyncio.LimitOverrunError as error:
                    size += len(await reader.readexactly(error.consumed))
                    if size > PATIENCE_BYTES and not told:
                        told = True
                        _refuse_line(f"more than {PATIENCE_BYTES}", writer)
                    continue
                size += len(line)
                if size <= LINE_BYTES:
                    return line
                if not told:
                    _refuse_line(str(size), writer)
                size, told = 0, False
                await writer.drain()

    def _take(
        self, line: bytes, writer: asyncio.StreamWriter, known: Tenant | None
    ) -> tuple[Tenant | None, bool]:
        """Take in a line; returns the connection's lease, and whether the line asks for code."""
        try:
            message = Reader.of(decode_json(line))
            tenant = self._find(message.text("secret", longest=LONGEST_NAME))
            live = message.optional("steps_live", message.integer)
            done = message.optional("steps_done", message.integer)
            rank = message.optional("rank", lambda name: message.integer(name, at_most=MOST_RANKS))
            measured = message.optional(
                "learning",
                lambda name: read_as(Learning, message.data[name], name, sent=("step_times",)),
            )
            guard = bool(message.optional("guard", message.flag))
            code = bool(message.optional("code", message.flag))
            _check_room(tenant, writer)
        except InputError as error:
            _refuse(str(error), writer)
            return known, False
        if not rank:  # the other ranks do the same steps
            tenant.advance(live, done)
            tenant.learning = measured or tenant.learning
        if known is not None and known is not tenant:
            known.writers.discard(writer)
        tenant.writers.add(writer)
        writer.write(tenant.reply(guard=guard))
        if self._on_progress is not None:
            self._on_progress()
        return tenant, code

    async def _give_code(self, tenant: Tenant, writer: asyncio.StreamWriter) -> None:
        """Send the code of a lease to one connection at a time; a slow one is cut off."""
        if tenant.code is None or tenant.bringing:
            why = "is being sent already" if tenant.bringing else "is not available here"
            _refuse(f"the code of lease {tenant.lease_id} {why}", writer)
            return
        tenant.bringing = True
        try:
            async with self._codes, asyncio.timeout(CODE_MOST_S):
                try:
                    archive = await tenant.code()
                except (InputError, OSError) as error:
                    _refuse(clean_text(str(error), 1000), writer)
                    return
                head = json.dumps({"code_bytes": len(archive)}).encode() + b"\n"
                writer.write(head + archive)
                await writer.drain()
        except TimeoutError:
            writer.transport.abort()
        finally:
            tenant.bringing = False

    def _find(self, secret: str) -> Tenant:
        for tenant in self._tenants.values():
            if hmac.compare_digest(tenant.secret.encode(), secret.encode()):
                return tenant
        raise InputError("the secret is not that of a lease on this node; see LEASEHOLD_SECRET")


def _refuse(why: str, writer: asyncio.StreamWriter) -> None:
    writer.write(json.dumps({"error": why}).encode() + b"\n")


def _refuse_line(size: str, writer: asyncio.StreamWriter) -> None:
    why = f"a line may have {LINE_BYTES} bytes; this one has {size} and is ignored"
    _refuse(why, writer)


def _check_room(tenant: Tenant, writer: asyncio.StreamWriter) -> None:
    """Refuse a connection beyond a lease's limit: each one takes a descriptor of the agent."""
    if writer not in tenant.writers and len(tenant.writers) >= MOST_CONNECTIONS:
        raise InputError(f"lease {tenant.lease_id} has {MOST_CONNECTIONS} connections; close some")
