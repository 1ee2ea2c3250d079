"""The nodes as control knows them: each node's report, and its time."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from scheduler.protocol.reports import LEAVING, instance_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.control.facts.requests import NodeAction
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.lease import Lease
    from scheduler.protocol.reports import NodeReport

#: Part of the names of nodes with retired workers.
RETIRED = "~retired-"
#: No workers, by type.
_NONE: Mapping[str, int] = MappingProxyType({})
#: A node's workers may be exchanged at most this often within this time.
MOST_CHANGES: Final = 16
CHANGES_WITHIN_S: Final = 3600.0
#: A node gets nothing new after this part of ``node_timeout_s`` without a report. By default that
#: is 30 s: two of an agent's polls, or three of its reports.
SILENT: Final = 0.5
#: A node that keeps changing its claims is reported once within this time.
TOLD_AGAIN_S: Final = 3600.0
#: Leases that are lost by the death of an agent are reported within this time of its return.
OUTAGE_FOUND_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why control starts nothing new on a node without an operator's order.

    Attributes:
        since_s: from when on.
        until_s: when the node is tried again; infinity: once an operator uncordons it.
        evidence: the failures there: job, time, category and message of each, oldest first.
    """

    since_s: float
    until_s: float
    evidence: tuple[Mapping[str, object], ...] = ()

    @property
    def lasts(self) -> bool:
        """Whether the node is quarantined, and not only avoided for a while."""
        return math.isinf(self.until_s)

    def to_data(self) -> dict[str, object]:
        """Return it as plain JSON values."""
        until_s = None if self.lasts else self.until_s
        return {
            "since_s": self.since_s,
            "until_s": until_s,
            "evidence": [dict(one) for one in self.evidence],
        }

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Doubt:
        """Return the doubt from the result of ``to_data``."""
        until_s = math.inf if data["until_s"] is None else data["until_s"]
        evidence = tuple(MappingProxyType(one) for one in data["evidence"])
        return cls(since_s=data["since_s"], until_s=until_s, evidence=evidence)


@dataclass(slots=True, kw_only=True)
class NodeState:
    """A node.

    Attributes:
        name: unique.
        first: number of its first worker; its other workers have the next numbers.
        types: (n,) worker types, in the order of the node's local indices.
        indices: (n,) these local indices; empty if they are 0, 1, ..., n - 1.
        refused: worker type -> how many it reports beyond the approved ones.
        address: the address of rank 0 of its jobs.
        version: of its agent.
        incarnation: of the agent, as last reported.
        sequence: of the agent's newest report.
        place: where that agent's jobs run; see ``NodeReport.place``.
        stalls: how often that agent's event loop stood still.
        last_seen_s: the time of its last report or poll; None if there is none since the
            scheduler's start.
        outage: (time of the last report or poll before its agent died, time of the first one after
            that); None if no agent has died there.
        lost: whether it counts as lost.
        silent: whether nothing new is granted there until it reports again; see ``SILENT``.
        suspects: ids of jobs that were lost there while it was silent; see ``note_death``.
        problems: position among its workers -> why a worker cannot be used.
        exclusive: worker types of which two jobs cannot share a worker there.
        order: the operator's order; None if there is none.
        reason: the order's reason.
        drained: whether its last lease has ended since it was drained, and the history says so.
        doubt: why control starts nothing new there; None if it does.
        slow: speed of jobs there relative to other nodes of its types, if it is reported as slow;
            else None.
        since_s: when the scheduler began to expect it.
        revision: of the desired set.
    """

    name: str
    first: int
    types: tuple[str, ...]
    indices: tuple[int, ...] = ()
    refused: Mapping[str, int] = field(default_factory=lambda: _NONE)
    address: str = "127.0.0.1"
    version: str = ""
    incarnation: float = -1.0
    sequence: int = -1
    place: str = ""
    stalls: int = 0
    last_seen_s: float | None = None
    outage: tuple[float, float] | None = None
    lost: bool = False
    silent: bool = False
    suspects: list[str] = field(default_factory=list)
    problems: dict[int, str] = field(default_factory=dict)
    exclusive: frozenset[str] = frozenset()
    order: NodeAction | None = None
    reason: str = ""
    drained: bool = False
    doubt: Doubt | None = None
    slow: float | None = None
    since_s: float = 0.0
    revision: int = 1

    @property
    def workers(self) -> tuple[int, ...]:
        """Numbers of its workers, in the order of its local indices."""
        return tuple(range(self.first, self.first + len(self.types)))

    @property
    def usable(self) -> tuple[int, ...]:
        """Numbers of its workers that have no problem of their own."""
        return tuple(w for i, w in enumerate(self.workers) if i not in self.problems)

    @property
    def broken(self) -> frozenset[int]:
        """Positions of its workers that have a problem other than a stop of the agent."""
        return frozenset(i for i, problem in self.problems.items() if problem != LEAVING)

    def index_of(self, position: int) -> int:
        """Return the node's own index of one of its workers."""
        return self.indices[position] if self.indices else position

    def is_news(self, report: NodeReport) -> bool:
        """Return whether a report is newer than the last one."""
        return (report.incarnation, report.sequence) > (self.incarnation, self.sequence)

    @property
    def instance(self) -> str:
        """The name of the agent that serves it; empty if the agent reports no place."""
        return instance_of(self.place, self.incarnation)

    def silent_since(self) -> float:
        """Return the time of its last report or poll."""
        return self.since_s if self.last_seen_s is None else self.last_seen_s

    def ran_until(self, now_s: float) -> float:
        """Return until when processes surely ran there that are found to be lost now."""
        if self.outage is not None and now_s - self.outage[1] <= OUTAGE_FOUND_S:
            return self.outage[0]
        return self.silent_since()

    def order_to_data(self) -> dict[str, Any]:
        """Return the order, as it is stored."""
        return {"order": str(self.order), "reason": self.reason, "drained": self.drained}

    def publish(self) -> None:
        """Count the desired set as a new one; agents that wait for it must still be notified."""
        self.revision += 1


class NodeBook:
    """All nodes, and the node of each worker."""

    def __init__(self) -> None:
        self.by_name: dict[str, NodeState] = {}
        #: nodes that have changed since this was last emptied.
        self.touched: set[str] = set()
        #: node -> worker type -> how many are approved; a node without an entry may have any.
        self.approved: Mapping[str, Mapping[str, int]] = MappingProxyType({})
        #: worker number -> (node, position there), for every worker there ever was.
        self._places: list[tuple[str, int]] = []
        #: worker number -> worker type.
        self._types: list[str] = []
        self._nodes = 0
        #: node -> the last times at which its workers were exchanged; only in memory.
        self._changes: dict[str, deque[float]] = {}
        #: node -> when it was last reported for claiming too much; only in memory.
        self._told_s: dict[str, float] = {}
        #: nodes that were refused since their last change.
        self._refused: set[str] = set()

    def follow(self, cluster: Cluster, *, now_s: float) -> list[NodeState]:
        """Take in the nodes that have joined the engine's cluster since the last call.

        Returns:
            Their states; a node that came back under its old name has a new one.
        """
        joined = []
        for node in cluster.nodes[self._nodes :]:
            name = node.name.partition(RETIRED)[0]
            state = NodeState(name=name, first=len(self._places), types=node.workers, since_s=now_s)
            self._places.extend((name, local) for local in range(len(node.workers)))
            self._types.extend(node.workers)
            old = self.by_name.get(name)
            if old is not None:
                state.revision = old.revision
            if RETIRED not in node.name:
                self.by_name[name] = state
                self.touched.add(name)
                joined.append(state)
        self._nodes = len(cluster.nodes)
        return joined

    def touch(self, name: str) -> None:
        """Note that a node has changed."""
        self.touched.add(name)

    def note_change(self, name: str, now_s: float) -> None:
        """Note that a node's workers are exchanged."""
        self._changes.setdefault(name, deque(maxlen=MOST_CHANGES)).append(now_s)
        self._refused.discard(name)

    def changes_since(self, name: str, since_s: float) -> int:
        """Return how often a node's workers were exchanged since then; at most ``MOST_CHANGES``."""
        return sum(at_s > since_s for at_s in self._changes.get(name, ()))

    def may_tell(self, name: str, now_s: float) -> bool:
        """Return whether to report a node's claim, and note it; False if it was just reported."""
        told_s = self._told_s.get(name)
        if told_s is not None and now_s - told_s < TOLD_AGAIN_S:
            return False
        self._told_s[name] = now_s
        return True

    def forget_told(self, name: str) -> None:
        """Let the next claim of a node be reported at once."""
        self._told_s.pop(name, None)

    def is_first_refusal(self, name: str) -> bool:
        """Note a refused change; return whether it is the first since the last accepted one."""
        first = name not in self._refused
        self._refused.add(name)
        return first

    @property
    def exclusive(self) -> frozenset[str]:
        """Worker types that two jobs cannot share on every node that has them.

        Assignments do not choose nodes, so one node that cannot share decides for its type.
        """
        return frozenset().union(*(node.exclusive for node in self.by_name.values()))

    def place(self, worker: int) -> tuple[str, int]:
        """Return the node of a worker and its position there."""
        return self._places[worker]

    def type_of(self, workers: tuple[int, ...]) -> str:
        """Return the type of the workers; empty if they are of several types."""
        types = {self._types[worker] for worker in workers}
        return types.pop() if len(types) == 1 else ""

    def gang_of(self, lease: Lease) -> tuple[str, ...]:
        """Return the worker type of each rank of a lease; empty if all are of one type."""
        types = {self._types[worker] for worker in lease.workers}
        if len(types) == 1:
            return ()
        by_node: dict[str, list[str]] = {}  # ranks go node by node
        for worker in lease.workers:
            by_node.setdefault(self._places[worker][0], []).append(self._types[worker])
        return tuple(chain.from_iterable(by_node.values()))

    def remove(self, name: str) -> None:
        """Forget a node."""
        self.by_name.pop(name, None)
        self.touched.add(name)

    def silent(self, now_s: float, *, timeout_s: float) -> Iterator[NodeState]:
        """Yield nodes that have not reported for too long and do not count as lost."""
        for state in self.by_name.values():
            if not state.lost and now_s - state.silent_since() > timeout_s:
                yield state

    def fall_silent(self, now_s: float, *, timeout_s: float) -> Iterator[NodeState]:
        """Yield nodes that may soon be lost and do not count as silent yet."""
        for state in self.by_name.values():
            if (
                now_s - state.silent_since() > SILENT * timeout_s
                and not state.silent
                and not state.lost
            ):
                yield state
