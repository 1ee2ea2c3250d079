"""The nodes as control knows them: what each reported, and when."""

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

#: Part of the names of nodes whose workers are gone for ever.
RETIRED = "~retired-"
#: Nothing, by type.
_NONE: Mapping[str, int] = MappingProxyType({})
#: So often may a node's workers be exchanged within so long.
MOST_CHANGES: Final = 16
CHANGES_WITHIN_S: Final = 3600.0
#: A node that has said nothing for this part of the time after which it is lost gets nothing new.
#: By default that is 30 s: two of an agent's polls, or three of its reports.
SILENT: Final = 0.5
#: A node that claims one thing now and another then is told of once within so long.
TOLD_AGAIN_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why nothing new starts on a node although nobody ordered so.

    Attributes:
        since_s: from when on.
        until_s: it is tried again then; infinity: once an operator uncordons it.
        evidence: what happened there: job, time, kind and words of each, oldest first.
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
        """Return what ``to_data`` was called for."""
        until_s = math.inf if data["until_s"] is None else data["until_s"]
        evidence = tuple(MappingProxyType(one) for one in data["evidence"])
        return cls(since_s=data["since_s"], until_s=until_s, evidence=evidence)


@dataclass(slots=True, kw_only=True)
class NodeState:
    """A node.

    Attributes:
        name: unique.
        first: number of its first worker; its workers are numbered on from there.
        types: (n,) worker types, in the order of the node's local indices.
        indices: (n,) these local indices; empty where they are 0, 1, ..., n - 1.
        refused: worker type -> how many it reports beyond what is approved.
        address: where its jobs' rank 0 can be reached.
        version: of its agent.
        incarnation: of the agent, as last reported.
        sequence: of the agent's newest report.
        place: where that agent's jobs run; see ``NodeReport.place``.
        last_seen_s: when it last spoke; None since the scheduler's start.
        lost: whether it is taken for lost.
        silent: whether nothing new is granted there until it speaks again; see ``SILENT``.
        suspects: ids of jobs that were lost there while it was silent; see ``note_death``.
        problems: position among its workers -> why a worker cannot be used.
        exclusive: worker types of which two jobs cannot share a worker there.
        order: what an operator ordered; None for nothing.
        reason: why.
        doubt: why nothing new starts there unasked; None for nothing.
        slow: how fast jobs run there beside other nodes of its types, where that is told as slow;
            None where it is not.
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
    last_seen_s: float | None = None
    lost: bool = False
    silent: bool = False
    suspects: list[str] = field(default_factory=list)
    problems: dict[int, str] = field(default_factory=dict)
    exclusive: frozenset[str] = frozenset()
    order: NodeAction | None = None
    reason: str = ""
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
        """Return what the node calls one of its workers."""
        return self.indices[position] if self.indices else position

    def is_news(self, report: NodeReport) -> bool:
        """Tell whether a report is newer than what is known."""
        return (report.incarnation, report.sequence) > (self.incarnation, self.sequence)

    @property
    def instance(self) -> str:
        """What names the agent that serves it; empty if that tells no place."""
        return instance_of(self.place, self.incarnation)

    def silent_since(self) -> float:
        """Return since when it has not spoken."""
        return self.since_s if self.last_seen_s is None else self.last_seen_s

    def publish(self) -> None:
        """Count the desired set as a new one; those who wait for it are still to be told."""
        self.revision += 1


class NodeBook:
    """All nodes, and which node a worker lies on."""

    def __init__(self) -> None:
        self.by_name: dict[str, NodeState] = {}
        #: nodes that have changed since this was last emptied.
        self.touched: set[str] = set()
        #: node -> worker type -> how many are approved; whoever is not in it may have any.
        self.approved: Mapping[str, Mapping[str, int]] = MappingProxyType({})
        #: worker number -> (node, position there), for every worker there ever was.
        self._places: list[tuple[str, int]] = []
        #: worker number -> worker type.
        self._types: list[str] = []
        self._nodes = 0
        #: node -> when its workers were exchanged, the last few times; of this process.
        self._changes: dict[str, deque[float]] = {}
        #: node -> when it was last told that it claims too much; of this process.
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
        """Return how often a node's workers were exchanged since then; ``MOST_CHANGES`` at most."""
        return sum(at_s > since_s for at_s in self._changes.get(name, ()))

    def may_tell(self, name: str, now_s: float) -> bool:
        """Note that a node claims too much; tell whether that is to be told, or was just now."""
        told_s = self._told_s.get(name)
        if told_s is not None and now_s - told_s < TOLD_AGAIN_S:
            return False
        self._told_s[name] = now_s
        return True

    def forget_told(self, name: str) -> None:
        """Let what a node claims be told at once again."""
        self._told_s.pop(name, None)

    def is_first_refusal(self, name: str) -> bool:
        """Note that a change was refused; tell whether it is the first one since one was not."""
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
        """Return the type of the workers; empty where they are of several."""
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
        """Yield nodes that have said nothing for too long and do not count as lost."""
        for state in self.by_name.values():
            if not state.lost and now_s - state.silent_since() > timeout_s:
                yield state

    def fall_silent(self, now_s: float, *, timeout_s: float) -> Iterator[NodeState]:
        """Yield nodes that may soon be lost, and do not count as silent yet."""
        for state in self.by_name.values():
            if (
                now_s - state.silent_since() > SILENT * timeout_s
                and not state.silent
                and not state.lost
            ):
                yield state
