"""The round mechanism: from X to the configurations that run in a round.

Every configuration of a job (or of a pair) carries a credit: the seconds that X has promised it so
far minus the seconds it received. What would lag most at the end of the round runs first. A
configuration that is ahead of X by any amount is not entitled, so none gets ahead by more than a
round. What the entitled leave over is offered to the jobs that still wait, as a bonus that is not
charged.

Bound: with one worker type and gangs of one no configuration is ever more than one round away
from X times the elapsed time. With several types a job may be wanted on two of them at once, and
the deviation stays below two rounds. With larger gangs it is bounded as far as they can be packed
at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.engine.jobs import NONE
from scheduler.engine.kernels import choose_entitled, choose_leftover

if TYPE_CHECKING:
    from scheduler.domain.arrays import BoolArray, FloatArray, IntArray
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.engine.jobs import JobTable
    from scheduler.engine.pairs import PairTable

#: Smaller fractions of X are noise of the solver.
NEGLIGIBLE = 1e-6
#: A configuration with a larger fraction needs more than 20 rounds to make up for one.
NEARLY_ALWAYS = 0.95
#: Rounds of lag that it is credited with. At 4 a makespan was missed by a round; at 16 gangs wait.
HEAD_START = 8.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """What runs in a round.

    Attributes:
        configuration: (N,) single configuration of each job, NONE if it waits or shares.
        pair: (N,) entry of the pair table, NONE otherwise.
        charged: (N,) whether the time counts against X.
    """

    configuration: IntArray
    pair: IntArray
    charged: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Configurations that are entitled to run. C of them; fields are (C,) but demand is (C, K).

    ``always`` marks those that X gives nearly all the time.
    """

    first: IntArray
    second: IntArray
    configuration: IntArray
    pair: IntArray
    deficit_s: FloatArray
    held: BoolArray
    always: BoolArray
    demand: IntArray


def choose_round(
    jobs: JobTable,
    pairs: PairTable,
    table: ConfigurationTable,
    *,
    eligible: BoolArray,
    free: IntArray,
    length_s: float,
    lead_s: float,
    keep_bonus_s: float,
) -> Choice:
    """Choose what runs for the next ``length_s`` seconds.

    Args:
        jobs: the job table.
        pairs: the pair table.
        table: configurations by profile.
        eligible: (N,) jobs to consider.
        free: (K,) workers to give; not changed.
        length_s: seconds that the choice holds.
        lead_s: seconds until it begins.
        keep_bonus_s: seconds of lag that a configuration held now is credited with.
    """
    n = len(jobs)
    free = free.copy()
    busy = ~eligible
    configuration = np.full(n, NONE, dtype=np.int64)
    pair = np.full(n, NONE, dtype=np.int64)
    charged = np.zeros(n, dtype=bool)
    found = entitled(jobs, pairs, table, eligible=eligible, length_s=length_s, lead_s=lead_s)
    if len(found.first):
        restart_s = jobs.floats("restart_s")[found.first]
        bonus = np.where(found.held, keep_bonus_s + np.minimum(restart_s, length_s), 0.0)
        size = found.demand.sum(axis=1)
        # What X wants nearly all the time could hardly ever catch up, so it has a head start; it
        # does not come first come what may, or gangs would wait for good behind full-time jobs.
        bonus += np.where(found.always, HEAD_START * length_s, 0.0)
        order = np.lexsort((found.first, -size, -(found.deficit_s + bonus)))
        chosen = choose_entitled(
            order,
            found.first,
            found.second,
            found.demand,
            found.deficit_s,
            length_s * (1 - 1e-9),
            free,
            busy,
        )
        first, second = found.first[chosen], found.second[chosen]
        configuration[first] = found.configuration[chosen]
        pair[first] = found.pair[chosen]
        charged[first] = True
        both = second >= 0
        pair[second[both]] = found.pair[chosen][both]
        charged[second[both]] = True
    if free.any() and not busy.all():
        leftover = _leftover(jobs, table, waiting=~busy, free=free, length_s=length_s)
        configuration = np.where(leftover >= 0, leftover, configuration)
    return Choice(configuration=configuration, pair=pair, charged=charged)


def entitled(
    jobs: JobTable,
    pairs: PairTable,
    table: ConfigurationTable,
    *,
    eligible: BoolArray,
    length_s: float,
    lead_s: float,
) -> Candidates:
    """List the configurations that would lag behind X at the end of the round if left out."""
    charged = jobs["charged"] != 0
    held = jobs.ints("configuration")
    x = jobs.x
    credit_s = jobs.credit_s
    if lead_s > 0:
        credit_s = credit_s + x * lead_s
        running = np.flatnonzero(charged & (held >= 0))
        credit_s[running, held[running]] -= lead_s
    deficit = credit_s + x * length_s
    # What is held may get ahead by a whole round before it pauses: fewer restarts, same bound.
    least = np.full(x.shape, NEGLIGIBLE * length_s)
    running = np.flatnonzero(held >= 0)
    least[running, held[running]] = -NEGLIGIBLE * length_s
    first, configuration = np.nonzero((x > NEGLIGIBLE) & (deficit > least) & eligible[:, None])
    demand = table.demand[jobs.ints("profile")[first], configuration]
    none = np.full(len(first), NONE, dtype=np.int64)
    singles = Candidates(
        first=first,
        second=none,
        configuration=configuration,
        pair=none,
        deficit_s=deficit[first, configuration],
        held=held[first] == configuration,
        always=x[first, configuration] > NEARLY_ALWAYS,
        demand=demand,
    )
    if not len(pairs):
        return singles
    rows = jobs.rows_of(pairs.numbers.ravel()).reshape(-1, 2)
    shared_deficit = pairs.credit_s + pairs.x * (length_s + lead_s)
    running_pair = jobs["pair"][rows[:, 0]] == np.arange(len(pairs))
    shared_deficit = shared_deficit - lead_s * (running_pair & charged[rows[:, 0]])
    least_shared = np.where(running_pair, -NEGLIGIBLE, NEGLIGIBLE) * length_s
    fit = (pairs.x > NEGLIGIBLE) & (shared_deficit > least_shared) & (rows >= 0).all(axis=1)
    q = np.flatnonzero(fit & eligible[rows[:, 0]] & eligible[rows[:, 1]])
    return Candidates(
        first=np.concatenate([first, rows[q, 0]]),
        second=np.concatenate([none, rows[q, 1]]),
        configuration=np.concatenate([configuration, np.full(len(q), NONE, dtype=np.int64)]),
        pair=np.concatenate([none, q]),
        deficit_s=np.concatenate([singles.deficit_s, shared_deficit[q]]),
        held=np.concatenate([singles.held, running_pair[q]]),
        always=np.concatenate([singles.always, pairs.x[q] > NEARLY_ALWAYS]),
        demand=np.concatenate([demand, table.pair_demand[pairs.index[q]]]),
    )


def _leftover(
    jobs: JobTable,
    table: ConfigurationTable,
    *,
    waiting: BoolArray,
    free: IntArray,
    length_s: float,
) -> IntArray:
    """Offer what is left to waiting jobs: by the policy's rank, then by lag, then by arrival."""
    rows = np.flatnonzero(waiting)
    profile = jobs.ints("profile")
    fastest = table.throughput[profile[rows]].max(axis=1)
    left_s = (jobs["total_steps"][rows] - jobs["steps_done"][rows]) / np.maximum(fastest, 1e-300)
    order = rows[np.lexsort((rows, left_s, jobs["rank"][rows]))]
    restart_s = np.minimum(jobs.floats("restart_s"), 0.9 * length_s)
    leftover: IntArray = choose_leftover(
        order,
        table.throughput[profile],
        table.demand[profile],
        jobs.ints("configuration"),
        length_s / (length_s - restart_s),
        free,
    )
    return leftover
