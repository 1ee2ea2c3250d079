"""Answers that take long to compute, kept for a while and shared by all that ask meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

    from api.context import Context

T = TypeVar("T")
#: Answers of one kind that are kept at once.
MOST_KEPT: Final = 50


async def kept(
    context: Context,
    key: tuple[Hashable, ...],
    make: Callable[[], Coroutine[Any, Any, T]],
    *,
    for_s: float,
) -> T:
    """Return an answer that is fresh enough; questions of the same moment share one.

    Args:
        context: keeps it.
        key: the kind of question, and everything that the answer depends on: also what its reader
            may see.
        make: computes the answer.
        for_s: seconds for which it is kept, from the question on.
    """
    answers, loop_s = context.kept_answers, asyncio.get_running_loop().time()
    for old in [one for one, (until_s, _) in answers.items() if until_s <= loop_s]:
        del answers[old]
    if key not in answers:
        same = [one for one in answers if one[0] == key[0]]
        if len(same) >= MOST_KEPT:
            del answers[same[0]]
        answers[key] = loop_s + for_s, asyncio.create_task(make())
    _, task = answers[key]
    try:
        return cast("T", await asyncio.shield(task))
    except Exception:  # a failure is not kept
        if answers.get(key, (0.0, None))[1] is task:
            del answers[key]
        raise
