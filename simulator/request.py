"""What a simulation is asked: everything that decides its result, picklable."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from scheduler.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.requests import ProjectLimits
    from scheduler.control.settings import ControlSettings


#: The profile of a run of the engine alone: throughputs are known, and nothing is learned; rounds
#: are planned where they begin; no job waits for quotas or other jobs.
IDEAL = "ideal"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """One run of the simulator.

    Attributes:
        trace: path of the trace.
        trace_format: its format, ``"auto"`` to tell by content.
        throughputs: path of the throughput table.
        cluster: a spec such as ``v100:36,p100:36``, or the path of a cluster file.
        policy: name of the policy.
        params: its parameters, as text.
        agnostic: hide from policy and engine that worker types differ.
        space_sharing: let pairs of jobs share workers.
        window: measure jobs from the first to before the second position in order of arrival and
            end the run when they are done; None measures all.
        round_length_s: the scheduling quantum.
        plan_lead_s: how long before a round ends the next one is planned and announced.
        workers_per_node: workers on a node, where the cluster is given by a spec.
        overheads: path of an overhead file, ``"none"``, or ``"default"`` for the bundled one.
        failures: path of a failure file, or None for a cluster without failures.
        seed: of every random draw (failures, job types of traces that have none).
        reference_worker_type: type on which durations become steps; None for the format's own.
        limit: read only so many jobs of the trace.
        record: keep leases and series for reports; costs memory on long traces.
        carry_credit: off only to compare with rounds that forget at each new allocation.
        settings: of a service that is replayed as it is, its policy among them; None: the engine
            alone, with an oracle and without overheads (``IDEAL``).
        profile: what the result calls that.
        declared: path of the throughputs that the service is told at the start; None for none.
        projects: limits that the service is told at the start.
        sources: plugins that know further ways to run jobs, by the names of their entry points.
    """

    trace: str
    throughputs: str
    cluster: str
    policy: str
    params: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    trace_format: str = "auto"
    agnostic: bool = False
    space_sharing: bool = False
    window: tuple[int, int] | None = None
    round_length_s: float = 360.0
    plan_lead_s: float = 0.0
    workers_per_node: int = 4
    overheads: str = "none"
    failures: str | None = None
    seed: int = 0
    reference_worker_type: str | None = None
    limit: int | None = None
    record: bool = False
    carry_credit: bool = True
    settings: ControlSettings | None = None
    profile: str = IDEAL
    declared: str | None = None
    projects: tuple[ProjectLimits, ...] = ()
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no run can be made of."""
        if not (math.isfinite(self.round_length_s) and self.round_length_s > 0):
            raise ParameterError(f"round length is {self.round_length_s!r} s; it must be > 0")
        if self.seed < 0:
            raise ParameterError(f"seed is {self.seed}; it must be a whole number >= 0")
        if self.window is not None and not 0 <= self.window[0] < self.window[1]:
            raise ParameterError(
                f"window is {self.window[0]}:{self.window[1]}; it must be A:B with 0 <= A < B"
            )
        # A mapping proxy cannot cross a process border; a plain dict can.
        object.__setattr__(self, "params", dict(self.params))

    @property
    def label(self) -> str:
        """The policy as a user would write it, with its options."""
        params = ",".join(f"{key}={value}" for key, value in self.params.items())
        name = f"{self.policy}:{params}" if params else self.policy
        for flag, suffix in ((self.agnostic, "+agnostic"), (self.space_sharing, "+packed")):
            name += suffix if flag else ""
        return name


def parse_window(text: str) -> tuple[int, int]:
    """Parse ``A:B``.

    Raises:
        ParameterError: it is not two whole numbers with 0 <= A < B.
    """
    first, separator, last = text.partition(":")
    if not separator or not first.strip().isdecimal() or not last.strip().isdecimal():
        raise ParameterError(f"window is '{text}'; give A:B, two whole numbers, such as 4000:5000")
    window = int(first), int(last)
    if window[0] >= window[1]:
        raise ParameterError(f"window is '{text}'; A must be smaller than B")
    return window
