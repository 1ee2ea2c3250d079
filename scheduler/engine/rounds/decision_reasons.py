"""Reasons of decisions, kept so that causes can be computed on request.

A round that grants hundreds of leases costs one object for this. The kept data do not change, so a
cause is the same on every request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

import numpy as np

from scheduler.domain.facts.causes import Cause, FactKind, Ground, Occasion
from scheduler.engine.tables.jobs import NONE
from scheduler.engine.tables.leases import WhyGranted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scheduler.domain.arrays import BoolArray, IntArray
    from scheduler.domain.lease import Leases
    from scheduler.engine.rounds.choose_round import Choice
    from scheduler.engine.tables.leases import PlannedLease

#: Facts that let any jobs change places, not only the job that they are about.
_FOR_ALL: Final = frozenset(
    {
        *(FactKind.POLICY_CHANGED, FactKind.SHARE_CHANGED, FactKind.NODE_JOINED),
        FactKind.QUOTA_CHANGED,
        FactKind.RESERVATION_CHANGED,
        *(FactKind.WORKERS_LOST, FactKind.WORKERS_DRAINED, FactKind.WORKERS_CORDONED),
        *(FactKind.WORKERS_RETURNED, FactKind.WORKERS_RETIRED),
    }
)
#: Facts that change where a job runs best.
_FOR_MOVES: Final = frozenset(
    {FactKind.THROUGHPUTS_CHANGED, FactKind.RESTARTS_MEASURED, FactKind.LENGTHS_REVISED}
)
#: Facts about a job that change whether and where it runs.
_OF_JOBS: Final = frozenset(
    {
        *(FactKind.JOB_ARRIVED, FactKind.JOB_RELEASED, FactKind.JOB_DEFERRED),
        *(FactKind.WEIGHT_CHANGED, FactKind.DEADLINE_CHANGED, FactKind.JOB_REQUEUED),
        *(FactKind.LEASE_FAILED, FactKind.LEASE_LOST),
    }
)
#: Whether a job is urgent, whether because X gives it nearly all the time, and the seconds by which
#: it would be behind at the end of the round.
_Lag: TypeAlias = tuple[bool, bool, float]
_NO_LAG: Final[_Lag] = (False, False, -np.inf)
_URGENCY: Final = {(True, False): Ground.OVERDUE, (True, True): Ground.FULL_TIME}
_MOVES: Final = frozenset({Ground.FASTER, Ground.ELSEWHERE, Ground.MOVED})


class FixedReason(WhyGranted):
    """A stored cause.

    Args:
        cause: the cause of the one lease that uses this object.
    """

    def __init__(self, cause: Cause) -> None:
        self._cause = cause

    def of_grant(self, plan: PlannedLease) -> Cause:  # noqa: ARG002 - there is only one
        """Return the cause."""
        return self._cause


class RoundReasons(WhyGranted):
    """The reasons by which a round, or the rest of one, was chosen.

    Args:
        choice: the choice; it does not change any more.
        triggers: facts since the last choice, oldest first.
        round_number: of the round.
        takers: lease -> planned leases that wait for its workers; filled later.
        is_round: whether a whole round was planned, in which all jobs compete; if not, only idle
            workers were served.
        unfunded: (N,) jobs without budget.
    """

    def __init__(
        self,
        choice: Choice,
        triggers: Sequence[Occasion],
        *,
        round_number: int,
        takers: Mapping[int, Iterable[PlannedLease]],
        is_round: bool,
        unfunded: BoolArray,
    ) -> None:
        self._unfunded = unfunded if unfunded.any() else None
        self._round_number, self._occasions, self._choice = round_number, triggers, choice
        self._table, self._takers, self._is_round = choice.inputs.table, takers, is_round

    def of_grant(self, plan: PlannedLease) -> Cause:
        """Return why a lease is granted."""
        ground, figures = self._why_granted(plan)
        occasion = self._occasion((plan.job_id,), plan.workers, ground)
        return self._cause(occasion, ground, **figures)

    def of_notice(self, notices: Notices, place: int) -> Cause:
        """Return why other jobs get the workers of a lease, or why its job moves."""
        lease_id, batch = notices.lease_ids[place], notices.batches[place]
        at, row = lease_id - batch.first_id, int(notices.rows[place])
        own = batch.job_ids[at]
        if self._unfunded is not None and self._unfunded[row]:
            return Cause(fact=FactKind.BUDGET_SPENT, round_number=self._round_number)
        planned = self._takers.get(lease_id, ())
        there = next((plan for plan in planned if plan.row == row), None)
        if there is not None:
            return self.of_grant(there)
        rival = next(iter(planned), None)
        ground, lag_s = self._why_outbid(row, rival, charged=bool(notices.charged[place]))
        names = (own,) if rival is None else (rival.job_id, own)
        occasion = self._occasion(names, batch.workers[at], ground)
        return self._cause(
            occasion, ground, rival="" if rival is None else rival.job_id, lag_s=lag_s
        )

    # -- reasons --------------------------------------------------------------------------------

    def _why_granted(self, plan: PlannedLease) -> tuple[Ground, dict[str, Any]]:
        if plan.moves:
            return self._move(plan.row)
        if not self._choice.charged[plan.row]:
            return Ground.LEFT_OVER, {}
        lag = self._lag(plan.row) or _NO_LAG
        return _URGENCY.get(lag[:2], Ground.TURN), {"lag_s": lag[2]}

    def _move(self, row: int) -> tuple[Ground, dict[str, Any]]:
        """Return why a job moves, and its gain."""
        here, there = int(self._choice.held[row]), int(self._choice.configuration[row])
        if NONE in {here, there}:
            return Ground.ELSEWHERE, {}
        if here == there:
            return Ground.MOVED, {}
        profile = int(self._choice.profile[row])
        before, after = self._table.throughput[profile, [here, there]].tolist()
        gain = after / before if before > 0 else None
        figures = {"gain": gain, "worker_type": self._where(profile, here, there)}
        return Ground.FASTER if gain is not None and gain > 1.0 else Ground.ELSEWHERE, figures

    def _where(self, profile: int, here: int, there: int) -> str:
        demand = self._table.demand[profile]
        same = demand[here].sum() == demand[there].sum()
        named = zip(self._table.worker_types, demand[there].tolist(), strict=True)
        return " + ".join(name if same else f"{n} x {name}" for name, n in named if n)

    def _why_outbid(
        self, row: int, rival: PlannedLease | None, *, charged: bool
    ) -> tuple[Ground, float | None]:
        """Return why a job has to wait, and by how much its rival is further behind."""
        own, other = self._lag(row), None if rival is None else self._lag(rival.row)
        if rival is None and self._choice.full is not None and self._choice.full[row]:
            return Ground.QUOTA, None
        if own is None and not charged:
            return Ground.LENT, None
        if own is None:
            return (Ground.AHEAD if self._is_wanted(row) else Ground.NO_SHARE), None
        if rival is None or other is None:
            return Ground.NO_FIT, None
        return self._why_after(row, own, rival.row, other)

    def _why_after(
        self, row: int, own: _Lag, rival: int, other: _Lag
    ) -> tuple[Ground, float | None]:
        """Return why a job that is due comes after another job that is due."""
        choice, further_s = self._choice, other[2] - own[2]
        shorter = choice.inputs.may_use_remaining_work
        if other[0] and not own[0]:
            return _URGENCY[other[:2]], further_s
        if choice.inputs.band.follow_exactly or own[0]:
            return (Ground.BEHIND, further_s) if further_s > 0 else (Ground.NO_FIT, None)
        if choice.left_s[rival] >= choice.left_s[row]:
            return Ground.NO_FIT, None
        return (Ground.SHORTER if shorter else Ground.SERVED_LESS), None

    def _lag(self, row: int) -> _Lag | None:
        """Return the lag of a job behind X without this round; None if it is not due."""
        place = int(self._furthest[row])
        if place == NONE:
            return None
        found, urgent = self._choice.found, self._choice.urgent
        return bool(urgent[place]), bool(found.always[place]), float(found.deficit_s[place])

    @cached_property
    def _furthest(self) -> IntArray:
        """(N,) index of the candidate in which each job lags most; NONE without a candidate."""
        found, urgent = self._choice.found, self._choice.urgent
        place = np.lexsort((found.deficit_s, found.always, urgent))
        place = np.repeat(place, 2)
        rows = np.where(np.arange(len(place)) % 2, found.second[place], found.first[place])
        furthest = np.full(len(self._choice.charged), NONE)
        named = rows != NONE
        furthest[rows[named]] = place[named]  # of several the last one counts
        return furthest

    def _is_wanted(self, row: int) -> bool:
        """Return whether X gives a job any time, alone or in a pair."""
        choice = self._choice
        alone = bool(choice.wanted[row].any())
        if alone or choice.shared is None:
            return alone
        return bool((choice.shared.first == row).any() or (choice.shared.second == row).any())

    # -- facts ----------------------------------------------------------------------------------

    def _occasion(
        self, names: tuple[str, ...], workers: tuple[int, ...], ground: Ground
    ) -> Occasion | None:
        """Return the fact that matters most: of these jobs, of these workers, of all; or None."""
        for name in names:
            if name in self._of_jobs:
                return self._of_jobs[name]
        freed = max((self._freed.get(worker, NONE) for worker in workers), default=NONE)
        if freed != NONE:
            return self._occasions[freed]
        found = self._general[ground in _MOVES]
        if found is None and not self._is_round and self._occasions:
            return self._occasions[-1]
        return found

    @cached_property
    def _of_jobs(self) -> dict[str, Occasion]:
        """Job -> the newest fact about it that changes whether and where it runs."""
        return {o.subject: o for o in self._occasions if o.fact in _OF_JOBS}

    @cached_property
    def _freed(self) -> dict[int, int]:
        """Worker -> place of the newest fact that freed it."""
        return {w: place for place, o in enumerate(self._occasions) for w in o.workers}

    @cached_property
    def _general(self) -> tuple[Occasion | None, Occasion | None]:
        """The newest fact about no job in particular: of those for all, and of those for moves."""
        newest = self._occasions[::-1]
        for_all = next((o for o in newest if o.fact in _FOR_ALL), None)
        return for_all, next((o for o in newest if o.fact in _FOR_ALL | _FOR_MOVES), None)

    def _cause(self, occasion: Occasion | None, ground: Ground, **figures: Any) -> Cause:
        fact = FactKind.ROUND if occasion is None else occasion.fact
        return Cause(
            fact=fact,
            subject="" if occasion is None else occasion.subject,
            round_number=self._round_number,
            ground=ground,
            **figures,
        )


class CausesOfGrants(Sequence[Cause]):
    """Causes of planned leases that are granted.

    Args:
        plans: the planned leases.
    """

    def __init__(self, plans: Sequence[PlannedLease]) -> None:
        self._plans = plans

    def __len__(self) -> int:
        return len(self._plans)

    @overload
    def __getitem__(self, place: int) -> Cause: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Cause]: ...
    def __getitem__(self, place: int | slice) -> Cause | Sequence[Cause]:
        """Return one of the causes, or some."""
        if isinstance(place, slice):
            return CausesOfGrants(self._plans[place])
        return self._plans[place].cause

    def __iter__(self) -> Iterator[Cause]:
        """Yield the causes in order."""
        return (plan.cause for plan in self._plans)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Notices:
    """Leases that end with a round, n of them.

    Attributes:
        lease_ids: n of them.
        batches: the leases with which each was granted.
        rows: (n,) of their jobs when the round was planned.
        charged: (n,) 1 if their time counted against X.
    """

    lease_ids: Sequence[int]
    batches: Sequence[Leases]
    rows: IntArray
    charged: IntArray


class CausesOfNotices(Sequence[Cause]):
    """Causes of notices: why jobs must give back leases when a round begins.

    Args:
        reasons: of the round.
        notices: the leases.
    """

    def __init__(self, reasons: RoundReasons, notices: Notices) -> None:
        self._grounds, self._notices = reasons, notices

    def __len__(self) -> int:
        return len(self._notices.lease_ids)

    @overload
    def __getitem__(self, place: int) -> Cause: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Cause]: ...
    def __getitem__(self, place: int | slice) -> Cause | Sequence[Cause]:
        """Return one of the causes, or some."""
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        return self._grounds.of_notice(self._notices, place)

    def __iter__(self) -> Iterator[Cause]:
        """Yield the causes in order."""
        return (self._grounds.of_notice(self._notices, place) for place in range(len(self)))
