"""The stream of changes: when each open page hears of a change."""

import asyncio
from types import SimpleNamespace

import pytest

from api.pages import changes


async def _step(call, _principal):
    return await call


def _history(newest):
    """Return the answer of a scheduler that already has a new line of history."""

    async def wait(_known, *, wait_s):
        assert wait_s > 0
        return newest

    return wait


async def _two_words(sleeps):
    """Read a stream up to its second word; returns the pauses before that one."""
    context = SimpleNamespace(
        store=SimpleNamespace(head=lambda: SimpleNamespace(event_id=7)),
        serves=lambda _principal: True,
        unless_stopping=_step,
        service=SimpleNamespace(wait_for_history=_history(8)),
    )
    words = changes._words(context, None)
    assert await anext(words) == b"event: change\ndata: 7\n\n"
    sleeps.clear()
    assert await anext(words) == b"event: change\ndata: 8\n\n"
    await words.aclose()
    return list(sleeps)


def test_open_pages_do_not_hear_of_one_change_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleeps: list[float] = []

    async def sleep(seconds):
        sleeps.append(seconds)

    monkeypatch.setattr(changes, "asyncio", SimpleNamespace(sleep=sleep))

    async def look():
        return [await _two_words(sleeps) for _ in range(20)]

    found = asyncio.run(look())
    assert all(least == changes.LEAST_S for least, _ in found)
    assert all(0 <= pause <= changes.SPREAD_S for _, pause in found)
    assert len({pause for _, pause in found}) == 20, "no two pages ask at the same time"
