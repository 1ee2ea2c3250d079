"""Commands that people run beside jobs: started here, and reported to the scheduler."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from scheduler.errors import InputError, LeaseholdError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from agent.backend import Command, CommandOutput
    from agent.link.port import Link
    from scheduler.protocol.desired import DesiredExec

_log = logging.getLogger("leasehold.agent")

#: The most commands at once on a node.
MOST: Final = 32
#: Bytes of one piece, and seconds between two reports: while it prints, and while it does not.
PIECE_BYTES, SOON_S, LATER_S = 256 * 1024, 0.1, 2.0
#: Failed reports in a row, after which a command is ended.
MOST_FAILURES: Final = 10
#: Exit codes that may have been caused from outside: SIGKILL, as shells or the kernel report it,
#: and a command in a pod with broken streams.
FROM_OUTSIDE: Final = frozenset({137, -9, 126})


@dataclass(slots=True)
class _Run:
    """A running command, its output, and the reported part of that."""

    command: Command
    pieces: list[tuple[str, bytes]]
    printed: asyncio.Event
    number: int = 0


class ExecRunner:
    """Runs the scheduler's orders.

    Args:
        link: the way to the scheduler.
        begin: starts a command beside a job; raises InputError if that is not possible.
    """

    def __init__(
        self, link: Link, begin: Callable[[DesiredExec], Coroutine[Any, Any, Command]]
    ) -> None:
        self._link = link
        self._begin = begin
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def take(self, orders: Sequence[DesiredExec]) -> None:
        """Start the new ones among orders."""
        for order in orders:
            if order.exec_id not in self._tasks:
                task = asyncio.create_task(self._serve(order))
                self._tasks[order.exec_id] = task
                task.add_done_callback(partial(self._forget, order.exec_id))

    def _forget(self, exec_id: str, _task: asyncio.Task[None]) -> None:
        self._tasks.pop(exec_id, None)

    async def close(self) -> None:
        """End all commands."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, order: DesiredExec) -> None:
        try:
            command = await self._begun(order)
        except Exception as error:  # noqa: BLE001 - the user must learn the real cause
            if not isinstance(error, InputError | OSError):
                _log.exception("the command %s could not be begun", order.exec_id[:8])
            why = str(error) or f"it could not be begun: {type(error).__name__}"
            with contextlib.suppress(LeaseholdError, OSError):
                await self._deliver(order, 0, [], None, why)
            return
        run = _Run(command, [], asyncio.Event())
        readers = [
            asyncio.create_task(_read(run, name, output))
            for name, output in command.outputs.items()
        ]
        feeding = asyncio.create_task(command.feed(order.stdin))
        try:
            await self._report(order, run, readers)
        except (LeaseholdError, OSError) as error:
            _log.info("the command %s is ended: %s", order.exec_id[:8], error)
        finally:
            for task in (feeding, *readers):
                task.cancel()
            await command.end()
            await asyncio.gather(feeding, *readers, return_exceptions=True)

    async def _begun(self, order: DesiredExec) -> Command:
        if len(self._tasks) > MOST:
            raise InputError(f"{MOST} commands run on this node already; try again later")
        return await self._begin(order)

    async def _report(
        self, order: DesiredExec, run: _Run, readers: Sequence[asyncio.Task[None]]
    ) -> None:
        """Report a command's output until it ends: by itself, with its job or at its time limit.

        The time limit is checked between two reports and never in one. A report that was
        interrupted may have arrived, and the scheduler would ignore the next one of that number.
        """
        now_s = asyncio.get_running_loop().time
        ended = asyncio.create_task(run.command.wait())
        until_s, problem = now_s() + order.most_s, ""
        try:
            while True:
                wait_s = 0.0 if ended.done() else min(max(until_s - now_s(), 0.0), LATER_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await _either(ended, run.printed)
                if not ended.done() and now_s() >= until_s:
                    problem = f"it ran for longer than {order.most_s:g} s, and was ended"
                    await run.command.end()
                    await ended
                over, code = ended.done(), None
                if over:
                    # A process that left its session may hold the pipes; the agent does not wait
                    # for it.
                    await asyncio.wait(readers, timeout=1.0)
                    code = run.command.returncode
                    if code in FROM_OUTSIDE and not problem:
                        problem = await run.command.cut_short()
                run.printed.clear()
                pieces = list(run.pieces)
                code = None if problem else code
                stop, room = await self._deliver(order, run.number, pieces, code, problem)
                run.number += 1
                del run.pieces[: len(pieces)]
                if over:
                    return
                if stop:
                    await run.command.end()
                await asyncio.sleep(SOON_S if room else 1.0)
        finally:
            ended.cancel()

    async def _deliver(
        self,
        order: DesiredExec,
        number: int,
        pieces: Sequence[tuple[str, bytes]],
        code: int | None,
        problem: str,
    ) -> tuple[bool, bool]:
        """Send one report, and send it again if its arrival is uncertain."""
        failures = 0
        while True:
            try:
                return await self._tell(order, number, pieces, code, problem)
            except OSError:
                failures += 1
                if failures > MOST_FAILURES:
                    raise
                await asyncio.sleep(1.0)

    async def _tell(
        self,
        order: DesiredExec,
        number: int,
        pieces: Sequence[tuple[str, bytes]],
        code: int | None,
        problem: str,
    ) -> tuple[bool, bool]:
        told = [
            {"stream": stream, "data": base64.b64encode(data).decode()} for stream, data in pieces
        ]
        if code is not None and code < 0:
            code = 128 - code
        body = {"number": number, "pieces": told, "exit_code": code, "problem": problem[:1000]}
        return await self._link.tell_exec(order.exec_id, body)


async def _either(ended: asyncio.Task[int], printed: asyncio.Event) -> None:
    waiting = asyncio.create_task(printed.wait())
    try:
        await asyncio.wait({ended, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def _read(run: _Run, name: str, output: CommandOutput) -> None:
    while data := await output.read(65536):
        run.pieces.append((name, data))
        run.printed.set()
        while sum(len(piece) for _, piece in run.pieces) >= PIECE_BYTES:  # noqa: ASYNC110 - seldom
            await asyncio.sleep(SOON_S)  # until the scheduler has taken some
