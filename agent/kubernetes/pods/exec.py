"""A command in a job's pod, by the API server's exec: its streams are channels of a web socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import TYPE_CHECKING, Any, Final

from agent.backend import ENDED_WITH_JOB
from agent.kubernetes.client import (
    KubernetesClient,
    KubernetesError,
    MissingError,
    PermissionDeniedError,
)
from agent.kubernetes.templates.template import CONTAINER
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiohttp import ClientWebSocketResponse

    from agent.backend import CommandOutput

_log = logging.getLogger("leasehold.agent")

#: Channels of the socket; the fourth carries the command's end.
_STDIN, _STDOUT, _STDERR, _STATUS = range(4)
_CLOSE: Final = 255
#: The supported protocols; only the newer one can signal the end of standard input.
CLOSING: Final = "v5.channel.k8s.io"
PROTOCOLS: Final = (CLOSING, "v4.channel.k8s.io")
#: Bytes of a stream that are kept until its reader takes some; also the largest message.
KEPT_BYTES: Final = 1 << 20
#: How long the API server may take to report that the pod of a killed command has ended.
TOLD_S: Final = 3.0
_PIECE_BYTES: Final = 1 << 15
_CUT_OFF: Final = b"leasehold: the connection to the pod broke off; how it ended is not known\n"
#: Shells' exit codes for a command that cannot be run, or cannot be found.
NOT_RUN, NOT_FOUND = 126, 127


class PodCommand:
    """A command that runs in a pod.

    Kubernetes does not end a command when its streams are closed. A command that is ended here runs
    on alone, and ends when it next writes, or with its pod.

    Args:
        socket: to the API server.
        stopping: returns whether the job's pod is being stopped, or has ended.
    """

    def __init__(self, socket: ClientWebSocketResponse, stopping: Callable[[], bool]) -> None:
        self._socket, self._stopping = socket, stopping
        self._streams = {_STDOUT: _Stream(), _STDERR: _Stream()}
        names = {"out": _STDOUT, "err": _STDERR}
        self.outputs: Mapping[str, CommandOutput] = {n: self._streams[c] for n, c in names.items()}
        self._code: int | None = None
        self._ended = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def begin(
        cls,
        client: KubernetesClient,
        namespace: str,
        pod: str,
        command: Sequence[str],
        *,
        reads: bool,
        stopping: Callable[[], bool],
    ) -> PodCommand:
        """Start a command.

        Args:
            client: the way to the API server.
            namespace: of the pod.
            pod: its name.
            command: with its arguments.
            reads: whether it gets a standard input.
            stopping: returns whether the job's pod is being stopped, or has ended.

        Raises:
            InputError: the agent may not, or there is no such pod.
            OSError: there was no answer.
        """
        try:
            socket = await client.exec_in_pod(
                namespace, pod, container=CONTAINER, command=command, reads=reads,
                protocols=PROTOCOLS,
            )  # fmt: skip
        except PermissionDeniedError as error:
            raise InputError(
                "this cluster's agents may not run commands in pods; an operator may allow it by "
                "the chart's agent.exec=true, see docs/explanation/who-trusts-whom.md; users "
                "with access to pods there can use kubectl exec"
            ) from error
        except MissingError as error:
            raise InputError("the job's pod has left this node") from error
        except KubernetesError as error:
            raise OSError(f"the API server did not begin it: {error}") from error
        if reads and socket.protocol != CLOSING:
            await socket.close()
            raise InputError(
                "this cluster's API server is too old to close the input of a command "
                "(Kubernetes 1.30 can); run it without input, as in: leasehold exec JOB -- CMD "
                "< /dev/null"
            )
        return cls(socket, stopping)

    @property
    def returncode(self) -> int | None:
        """Its exit code; None: it runs."""
        return self._code

    async def feed(self, data: bytes) -> None:
        """Send its whole standard input."""
        if not data:
            return
        with contextlib.suppress(OSError, RuntimeError):
            for first in range(0, len(data), _PIECE_BYTES):
                await self._socket.send_bytes(bytes([_STDIN]) + data[first : first + _PIECE_BYTES])
            await self._socket.send_bytes(bytes([_CLOSE, _STDIN]))

    async def wait(self) -> int:
        """Wait until it has ended."""
        await self._ended.wait()
        assert self._code is not None
        return self._code

    async def cut_short(self) -> str:
        """Return why it was killed with the pod; empty if the pod runs on.

        The end of the pod is reported later than the end of the command.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TOLD_S):
                while not self._stopping():  # noqa: ASYNC110 - the watch of pods has no event
                    await asyncio.sleep(0.1)
        return ENDED_WITH_JOB if self._stopping() else ""

    async def end(self) -> None:
        """Close its streams; the command itself is not ended."""
        self._reading.cancel()
        with contextlib.suppress(OSError, RuntimeError):
            await self._socket.close()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._over(NOT_RUN)

    async def _read(self) -> None:
        code: int | None = None
        try:
            async for message in self._socket:
                if not isinstance(message.data, bytes) or not message.data:
                    continue
                channel, data = message.data[0], message.data[1:]
                if channel in self._streams:
                    await self._streams[channel].put(data)
                elif channel == _STATUS and data:
                    code = await self._ending(data)
            if code is None:
                _log.info("a command in a pod is cut off: %s", self._socket.exception())
                await self._streams[_STDERR].put(_CUT_OFF)
        finally:
            self._over(NOT_RUN if code is None else code)

    async def _ending(self, data: bytes) -> int:
        code, problem = exit_code(data)
        if problem:
            await self._streams[_STDERR].put(f"leasehold: {problem}\n".encode())
        return code

    def _over(self, code: int) -> None:
        if self._code is None:
            self._code = code
        for stream in self._streams.values():
            stream.close()
        self._ended.set()


class _Stream:
    """Bytes between the socket and their reader; the writer waits while there are many."""

    def __init__(self) -> None:
        self._kept, self._closed = bytearray(), False
        self._more, self._room = asyncio.Event(), asyncio.Event()

    async def put(self, data: bytes) -> None:
        while len(self._kept) >= KEPT_BYTES and not self._closed:
            self._room.clear()
            await self._room.wait()
        self._kept += data
        self._more.set()

    def close(self) -> None:
        self._closed = True
        self._more.set()
        self._room.set()

    async def read(self, most: int, /) -> bytes:
        while not self._kept and not self._closed:
            self._more.clear()
            await self._more.wait()
        data = bytes(self._kept[:most])
        del self._kept[:most]
        self._room.set()
        return data


def exit_code(status: bytes) -> tuple[int, str]:
    """Return how a command ended, from the API server's status, and why it could not be run.

    Args:
        status: a Status object as JSON.
    """
    try:
        told: Any = json.loads(status)
        if told.get("status") == "Success":
            return 0, ""
        causes = (told.get("details") or {}).get("causes") or ()
        for cause in causes:
            if cause.get("reason") == "ExitCode":
                return int(cause["message"]) & 0xFF, ""
        message = str(told.get("message") or "it could not be run")[:500]
    except (ValueError, TypeError, AttributeError, KeyError):
        return NOT_RUN, "it ended, and the API server did not say how"
    missing = "not found" in message or "no such file" in message
    return (NOT_FOUND if missing else NOT_RUN), message
