"""Sources of configurations: composed, asked only where something changed, and checked."""

from dataclasses import replace

import pytest

from planner.composed import Composed, SourceWarning
from planner.estimates import Estimates
from planner.estimation.estimator import Estimator
from planner.knowledge import LearnedKnowledge
from planner.tables import TableBuilder, differs
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.configuration import CONSOLIDATED, Configuration, ConfigurationTable
from scheduler.domain.jobs.spec import JobSpec
from scheduler.domain.sources import ConfigurationSource
from scheduler.domain.throughputs.profiling import NO_PROFILING
from scheduler.domain.throughputs.ways import CatalogueKey, Source
from scheduler.errors import InputError

CLUSTER = parse_cluster_spec("v100:8,k80:4", workers_per_node=4)
A = CatalogueKey(job_type="a", scale_factors=(1, 4))
B = CatalogueKey(job_type="b", scale_factors=(1,))


class Says(ConfigurationSource):
    """Gives preset answers, and records its questions."""

    def __init__(self, **ways):
        self.by_type = ways
        self.asked = []

    def ways(self, key, cluster):
        self.asked.append(key.job_type)
        found = self.by_type.get(key.job_type, ())
        if isinstance(found, Exception):
            raise found
        return found


def way(*demand, rate=1.0, **values):
    return Configuration(demand=demand, throughput=rate, **values)


def estimates(*figures):
    known = Estimator()
    for figure in figures:
        known.declare(*figure)
    return known


def test_only_jobs_whose_figures_changed_are_asked_for_again() -> None:
    known = estimates(("a", 1, "v100", 8.0), ("a", 1, "k80", 2.0), ("b", 1, "v100", 4.0))
    single = replace(A, scale_factors=(1,))
    asked = []

    class Counted(Estimates):
        def ways(self, key, cluster):
            asked.append(key.job_type)
            return super().ways(key, cluster)

    builder = TableBuilder(Counted(known))
    first = builder.table(CLUSTER, [single, B])
    assert builder.table(CLUSTER, [single, B]).profiles == first.profiles
    assert asked == ["a", "b"]
    # All of a is declared; one figure of b is inferred, from everything that is known.
    known.declare("c", 1, "v100", 3.0)
    builder.table(CLUSTER, [single, B])
    assert asked == ["a", "b", "b"]
    known.declare("a", 1, "v100", 9.0)
    assert builder.table(CLUSTER, [single, B]).throughput[0].tolist()[0] == pytest.approx(9.0)
    assert asked == ["a", "b", "b", "a", "b"]
    known.forget("a")
    builder.table(CLUSTER, [single])
    builder.table(parse_cluster_spec("v100:8,k80:4,a100:1"), [single])
    assert asked == ["a", "b", "b", "a", "b", "a", "a"]


def test_what_is_kept_is_what_a_new_builder_would_lay_out() -> None:
    known = estimates(("a", 1, "v100", 8.0), ("b", 1, "k80", 4.0))
    builder = TableBuilder(Estimates(known))
    for step in range(12):
        known.observe("ab"[step % 2], 1, ("v100", "k80")[step // 2 % 2], 100.0 * (step + 1), 60.0)
        fresh = TableBuilder(Estimates(known)).table(CLUSTER, [A, B])
        assert builder.table(CLUSTER, [A, B]).profiles == fresh.profiles


def test_a_source_is_asked_again_by_default_when_nodes_or_types_have_joined() -> None:
    source = Says(a=(way(1, 0),))
    builder = TableBuilder(source)
    for cluster in (CLUSTER, parse_cluster_spec("v100:8,k80:4", workers_per_node=4)):
        builder.table(cluster, [A])
    assert source.asked == ["a"]  # equal clusters are one
    builder.table(parse_cluster_spec("v100:12,k80:4", workers_per_node=4), [A])
    assert source.asked == ["a", "a"]


def test_further_ways_come_behind_and_the_least_doubtful_figure_of_a_way_counts() -> None:
    known = estimates(("a", 1, "v100", 8.0), ("a", 4, "v100", 20.0))
    plan = way(4, 0, rate=30.0, doubt=0.3, locality=CONSOLIDATED, plan="tensor=4")
    source = Says(
        a=(
            way(1, 0, rate=1.0, doubt=0.25),  # declared with 0.2: that counts
            way(0, 4, rate=7.0, doubt=0.1),  # merely inferred: this counts
            plan,
        )
    )
    found = Composed(Estimates(known), [("mine", source)]).ways(A, CLUSTER)
    assert [(w.demand, w.plan) for w in found] == [
        ((1, 0), ""),
        ((4, 0), ""),
        ((0, 1), ""),
        ((0, 4), ""),
        ((4, 0), "tensor=4"),
    ]
    assert found[0].throughput == pytest.approx(8.0)
    assert (found[3].throughput, found[3].doubt) == (7.0, 0.1)
    assert found[4] == plan


def test_worker_types_and_counts_that_a_job_does_not_allow_are_left_out() -> None:
    key = replace(A, worker_types=("v100",), scale_factors=(2,))
    source = Says(a=(way(2, 0, plan="p"), way(0, 2, plan="p"), way(1, 0, plan="p")))
    found = Composed(Estimates(Estimator()), [("mine", source)]).ways(key, CLUSTER)
    assert [(w.demand, w.plan) for w in found] == [((2, 0), ""), ((2, 0), "p")]


def test_of_a_job_whose_steps_are_seconds_no_other_source_is_asked() -> None:
    source = Says(a=(way(1, 0, plan="p"),))
    timed = replace(A, timed=True, scale_factors=(1,))
    found = Composed(Estimates(Estimator()), [("mine", source)]).ways(timed, CLUSTER)
    assert [(w.throughput, w.plan) for w in found] == [(1.0, ""), (1.0, "")]
    assert source.asked == []


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (RuntimeError("no licence"), "no licence"),
        ((way(1, 0, 0),), "give one count for each worker type"),
        ((way(1, 0, rate=-1.0),), "throughput"),
        ((way(1, 0, locality="near"),), "locality is 'near'"),
        ((way(1, 1),), "exactly one type"),
        ((way(0, 0),), "exactly one type"),
    ],
)
def test_what_cannot_be_used_is_warned_of_and_the_rest_counts(says, reason) -> None:
    source = Composed(Estimates(Estimator()), [("mine", Says(a=says, b=(way(1, 0, plan="p"),)))])
    with pytest.warns(SourceWarning, match=f"'mine' is left out for job type 'a': .*{reason}"):
        assert len(source.ways(A, CLUSTER)) == 4
    assert len(source.ways(B, CLUSTER)) == 3


def test_a_way_on_one_node_has_no_throughput_until_a_node_is_large_enough() -> None:
    source = Says(a=(way(8, 0, rate=30.0, locality=CONSOLIDATED), way(8, 0, rate=20.0)))
    key = replace(A, scale_factors=(8,))
    builder = TableBuilder(source)
    assert builder.table(CLUSTER, [key]).throughput.tolist() == [[0.0, 20.0]]
    larger = parse_cluster_spec("v100:16,k80:4", workers_per_node=8)
    assert builder.table(larger, [key]).throughput.tolist() == [[30.0, 20.0]]


def test_a_table_that_differs_in_locality_or_plan_alone_is_another_one() -> None:
    def table(**values):
        return TableBuilder(Says(a=(way(4, 0, **values),))).table(CLUSTER, [A])

    assert not differs(table(plan="p"), table(plan="p"))
    assert differs(table(plan="p"), table(plan="q"))
    assert differs(table(), table(locality=CONSOLIDATED))


def test_an_unknown_locality_is_refused_by_the_table() -> None:
    with pytest.raises(InputError, match="give 'any' or 'consolidated'"):
        TableBuilder(Says(a=(way(1, 0, locality="rack"),))).table(CLUSTER, [A])


def test_the_service_shows_further_ways_to_policies_and_where_figures_come_from() -> None:
    plan = way(4, 0, rate=30.0, doubt=0.3, locality=CONSOLIDATED, plan="tensor=4")
    knowledge = LearnedKnowledge(sources=[("mine", Says(a=(plan,)))])
    knowledge.declare("a", 1, "v100", 8.0)
    spec = JobSpec(name="x", command=("true",), job_type="a", scale_factors=(1, 4), total_steps=9.0)
    assert knowledge.profile_of(spec) == 0
    assert knowledge.table(CLUSTER).profiles[0].configurations[-1] == plan
    found = knowledge.ways(knowledge.key(0), CLUSTER)
    assert (found[0].estimate.source, found[0].plan) == (Source.DECLARED, "")
    assert found[1].estimate.source is Source.ESTIMATED
    assert (found[-1].locality, found[-1].plan) == (CONSOLIDATED, "tensor=4")
    assert (found[-1].estimate.steps_per_s, found[-1].estimate.source) == (30.0, Source.DECLARED)
    shown = knowledge.renewed(
        ConfigurationTable.build((), ()),
        CLUSTER,
        agnostic=True,
        space_sharing=False,
        exclusive=(),
        profiling=NO_PROFILING,
        tolerance=0.0,
    )
    assert shown.profiles[0].configurations[-1].throughput == 30.0
