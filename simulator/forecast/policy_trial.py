"""What another policy would change: the leases of the next round, under both policies."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.control.facts.facts import PolicySet
from scheduler.errors import LeaseholdError
from scheduler.views.types import HoldingChange, PolicyTrial
from simulator.forecast.forecast import MOST_WORK, ForecastInput, Outlook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.facts.requests import PolicyChoice
    from scheduler.engine.engine import Engine

    #: Job id -> worker type -> workers.
    Holdings = Mapping[str, Mapping[str, int]]


def try_policy_packed(packed: bytes, choice: PolicyChoice, time_dependent: bool) -> PolicyTrial:
    """Do the same as ``try_policy`` with the bytes of ``ForecastInput.pack``."""
    asked: ForecastInput = pickle.loads(packed)  # noqa: S301  this program's own
    return try_policy(asked, choice, time_dependent=time_dependent)


def try_policy(asked: ForecastInput, choice: PolicyChoice, *, time_dependent: bool) -> PolicyTrial:
    """Return which jobs would hold other workers in the next round.

    Both rounds are replayed from the present state, so that they differ by the policy alone. No job
    joins, and nothing fails.

    Args:
        asked: the present state.
        choice: the policy to try; control would accept it.
        time_dependent: whether its answers change as time passes.
    """
    before, failure = _next_round(asked)
    fact = PolicySet(choice=choice, time_dependent=time_dependent, actor="")
    after, note = _next_round(replace(asked, fact=fact).taken_in())
    if failure:
        note = f"the policy in force gives no answer to compare with: {failure}"
    projects = {record.job_id: record.spec.project for record in asked.control.jobs}
    changes = [
        HoldingChange(
            job_id=job_id,
            project=projects.get(job_id, ""),
            before=before.get(job_id, {}),
            after=after.get(job_id, {}),
        )
        for job_id in sorted({*before, *after})
        if before.get(job_id) != after.get(job_id)
    ]
    return PolicyTrial(
        changes=() if note else tuple(changes),
        same=0 if note else sum(after.get(job_id) == held for job_id, held in before.items()),
        note=note,
    )


def _next_round(asked: ForecastInput) -> tuple[Holdings, str]:
    """Return the workers of each job in the next round; and why it is unknown, or an empty text."""
    outlook = Outlook(asked)
    engine, note = outlook.engine, ""
    number = engine.round_number
    try:
        outlook.enter()
        while engine.round_number == number and not outlook.is_over:
            if outlook.work >= MOST_WORK:
                note = "the replay of its next round takes too long"
                break
            outlook.step()
    except LeaseholdError as error:
        note = str(error)
    return holdings_of(engine), note


def holdings_of(engine: Engine) -> Holdings:
    """Return the workers of leases that go on, and of those that wait for workers to be free."""
    book, cluster = engine.book, engine.cluster
    held = {
        book.leases[lease_id].job_id: book.leases[lease_id].workers
        for lease_id in book.leases.keys() - book.stopping
    }
    held |= {engine.jobs.job_of[number].job_id: one.workers for number, one in book.planned.items()}
    return {
        job_id: dict(Counter(cluster.worker_types[engine.fleet.type_of[w]].name for w in workers))
        for job_id, workers in held.items()
    }
