"""Plans of jobs that give their model, and how fast they are."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

from planner.plans.calibration import uncalibrated
from planner.plans.document import read_model
from planner.plans.hardware import read_hardware
from planner.plans.ranking import best_layered_plan, best_plan, usable_memory
from planner.plans.stages import LayeredPlans
from planner.plans.training import Training
from scheduler.domain.configuration import ANYWHERE, CONSOLIDATED
from scheduler.domain.throughputs.ways import Estimate, Source
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from planner.estimation.estimator import Estimator
    from planner.plans.hardware import Hardware
    from planner.plans.ranking import BestPlan
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.throughputs.ways import CatalogueKey

_VERSION: Final = 1
#: Relative standard deviation of a predicted throughput if some were measured on the worker type.
_CORRECTED: Final = 0.15
#: Bytes of plans that are remembered, about, and those of a plan beside its text; most plans of a
#: job's model; and planners.
_REMEMBERED: Final = 64_000_000
_EACH: Final = 600
_OF_A_JOB: Final = 4096
_PLANNERS: Final = 16
#: Part of the memory of a plan that ran out of memory which the next plan may fill, and the least
#: part of a worker's memory that plans may always fill: beyond it the prediction is not to blame.
_NEXT: Final = 0.9
_LEAST_ROOM: Final = 0.5
_NO_WAY: Final = Estimate(steps_per_s=0.0, relative_deviation=0.0, source=Source.ESTIMATED)


@dataclass(frozen=True, slots=True)
class Found:
    """The fastest plan of a model on some workers.

    Attributes:
        steps_per_s: as predicted; 0 if no plan fits.
        plan: as JSON, for the environment of its job; empty if no plan fits.
        reason: why none fits; empty if one does.
        filled: part of the usable memory that it fills.
        doubt: relative standard deviation of ``steps_per_s``.
    """

    steps_per_s: float
    plan: str
    reason: str
    filled: float = 0.0
    doubt: float = 0.0


class Planned:
    """The fastest plan that fits, for each worker type and count of a job that gives its model.

    Predicted throughputs are corrected by the geometric mean of measured over predicted steps/s of
    the job type on the worker type. A figure that was measured or declared counts as it is. If a
    plan runs out of memory, plans of the job type on that worker type may fill less from then on.

    Args:
        estimator: known throughputs of jobs.
        hardware: accelerators; the bundled catalogue by default.
    """

    def __init__(self, estimator: Estimator, hardware: Hardware | None = None) -> None:
        self._estimator = estimator
        self._hardware = hardware or read_hardware()
        self._per_node: Mapping[str, int] = {}
        #: model of a job -> its plans.
        self._found: dict[str, dict[Place, Found]] = {}
        #: (job type, worker type) -> part of the usable memory that plans may fill, below 1.
        self._room: dict[tuple[str, str], float] = {}

    def serve(self, cluster: Cluster) -> None:
        """Note how many workers of each type a node has at most."""
        self._per_node = cluster.most_on_a_node

    def plan(self, job_type: str, model: str, worker_type: str, count: int) -> Found:
        """Return the fastest plan of a job's model that fits on ``count`` workers of a type."""
        room = self._room.get((job_type, worker_type), 1.0)
        return self._find(model, worker_type, count, room)

    def give_up(self, job_type: str, model: str, worker_type: str, count: int, plan: str) -> bool:
        """Give up a plan that ran out of memory, if another one fits; return whether that is so.

        Figures that were measured on workers of the type are forgotten if their plan changes.
        """
        found = self.plan(job_type, model, worker_type, count)
        before, after = self._room.get((job_type, worker_type), 1.0), _room_after(found)
        if found.plan != plan or after >= found.filled:
            return False  # another plan ran, or this one fills too little to be blamed
        if not self._find(model, worker_type, count, after).plan:
            return False
        self._room[job_type, worker_type] = after
        for other in self._estimator.counts(job_type):
            plans = (self._find(model, worker_type, other, room).plan for room in (before, after))
            if len(set(plans)) > 1:
                self._estimator.forget_measured(job_type, other, worker_type)
        return True

    def keep(self, model: str) -> None:
        """Keep the plans of a job's model until it is dropped."""
        if model:
            self._found.setdefault(model, {})

    def drop(self, models: Iterable[str]) -> None:
        """Drop the plans of models that no job has any more."""
        for model in models:
            self._found.pop(model, None)

    def forget(self, job_types: Collection[str]) -> int:
        """Forget which plans of job types ran out of memory, and figures measured afterwards.

        Returns:
            How many worker types of the job types had such plans.
        """
        gone = [key for key in self._room if key[0] in job_types]
        for job_type, worker_type in gone:
            del self._room[job_type, worker_type]
            for count in self._estimator.counts(job_type):
                self._estimator.forget_measured(job_type, count, worker_type)
        return len(gone)

    def dump(self) -> dict[str, Any]:
        """Return the memory that plans lacked, as plain JSON values."""
        return {"version": _VERSION, "room": [[*key, room] for key, room in self._room.items()]}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take in what ``dump`` stored.

        Raises:
            InputError: the data are damaged, or of a newer release.
        """
        if data.get("version") != _VERSION:
            raise InputError(
                f"stored plans have version {data.get('version')!r}; this release reads "
                f"{_VERSION}; run the release that wrote them"
            )
        try:
            self._room = {(str(job), str(kind)): float(room) for job, kind, room in data["room"]}
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"stored plans are damaged: {error!r}") from error

    def plan_ahead(
        self, keys: Iterable[CatalogueKey], per_node: Mapping[str, int], *, after: int = 0
    ) -> None:
        """Find plans, so that other calls know them; it may run in a thread beside these."""
        for key in keys:
            for name in filter(self._hardware.has, filter(key.allows, per_node)):
                place = Place(name, per_node[name] or None, after)
                room = self._room.get((key.job_type, name), 1.0)
                if after:
                    found = _PLANS.find(key.model, self._hardware, place._replace(room=room))
                    room = _room_after(found)
                for count in key.scale_factors:
                    there = place._replace(workers=count, room=room)
                    _PLANS.find(key.model, self._hardware, there)

    def locality(self, worker_type: str, count: int) -> str:
        """Return where the workers of a plan must be: as near as the prediction assumed."""
        on_one_node = count <= self._per_node.get(worker_type, 0)
        return CONSOLIDATED if on_one_node and count > 1 else ANYWHERE

    def estimate(self, job_type: str, model: str, count: int, worker_type: str) -> Estimate:
        """Return the estimate of a job on ``count`` workers of a type."""
        found = self.plan(job_type, model, worker_type, count)
        if not found.plan:
            return _NO_WAY
        own = self._estimator.own(job_type, count, worker_type)
        if own is not None:
            return own
        ratio = self._ratio(job_type, model, worker_type)
        return Estimate(
            steps_per_s=found.steps_per_s * (ratio or 1.0),
            relative_deviation=min(_CORRECTED, found.doubt) if ratio else found.doubt,
            source=Source.ESTIMATED,
        )

    def revision(self, job_type: str, worker_type: str) -> object:
        """Return a value that differs whenever an estimate on workers of a type may."""
        counts = self._estimator.counts(job_type)
        return (
            self._per_node.get(worker_type),
            self._room.get((job_type, worker_type)),
            [self._estimator.revision(job_type, count, worker_type) for count in counts],
        )

    def misfit(self, key: CatalogueKey) -> str:
        """Return why the model of a job fits nowhere in the cluster, by worker type."""
        most = max(key.scale_factors)
        told: dict[str, list[str]] = {}
        for name in filter(key.allows, self._per_node):
            reason = self.plan(key.job_type, key.model, name, most).reason
            told.setdefault(reason, []).append(f"{most} x {name}")
        return "; ".join(f"{', '.join(some)}: {reason}" for reason, some in told.items() if reason)

    def _find(self, model: str, worker_type: str, count: int, room: float) -> Found:
        place = Place(worker_type, self._per_node.get(worker_type) or None, count, room)
        known = self._found.get(model)
        if known is None:
            return _PLANS.find(model, self._hardware, place)
        if place not in known:
            if len(known) >= _OF_A_JOB:
                known.clear()
            known[place] = _PLANS.find(model, self._hardware, place)
        return known[place]

    def _ratio(self, job_type: str, model: str, worker_type: str) -> float | None:
        """Return the mean of measured over predicted steps/s; None without a measurement."""
        logs = []
        for count in self._estimator.counts(job_type):
            own = self._estimator.own(job_type, count, worker_type)
            if own is not None and own.measured is not None:
                predicted = self.plan(job_type, model, worker_type, count).steps_per_s
                if predicted > 0.0:
                    logs.append(np.log(own.measured / predicted))
        return float(np.exp(np.mean(logs))) if logs else None


class Place(NamedTuple):
    """Workers on which a plan is looked for.

    Attributes:
        worker_type: hardware class.
        per_node: workers of a node; None for the usual number.
        workers: how many.
        room: part of the usable memory that the plan may fill.
    """

    worker_type: str
    per_node: int | None
    workers: int
    room: float = 1.0


class _Plans:
    """Plans that were found, by model; threads and several ``Planned`` may share it.

    Models that were not asked for lately are forgotten, since dry runs bring many.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        #: model -> its plans; the last model asked for is the last one here.
        self._found: dict[str, dict[tuple[Hardware, Place], Found]] = {}
        #: bytes of these models and plans, about.
        self._size = 0

    def find(self, model: str, hardware: Hardware, place: Place) -> Found:
        """Return what ``find_plan`` returns."""
        with self._lock:
            known = self._of(model)
        found = known.get((hardware, place))
        if found is None:
            found = find_plan(model, hardware, place)
            with self._lock:  # the model may have been forgotten meanwhile, or the plan been found
                known = self._of(model)
                self._size += 0 if (hardware, place) in known else _size_of(found)
                known[hardware, place] = found
                while self._size > _REMEMBERED and self._found:
                    oldest = next(iter(self._found))
                    gone = self._found.pop(oldest)
                    self._size -= len(oldest) + sum(map(_size_of, gone.values()))
        return found

    def _of(self, model: str) -> dict[tuple[Hardware, Place], Found]:
        """Return the plans of a model, which becomes the last one."""
        known = self._found.pop(model, None)
        if known is None:
            known = {}
            self._size += len(model)
        self._found[model] = known
        return known


_PLANS: Final = _Plans()


def _size_of(found: Found) -> int:
    """Return how many bytes a plan takes that is remembered, about."""
    return _EACH + len(found.plan) + len(found.reason)


def _room_after(found: Found) -> float:
    """Return the part of the memory that plans may fill once this one ran out of it."""
    return max(_NEXT * found.filled, _LEAST_ROOM)


def find_plan(model: str, hardware: Hardware, place: Place) -> Found:
    """Return the fastest plan of a model that fits on some workers.

    Args:
        model: see ``JobSpec.model``.
        hardware: accelerators.
        place: the workers.
    """
    if not model.startswith("{"):
        return Found(0.0, "", "no job with this model is active")
    worker_type, per_node, count, room = place
    try:
        best = _planner(model, worker_type, per_node, hardware, room)(count)
    except InputError as error:  # it is not known, or does not compute in the job's precision
        return Found(0.0, "", str(error))
    if not best.fits:
        return Found(0.0, "", best.reason)
    filled = sum(best.memory.values()) / usable_memory(hardware.find(worker_type))
    return Found(1.0 / best.step_s, plan_text(best), "", filled, best.doubt)


@lru_cache(maxsize=_PLANNERS)
def _planner(
    model: str, worker_type: str, per_node: int | None, hardware: Hardware, room: float
) -> Callable[[int], BestPlan]:
    usual = hardware.find(worker_type)
    accelerator = msgspec.structs.replace(
        usual, per_node=per_node or usual.per_node, memory_gb=room * usual.memory_gb
    )
    training = read_model(json.loads(model), name="model", place="model")
    rates = uncalibrated()
    if isinstance(training, Training):
        return partial(best_plan, training, worker_type, accelerator, calibration=rates)
    layered = LayeredPlans(training, worker_type, accelerator, rates.rates)
    return partial(best_layered_plan, layered)


def plan_text(found: BestPlan) -> str:
    """Return a plan as JSON, for the environment of its job; empty if there is none."""
    if found.plan is None or not found.fits:
        return ""
    stages = {"stages": list(found.stages)} if found.stages else {}
    return json.dumps(asdict(found.plan) | stages, separators=(",", ":"))
