"""Knowledge about jobs: profiles, throughputs and launches, behind one port."""

from __future__ import annotations

from itertools import tee
from typing import TYPE_CHECKING, Any

from planner.agnostic import Agnostic
from planner.catalogue import Catalogue
from planner.composed import Composed
from planner.estimates import Estimates
from planner.estimation.estimator import Estimator
from planner.estimation.launches import Launches
from planner.learning.batch_ways import BatchWays
from planner.learning.batches import BatchKnowledge
from planner.learning.goodput import StepTime
from planner.mixed_gangs import MixedGangs, MixedRates
from planner.packing import Pairs
from planner.planned import Planned
from planner.sharing import SharingCosts
from planner.tables import TableBuilder
from scheduler.domain.configuration import ANYWHERE
from scheduler.domain.throughputs.knowledge import Part
from scheduler.domain.throughputs.profiling import NO_PROFILING
from scheduler.domain.throughputs.ways import Estimate, Source, Way

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from planner.plans.hardware import Hardware
    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import Configuration, ConfigurationTable
    from scheduler.domain.jobs.spec import JobSpec
    from scheduler.domain.sources import ConfigurationSource
    from scheduler.domain.throughputs.profiling import Profiling
    from scheduler.domain.throughputs.throughput import ProfileKey, SharingCost
    from scheduler.domain.throughputs.ways import CatalogueKey


class LearnedKnowledge:
    """The contract of ``scheduler.domain.throughputs.knowledge.Knowledge``.

    Args:
        stored: part -> value of ``dump``.
        sources: name -> a source of further configurations.
        hardware: accelerators for which models are planned; the bundled catalogue by default.

    Raises:
        InputError: stored data are damaged, or of a newer release.
    """

    def __init__(
        self,
        stored: Mapping[str, Any] | None = None,
        *,
        sources: Sequence[tuple[str, ConfigurationSource]] = (),
        hardware: Hardware | None = None,
    ) -> None:
        parts = stored or {}
        self._catalogue = Catalogue()
        self._estimator, self._launches = Estimator(), Launches()
        if Part.PROFILES in parts:
            self._catalogue = Catalogue.restore(parts[Part.PROFILES])
        if Part.THROUGHPUTS in parts:
            self._estimator = Estimator.restore(parts[Part.THROUGHPUTS])
        if Part.LAUNCHES in parts:
            self._launches = Launches.restore(parts[Part.LAUNCHES])
        self._costs = SharingCosts()
        if Part.SHARING in parts:
            self._costs = SharingCosts.restore(parts[Part.SHARING])
        self._batches = BatchKnowledge()
        if Part.BATCHES in parts:
            self._batches = BatchKnowledge.restore(parts[Part.BATCHES])
        self._mixed = MixedRates()
        if Part.MIXED_GANGS in parts:
            self._mixed = MixedRates.restore(parts[Part.MIXED_GANGS])
        self._sources = tuple(sources)
        #: (agnostic, profiling) -> builder of the tables that show it so.
        self._builders: dict[tuple[bool, Profiling], TableBuilder] = {}
        self._planned = Planned(self._estimator, hardware)
        if Part.PLANS in parts:
            self._planned.restore(parts[Part.PLANS])
        self._estimates = BatchWays(self._figures(), self._batches)
        self._rough = BatchWays(self._figures(rough=True), self._batches)
        self._alone = MixedGangs(self._source(self._estimates), measured=self._mixed)
        self._roughly_alone = MixedGangs(self._rough, measured=self._mixed)
        #: key -> revision of the sources, and the ways known at that revision.
        self._ways: dict[CatalogueKey, tuple[object, tuple[Way, ...]]] = {}

    # -- profiles ---------------------------------------------------------------------------------

    @property
    def profiles(self) -> int:
        """The number of profiles."""
        return len(self._catalogue)

    @property
    def profile_changes(self) -> int:
        """How often a profile was added, or got its model again or lost it."""
        return self._catalogue.changes

    def profile_of(self, spec: JobSpec, job_id: str = "") -> int:
        """Return the profile of a job, appending the profile if it is new."""
        self._planned.keep(spec.model)
        return self._catalogue.profile_of(spec, job_id)

    def key(self, profile: int) -> CatalogueKey:
        """Return the key of a profile: the properties that its jobs share."""
        return self._catalogue.key(profile)

    def ways(self, key: CatalogueKey, cluster: Cluster, *, rough: bool = False) -> tuple[Way, ...]:
        """Return the ways in which a job could run alone."""
        self._estimator.serve(cluster.type_names)
        # A ``Way`` names worker types, which a source's revision need not contain.
        revision = self._alone.revision(key, cluster), cluster.type_names
        known = self._ways.get(key)
        if known is not None and known[0] == revision:
            return known[1]
        if rough and not self._sources:  # the figures of all sources decide which way counts
            return _ways(self._roughly_alone, key, cluster, self._rough)
        ways = _ways(self._alone, key, cluster, self._estimates)
        if key in self._catalogue:  # dry runs bring others
            self._ways[key] = revision, ways
        return ways

    # -- tables -----------------------------------------------------------------------------------

    def table(
        self,
        cluster: Cluster,
        *,
        space_sharing: bool = False,
        exclusive: Collection[str] = (),
    ) -> ConfigurationTable:
        """Lay out all profiles with the best estimates."""
        self._estimator.serve(cluster.type_names)
        return self._builder(agnostic=False, profiling=NO_PROFILING).table(
            cluster, self._catalogue.keys, space_sharing=space_sharing, exclusive=exclusive
        )

    def renewed(
        self,
        old: ConfigurationTable,
        cluster: Cluster,
        *,
        agnostic: bool,
        space_sharing: bool,
        exclusive: Collection[str],
        profiling: Profiling,
        tolerance: float,
    ) -> ConfigurationTable | None:
        """Return the new table for policies if it differs from the old one, else None."""
        self._estimator.serve(cluster.type_names)
        return self._builder(agnostic=agnostic, profiling=profiling).renewed(
            old,
            cluster,
            self._catalogue.keys,
            space_sharing=space_sharing,
            exclusive=exclusive,
            tolerance=tolerance,
        )

    def _builder(self, *, agnostic: bool, profiling: Profiling) -> TableBuilder:
        if (agnostic, profiling) not in self._builders:
            estimates = BatchWays(self._figures(profiling), self._batches, profiling)
            source = self._source(estimates)
            source = Pairs(source, self._costs)
            source = MixedGangs(source, self._source(self._estimates), self._mixed)
            self._builders[agnostic, profiling] = TableBuilder(
                Agnostic(source) if agnostic else source
            )
        return self._builders[agnostic, profiling]

    def _figures(self, profiling: Profiling = NO_PROFILING, *, rough: bool = False) -> Estimates:
        return Estimates(self._estimator, profiling, rough=rough, planned=self._planned)

    def _source(self, estimates: BatchWays) -> ConfigurationSource:
        return Composed(estimates, self._sources) if self._sources else estimates

    # -- learning ---------------------------------------------------------------------------------

    def estimate(self, job_type: str, scale_factor: int, worker_type: str) -> Estimate:
        """Return the best figure."""
        if model := self._catalogue.model(job_type):
            return self._planned.estimate(job_type, model, scale_factor, worker_type)
        return self._estimator.estimate(job_type, scale_factor, worker_type)

    def plan_ahead(
        self, keys: Iterable[CatalogueKey], per_node: Mapping[str, int], *, after: int = 0
    ) -> None:
        """Find the plans of jobs that give their model."""
        self._planned.plan_ahead(keys, per_node, after=after)

    def plan_of(self, job_type: str, scale_factor: int, worker_type: str) -> str:
        """Return the plan of jobs that give their model."""
        model = self._catalogue.model(job_type)
        return self._planned.plan(job_type, model, worker_type, scale_factor).plan if model else ""

    def misfit(self, key: CatalogueKey, cluster: Cluster) -> str:
        """Return why the model of a job fits nowhere; empty if it gives none."""
        if not key.model:
            return ""
        self._planned.serve(cluster)
        return self._planned.misfit(key)

    def known(self) -> Iterator[tuple[str, int, str, Estimate]]:
        """Yield all figures, sorted."""
        return self._estimator.known()

    def declare(
        self,
        job_type: str,
        scale_factor: int,
        worker_type: str,
        steps_per_s: float,
        *,
        keep: bool = False,
    ) -> bool:
        """Store a declared figure."""
        return self._estimator.declare(job_type, scale_factor, worker_type, steps_per_s, keep=keep)

    def declared(self, job_type: str, scale_factor: int, worker_type: str) -> float | None:
        """Return the declared figure; None without one."""
        return self._estimator.declared(job_type, scale_factor, worker_type)

    def forget(self, job_type: str) -> int:
        """Drop all figures of a job type."""
        parts = self._estimator, self._batches, self._mixed
        return sum(part.forget(job_type) for part in parts) + self._planned.forget([job_type])

    def forget_oldest(self, active: Iterable[str]) -> bool:
        """Drop the oldest job types; return whether plans that ran out of memory are among them."""
        first, second, third, fourth = tee(active, 4)
        self._estimator.forget_oldest(first)
        self._batches.forget_oldest(second)
        self._mixed.forget_oldest(third)
        gone = self._catalogue.forget_models(fourth)
        if not gone:
            return False
        self._ways.clear()  # its keys have the models
        self._builders.clear()
        self._planned.drop(set(gone.values()).difference(self._catalogue.models))
        return self._planned.forget(gone) > 0

    def keep_learners(self, active: Iterable[str]) -> None:
        """Drop the numbers and the noise of jobs with a variable batch, except active ones."""
        self._batches.keep_noise(self._catalogue.keep_learners(active))

    def sharing(self) -> Iterator[SharingCost]:
        """Yield first, second, worker type and the part of its speed alone that each keeps."""
        return self._costs.known()

    def declare_sharing(
        self,
        first: ProfileKey,
        second: ProfileKey,
        worker_type: str,
        parts: tuple[float, float],
    ) -> bool:
        """Store the cost of sharing workers for two jobs."""
        return self._costs.declare(first, second, worker_type, parts)

    def observe(
        self, job_type: str, scale_factor: int, worker_type: str, steps: float, seconds: float
    ) -> None:
        """Add a stretch of running alone."""
        self._estimator.observe(job_type, scale_factor, worker_type, steps, seconds)

    def observe_mixed_gang(
        self, job_type: str, workers: Mapping[str, int], steps: float, seconds: float
    ) -> bool:
        """Add a stretch of running alone on workers of several types."""
        return self._mixed.observe(job_type, workers, steps, seconds)

    def observe_step_time(
        self,
        job_type: str,
        worker_type: str,
        *,
        nodes: int,
        workers: int,
        per_worker: float,
        pass_s: float,
        last_pass_s: float,
    ) -> bool:
        """Add a step time of a job with a variable batch."""
        time = StepTime(
            nodes=nodes,
            workers=workers,
            batch_per_worker=per_worker,
            pass_s=pass_s,
            last_pass_s=last_pass_s,
        )
        return self._batches.observe(job_type, worker_type, time)

    def note_out_of_memory(
        self, job_type: str, scale_factor: int, worker_type: str, plan: str
    ) -> bool:
        """Give up the plan of a job whose model is known."""
        model = self._catalogue.model(job_type)
        return bool(model) and self._planned.give_up(
            job_type, model, worker_type, scale_factor, plan
        )

    def observe_noise(self, job_id: str, noise: float) -> bool:
        """Store the gradient noise of a job with a variable batch."""
        learner = self._catalogue.learner(job_id)
        return bool(learner) and self._batches.observe_noise(learner, noise)

    def note_launch(
        self,
        job_type: str,
        scale_factor: int,
        worker_type: str,
        seconds: float,
        *,
        first_step: bool,
    ) -> None:
        """Add the duration of a launch."""
        key = job_type, scale_factor, worker_type
        self._launches.take(key, seconds, first_step=first_step)

    def launch_s(self, job_type: str) -> float:
        """Return how long a launch of a job type takes."""
        return self._launches.typical_s(job_type)

    def launches_s(self, job_type: str) -> Mapping[str, float]:
        """Return how long launches of a job type take on some workers."""
        return self._launches.on_workers(job_type)

    # -- state ------------------------------------------------------------------------------------

    def dump(self, part: Part) -> dict[str, Any]:
        """Return a part as plain JSON values."""
        dump = {
            Part.PROFILES: self._catalogue.dump,
            Part.THROUGHPUTS: self._estimator.dump,
            Part.LAUNCHES: self._launches.dump,
            Part.SHARING: self._costs.dump,
            Part.BATCHES: self._batches.dump,
            Part.MIXED_GANGS: self._mixed.dump,
            Part.PLANS: self._planned.dump,
        }
        return dump[part]()


def _ways(
    source: MixedGangs, key: CatalogueKey, cluster: Cluster, estimates: BatchWays
) -> tuple[Way, ...]:
    return tuple(
        _way(way, key, cluster, estimates, source)
        for way in source.ways(key, cluster)
        if way.throughput > 0.0
    )


def _way(
    way: Configuration,
    key: CatalogueKey,
    cluster: Cluster,
    estimates: BatchWays,
    source: MixedGangs,
) -> Way:
    """Return a way with the origin of its figure: the estimates, or another source."""
    workers = {name: n for name, n in zip(cluster.type_names, way.demand, strict=True) if n}
    if way.is_mixed:
        measured = source.is_measured(key.job_type, workers, way.throughput)
        origin = Source.MEASURED if measured else Source.ESTIMATED
        found = Estimate(steps_per_s=way.throughput, relative_deviation=way.doubt, source=origin)
        return Way(workers=workers, estimate=found)
    ((worker_type, count),) = workers.items()
    found = estimates.estimate(key, count, worker_type, way.locality)
    plain = key.model or ((way.locality == ANYWHERE or key.batch) and not way.plan)
    if not plain or (found.steps_per_s, found.relative_deviation) != (way.throughput, way.doubt):
        found = Estimate(
            steps_per_s=way.throughput, relative_deviation=way.doubt, source=Source.DECLARED
        )
    return Way(workers=workers, estimate=found, locality=way.locality, plan=way.plan)
