# ruff: noqa: D103  names of tests are sentences
"""The example source, as the service asks it."""

from __future__ import annotations

from planner.knowledge import LearnedKnowledge
from planner.registry import make_sources
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.jobs.spec import JobSpec


def manners_of(cluster: str, *, workers_per_node: int) -> list[tuple[str, str, float]]:
    knowledge = LearnedKnowledge(sources=make_sources(["tensor_split"]))
    spec = JobSpec(
        name="x", command=("train",), job_type="llm-7b", scale_factors=(4, 8), total_steps=1e3
    )
    knowledge.profile_of(spec)
    table = knowledge.table(parse_cluster_spec(cluster, workers_per_node=workers_per_node))
    ways = table.profiles[0].configurations
    return [(way.locality, way.plan, way.throughput) for way in ways if way.plan]


def test_a_job_has_its_splits_beside_what_is_estimated() -> None:
    assert manners_of("a100:8,t4:8", workers_per_node=8) == [
        ("consolidated", "tensor=4", 3.1),
        ("consolidated", "tensor=8", 5.6),
    ]


def test_a_split_that_no_node_is_large_enough_for_has_no_throughput() -> None:
    assert manners_of("a100:8", workers_per_node=4) == [
        ("consolidated", "tensor=4", 3.1),
        ("consolidated", "tensor=8", 0.0),
    ]
