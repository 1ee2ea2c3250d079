"""The engine: ``handle(*events, now) -> commands``. No clock, no I/O, no randomness."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.facts import commands as do
from scheduler.domain.lease_life import PhaseWatch
from scheduler.engine.events import on_answers, on_jobs, on_leases, on_reservations, on_workers
from scheduler.engine.events.validation import Checker
from scheduler.engine.plan_round import plan_round
from scheduler.engine.policy_question import ask_policy
from scheduler.engine.serve_idle import serve_idle_workers
from scheduler.engine.state.state import State
from scheduler.engine.tables.jobs import NONE
from scheduler.engine.wait_reasons import store_wait_reasons
from scheduler.errors import InputError, InvariantError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.facts import events as ev
    from scheduler.domain.problem import Entity
    from scheduler.domain.quota import Caps
    from scheduler.engine.limits.node_exclusions import NodeExclusions
    from scheduler.engine.limits.quotas import CapOf, Quotas
    from scheduler.engine.limits.reservations import Reservations
    from scheduler.engine.rounds.certificate import Certificate
    from scheduler.engine.settings import EngineSettings
    from scheduler.engine.tables.fleet import Fleet
    from scheduler.engine.tables.jobs import JobTable
    from scheduler.engine.tables.leases import LeaseBook
    from scheduler.engine.tables.pairs import PairTable

_HANDLERS = {
    **on_leases.HANDLERS,
    **on_answers.HANDLERS,
    **on_jobs.HANDLERS,
    **on_workers.HANDLERS,
    **on_reservations.HANDLERS,
}


class Engine:
    """Turns facts into commands.

    A call first moves the clock (credits and service accrue), then handles the events in their
    order, and last decides: ask the policy, plan the next round, or serve idle workers. While a
    question is open, decisions wait for its answer, but not longer than ``solve_grace_s``.

    Args:
        cluster: the workers at the start; it may be empty.
        settings: of the round mechanism.
        time_dependent: whether the policy's answer changes with progress alone.
        usage_half_life_s: half-life of entities' usage; 0 if the policy does not ask for usage.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: EngineSettings,
        *,
        time_dependent: bool = False,
        usage_half_life_s: float = 0.0,
    ) -> None:
        #: everything that must survive a restart; only ``snapshot`` uses it, others read
        #: properties.
        self.state = State(
            cluster,
            settings,
            time_dependent=time_dependent,
            usage_half_life_s=usage_half_life_s,
        )
        self._phases = PhaseWatch()

    # -- properties for readers -----------------------------------------------------------------

    @property
    def settings(self) -> EngineSettings:
        """Settings of the round mechanism."""
        return self.state.settings

    @property
    def jobs(self) -> JobTable:
        """Active jobs in order of arrival; read-only, like all the following."""
        return self.state.jobs

    @property
    def pairs(self) -> PairTable:
        """Pairs that X lets share workers."""
        return self.state.pairs

    @property
    def book(self) -> LeaseBook:
        """Leases in force and planned."""
        return self.state.book

    @property
    def fleet(self) -> Fleet:
        """Workers by number."""
        return self.state.fleet

    @property
    def table(self) -> ConfigurationTable:
        """Configurations by profile."""
        return self.state.table

    @property
    def cluster(self) -> Cluster:
        """The workers as a value, including retired ones; the same object until nodes join."""
        return self.state.fleet.cluster

    @property
    def present(self) -> Cluster:
        """The workers that are not retired, with other numbers; the same until nodes change."""
        return self.state.fleet.present

    @property
    def in_service(self) -> BoolArray:
        """(W,) workers that are neither lost nor drained nor retired; cordoned ones are included.

        A view: it changes with the engine's state, and is out of date after nodes have joined.
        """
        return self.state.fleet.in_service

    @property
    def cordoned(self) -> BoolArray:
        """(W,) workers on which no new lease is granted; a view like ``in_service``."""
        return self.state.fleet.cordoned

    @property
    def retired(self) -> BoolArray:
        """(W,) workers that are gone permanently; a view like ``in_service``."""
        return self.state.fleet.retired

    @property
    def idle(self) -> BoolArray:
        """(W,) workers that may be granted and are neither held nor planned; a copy."""
        return self.state.book.idle()

    @property
    def held(self) -> BoolArray:
        """(W,) workers under leases; a copy."""
        return self.state.book.held()

    def count(self, workers: BoolArray) -> IntArray:
        """Return (K,) how many of the marked workers are of each type."""
        return self.state.fleet.count(workers)

    @property
    def avoidance(self) -> NodeExclusions:
        """Nodes that jobs avoid, because they failed or could not start there."""
        return self.state.assigner.avoidance

    @property
    def confined(self) -> frozenset[int]:
        """Numbers of the waiting jobs that may start within their entity's share only."""
        return frozenset(self.state.assigner.rooms)

    @property
    def quotas(self) -> Quotas:
        """Quotas in force."""
        return self.state.quotas

    def quotas_held(self) -> tuple[Caps | None, tuple[CapOf, ...], IntArray]:
        """Return the caps of this moment, the quota of each, and (Q,) workers held of each."""
        state = self.state
        caps = state.caps()
        if caps is None:
            return None, (), np.zeros(0, dtype=np.int64)
        held = state.held_of(caps, np.arange(len(state.jobs)))
        return caps, state.quotas.of(state.table.worker_types), held

    @property
    def reservations(self) -> Reservations:
        """Reservations: workers set aside, and the jobs that may use them."""
        return self.state.reservations

    @property
    def entities(self) -> tuple[Entity, ...]:
        """The entities that were set or have had jobs."""
        return tuple(self.state.entities)

    @property
    def usage_s(self) -> FloatArray | None:
        """(E,) decayed worker-seconds of each entity; None if usage is not counted."""
        return self.state.usage_s

    @property
    def now_s(self) -> float:
        """The time of the last call."""
        return self.state.now_s

    @property
    def newest_lease(self) -> int:
        """Id of the newest lease; 0 before the first."""
        return self.state.assigner.next_lease

    @property
    def round_number(self) -> int:
        """Number of the current round; 0 before the first."""
        return self.state.round_number

    @property
    def certificate(self) -> Certificate | None:
        """How good the last planned round was; None before the first since the start."""
        return self.state.certificate

    @property
    def round_end_s(self) -> float | None:
        """End of the current round; None while no job is active."""
        return self.state.round_end_s

    @property
    def generation(self) -> int:
        """Generation of the newest question; answers to older ones are dropped."""
        return self.state.generation

    @property
    def question_open(self) -> bool:
        """Whether the newest question still waits for its answer."""
        return self.state.question_open

    @property
    def time_dependent(self) -> bool:
        """Whether the policy's answer changes with progress alone."""
        return self.state.time_dependent

    def held_before_s(self, job_id: str) -> float:
        """Return for how long a job held workers under leases that have ended.

        It counts from the job's (last) submission; 0 for a job that is not active.
        """
        row = self.state.row_of_job(job_id)
        return 0.0 if row == NONE else float(self.jobs["held_s"][row])

    # -- entry points ---------------------------------------------------------------------------

    def handle(self, *events: ev.Event, now: float) -> list[do.Command]:
        """Handle facts that are true at ``now``; return the commands to perform.

        The same as ``handle_columns``, with each batch as single commands.

        Args:
            events: facts, in the order in which they happened.
            now: seconds; never earlier than in the call before.

        Raises:
            InputError: time runs backwards, or an event is malformed; the state is unchanged.
        """
        return do.one_by_one(self.handle_columns(*events, now=now))

    def handle_columns(self, *events: ev.Event, now: float) -> list[do.Command | do.Batch]:
        """Handle facts that are true at ``now``; return the commands to perform, in batches.

        Args:
            events: facts, in the order in which they happened.
            now: seconds; never earlier than in the call before.

        Raises:
            InputError: time runs backwards, or an event is malformed; the state is unchanged.
        """
        self._check(events, now)
        self._begin_call()
        self._advance(now)
        self._handle_events(events)
        self._watch_round()
        self._watch_windows()
        self._decide()
        return self.state.commands

    def _check(self, events: Sequence[ev.Event], now: float) -> None:
        """Refuse malformed input before anything changes."""
        before_s = self.state.now_s
        if not before_s <= now < np.inf:
            raise InputError(f"now is {now}; it must not be before the last call at {before_s}")
        checker = Checker(self.state.fleet, self.state.table)
        for event in events:
            checker.check(event)

    def _begin_call(self) -> None:
        self.state.commands = []
        self.state.reservations.given_up.clear()

    def _advance(self, now: float) -> None:
        """Accrue credits and service up to ``now``."""
        state = self.state
        elapsed = now - state.now_s
        state.now_s = state.assigner.now_s = now
        jobs, pairs = state.jobs, state.pairs
        if state.usage.half_life_s and elapsed > 0:
            state.usage.advance(jobs, elapsed, len(state.entities))
        if elapsed <= 0 or not len(jobs):
            return
        credit_s = jobs.credit_s
        credit_s += jobs.x * elapsed
        jobs["attained_worker_s"][:] += jobs["workers_held"] * elapsed
        charged = jobs["charged"].nonzero()[0]  # flatnonzero would copy the column first
        held = jobs["configuration"][charged]
        single = held >= 0
        credit_s[charged[single], held[single]] -= elapsed
        if len(pairs):
            pairs.credit_s += pairs.x * elapsed
            running = np.unique(jobs["pair"][charged])
            pairs.credit_s[running[running >= 0]] -= elapsed

    def _handle_events(self, events: Sequence[ev.Event]) -> None:
        state = self.state
        for event in events:
            state.event, state.ending, state.told = event, None, None
            _HANDLERS[type(event)](state, event)
        state.event = state.told = None

    def _watch_round(self) -> None:
        """Check whether the next round must be planned; the timer only ensures a call then."""
        state = self.state
        due_s = state.round_end_s
        if due_s is None or state.plan_due:
            return
        if state.now_s >= due_s - state.settings.plan_lead_s - 1e-9:
            state.plan_due = True
            refresh = state.round_number % state.settings.refresh_rounds == 0
            state.changed |= state.time_dependent and refresh

    def _watch_windows(self) -> None:
        """Begin and end the windows of reservations."""
        if self.state.reservations:
            on_reservations.update_windows(self.state)

    def _decide(self) -> None:
        """Ask the policy, plan the next round, and serve idle workers, as far as each is due."""
        state = self.state
        if state.changed:
            ask_policy(state)
        if state.blocked:
            return
        state.triggers.planned = []
        decides = state.plan_due or state.serve_due
        if state.plan_due:
            state.plan_due = False
            plan_round(state)
        while state.serve_due:
            state.serve_due = False
            serve_idle_workers(state)
        if decides:
            store_wait_reasons(state)

    # -- checks ---------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise InvariantError if the state contradicts itself. For tests, after every step."""
        jobs, book, fleet = self.jobs, self.book, self.fleet
        jobs.check_invariants()
        book.check_invariants()
        fleet.check_invariants()
        self._phases.check(book.phases())
        held = {int(lease) for lease in jobs["lease"] if lease != NONE}
        if held != set(book.leases):
            raise InvariantError(f"jobs hold leases {held}, in force are {set(book.leases)}")
        self._check_near()
        for lease_id in book.leases.keys() - book.stopping:
            lease = book.leases[lease_id]
            if not fleet.in_service[list(lease.workers)].all():
                raise InvariantError(f"lease {lease_id} holds a worker that is out of service")
        for number, plan in book.planned.items():
            open_to = fleet.in_service & ~fleet.cordoned
            if not open_to[list(plan.workers)].all():
                raise InvariantError(f"job {number} is planned on workers that may not be granted")
        for holders in book.on_worker:
            workers = [lease for lease in holders if lease not in book.stopping]
            if len(workers) == 2:
                entries = {
                    int(jobs["pair"][jobs.row_of(book.leases[lease].job_number)])
                    for lease in workers
                }
                if len(entries) != 1 or NONE in entries:
                    raise InvariantError(f"leases {workers} share a worker but are no pair")
        if self.state.round_end_s is None and book.leases:
            raise InvariantError("leases are in force, but no round runs")

    def _check_near(self) -> None:
        jobs, near = self.jobs, self.state.assigner.launch_constraints.consolidated
        alone = (jobs["lease"] != NONE) & (jobs["configuration"] != NONE)
        for row in np.flatnonzero(alone).tolist():
            if near[jobs["profile"][row], jobs["configuration"][row]]:
                workers = self.book.workers_of(int(jobs["lease"][row]))
                if len(set(self.fleet.node_of[list(workers)].tolist())) > 1:
                    raise InvariantError(f"lease {jobs['lease'][row]} must not span nodes")
