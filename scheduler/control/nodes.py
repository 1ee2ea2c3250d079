"""The nodes as control knows them: what each reported, and when."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.control.requests import NodeAction
    from scheduler.domain.cluster import Cluster
    from scheduler.protocol.desired import NodeReport

#: Part of the names of nodes whose workers are gone for ever.
RETIRED = "~retired-"
#: So often may a node's workers be exchanged within so long.
MOST_CHANGES: Final = 16
CHANGES_WITHIN_S: Final = 3600.0


@dataclass(slots=True, kw_only=True)
class NodeState:
    """A node.

    Attributes:
        name: unique.
        first: number of its first worker; its workers are numbered on from there.
        types: (n,) worker types by local index.
        address: where its jobs' rank 0 can be reached.
        version: of its agent.
        incarnation: of the agent, as last reported.
        sequence: of the agent's newest report.
        last_seen_s: when it last spoke; None since the scheduler's start.
        lost: whether it is taken for lost.
        suspects: ids of jobs that were lost there while it was silent; see ``note_death``.
        problems: local index -> why a worker cannot be used.
        exclusive: worker types of which two jobs cannot share a worker there.
        order: what an operator ordered; None for nothing.
        reason: why.
        since_s: when the scheduler began to expect it.
        revision: of the desired set.
    """

    name: str
    first: int
    types: tuple[str, ...]
    address: str = "127.0.0.1"
    version: str = ""
    incarnation: float = -1.0
    sequence: int = -1
    last_seen_s: float | None = None
    lost: bool = False
    suspects: list[str] = field(default_factory=list)
    problems: dict[int, str] = field(default_factory=dict)
    exclusive: frozenset[str] = frozenset()
    order: NodeAction | None = None
    reason: str = ""
    since_s: float = 0.0
    revision: int = 1

    @property
    def workers(self) -> tuple[int, ...]:
        """Numbers of its workers by local index."""
        return tuple(range(self.first, self.first + len(self.types)))

    @property
    def usable(self) -> tuple[int, ...]:
        """Numbers of its workers that have no problem of their own."""
        return tuple(w for i, w in enumerate(self.workers) if i not in self.problems)

    def is_news(self, report: NodeReport) -> bool:
        """Tell whether a report is newer than what is known."""
        return (report.incarnation, report.sequence) > (self.incarnation, self.sequence)

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
        #: worker number -> (node, local index), for every worker there ever was.
        self._places: list[tuple[str, int]] = []
        #: worker number -> worker type.
        self._types: list[str] = []
        self._nodes = 0
        #: node -> when its workers were exchanged, the last few times; of this process.
        self._changes: dict[str, deque[float]] = {}
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
        """Return the node of a worker and its local index there."""
        return self._places[worker]

    def type_of(self, workers: tuple[int, ...]) -> str:
        """Return the type of the workers; empty where they are of several."""
        types = {self._types[worker] for worker in workers}
        return types.pop() if len(types) == 1 else ""

    def remove(self, name: str) -> None:
        """Forget a node."""
        self.by_name.pop(name, None)
        self.touched.add(name)

    def silent(self, now_s: float, *, timeout_s: float) -> Iterator[NodeState]:
        """Yield nodes that have said nothing for too long and do not count as lost."""
        for state in self.by_name.values():
            if not state.lost and now_s - state.silent_since() > timeout_s:
                yield state
