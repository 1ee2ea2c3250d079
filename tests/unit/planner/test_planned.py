"""Plans of jobs that give their model, and their correction by measurements."""

from __future__ import annotations

import json

import pytest

from planner.catalogue import Catalogue
from planner.estimates import Estimates
from planner.estimation.estimator import Estimator
from planner.planned import Planned
from planner.plans.plan import Plan
from scheduler.domain.cluster import Cluster, Node, WorkerType
from scheduler.domain.configuration import ANYWHERE, CONSOLIDATED
from scheduler.domain.throughputs.ways import CatalogueKey

GPT2 = {
    "batch": 64,
    "precision": "fp16",
    "config": {
        "model_type": "gpt2",
        "n_layer": 24,
        "n_embd": 1024,
        "n_head": 16,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
}
LAYERS = {
    "batch": 8,
    "layers": [
        {"repeat": 4, "parameters": 1e6, "kept_bytes": 1e6, "output_bytes": 1e4, "flops": 1e9}
    ],
}
CLUSTER = Cluster(
    worker_types=tuple(WorkerType(name=name) for name in ("v100", "abacus", "h100")),
    nodes=(
        Node(name="a", workers=("v100",) * 4),
        Node(name="b", workers=("v100",) * 4),
        Node(name="c", workers=("h100", "abacus")),
    ),
)


def key(model=GPT2, counts=(1, 2, 8), **more):
    return CatalogueKey(job_type="gpt", scale_factors=counts, model=json.dumps(model), **more)


def by_demand(ways):
    return {way.demand: way for way in ways}


def test_each_known_type_and_count_has_one_plan():
    ways = by_demand(Planned(Estimator()).ways(key(), CLUSTER))
    assert list(ways) == [
        *((1, 0, 0), (2, 0, 0), (8, 0, 0)),
        *((0, 0, 1), (0, 0, 2), (0, 0, 8)),
    ]
    for demand, way in ways.items():
        plan = json.loads(way.plan)
        assert Plan(**plan).workers == sum(demand)
        assert way.throughput > 0
    assert ways[2, 0, 0].locality == CONSOLIDATED
    assert ways[8, 0, 0].locality == ANYWHERE  # no node has eight
    assert ways[0, 0, 1].throughput > 3 * ways[1, 0, 0].throughput


def test_types_that_a_job_does_not_allow_and_precisions_that_a_type_lacks_have_none():
    ways = Planned(Estimator()).ways(key(worker_types=("h100",)), CLUSTER)
    assert {way.demand[2] for way in ways} == {1, 2, 8}
    ways = by_demand(Planned(Estimator()).ways(key(GPT2 | {"precision": "bf16"}), CLUSTER))
    assert ways[1, 0, 0].throughput == 0
    assert ways[1, 0, 0].plan == ""
    assert ways[0, 0, 1].throughput > 0


def test_layers_have_their_stages_in_the_plan():
    ways = Planned(Estimator()).ways(key(LAYERS, (2,)), CLUSTER)
    for way in ways:
        assert sum(json.loads(way.plan)["stages"]) == 4


def test_measured_counts_correct_the_others_of_their_type():
    estimator = Estimator()
    source = Planned(estimator)
    before = by_demand(source.ways(key(), CLUSTER))
    revision = source.revision(key(), CLUSTER)
    for _ in range(20):
        estimator.observe("gpt", 2, "v100", 0.5 * before[2, 0, 0].throughput * 1000, 1000)
    assert source.revision(key(), CLUSTER) != revision
    after = by_demand(source.ways(key(), CLUSTER))
    for demand, way in after.items():
        factor = 0.5 if demand[0] else 1.0
        assert way.throughput == pytest.approx(factor * before[demand].throughput)
        assert way.plan == before[demand].plan
    assert after[8, 0, 0].doubt < before[8, 0, 0].doubt
    assert after[2, 0, 0].doubt < after[8, 0, 0].doubt


def test_other_jobs_have_no_plans_and_such_jobs_no_estimates():
    plain = CatalogueKey(job_type="gpt", scale_factors=(1,))
    assert Planned(Estimator()).ways(plain, CLUSTER) == ()
    assert Estimates(Estimator()).ways(key(), CLUSTER) == ()
    assert len(Estimates(Estimator()).ways(plain, CLUSTER)) == 3


def test_a_stored_profile_has_its_model():
    catalogue = Catalogue()
    catalogue._keys += [key(), CatalogueKey(job_type="x", scale_factors=(1,))]
    dump = json.loads(json.dumps(catalogue.dump()))
    assert "model" not in dump["profiles"][1]  # an older release reads it
    assert Catalogue.restore(dump).keys == catalogue.keys
