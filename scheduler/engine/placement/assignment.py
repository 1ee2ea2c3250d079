"""Assignment: from the choice of a round to leases on concrete workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from scheduler.domain.configuration import ConfigurationTable
from scheduler.domain.facts import commands as do
from scheduler.domain.lease import Leases
from scheduler.domain.lease_life import RevokeReason
from scheduler.engine.limits.node_exclusions import Exclusions, NodeExclusions
from scheduler.engine.limits.quota_usage import hold_back
from scheduler.engine.placement.launch_constraints import LaunchConstraints
from scheduler.engine.placement.placement import Placer, Unit, largest_first
from scheduler.engine.rounds.decision_reasons import CausesOfGrants, CausesOfNotices, Notices
from scheduler.engine.rounds.equivalence import EquivalentConfigurations
from scheduler.engine.tables.fleet import Fleet
from scheduler.engine.tables.jobs import NONE, RUNNING, JobTable
from scheduler.engine.tables.leases import LeaseBook, PlannedLease
from scheduler.engine.tables.pairs import PairTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.domain.arrays import BoolArray, IntArray
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.facts.causes import Cause
    from scheduler.domain.quota import Caps
    from scheduler.engine.rounds.choose_round import Choice
    from scheduler.engine.rounds.decision_reasons import RoundReasons

_UNMOVED: IntArray = np.empty(0, dtype=np.int64)

#: A job that joins another on its workers: row, workers, lease of the partner that keeps them.
Joiner: TypeAlias = tuple[int, tuple[int, ...], int]


class Assigner:
    """Keeps jobs, pairs and leases consistent while assignments change."""

    def __init__(self, cluster: Cluster) -> None:
        self.fleet = Fleet(cluster)
        self.placer = Placer(self.fleet)
        #: configurations by profile, over the fleet's worker types.
        self.table = ConfigurationTable.build(cluster.type_names, ())
        self.jobs = JobTable()
        self.pairs = PairTable()
        self.book = LeaseBook(self.fleet)
        #: nodes that jobs avoid for a while, because they failed or could not start there.
        self.avoidance = NodeExclusions(self.fleet)
        #: the time of the current call.
        self.now_s = 0.0
        #: (numbers of jobs, (W,) workers) on which these jobs must not be placed now.
        self.forbidden_workers: Sequence[tuple[IntArray, BoolArray]] = ()
        #: job number -> (K,) workers that the job may hold at most if it starts now.
        self.rooms: Mapping[int, IntArray] = {}
        #: id of the newest lease; also its fencing token.
        self.next_lease = 0
        #: the table at the last access, and its configurations of equal value.
        self._equivalent: tuple[ConfigurationTable, EquivalentConfigurations] | None = None
        #: the same for launch constraints.
        self._launch_constraints: tuple[ConfigurationTable, LaunchConstraints] | None = None

    @property
    def equivalent(self) -> EquivalentConfigurations:
        """Return the configurations of equal value in the table."""
        if self._equivalent is None or self._equivalent[0] is not self.table:
            prices = self.fleet.cost_usd_per_hour[: self.table.demand.shape[2]]
            self._equivalent = self.table, EquivalentConfigurations.of(self.table, prices)
        return self._equivalent[1]

    @property
    def launch_constraints(self) -> LaunchConstraints:
        """Return the launch constraints of the table."""
        if self._launch_constraints is None or self._launch_constraints[0] is not self.table:
            self._launch_constraints = self.table, LaunchConstraints.of(self.table)
        return self._launch_constraints[1]

    def realise(
        self,
        choice: Choice,
        eligible: BoolArray,
        reasons: RoundReasons,
        *,
        goes_on: Cause,
        start_s: float,
        end_s: float,
        caps: Caps | None = None,
        leaves: BoolArray | None = None,
    ) -> list[do.Command | do.Batch]:
        """Extend leases that go on, give notice to those that end, plan those that begin.

        Args:
            choice: the configurations of the next round.
            eligible: (N,) jobs that may run in it.
            reasons: the reasons of the choice.
            goes_on: the cause of extensions.
            start_s: when the round begins.
            end_s: when the round ends.
            caps: quotas over all jobs; None if there are no quotas.
            leaves: (N,) jobs that cannot stay on their workers; None for no jobs.
        """
        jobs = self.jobs
        commands: list[do.Command | do.Batch] = []
        wanted = eligible & ((choice.configuration != NONE) | (choice.pair != NONE))
        stays = (
            wanted
            & (jobs["status"] == RUNNING)
            & (choice.configuration == jobs["configuration"])
            & (choice.pair == jobs["pair"])
        )
        if leaves is not None:
            stays &= ~leaves
        if self.book.stopping:
            stays &= ~np.isin(jobs["lease"], list(self.book.stopping))
        joins: list[Joiner] = []
        if len(self.pairs):
            joins = self._keep_workers(choice, wanted, stays)
        if self.launch_constraints.any_consolidated:
            joining = [row for row, _, _ in joins]
            self._make_room(choice, wanted & ~stays, stays, joining)
        jobs["charged"][stays] = choice.charged[stays]
        kept = jobs["lease"][stays]
        if len(kept):
            leases = np.sort(kept)
            commands.append(do.ExtendLeases(lease_ids=leases, deadline_s=end_s, cause=goes_on))
        ends = ((jobs["lease"] != NONE) & ~stays).nonzero()[0]
        if self.book.stopping:
            ends = ends[~np.isin(jobs["lease"][ends], list(self.book.stopping))]
        if len(ends):
            commands.append(self._outbid(ends, reasons, by_s=start_s))
        begins = wanted & ~stays
        for row, workers, partner_lease in joins:
            self._reserve([row], [workers], choice, reasons, partner_lease)
            begins[row] = False
        if joins or begins.any():
            available = self.fleet.grantable & ~self.book.stays()
            units = self._units(choice, begins)
            commands += self._start(units, choice, reasons, available, end_s, caps=caps)
        return commands

    def serve(
        self, choice: Choice, reasons: RoundReasons, available: BoolArray, *, end_s: float
    ) -> list[do.GrantLeases]:
        """Start waiting jobs on available workers until ``end_s``; ``available`` is used up."""
        wanted = (choice.configuration != NONE) | (choice.pair != NONE)
        return self._start(self._units(choice, wanted), choice, reasons, available, end_s)

    def _keep_workers(self, choice: Choice, wanted: BoolArray, stays: BoolArray) -> list[Joiner]:
        """Let jobs stay on their workers if only the sharing changes.

        Marks the jobs that stay in ``stays``.

        Returns:
            The jobs that join them: row, workers, lease of the partner that stays.
        """
        joins: list[Joiner] = []
        units = []
        grantable = self.fleet.grantable
        for rows in self._units(choice, wanted & ~stays):
            partner = self._staying_partner(rows, choice, stays)
            if partner == NONE:
                units.append(rows)
            else:
                lease_id = int(self.jobs["lease"][partner])
                joins.append((rows[0], self._workers_of(partner), lease_id))
        taken = {self._workers_of(row) for row in np.flatnonzero(stays).tolist()}
        asked = []
        for rows in units:
            held = [self._workers_of(row) for row in rows]
            free = tuple(
                workers if workers not in taken and self._suits(row, workers, choice) else ()
                for row, workers in zip(rows, held, strict=True)
            )
            asked.append(Unit(rows=rows, demand=self._demand(rows[0], choice), held=free))
        for rows, workers in zip(units, self.placer.keep(asked), strict=True):
            if not workers or not grantable[list(workers)].all():
                continue
            stayers = [row for row in rows if self._workers_of(row) == workers]
            for row in stayers:
                stays[row] = True
                self._recast(row, choice)
            lease = int(self.jobs["lease"][stayers[0]])
            joins.extend((row, workers, lease) for row in rows if row not in stayers)
        return joins

    def _staying_partner(self, rows: tuple[int, ...], choice: Choice, stays: BoolArray) -> int:
        """Return the row of the partner that a job is to join and that stays, NONE without one."""
        entry = choice.pair[rows[0]]
        if entry == NONE or len(rows) > 1:
            return NONE
        partners = np.flatnonzero(stays & (choice.pair == entry))
        return int(partners[0]) if len(partners) else NONE

    def _recast(self, row: int, choice: Choice) -> None:
        """Store a change of sharing on workers that a job keeps."""
        self.jobs["configuration"][row] = choice.configuration[row]
        self.jobs["pair"][row] = choice.pair[row]
        demand = sum(self._demand(row, choice))
        self.jobs["workers_held"][row] = demand / (2.0 if choice.pair[row] != NONE else 1.0)

    def _units(self, choice: Choice, begins: BoolArray) -> list[tuple[int, ...]]:
        """Group the rows that begin into units: single jobs, and pairs by their entry."""
        rows = np.flatnonzero(begins & (choice.configuration != NONE))
        units: list[tuple[int, ...]] = [(row,) for row in rows.tolist()]
        shared = np.flatnonzero(begins & (choice.pair != NONE))
        by_entry: dict[int, list[int]] = {}
        for row in shared.tolist():
            by_entry.setdefault(int(choice.pair[row]), []).append(row)
        units.extend(tuple(members) for members in by_entry.values())
        return units

    def _demand(self, row: int, choice: Choice) -> tuple[int, ...]:
        if choice.pair[row] != NONE:
            demand = self.table.pair_demand[self.pairs.index[choice.pair[row]]]
        else:
            demand = self.table.demand[self.jobs["profile"][row], choice.configuration[row]]
        return tuple(demand.tolist())

    def _start(
        self,
        units: Sequence[tuple[int, ...]],
        choice: Choice,
        reasons: RoundReasons,
        available: BoolArray,
        end_s: float,
        *,
        caps: Caps | None = None,
    ) -> list[do.GrantLeases]:
        """Place units on available workers, and grant their leases as soon as these are free."""
        choosy = bool(self.avoidance) or bool(self.forbidden_workers)
        avoided = [self._avoided(rows) for rows in units] if choosy else ()
        placed = self.placer.place(
            self._demands(units, choice), available, avoided, self._together(units, choice)
        )
        begin = [
            (row, workers)
            for rows, workers in zip(units, placed, strict=True)
            if workers
            for row in rows
        ]
        rows, held = [row for row, _ in begin], [workers for _, workers in begin]
        self._reserve(rows, held, choice, reasons, NONE)
        if caps is not None:
            # Leases that go on or are planned keep the quotas; stopping leases still use them, too.
            homeless = hold_back(
                caps, jobs=self.jobs, table=self.table, book=self.book, fleet=self.fleet
            )
            for number in homeless:
                self.drop_plan(number)
        ready = [plan for plan in self.book.planned.values() if not plan.blockers]
        return [self.grants(ready, end_s=end_s)] if ready else []

    def _demands(self, units: Sequence[tuple[int, ...]], choice: Choice) -> IntArray:
        """Return (R, K) workers that each unit asks for."""
        first = np.array([rows[0] for rows in units], dtype=np.int64)
        profile, pair = self.jobs["profile"][first], choice.pair[first]
        demands: IntArray = self.table.demand[profile, choice.configuration[first]]
        shared = np.flatnonzero(pair != NONE)
        if len(shared):
            demands[shared] = self.table.pair_demand[self.pairs.index[pair[shared]]]
        return demands

    def _together(self, units: Sequence[tuple[int, ...]], choice: Choice) -> BoolArray | None:
        """Return (R,) units that must lie on one node; None if there are no such units."""
        if not self.launch_constraints.any_consolidated:
            return None
        first = np.array([rows[0] for rows in units], dtype=np.int64)
        configuration = choice.configuration[first]
        consolidated = self.launch_constraints.consolidated[
            self.jobs["profile"][first], configuration
        ]
        result: BoolArray = consolidated & (configuration != NONE)
        return result

    def _suits(self, row: int, workers: tuple[int, ...], choice: Choice) -> bool:
        """Return whether a job can keep its workers and launch in its next configuration."""
        launch_constraints, profile = self.launch_constraints, int(self.jobs["profile"][row])
        held, wanted = int(self.jobs["configuration"][row]), int(choice.configuration[row])
        if (
            wanted != NONE
            and launch_constraints.consolidated[profile, wanted]
            and not self._are_near(workers)
        ):
            return False
        ways = self.table.profiles[profile].configurations
        plans = ["" if j == NONE else ways[j].plan for j in (held, wanted)]
        return plans[0] == plans[1]

    def _are_near(self, workers: tuple[int, ...]) -> bool:
        return len(set(self.fleet.node_of[list(workers)].tolist())) <= 1

    def _make_room(
        self, choice: Choice, begins: BoolArray, stays: BoolArray, joining: Sequence[int]
    ) -> None:
        """Let jobs move off a node for gangs that must lie on one node and find no room otherwise.

        The cleared node is the one from which the fewest workers move. Jobs that share, that must
        lie on one node themselves, or that are protected do not move. A job that moves is removed
        from ``stays``.
        """
        jobs, fleet = self.jobs, self.fleet
        due = begins & choice.charged & (choice.configuration != NONE)
        due[list(joining)] = False
        due &= self.launch_constraints.consolidated[jobs["profile"], choice.configuration]
        rows = np.flatnonzero(due)
        if not len(rows):
            return
        demands = self.table.demand[jobs["profile"][rows], choice.configuration[rows]]
        free, grantable = fleet.grantable, fleet.grantable
        holder = np.full(len(free), NONE, dtype=np.int64)
        for row in np.flatnonzero(stays).tolist():
            workers = list(self._workers_of(row))
            free[workers] = False
            if choice.inputs.kept is not None and choice.inputs.kept[row]:
                continue
            alone = choice.configuration[row] != NONE and jobs["pair"][row] == NONE
            near = self.launch_constraints.consolidated[
                jobs["profile"][row], choice.configuration[row]
            ]
            if alone and not near and grantable[workers].all():
                holder[workers] = row
        for r in largest_first(demands, np.ones(len(rows), dtype=bool)):
            if not self.placer.on_one_node(demands[r], free):
                for row in self._least_moved(demands[r], free, holder):
                    stays[row] = False
                    workers = list(self._workers_of(row))
                    holder[workers], free[workers] = NONE, True
            free[list(self.placer.on_one_node(demands[r], free))] = False

    def _least_moved(self, demand: IntArray, free: BoolArray, holder: IntArray) -> list[int]:
        """Return rows of jobs that make room for a demand on one node by moving; empty if none can.

        Args:
            demand: (K,) workers by type.
            free: (W,) workers without a lease that stays.
            holder: (W,) row of the job that may move off each worker; NONE if there is no such job.
        """
        fleet, held = self.fleet, self.jobs["workers_held"]
        lacking = demand - fleet.count_on_nodes(free)
        enough = demand <= fleet.count_on_nodes(free | (holder != NONE))
        best: list[int] = []
        least = np.inf
        for v in np.flatnonzero(enough.all(axis=1)).tolist():
            here = slice(*fleet.node_start[v : v + 2].tolist())
            left, moved = np.maximum(lacking[v], 0), []
            rows, counts = np.unique(holder[here][holder[here] != NONE], return_counts=True)
            # The job that holds most here, and least elsewhere, goes first.
            for row in rows[np.lexsort((held[rows] - counts, -counts))].tolist():
                gives = np.bincount(fleet.type_of[here][holder[here] == row], minlength=len(left))
                if (np.minimum(gives, left) > 0).any():
                    left = np.maximum(left - gives, 0)
                    moved.append(row)
            cost = held[moved].sum()
            if not left.any() and cost < least:
                best, least = moved, cost
        return best

    def _avoided(self, rows: tuple[int, ...]) -> BoolArray | None:
        """Return (W,) the workers that at least one of the rows' jobs avoids; None if empty."""
        numbers = [int(self.jobs["number"][row]) for row in rows]
        mask = self.avoidance.mask(numbers, self.now_s)
        for late, workers in self.forbidden_workers:
            if np.isin(numbers, late).any():
                mask = workers if mask is None else mask | workers
        return mask

    def can_run(self, row: int, available: BoolArray) -> bool:
        """Return whether some workers suffice for a job in any of its configurations.

        Args:
            row: of the job.
            available: (W,) the workers.
        """
        profile = self.jobs["profile"][row]
        demand, usable = self.table.demand[profile], self.table.throughput[profile] > 0
        left = self.fleet.count(available)[: demand.shape[1]]
        usable &= (demand <= left).all(axis=1)
        if self.launch_constraints.any_consolidated:
            most = self.fleet.count_on_nodes(available).max(axis=0, initial=0)[: demand.shape[1]]
            usable &= (demand <= most).all(axis=1) | ~self.launch_constraints.consolidated[profile]
        return bool(usable.any())

    def exclusions(self, available: BoolArray) -> Exclusions | None:
        """Return the configurations that jobs cannot have on some workers; or None.

        A job that avoids nodes may find too few workers left. For a job that must lie on one node,
        no node may have enough. Jobs that are not preemptible start within shares.

        Args:
            available: (W,) workers that may be given, or are held by jobs that may stay.
        """
        numbers = self.avoidance.active(self.now_s) if self.avoidance else []
        launch_constraints = self.launch_constraints
        if not (
            numbers or launch_constraints.any_consolidated or self.forbidden_workers or self.rooms
        ):
            return None
        jobs, demand = self.jobs, self.table.demand
        excluded = np.zeros((len(jobs), demand.shape[1]), dtype=bool)
        avoiding = np.zeros(len(jobs), dtype=bool)
        for number in numbers:
            row = jobs.row_of(number)
            mask = self.avoidance.mask((number,), self.now_s)
            assert row != NONE
            assert mask is not None
            left = self.fleet.count(available & ~mask)[: demand.shape[2]]
            excluded[row] = (demand[jobs["profile"][row]] > left).any(axis=1)
            avoiding[row] = True
            held = int(jobs["configuration"][row])
            if held != NONE:
                excluded[row, held] = False  # it has started where it is
        for late, workers in self.forbidden_workers:
            rows = jobs.rows_of(late)
            rows = rows[rows != NONE]
            left = self.fleet.count(available & ~workers)[: demand.shape[2]]
            short = (demand[jobs["profile"][rows]] > left).any(axis=2)
            running = np.flatnonzero(jobs["configuration"][rows] != NONE)
            short[running, jobs["configuration"][rows[running]]] = False
            excluded[rows] |= short
            avoiding[rows] = True
        for number, room in self.rooms.items():
            row = jobs.row_of(number)
            if row != NONE and jobs["lease"][row] == NONE:
                needs = demand[jobs["profile"][row]]
                excluded[row] |= (needs > room[: demand.shape[2]]).any(axis=1)
                avoiding[row] = True
        if launch_constraints.any_consolidated:
            profile, running = jobs["profile"], np.flatnonzero(jobs["configuration"] != NONE)
            most = self.fleet.count_on_nodes(available).max(axis=0, initial=0)[: demand.shape[2]]
            scattered = launch_constraints.consolidated[profile] & (demand[profile] > most).any(
                axis=2
            )
            scattered[running, jobs["configuration"][running]] = False
            excluded |= scattered
        return Exclusions(configuration=excluded, row=avoiding)

    def _workers_of(self, row: int) -> tuple[int, ...]:
        """Return the workers of a job's lease; empty if the lease is stopping."""
        lease_id = int(self.jobs["lease"][row])
        if lease_id == NONE or lease_id in self.book.stopping:
            return ()
        return self.book.workers_of(lease_id)

    def _reserve(
        self,
        rows: Sequence[int],
        workers: Sequence[tuple[int, ...]],
        choice: Choice,
        reasons: RoundReasons,
        partner_lease: int,
    ) -> None:
        """Plan a lease for each row; it need not wait for ``partner_lease`` (NONE without one)."""
        jobs, at = self.jobs, np.array(rows, dtype=np.int64)
        values = zip(
            rows,
            *(jobs[name][at].tolist() for name in ("number", "lease")),
            *(a[at].tolist() for a in (choice.configuration, choice.pair, choice.charged)),
            workers,
            strict=True,
        )
        for row, number, own_lease, configuration, pair, charged, held in values:
            plan = PlannedLease(
                number=number,
                job_id=jobs.job_of[number].job_id,
                row=row,
                moves=own_lease != NONE,
                why=reasons,
                configuration=configuration,
                pair=pair,
                charged=charged,
                workers=held,
            )
            self.book.plan(plan, own_lease, partner_lease)

    def grants(self, plans: Sequence[PlannedLease], *, end_s: float) -> do.GrantLeases:
        """Put planned leases in force, as ``grant`` does, and return the command."""
        return do.GrantLeases(leases=self.grant(plans, end_s=end_s), causes=CausesOfGrants(plans))

    def grant(self, plans: Sequence[PlannedLease], *, end_s: float) -> Leases:
        """Put planned leases that nothing blocks in force until ``end_s``."""
        jobs, n = self.jobs, len(plans)
        numbers = np.array([plan.number for plan in plans], dtype=np.int64)
        self.book.forget(numbers.tolist())
        rows = jobs.rows_of(numbers)
        attempt = jobs["attempts"][rows] + 1
        leases = Leases(
            first_id=self.next_lease + 1,
            attempt=attempt,
            job_number=numbers,
            job_ids=tuple([plan.job_id for plan in plans]),
            profile=jobs["profile"][rows],
            configuration=np.array([plan.configuration for plan in plans], dtype=np.int64),
            workers=tuple([plan.workers for plan in plans]),
            start_s=self.now_s,
            deadline_s=end_s,
        )
        self.next_lease += n
        self.book.add(leases)
        pair = np.array([plan.pair for plan in plans], dtype=np.int64)
        held = np.array([len(plan.workers) for plan in plans], dtype=np.int64)
        jobs["attempts"][rows] = attempt
        jobs["status"][rows] = RUNNING
        jobs["wait_reasons"][rows] = 0
        jobs["lease"][rows] = np.arange(leases.first_id, leases.first_id + n)
        jobs["configuration"][rows] = leases.configuration
        jobs["pair"][rows] = pair
        jobs["charged"][rows] = [plan.charged for plan in plans]
        jobs["workers_held"][rows] = held / (1.0 + (pair != NONE))
        return leases

    def revoke(
        self, lease_id: int, *, by_s: float, reason: RevokeReason, cause: Cause
    ) -> do.RevokeLeases:
        """Give notice to a lease."""
        self.book.stopping.add(lease_id)
        return do.RevokeLeases(
            lease_ids=np.array([lease_id]), by_s=by_s, reason=reason, causes=(cause,)
        )

    def _outbid(self, rows: IntArray, reasons: RoundReasons, *, by_s: float) -> do.RevokeLeases:
        """Give notice to the leases of (n,) rows: other jobs get the workers, or the jobs move."""
        leases = self.jobs["lease"][rows]
        order = leases.argsort()
        lease_ids, rows = leases[order], rows[order]
        ids = lease_ids.tolist()
        self.book.stopping.update(ids)
        notices = Notices(
            lease_ids=ids,
            batches=self.book.granted_with(ids),
            rows=rows,
            charged=self.jobs["charged"][rows],
        )
        return do.RevokeLeases(
            lease_ids=lease_ids,
            by_s=by_s,
            reason=RevokeReason.OUTBID,
            causes=CausesOfNotices(reasons, notices),
        )

    def follow(self, moved: Mapping[int, IntArray]) -> None:
        """Move jobs and planned leases to the new columns of their configurations.

        Args:
            moved: profile -> (J,) new columns, see ``columns.follow_configurations``.
        """
        jobs = self.jobs
        for profile, columns in moved.items():
            jobs.move_columns(profile, columns)
        for plan in list(self.book.planned.values()):
            columns = moved.get(int(jobs["profile"][jobs.row_of(plan.number)]), _UNMOVED)
            if plan.configuration != NONE and len(columns):
                plan.configuration = int(columns[plan.configuration])
                if plan.configuration == NONE:
                    self.drop_plan(plan.number)
        bonus = (jobs["lease"] != NONE) & (jobs["configuration"] == NONE) & (jobs["pair"] == NONE)
        for row in np.flatnonzero(bonus).tolist():
            workers = self.book.workers_of(int(jobs["lease"][row]))
            jobs["configuration"][row] = self.single_on(row, workers)

    def drop_plan(self, number: int) -> None:
        """Drop a job's planned lease, if any; a partner in it goes on alone."""
        plan = self.book.planned.get(number)
        self.book.forget((number,))
        if plan is not None and plan.pair != NONE:
            self._part(plan.pair, number)

    def leave_pair(self, row: int) -> None:
        """Let the partner of a job that stops run on alone, as a bonus."""
        record = self.jobs.record(row)
        entry, number = int(record["pair"]), int(record["number"])
        if entry == NONE:
            return
        plan = self.book.planned.get(number)
        if plan is None or plan.pair != entry:
            self._part(entry, number)

    def _part(self, entry: int, leaver: int) -> None:
        """Let the other job of a pair, running or planned, go on alone and uncharged."""
        jobs = self.jobs
        for other in np.flatnonzero((jobs["pair"] == entry) & (jobs["number"] != leaver)).tolist():
            workers = self.book.workers_of(int(jobs["lease"][other]))
            jobs["pair"][other] = NONE
            jobs["configuration"][other] = self.single_on(other, workers)
            jobs["charged"][other] = 0
            jobs["workers_held"][other] = len(workers)
        for plan in self.book.planned.values():
            if plan.pair == entry and plan.number != leaver:
                plan.pair = NONE
                plan.configuration = self.single_on(jobs.row_of(plan.number), plan.workers)
                plan.charged = False

    def single_on(self, row: int, workers: tuple[int, ...]) -> int:
        """Return the job's single configuration on exactly these workers, or NONE."""
        types = self.fleet.type_of[list(workers)]
        demand = np.bincount(types, minlength=len(self.table.worker_types))
        profile = int(self.jobs["profile"][row])
        same = (self.table.demand[profile] == demand).all(axis=1)
        # Jobs of a pair are launched without a plan, and go on without one.
        same &= ~self.launch_constraints.planned[profile]
        if not self._are_near(workers):
            same &= ~self.launch_constraints.consolidated[profile]
        fits = np.flatnonzero(same & (self.table.throughput[profile] > 0))
        return int(fits[0]) if len(fits) else NONE
