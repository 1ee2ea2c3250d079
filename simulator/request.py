"""The request of a simulation: all inputs that determine its result, picklable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scheduler.domain.arguments import check_positive, check_whole
from scheduler.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from policies.base import Policy
    from scheduler.control.facts.requests import ProjectLimits
    from scheduler.control.state.settings import ControlSettings
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.throughputs.throughput import ThroughputTable
    from traces.trace import Trace


#: The profile of a run of the engine alone: throughputs are known, and nothing is learned; each
#: round is planned at its start; no job waits for quotas or other jobs.
IDEAL = "ideal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service to replay with all its decisions.

    Attributes:
        settings: of control, including its policy.
        profile: its name in a result, such as the name of its file.
        declared: path of the throughputs that are declared at the start; None without a file.
        sources: plugins that know further ways to run jobs, by the names of their entry points.
        hardware: path of a file of accelerators beside the bundled ones; None without a file.
        projects: limits that are set at the start.
        orders: path of the orders of operators at later times; None without a file.
    """

    settings: ControlSettings
    profile: str
    declared: str | None = None
    sources: tuple[str, ...] = ()
    hardware: str | None = None
    projects: tuple[ProjectLimits, ...] = ()
    orders: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """How completion times are forecast in a simulation.

    Attributes:
        jobs: number of jobs with a forecast, spread evenly over the measured ones; 0 for no
            forecasts.
        futures: futures that are drawn for each.
        confidence: of the interval.
        seed: of the draws.
    """

    jobs: int = 0
    futures: int = 20
    confidence: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse impossible options."""
        check_whole("forecasts", self.jobs, least=0)
        check_whole("futures", self.futures, least=1)
        if not 0 < self.confidence < 1:
            raise ParameterError(f"confidence is {self.confidence}; it must be above 0, below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """One run of the simulator.

    Attributes:
        trace: path of the trace, or a trace.
        trace_format: the file's format, ``"auto"`` to detect it from the content.
        throughputs: path of the throughput table, or a table.
        cluster: a spec such as ``v100:36,p100:36``, the path of a cluster file, or a cluster.
        policy: name of the policy, or a policy.
        params: the parameters of a policy that is given by name, as text.
        agnostic: hide from policy and engine that worker types differ.
        space_sharing: let pairs of jobs share workers.
        window: measure jobs from the first to before the second position in order of arrival and
            end the run when they are done; None measures all.
        until_s: end of the run, even if jobs are left; infinity for no such time.
        round_length_s: the scheduling quantum.
        plan_lead_s: how long before the end of a round the next one is planned and announced.
        workers_per_node: workers on a node, if the cluster is given by a spec.
        overheads: path of an overhead file, ``"none"``, or ``"default"`` for the bundled one.
        failures: path of a failure file, or None for a cluster without failures.
        seed: of every random draw (failures, job types of traces without job types).
        reference_worker_type: type on which durations become steps; None for the format's own.
        derive_counts: derive throughputs at worker counts without rows in the table; if not, no job
            runs at these counts.
        locality: take into account that gangs are slower on several nodes, as the table says.
        batches: path of a file of the job types with a variable batch, or None.
        models: path of a file of the job types that give their model, or None.
        hardware: path of a file of accelerators beside the bundled ones, or None.
        limit: read only this many jobs of the trace.
        record: keep leases and series for reports; costs memory on long traces.
        behind_rounds: see ``EngineSettings``, like the next one.
        ahead_rounds: see ``EngineSettings``.
        carry_credit: off only to compare with rounds that drop credits at each new allocation.
        forecasts: which completion times are forecast at submission.
        service: the service to replay with its policy, options and round length; None: the engine
            alone, with an oracle and without overheads (``IDEAL``).
    """

    trace: str | Trace
    throughputs: str | ThroughputTable
    cluster: str | Cluster
    policy: str | Policy
    params: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    trace_format: str = "auto"
    agnostic: bool = False
    space_sharing: bool = False
    window: tuple[int, int] | None = None
    until_s: float = math.inf
    round_length_s: float = 360.0
    plan_lead_s: float = 0.0
    workers_per_node: int = 4
    overheads: str = "none"
    failures: str | None = None
    seed: int = 0
    reference_worker_type: str | None = None
    derive_counts: bool = False
    locality: bool = False
    batches: str | None = None
    models: str | None = None
    hardware: str | None = None
    limit: int | None = None
    record: bool = False
    behind_rounds: float = 4.0
    ahead_rounds: float = 1.0
    carry_credit: bool = True
    forecasts: ForecastOptions = ForecastOptions()
    service: Service | None = None

    def __post_init__(self) -> None:
        """Refuse impossible requests."""
        check_positive("round length", self.round_length_s, unit=" s")
        check_positive("until", self.until_s, unit=" s", finite=False)
        check_whole("seed", self.seed, least=0)
        if self.window is not None:
            _check_window(self.window)
        if self.forecasts.jobs and self.service is not None:
            raise ParameterError(
                f"forecasts is {self.forecasts.jobs}, and a configuration is replayed; forecasts "
                "are scored without one: they know no quotas, dependencies or limits"
            )
        if self.batches is not None and (self.service is not None or self.forecasts.jobs):
            other = (
                "forecasts are asked for" if self.service is None else "a configuration is replayed"
            )
            raise ParameterError(
                f"batches is '{self.batches}', and {other}; the two do not go together: leave "
                "one of them out"
            )
        if self.params and not isinstance(self.policy, str):
            raise ParameterError(
                f"policy '{self.policy.name}' is given with parameters beside it; "
                "it has its own: set them where it is made"
            )
        # A mapping proxy cannot cross a process border; a plain dict can.
        object.__setattr__(self, "params", dict(self.params))

    @classmethod
    def of_service(cls, service: Service, **inputs: Any) -> Self:
        """Return a request to replay a service.

        Args:
            service: supplies the policy and the settings.
            inputs: further fields: the trace, the cluster, ...
        """
        policy, engine = service.settings.policy, service.settings.engine
        return cls(
            policy=policy.name,
            params=policy.parameters,
            agnostic=policy.agnostic,
            space_sharing=policy.space_sharing,
            round_length_s=engine.round_length_s,
            plan_lead_s=engine.plan_lead_s,
            service=service,
            **inputs | {"hardware": inputs.get("hardware") or service.hardware},
        )

    def make_policy(self) -> Policy:
        """Return a new policy for one run, without state from other runs.

        Raises:
            UnknownPolicyError: no policy has that name.
            ParameterError: a parameter has a wrong name, type or range.
        """
        if not isinstance(self.policy, str):
            return replace(self.policy)
        from policies.registry import make_policy  # noqa: PLC0415 - a request alone needs no policy

        return make_policy(self.policy, self.params)

    @property
    def label(self) -> str:
        """The policy as a user would write it, with its options."""
        name, given = self.policy, self.params
        if not isinstance(name, str):
            from policies.parameters import as_text  # noqa: PLC0415 - the same

            name, given = name.name, as_text(name)
        params = ",".join(f"{key}={value}" for key, value in given.items())
        name = f"{name}:{params}" if params else name
        for flag, suffix in ((self.agnostic, "+agnostic"), (self.space_sharing, "+packed")):
            name += suffix if flag else ""
        return name


def _check_window(window: object) -> None:
    if not isinstance(window, Sequence) or len(window) != 2:
        raise ParameterError(f"window is {window!r}; give two whole numbers (A, B) with 0 <= A < B")
    check_whole("window's start", window[0], least=0)
    check_whole("window's end", window[1], least=0)
    if window[0] >= window[1]:
        raise ParameterError(f"window is {window[0]}:{window[1]}; it must be A:B with 0 <= A < B")


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
