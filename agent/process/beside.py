"""A command beside a job's processes: a helper becomes one of them, and runs it there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import agent.process.inside
from agent.backend import ENDED_WITH_JOB
from agent.process.remnants import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.backend import CommandOutput

#: How long the helper may take to kill the command.
_END_S = 5.0


class LocalCommand:
    """A command that a helper runs; see ``agent.process.inside``.

    Args:
        process: the helper.
        leader: pid of the job's process that it joins, and when that started.
        stopping: returns whether the job is being stopped, or has ended.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        leader: tuple[int, int],
        stopping: Callable[[], bool],
    ) -> None:
        self._process, self._leader, self._stopping = process, leader, stopping
        streams = {"out": process.stdout, "err": process.stderr}
        self.outputs: Mapping[str, CommandOutput] = {name: s for name, s in streams.items() if s}

    @classmethod
    async def begin(cls, spec: Mapping[str, Any], stopping: Callable[[], bool]) -> LocalCommand:
        """Start a command.

        The helper stays in our session, which shows that it is not a stray of a job; see
        ``agent.process.remnants``. It makes a process group of its own, since uvloop cannot give it
        one: signals of a terminal do not reach it.

        Args:
            spec: the helper's input.
            stopping: returns whether the job is being stopped, or has ended.
        """
        told = os.memfd_create("exec", 0)
        try:
            os.write(told, json.dumps(dict(spec)).encode())
            os.lseek(told, 0, os.SEEK_SET)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", agent.process.inside.__file__, str(told)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(told,),
                cwd="/",
                env={},
            )
        finally:
            os.close(told)
        return cls(process, (spec["leader"], spec["ticks"]), stopping)

    @property
    def returncode(self) -> int | None:
        """Its exit code; None: it runs."""
        return self._process.returncode

    async def feed(self, data: bytes) -> None:
        """Send its whole standard input."""
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(OSError):
            stdin.write(data)
            await stdin.drain()
        stdin.close()

    async def wait(self) -> int:
        """Wait until it has ended."""
        return await self._process.wait()

    async def cut_short(self) -> str:
        """Return why it was killed with the job; empty if the job runs on."""
        return ENDED_WITH_JOB if self._stopping() or not is_alive(*self._leader) else ""

    async def end(self) -> None:
        """Make the helper kill the command, which ends both."""
        process = self._process
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_END_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
