"""An event loop with virtual time, and processes on it that can be killed and frozen.

Nothing here waits: when nothing is ready the clock jumps to the next timer. All processes of the
world share the loop; each callback belongs to the process that scheduled it, so a process that is
killed stops between two callbacks and runs not even its ``finally`` blocks, as after ``kill -9``.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import math
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


#: Of the loop in one world; a usual one takes some 30,000.
MOST_PASSES = 200_000


class StalledError(Exception):
    """Nothing will ever happen any more."""


class SpinningError(SystemExit):
    """Something runs in circles without waiting; no task may catch this."""


class Process:
    """A process of the world.

    Args:
        loop: on which it runs.
        name: for people.

    Attributes:
        alive: False once it is killed.
        frozen: whether it stands still, as after SIGSTOP.
        dies_in: callbacks until it is killed; None: it is not.
    """

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.alive = True
        self.frozen = False
        self.dies_in: int | None = None
        self.on_death: list[Callable[[], None]] = []
        self._held: list[asyncio.Handle] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task of this process; so are all tasks that it makes."""
        context = contextvars.copy_context()
        context.run(RUNNING.set, self)
        return self.loop.create_task(work, context=context)

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function as this process, soon."""
        context = contextvars.copy_context()
        context.run(RUNNING.set, self)
        self.loop.call_soon(function, *args, context=context)

    def kill(self) -> None:
        """Stop it finally, at once."""
        if self.alive:
            self.alive = self.frozen = False
            self._held.clear()
            for tell in self.on_death:
                tell()

    def freeze(self) -> None:
        """Let it stand still."""
        self.frozen = self.alive

    def thaw(self) -> None:
        """Let it go on; what came due meanwhile happens now."""
        self.frozen = False
        held, self._held = self._held, []
        self.loop.take_back(held)

    def may_run(self, handle: asyncio.Handle) -> bool:
        """Return whether a callback is to be run now; one of a frozen process is kept."""
        if self.dies_in is not None and self.alive and not self.frozen:
            self.dies_in -= 1
            if self.dies_in < 0:
                self.kill()
        if self.frozen:
            self._held.append(handle)
        return self.alive and not self.frozen


#: The process of the running code; None for the world itself.
RUNNING: contextvars.ContextVar[Process | None] = contextvars.ContextVar("running", default=None)


class _Task(asyncio.Task[Any]):
    """A task that knows its process; None for the world itself."""

    process: Process | None = None


class _Handle(asyncio.Handle):
    __slots__ = ()

    def _run(self) -> None:
        process = self._context.get(RUNNING)
        if process is None or process.may_run(self):
            super()._run()


class _Timer(asyncio.TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        process = self._context.get(RUNNING)
        if process is None or process.may_run(self):
            super()._run()


class _Jump:
    """The selector of a loop without files: it waits by moving the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        loop = self._loop
        loop.passes += 1
        if timeout is None:
            raise StalledError(f"nothing will happen after {loop.now_s:.3f} s")
        if loop.passes > loop.most_passes:
            raise StalledError(f"after {loop.passes} passes it is {loop.now_s:.3f} s: no end")
        loop.now_s += timeout
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop under virtual time, without sockets, files and threads.

    Args:
        delay_s: -> how long a call in a thread waits before it is done, and then before its
            result is seen; two calls of it per call in a thread.
    """

    def __init__(self, delay_s: Callable[[], float]) -> None:
        super().__init__()
        self.now_s = 0.0
        #: of the loop so far, and at most: a world in which something runs in circles has to end.
        self.passes, self.most_passes = 0, MOST_PASSES
        self._delay_s = delay_s
        self._selector = _Jump(self)
        self._all: list[asyncio.Task[Any]] = []
        self.failures: list[str] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_failure)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.now_s

    def _process_events(self, event_list: list[object]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _call_soon(self, callback, args, context):
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(self, when, callback, *args, context=None):
        """Call a function at a time."""
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def take_back(self, handles: list[asyncio.Handle]) -> None:
        """Run callbacks that were kept."""
        self._ready.extend(handles)

    def outside(self, delay_s: float, function: Callable[..., object], *args: object) -> None:
        """Call a function later, as the world itself."""
        context = contextvars.copy_context()
        context.run(RUNNING.set, None)
        if math.isfinite(delay_s):
            self.call_later(delay_s, function, *args, context=context)

    def run_in_executor(self, executor, func, *args):
        """Call a function as a thread would: at a later moment; deliver the result later still."""
        future = self.create_future()
        process = RUNNING.get()
        told_s = self._delay_s()

        def work() -> None:
            try:
                result, error = func(*args), None
            except Exception as failure:  # noqa: BLE001 - it belongs to the caller that waits
                result, error = None, failure
            if process is None or process.alive:
                self.call_later(told_s, tell, result, error)

        def tell(result: object, error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.call_later(self._delay_s(), work)
        return future

    def _make_task(self, loop, coro, context=None):
        task = _Task(coro, loop=loop, context=context)
        task.process = process = RUNNING.get() if context is None else context.get(RUNNING)
        tasks = self._world_tasks if process is None else process._tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    @property
    def _world_tasks(self) -> set[asyncio.Task[Any]]:
        return self.__dict__.setdefault("_own_tasks", set())

    def _note_failure(self, _loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # A task is thrown away as whatever runs then. Nothing fetches the error of a killed one.
        future = context.get("future")
        process = future.process if isinstance(future, _Task) else RUNNING.get()
        if process is None or process.alive:
            name = "the world" if process is None else process.name
            self.failures.append(f"{name}: {context.get('message')}: {error!r}")

    def dispose(self, processes: list[Process]) -> None:
        """Throw away what never came to its end; ``finally`` blocks run here, and do nothing."""
        left = [task for process in processes for task in process._tasks]
        left += self._world_tasks
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            for process in processes:
                process.alive = process.frozen = False
            self.set_exception_handler(lambda *_: None)
            for task in left:
                task._log_destroy_pending = False
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
            self._ready.clear()
            self._scheduled.clear()
            self.close()
        finally:
            sys.unraisablehook = hook
