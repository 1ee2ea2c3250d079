"""The time that the allocation X gives jobs and projects, the received part, and fairness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.domain.arrays import true_entries
from scheduler.engine.tables.jobs import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.control.state.view import PublishedState
    from scheduler.domain.arrays import FloatArray, IntArray

#: Smaller received fractions are rounding.
_LEAST = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Dues:
    """The workers that a project's jobs are due together, without workers that two jobs share.

    Attributes:
        due_workers: workers on average over time that the allocation gives them.
        received_workers: workers on average that they have had since the allocation came in force;
            None if no time has passed since.
        owed_worker_s: worker-seconds that they were due since then, less those received; None if no
            time has passed since. A job that came later counts from its submission.
        mean_rho: mean of their ``rho``; None if it is unknown for all jobs.
        worst_rho: the largest ``rho`` of them; None if it is unknown for all jobs.
    """

    due_workers: float
    received_workers: float | None
    owed_worker_s: float | None
    mean_rho: float | None
    worst_rho: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDues:
    """The time that a job is due and received.

    Attributes:
        job_id: the job.
        due: worker type -> fraction of time by the allocation.
        received: worker type -> fraction of time since the allocation came in force.
    """

    job_id: str
    due: Mapping[str, float]
    received: Mapping[str, float]

    @property
    def behind(self) -> float:
        """The fraction of time that it has missed; negative if it received more."""
        return sum(self.due.values()) - sum(self.received.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class DuesPage:
    """Some jobs by how far they are behind, and the allocation that says so.

    Attributes:
        policy: the policy that gave the allocation.
        computed_s: when it was taken over; None before the first.
        solve_s: seconds that the solver took; None before the first.
        count: how many jobs have dues.
        jobs: those of the page, the one furthest behind first.
    """

    policy: str
    computed_s: float | None
    solve_s: float | None
    count: int
    jobs: tuple[JobDues, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fairness:
    """The progress of jobs under X, relative to a 1/n share of every worker type; NaN if unknown.

    Attributes:
        share: (N,) effective throughput over that in a 1/n share.
        rho: (N,) the expected JCT if X stays as it is, over the JCT in a 1/n share
            (Themis, section 3; Gavel, section 4.2). n counts the present jobs.
    """

    share: FloatArray
    rho: FloatArray


def fairness_of(view: PublishedState) -> Fairness:
    """Return the fairness of the engine's jobs."""
    jobs = view.engine.jobs
    rates, isolated = _rates(view), _isolated(view)
    known = (jobs["number"] <= view.policy.newest_number) & (isolated > 0)
    share, rho = np.full((2, len(jobs)), math.nan)
    share[known] = rates[known] / isolated[known]
    known &= rates > 0
    total = jobs["total_steps"]
    left_s = (total - jobs["steps_done"])[known] / rates[known]
    age_s = np.maximum(view.engine.now_s - jobs["arrival_s"][known], 0.0)
    rho[known] = (age_s + left_s) / (total[known] / isolated[known])
    return Fairness(share=share, rho=rho)


def shares_of_jobs(view: PublishedState, job_ids: Iterable[str]) -> Mapping[str, dict[str, float]]:
    """Return job id -> worker type -> fraction of time under X, alone or shared.

    Jobs without any are left out.
    """
    jobs = view.engine.jobs
    numbers = (jobs.number_of.get(job_id) for job_id in job_ids)
    rows = [jobs.row_of(number) for number in numbers if number is not None]
    return _by_job(view, _shares(view, np.array(rows, dtype=np.int64)))


def allocation_shares(view: PublishedState) -> dict[str, dict[str, float]]:
    """Return ``shares_of_jobs`` for all jobs."""
    return _by_job(view, _shares(view, np.arange(len(view.engine.jobs))))


def received_shares(view: PublishedState) -> dict[str, dict[str, float]]:
    """Return job id -> worker type -> fraction of time received since X came in force."""
    rows, received = _received(view)
    return _by_job(view, _by_type(view, rows, np.where(received > _LEAST, received, 0.0)))


def _shares(view: PublishedState, rows: IntArray) -> dict[int, dict[str, float]]:
    """Return row -> worker type -> fraction of time under X; rows without any are left out."""
    engine = view.engine
    jobs, pairs, table = engine.jobs, engine.pairs, engine.table
    alone = rows[jobs["profile"][rows] < len(table.profiles)]
    width = min(jobs.x.shape[1], table.demand.shape[1])
    found = _by_type(view, alone, jobs.x[alone, :width])
    numbers = jobs["number"][rows]
    row_of = dict(zip(numbers.tolist(), rows.tolist(), strict=True))
    wanted = (pairs.index != NONE) & (pairs.x > 0) & np.isin(pairs.numbers, numbers).any(axis=1)
    for q in np.flatnonzero(wanted).tolist():
        name = _name(table.worker_types, table.pair_demand[pairs.index[q]])
        for number in pairs.numbers[q].tolist():
            if number in row_of:
                _add(found.setdefault(row_of[number], {}), name, float(pairs.x[q]))
    return found


def _by_type(
    view: PublishedState, rows: IntArray, fractions: FloatArray
) -> dict[int, dict[str, float]]:
    """Return row -> worker type -> fraction of time; rows without any are left out.

    Args:
        view: of the leader.
        rows: (R,) rows of jobs with profiles in the table.
        fractions: (R, J) by configuration.
    """
    table = view.engine.table
    at, column = true_entries(fractions > 0)
    profile = view.engine.jobs["profile"][rows[at]]
    kinds, kind = np.unique(profile * table.demand.shape[1] + column, return_inverse=True)
    names = [
        _name(table.worker_types, table.demand[divmod(one, table.demand.shape[1])])
        for one in kinds.tolist()
    ]
    found: dict[int, dict[str, float]] = {}
    given = zip(rows[at].tolist(), kind.tolist(), fractions[at, column].tolist(), strict=True)
    for row, number, fraction in given:
        _add(found.setdefault(row, {}), names[number], fraction)
    return found


def _by_job(
    view: PublishedState, shares: Mapping[int, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    jobs = view.engine.jobs
    numbers = jobs["number"].tolist()
    return {jobs.job_of[numbers[row]].job_id: _rounded(found) for row, found in shares.items()}


def jobs_behind(
    view: PublishedState, *, projects: frozenset[str], first: int, count: int
) -> DuesPage:
    """Return a page of the jobs that have dues, those furthest behind first.

    Time on workers that two jobs share is left out: what is received of it is not recorded.

    Args:
        view: of the leader.
        projects: only jobs of these; empty for all.
        first: position of the page's first job, from 0.
        count: jobs of the page.
    """
    jobs = view.engine.jobs
    due, had = np.zeros((2, len(jobs)))
    known, _, x = _known_rows(view)
    due[known] = x.sum(axis=1)
    received_rows, received = _received(view)
    had[received_rows] = received.sum(axis=1)
    has_dues = (due > 0) | (had > _LEAST)
    if projects:
        by_id, job_of = view.jobs.by_id, jobs.job_of
        records = (by_id.get(job_of[number].job_id) for number in jobs["number"].tolist())
        has_dues &= np.array([one is not None and one.project in projects for one in records])
    found = np.flatnonzero(has_dues)
    rows = found[np.argsort(had[found] - due[found], kind="stable")][first : first + count]
    is_shown = np.isin(received_rows, rows)
    shown = received[is_shown]
    alone = rows[np.isin(rows, known)]
    shares = _by_type(view, alone, jobs.x[alone, : x.shape[1]])
    given = _by_type(view, received_rows[is_shown], np.where(shown > _LEAST, shown, 0.0))
    return DuesPage(
        policy=view.policy.choice.name,
        computed_s=view.policy.computed_s,
        solve_s=view.policy.last_solve_s,
        count=len(found),
        jobs=tuple(
            JobDues(
                job_id=jobs.job_of[int(jobs["number"][row])].job_id,
                due=_rounded(shares.get(row, {})),
                received=_rounded(given.get(row, {})),
            )
            for row in rows.tolist()
        ),
    )


def dues_of_projects(view: PublishedState, fairness: Fairness) -> Mapping[str, Dues]:
    """Return the dues of each project with jobs that the engine knows; empty before the first X."""
    engine, computed_s = view.engine, view.policy.computed_s
    if computed_s is None:
        return {}
    jobs, rho = engine.jobs, fairness.rho
    elapsed_s = max(engine.now_s - computed_s, 0.0)
    due, had = _workers(view)
    counted_s = np.clip(engine.now_s - jobs["arrival_s"], 0.0, elapsed_s)
    owed_worker_s = due * counted_s - had * elapsed_s
    rows_of: dict[str, list[int]] = {}
    for row, number in enumerate(jobs["number"].tolist()):
        record = view.jobs.by_id.get(jobs.job_of[number].job_id)
        if record is not None:
            rows_of.setdefault(record.project, []).append(row)
    result: dict[str, Dues] = {}
    for project, rows in rows_of.items():
        known = rho[rows][~np.isnan(rho[rows])]
        result[project] = Dues(
            due_workers=float(due[rows].sum()),
            received_workers=float(had[rows].sum()) if elapsed_s > 0 else None,
            owed_worker_s=float(owed_worker_s[rows].sum()) if elapsed_s > 0 else None,
            mean_rho=float(known.mean()) if len(known) else None,
            worst_rho=float(known.max()) if len(known) else None,
        )
    return result


def _workers(view: PublishedState) -> tuple[FloatArray, FloatArray]:
    """Return (N,) workers that X gives jobs on average, and workers that they have had."""
    jobs, table = view.engine.jobs, view.engine.table
    known, profile, x = _known_rows(view)
    held = table.demand.sum(axis=2)  # (U, J) workers of a configuration
    due, had = np.zeros((2, len(jobs)))
    due[known] = (x * held[profile, : x.shape[1]]).sum(axis=1)
    rows, received = _received(view)
    if len(rows):
        had[rows] = (received * held[jobs["profile"][rows], : received.shape[1]]).sum(axis=1)
    return due, had


def _rates(view: PublishedState) -> FloatArray:
    """Return (N,) steps/s of jobs under X, alone and in pairs."""
    jobs, pairs, table = view.engine.jobs, view.engine.pairs, view.engine.table
    known, profile, x = _known_rows(view)
    rates = np.zeros(len(jobs))
    rates[known] = (x * table.throughput[profile, : x.shape[1]]).sum(axis=1)
    for member in range(2):
        rows = jobs.rows_of(pairs.numbers[:, member])
        wanted = np.flatnonzero((rows != NONE) & (pairs.index != NONE) & (pairs.x > 0))
        rows, index = rows[wanted], pairs.index[wanted]
        is_second = jobs["profile"][rows] != table.pair_profiles[index, 0]
        rate = table.pair_throughput[index, is_second.astype(np.int64)]
        np.add.at(rates, rows, pairs.x[wanted] * rate)
    return rates


def _known_rows(view: PublishedState) -> tuple[IntArray, IntArray, FloatArray]:
    """Return (n,) rows of jobs with profiles in the table, (n,) profiles, and (n, J) their X."""
    jobs, table = view.engine.jobs, view.engine.table
    rows = np.flatnonzero(jobs["profile"] < len(table.profiles))
    width = min(jobs.x.shape[1], table.demand.shape[1])
    return rows, jobs["profile"][rows], jobs.x[rows, :width]


def _isolated(view: PublishedState) -> FloatArray:
    """Return (N,) steps/s of jobs in a 1/n share of every worker type; 0 if unknown."""
    capacity = view.engine.count(view.engine.in_service).astype(float)
    rows, profile, _ = _known_rows(view)
    rate = np.zeros(len(view.engine.table.profiles))
    for one in np.unique(profile).tolist():
        rate[one] = _isolated_rate(view, one, capacity)
    isolated = np.zeros(len(view.engine.jobs))
    isolated[rows] = rate[profile]
    return isolated


def _isolated_rate(view: PublishedState, profile: int, capacity: FloatArray) -> float:
    """Return the steps/s of a job of a profile in a 1/n share of every worker type."""
    table = view.engine.table
    capacity = capacity[: table.demand.shape[2]]
    demand = table.demand[profile].max(axis=1, initial=0)
    held = np.maximum(table.demand[profile] @ capacity, 0.0) / np.maximum(demand, 1)
    fractions = np.where(demand > 0, held / np.maximum(demand, 1), 0.0) / len(view.engine.jobs)
    return float(table.throughput[profile] @ (fractions / max(fractions.sum(), 1.0)))


def _received(view: PublishedState) -> tuple[IntArray, FloatArray]:
    """Return (R,) rows of jobs that X knows, and (R, J) fractions of time received since.

    A fraction is that of X, less the growth of the credit since X came in force.
    """
    engine, policy = view.engine, view.policy
    elapsed_s = 0.0 if policy.computed_s is None else engine.now_s - policy.computed_s
    if policy.baseline is None or elapsed_s <= 0:
        return np.empty(0, dtype=np.int64), np.empty((0, 0))
    numbers, credit_s = policy.baseline
    jobs = engine.jobs
    rows = jobs.rows_of(numbers)
    rows, credit_s = rows[rows != NONE], credit_s[rows != NONE]
    known = jobs["profile"][rows] < len(engine.table.profiles)
    rows, credit_s = rows[known], credit_s[known]
    width = min(credit_s.shape[1], jobs.x.shape[1], engine.table.demand.shape[1])
    grown = (jobs.credit_s[rows, :width] - credit_s[:, :width]) / elapsed_s
    return rows, np.clip(jobs.x[rows, :width] - grown, 0.0, 1.0)


def _rounded(shares: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in shares.items()}


def _name(types: tuple[str, ...], demand: IntArray) -> str:
    """Return the name of the worker types that a configuration holds."""
    return "+".join(types[k] for k in np.flatnonzero(demand).tolist())


def _add(shares: dict[str, float], name: str, fraction: float) -> None:
    shares[name] = shares.get(name, 0.0) + fraction
