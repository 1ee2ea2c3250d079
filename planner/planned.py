"""Plans of jobs that give their model, as a source of configurations."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from planner.plans.calibration import uncalibrated
from planner.plans.document import read_model
from planner.plans.hardware import Hardware, read_hardware
from planner.plans.ranking import BestPlan, best_layered_plan, best_plan
from planner.plans.stages import LayeredPlans
from planner.plans.training import Training
from planner.tables import unit_demand
from scheduler.domain.configuration import ANYWHERE, CONSOLIDATED, Configuration
from scheduler.domain.sources import ConfigurationSource
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.estimation.estimator import Estimator
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.throughputs.ways import CatalogueKey

#: Standard deviation of the logarithm of a predicted throughput: without any measurement, and with
#: some on the worker type.
_PREDICTED: Final = 0.3
_CORRECTED: Final = 0.15
#: Plans that are remembered, and planners.
_PLANS: Final = 4096
_PLANNERS: Final = 64


class Planned(ConfigurationSource):
    """The fastest plan that fits, for each worker type and count of a job that gives its model.

    Predicted throughputs are corrected by the geometric mean of measured over predicted steps/s of
    the job type on the worker type. A count that was measured has its own figure.

    Args:
        estimator: measured throughputs of jobs.
        hardware: accelerators; the bundled catalogue by default.
    """

    def __init__(self, estimator: Estimator, hardware: Hardware | None = None) -> None:
        self._estimator = estimator
        self._hardware = hardware or read_hardware()
        self._plan = lru_cache(maxsize=_PLANS)(self._plan_once)
        self._planner = lru_cache(maxsize=_PLANNERS)(self._planner_once)

    def ways(self, key: CatalogueKey, cluster: Cluster) -> tuple[Configuration, ...]:
        """Return the plans of a job; none if it gives no model."""
        if not key.model:
            return ()
        size = len(cluster.type_names)
        found = []
        for k, worker_type in enumerate(cluster.type_names):
            if not (key.allows(worker_type) and self._hardware.has(worker_type)):
                continue
            per_node = _per_node(cluster, worker_type)
            plans = [
                self._plan(key.model, worker_type, per_node, count) for count in key.scale_factors
            ]
            ratio = self._ratio(key, plans)
            for plan in plans:
                measured = self._measured(key, plan)
                if measured is not None:
                    throughput, doubt = measured
                else:
                    throughput = (ratio or 1.0) / plan.step_s
                    doubt = _CORRECTED if ratio else _PREDICTED
                found.append(
                    Configuration(
                        demand=unit_demand(k, size, plan.workers),
                        throughput=throughput,
                        doubt=doubt if plan.fits else 0.0,
                        locality=CONSOLIDATED if plan.workers <= per_node else ANYWHERE,
                        plan=plan_text(plan),
                    )
                )
        return tuple(found)

    def revision(self, key: CatalogueKey, cluster: Cluster) -> object:
        """Return the types, the workers of their nodes, and the revision of each figure."""
        if not key.model:
            return ()
        return [
            (
                worker_type,
                _per_node(cluster, worker_type),
                self._estimator.revision(key.job_type, count, worker_type),
            )
            for worker_type in cluster.type_names
            if key.allows(worker_type)
            for count in key.scale_factors
        ]

    def _measured(self, key: CatalogueKey, plan: BestPlan) -> tuple[float, float] | None:
        """Return steps/s of a plan that ran, and their doubt; None if it did not run."""
        own = self._estimator.own(key.job_type, plan.workers, plan.worker_type)
        if own is None or own.measured is None or not plan.fits:
            return None
        return own.steps_per_s, own.relative_deviation

    def _ratio(self, key: CatalogueKey, plans: list[BestPlan]) -> float | None:
        """Return the mean of measured over predicted steps/s; None without a measurement."""
        found = [(self._measured(key, plan), plan.step_s) for plan in plans]
        logs = [np.log(measured[0] * step_s) for measured, step_s in found if measured]
        return float(np.exp(np.mean(logs))) if logs else None

    def _plan_once(self, model: str, worker_type: str, per_node: int, count: int) -> BestPlan:
        try:
            return self._planner(model, worker_type, per_node)(count)
        except InputError as error:  # such workers do not compute in the job's precision
            return BestPlan(worker_type=worker_type, workers=count, reason=str(error))

    def _planner_once(
        self, model: str, worker_type: str, per_node: int
    ) -> Callable[[int], BestPlan]:
        training = read_model(json.loads(model), name="model", place="model")
        accelerator = msgspec.structs.replace(self._hardware.find(worker_type), per_node=per_node)
        usual = uncalibrated()
        if isinstance(training, Training):
            return partial(best_plan, training, worker_type, accelerator, calibration=usual)
        return partial(
            best_layered_plan, LayeredPlans(training, worker_type, accelerator, usual.rates)
        )


def plan_text(found: BestPlan) -> str:
    """Return a plan as JSON, for the environment of its job; empty if there is none."""
    if found.plan is None or not found.fits:
        return ""
    stages = {"stages": list(found.stages)} if found.stages else {}
    return json.dumps(asdict(found.plan) | stages, separators=(",", ":"))


def _per_node(cluster: Cluster, worker_type: str) -> int:
    """Return the most workers of a type that a node has."""
    return max((node.workers.count(worker_type) for node in cluster.nodes), default=0) or 1
