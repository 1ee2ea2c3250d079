"""Plans of models, found beside the loop before a decision needs them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scheduler.domain.cluster import Cluster, Node, WorkerType
from scheduler.domain.throughputs.ways import CatalogueKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scheduler.control.state.view import PublishedState
    from scheduler.domain.jobs.spec import JobSpec


class Planning:
    """Finds plans in a thread: a decision that had to find them would hold up the loop.

    Args:
        view: returns the state of the leader; raises if this process does not lead.
    """

    def __init__(self, view: Callable[[], PublishedState]) -> None:
        self._view = view
        #: plans are found for one request at a time: they share one interpreter with the loop.
        self._one = asyncio.Lock()

    async def for_jobs(self, specs: Iterable[JobSpec]) -> None:
        """Find the plans of jobs on the cluster as it is."""
        if keys := {CatalogueKey.of(spec) for spec in specs if spec.model}:
            await self._find(keys, self._view().engine.present.most_on_a_node)

    async def for_node(self, name: str, workers: Sequence[str]) -> None:
        """Find the plans of active jobs for a node that will have other workers.

        Args:
            name: of the node.
            workers: worker type of each of its workers; empty if it will be removed.
        """
        view = self._view()
        node = view.nodes.by_name.get(name)
        if tuple(workers) == (() if node is None else node.types):
            return
        specs = [record.spec for record in view.jobs.by_id.values() if record.spec.model]
        news = _news(view.engine.present, name, workers) if specs else {}
        if news:
            await self._find({CatalogueKey.of(spec) for spec in specs}, news)

    async def _find(self, keys: Iterable[CatalogueKey], per_node: Mapping[str, int]) -> None:
        async with self._one:
            await asyncio.to_thread(self._view().knowledge.plan_ahead, keys, per_node)


def _news(present: Cluster, name: str, workers: Sequence[str]) -> dict[str, int]:
    """Return worker type -> the most workers on one node, if a node's workers change that."""
    names = dict.fromkeys((*present.type_names, *workers))
    others = (node for node in present.nodes if node.name != name)
    after = Cluster(
        worker_types=tuple(WorkerType(name=one) for one in names),
        nodes=(*others, Node(name=name, workers=tuple(workers))),
    )
    before = present.most_on_a_node
    return {
        one: most
        for one, most in after.most_on_a_node.items()
        if most and most != before.get(one, 0)
    }
