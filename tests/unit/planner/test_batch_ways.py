"""Ways of jobs with a changing batch: measurements, and the estimates beside them."""

import pytest

from planner.knowledge import LearnedKnowledge
from planner.learning.goodput import BatchLimits, ThroughputModel, best_batch
from scheduler.domain.cluster import Cluster, Node, WorkerType
from scheduler.domain.configuration import ANYWHERE, CONSOLIDATED
from scheduler.domain.jobs.spec import JobSpec
from scheduler.domain.throughputs.profiling import Profiling
from scheduler.domain.throughputs.ways import Source

NAMES = ("initial", "most", "least_per_worker", "most_per_worker")
LIMITS = BatchLimits(initial=128, most=4096, most_per_worker=512)
BATCH = {name: getattr(LIMITS, name) for name in NAMES}
TRUTH = ThroughputModel(alpha_c=0.02, beta_c=0.001, alpha_n=0.2, alpha_r=0.05)
CLUSTER = Cluster(
    worker_types=(WorkerType(name="t4"), WorkerType(name="v100")),
    nodes=tuple(Node(name=f"n{i}", workers=("t4", "t4", "v100", "v100")) for i in range(4)),
)


def spec(**values):
    given = {"job_type": "a", "scale_factors": (1, 2, 4, 8), "batch": BATCH, "total_steps": 9.0}
    return JobSpec(name="x", command=("x",), **given | values)


def observe(known, *, workers, nodes=1, worker_type="t4"):
    for batch in (32.0, 128.0, 512.0):
        place = {"nodes": nodes, "workers": workers}
        known.observe_step_time(
            "a",
            worker_type,
            **place,
            per_worker=batch,
            pass_s=TRUTH.pass_s(batch),
            last_pass_s=TRUTH.iteration_s(**place, batch_per_worker=batch),
        )


def ways(known, job_id="job", **values):
    """Return the estimate by worker type, count and locality."""
    key = known.key(known.profile_of(spec(**values), job_id))
    return {
        (way.worker_type, way.count, way.locality): way.estimate for way in known.ways(key, CLUSTER)
    }


def test_before_anything_is_measured_the_estimates_count_on_one_node_and_on_several():
    known = LearnedKnowledge()
    for count, rate in ((1, 5.0), (2, 9.0)):
        known.declare("a", count, "t4", rate)
    found = ways(known)
    assert found["t4", 1, ANYWHERE].steps_per_s == pytest.approx(5.0)
    assert found["t4", 1, ANYWHERE].source is Source.DECLARED
    assert found["t4", 2, CONSOLIDATED] == found["t4", 2, ANYWHERE]
    assert ("t4", 1, CONSOLIDATED) not in found
    assert len(found) == 14


@pytest.mark.parametrize("noise", [0.0, 500.0, 1e5])
def test_what_was_measured_counts_at_the_best_batch_for_the_noise_of_the_job(noise):
    known = LearnedKnowledge()
    known.profile_of(spec(), "job")
    known.observe_noise("job", noise)
    for nodes, workers in ((1, 1), (1, 2), (2, 2), (2, 4)):
        observe(known, workers=workers, nodes=nodes)
    found = ways(known)
    for workers, nodes, locality in ((1, 1, ANYWHERE), (2, 1, CONSOLIDATED), (4, 2, ANYWHERE)):
        best = best_batch(TRUTH, LIMITS, noise, nodes=nodes, workers=workers)
        estimate = found["t4", workers, locality]
        assert estimate.steps_per_s == pytest.approx(best.steps_per_s, rel=0.05)
        assert (estimate.source, estimate.relative_deviation) == (Source.MEASURED, 0.05)
    guessed = found["t4", 4, CONSOLIDATED]
    assert guessed.source is Source.ESTIMATED
    assert guessed.relative_deviation > 0.2
    assert guessed.steps_per_s > found["t4", 4, ANYWHERE].steps_per_s


def test_counts_far_beyond_those_run_and_other_worker_types_are_estimated_as_before():
    known = LearnedKnowledge()
    known.declare("a", 1, "v100", 7.0)
    usual = ways(known, batch={})
    observe(known, workers=2)
    found = ways(known)
    assert found["t4", 4, ANYWHERE] != usual["t4", 4, ANYWHERE]
    assert found["t4", 8, ANYWHERE] == usual["t4", 8, ANYWHERE]
    assert found["v100", 1, ANYWHERE] == usual["v100", 1, ANYWHERE]


def test_a_count_at_which_no_batch_fits_and_a_type_that_does_not_run_it_are_no_ways():
    known = LearnedKnowledge()
    for count in (1, 2):
        known.declare("a", count, "v100", 0.0)
    observe(known, workers=1)
    observe(known, workers=1, worker_type="v100")
    few = BATCH | {"most": 128, "least_per_worker": 64}
    assert {(name, count) for name, count, _ in ways(known, batch=few)} == {("t4", 1), ("t4", 2)}


def test_policies_are_told_more_of_what_is_only_inferred():
    known = LearnedKnowledge()
    observe(known, workers=2)
    known.profile_of(spec(scale_factors=(2, 4)), "job")
    plain = known.table(CLUSTER)
    bold = known.renewed(
        plain,
        CLUSTER,
        agnostic=False,
        space_sharing=False,
        exclusive=(),
        profiling=Profiling(bonus=1.0, cap=1.5),
        tolerance=0.0,
    )
    there = (plain.demand[0, :, 0] > 0) & (plain.throughput[0] > 0.0)
    factors = (bold.throughput[0] / plain.throughput[0].clip(1e-9))[there]
    assert factors[0] == 1.0, "two on one node were measured"
    assert (factors[1:] > 1.1).all(), "two and four on several nodes were not"
    assert len(factors) == 3, "four have no room on one node"


def test_a_new_table_is_due_for_the_job_whose_noise_has_changed():
    known = LearnedKnowledge()
    observe(known, workers=1)
    first, second = known.profile_of(spec(), "one"), known.profile_of(spec(), "two")
    old = known.table(CLUSTER)
    how = {"agnostic": False, "space_sharing": True, "exclusive": (), "tolerance": 0.05}
    how["profiling"] = Profiling(bonus=0.0, cap=1.0)
    assert known.renewed(old, CLUSTER, **how) is None
    assert known.observe_noise("two", 1e5)
    new = known.renewed(old, CLUSTER, **how)
    assert (new.throughput[first] == old.throughput[first]).all()
    assert (new.throughput[second, :2] > 1.1 * old.throughput[second, :2]).all()
    assert new.pair_profiles.size == 0
