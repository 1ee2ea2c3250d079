"""Evidence against nodes: faults, failures of jobs, and how fast jobs run there."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The most faults and failures that are kept of a node, or of a job.
MOST_FAULTS: Final = 32
#: A speed is the mean of this many periods of running, and needs at least the second figure.
STRETCHES: Final = 3
LEAST_STRETCHES: Final = 2
#: The most job types with stored speeds by node.
MOST_KEYS: Final = 2000

#: How the reason of a node begins that the scheduler itself has cordoned.
LASTING: Final = "quarantined by the scheduler"
PASSING: Final = "avoided for a while by the scheduler"
#: Agents' words that name a job by its pod, or a lease by its number.
_A_POD: Final = re.compile(r"\bpod '?[a-z0-9][a-z0-9.-]*'?(?= does not go away)")
_OF_A_LEASE: Final = re.compile(r"\bprocesses of lease \d+ cannot be killed.*", re.DOTALL)

#: (job type, workers, worker type).
Key = tuple[str, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailure:
    """A failure of a job on a node: its time, category and message."""

    job_id: str
    at_s: float
    category: str
    said: str

    def to_data(self) -> Mapping[str, object]:
        """Return it as plain JSON values."""
        told = {"job": self.job_id, "at_s": self.at_s, "category": self.category}
        return MappingProxyType(told | {"message": self.said})


@dataclass(slots=True)
class Speeds:
    """How fast jobs of one kind run alone on each node.

    Attributes:
        stretches: node -> steps/s of the last periods of running.
        means: node -> their mean, if there are enough of them.
        total: sum of the means.
    """

    stretches: dict[str, deque[float]] = field(default_factory=dict)
    means: dict[str, float] = field(default_factory=dict)
    total: float = 0.0

    def add(self, node: str, steps_per_s: float) -> None:
        """Add a period of running."""
        found = self.stretches.get(node)
        if found is None:
            found = self.stretches[node] = deque(maxlen=STRETCHES)
        found.append(steps_per_s)
        if len(found) >= LEAST_STRETCHES:
            mean = sum(found) / len(found)
            self.total += mean - self.means.get(node, 0.0)
            self.means[node] = mean

    def drop(self, node: str) -> None:
        """Forget a node."""
        self.stretches.pop(node, None)
        self.total -= self.means.pop(node, 0.0)

    def relative(self, node: str) -> float | None:
        """Return the speed on a node relative to the mean of all others; None if not known."""
        own, others = self.means.get(node), len(self.means) - 1
        if own is None or others < 1 or (rest := (self.total - own) / others) <= 0.0:
            return None
        return own / rest


@dataclass(slots=True, kw_only=True)
class NodeHealth:
    """The evidence against nodes; only in memory.

    Attributes:
        faults: node -> its faults.
        failures: job -> (node, failure) of failures that may be the job's own, while it is active.
        sudden: node -> job -> (job type, failure) of jobs that failed there at once and nowhere
            else, since a job last ran there for a while.
        speeds: key -> how fast such jobs run on each node.
        keys: node -> keys of the jobs that ran there.
        measured: nodes with speeds to check.
    """

    faults: dict[str, deque[JobFailure]] = field(default_factory=dict)
    failures: dict[str, deque[tuple[str, JobFailure]]] = field(default_factory=dict)
    sudden: dict[str, dict[str, tuple[str, JobFailure]]] = field(default_factory=dict)
    speeds: dict[Key, Speeds] = field(default_factory=dict)
    keys: dict[str, dict[Key, None]] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)

    def copied(self) -> NodeHealth:
        """Return a copy of the parts that decisions need: slow nodes are only reported."""
        return NodeHealth(
            faults={name: deque(faults, MOST_FAULTS) for name, faults in self.faults.items()},
            failures={job: deque(found, MOST_FAULTS) for job, found in self.failures.items()},
            sudden={name: dict(found) for name, found in self.sudden.items()},
        )

    def measure(self, key: Key, node: str, steps_per_s: float) -> None:
        """Add how fast a job ran alone on a node."""
        speeds = self.speeds.get(key)
        if speeds is None:
            if len(self.speeds) >= MOST_KEYS:
                oldest = next(iter(self.speeds))
                for name in self.speeds.pop(oldest).stretches:
                    self.keys[name].pop(oldest, None)
            speeds = self.speeds[key] = Speeds()
        if node not in speeds.stretches:
            self.keys.setdefault(node, {})[key] = None
        speeds.add(node, steps_per_s)
        self.measured.add(node)

    def relative_speed(self, node: str) -> float | None:
        """Return the speed of jobs on a node relative to others of its types; None if not known."""
        found = (self.speeds[key].relative(node) for key in self.keys.get(node, ()))
        known = [ratio for ratio in found if ratio is not None]
        return sum(known) / len(known) if known else None

    def trust(self, name: str) -> None:
        """Drop all evidence against a node."""
        self.faults.pop(name, None)
        self.sudden.pop(name, None)
        for job_id, failures in list(self.failures.items()):
            kept = [one for one in failures if one[0] != name]
            self.failures[job_id] = deque(kept, MOST_FAULTS)

    def drop_node(self, name: str) -> None:
        """Forget a node."""
        self.trust(name)
        for key in self.keys.pop(name, ()):
            self.speeds[key].drop(name)


def without_jobs(reason: str) -> str:
    """Return the reason of a node or worker for readers that may not know every job.

    It leaves out jobs and their messages. It also leaves out words of agents that show jobs: names
    of pods contain job names, and a lease belongs to one job.
    """
    if reason.startswith((LASTING, PASSING)):
        return reason.partition(" (")[0]
    return _OF_A_LEASE.sub("processes of a lease cannot be killed", _A_POD.sub("a pod", reason))
