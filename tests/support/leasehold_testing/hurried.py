"""An event loop on which waiting takes no time: if nothing happens, its clock jumps."""

from __future__ import annotations

import asyncio
import selectors
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

import agent.clock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_T = TypeVar("_T")
#: For so long a socket that was written to may be silent before the clock jumps.
_PATIENCE_S = 0.001


class _Jumping(selectors.DefaultSelector):
    """Waits for files only shortly, and then counts the whole time as waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = time.clock_gettime(time.CLOCK_BOOTTIME)

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout <= 0.0:
            return super().select(timeout)
        found = super().select(min(timeout, _PATIENCE_S))
        if not found:
            self.now_s += timeout
        return found


class HurriedLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock that jumps to the next timer if no socket has news.

    Sockets between two parts of this process work as ever. Calls in threads are made at once, in
    the thread of the loop. Other processes get hardly any time.
    """

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the time of timers."""
        return self._jumping.now_s

    def run_in_executor(  # type: ignore[override]  # narrower: nothing runs elsewhere
        self, _executor: object, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        """Call a function now."""
        future: asyncio.Future[_T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to the caller that waits
            future.set_exception(error)
        return future


def hurried(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on a hurried loop, by which the clock of leases goes, too."""
    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, HurriedLoop)

        def clock_gettime(_clock: int) -> float:
            return loop.time()

        clocks = SimpleNamespace(clock_gettime=clock_gettime, CLOCK_BOOTTIME=time.CLOCK_BOOTTIME)
        with mock.patch.object(agent.clock, "time", clocks):
            return runner.run(work)
