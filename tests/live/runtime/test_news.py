import asyncio
import time

import pytest

from scheduler.runtime.signals import News, first_of


def test_everybody_who_waits_is_told_and_nobody_is_kept():
    async def scenario() -> None:
        news = News()
        waits = [asyncio.create_task(news.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        assert len(news.waiting) == 3
        assert not news.is_set()
        news.set()
        await asyncio.wait_for(asyncio.gather(*waits), 60.0)
        assert news.is_set()
        assert not news.waiting

    asyncio.run(scenario())


def test_what_has_been_told_is_not_waited_for():
    async def scenario() -> None:
        news = News()
        news.set()
        await asyncio.wait_for(first_of(News(), news), 60.0)

    asyncio.run(scenario())


def test_the_first_of_several_ends_the_wait_for_all():
    async def scenario() -> None:
        one, other = News(), News()
        wait = asyncio.create_task(first_of(one, other, within_s=60.0))
        await asyncio.sleep(0)
        other.set()
        one.set()
        await asyncio.wait_for(wait, 60.0)
        assert not one.waiting | other.waiting

    asyncio.run(scenario())


def test_without_news_a_wait_ends_in_time():
    async def scenario() -> None:
        news = News()
        begin = time.monotonic()
        await asyncio.wait_for(first_of(news, within_s=0.05), 60.0)
        assert time.monotonic() - begin >= 0.04
        assert not news.is_set()
        assert not news.waiting

    asyncio.run(scenario())


def test_whoever_gives_up_is_forgotten():
    async def scenario() -> None:
        news = News()
        wait = asyncio.create_task(first_of(news, within_s=60.0))
        await asyncio.sleep(0)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        assert not news.waiting

    asyncio.run(scenario())
