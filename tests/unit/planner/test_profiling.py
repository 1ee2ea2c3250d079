"""Profiling: jobs run on new worker types, their throughputs are learned, it ends."""

import numpy as np
import pytest

from planner.catalogue import Catalogue
from planner.estimates import Estimates
from planner.estimation.estimator import Estimator
from planner.tables import TableBuilder
from policies.registry import make_policy
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.jobs.job import Job
from scheduler.domain.jobs.spec import JobSpec
from scheduler.domain.throughputs.profiling import NO_PROFILING, Profiling
from scheduler.domain.throughputs.ways import Source
from scheduler.engine.engine import Engine
from scheduler.engine.settings import EngineSettings
from scheduler.errors import ParameterError

TYPES = ("k80", "v100", "a100")
TRUTH = {"new": (1.0, 3.0, 8.0), "other": (2.0, 5.0, 6.0)}
ROUND_S = 360.0


def told(catalogue, estimator, profiling):
    cluster = parse_cluster_spec(",".join(f"{name}:1" for name in TYPES))
    return TableBuilder(Estimates(estimator, profiling)).table(cluster, catalogue.keys)


def wishes_of(estimator, profiling, kinds):
    """Configurations that policies should try: shown better than estimated."""
    cells = [(kind, name) for kind in kinds for name in TYPES]
    return [c for c in cells if profiling.factor(estimator.estimate(c[0], 1, c[1])) > 1.0]


def learned(profiling, *, rounds=40, share=(2, 1, 1), kinds=tuple(TRUTH), jobs_each=4, known=None):
    """Run jobs on a small cluster; return the estimator and every round's wishes."""
    estimator, catalogue = known or Estimator(), Catalogue()
    cluster = parse_cluster_spec(",".join(map("{}:{}".format, TYPES, share)))
    policy = make_policy("max_min_fairness", {})
    engine = Engine(cluster, EngineSettings(round_length_s=ROUND_S))
    specs = [
        JobSpec(name=f"{kind}-{i}", command=("true",), job_type=kind, total_steps=1e9)
        for kind in kinds
        for i in range(jobs_each)
    ]
    profiles = [catalogue.profile_of(spec) for spec in specs]
    jobs = [
        ev.JobSubmitted(
            job=Job(job_id=spec.name, job_type=spec.type_key, total_steps=1e9), profile=profile
        )
        for spec, profile in zip(specs, profiles, strict=True)
    ]
    wishes, done = [], {}
    for r in range(rounds):
        table = told(catalogue, estimator, profiling)
        wishes.append(wishes_of(estimator, profiling, kinds))
        events = [ev.ConfigurationsChanged(table=table), *(jobs if r == 0 else ())]
        while events:
            answers = []
            for command in engine.handle(*events, now=r * ROUND_S):
                if isinstance(command, do.ComputeAllocation):
                    problem = command.problem
                    answers.append(
                        ev.AllocationComputed(
                            generation=command.generation,
                            job_number=problem.job_number,
                            allocation=policy.allocate(problem),
                        )
                    )
                elif isinstance(command, do.RevokeLease):
                    name = engine.book.leases[command.lease_id].job_id
                    answers.append(
                        ev.LeaseEnded(
                            lease_id=command.lease_id,
                            reason="released",
                            steps_done=done.get(name, 0.0),
                        )
                    )
            events = answers
        for lease in engine.book.leases.values():
            kind = lease.job_id.split("-")[0]
            k = int(cluster.worker_type_of[lease.workers[0]])
            steps = TRUTH[kind][k] * ROUND_S
            done[lease.job_id] = done.get(lease.job_id, 0.0) + steps
            estimator.observe(kind, 1, TYPES[k], steps, ROUND_S)
    return estimator, wishes


def test_true_throughputs_are_learned_and_the_bonus_vanishes() -> None:
    estimator, wishes = learned(Profiling())
    assert len(wishes[0]) == 6  # nothing is known: every type of worker should be tried
    assert wishes[-1] == []
    for kind, truth in TRUTH.items():
        for name, steps_per_s in zip(TYPES, truth, strict=True):
            estimate = estimator.estimate(kind, 1, name)
            assert estimate.source is Source.MEASURED
            assert estimate.steps_per_s == pytest.approx(steps_per_s, rel=0.01)
    # Shown and true throughputs are the same now.
    catalogue = Catalogue()
    catalogue.profile_of(JobSpec(name="x", command=("x",), job_type="new", total_steps=1.0))
    shown = told(catalogue, estimator, Profiling()).throughput
    assert shown == pytest.approx(np.array([TRUTH["new"]]), rel=0.01)


def test_a_type_that_looks_slower_than_it_is_is_tried_only_because_of_the_bonus() -> None:
    # Of all other jobs the a100 is a little slower than the k80; the new one is 8 times as fast.
    def alone(profiling):
        known = Estimator()
        for i, size in enumerate((1.0, 4.0, 0.2)):
            for name, speed in zip(TYPES, (1.0, 0.4, 0.9), strict=True):
                known.declare(f"known-{i}", 1, name, size * speed)
        known.observe("new", 1, "k80", 3600.0, 3600.0)
        estimator, _ = learned(
            profiling, rounds=6, share=(1, 1, 1), kinds=("new",), jobs_each=1, known=known
        )
        return estimator.estimate("new", 1, "a100")

    assert alone(NO_PROFILING).source is Source.ESTIMATED
    assert alone(Profiling()).source is Source.MEASURED
    assert alone(Profiling()).steps_per_s == pytest.approx(8.0, rel=0.01)


def test_switched_off_nothing_is_wished_or_told() -> None:
    estimator = Estimator()
    assert wishes_of(estimator, NO_PROFILING, ["new"]) == []
    assert NO_PROFILING.factor(estimator.estimate("new", 1, "v100")) == 1.0


def test_the_factor_is_the_deviation_within_the_cap_and_for_inferences_only() -> None:
    estimator = Estimator()
    for kind in range(3):
        for k, name in enumerate(TYPES):
            estimator.declare(f"known-{kind}", 1, name, 2.0**k)
    estimator.observe("new", 1, "k80", 3600.0, 360.0)
    inferred = estimator.estimate("new", 1, "a100")
    assert Profiling().factor(estimator.estimate("new", 1, "k80")) == 1.0
    assert Profiling().factor(estimator.estimate("known-0", 1, "k80")) == 1.0
    assert Profiling(bonus=0.5, cap=9.0).factor(inferred) == pytest.approx(
        1.0 + 0.5 * inferred.relative_deviation
    )
    assert Profiling(bonus=50.0, cap=1.2).factor(inferred) == 1.2


@pytest.mark.parametrize("values", [{"bonus": -1.0}, {"cap": 0.5}, {"bonus": float("nan")}])
def test_values_out_of_range_are_refused(values) -> None:
    with pytest.raises(ParameterError, match="profiling"):
        Profiling(**values)
