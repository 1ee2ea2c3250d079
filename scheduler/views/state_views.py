"""Views of the leader's state for people."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from scheduler.control.facts.requests import NodeAction, ProjectLimits
from scheduler.control.facts.specs import spec_from_json
from scheduler.control.leases.progress import shown_steps
from scheduler.control.nodes.health import doubt_in_words
from scheduler.control.nodes.inventory import in_words
from scheduler.domain.lease_life import LeasePhase
from scheduler.domain.throughputs.ways import CatalogueKey
from scheduler.engine.state.preemption_protection import WORTH_TELLING
from scheduler.views.dues import (
    allocation_shares,
    received_shares,
    shares_of_jobs,
)
from scheduler.views.explain import reason_of
from scheduler.views.gpu_figures import GpuFigures
from scheduler.views.next_round import round_at
from scheduler.views.shares import budgets_of, fair_shares
from scheduler.views.types import (
    AllocationView,
    ClusterView,
    LeaseView,
    LiveJob,
    NodeView,
    PairView,
    PolicyView,
    ProjectView,
    ReservedView,
    RoundView,
    ThroughputView,
    WorkerView,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.leases import LiveLease
    from scheduler.control.state.nodes import NodeState
    from scheduler.control.state.view import PublishedState
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.rows import JobRow
    from scheduler.domain.throughputs.ways import Way
    from scheduler.engine.rounds.certificate import Certificate
    from scheduler.views.explain import WaitingJobs
    from scheduler.views.metrics import Metrics


def live_jobs(
    view: PublishedState, job_ids: Iterable[str], glance: WaitingJobs, *, now_s: float
) -> Mapping[str, LiveJob]:
    """Return the live state of active jobs; others are left out."""
    records = [record for job_id in job_ids if (record := view.jobs.by_id.get(job_id))]
    shares = shares_of_jobs(view, (record.job_id for record in records))
    return {
        record.job_id: _live_job(view, record, glance, shares.get(record.job_id, {}), now_s=now_s)
        for record in records
    }


def _live_job(
    view: PublishedState,
    record: JobRecord,
    glance: WaitingJobs,
    shares: Mapping[str, float],
    *,
    now_s: float,
) -> LiveJob:
    lease_id = view.leases.of_job.get(record.job_id)
    live = None if lease_id is None else view.leases.by_id[lease_id]
    return LiveJob(
        status=record.status,
        reason=reason_of(view, record, glance),
        steps_done=record.steps_done if live is None else shown_steps(view, live, now_s=now_s),
        lease_id=lease_id,
        worker_type="" if live is None else live.types_in_words,
        workers=0 if live is None else len(live.lease.workers),
        nodes=() if live is None else tuple(dict.fromkeys(live.nodes)),
        lease_deadline_s=None if live is None else live.deadline_s,
        lease_start_s=None if live is None else live.lease.start_s,
        allocation=MappingProxyType(dict(shares)),
        share=_fairness(view, record.job_id, glance.fairness.share),
        rho=_fairness(view, record.job_id, glance.fairness.rho),
        gpu_use=None if live is None else live.use,
        idle_since_s=None if live is None else live.idle_since_s,
        position=glance.positions.get(record.job_id),
    )


def _fairness(view: PublishedState, job_id: str, figures: FloatArray) -> float | None:
    """Return a job's figure of the (N,) of all; None if it is unknown."""
    jobs = view.engine.jobs
    number = jobs.number_of.get(job_id)
    figure = math.nan if number is None else float(figures[jobs.row_of(number)])
    return None if math.isnan(figure) else figure


def lease_views(view: PublishedState, *, now_s: float) -> tuple[LeaseView, ...]:
    """Return the leases in force by id."""
    held = view.leases.by_id
    return tuple(_lease(view, held[lease_id], now_s=now_s) for lease_id in sorted(held))


def _lease(view: PublishedState, live: LiveLease, *, now_s: float) -> LeaseView:
    lease = live.lease
    record = view.jobs.by_id.get(lease.job_id)
    phase = LeasePhase.GRANTED if live.phase is LeasePhase.STARTING else live.phase
    return LeaseView(
        lease_id=lease.lease_id,
        job_id=lease.job_id,
        project="" if record is None else record.project,
        attempt=lease.attempt,
        worker_type=live.types_in_words,
        workers=lease.workers,
        nodes=tuple(dict.fromkeys(live.nodes)),
        start_s=lease.start_s,
        deadline_s=live.deadline_s,
        state=phase.value,
        steps_done=live.steps_live if record is None else shown_steps(view, live, now_s=now_s),
        owner="" if record is None else record.owner,
        gpu_use=live.use,
        idle_since_s=live.idle_since_s,
    )


def node_views(view: PublishedState) -> tuple[NodeView, ...]:
    """Return every node by name."""
    jobs, nodes = _jobs_on_workers(view), view.nodes.by_name
    return tuple(_node(view, nodes[name], jobs) for name in sorted(nodes))


def node_view(view: PublishedState, node: NodeState) -> NodeView:
    """Return one node."""
    return _node(view, node, _jobs_on_workers(view))


def _jobs_on_workers(view: PublishedState) -> Mapping[int, list[str]]:
    """Return worker -> ids of the jobs that hold it, by lease."""
    found: dict[int, list[str]] = {}
    for lease_id in sorted(view.leases.by_id):
        lease = view.leases.by_id[lease_id].lease
        for worker in lease.workers:
            found.setdefault(worker, []).append(lease.job_id)
    return found


def _node(view: PublishedState, node: NodeState, jobs: Mapping[int, list[str]]) -> NodeView:
    serving = view.engine.in_service[list(node.workers)].tolist()
    workers = tuple(
        WorkerView(
            index=worker,
            local_index=node.index_of(local),
            worker_type=node.types[local],
            in_service=serving[local],
            problem=node.problems.get(local, ""),
            shareable=node.types[local] not in node.exclusive,
            jobs=tuple(jobs.get(worker, ())),
        )
        for local, worker in enumerate(node.workers)
    )
    return NodeView(
        name=node.name,
        state=_state_of(view, node),
        reason=_reason_of(node),
        last_seen_s=node.last_seen_s,
        address=node.address,
        version=node.version,
        workers=workers,
        approved=view.nodes.approved.get(node.name),
        refused=node.refused,
    )


def _reason_of(node: NodeState) -> str:
    """Return why a node, or a part of its workers, is not used; empty if all are used."""
    found = node.reason or ("it has not reported" if node.lost else _common_problem(node))
    if node.silent and not node.lost and not found:
        since = datetime.fromtimestamp(node.silent_since(), UTC).isoformat(timespec="seconds")
        found = f"silent since {since}; it gets nothing new until it reports again"
    found = found or doubt_in_words(node)
    if found or not node.refused:
        return found
    return f"beyond the approved workers, so refused: {in_words(node.refused)}"


def _common_problem(node: NodeState) -> str:
    """Return the problem that all workers of a node share; empty if they share no problem."""
    problems = {node.problems.get(local, "") for local in range(len(node.types))}
    return problems.pop() if len(problems) == 1 else ""


def _state_of(view: PublishedState, node: NodeState) -> str:
    if node.lost:
        return "lost"
    if node.order is NodeAction.CORDON or (node.order is None and node.doubt is not None):
        return "cordoned"
    if node.order is NodeAction.DRAIN:
        return "draining" if any(view.leases.held_by(node.name)) else "drained"
    if node.silent:
        return "silent"
    return "unknown" if node.last_seen_s is None else "ready"


def cluster_view(view: PublishedState, glance: WaitingJobs, *, now_s: float) -> ClusterView:
    """Return the cluster in figures."""
    engine = view.engine
    number, ends_s = round_at(engine, now_s)
    names = engine.cluster.type_names
    known, serving, busy = (
        _by_type(names, engine.count(mask))
        for mask in (~engine.retired, engine.in_service, engine.held & ~engine.retired)
    )
    total = sum(serving.values())
    return ClusterView(
        round_number=number,
        round_ends_s=ends_s,
        round_length_s=engine.settings.round_length_s,
        prices=view.settings.prices,
        workers=known,
        in_service=serving,
        busy=busy,
        utilisation=min(sum(busy.values()) / total, 1.0) if total else 0.0,
        jobs={status.value: count for status, count in view.statuses.items() if count},
        waiting={reason.value: count for reason, count in glance.waiting.items()},
    )


def _by_type(names: tuple[str, ...], counts: np.ndarray) -> dict[str, int]:
    return {name: int(count) for name, count in zip(names, counts.tolist(), strict=True)}


def allocation_view(view: PublishedState) -> AllocationView:
    """Return the allocation in force, and how much of it has been received."""
    policy = view.policy
    return AllocationView(
        policy=policy.choice.name,
        computed_s=policy.computed_s,
        solve_s=policy.last_solve_s,
        shares=allocation_shares(view),
        received=received_shares(view),
    )


def allocation_deviation(view: PublishedState) -> tuple[float, float]:
    """Return the mean and largest |received - promised| over jobs, in rounds."""
    jobs = view.engine.jobs
    if not len(jobs):
        return 0.0, 0.0
    off = np.abs(jobs.credit_s).max(axis=1) / view.engine.settings.round_length_s
    return float(off.mean()), float(off.max())


def policy_problem(view: PublishedState) -> str:
    """Return why the policy in force gives no answer; empty if it does.

    Without jobs it is not asked, so its last failure does not predict the next answer.
    """
    policy = view.policy
    if not policy.last_failure or not len(view.engine.jobs):
        return ""
    return f"policy '{policy.choice.name}' gives no answer: {policy.last_failure}"


def policy_view(view: PublishedState) -> PolicyView:
    """Return the policy in force."""
    policy, proven = view.policy, view.engine.certificate
    return PolicyView(
        name=policy.choice.name,
        parameters=policy.choice.parameters,
        agnostic=policy.choice.agnostic,
        space_sharing=policy.choice.space_sharing,
        since_s=policy.since_s,
        actor=policy.actor,
        last_solve_s=policy.last_solve_s,
        last_failure=policy.last_failure,
        last_round=None if proven is None else _round_view(proven),
    )


def _round_view(proven: Certificate) -> RoundView:
    return RoundView(
        gap=_known(proven.gap),
        fluid_gap=_known(proven.fluid_gap),
        behind_rounds=round(proven.behind_rounds, 6),
        off_rounds=round(proven.off_rounds, 6),
        candidates=proven.candidates,
    )


def _known(figure: float) -> float | None:
    return None if math.isnan(figure) else round(figure, 6)


def project_views(
    view: PublishedState, glance: WaitingJobs, *, now_s: float
) -> tuple[ProjectView, ...]:
    """Return every project that has limits or active jobs, by name."""
    running: Counter[str] = Counter()
    for live in view.leases.by_id.values():
        record = view.jobs.by_id.get(live.lease.job_id)
        if record is not None:
            running[record.project] += len(live.lease.workers)
    jobs, shares, budgets = view.jobs, fair_shares(view), budgets_of(view, now_s=now_s)
    names = sorted({*jobs.limits, *(name for name, count in jobs.active.items() if count)})
    return tuple(
        ProjectView(
            limits=jobs.limits.get(name, ProjectLimits(project=name)),
            active_jobs=jobs.active.get(name, 0),
            admitted_workers=jobs.admitted.get(name, 0),
            running_workers=running[name],
            usage_worker_s=shares[name].usage_worker_s if name in shares else None,
            effective_weight=shares[name].effective_weight if name in shares else None,
            budget=budgets.get(name),
            dues=glance.dues.get(name),
        )
        for name in names
    )


def throughput_views(view: PublishedState) -> tuple[ThroughputView, ...]:
    """Return the known throughputs, by job type, scale factor and worker type."""
    return tuple(
        ThroughputView(
            job_type=job_type,
            scale_factor=scale_factor,
            worker_type=worker_type,
            steps_per_s=estimate.steps_per_s,
            source=estimate.source.value,
            declared=estimate.declared,
            measured=estimate.measured,
            deviation=estimate.relative_deviation if estimate.samples else None,
            samples=estimate.samples,
        )
        for job_type, scale_factor, worker_type, estimate in view.knowledge.known()
    )


def ways_of(view: PublishedState, row: JobRow) -> tuple[Way, ...]:
    """Return the ways in which a job could run; none if its steps are seconds."""
    key = CatalogueKey.of(spec_from_json(row.spec))
    return () if key.timed else tuple(view.knowledge.ways(key, view.engine.present))


def pair_views(view: PublishedState) -> tuple[PairView, ...]:
    """Return how much pairs of jobs slow down if they share workers, sorted."""
    return tuple(
        PairView(
            job_type=first[0],
            with_job_type=second[0],
            scale_factor=first[1],
            worker_type=worker_type,
            part=parts[0],
            with_part=parts[1],
        )
        for first, second, worker_type, parts in view.knowledge.sharing()
        if first[1] == second[1]
    )


def _use_by_project(view: PublishedState) -> dict[str, GpuFigures]:
    """Return project -> use of the measured GPUs under leases."""
    found: dict[str, GpuFigures] = {}
    for lease_id in view.leases.used:
        live = view.leases.by_id[lease_id]
        record, use = view.jobs.by_id.get(live.lease.job_id), live.use
        if record is not None and use is not None:
            workers, idle = len(live.lease.workers), live.idle_told
            before = found.get(record.project, GpuFigures())
            found[record.project] = before.with_more(workers, use, idle=idle)
    return found


def reservation_views(view: PublishedState) -> tuple[ReservedView, ...]:
    """Return every reservation, by the start of its window."""
    engine, found = view.engine, []
    for one in engine.reservations:
        nodes = Counter(
            engine.cluster.nodes[v].name for v in engine.cluster.node_of[[*one.workers]]
        )
        over = one.rule.until_s <= engine.now_s
        state = "in force" if one.in_force else "over" if over else "planned"
        found.append(
            ReservedView(
                reservation=one.rule,
                state=state,
                assigned=len(one.workers),
                used=one.used,
                nodes=dict(sorted(nodes.items())),
            )
        )
    return tuple(found)


def update_gauges(
    view: PublishedState, metrics: Metrics, glance: WaitingJobs, *, now_s: float
) -> None:
    """Update the gauges."""
    seen = cluster_view(view, glance, now_s=now_s)
    metrics.set_jobs(seen.jobs, seen.waiting)
    metrics.set_losing(int((view.engine.jobs["wasted"] >= WORTH_TELLING).sum()))
    metrics.set_workers(seen.workers, seen.in_service, seen.busy)
    recent_s = now_s - view.settings.node_timeout_s
    heard = (node.last_seen_s for node in view.nodes.by_name.values() if not node.lost)
    metrics.set_agents(sum(1 for at_s in heard if at_s is not None and at_s >= recent_s))
    metrics.set_use(_use_by_project(view))
    metrics.set_doubted(view.nodes.by_name.values())
    metrics.set_refused(sum(sum(n.refused.values()) for n in view.nodes.by_name.values()))
    mean, largest = allocation_deviation(view)
    metrics.set_deviation(mean=mean, largest=largest)
    metrics.set_round(seen.round_number)
    proven = view.engine.certificate
    if proven is not None:
        metrics.set_round_gap(proven.gap, proven.fluid_gap)
    metrics.set_budgets({name: one.part for name, one in budgets_of(view, now_s=now_s).items()})
    metrics.set_dues(glance.dues)
    metrics.set_reservations(reservation_views(view))
    metrics.set_policy_failing(bool(view.policy.last_failure))
