"""The round mechanism alone, under allocations that can be realised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from policies.testing import make_table
from scheduler.domain.jobs.job import Job
from scheduler.engine.rounds.choose_round import RoundInputs, choose_round
from scheduler.engine.rounds.equivalence import EquivalentConfigurations
from scheduler.engine.rounds.round_milp import SearchSchedule
from scheduler.engine.rounds.urgency import Band
from scheduler.engine.tables.jobs import NONE, RUNNING, JobTable
from scheduler.engine.tables.pairs import PairTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from scheduler.domain.arrays import FloatArray, IntArray

    #: (credits in rounds (N, K), configurations held (N,), -1 for none) -> configurations that run,
    #: and those that are due (N,)
    Mechanism: TypeAlias = Callable[[FloatArray, IntArray], tuple[IntArray, IntArray]]


#: A configuration further behind goes first, and none gets ahead.
EXACT = Band(round_s=1.0, behind=1.0, ahead=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """How closely a mechanism followed X, in rounds.

    Attributes:
        largest: the largest |turns taken - X t| of any configuration after any round.
        lag: the largest X t - turns taken.
        ahead: the largest turns taken - X t.
        mean: the mean of |turns taken - X t| over configurations with X > 0 and rounds.
        restarts: jobs that began or changed configuration, per round.
    """

    largest: float
    lag: float
    ahead: float
    mean: float
    restarts: float


def random_shares(rng: np.random.Generator, gangs: IntArray, capacity: Sequence[int]) -> FloatArray:
    """Draw an X that a perfect schedule could realise: a mixture of full rounds.

    Args:
        rng: source of the draws.
        gangs: (N,) workers that each job holds.
        capacity: (K,) workers of each type.

    Returns:
        (N, K) fractions of time on each worker type.
    """
    count = int(rng.integers(2, 13))
    weights = rng.dirichlet(np.full(count, rng.choice([0.3, 1.0, 10.0])))
    x = np.zeros((len(gangs), len(capacity)))
    for weight in weights:
        free = np.array(capacity)
        for i in rng.permutation(len(gangs)):
            fits = np.flatnonzero(free >= gangs[i])
            if len(fits):
                k = rng.choice(fits)
                free[k] -= gangs[i]
                x[i, k] += weight
    return x


def follow(mechanism: Mechanism, x: FloatArray, *, rounds: int) -> Deviation:
    """Let a mechanism choose round after round and measure how it follows ``x`` (N, K)."""
    credit = np.zeros_like(x)
    held = np.full(len(x), NONE, dtype=np.int64)
    wanted = x > 0
    largest = lag = ahead = total = 0.0
    restarts = 0
    for _ in range(rounds):
        chosen, turn = mechanism(credit, held)
        rows = np.flatnonzero(turn != NONE)
        credit += x
        credit[rows, turn[rows]] -= 1.0
        restarts += int(((chosen != held) & (chosen != NONE)).sum())
        held = chosen
        largest = max(largest, float(np.abs(credit).max()))
        lag = max(lag, float(credit.max()))
        ahead = max(ahead, -float(credit.min()))
        total += float(np.abs(credit[wanted]).mean())
    return Deviation(
        largest=largest,
        lag=lag,
        ahead=ahead,
        mean=total / rounds,
        restarts=restarts / rounds,
    )


def credit_mechanism(
    x: FloatArray,
    gangs: IntArray,
    capacity: Sequence[int],
    *,
    keep_bonus: float,
    doubt: float = np.inf,
    band: Band = EXACT,
    rounds_left: FloatArray | None = None,
    searches: list[bool | None] | None = None,
) -> Mechanism:
    """Return the engine's mechanism, for rounds of one second.

    Args:
        x: (N, K) fractions of time on each worker type.
        gangs: (N,) workers that each job holds.
        capacity: (K,) workers of each type.
        keep_bonus: as in ``EngineSettings``.
        doubt: of throughputs that are all alike: infinite where X is to be followed type by type, 0
            where time on any type is worth the same.
        band: how far it may depart from X.
        rounds_left: (N,) rounds of work that each job has left, without end; None for one each.
        searches: gets for each round whether one that serves owed time was sought and found.
    """
    n, k = x.shape
    table = make_table([[1.0] * k] * n, scale_factor=gangs.tolist(), doubt=doubt)
    alike = EquivalentConfigurations.of(table, np.zeros(k))
    jobs = JobTable(width=k)
    for i in range(n):
        left = 1.0 if rounds_left is None else float(rounds_left[i])
        job = Job(job_id=str(i), job_type="any", total_steps=left, scale_factor=int(gangs[i]))
        jobs.add(job, number=i, profile=i, entity=0)
    jobs.x[:] = x
    eligible = np.ones(n, dtype=bool)
    search = SearchSchedule()
    free = np.array(capacity, dtype=np.int64)

    def choose(credit: FloatArray, held: IntArray) -> tuple[IntArray, IntArray]:
        jobs.credit_s[:] = credit
        jobs["configuration"][:] = held
        jobs["charged"][:] = held != NONE
        jobs["status"][:] = np.where(held != NONE, RUNNING, 0)
        choice = choose_round(
            RoundInputs(
                jobs=jobs,
                pairs=PairTable(),
                table=table,
                equivalent=alike,
                eligible=eligible,
                free=free,
                length_s=1.0,
                keep_bonus_s=keep_bonus,
                band=band,
                search=search,
            )
        )
        search.note(choice.searched)
        if searches is not None:
            searches.append(choice.searched)
        # Time on workers that X left over is a gift and counts for nothing.
        runs = np.where(choice.charged, choice.configuration, NONE)
        return runs, np.where(choice.turn_of != NONE, choice.turn_of, runs)

    return choose
