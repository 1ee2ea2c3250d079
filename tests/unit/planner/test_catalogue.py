"""The catalogue: indices that stay, tables by hand, and figures beyond the estimates."""

import json

import numpy as np
import pytest

from planner.agnostic import Agnostic
from planner.catalogue import Catalogue
from planner.estimates import Estimates
from planner.estimation.estimator import Estimator
from planner.knowledge import LearnedKnowledge
from planner.packing import Pairs
from planner.sharing import SharingCosts
from planner.tables import TableBuilder, differs
from scheduler.domain.cluster import Cluster, WorkerType
from scheduler.domain.jobs.spec import JobSpec
from scheduler.domain.throughputs.profiling import NO_PROFILING, Profiling
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.domain.throughputs.ways import CatalogueKey, Source, declarations
from scheduler.errors import InputError

TYPES = ("v100", "k80")


def spec(name="train", **values):
    return JobSpec(name=name, command=("true",), **({"total_steps": 100.0} | values))


def estimator(*figures):
    result = Estimator()
    for figure in figures:
        result.declare(*figure)
    return result


def cluster_of(types):
    return Cluster(worker_types=tuple(WorkerType(name=name) for name in types), nodes=())


def costs_of(table):
    costs = SharingCosts()
    for cost in table.sharing():
        costs.declare(*cost)
    return costs


def lay_out(
    catalogue, types, known, *, pairs=None, agnostic=False, profiling=NO_PROFILING, **options
):
    source = Estimates(known, profiling)
    source = source if pairs is None else Pairs(source, costs_of(pairs))
    builder = TableBuilder(Agnostic(source) if agnostic else source)
    return builder.table(cluster_of(types), catalogue.keys, **options)


def renewed(old, catalogue, types, known, *, pairs=None, **options):
    source = Estimates(known) if pairs is None else Pairs(Estimates(known), costs_of(pairs))
    return TableBuilder(source).renewed(old, cluster_of(types), catalogue.keys, **options)


def test_jobs_of_one_kind_have_one_profile_and_every_difference_makes_another() -> None:
    catalogue = Catalogue()
    kinds = [
        spec(),
        spec(job_type="resnet"),
        spec(scale_factors=(2,)),
        spec(scale_factors=(1, 2)),
        spec(worker_types=("v100",)),
        spec(space_sharing=False),
        spec(total_steps=None, duration_s=60.0),
    ]
    assert [catalogue.profile_of(kind) for kind in kinds] == list(range(7))
    assert catalogue.profile_of(spec(weight=7.0, total_steps=3.0)) == 0
    assert catalogue.profile_of(spec(worker_types=("v100", "v100"))) == 4
    assert len(catalogue) == 7
    assert catalogue.key(3).scale_factors == (1, 2)


def test_a_job_whose_batch_may_change_has_a_profile_of_its_own() -> None:
    limits = {"initial": 32, "most": 512, "least_per_worker": 1, "most_per_worker": 64}
    adaptive, catalogue = spec(batch=limits), Catalogue()
    given = [(adaptive, "one"), (adaptive, "two"), (adaptive, "one"), (spec(), "x"), (spec(), "y")]
    assert [catalogue.profile_of(*job) for job in given] == [0, 1, 0, 2, 2]
    key = catalogue.key(1)
    assert (key.batch, key.learner, key.space_sharing) == ((32, 512, 1, 64), "2", False)
    stored = json.loads(json.dumps(catalogue.dump()))
    again = Catalogue.restore(stored)
    assert again.keys == catalogue.keys
    assert [again.learner(job) for job in ("one", "two", "x")] == ["1", "2", ""]
    assert again.keep_learners(iter(["two", "x"])) == {"2"}
    assert [again.profile_of(adaptive, job) for job in ("three", "two", "four")] == [0, 1, 3]
    assert "batch" not in stored["profiles"][2], "the release before does not know the field"


def test_a_profile_has_a_configuration_for_each_type_it_allows_and_each_count() -> None:
    catalogue = Catalogue()
    catalogue.profile_of(spec(job_type="a", scale_factors=(1, 2)))
    catalogue.profile_of(spec(job_type="a", worker_types=("k80",)))
    known = estimator(
        ("a", 1, "v100", 8.0), ("a", 2, "v100", 15.0), ("a", 1, "k80", 2.0), ("a", 2, "k80", 3.0)
    )
    table = lay_out(catalogue, TYPES, known)
    assert table.throughput == pytest.approx(np.array([[8, 15, 2, 3], [2, 0, 0, 0]]))
    assert table.demand[0].tolist() == [[1, 0], [2, 0], [0, 1], [0, 2]]
    assert [(p.job_type, p.scale_factor) for p in table.profiles] == [("a", 1), ("a", 1)]


def test_a_type_that_does_not_run_the_job_keeps_its_place_without_throughput() -> None:
    catalogue = Catalogue()
    catalogue.profile_of(spec(job_type="a"))
    table = lay_out(catalogue, TYPES, estimator(("a", 1, "v100", 0.0), ("a", 1, "k80", 2.0)))
    assert table.throughput == pytest.approx(np.array([[0.0, 2.0]]))


def test_profiles_and_configurations_keep_their_places_while_the_catalogue_grows() -> None:
    catalogue, known = Catalogue(), estimator(("a", 1, "v100", 8.0))
    catalogue.profile_of(spec(job_type="a", scale_factors=(1, 2)))
    small = lay_out(catalogue, ("v100",), known)
    catalogue.profile_of(spec(job_type="b", scale_factors=(4,)))
    large = lay_out(catalogue, TYPES, known)
    assert large.profiles[0].job_type == small.profiles[0].job_type
    assert large.demand[0, :2, :1].tolist() == small.demand[0].tolist()
    assert large.throughput[0, :2].tolist() == small.throughput[0].tolist()


def test_a_job_that_lasts_some_seconds_does_one_a_second_wherever_it_may_run() -> None:
    catalogue = Catalogue()
    catalogue.profile_of(spec(total_steps=None, duration_s=60.0))
    table = lay_out(catalogue, TYPES, estimator(("default/train", 1, "v100", 8.0)))
    assert table.throughput.tolist() == [[1.0, 1.0]]
    assert catalogue.key(0).timed


def test_throughputs_of_a_job_that_lasts_some_seconds_are_heeded() -> None:
    catalogue = Catalogue()
    job = spec(total_steps=None, duration_s=60.0, throughputs={"v100": 1.0, "k80": 0.25})
    catalogue.profile_of(job)
    assert declarations(job) == (
        ("default/train", 1, "v100", 1.0),
        ("default/train", 1, "k80", 0.25),
    )
    table = lay_out(catalogue, TYPES, estimator(*declarations(job)))
    assert table.throughput == pytest.approx(np.array([[1.0, 0.25]]))


def test_ways_say_where_their_figures_come_from() -> None:
    key = CatalogueKey.of(spec(job_type="a", scale_factors=(1, 2)))
    known = LearnedKnowledge()
    for figure in (("a", 1, "v100", 8.0), ("a", 1, "k80", 0.0), ("a", 2, "k80", 0.0)):
        known.declare(*figure)
    ways = known.ways(key, cluster_of(TYPES))
    found = [(w.worker_type, w.count, w.estimate.source) for w in ways]
    assert found == [("v100", 1, Source.DECLARED), ("v100", 2, Source.ESTIMATED)]


def pair_table():
    one, other = ("a", 1), ("b", 1)
    shared = {
        (one, other): {"v100": (6.0, 3.0), "k80": (1.0, 0.4)},
        (other, one): {"v100": (3.0, 6.0), "k80": (0.4, 1.0)},
        (one, one): {"v100": (6.0, 6.0)},
    }
    alone = {one: {"v100": 8.0, "k80": 2.0}, other: {"v100": 4.0, "k80": 1.0}}
    return ThroughputTable(isolated=alone, shared=shared)


def test_pairs_keep_what_sharing_costs_while_the_figures_alone_are_learned() -> None:
    catalogue = Catalogue()
    for name in ("a", "b"):
        catalogue.profile_of(spec(job_type=name))
    # On the k80 sharing does not pay: 1/2 + 0.4 < 1. Job a turned out to be half as fast.
    known = estimator(("a", 1, "v100", 4.0), ("b", 1, "v100", 4.0), ("a", 1, "k80", 2.0))
    table = lay_out(catalogue, TYPES, known, pairs=pair_table(), space_sharing=True)
    assert table.pair_profiles.tolist() == [[0, 0], [0, 1]]
    assert table.pair_throughput == pytest.approx(np.array([[3.0, 3.0], [3.0, 3.0]]))
    assert table.pair_demand.tolist() == [[1, 0], [1, 0]]
    assert not lay_out(catalogue, TYPES, known).has_pairs


def test_jobs_pair_only_where_both_allow_it() -> None:
    catalogue = Catalogue()
    catalogue.profile_of(spec(job_type="a", space_sharing=False))
    catalogue.profile_of(spec(job_type="b"))
    catalogue.profile_of(spec(job_type="a", worker_types=("k80",)))
    catalogue.profile_of(spec(job_type="a", scale_factors=(1, 2)))
    catalogue.profile_of(spec(job_type="a", worker_types=("v100",)))
    known = estimator(*pair_table().alone())
    table = lay_out(catalogue, TYPES, known, pairs=pair_table(), space_sharing=True)
    assert table.pair_profiles.tolist() == [[1, 4], [4, 4]]
    assert table.pair_throughput == pytest.approx(np.array([[3.0, 6.0], [6.0, 6.0]]))


def test_a_pair_without_figures_alone_is_left_out() -> None:
    shared = {(("a", 1), ("a", 1)): {"v100": (6.0, 6.0)}}
    catalogue, pairs = Catalogue(), ThroughputTable(isolated={}, shared=shared)
    catalogue.profile_of(spec(job_type="a"))
    assert not lay_out(catalogue, TYPES, Estimator(), pairs=pairs, space_sharing=True).has_pairs


def test_heterogeneity_off_shows_every_type_as_the_first() -> None:
    catalogue = Catalogue()
    catalogue.profile_of(spec(job_type="a"))
    known = estimator(("a", 1, "v100", 8.0), ("a", 1, "k80", 2.0))
    assert lay_out(catalogue, TYPES, known, agnostic=True).throughput == pytest.approx(
        np.array([[8, 8]])
    )


def test_a_table_is_renewed_when_something_changed_by_more_than_the_tolerance() -> None:
    catalogue, known = Catalogue(), estimator(("a", 1, "v100", 8.0), ("a", 1, "k80", 2.0))
    catalogue.profile_of(spec(job_type="a"))
    old = lay_out(catalogue, TYPES, known)
    assert renewed(old, catalogue, TYPES, known) is None
    known.declare("a", 1, "v100", 8.3)
    assert renewed(old, catalogue, TYPES, known) is None
    assert renewed(old, catalogue, TYPES, known, tolerance=0.01) is not None
    known.declare("a", 1, "v100", 9.0)
    assert renewed(old, catalogue, TYPES, known).throughput == pytest.approx(np.array([[9.0, 2.0]]))
    known.declare("a", 1, "v100", 8.0)
    catalogue.profile_of(spec(job_type="b"))
    assert len(renewed(old, catalogue, TYPES, known).profiles) == 2
    assert differs(old, lay_out(catalogue, ("v100",), known))
    assert differs(lay_out(catalogue, ("k80", "v100"), known), lay_out(catalogue, TYPES, known))


def test_a_table_tells_the_doubt_of_its_figures_and_is_renewed_when_that_has_gone() -> None:
    catalogue, known = Catalogue(), estimator(("a", 1, "v100", 8.0), ("a", 1, "k80", 8.0))
    catalogue.profile_of(spec(job_type="a"))
    catalogue.profile_of(spec(total_steps=None, duration_s=60.0))  # its steps are seconds
    old = lay_out(catalogue, TYPES, known)
    assert old.doubt.tolist() == [[0.2, 0.2], [0.0, 0.0]]
    for _ in range(12):
        known.observe("a", 1, "v100", 8000.0, 1000.0)
    new = renewed(old, catalogue, TYPES, known)
    assert new is not None
    assert new.doubt[0].max() == 0.2
    assert new.doubt[0].min() < 0.02
    shown = lay_out(catalogue, TYPES, known, agnostic=True)
    assert np.isfinite(shown.doubt).all()  # alike, as far as is known
    known.declare("a", 1, "k80", 2.0)
    assert np.isinf(lay_out(catalogue, TYPES, known, agnostic=True).doubt[0]).sum() == 1


def test_what_was_stored_has_the_same_profiles() -> None:
    catalogue = Catalogue()
    for job in (spec(job_type="b"), spec(scale_factors=(1, 4)), spec(total_steps=None)):
        catalogue.profile_of(job)
    again = Catalogue.restore(json.loads(json.dumps(catalogue.dump())))
    assert [again.key(u) for u in range(3)] == [catalogue.key(u) for u in range(3)]
    assert again.profile_of(spec(scale_factors=(1, 4))) == 1
    assert again.profile_of(spec(name="other")) == 3


def test_damaged_or_newer_data_are_refused() -> None:
    with pytest.raises(InputError, match="version None"):
        Catalogue.restore({})
    with pytest.raises(InputError, match="damaged"):
        Catalogue.restore({"version": 1, "profiles": [{"colour": "red"}]})


def test_only_inferences_are_told_better_than_they_are() -> None:
    catalogue = Catalogue()
    catalogue.profile_of(spec(job_type="new"))
    catalogue.profile_of(spec(job_type="old"))
    known = estimator(("old", 1, "v100", 8.0), ("old", 1, "k80", 2.0))
    known.observe("new", 1, "k80", 3600.0, 360.0)
    plain = lay_out(catalogue, TYPES, known).throughput
    told = lay_out(catalogue, TYPES, known, profiling=Profiling(cap=1.3)).throughput
    assert told[0, 0] == pytest.approx(1.3 * plain[0, 0])
    assert told[0, 1] == plain[0, 1]
    assert told[1].tolist() == plain[1].tolist()


def test_jobs_pair_only_on_worker_types_that_can_be_shared() -> None:
    figures = pair_table()
    pairs = ThroughputTable(
        isolated=figures.isolated,
        shared={(("a", 1), ("a", 1)): {"v100": (6.0, 6.0), "k80": (1.5, 1.5)}},
    )
    catalogue = Catalogue()
    catalogue.profile_of(spec(job_type="a"))
    known = estimator(*figures.alone())

    def places(exclusive: tuple[str, ...]) -> list[list[int]]:
        table = lay_out(
            catalogue, TYPES, known, pairs=pairs, space_sharing=True, exclusive=exclusive
        )
        return table.pair_demand.tolist()

    assert places(()) == [[1, 0], [0, 1]]
    assert places(("v100",)) == [[0, 1]]
    assert places(("k80", "unheard-of")) == [[1, 0]]
    assert places(TYPES) == []
    old = lay_out(catalogue, TYPES, known, pairs=pairs, space_sharing=True)
    new = renewed(
        old, catalogue, TYPES, known, pairs=pairs, space_sharing=True, exclusive=("v100",)
    )
    assert new is not None
    assert new.pair_demand.tolist() == [[0, 1]]
