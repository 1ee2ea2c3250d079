"""Carrying what nodes of tests say: to a service in the same process, or over any other link."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from scheduler.errors import InputError, NotLeadingError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.link.port import Link
    from scheduler.protocol.desired import Desired
    from scheduler.protocol.reports import NodeReport
    from scheduler.runtime.contract import Agents
    from simulator.world.nodes import SimulatedNode


class ServiceLink:
    """The contract of ``agent.loop.Link`` over a service in this process.

    Attributes:
        service: answers requests; a test may replace it.
        cut: whether nothing comes through.
    """

    def __init__(self, service: Agents | None, node: str, *, wait_s: float = 0.0) -> None:
        self.service = service
        self.cut = False
        self._node = node
        self._wait_s = wait_s

    def _there(self) -> Agents:
        if self.cut or self.service is None:
            raise ConnectionRefusedError(f"the scheduler is out of reach of node '{self._node}'")
        return self.service

    async def desired(self, *, after: tuple[int, int], instance: str = "") -> Desired:
        """Return the desired set."""
        service = self._there()
        try:
            return await service.desired(
                self._node, after=after, wait_s=self._wait_s, instance=instance
            )
        except (NotLeadingError, StoreError) as error:  # over HTTP these are 5xx
            raise ConnectionRefusedError(str(error)) from error

    async def report(self, report: NodeReport) -> None:
        """Deliver a report."""
        service = self._there()
        try:
            await service.report(report, address=report.node, version="test")
        except (NotLeadingError, StoreError) as error:  # over HTTP these are 5xx
            raise ConnectionRefusedError(str(error)) from error

    async def code(self, lease_id: int) -> bytes:
        """Know of no uploads."""
        raise InputError(f"there is no code of lease {lease_id} here")

    async def tell_exec(self, exec_id: str, told: Mapping[str, Any]) -> tuple[bool, bool]:
        """Refuse: here no command runs beside a job."""
        raise ConnectionError(f"command {exec_id} is not known: {sorted(told)}")

    async def append_log(
        self,
        lease_id: int,
        stream: str,
        *,
        offset: int,
        data: bytes,
        end: bool = False,
        nonce: str = "",
    ) -> int:
        """Deliver a piece of a lease's output."""
        service = self._there()
        return await service.append_log(
            self._node, lease_id, stream, offset=offset, data=data, end=end, nonce=nonce
        )


class FakeAgent:
    """A node and its link.

    Args:
        node: the node that decides.
        link: the way to the scheduler.
    """

    def __init__(self, node: SimulatedNode, link: Link) -> None:
        self.node = node
        self.link = link

    async def ask(self) -> None:
        """Fetch the desired set once and act on it; raises what the link raises."""
        sent_s = self.node.world.now_s()
        self.node.accept(await self.link.desired(after=self.node.after), sent_s=sent_s)

    async def tell(self) -> None:
        """Deliver one report; raises what the link raises."""
        report = self.node.report()
        await self.link.report(report)
        self.node.delivered(report)

    async def run(self, *, report_every_s: float, retry_s: float = 1.0) -> None:
        """Serve in real time until cancelled; as the agent's loop, at a fraction of its cost."""
        news = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_asking(news, retry_s))
            tasks.create_task(self._keep_telling(news, report_every_s, retry_s))

    async def _keep_asking(self, news: asyncio.Event, retry_s: float) -> None:
        while True:
            before = self.node.after
            try:
                await self.ask()
            except OSError:
                await asyncio.sleep(retry_s)
            if self.node.after != before:
                news.set()

    async def _keep_telling(
        self, news: asyncio.Event, report_every_s: float, retry_s: float
    ) -> None:
        while True:
            news.clear()
            self.node.act()
            try:
                await self.tell()
            except OSError:
                await asyncio.sleep(retry_s)
                continue
            wait_s = min(self.node.next_s - self.node.world.now_s(), report_every_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(wait_s, 0.01)):
                    await news.wait()


class InlineExecutor(ThreadPoolExecutor):
    """Runs submitted calls at once, so that an event loop with it always takes the same course.

    For ``loop.set_default_executor``, and with stores that never wait.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call ``fn`` now."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it belongs to the caller that waits
            future.set_exception(error)
        return future
