"""Mixed gangs: their set, their rates, and the gangs for which a measured rate counts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.agnostic import Agnostic
from planner.catalogue import Catalogue
from planner.knowledge import LearnedKnowledge
from planner.mixed_gangs import MixedGangs, MixedRates, splits
from planner.oracle import Oracle
from planner.tables import TableBuilder
from scheduler.domain.cluster import Cluster, Node, WorkerType
from scheduler.domain.configuration import CONSOLIDATED
from scheduler.domain.jobs.spec import JobSpec
from scheduler.domain.throughputs.knowledge import Part
from scheduler.domain.throughputs.profiling import Profiling
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.domain.throughputs.ways import CatalogueKey, Source, mixed_rate
from scheduler.errors import InputError

TYPES = ("a100", "v100", "k80")
ROW = {"a100": 8.0, "v100": 4.0, "k80": 1.0}


def cluster_of(**counts):
    nodes = (Node(name=name, workers=(name,) * count) for name, count in counts.items())
    return Cluster(
        worker_types=tuple(WorkerType(name=name) for name in TYPES),
        nodes=tuple(node for node in nodes if node.workers),
    )


FULL = cluster_of(a100=8, v100=8, k80=8)


def key_of(*counts, mixed_gangs=True, worker_types=()):
    return CatalogueKey(
        job_type="j", scale_factors=counts, mixed_gangs=mixed_gangs, worker_types=worker_types
    )


def oracle_of(rows, spread=None):
    return MixedGangs(
        Oracle(
            ThroughputTable(
                isolated={("j", n): row for n, row in rows.items()},
                shared={},
                spread={("j", n): row for n, row in (spread or {}).items()},
            )
        )
    )


def mixed_of(source, key, cluster=FULL):
    return {w.demand: w.throughput for w in source.ways(key, cluster) if w.is_mixed}


def test_a_gang_does_what_its_workers_do_together_less_the_overhead():
    ways = oracle_of({4: ROW}).ways(key_of(4), FULL)
    assert [way.demand for way in ways[:3]] == [(4, 0, 0), (0, 4, 0), (0, 0, 4)]
    # One a100 does 2 steps/s of a gang of four, one v100 does 1, one k80 does 1/4.
    assert {way.demand: way.throughput for way in ways[3:]} == {
        (1, 3, 0): pytest.approx(0.95 * 5.0),
        (2, 2, 0): pytest.approx(0.95 * 6.0),
        (3, 1, 0): pytest.approx(0.95 * 7.0),
        (0, 1, 3): pytest.approx(0.95 * 1.75),
        (0, 2, 2): pytest.approx(0.95 * 2.5),
        (0, 3, 1): pytest.approx(0.95 * 3.25),
    }
    assert [way.paces for way in ways[:3]] == [()] * 3
    assert [way.paces for way in ways[3:]] == [(2.0, 1.0, 0.0)] * 3 + [(0.0, 1.0, 0.25)] * 3


@pytest.mark.parametrize(
    ("key", "cluster", "found"),
    [
        (key_of(4, mixed_gangs=False), FULL, set()),
        (key_of(1), FULL, set()),
        (key_of(2, worker_types=("a100", "v100")), FULL, {(1, 1, 0)}),
        (key_of(2, worker_types=("a100",)), FULL, set()),
        (key_of(4, worker_types=("a100", "v100")), cluster_of(a100=3, v100=1), {(3, 1, 0)}),
        (key_of(4, worker_types=("a100", "v100")), cluster_of(a100=8), set()),
        (key_of(2, worker_types=("a100", "k80")), FULL, set()),  # eight times as fast
    ],
)
def test_gangs_that_cannot_be_or_do_not_pay_are_left_out(key, cluster, found):
    source = oracle_of(dict.fromkeys((1, 2, 4), ROW))
    assert set(mixed_of(source, key, cluster)) == found


def test_a_type_has_whole_eighths_of_a_gang():
    for count in range(2, 9):
        assert splits(count) == tuple(range(1, count))
    assert splits(16) == (2, 4, 6, 8, 10, 12, 14)
    assert splits(1) == ()
    assert all(len(splits(count)) <= 7 for count in range(1, 200))


def test_a_type_on_which_the_job_does_not_run_at_that_count_is_in_no_gang():
    source = oracle_of({2: {"a100": 2.0, "v100": 0.0}, 4: {"a100": 4.0, "v100": 2.0}})
    assert {sum(demand) for demand in mixed_of(source, key_of(2, 4))} == {4}


def test_the_rates_of_gangs_on_several_nodes_count():
    source = oracle_of({2: {"a100": 4.0, "v100": 2.0}}, spread={2: {"a100": 3.0}})
    ways = source.ways(key_of(2), FULL)
    assert [way.locality for way in ways if not way.is_mixed].count(CONSOLIDATED) == 1
    assert mixed_of(source, key_of(2)) == {(1, 1, 0): pytest.approx(0.95 * 2.5)}


RATES = st.floats(1e-3, 1e3)


@given(rates=st.lists(RATES, min_size=3, max_size=3), count=st.integers(2, 16))
def test_a_gang_is_never_faster_than_the_sum_nor_than_its_faster_type(rates, count):
    row = dict(zip(TYPES, rates, strict=True))
    cluster = cluster_of(a100=16, v100=16, k80=16)
    ways = [w for w in oracle_of({count: row}).ways(key_of(count), cluster) if w.is_mixed]
    assert len(ways) <= 7 * 3
    for way in ways:
        held = {name: n for name, n in zip(TYPES, way.demand, strict=True) if n}
        assert len(held) == 2
        assert sum(held.values()) == count
        together = sum(n * row[name] / count for name, n in held.items())
        assert 0.0 < way.throughput < together
        assert way.throughput < max(row[name] for name in held)
        assert way.throughput == pytest.approx(mixed_rate(held, row))
        # As fast as its slowest rank if parts were equal: unequal parts are worth it.
        slow = min(row[name] for name in held)
        if max(row[name] for name in held) > 1.5 * slow and min(held.values()) * 4 > count:
            assert way.throughput > slow


def test_the_agnostic_view_tells_no_gang_from_one_of_one_type_but_keeps_its_paces():
    ways = Agnostic(oracle_of({2: ROW})).ways(key_of(2), FULL)
    assert {way.throughput for way in ways} == {8.0}
    assert [way.paces for way in ways if way.is_mixed] == [(4.0, 2.0, 0.0), (0.0, 2.0, 0.5)]


def test_a_table_over_more_worker_types_keeps_paces():
    table = TableBuilder(oracle_of({2: ROW})).table(FULL, [key_of(2)])
    more = table.with_worker_types((*TYPES, "h100"))
    assert more.profiles[0].configurations[3].paces == (4.0, 2.0, 0.0, 0.0)
    assert more.profiles[0].configurations[0].paces == ()


# -- learning -----------------------------------------------------------------------------------


def spec(**values):
    given = {"job_type": "j", "scale_factors": (2,), "total_steps": 9.0, "mixed_gangs": True}
    return JobSpec(name="x", command=("x",), **given | values)


def knowledge(stored=None):
    known = LearnedKnowledge(stored)
    known.profile_of(spec())
    if stored is None:
        known.declare("j", 2, "a100", 8.0)
        known.declare("j", 2, "v100", 4.0)
    return known


def estimates(known, cluster=FULL):
    return {way.worker_type: way.estimate for way in known.ways(known.key(0), cluster)}


GANG = "1 x a100 + 1 x v100"
HELD = {"a100": 1, "v100": 1}


def test_what_was_measured_of_a_gang_counts_for_that_gang_alone():
    known = knowledge()
    before = estimates(known)
    assert before[GANG].steps_per_s == pytest.approx(5.7)
    assert before[GANG].source is Source.ESTIMATED
    for _ in range(5):
        assert known.observe_mixed_gang("j", HELD, 3000.0, 1000.0)
    after = estimates(known)
    assert after[GANG].steps_per_s == pytest.approx(3.0, rel=0.05)
    assert after[GANG].source is Source.MEASURED
    del before[GANG], after[GANG]
    assert after == before
    table = known.table(FULL)
    column = [way.demand for way in table.profiles[0].configurations].index((1, 1, 0))
    assert table.throughput[0, column] == pytest.approx(3.0, rel=0.05)
    paces = table.profiles[0].configurations[column].paces
    assert paces == (4.0, 2.0, 0.0), "ranks split by the single types"


def test_what_was_measured_is_stored_apart_and_forgotten_with_the_job_type():
    known = knowledge()
    assert known.dump(Part.MIXED_GANGS)["gangs"] == []
    known.observe_mixed_gang("j", HELD, 3000.0, 1000.0)
    stored = json.loads(json.dumps({part: known.dump(part) for part in Part}))
    again = knowledge(stored)
    assert estimates(again) == estimates(known)
    assert again.forget("j") == 3
    assert estimates(again)[GANG].source is Source.ESTIMATED
    with pytest.raises(InputError, match="version 7"):
        MixedRates.restore({"version": 7})
    with pytest.raises(InputError, match="damaged"):
        MixedRates.restore({"version": 1, "gangs": [["j", 3]]})
    with pytest.raises(InputError, match="must be finite"):
        known.observe_mixed_gang("j", HELD, 1.0, 0.0)


def test_beyond_as_many_as_are_remembered_unused_job_types_go_first(monkeypatch):
    monkeypatch.setattr("planner.mixed_gangs.MOST_REMEMBERED", 2)
    rates = MixedRates()
    for name in ("old", "used", "new"):
        rates.observe(name, HELD, 100.0, 10.0)
    rates.forget_oldest(iter(["used"]))
    assert [bool(rates.belief(name, HELD, 1.0)) for name in ("old", "used", "new")] == [0, 1, 1]


def test_profiling_makes_no_gang_look_faster_and_changes_no_pace():
    known = LearnedKnowledge()
    known.profile_of(spec())
    known.declare("j", 2, "a100", 8.0)
    plain, shown = (
        known.renewed(
            known.table(cluster_of(a100=1)),
            FULL,
            agnostic=False,
            space_sharing=False,
            exclusive=(),
            profiling=Profiling(bonus=bonus, cap=1.5),
            tolerance=0.0,
        )
        for bonus in (0.0, 1.0)
    )
    by_demand = [{w.demand: w for w in t.profiles[0].configurations} for t in (plain, shown)]
    assert by_demand[1][0, 2, 0].throughput > by_demand[0][0, 2, 0].throughput
    assert by_demand[1][1, 1, 0] == by_demand[0][1, 1, 0]


def test_more_workers_make_more_gangs():
    known = knowledge()
    assert GANG not in estimates(known, cluster_of(a100=1))
    assert GANG in estimates(known, cluster_of(a100=1, v100=1))


def test_the_release_before_reads_the_profiles_of_jobs_that_do_not_opt_in():
    catalogue = Catalogue()
    catalogue.profile_of(spec(mixed_gangs=False))
    catalogue.profile_of(spec())
    stored = json.loads(json.dumps(catalogue.dump()))
    assert "mixed_gangs" not in stored["profiles"][0]
    assert Catalogue.restore(stored).keys == catalogue.keys
    assert [key.mixed_gangs for key in catalogue.keys] == [False, True]
