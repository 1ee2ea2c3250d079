"""Simulation from Python: load a trace, run policies on it, look at tables and plots.

    from simulator.api import compare, read_trace

    trace = read_trace("bundled")
    runs = compare(trace, ["fifo", "max_min_fairness"], throughputs="bundled", cluster="bundled")
    print(runs)
    runs.plot("jct").save("jct.svg")

Invalid input raises an exception with the same text as on the command line (``scheduler.errors``).
Public API: docs/reference/python-api.md.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from policies.base import Policy
from scheduler.domain.arguments import check_whole
from scheduler.domain.cluster import Cluster
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.errors import InputError, LeaseholdError, ParameterError
from simulator.many.parallel import (
    RunOutcome,
    check_policies,
    first_bad_input,
    process_count,
    run_all,
)
from simulator.many.policy_items import parse_policies
from simulator.many.run_progress import Silent, show_progress
from simulator.report.plots import Plot
from simulator.request import Service, SimulationRequest, parse_window
from simulator.result import Summary
from simulator.results import Comparison, Result
from simulator.run import simulate as _run
from simulator.tables.tables import Table
from traces.bundle import resolve
from traces.cluster import read_cluster
from traces.generators.generate import generate as generate_trace
from traces.reader import read_trace
from traces.tables.throughputs import read_throughputs
from traces.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from simulator.many.parallel import RunListener

__all__ = [
    "Cluster",
    "Comparison",
    "Plot",
    "Result",
    "Service",
    "Summary",
    "Table",
    "ThroughputTable",
    "Trace",
    "Variant",
    "compare",
    "generate_trace",
    "read_cluster",
    "read_throughputs",
    "read_trace",
    "simulate",
]

#: A policy by name, as ``leasehold compare --policies`` takes it (``"alpha_fairness:alpha=2"``,
#: ``"max_min_fairness+packed"``), a policy, or a class of policies that needs no arguments.
PolicyLike = str | Policy | type[Policy]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A policy with options of its own, for ``compare``.

    Attributes:
        policy: by name, an object, or a class.
        agnostic: hide from it that worker types differ.
        space_sharing: let pairs of jobs share workers.
    """

    policy: PolicyLike
    agnostic: bool = False
    space_sharing: bool = False


def simulate(
    trace: str | os.PathLike[str] | Trace,
    *,
    throughputs: str | os.PathLike[str] | ThroughputTable,
    cluster: str | os.PathLike[str] | Cluster,
    policy: PolicyLike | None = None,
    service: Service | None = None,
    agnostic: bool = False,
    space_sharing: bool = False,
    window: tuple[int, int] | str | None = None,
    until_s: float = math.inf,
    round_length_s: float | None = None,
    workers_per_node: int = 4,
    overheads: str | os.PathLike[str] = "none",
    failures: str | os.PathLike[str] | None = None,
    seed: int = 0,
    record: bool = True,
    progress: bool = True,
) -> Result:
    """Replay a trace under one policy, or as a service is configured; in this process.

    Args:
        trace: a file in any known format, ``"bundled"``, or a trace.
        throughputs: a file, ``"bundled"``, or a table; steps/s.
        cluster: a spec such as ``"v100:8,t4:8"``, a YAML file, ``"bundled"``, or a cluster.
        policy: by name, an object, or a class; your own policies, too.
        service: from ``leasehold.read_service("leasehold.toml")``: replay the service as it is
            configured, with its policy; in place of ``policy`` and its options.
        agnostic: hide that worker types differ.
        space_sharing: let pairs of jobs share workers.
        window: (A, B) or ``"A:B"``: measure only positions A <= position < B in order of arrival.
        until_s: end after this many seconds, even if jobs are left.
        round_length_s: seconds of a round; 360 by default.
        workers_per_node: workers on a node, if the cluster is a spec.
        overheads: ``"none"``, ``"default"``, or a file: the cost of launches and restarts.
        failures: a YAML file with failures of workers and jobs; None for no failures.
        seed: of every random draw, 0 or more.
        record: keep leases and series; costs memory on long traces.
        progress: show the progress of the run, in a terminal or a notebook.

    Raises:
        InputError: an input is missing, malformed or out of range.
        LeaseholdError: the run cannot go on, for example because the policy fails.
    """
    inputs = _inputs(
        trace=trace,
        throughputs=throughputs,
        cluster=cluster,
        window=window,
        until_s=until_s,
        workers_per_node=workers_per_node,
        overheads=overheads,
        failures=failures,
        seed=seed,
        record=record,
    )
    if service is None:
        if policy is None:
            raise ParameterError(
                "policy is missing; name one, or give service=leasehold.read_service(FILE)"
            )
        choices = _choices(Variant(policy=policy, agnostic=agnostic, space_sharing=space_sharing))
        if len(choices) > 1:
            raise ParameterError(f"policy is '{policy}'; name one, or use compare")
        request = SimulationRequest(
            **choices[0],
            **inputs,
            round_length_s=360.0 if round_length_s is None else round_length_s,
        )
    else:
        request = _replay(
            service,
            inputs,
            policy=policy is not None,
            agnostic=agnostic,
            space_sharing=space_sharing,
            round_length_s=round_length_s is not None,
        )
    with _shown([request.label], wanted=progress) as listener:
        listener.started(0)
        result = _run(request, lambda far: listener.progressed(0, far))
        listener.ended(0, RunOutcome(request=request, result=result))
    return Result(result)


def compare(
    trace: str | os.PathLike[str] | Trace,
    policies: Sequence[PolicyLike | Variant] | str,
    *,
    throughputs: str | os.PathLike[str] | ThroughputTable,
    cluster: str | os.PathLike[str] | Cluster,
    agnostic: bool = False,
    space_sharing: bool = False,
    window: tuple[int, int] | str | None = None,
    until_s: float = math.inf,
    round_length_s: float = 360.0,
    workers_per_node: int = 4,
    overheads: str | os.PathLike[str] = "none",
    failures: str | os.PathLike[str] | None = None,
    seed: int = 0,
    record: bool = True,
    processes: int | None = None,
    progress: bool = True,
) -> Comparison:
    """Replay a trace under several policies, each in a process of its own.

    A policy may be written in a notebook or a script: it is sent whole, with the parts of the
    notebook or script that it uses. Modules are not sent; the process imports them with the same
    path. No ``if __name__ == "__main__"`` is needed. Objects that cannot be pickled (an open file,
    a lock) cannot be part of it, and its output and side effects stay in its process.

    Args:
        trace: as ``simulate`` takes it.
        policies: each by name, an object, a class, or a ``Variant`` with options of its own; or
            all of them as ``--policies`` takes them: ``"fifo,max_min_fairness+packed"``.
        throughputs: as ``simulate`` takes it, like all the following.
        cluster: as ``simulate`` takes it.
        agnostic: hide from every policy that worker types differ.
        space_sharing: let pairs of jobs share workers, under every policy.
        window: (A, B) in order of arrival.
        until_s: as ``simulate`` takes it.
        round_length_s: seconds of a round.
        workers_per_node: workers on a node, if the cluster is a spec.
        overheads: ``"none"``, ``"default"``, or a file.
        failures: a YAML file, or None.
        seed: of every random draw, 0 or more.
        record: keep leases and series.
        processes: runs at the same time; by default one per core.
        progress: show the progress of the runs, in a terminal or a notebook.

    Returns:
        The results. Other runs go on if one fails: ``failed`` gives the reason, and so does a
        warning.

    Raises:
        InputError: a policy is unknown, malformed, or listed twice; or an input is bad.
        LeaseholdError: every run failed.
    """
    inputs = _inputs(
        trace=trace,
        throughputs=throughputs,
        cluster=cluster,
        window=window,
        until_s=until_s,
        workers_per_node=workers_per_node,
        overheads=overheads,
        failures=failures,
        seed=seed,
        record=record,
        round_length_s=round_length_s,
    )
    listed = [policies] if isinstance(policies, str) else policies
    if not isinstance(listed, Iterable):
        raise ParameterError(f"policies is {policies!r}; give a list: ['fifo', 'max_min_fairness']")
    choices = [choice for given in listed for choice in _choices(given)]
    if not choices:
        raise ParameterError("no policies given; name some: ['fifo', 'max_min_fairness']")
    requests = [
        SimulationRequest(
            policy=choice["policy"],
            params=choice.get("params", {}),
            agnostic=agnostic or choice["agnostic"],
            space_sharing=space_sharing or choice["space_sharing"],
            **inputs,
        )
        for choice in choices
    ]
    check_policies(requests)
    if processes is not None:
        check_whole("processes", processes, least=1)
    with _shown([request.label for request in requests], wanted=progress) as listener:
        outcomes = run_all(
            requests, processes=process_count(processes, len(requests)), listener=listener
        )
    return _comparison(outcomes)


def _comparison(outcomes: Sequence[RunOutcome]) -> Comparison:
    message = first_bad_input(outcomes)
    if message:
        raise InputError(message)
    failed = {o.request.label: o.error for o in outcomes if o.result is None}
    if len(failed) == len(outcomes):
        raise LeaseholdError("; ".join(f"{policy}: {error}" for policy, error in failed.items()))
    for policy, error in failed.items():
        warnings.warn(f"the run of '{policy}' failed: {error}", stacklevel=3)
    results = {o.request.label: Result(o.result) for o in outcomes if o.result is not None}
    return Comparison(MappingProxyType(results), MappingProxyType(failed))


def _inputs(
    *,
    trace: str | os.PathLike[str] | Trace,
    throughputs: str | os.PathLike[str] | ThroughputTable,
    cluster: str | os.PathLike[str] | Cluster,
    overheads: str | os.PathLike[str],
    failures: str | os.PathLike[str] | None,
    window: tuple[int, int] | str | None,
    **others: Any,
) -> dict[str, Any]:
    """Return the request's fields for the inputs: values as they are, files by their names."""
    return {
        "trace": trace if isinstance(trace, Trace) else resolve(trace, usual="small"),
        "throughputs": throughputs
        if isinstance(throughputs, ThroughputTable)
        else resolve(throughputs, usual="throughputs"),
        "cluster": cluster if isinstance(cluster, Cluster) else resolve(cluster, usual="cluster"),
        "window": parse_window(window) if isinstance(window, str) else window,
        "overheads": _path("overheads", overheads),
        "failures": None if failures is None else _path("failures", failures),
        **others,
    }


def _path(name: str, given: object) -> str:
    if not isinstance(given, str | os.PathLike):
        raise ParameterError(f"{name} is {given!r}; give the path of a file")
    return os.fspath(given)


def _replay(service: Service, inputs: Mapping[str, Any], **given: bool) -> SimulationRequest:
    if not isinstance(service, Service):
        raise ParameterError(
            f"service is {service!r}; read it: service=leasehold.read_service(FILE)"
        )
    for name, is_given in given.items():
        if is_given:
            raise ParameterError(f"{name} and service: the configuration says it; set it there")
    return SimulationRequest.of_service(service, **inputs)


def _choices(given: PolicyLike | Variant) -> list[dict[str, Any]]:
    """Return the request's fields for a policy, or for several in one text."""
    variant = given if isinstance(given, Variant) else Variant(policy=given)
    options = {"agnostic": variant.agnostic, "space_sharing": variant.space_sharing}
    policy = variant.policy
    if isinstance(policy, str):
        return [
            {
                "policy": item.name,
                "params": item.params,
                "agnostic": item.agnostic or variant.agnostic,
                "space_sharing": item.space_sharing or variant.space_sharing,
            }
            for item in parse_policies([policy])
        ]
    if isinstance(policy, type) and issubclass(policy, Policy):
        return [{"policy": policy.from_text({}), **options}]
    if not isinstance(policy, Policy):
        raise ParameterError(
            f"policy is {policy!r}; give a name, a policy, or a class of policies.base.Policy"
        )
    return [{"policy": policy, **options}]


def _shown(labels: Sequence[str], *, wanted: bool) -> AbstractContextManager[RunListener]:
    return show_progress(labels, log=False) if wanted else nullcontext(Silent())
