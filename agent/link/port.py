"""The way from an agent to the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.protocol.desired import Desired
    from scheduler.protocol.reports import NodeReport


class Link(Protocol):
    """The way to the scheduler.

    Both calls raise OSError (ConnectionError, TimeoutError) if the scheduler cannot be reached, and
    InputError if its answer cannot be read; the agent waits and asks again.
    """

    async def desired(self, *, after: tuple[int, int], instance: str = "") -> Desired:
        """Return the desired set, at once if it is newer than ``after`` = (term, revision).

        Otherwise wait for news, and return the same set after some seconds without any.
        ``instance`` names the agent; see ``NodeReport.instance``. An agent that does not serve the
        node is refused.
        """
        ...

    async def report(self, report: NodeReport) -> None:
        """Deliver a report; return when the scheduler has stored it."""
        ...

    async def code(self, lease_id: int) -> bytes:
        """Return the code that a lease of this node is started in; do not trust its content."""
        ...

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
        """Deliver a piece of a lease's output.

        Args:
            lease_id: the lease.
            stream: ``out`` or ``err``.
            offset: bytes of this stream before the piece.
            data: the piece; empty to ask how much is stored.
            end: whether nothing follows it any more; effective if the answer is its end.
            nonce: of the lease; output of another lease of that number is refused.

        Returns:
            the offset to continue from: the end of the scheduler's copy. A piece that does not
            follow that was dropped.
        """
        ...

    async def tell_exec(self, exec_id: str, told: Mapping[str, Any]) -> tuple[bool, bool]:
        """Deliver the output of a command, or its end.

        Returns:
            whether it must end, and whether there is room for more of its output.
        """
        ...
