"""Updates of the engine's configuration table and of the restart costs of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.control.jobs.declared_throughputs import declare_joined
from scheduler.domain.facts import events as ev
from scheduler.domain.throughputs.knowledge import Part
from scheduler.engine.state.restart_costs import restarts_in

if TYPE_CHECKING:
    from scheduler.control.state.state import ControlState
    from scheduler.control.state.transaction import Transaction
    from scheduler.domain.arrays import FloatArray
    from scheduler.domain.jobs.job import Restarts
    from scheduler.domain.jobs.spec import JobSpec

#: A restart's cost is updated if it changed by so many seconds and by such a share.
NEWS_S: Final = 1.0
NEWS_SHARE: Final = 0.25


def renew_table(state: ControlState, transaction: Transaction) -> None:
    """Rebuild the configuration table if profiles, types or throughputs have changed."""
    engine, choice, settings = state.engine, state.policy.choice, state.settings
    # Measurements go to the engine when a round is planned, and not with every report.
    due = state.estimates_due or state.batches_due or state.mixed_due
    learned = due and any(isinstance(e, ev.TimerFired) for e in transaction.events)
    if not (state.table_due or learned):
        return
    declare_joined(state)
    if due:
        active = (record.spec.type_key for record in state.jobs.by_id.values())
        if state.knowledge.forget_oldest(active):
            transaction.set(Part.PLANS.value, state.knowledge.dump(Part.PLANS))
            state.estimates_due = True
        state.knowledge.keep_learners(state.jobs.by_id)
    table = state.knowledge.renewed(
        engine.table,
        engine.present,
        agnostic=choice.agnostic,
        space_sharing=choice.space_sharing,
        exclusive=state.nodes.exclusive,
        profiling=settings.profiling,
        tolerance=settings.learning.tolerance if not state.table_due else 0.0,
    )
    if state.estimates_due:
        transaction.set(Part.THROUGHPUTS.value, state.knowledge.dump(Part.THROUGHPUTS))
    if state.batches_due:
        transaction.set(Part.BATCHES.value, state.knowledge.dump(Part.BATCHES))
    if state.mixed_due:
        transaction.set(Part.MIXED_GANGS.value, state.knowledge.dump(Part.MIXED_GANGS))
    state.table_due = state.estimates_due = state.batches_due = state.mixed_due = False
    if table is not None:
        transaction.set(Part.PROFILES.value, state.knowledge.dump(Part.PROFILES))
        transaction.emit(ev.ConfigurationsChanged(table=table))


def restart_costs(state: ControlState, spec: JobSpec) -> Restarts:
    """Return the cost of changing a job's workers: as declared, else as measured in launches.

    Returns:
        Seconds on any workers, and on given types, see ``Job.restarts``.
    """
    if spec.restart_s > 0.0 or spec.restarts or not state.settings.learning.learn:
        return spec.restart_s, spec.restarts
    return state.knowledge.launch_s(spec.type_key), state.knowledge.launches_s(spec.type_key)


def renew_restarts(state: ControlState, transaction: Transaction) -> None:
    """When a round is planned, pass changed restart costs to the engine."""
    if not state.launches_due or not any(isinstance(e, ev.TimerFired) for e in transaction.events):
        return
    state.launches_due = False
    transaction.set(Part.LAUNCHES.value, state.knowledge.dump(Part.LAUNCHES))
    jobs, table = state.engine.jobs, state.engine.table
    news: dict[str, Restarts] = {}
    #: profile -> learned restart costs of its jobs, and the (J,) seconds in its configurations.
    learned: dict[int, tuple[Restarts, FloatArray]] = {}
    for job_id, number in jobs.number_of.items():
        record = state.jobs.by_id.get(job_id)
        if record is None:  # it ends in this decision
            continue
        row, spec, profile = jobs.row_of(number), record.spec, record.profile
        if spec.restart_s > 0.0 or spec.restarts or profile >= len(table.profiles):
            continue
        if profile not in learned:
            found = restart_costs(state, spec)
            learned[profile] = found, restarts_in(table, profile, *found)
        found, found_s = learned[profile]
        known_s = jobs.restarts_s[row, : len(found_s)]
        if (np.abs(found_s - known_s) > np.maximum(NEWS_S, NEWS_SHARE * known_s)).any():
            news[job_id] = found
    if news:
        costs = np.array([usual_s for usual_s, _ in news.values()], dtype=float)
        on_some = tuple(some for _, some in news.values())
        transaction.emit(
            ev.RestartsMeasured(job_ids=tuple(news), restart_s=costs, restarts=on_some)
        )
