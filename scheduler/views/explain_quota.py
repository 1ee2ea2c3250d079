"""Jobs that a quota keeps waiting, and their gain from a larger quota."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scheduler.views.types import QuotaInTheWay

if TYPE_CHECKING:
    from scheduler.control.state.jobs import JobRecord
    from scheduler.control.state.view import PublishedState
    from scheduler.domain.arrays import IntArray
    from scheduler.domain.quota import Caps


def quotas_in_the_way(view: PublishedState, record: JobRecord) -> tuple[QuotaInTheWay, ...]:
    """Return the quotas that keep a job waiting, for its fastest configuration.

    Configurations for which idle workers would be enough come first.
    """
    engine = view.engine
    caps, number = engine.caps, engine.jobs.number_of.get(record.job_id)
    if caps is None or number is None:
        return ()
    row = engine.jobs.row_of(number)
    profile = int(engine.jobs["profile"][row])
    demand, rate = engine.table.demand[profile], engine.table.throughput[profile]
    idle = engine.count(engine.idle)[: demand.shape[1]]
    at_once = (rate > 0) & (demand <= idle).all(axis=1) & (demand.sum(axis=1) > 0)
    best = int(np.where(at_once, rate + rate.max(initial=0.0), rate).argmax())
    held = caps.held(caps.group[[row]], demand[[best]])[0]
    in_the_way = np.flatnonzero(held > np.maximum(caps.limit - engine.caps_held, 0.0))
    gain = float(rate[best]) if at_once[best] else 0.0
    return tuple(_in_the_way(view, caps, q, held, gain) for q in in_the_way.tolist())


def _in_the_way(
    view: PublishedState, caps: Caps, q: int, held: IntArray, gain: float
) -> QuotaInTheWay:
    engine = view.engine
    about, used, limit = engine.caps_of[q], int(engine.caps_held[q]), int(caps.limit[q])
    missing = used + int(held[q]) - limit
    return QuotaInTheWay(
        project=about.quota.project,
        owner=about.owner,
        worker_type=about.quota.worker_type,
        limit=about.quota.limit,
        allowed=limit,
        shared=about.shared,
        held=used,
        asks=int(held[q]),
        missing=missing,
        gain_steps_per_s=gain,
    )


def quota_words(view: PublishedState, record: JobRecord) -> str:
    """Return which quotas keep a job waiting, and its gain from larger ones, as text."""
    found = quotas_in_the_way(view, record)
    if not found:
        return (
            f"the quota of project '{record.project}' has room for it; it is about to have its turn"
        )
    told = "; ".join(_words(one, record) for one in found)
    most = max(one.missing for one in found)
    if found[0].gain_steps_per_s <= 0.0:
        return f"{told}; with {most} more it would still wait for its turn, as no workers are idle"
    rate = found[0].gain_steps_per_s
    return f"{told}; with {most} more it could run at once, at {rate:.3g} steps/s"


def _words(one: QuotaInTheWay, record: JobRecord) -> str:
    what = one.worker_type or "workers"
    if one.shared:
        return f"the {what} that projects lend each other are in use: {one.held} of {one.allowed}"
    own = f"user '{one.owner}' of project '{record.project}'"
    who = own if one.owner else f"project '{record.project}'"
    lent = f" ({one.limit} of its own)" if one.allowed > one.limit else ""
    used = f"{who} uses {one.held} of its {one.allowed} {what}{lent}"
    return f"{used}, and the job asks for {one.asks}"
