"""One run: trace, cluster and policy in, result out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from planner.agnostic import Agnostic
from planner.mixed_gangs import MixedGangs
from planner.oracle import Oracle
from planner.registry import make_sources
from planner.tables import TableBuilder
from scheduler.domain.throughputs.ways import CatalogueKey
from scheduler.engine.settings import EngineSettings
from scheduler.errors import InputError
from simulator.catalogue import read_catalogue
from simulator.forecast.intervals import run_with_forecasts
from simulator.inputs import (
    check_jobs,
    name_of,
    names_of_inputs,
    read_inputs,
    remark_on_inputs,
)
from simulator.models import PlannedJobs
from simulator.replay import Replay
from simulator.simulation import Simulation
from simulator.world.failures import read_failures
from simulator.world.learning import LearningSource, SimulatedLearning, names_of, read_learning
from simulator.world.orders import read_orders
from simulator.world.overheads import read_overheads
from traces.tables.scaling import with_counts
from traces.tables.throughputs import read_throughputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planner.plans.hardware import Hardware
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.throughputs.throughput import ThroughputTable
    from simulator.progress import Progress
    from simulator.request import Service, SimulationRequest
    from simulator.result import SimulationResult
    from simulator.world.learning import LearningType
    from traces.trace import Trace


def simulate(
    request: SimulationRequest, progress: Callable[[Progress], None] | None = None
) -> SimulationResult:
    """Read the inputs of a request and run it.

    Raises:
        InputError: an input is malformed or missing.
        LeaseholdError: the run cannot go on.
    """
    learning = {} if request.batches is None else read_learning(request.batches)
    hardware = read_catalogue(request.hardware)
    throughputs, cluster, trace = read_inputs(request, learning, hardware)
    throughputs = with_counts(throughputs, trace.scale_factors)
    result = _run(
        request,
        progress,
        cluster=cluster,
        trace=trace,
        throughputs=throughputs,
        learning=learning,
        hardware=hardware,
    )
    remarks = remark_on_inputs(trace, throughputs, cluster, hardware, learning)
    return replace(result, warnings=(*result.warnings, *remarks))


def _run(
    request: SimulationRequest,
    progress: Callable[[Progress], None] | None,
    *,
    cluster: Cluster,
    trace: Trace,
    throughputs: ThroughputTable,
    learning: Mapping[str, LearningType],
    hardware: Hardware,
) -> SimulationResult:
    if request.service is not None:
        check_jobs(trace.jobs, request.window)
        replay = _replay(
            request,
            request.service,
            cluster=cluster,
            trace=trace,
            throughputs=throughputs,
            hardware=hardware,
        )
        return replay.run(progress, until_s=request.until_s)
    failures = read_failures(request.failures)
    if failures.outages or failures.mishaps:
        raise InputError(
            f"{request.failures} has outages or mishaps, which only replays of the service know; "
            "give --config FILE"
        )
    if any(job.has_conditions for job in trace.jobs):
        raise InputError(
            f"{name_of(request.trace)} has projects, dependencies or limits, which only the "
            "service heeds; replay it with `leasehold simulate --config FILE`"
        )
    names = names_of(trace.jobs, learning)
    of_jobs = [
        replace(key, job_type=name or key.job_type)
        for key, name in zip(map(CatalogueKey.of, trace.jobs), names, strict=True)
    ]
    keys = sorted(
        set(of_jobs),
        key=lambda key: (key.job_type, key.scale_factors, key.worker_types, key.mixed_gangs),
    )
    position = {key: u for u, key in enumerate(keys)}
    types = {
        name: learning[job.job_type] for name, job in zip(names, trace.jobs, strict=True) if name
    }
    mixed = next((j for n, j in zip(names, trace.jobs, strict=True) if n and j.mixed_gangs), None)
    if mixed is not None:
        raise InputError(
            f"job '{mixed.job_id}' has mixed_gangs, and its type is one of the batch file; the "
            "batch is chosen for workers of one type, so leave mixed_gangs out"
        )
    oracle = LearningSource(Oracle(throughputs), types) if types else Oracle(throughputs)
    truth = MixedGangs(PlannedJobs(oracle, hardware))
    shown = TableBuilder(Agnostic(truth) if request.agnostic else truth)
    table, believed = (
        builder.table(cluster, keys, space_sharing=request.space_sharing)
        for builder in (TableBuilder(truth), shown)
    )
    profiles = [position[key] for key in of_jobs]
    jobs = [job.engine_job() for job in trace.jobs]
    simulation = Simulation(
        cluster=cluster,
        jobs=jobs,
        profiles=profiles,
        table=table,
        believed=believed,
        policy=request.make_policy(),
        settings=EngineSettings(
            round_length_s=request.round_length_s,
            plan_lead_s=request.plan_lead_s,
            behind_rounds=request.behind_rounds,
            ahead_rounds=request.ahead_rounds,
            carry_credit=request.carry_credit,
        ),
        overheads=read_overheads(request.overheads),
        failures=failures,
        seed=request.seed,
        window=request.window,
        record=request.record,
        scale_factors=[job.scale_factors for job in trace.jobs],
        label=request.label,
        inputs=names_of_inputs(request),
        progress=progress,
        learning=SimulatedLearning(
            oracle,
            shown,
            names=names,
            types=types,
            keys=keys,
            cluster=cluster,
            space_sharing=request.space_sharing,
        )
        if isinstance(oracle, LearningSource)
        else None,
    )
    if not request.forecasts.jobs:
        return simulation.run(until_s=request.until_s)
    return run_with_forecasts(simulation, jobs, profiles, request, progress)


def _replay(
    request: SimulationRequest,
    service: Service,
    *,
    cluster: Cluster,
    trace: Trace,
    throughputs: ThroughputTable,
    hardware: Hardware,
) -> Replay:
    """Compose a replay of the service with its configuration."""
    jobs, nodes = {job.job_id for job in trace.jobs}, {node.name for node in cluster.nodes}
    failures = read_failures(request.failures)
    failures.check_names(nodes=nodes, jobs=jobs)
    named = service.orders
    orders = () if named is None else read_orders(named, jobs=jobs, nodes=nodes)
    return Replay(
        cluster=cluster,
        trace=trace,
        throughputs=throughputs,
        policy=request.make_policy(),
        settings=service.settings,
        overheads=read_overheads(request.overheads),
        failures=failures,
        declared=None if service.declared is None else read_throughputs(service.declared),
        projects=service.projects,
        orders=orders,
        sources=make_sources(service.sources),
        hardware=hardware,
        seed=request.seed,
        window=request.window,
        record=request.record,
        label=request.label,
        profile=service.profile,
        inputs=names_of_inputs(request),
    )
