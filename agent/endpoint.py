"""The job-facing endpoint: jobs report their progress here and learn that they have to leave.

A Unix socket with one JSON object per line in each direction. A job sends::

    {"secret": "...", "rank": 0, "steps_live": 120, "steps_done": 100}

and gets, at once, and again whenever it changes while the connection is open::

    {"notice": false}      or      {"notice": true, "leave_in_s": 9.5}

Everything but ``secret`` may be left out. A line that cannot be used is answered with ``error``.
Pods cannot reach the socket and use the same lines over TCP. With ``"guard": true`` the answer also
tells ``deadline_s``, until when the lease holds on the clock of ``agent.clock``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.clock import lease_clock_s
from agent.reading import Reader
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Longest path that the kernel takes for a Unix socket, its NUL left out.
LONGEST_SOCKET_PATH = 107
#: Longest line that a job may send.
LINE_BYTES = 4096


@dataclass(kw_only=True)
class Tenant:
    """A lease as the endpoint knows it.

    Attributes:
        lease_id: which.
        secret: what its processes prove themselves with.
        steps_live: steps that were done.
        steps_done: steps that were checkpointed.
        leave_by_s: when SIGTERM comes, on the lease clock; None while the job may stay.
        deadline_s: until when the lease holds, on the lease clock; None where nobody needs it.
    """

    lease_id: int
    secret: str
    steps_live: int = 0
    steps_done: int = 0
    leave_by_s: float | None = None
    deadline_s: float | None = None
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def reply(self, *, guard: bool = False) -> bytes:
        """Return the line that tells the job whether to leave, and its guard until when."""
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
        listen: (host, port) to listen on as well; None: the socket only.
    """

    def __init__(
        self,
        path: Path,
        *,
        on_progress: Callable[[], None] | None = None,
        listen: tuple[str, int] | None = None,
    ) -> None:
        if len(str(path).encode()) > LONGEST_SOCKET_PATH:
            raise InputError(
                f"the socket path {path} has {len(str(path))} characters; the kernel takes "
                f"{LONGEST_SOCKET_PATH}: choose a shorter state folder"
            )
        self.path = path
        self._on_progress = on_progress
        self._tenants: dict[int, Tenant] = {}
        self._listen = listen
        self._servers: list[asyncio.Server] = []

    @property
    def port(self) -> int:
        """The TCP port that is listened on; 0 where there is none."""
        for server in self._servers[1:]:
            for listener in server.sockets:
                return int(listener.getsockname()[1])
        return 0

    def admit(self, tenant: Tenant) -> None:
        """Serve a lease's processes from now on."""
        self._tenants[tenant.lease_id] = tenant

    def dismiss(self, lease_id: int) -> None:
        """Serve a lease no longer."""
        tenant = self._tenants.pop(lease_id, None)
        for writer in tuple(tenant.writers) if tenant else ():
            writer.close()

    def notify(self, lease_id: int, leave_by_s: float | None) -> None:
        """Tell a lease's processes to leave, or that they may stay."""
        tenant = self._tenants[lease_id]
        if tenant.leave_by_s == leave_by_s:
            return
        tenant.leave_by_s = leave_by_s
        for writer in tenant.writers:
            writer.write(tenant.reply())

    async def open(self) -> None:
        """Begin to listen; a socket that a dead agent left behind is replaced."""
        self.path.unlink(missing_ok=True)
        # A server that serves from the beginning takes a turn of the event loop to be made; whoever
        # is cancelled in that turn never gets to know it, and its socket stays open.
        self._servers.append(
            await asyncio.start_unix_server(
                self._serve, path=self.path, limit=LINE_BYTES, start_serving=False
            )
        )
        self.path.chmod(0o600)
        if self._listen is not None:
            host, port = self._listen
            try:
                server = await asyncio.start_server(
                    self._serve, host, port, limit=LINE_BYTES, start_serving=False
                )
            except OSError as error:
                raise InputError(
                    f"cannot listen on {host} port {port} for jobs: {error}; choose another port"
                ) from error
            self._servers.append(server)
        for server in self._servers:
            await server.start_serving()

    async def close(self) -> None:
        """Stop listening and cut the connections."""
        for server in self._servers:
            server.close()
        writers = [w for tenant in self._tenants.values() for w in tenant.writers]
        for lease_id in tuple(self._tenants) if self._servers else ():
            self.dismiss(lease_id)
        while self._servers:
            await self._servers.pop().wait_closed()
        for writer in writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tenant: Tenant | None = None
        try:
            while line := await reader.readline():
                tenant = self._take(line, writer, tenant)
                await writer.drain()
        except (ConnectionError, ValueError):  # ValueError: a line without an end
            pass
        finally:
            if tenant is not None:
                tenant.writers.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _take(
        self, line: bytes, writer: asyncio.StreamWriter, known: Tenant | None
    ) -> Tenant | None:
        try:
            message = Reader.of(json.loads(line))
            tenant = self._find(message.text("secret"))
            live = message.optional("steps_live", message.integer)
            done = message.optional("steps_done", message.integer)
            rank = message.optional("rank", message.integer)
            guard = bool(message.optional("guard", message.flag))
        except (InputError, ValueError) as error:
            writer.write(json.dumps({"error": str(error)}).encode() + b"\n")
            return known
        if not rank:  # the others do the same steps
            tenant.steps_live = max(tenant.steps_live, live or 0)
            tenant.steps_done = max(tenant.steps_done, done or 0)
        tenant.writers.add(writer)
        writer.write(tenant.reply(guard=guard))
        if self._on_progress is not None:
            self._on_progress()
        return tenant

    def _find(self, secret: str) -> Tenant:
        for tenant in self._tenants.values():
            if hmac.compare_digest(tenant.secret.encode(), secret.encode()):
                return tenant
        raise InputError("the secret is not that of a lease on this node; see LEASEHOLD_SECRET")
