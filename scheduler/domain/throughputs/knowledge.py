"""The port behind which it is known in what ways jobs can run, and how fast they are there."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from scheduler.domain.cluster import Cluster
    from scheduler.domain.configuration import ConfigurationTable
    from scheduler.domain.jobs.spec import JobSpec
    from scheduler.domain.throughputs.profiling import Profiling
    from scheduler.domain.throughputs.throughput import ProfileKey, SharingCost
    from scheduler.domain.throughputs.ways import CatalogueKey, Estimate, Way

    #: Makes it of part -> what ``dump`` returned.
    MakeKnowledge: TypeAlias = Callable[[Mapping[str, Any]], "Knowledge"]


class Part(enum.StrEnum):
    """What of it is stored under a name of its own."""

    PROFILES = "catalogue"
    THROUGHPUTS = "throughputs"
    LAUNCHES = "launches"
    SHARING = "sharing"
    BATCHES = "batches"
    MIXED_GANGS = "mixed_gangs"
    PLANS = "plans"


class Knowledge(Protocol):
    """Profiles of jobs, their throughputs, and their start costs.

    Deterministic: no clock, no randomness; the order of calls decides. A profile always keeps its
    index; a configuration within it keeps its own unless further sources know more ways.
    """

    # -- profiles ---------------------------------------------------------------------------------

    @property
    def profiles(self) -> int:
        """How many there are."""
        ...

    @property
    def profile_changes(self) -> int:
        """How often a profile was added, or got its model again or lost it."""
        ...

    def profile_of(self, spec: JobSpec, job_id: str = "") -> int:
        """Return the profile of a job; one that is new is appended.

        Args:
            spec: of the job.
            job_id: its id. A job with a variable batch has a profile of its own, as long as
                ``keep_learners`` counts it among the active ones.
        """
        ...

    def key(self, profile: int) -> CatalogueKey:
        """Return what the jobs of a profile have in common."""
        ...

    def ways(self, key: CatalogueKey, cluster: Cluster, *, rough: bool = False) -> tuple[Way, ...]:
        """Return the ways in which a job could run alone, in the order of its configurations.

        Ways in which it is known not to run are left out.

        Args:
            key: what the jobs of its profile have in common.
            cluster: the worker types, and the nodes.
            rough: figures that are inferred may be of any size. To infer takes long after
                something was learned; leave it out where only the ways count.
        """
        ...

    def plan_ahead(
        self, keys: Iterable[CatalogueKey], per_node: Mapping[str, int], *, after: int = 0
    ) -> None:
        """Find the plans of jobs that give their model, so that other calls need not.

        It takes milliseconds for each worker type and count, more for many layers, and may run in a
        thread beside other calls.

        Args:
            keys: what the jobs of each profile have in common.
            per_node: worker type -> the most workers of it on one node.
            after: a worker count: find the plans that follow if the one on so many workers is given
                up; 0 for the present ones.
        """
        ...

    def plan_of(self, job_type: str, scale_factor: int, worker_type: str) -> str:
        """Return the plan of jobs that give their model; empty if there is none, or no model."""
        ...

    def misfit(self, key: CatalogueKey, cluster: Cluster) -> str:
        """Return why the model of a job fits on no workers, by worker type and count.

        Args:
            key: what the jobs of its profile have in common.
            cluster: the worker types, and the nodes.

        Returns:
            Text for people; empty if the job gives no model.
        """
        ...

    # -- tables -----------------------------------------------------------------------------------

    def table(
        self,
        cluster: Cluster,
        *,
        space_sharing: bool = False,
        exclusive: Collection[str] = (),
    ) -> ConfigurationTable:
        """Lay out all profiles with the best estimates.

        Args:
            cluster: the K worker types, and the nodes.
            space_sharing: add the pairs of profiles that may share workers and gain by it.
            exclusive: worker types on which two jobs cannot share a worker: no pairs there.
        """
        ...

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
        """Return the table for the policies if it differs from the old table.

        Args:
            old: the table in force.
            cluster: as in ``table``.
            agnostic: show every worker type as fast as the first one.
            space_sharing: as in ``table``.
            exclusive: as in ``table``.
            profiling: the bonus for mere inferences.
            tolerance: relative change of a throughput up to which nothing is new.
        """
        ...

    # -- learning ---------------------------------------------------------------------------------

    def estimate(self, job_type: str, scale_factor: int, worker_type: str) -> Estimate:
        """Return the best figure there is; there always is one."""
        ...

    def known(self) -> Iterator[tuple[str, int, str, Estimate]]:
        """Yield job type, scale factor, worker type and estimate of all figures, sorted."""
        ...

    def declare(
        self,
        job_type: str,
        scale_factor: int,
        worker_type: str,
        steps_per_s: float,
        *,
        keep: bool = False,
    ) -> bool:
        """Note a declared figure; returns whether it is news.

        Args:
            job_type: key.
            scale_factor: workers.
            worker_type: hardware class.
            steps_per_s: of the whole job; 0 if it does not run there.
            keep: whether ``forget_oldest`` must not forget the job type.

        Raises:
            InputError: the figure or the scale factor is out of range.
        """
        ...

    def declared(self, job_type: str, scale_factor: int, worker_type: str) -> float | None:
        """Return the declared figure; None if there is no such figure."""
        ...

    def forget(self, job_type: str) -> int:
        """Drop all figures of a job type, declared and measured; returns how many there were."""
        ...

    def forget_oldest(self, active: Iterable[str]) -> bool:
        """Forget job types if there are too many: the oldest unused ones.

        Args:
            active: job types that stay; read only if there are too many.

        Returns:
            Whether plans that ran out of memory were forgotten.
        """
        ...

    def sharing(self) -> Iterator[SharingCost]:
        """Yield first, second, worker type and the part of its speed alone that each keeps."""
        ...

    def declare_sharing(
        self,
        first: ProfileKey,
        second: ProfileKey,
        worker_type: str,
        parts: tuple[float, float],
    ) -> bool:
        """Note what sharing workers costs two jobs; returns whether it is news.

        Args:
            first: job type and scale factor of one job.
            second: of the other.
            worker_type: hardware class.
            parts: speed of each while they share, over its speed alone; >= 0.
        """
        ...

    def observe(
        self, job_type: str, scale_factor: int, worker_type: str, steps: float, seconds: float
    ) -> None:
        """Note a stretch of running alone, the time to launch left out.

        Raises:
            InputError: steps, seconds or the scale factor are out of range.
        """
        ...

    def observe_mixed_gang(
        self, job_type: str, workers: Mapping[str, int], steps: float, seconds: float
    ) -> bool:
        """Note a stretch of running alone on workers of several types.

        It says nothing of a single type.

        Args:
            job_type: key.
            workers: worker type -> workers held of it.
            steps: done.
            seconds: that they took, the time to launch left out.

        Returns:
            Whether anything was learned.
        """
        ...

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
        """Note the time of a step of a job with a variable batch; returns whether it is news.

        Args:
            job_type: key.
            worker_type: hardware class.
            nodes: that the job spanned.
            workers: that it held.
            per_worker: samples per worker and pass.
            pass_s: seconds of a pass without an exchange.
            last_pass_s: seconds of the pass that ends with the exchange of gradients.

        Raises:
            InputError: a figure is not above zero, or not finite.
        """
        ...

    def note_out_of_memory(
        self, job_type: str, scale_factor: int, worker_type: str, plan: str
    ) -> bool:
        """Note that a job ran out of memory under a plan, which is given up if another one fits.

        Measured figures of the job type on workers of the type are forgotten if their plan changes.

        Args:
            job_type: key; nothing happens if its jobs give no model.
            scale_factor: workers.
            worker_type: hardware class.
            plan: that it ran; nothing happens if jobs of the type have another one by now.

        Returns:
            Whether jobs of the type have other plans from now on.
        """
        ...

    def observe_noise(self, job_id: str, noise: float) -> bool:
        """Note how noisy the gradients of a job with a variable batch are.

        Args:
            job_id: of the job.
            noise: gradient noise scale, samples, >= 0.

        Returns:
            Whether it is news.
        """
        ...

    def keep_learners(self, active: Iterable[str]) -> None:
        """Forget which jobs' batches may change, and their noise, but for active ones.

        Args:
            active: ids of jobs; read only if there are such jobs.
        """
        ...

    def note_launch(
        self,
        job_type: str,
        scale_factor: int,
        worker_type: str,
        seconds: float,
        *,
        first_step: bool,
    ) -> None:
        """Note how long a launch took.

        Args:
            job_type: key.
            scale_factor: workers.
            worker_type: hardware class; empty if the workers are of several.
            seconds: that it took.
            first_step: whether it is timed until the job's first step, else until it was ready.

        Raises:
            InputError: the time is negative or not finite.
        """
        ...

    def launch_s(self, job_type: str) -> float:
        """Return how long a launch of a job type takes; 0 if too few were timed."""
        ...

    def launches_s(self, job_type: str) -> Mapping[str, float]:
        """Return how long launches take on workers where enough were timed.

        Returns:
            Worker type and count (``v100:8``) -> seconds.
        """
        ...

    # -- state ------------------------------------------------------------------------------------

    def dump(self, part: Part) -> dict[str, Any]:
        """Return a part as plain JSON values."""
        ...
