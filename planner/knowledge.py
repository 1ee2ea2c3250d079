"""What is known of jobs: profiles, throughputs and launches, behind one port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.catalogue import Catalogue, ways
from planner.estimator import Estimator
from planner.launches import Launches
from scheduler.domain.knowledge import Part

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.profiling import Profiling
    from scheduler.domain.spec import JobSpec
    from scheduler.domain.throughput import ThroughputTable
    from scheduler.domain.ways import CatalogueKey, Estimate, Way


class LearnedKnowledge:
    """The contract of ``scheduler.domain.knowledge.Knowledge``.

    Args:
        throughputs: figures that the operator declares; they replace what was stored.
        stored: part -> what ``dump`` returned.

    Raises:
        InputError: stored data are damaged, or of a newer release.
    """

    def __init__(
        self, throughputs: ThroughputTable | None = None, stored: Mapping[str, Any] | None = None
    ) -> None:
        parts = stored or {}
        self._catalogue = Catalogue(throughputs)
        self._estimator, self._launches = Estimator(), Launches()
        if Part.PROFILES in parts:
            self._catalogue = Catalogue.restore(parts[Part.PROFILES], throughputs)
        if Part.THROUGHPUTS in parts:
            self._estimator = Estimator.restore(parts[Part.THROUGHPUTS])
        if Part.LAUNCHES in parts:
            self._launches = Launches.restore(parts[Part.LAUNCHES])
        if throughputs is not None:
            self._estimator.declare_table(throughputs)

    # -- profiles ---------------------------------------------------------------------------------

    @property
    def profiles(self) -> int:
        """How many there are."""
        return len(self._catalogue)

    def profile_of(self, spec: JobSpec) -> int:
        """Return the profile of a job; one that is new is appended."""
        return self._catalogue.profile_of(spec)

    def key(self, profile: int) -> CatalogueKey:
        """Return what the jobs of a profile have in common."""
        return self._catalogue.key(profile)

    def ways(self, key: CatalogueKey, worker_types: tuple[str, ...]) -> tuple[Way, ...]:
        """Return the ways in which a job could run alone."""
        return ways(key, worker_types, self._estimator)

    # -- tables -----------------------------------------------------------------------------------

    def table(
        self,
        worker_types: tuple[str, ...],
        *,
        space_sharing: bool = False,
        exclusive: Collection[str] = (),
    ) -> ConfigurationTable:
        """Lay out all profiles with the best estimates."""
        return self._catalogue.table(
            worker_types, self._estimator, space_sharing=space_sharing, exclusive=exclusive
        )

    def renewed(
        self,
        old: ConfigurationTable,
        worker_types: tuple[str, ...],
        *,
        agnostic: bool,
        space_sharing: bool,
        exclusive: Collection[str],
        profiling: Profiling,
        tolerance: float,
    ) -> ConfigurationTable | None:
        """Return what policies are to be told if it says something else than the old table."""
        return self._catalogue.renewed(
            old,
            worker_types,
            self._estimator,
            agnostic=agnostic,
            space_sharing=space_sharing,
            exclusive=exclusive,
            profiling=profiling,
            tolerance=tolerance,
        )

    # -- learning ---------------------------------------------------------------------------------

    def estimate(self, job_type: str, scale_factor: int, worker_type: str) -> Estimate:
        """Return the best figure there is."""
        return self._estimator.estimate(job_type, scale_factor, worker_type)

    def known(self) -> Iterator[tuple[str, int, str, Estimate]]:
        """Yield all figures, sorted."""
        return self._estimator.known()

    def declare(
        self, job_type: str, scale_factor: int, worker_type: str, steps_per_s: float
    ) -> bool:
        """Note a figure that somebody gives."""
        return self._estimator.declare(job_type, scale_factor, worker_type, steps_per_s)

    def observe(
        self, job_type: str, scale_factor: int, worker_type: str, steps: float, seconds: float
    ) -> None:
        """Note a stretch of running alone."""
        self._estimator.observe(job_type, scale_factor, worker_type, steps, seconds)

    def note_launch(self, job_type: str, seconds: float) -> None:
        """Note how long a launch took."""
        self._launches.take(job_type, seconds)

    def launch_s(self, job_type: str) -> float:
        """Return how long a launch of a job type takes."""
        return self._launches.typical_s(job_type)

    # -- state ------------------------------------------------------------------------------------

    def dump(self, part: Part) -> dict[str, Any]:
        """Return a part as plain JSON values."""
        dump = {
            Part.PROFILES: self._catalogue.dump,
            Part.THROUGHPUTS: self._estimator.dump,
            Part.LAUNCHES: self._launches.dump,
        }
        return dump[part]()
