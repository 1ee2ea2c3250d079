"""Plans of models, found beside the loop before a decision needs them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from scheduler.domain.cluster import Cluster, Node, WorkerType
from scheduler.domain.lease_life import MEMORY_ERROR
from scheduler.domain.throughputs.ways import CatalogueKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scheduler.control.state.view import PublishedState
    from scheduler.domain.jobs.spec import JobSpec
    from scheduler.protocol.reports import NodeReport

#: The longest that a report waits for plans; agents wait 15 s for the answer.
_MOST_S: Final = 5.0


class Planning:
    """Finds plans in a thread: a decision that had to find them would hold up the loop.

    Args:
        view: returns the state of the leader; raises if this process does not lead.
    """

    def __init__(self, view: Callable[[], PublishedState]) -> None:
        self._view = view
        #: plans are found for one request and for one report at a time: they share one interpreter
        #: with the loop.
        self._one = asyncio.Lock()
        self._for_report: asyncio.Task[None] | None = None

    async def for_jobs(self, specs: Iterable[JobSpec]) -> None:
        """Find the plans of jobs on the cluster as it is."""
        if keys := {CatalogueKey.of(spec) for spec in specs if spec.model}:
            async with self._one:
                await self._find(keys, self._view().engine.present.most_on_a_node)

    async def for_node(self, name: str, workers: Sequence[str]) -> None:
        """Find the plans of active jobs for a node that will have other workers, for some seconds.

        Args:
            name: of the node.
            workers: worker type of each of its workers; empty if it will be removed.
        """
        view = self._view()
        node = view.nodes.by_name.get(name)
        if tuple(workers) == (() if node is None else node.types):
            return
        specs = [record.spec for record in view.jobs.by_id.values() if record.spec.model]
        if specs and (news := _news(view.engine.present, name, workers)):
            await self._find_in_time({CatalogueKey.of(spec) for spec in specs}, news)

    async def for_ends(self, report: NodeReport) -> None:
        """Find the next plans of jobs that ran out of memory by a report, for some seconds."""
        view = self._view()
        for told in report.leases:
            live = view.leases.by_id.get(told.lease_id)
            if told.message != MEMORY_ERROR or live is None or not live.plan:
                continue
            spec = view.jobs.by_id[live.lease.job_id].spec
            if spec.model:
                most = view.engine.present.most_on_a_node.get(live.worker_type, 0)
                after = len(live.lease.workers)
                await self._find_in_time(
                    [CatalogueKey.of(spec)], {live.worker_type: most}, after=after
                )

    async def _find_in_time(
        self, keys: Iterable[CatalogueKey], per_node: Mapping[str, int], *, after: int = 0
    ) -> None:
        """Find plans, but do not hold up a report until its agent gives up."""
        if self._for_report is not None:
            await asyncio.wait({self._for_report}, timeout=_MOST_S)
        if self._for_report is None or self._for_report.done():
            self._for_report = asyncio.create_task(self._find(keys, per_node, after=after))
            await asyncio.wait({self._for_report}, timeout=_MOST_S)

    async def _find(
        self, keys: Iterable[CatalogueKey], per_node: Mapping[str, int], *, after: int = 0
    ) -> None:
        find = self._view().knowledge.plan_ahead
        await asyncio.to_thread(find, keys, per_node, after=after)


def _news(present: Cluster, name: str, workers: Sequence[str]) -> dict[str, int]:
    """Return worker type -> the most workers on one node, if a node's workers change that."""
    names = dict.fromkeys((*present.type_names, *workers))
    others = (node for node in present.nodes if node.name != name)
    after = Cluster(
        worker_types=tuple(WorkerType(name=one) for one in names),
        nodes=(*others, Node(name=name, workers=tuple(workers))),
    )
    before = present.most_on_a_node
    return {one: most for one, most in after.most_on_a_node.items() if most != before.get(one, 0)}
