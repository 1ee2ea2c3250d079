"""Placement against brute force: gangs on the fewest nodes, and as few jobs moved as can be."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.domain.cluster import Cluster, Node, WorkerType
from scheduler.engine.placement.placement import Placer, Unit
from scheduler.engine.tables.fleet import Fleet


def make_cluster(*nodes):
    return Cluster(
        worker_types=(WorkerType(name="a"), WorkerType(name="b")),
        nodes=tuple(Node(name=f"n{v}", workers=tuple(node)) for v, node in enumerate(nodes)),
    )


def fewest_nodes(cluster, available, kind, count):
    """By brute force: the fewest nodes that together have enough free workers."""
    free = np.bincount(
        cluster.node_of[available & (cluster.worker_type_of == kind)],
        minlength=len(cluster.nodes),
    )
    for size in range(1, len(cluster.nodes) + 1):
        if any(
            free[list(chosen)].sum() >= count for chosen in combinations(range(len(free)), size)
        ):
            return size
    return None


@given(
    nodes=st.lists(st.text("aab", min_size=1, max_size=5), min_size=1, max_size=5),
    taken=st.integers(0, 2**25 - 1),
    count=st.integers(1, 8),
)
@settings(max_examples=300)
def test_a_gang_lies_on_the_fewest_nodes(nodes, taken, count):
    cluster = make_cluster(*nodes)
    available = np.array([not taken >> w & 1 for w in range(cluster.workers)])
    before = available.copy()
    (workers,) = Placer(Fleet(cluster)).place(np.array([[count, 0]]), available)
    best = fewest_nodes(cluster, before, 0, count)
    if best is None:
        assert workers == ()
        assert (available == before).all()
        return
    assert len(set(cluster.node_of[list(workers)])) == best
    assert len(set(workers)) == count
    assert workers == tuple(sorted(workers))
    assert (cluster.worker_type_of[list(workers)] == 0).all()
    assert before[list(workers)].all()
    assert not available[list(workers)].any()
    assert before.sum() - available.sum() == count


def test_a_single_worker_is_taken_where_it_is_tightest():
    cluster = make_cluster("aaaa", "aa", "aaa")
    assert Placer(Fleet(cluster)).place(np.array([(1, 0)]), np.ones(9, dtype=bool)) == [(4,)]


def test_the_largest_gangs_choose_first_and_answers_keep_the_order_of_the_demands():
    cluster = make_cluster("aa", "aaaa")
    placed = Placer(Fleet(cluster)).place(
        np.array([(1, 0), (4, 0), (1, 0)]), np.ones(6, dtype=bool)
    )
    assert placed == [(0,), (2, 3, 4, 5), (1,)]


def test_a_gang_over_two_types_gets_workers_of_both_or_none():
    cluster = make_cluster("aab", "ab")
    available = np.ones(5, dtype=bool)
    assert Placer(Fleet(cluster)).place(np.array([(2, 1)]), available) == [(0, 1, 2)]
    assert Placer(Fleet(cluster)).place(np.array([(1, 2)]), available) == [()]
    assert available.tolist() == [False, False, False, True, True]


def test_nothing_asked_is_nothing_placed():
    assert (
        Placer(Fleet(make_cluster("a"))).place(
            np.empty((0, 2), dtype=np.int64), np.ones(1, dtype=bool)
        )
        == []
    )


def fewest_moves(units):
    """By brute force: the most members that can stay when each set goes to one unit at most."""
    sets = sorted({held for unit in units for held in unit.held if held})
    best = 0
    slots = [*sets, *[()] * len(units)]
    for chosen in set(permutations(slots, len(units))):
        stay = sum(
            unit.held.count(workers)
            for unit, workers in zip(units, chosen, strict=True)
            if workers and len(workers) == sum(unit.demand)
        )
        best = max(best, stay)
    return best


@st.composite
def held_units(draw):
    """Draw units with members that hold one of three worker sets, two members to a set at most."""
    sets = [(0,), (1,), (2, 3)]
    places = draw(st.permutations(sets * 2 + [()] * 3))
    units, at = [], 0
    for _ in range(draw(st.integers(1, 4))):
        members = draw(st.integers(1, 2))
        count = draw(st.sampled_from([1, 1, 2]))
        held = tuple(places[at : at + members])
        units.append(Unit(rows=tuple(range(at, at + members)), demand=(count, 0), held=held))
        at += members
    return units


@given(held_units())
@settings(max_examples=150)
def test_keeping_in_place_is_a_matching_of_minimum_cost(units):
    kept = Placer(Fleet(make_cluster("aaaa"))).keep(units)
    given_away = [workers for workers in kept if workers]
    assert len(given_away) == len(set(given_away)), "one set went to two units"
    stay = 0
    for unit, workers in zip(units, kept, strict=True):
        if workers:
            assert workers in unit.held
            assert len(workers) == sum(unit.demand)
            stay += unit.held.count(workers)
    assert stay == fewest_moves(units)


@pytest.mark.parametrize("held", [(), (4,)])
def test_workers_of_another_type_or_none_are_not_kept(held):
    unit = Unit(rows=(0,), demand=(1, 0), held=(held,))
    assert Placer(Fleet(make_cluster("aaaa", "b"))).keep([unit]) == [()]


def test_a_gang_takes_the_node_that_it_fills():
    cluster = make_cluster("aaaa", "aa", "aaa")
    assert Placer(Fleet(cluster)).place(np.array([(2, 0)]), np.ones(9, dtype=bool)) == [(4, 5)]
