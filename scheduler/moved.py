"""Old names that plugins may import; they warn, and go with the release after 0.3.0."""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

#: Old name -> new name.
MOVED: Final = {
    "planner.batch_ways": "planner.learning.batch_ways",
    "planner.batches": "planner.learning.batches",
    "planner.completion": "planner.estimation.completion",
    "planner.estimator": "planner.estimation.estimator",
    "planner.fitting": "planner.estimation.fitting",
    "planner.goodput": "planner.learning.goodput",
    "planner.launches": "planner.estimation.launches",
    "planner.measured": "planner.estimation.measured",
    "policies.allox": "policies.built_in.allox",
    "policies.alpha_fairness": "policies.built_in.alpha_fairness",
    "policies.fifo": "policies.built_in.fifo",
    "policies.finish_time_fairness": "policies.built_in.finish_time_fairness",
    "policies.gandiva": "policies.built_in.gandiva",
    "policies.gittins": "policies.built_in.gittins",
    "policies.goodput": "policies.built_in.goodput",
    "policies.hierarchical": "policies.built_in.hierarchical",
    "policies.isolated": "policies.built_in.isolated",
    "policies.least_remaining_work": "policies.built_in.least_remaining_work",
    "policies.makespan": "policies.built_in.makespan",
    "policies.max_min_fairness": "policies.built_in.max_min_fairness",
    "policies.max_throughput": "policies.built_in.max_throughput",
    "policies.min_cost": "policies.built_in.min_cost",
    "policies.partitioned": "policies.built_in.partitioned",
    "policies.proportional_fairness": "policies.built_in.proportional_fairness",
    "policies.shortest_job_first": "policies.built_in.shortest_job_first",
    "policies.tiresias": "policies.built_in.tiresias",
    "policies.water_filling": "policies.built_in.water_filling",
    "scheduler.domain.causes": "scheduler.domain.facts.causes",
    "scheduler.domain.commands": "scheduler.domain.facts.commands",
    "scheduler.domain.documents": "scheduler.domain.jobs.documents",
    "scheduler.domain.events": "scheduler.domain.facts.events",
    "scheduler.domain.expressions": "scheduler.domain.jobs.expressions",
    "scheduler.domain.fields": "scheduler.domain.jobs.fields",
    "scheduler.domain.job": "scheduler.domain.jobs.job",
    "scheduler.domain.knowledge": "scheduler.domain.throughputs.knowledge",
    "scheduler.domain.placeholders": "scheduler.domain.jobs.placeholders",
    "scheduler.domain.profiling": "scheduler.domain.throughputs.profiling",
    "scheduler.domain.reasons": "scheduler.domain.facts.reasons",
    "scheduler.domain.scaling": "scheduler.domain.throughputs.scaling",
    "scheduler.domain.spec": "scheduler.domain.jobs.spec",
    "scheduler.domain.throughput": "scheduler.domain.throughputs.throughput",
    "scheduler.domain.trace_ids": "scheduler.domain.jobs.trace_ids",
    "scheduler.domain.troubles": "scheduler.domain.facts.troubles",
    "scheduler.domain.ways": "scheduler.domain.throughputs.ways",
}


class MovedModules(MetaPathFinder, Loader):
    """Finds modules under their old names, and warns."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for an old name; None for any other."""
        del path, target
        if fullname not in MOVED:
            return None
        warnings.warn(
            f"{fullname} is now {MOVED[fullname]}; the old name goes with the release after 0.3.0",
            DeprecationWarning,
            stacklevel=2,
        )
        return ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of the new name in the place of the old one."""
        sys.modules[module.__name__] = importlib.import_module(MOVED[module.__name__])


def find_moved_modules() -> None:
    """Let imports find modules under their old names."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())


def moved_names(module: str, moved: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that finds names which have moved, and warns.

    Args:
        module: its name.
        moved: old name -> module and name of today.
    """

    def find(name: str) -> Any:
        place = moved.get(name)
        if place is None:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        warnings.warn(
            f"{module}.{name} is now {place}; the old name goes with the release after 0.3.0",
            DeprecationWarning,
            stacklevel=2,
        )
        home, _, today = place.rpartition(".")
        return getattr(importlib.import_module(home), today)

    return find
