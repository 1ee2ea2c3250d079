"""The oracle, packing and the agnostic view, against tables small enough to do by hand."""

import math

import numpy as np
import pytest

from planner.agnostic import Agnostic
from planner.oracle import Oracle, build_table
from planner.tables import TableBuilder
from scheduler.domain.cluster import Cluster, WorkerType
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.domain.throughputs.ways import CatalogueKey
from scheduler.errors import InputError

A, B, A2, B2 = ("a", 1), ("b", 1), ("a", 2), ("b", 2)
TYPES = ("v100", "p100", "k80")


def cluster_of(types):
    return Cluster(worker_types=tuple(WorkerType(name=name) for name in types), nodes=())


def keys_of(rows):
    return [CatalogueKey(job_type=name, scale_factors=(count,)) for name, count in rows]


def aware(types, throughputs, rows, **options):
    return build_table(cluster_of(types), throughputs, keys_of(rows), **options)


def agnostic(types, throughputs, rows, **options):
    source = Agnostic(Oracle(throughputs))
    return TableBuilder(source).table(cluster_of(types), keys_of(rows), **options)


def small_table() -> ThroughputTable:
    pairs = {
        (A, B): {"v100": (6.0, 3.0), "p100": (1.0, 1.0), "k80": (0.0, 0.0)},
        (A, A): {"v100": (7.0, 7.0)},
        (A2, B2): {"p100": (5.0, 2.0)},
        (A, B2): {"v100": (9.0, 9.0)},
    }
    mirrored = {(s, f): {w: t[::-1] for w, t in row.items()} for (f, s), row in pairs.items()}
    return ThroughputTable(
        isolated={
            A: {"v100": 10.0, "p100": 4.0, "k80": 2.0},
            B: {"v100": 5.0, "p100": 2.0, "k80": 0.0},
            A2: {"k80": 3.0, "v100": 19.0, "p100": 7.0},
            B2: {"p100": 3.0},
        },
        shared=mirrored | pairs,
    )


def test_a_profile_has_one_configuration_per_worker_type_on_which_it_runs_in_order() -> None:
    table = aware(TYPES, small_table(), [B, A2, A])
    assert [(p.job_type, p.scale_factor) for p in table.profiles] == [B, A2, A]
    assert table.throughput.tolist() == [[5, 2, 0], [19, 7, 3], [10, 4, 2]]
    assert table.demand[0].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert table.demand[1].tolist() == [[2, 0, 0], [0, 2, 0], [0, 0, 2]]
    assert not table.has_pairs


def test_a_worker_type_that_the_table_does_not_know_is_left_out() -> None:
    table = aware(("h100", "p100"), small_table(), [A])
    assert [c.demand for c in table.profiles[0].configurations] == [(0, 1)]


def test_an_unknown_profile_has_no_configurations() -> None:
    table = aware(TYPES, small_table(), [("nobody", 1), A])
    assert table.profiles[0].configurations == ()
    assert table.throughput[0].tolist() == [0, 0, 0]


def test_no_profile_at_all_gives_an_empty_table() -> None:
    assert aware(TYPES, small_table(), [], space_sharing=True).profiles == ()


def test_a_key_that_is_listed_twice_is_refused_with_its_name() -> None:
    with pytest.raises(InputError, match=r"\('b', 1\) is listed twice"):
        aware(TYPES, small_table(), [A, B, B])


def test_pairs_have_equal_scale_factors_make_progress_and_beat_taking_turns() -> None:
    # a+b on v100: 6/10 + 3/5 = 1.2 > 1; on p100: 1/4 + 1/2 = 0.75; a with itself: 1.4;
    # a+b at scale factor 2 on p100: 5/7 + 2/3 > 1; a at 1 with b at 2 do not hold the same workers.
    table = aware(TYPES, small_table(), [B, A, A2, B2], space_sharing=True)
    assert table.pair_profiles.tolist() == [[0, 1], [1, 1], [2, 3]]
    assert table.pair_demand.tolist() == [[1, 0, 0], [1, 0, 0], [0, 2, 0]]
    assert table.pair_throughput.tolist() == [[3, 6], [7, 7], [5, 2]]


def test_agnostic_gives_every_worker_type_the_throughput_of_the_first_that_runs_the_job() -> None:
    table = agnostic(("k80", "p100", "v100"), small_table(), [A, B, B2])
    assert table.throughput.tolist() == [[2, 2, 2], [2, 2, 0], [3, 0, 0]]
    assert table.demand[1].tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]


def test_an_agnostic_figure_that_is_another_types_is_in_endless_doubt() -> None:
    rates = {"k80": 2.0, "p100": 4.0, "v100": 2.0}
    types, known = ("k80", "p100", "v100"), ThroughputTable(isolated={A: rates})
    assert aware(types, known, [A]).doubt.tolist() == [[0, 0, 0]]
    assert agnostic(types, known, [A]).doubt.tolist() == [[0, math.inf, 0]]
    twice = TableBuilder(Agnostic(Agnostic(Oracle(known)))).table(cluster_of(types), keys_of([A]))
    assert twice.doubt.tolist() == [[0, math.inf, 0]]


def test_agnostic_pairs_keep_the_throughput_of_the_first_type_on_which_the_pair_runs() -> None:
    shared = {(A, A): {"p100": (3.0, 3.0), "v100": (9.0, 9.0)}}
    alone = {A: {"p100": 4.0, "v100": 10.0}}
    known = ThroughputTable(isolated=alone, shared=shared)
    table = agnostic(("p100", "v100"), known, [A], space_sharing=True)
    assert table.throughput.tolist() == [[4, 4]]
    assert table.pair_throughput.tolist() == [[3, 3], [3, 3]]


def test_agnostic_pairs_that_run_elsewhere_only_keep_their_slowdown() -> None:
    # The job runs on k80 first (2 steps/s), its pair on v100 only, at 0.6 and 0.6 of what a and b
    # reach alone there: as seen by an agnostic policy 0.6 x 2 and 0.6 x 2 (b runs on p100 first).
    table = agnostic(("k80", "p100", "v100"), small_table(), [A, B], space_sharing=True)
    ab = table.pair_profiles.tolist().index([0, 1])
    np.testing.assert_allclose(table.pair_throughput[ab], [1.2, 1.2])


def test_agnostic_leaves_a_homogeneous_cluster_as_it_is() -> None:
    one = aware(("v100",), small_table(), [A, B, A2], space_sharing=True)
    blind = agnostic(("v100",), small_table(), [A, B, A2], space_sharing=True)
    np.testing.assert_array_equal(blind.throughput, one.throughput)
    np.testing.assert_allclose(blind.pair_throughput, one.pair_throughput)
