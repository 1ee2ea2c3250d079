"""Run a driver, and end it without losing stored state.

The engine takes the facts of a turn in before they are stored. If the store then refuses the turn
permanently, or the engine itself fails, memory differs from the store. The state is loaded again,
as after a crash, and the facts are taken in one by one. A fact that fails alone is refused.

A scheduler that ends waits for the turn at hand before it takes the last snapshot, since in the
middle of a turn memory holds facts that no entry of the journal has yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.errors import TurnFailedError
from scheduler.runtime.driver.driver import answer_abandoned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

    from scheduler.runtime.driver.driver import Driver, Told

_log = logging.getLogger("leasehold.service")

#: How often in a row the state is loaded again if no turn between can be committed.
MOST_RESTORES = 20
#: How long a scheduler that ends waits for the turn at hand; the database may be away.
LAST_TURN_S = 5.0


@dataclass(frozen=True, slots=True)
class FailedTurn:
    """A turn that could not be committed.

    Attributes:
        error: why.
        undone: facts of the turn and of later ones, to be taken in one by one.
        commits: turns that the driver had committed before.
    """

    error: TurnFailedError
    undone: Sequence[Told]
    commits: int


async def lead_in_terms(
    lead: Callable[[int, Sequence[Told]], Awaitable[FailedTurn | None]],
    token: int,
    retake: Callable[[], Awaitable[int | None]],
    note: Callable[[TurnFailedError], None],
) -> None:
    """Lead until cancelled, or until the leadership is lost.

    Desired sets are numbered within a term. The state that is loaded after a failed turn numbers
    them from the beginning, so it begins a new term, as after a restart. Otherwise agents would
    take new sets for old ones, and the scheduler would take old reports for answers to new sets.

    Args:
        lead: leads for one term, with facts to take in first.
        token: fencing token of the first term.
        retake: takes the leadership again; None if another scheduler leads.
        note: called with the error of each turn that failed.

    Raises:
        StaleLeaderError: another scheduler leads now.
        TurnFailedError: no turn can be committed, however often the state is loaded.
    """
    restores = 0
    undone: Sequence[Told] = ()
    try:
        while (failed := await lead(token, undone)) is not None:
            note(failed.error)
            restores, undone = 1 if failed.commits else restores + 1, failed.undone
            _check_restores(restores, failed.error)
            following = await retake()
            if following is None:
                return
            token = following
    finally:
        answer_abandoned(undone)


def _check_restores(restores: int, error: TurnFailedError) -> None:
    if restores > MOST_RESTORES:
        raise error
    _log.error(
        "nothing of a turn is stored, and the state is loaded again without it", exc_info=error
    )


async def run_with_recovery(
    begin: Callable[[], Awaitable[Driver]], *others: asyncio.Task[Any]
) -> FailedTurn | None:
    """Run a driver until cancelled, until a turn fails, or until one of the tasks ends.

    Args:
        begin: loads the state and returns its driver.
        others: tasks beside it; the error of one that ends is raised.

    Returns:
        the turn that failed; None if a task ended.

    Raises:
        StaleLeaderError: another scheduler leads now.
    """
    driver = await begin()
    task = asyncio.create_task(driver.run())
    try:
        done, _ = await asyncio.wait((task, *others), return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            ended.result()
    except TurnFailedError as error:
        return FailedTurn(error, driver.undone, driver.commits)
    except asyncio.CancelledError:
        if await _last_turn_is_stored(driver, task):
            await driver.write_snapshot()
        raise
    finally:
        await cancel_and_wait(task)
    return None


async def _last_turn_is_stored(driver: Driver, task: asyncio.Task[None]) -> bool:
    """Wait for a driver's last turn; return whether it is stored and published."""
    driver.leave()
    await asyncio.wait({task}, timeout=LAST_TURN_S)
    if task.done() and not task.cancelled() and task.exception() is None:
        return True
    _log.warning("no last snapshot is written: the last turn is not stored")
    return False


async def cancel_and_wait(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, with any result."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task
