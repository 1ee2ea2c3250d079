"""The use of entities and projects, and their resulting weights and budgets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scheduler.control.projects.budgets import budget_word, spending_by_project
from scheduler.domain.fair_share import factors
from scheduler.engine.tables.jobs import HELD
from scheduler.views.types import BudgetView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.control.state.view import PublishedState


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShare:
    """Half-life fair share of one entity.

    Attributes:
        usage_worker_s: worker-seconds that have not faded.
        effective_weight: its weight, adjusted for its use; the weight itself while none of its jobs
            could run.
        of_share: its part of the use of all competing entities, over its part of their weights;
            None while it does not compete, or if no entity has used anything.
    """

    usage_worker_s: float
    effective_weight: float
    of_share: float | None


def fair_shares(view: PublishedState) -> Mapping[str, FairShare]:
    """Return the fair share of every entity; empty if the policy has no half-life."""
    engine = view.engine
    usage_s = engine.usage_s
    if usage_s is None or not len(usage_s):
        return {}
    given = _weights_of_policy(view)
    weight = np.array([given.get(e.name, e.weight) for e in engine.entities])
    jobs = engine.jobs
    asked = (jobs["status"] != HELD) & (jobs["retry_at_s"] <= engine.now_s)
    competes = np.zeros(len(weight), dtype=bool)
    competes[jobs["entity"][asked]] = True
    effective = weight * factors(weight, usage_s, competes)
    used, shared = float(usage_s[competes].sum()), float(weight[competes].sum())
    return {
        entity.name: FairShare(
            usage_worker_s=float(usage_s[e]),
            effective_weight=float(effective[e]),
            of_share=float(usage_s[e] / used / (weight[e] / shared))
            if used > 0 and competes[e]
            else None,
        )
        for e, entity in enumerate(engine.entities)
    }


def budgets_of(view: PublishedState, *, now_s: float) -> Mapping[str, BudgetView]:
    """Return the use of each project that has a budget."""
    return {
        name: BudgetView(
            used_gpu_hours=spent.gpu_hours,
            used_usd=spent.usd,
            part=spent.part,
            state=_budget_state(view, name, spent.part),
            month_end_s=view.budgets.month_end_s,
        )
        for name, spent in spending_by_project(view, now_s=now_s).items()
    }


def _budget_state(view: PublishedState, project: str, part: float) -> str:
    """Return the state of a budget: the worse of what was decided last and of what is used now."""
    said = {budget_word(part, view.jobs.limits.get(project)), view.budgets.told.get(project, "")}
    if "spent" in said or project in view.jobs.stopped:
        return "spent"
    return "warned" if "warned" in said else "ok"


def budget_words(view: PublishedState, project: str) -> str:
    """Return the text that a project's budget is spent, and when the next month begins."""
    spent = spending_by_project(view, now_s=view.engine.now_s).get(project)
    limits = view.jobs.limits.get(project)
    if spent is None or limits is None:
        return f"the budget of project '{project}' was lifted; it goes on at once"
    told = []
    if limits.budget_gpu_hours is not None:
        told.append(_of(spent.gpu_hours, limits.budget_gpu_hours) + " GPU-hours")
    if limits.budget_usd is not None:
        told.append(_of(spent.usd, limits.budget_usd) + " USD")
    until = np.datetime64(int(view.budgets.month_end_s), "s").astype("datetime64[D]")
    return (
        f"project '{project}' has used {' and '.join(told)} of its budget of this month, or will "
        f"have by the end of the round; the next month begins on {until} (UTC)"
    )


def _of(used: float, budget: float) -> str:
    """Return the used part of a budget as text, to a hundredth of it or finer."""
    digits = 2 if budget <= 0.0 else max(2, 2 - math.floor(math.log10(budget)))
    return f"{used:.{digits}f} of {budget:g}"


def _weights_of_policy(view: PublishedState) -> dict[str, float]:
    """Return the weights that the policy's own parameter gives, as in ``team-a:2,team-b:1``."""
    text = view.policy.choice.parameters.get("entity_weights", "")
    pairs = (part.rpartition(":") for part in text.split(",") if ":" in part)
    return {name.strip(): float(weight) for name, _, weight in pairs}
