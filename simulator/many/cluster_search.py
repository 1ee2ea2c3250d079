"""Search for a cluster that suits a load: replay clusters around the present one.

A compass search (Kolda, Lewis and Torczon, "Optimization by direct search", SIAM Review 2003) over
the number of nodes of each worker type. A step adds nodes of a type, drops some, or exchanges them
for nodes of another type. The step size doubles after a step that found something better, and
halves after any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, permutations, zip_longest
from typing import TYPE_CHECKING, Final

from scheduler.domain.cluster import Cluster, parse_cluster_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from simulator.result import Summary

#: Relative error up to which two prices count as equal.
_ROUNDING: Final = 1e-9

#: Metrics of a goal: mean and 95th percentile of the JCT.
METRICS: Final = ("mean", "p95")

#: Workers of each type, in the order of ``ClusterSpace.types``.
Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCluster:
    """The figures of a cluster on which the load was replayed.

    Attributes:
        counts: workers of each type.
        usd_per_hour: price of all its workers.
        mean_jct_s: mean JCT of the completed jobs; infinite if none completed.
        p95_jct_s: the 95th percentile of their JCT.
        utilisation: worker-seconds under a lease over all worker-seconds.
        unfinished: jobs that did not complete.
    """

    counts: Counts
    usd_per_hour: float
    mean_jct_s: float
    p95_jct_s: float
    utilisation: float
    unfinished: int

    def jct_s(self, metric: str) -> float:
        """Return the JCT by metric, ``mean`` or ``p95``."""
        return self.mean_jct_s if metric == "mean" else self.p95_jct_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What to search for. Without a budget and a target: the frontier of cost and JCT.

    Attributes:
        metric: which JCT counts, ``mean`` or ``p95``.
        budget_usd_per_hour: search for the shortest JCT at this cost or less; None for no budget.
        target_s: search for the lowest cost with this JCT or a shorter one; None for no target.
    """

    metric: str = "mean"
    budget_usd_per_hour: float | None = None
    target_s: float | None = None

    @property
    def has_limit(self) -> bool:
        """Whether a budget or a target is set, so that one cluster is the best."""
        return self.budget_usd_per_hour is not None or self.target_s is not None

    def rank(self, cluster: ReplayedCluster) -> tuple[float, float, float, float]:
        """Return a key that is smaller for a better cluster.

        In order: unfinished jobs, excess over the limit, the figure to minimise, the other figure.
        The last one counts because a faster cluster of equal cost can lead to a cheaper one.
        """
        jct_s, usd = cluster.jct_s(self.metric), cluster.usd_per_hour
        if self.budget_usd_per_hour is not None:
            excess = usd - self.budget_usd_per_hour * (1.0 + _ROUNDING)
            return cluster.unfinished, max(excess, 0.0), jct_s, usd
        return cluster.unfinished, max(jct_s - (self.target_s or 0.0), 0.0), usd, jct_s

    def find_best(self, found: Sequence[ReplayedCluster]) -> ReplayedCluster | None:
        """Return the best cluster, or None without a limit."""
        return min(found, key=self.rank) if self.has_limit else None

    def is_met(self, cluster: ReplayedCluster) -> bool:
        """Return whether a cluster keeps the limit and completes every job."""
        return self.has_limit and self.rank(cluster)[:2] == (0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpace:
    """The clusters that a search may try. Every node has workers of one type.

    Attributes:
        types: (K,) worker types.
        prices: (K,) USD per hour of one worker.
        node_workers: workers of a node.
    """

    types: tuple[str, ...]
    prices: tuple[float, ...]
    node_workers: int

    def cost(self, counts: Counts) -> float:
        """Return USD per hour of a cluster."""
        return sum(count * price for count, price in zip(counts, self.prices, strict=True))

    def spec(self, counts: Counts) -> str:
        """Return a cluster as ``type:count`` pairs, without types that have no worker."""
        return ",".join(f"{t}:{n}" for t, n in zip(self.types, counts, strict=True) if n)

    def cluster(self, counts: Counts) -> Cluster:
        """Return a cluster with its nodes and prices."""
        prices = dict(zip(self.types, self.prices, strict=True))
        return parse_cluster_spec(
            self.spec(counts), workers_per_node=self.node_workers, prices=prices
        )

    def neighbours(self, counts: Counts, step: int) -> Iterator[Counts]:
        """Yield the clusters that differ by a step of that many nodes.

        Nodes are exchanged one for one, and for nodes of the same price: a search at the limit of a
        budget can go on by such exchanges only.
        """
        types = range(len(counts))
        for k in types:
            yield self._changed(counts, {k: step})
        for k in types:
            if self._nodes(counts[k]) >= step and any(fewer := self._changed(counts, {k: -step})):
                yield fewer
        for k, j in permutations(types, 2):
            ratio = self.prices[k] / self.prices[j]
            same_price = (
                (step, int(step * ratio + _ROUNDING))
                if ratio >= 1.0
                else (math.ceil(step / ratio - _ROUNDING), step)
            )
            for dropped, added in {(step, step): None, same_price: None}:
                if self._nodes(counts[k]) >= dropped:
                    yield self._changed(counts, {k: -dropped, j: added})

    def _nodes(self, count: int) -> int:
        return math.ceil(count / self.node_workers)

    def _changed(self, counts: Counts, nodes: dict[int, int]) -> Counts:
        """Return the counts with nodes added to types, by their positions, or dropped."""
        return tuple(
            max(count + nodes.get(k, 0) * self.node_workers, 0) for k, count in enumerate(counts)
        )


def summarise_replay(
    counts: Counts, space: ClusterSpace, summary: Summary | None, jobs: int
) -> ReplayedCluster:
    """Return the figures of a cluster.

    Args:
        counts: its workers.
        space: of the search.
        summary: of the replay; None if the replay failed.
        jobs: of the trace.
    """
    if summary is None or not summary.jobs_completed:
        mean_s = p95_s = math.inf
    else:
        mean_s, p95_s = summary.average_jct_s, summary.p95_jct_s
    return ReplayedCluster(
        counts=counts,
        usd_per_hour=space.cost(counts),
        mean_jct_s=mean_s,
        p95_jct_s=p95_s,
        utilisation=0.0 if summary is None else summary.utilisation,
        unfinished=jobs if summary is None else summary.jobs - summary.jobs_completed,
    )


def search_clusters(
    start: Counts,
    space: ClusterSpace,
    goal: Goal,
    replay: Callable[[Sequence[Counts]], Sequence[ReplayedCluster]],
    *,
    max_replays: int,
) -> Iterator[ReplayedCluster]:
    """Yield replayed clusters, the present one first, until no step finds a better one.

    Args:
        start: the present cluster.
        space: the clusters that may be tried.
        goal: without a limit, the search goes on from every cluster on the frontier.
        replay: replays the load on clusters.
        max_replays: clusters to replay at most.
    """
    found = list(replay([start]))
    yield from found
    seen, step = {start}, 1
    while step and len(found) < max_replays:
        bases = _bases(found, goal)
        # One neighbour of each base in turn, so that no base uses up the replays alone.
        in_turn = zip_longest(*(space.neighbours(base.counts, step) for base in bases))
        fresh = dict.fromkeys(
            counts
            for counts in chain.from_iterable(in_turn)
            if counts and counts not in seen and space.cost(counts) <= _max_cost(found, goal)
        )
        batch = list(fresh)[: max_replays - len(found)]
        seen.update(batch)
        replayed = list(replay(batch)) if batch else []
        found += replayed
        yield from replayed
        step = step * 2 if _bases(found, goal) != bases else step // 2


def _bases(found: Sequence[ReplayedCluster], goal: Goal) -> list[ReplayedCluster]:
    """Return the best cluster, or without a limit the frontier."""
    best = goal.find_best(found)
    return find_frontier(found, goal.metric) if best is None else [best]


def _max_cost(found: Sequence[ReplayedCluster], goal: Goal) -> float:
    """Return the highest cost of a cluster that is worth a replay.

    A cluster over the budget is worth one if it costs no more than the present one. If the target
    is met, a cluster that costs more than the best one is not.
    """
    best = goal.find_best(found)
    if goal.budget_usd_per_hour is not None:
        cost = max(goal.budget_usd_per_hour, found[0].usd_per_hour)
    else:
        cost = best.usd_per_hour if best is not None and goal.is_met(best) else math.inf
    return cost * (1.0 + _ROUNDING)


def find_frontier(found: Sequence[ReplayedCluster], metric: str) -> list[ReplayedCluster]:
    """Return the clusters that no other one beats in both cost and JCT, the cheapest first.

    Clusters that complete fewer jobs than the best one are left out.
    """
    least = min(cluster.unfinished for cluster in found)
    frontier: list[ReplayedCluster] = []
    for cluster in sorted(
        (c for c in found if c.unfinished == least),
        key=lambda c: (c.usd_per_hour, c.jct_s(metric), c.counts),
    ):
        if not frontier or cluster.jct_s(metric) < frontier[-1].jct_s(metric):
            frontier.append(cluster)
    return frontier


def find_changes(before: Counts, after: Counts, types: Sequence[str]) -> dict[str, int]:
    """Return worker type -> workers added, or dropped if negative; without unchanged types."""
    rows = zip(types, before, after, strict=True)
    return {name: new - old for name, old, new in rows if new != old}
