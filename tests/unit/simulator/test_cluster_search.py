"""The search for a cluster, against all clusters of a grid and figures worked out by hand."""

from __future__ import annotations

from itertools import product

import pytest

from scheduler.domain.throughputs.throughput import ThroughputTable
from simulator.many.cluster_search import (
    ClusterSpace,
    Goal,
    ReplayedCluster,
    find_changes,
    find_frontier,
    search_clusters,
    summarise_replay,
)
from simulator.request import SimulationRequest
from simulator.run import simulate
from traces.trace import Trace, TraceJob

SPACE = ClusterSpace(types=("slow", "fast"), prices=(1.0, 3.0), node_workers=2)


def cluster(counts, jct_s, usd=None, unfinished=0):
    return ReplayedCluster(
        counts=counts,
        usd_per_hour=SPACE.cost(counts) if usd is None else usd,
        mean_jct_s=jct_s,
        p95_jct_s=2.0 * jct_s,
        utilisation=0.5,
        unfinished=unfinished,
    )


def made_up(counts):
    """Return the JCT of a load of which a fast worker does twice as much as a slow one."""
    slow, fast = counts
    return cluster(counts, 1e5 / (0.1 + slow + 2.0 * fast) + 50.0)


def search(start, goal, *, seen=None, max_replays=200, figures=made_up):
    def replay(clusters):
        if seen is not None:
            seen.extend(clusters)
        return [figures(counts) for counts in clusters]

    return list(search_clusters(start, SPACE, goal, replay, max_replays=max_replays))


def grid(most):
    return [made_up(c) for c in product(range(0, most, 2), repeat=2) if any(c)]


STARTS = [(2, 2), (16, 0), (0, 12)]


@pytest.mark.parametrize("budget", [8.0, 20.0, 50.0])
@pytest.mark.parametrize("start", STARTS)
def test_the_shortest_jct_within_a_budget_is_the_shortest_of_all_clusters(budget, start):
    goal, seen = Goal(budget_usd_per_hour=budget), []
    best = min(search(start, goal, seen=seen), key=goal.rank)
    assert goal.is_met(best)
    assert best.mean_jct_s == min(c.mean_jct_s for c in grid(60) if c.usd_per_hour <= budget)
    assert len(seen) == len(set(seen)) <= 200
    assert seen[0] == start


@pytest.mark.parametrize("target", [2000.0, 9000.0, 40_000.0])
@pytest.mark.parametrize("start", STARTS)
def test_the_lowest_cost_at_a_target_is_the_lowest_of_all_clusters(target, start):
    goal = Goal(metric="p95", target_s=target)
    best = min(search(start, goal, max_replays=300), key=goal.rank)
    assert goal.is_met(best)
    assert best.usd_per_hour == min(c.usd_per_hour for c in grid(120) if c.p95_jct_s <= target)


def test_a_target_that_no_cluster_reaches_is_not_met():
    goal = Goal(target_s=10.0)  # no cluster is below 50 s
    found = search((2, 2), goal, max_replays=60)
    assert len(found) == 60
    assert not goal.is_met(min(found, key=goal.rank))


@pytest.mark.parametrize("goal", [Goal(), Goal(budget_usd_per_hour=100.0)])
def test_no_more_clusters_are_replayed_than_allowed(goal):
    assert len(search((4, 4), goal, max_replays=7)) == 7


def test_the_search_ends_when_no_step_finds_a_better_cluster():
    """The load needs two fast workers; any other cluster is slower or costs more."""
    goal = Goal(target_s=100.0)
    found = search(
        (4, 4), goal, figures=lambda counts: cluster(counts, 100.0 if counts[1] >= 2 else 900.0)
    )
    assert min(found, key=goal.rank).counts == (0, 2)
    assert len(found) < 40


def test_without_a_limit_the_search_begins_with_one_node_of_each_type():
    found = search((4, 4), Goal(), max_replays=5)
    assert [c.counts for c in found] == [(4, 4), (6, 4), (4, 6), (2, 4), (4, 2)]


def test_nodes_are_exchanged_one_for_one_and_at_equal_price():
    near = list(SPACE.neighbours((8, 4), 1))
    assert near == [(10, 4), (8, 6), (6, 4), (8, 2), (6, 6), (2, 6), (10, 2), (14, 2)]
    # The last node of a type may be a part of one. A cluster without workers is left out.
    assert list(SPACE.neighbours((1, 0), 1)) == [(3, 0), (1, 2), (0, 2)]


def test_the_frontier_has_the_clusters_that_no_other_beats_in_cost_and_jct():
    clusters = [
        cluster((1, 0), 9.0, usd=1.0),
        cluster((2, 0), 9.0, usd=2.0),  # costs more and is not faster
        cluster((3, 0), 5.0, usd=3.0),
        cluster((4, 0), 6.0, usd=4.0),  # costs more and is slower
        cluster((5, 0), 1.0, usd=5.0, unfinished=1),
    ]
    assert [c.counts[0] for c in find_frontier(clusters, "mean")] == [1, 3]


def test_a_cluster_that_does_not_complete_every_job_is_never_the_best():
    goal = Goal(budget_usd_per_hour=10.0)
    fast, complete = cluster((2, 0), 1.0, unfinished=3), cluster((4, 0), 9.0)
    assert min((fast, complete), key=goal.rank) is complete
    assert not goal.is_met(fast)


def test_a_failed_replay_completes_no_job():
    failed = summarise_replay((2, 0), SPACE, None, jobs=7)
    assert (failed.unfinished, failed.mean_jct_s, failed.usd_per_hour) == (7, float("inf"), 2.0)


def test_changes_name_only_the_types_whose_count_differs():
    assert find_changes((4, 4, 0), (4, 0, 8), ("a", "b", "c")) == {"b": -4, "c": 8}


#: Job type ``b`` runs on the fast worker only.
TABLE = ThroughputTable(isolated={("a", 1): {"slow": 1.0, "fast": 4.0}, ("b", 1): {"fast": 4.0}})
WORKERS = ClusterSpace(types=("slow", "fast"), prices=(1.0, 2.0), node_workers=1)


def search_by_replays(job_type, jobs, start, goal):
    """Replay jobs of 3,600 steps that arrive at once."""
    trace = Trace(
        jobs=tuple(
            TraceJob(job_id=str(i), job_type=job_type, total_steps=3600.0) for i in range(jobs)
        )
    )

    def replay(clusters):
        for counts in clusters:
            request = SimulationRequest(
                trace=trace, throughputs=TABLE, cluster=WORKERS.cluster(counts), policy="fifo"
            )
            yield summarise_replay(counts, WORKERS, simulate(request).summary, jobs)

    return list(search_clusters(start, WORKERS, goal, lambda c: list(replay(c)), max_replays=40))


def test_two_fast_workers_are_better_than_four_slow_ones_at_the_same_cost():
    found = search_by_replays("a", 10, (2, 0), Goal(budget_usd_per_hour=4.0))
    best = Goal(budget_usd_per_hour=4.0).find_best(found)
    # Two fast workers complete two jobs every 900 s: 900 x (1 + ... + 5) / 5. The present two slow
    # ones complete two every 3600 s.
    assert (best.counts, best.mean_jct_s) == ((0, 2), pytest.approx(2700.0))
    assert found[0].mean_jct_s == pytest.approx(10_800.0)


def test_one_more_worker_of_the_type_that_every_job_needs_helps_most():
    found = search_by_replays("b", 4, (1, 1), Goal())
    by_counts = {c.counts: c for c in found}
    # One fast worker completes a job every 900 s: (900 + 1800 + 2700 + 3600) / 4. With two, two
    # jobs take 900 s and two 1800 s.
    assert by_counts[1, 1].mean_jct_s == pytest.approx(2250.0)
    assert by_counts[1, 2].mean_jct_s == pytest.approx(1350.0)
    assert by_counts[2, 1].mean_jct_s == pytest.approx(2250.0)
    assert by_counts[1, 0].unfinished == 4
    # The best clusters have fast workers only. Four complete all jobs at once.
    assert [c.counts for c in find_frontier(found, "mean")] == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_a_worker_type_that_no_job_uses_is_dropped():
    goal = Goal(target_s=2250.0)
    found = search_by_replays("b", 4, (2, 1), goal)
    assert found[0].mean_jct_s == pytest.approx(2250.0)
    best = goal.find_best(found)
    assert goal.is_met(best)
    assert find_changes(found[0].counts, best.counts, WORKERS.types) == {"slow": -2}


def test_a_cluster_has_nodes_of_one_type_and_the_prices_of_the_space():
    made = SPACE.cluster((3, 2))
    assert [node.workers for node in made.nodes] == [("slow",) * 2, ("slow",), ("fast",) * 2]
    assert made.cost_usd_per_hour.tolist() == [1.0, 3.0]
    assert SPACE.cluster((0, 2)).spec == SPACE.spec((0, 2)) == "fast:2"
