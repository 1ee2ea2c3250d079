"""Keeping a driver going: where a turn fails, the state is loaded again, without what spoilt it.

The engine has taken the facts of a turn in before they are stored. Where the store then refuses
them for good, or the engine itself stumbles, what is in memory is no more what is stored: it is
thrown away and loaded as after a crash. Its facts are told again one by one, and
the one that fails alone is refused, with the reason, to whoever told it.

For the same reason who is to end waits for the turn at hand before the last snapshot is taken: in
the midst of a turn memory holds what no entry of the journal tells yet, or what the entry that is
on its way would tell a second time at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from scheduler.errors import TurnFailedError
from scheduler.runtime.driver import abandon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

    from scheduler.runtime.driver import Driver, Told

_log = logging.getLogger("leasehold.service")

#: How often in a row the state is loaded again without a turn between that could be committed.
MOST_RESTORES = 20
#: How long a scheduler that is to end waits for the turn at hand; the database may be away.
LAST_TURN_S = 5.0


async def drive(
    begin: Callable[[Sequence[Told]], Awaitable[Driver]],
    cease: Callable[[], None],
    *others: asyncio.Task[Any],
) -> None:
    """Lead until cancelled, or until one of the tasks ends.

    Args:
        begin: loads the state and returns its driver, which is to be told some facts first.
        cease: called before the state is loaded again.
        others: what runs beside; ends this with its result.

    Raises:
        StaleLeaderError: somebody else leads now.
        TurnFailedError: no turn could be committed any more, however often the state was loaded.
    """
    restores = 0
    undone: list[Told] = []
    while True:
        try:
            driver = await begin(undone)
        except BaseException:
            abandon(undone)
            raise
        task = asyncio.create_task(driver.run())
        try:
            done, _ = await asyncio.wait((task, *others), return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        except TurnFailedError:
            restores, undone = 1 if driver.commits else restores + 1, driver.undone
            cease()
            if restores > MOST_RESTORES:
                abandon(undone)
                raise
            _log.exception("nothing of a turn is stored, and the state is loaded again without it")
        except asyncio.CancelledError:
            if await _turned(driver, task):
                await driver.write_snapshot()
            raise
        else:
            return
        finally:
            await end(task)


async def _turned(driver: Driver, task: asyncio.Task[None]) -> bool:
    """Wait for a driver's last turn; tell whether it came to its end, stored and published."""
    driver.leave()
    await asyncio.wait({task}, timeout=LAST_TURN_S)
    if task.done() and not task.cancelled() and task.exception() is None:
        return True
    _log.warning("no last snapshot is written: the last turn is not stored")
    return False


async def end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, whatever that is."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task
