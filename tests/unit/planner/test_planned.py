"""Plans of jobs that give their model, and their correction by measurements."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from planner.agnostic import Agnostic
from planner.catalogue import MOST_MODELS
from planner.estimates import Estimates
from planner.estimation.estimator import Estimator
from planner.knowledge import LearnedKnowledge
from planner.planned import _PLANS, _size_of
from planner.plans.document import write_model
from planner.plans.hardware import read_hardware
from planner.plans.plan import Plan
from scheduler.domain.cluster import Cluster, Node, WorkerType
from scheduler.domain.configuration import ANYWHERE, CONSOLIDATED
from scheduler.domain.jobs.spec import LONGEST_TYPE, JobSpec
from scheduler.domain.throughputs.knowledge import Part
from scheduler.domain.throughputs.profiling import Profiling
from scheduler.domain.throughputs.ways import CatalogueKey, Source
from scheduler.errors import InputError
from scheduler.views.plan_words import plan_in_words

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
    """Return ways by demand, without those on the type that nobody knows."""
    return {way.demand: way for way in ways if not way.demand[1]}


def test_each_known_type_and_count_has_one_plan():
    found = Estimates(Estimator()).ways(key(), CLUSTER)
    assert {way.throughput for way in found if way.demand[1]} == {0}
    ways = by_demand(found)
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
    ways = Estimates(Estimator()).ways(key(worker_types=("h100",)), CLUSTER)
    assert {way.demand[2] for way in ways} == {1, 2, 8}
    ways = by_demand(Estimates(Estimator()).ways(key(GPT2 | {"precision": "bf16"}), CLUSTER))
    assert ways[1, 0, 0].throughput == 0
    assert ways[1, 0, 0].plan == ""
    assert ways[0, 0, 1].throughput > 0


def test_layers_have_their_stages_in_the_plan():
    ways = Estimates(Estimator()).ways(key(LAYERS, (2,)), CLUSTER)
    for way in by_demand(ways).values():
        assert sum(json.loads(way.plan)["stages"]) == 4


def test_measured_counts_correct_the_others_of_their_type():
    estimator = Estimator()
    source = Estimates(estimator)
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


def test_policies_that_ignore_worker_types_see_the_plans_of_equal_counts_as_equally_fast():
    source = Estimates(Estimator())
    found = by_demand(Agnostic(source).ways(key(), CLUSTER))
    aware = by_demand(source.ways(key(), CLUSTER))
    assert aware[2, 0, 0].locality != aware[0, 0, 2].locality
    for count in (1, 2, 8):
        assert found[0, 0, count].throughput == found[count, 0, 0].throughput
        assert found[count, 0, 0].throughput == aware[count, 0, 0].throughput
        assert found[0, 0, count].plan == aware[0, 0, count].plan


def test_a_dry_run_leaves_nothing_in_the_knowledge_and_few_plans(monkeypatch):
    monkeypatch.setattr("planner.planned._REMEMBERED", 9000)
    knowledge = LearnedKnowledge()
    for batch in range(1, 40):
        tried = CatalogueKey.of(spec(LAYERS | {"batch": batch}, worker_types=("h100",)))
        knowledge.plan_ahead([tried], CLUSTER.most_on_a_node)
        assert knowledge.ways(tried, CLUSTER)
    assert knowledge.profiles == len(knowledge._ways) == 0
    size = sum(map(len, _PLANS._found)) + sum(
        _size_of(found) for plans in _PLANS._found.values() for found in plans.values()
    )
    assert 0 < size == _PLANS._size <= 9000


def test_plans_of_one_model_on_many_workers_are_bounded_too(monkeypatch):
    monkeypatch.setattr("planner.planned._REMEMBERED", 9000)
    knowledge = LearnedKnowledge()
    tried = CatalogueKey.of(spec(LAYERS, scale_factors=tuple(range(1, 65))))
    for per_node in range(1, 5):
        knowledge.plan_ahead([tried], {"h100": per_node})
    assert 0 <= _PLANS._size <= 9000


def test_a_profile_changes_if_it_is_new_or_gets_its_model_back():
    knowledge = LearnedKnowledge()
    knowledge.profile_of(spec())
    knowledge.profile_of(spec())
    assert knowledge.profile_changes == 1
    again = LearnedKnowledge({Part.PROFILES: knowledge.dump(Part.PROFILES)})
    again.profile_of(spec())
    assert again.profile_changes == 1


def test_forgotten_models_are_forgotten_with_the_memory_they_lacked(monkeypatch):
    monkeypatch.setattr("planner.catalogue.MOST_MODELS", 1)
    knowledge = LearnedKnowledge()
    xl = GPT2 | {"config": GPT2["config"] | {"n_layer": 48, "n_embd": 1600, "n_head": 25}}
    found = knowledge.key(knowledge.profile_of(spec(xl)))
    plan = knowledge.plan_of(found.job_type, 2, "v100")
    assert knowledge.note_out_of_memory(found.job_type, 2, "v100", plan)
    knowledge.profile_of(spec())
    assert knowledge.forget_oldest([spec().type_key])
    assert not knowledge.forget_oldest([spec().type_key])
    assert knowledge.dump(Part.PLANS)["room"] == []


def test_a_declared_figure_counts_and_one_of_zero_means_never():
    estimator = Estimator()
    estimator.declare("gpt", 2, "v100", 0.0)
    estimator.declare("gpt", 8, "v100", 7.0)
    ways = by_demand(Estimates(estimator).ways(key(), CLUSTER))
    assert ways[2, 0, 0].throughput == 0
    assert ways[8, 0, 0].throughput == pytest.approx(7.0)
    assert ways[1, 0, 0].throughput > 0


def test_predictions_get_the_bonus_of_inferred_figures():
    plain = by_demand(Estimates(Estimator()).ways(key(), CLUSTER))
    shown = by_demand(Estimates(Estimator(), Profiling()).ways(key(), CLUSTER))
    assert shown[1, 0, 0].throughput == pytest.approx(1.5 * plain[1, 0, 0].throughput)


def test_other_jobs_have_no_plans():
    plain = CatalogueKey(job_type="gpt", scale_factors=(1,))
    ways = Estimates(Estimator()).ways(plain, CLUSTER)
    assert [(way.plan, way.locality) for way in ways] == [("", ANYWHERE)] * 3


def spec(model=GPT2, **more):
    given = {"name": "gpt", "command": ("train",), "total_steps": 9.0, "scale_factors": (1, 2)}
    return JobSpec(**given | more, model=write_model(model, place="model"))


def test_two_models_of_one_name_share_no_figures():
    other = spec(GPT2 | {"batch": 32})
    assert spec().type_key != other.type_key
    assert spec(dict(reversed(GPT2.items()))).type_key == spec().type_key
    long = spec(job_type="x" * LONGEST_TYPE)
    assert len(long.type_key) == LONGEST_TYPE
    assert long.type_key != spec(GPT2 | {"batch": 32}, job_type="x" * LONGEST_TYPE).type_key
    element = spec(job_type=spec().named_type, name="gpt[0]")  # of an array
    assert element.type_key == spec().type_key


def test_ways_say_which_figures_are_predicted_and_estimates_know_them():
    knowledge = LearnedKnowledge()
    found = knowledge.key(knowledge.profile_of(spec()))
    ways = {(way.worker_type, way.count): way for way in knowledge.ways(found, CLUSTER)}
    assert set(ways) == {(name, count) for name in ("v100", "h100") for count in (1, 2)}
    for (name, count), way in ways.items():
        assert way.estimate.source is Source.ESTIMATED
        assert way.estimate == knowledge.estimate(found.job_type, count, name)
        assert json.loads(way.plan)
    for _ in range(20):
        knowledge.observe(found.job_type, 2, "v100", 3.0 * 1000, 1000)
    ways = {(way.worker_type, way.count): way for way in knowledge.ways(found, CLUSTER)}
    assert ways["v100", 2].estimate.source is Source.MEASURED
    assert ways["v100", 2].estimate.steps_per_s == pytest.approx(3.0)
    assert ways["v100", 1].estimate.source is Source.ESTIMATED


def test_plans_that_run_out_of_memory_are_given_up_until_they_take_little_of_it():
    xl = {"n_layer": 48, "n_embd": 1600, "n_head": 25}
    knowledge = LearnedKnowledge()
    one = spec(GPT2 | {"config": GPT2["config"] | xl})
    found = knowledge.key(knowledge.profile_of(one))
    revision = knowledge.ways(found, CLUSTER)
    plans = []
    while True:
        ways = {(way.worker_type, way.count): way for way in knowledge.ways(found, CLUSTER)}
        plans.append(ways["v100", 2].plan)
        assert not knowledge.note_out_of_memory(found.job_type, 2, "v100", "another plan")
        if not knowledge.note_out_of_memory(found.job_type, 2, "v100", plans[-1]):
            break
    assert len(set(plans)) == len(plans) > 1
    assert ways["h100", 2] in revision, "other worker types keep theirs"
    again = LearnedKnowledge({part: knowledge.dump(part) for part in Part})
    again.profile_of(one)
    assert again.ways(found, CLUSTER) == knowledge.ways(found, CLUSTER)
    assert knowledge.forget(found.job_type) == 1
    assert knowledge.ways(found, CLUSTER) == revision
    assert not knowledge.note_out_of_memory("another", 2, "v100", plans[0])


def test_damaged_plans_are_refused():
    for bad in ({"version": 2, "room": []}, {"version": 1}, {"version": 1, "room": [["a"]]}):
        with pytest.raises(InputError, match="stored plans"):
            LearnedKnowledge({Part.PLANS: bad})


def test_a_plan_is_shown_in_words_and_the_text_of_another_source_as_it_is():
    text = Estimates(Estimator()).ways(key(), CLUSTER)[1].plan
    assert plan_in_words(text) == str(Plan(**json.loads(text)))
    for other in ("", "tensor=2", '{"tensor": 2}', "[1]", "3", "[" * 100_000, "\ud800"):
        assert plan_in_words(other) == other


def test_a_model_that_fits_nowhere_says_why():
    huge = {
        "batch": 8,
        "precision": "fp16",
        "config": GPT2["config"] | {"n_embd": 16384, "n_layer": 200},
    }
    knowledge = LearnedKnowledge()
    found = knowledge.key(knowledge.profile_of(spec(huge)))
    assert knowledge.ways(found, CLUSTER) == ()
    told = knowledge.misfit(found, CLUSTER)
    assert "v100: " in told
    assert "GB too much" in told
    assert "abacus: no accelerator is named 'abacus'" in told
    other = knowledge.key(knowledge.profile_of(replace(spec(), model="")))
    assert knowledge.misfit(other, CLUSTER) == ""


def test_a_stored_profile_has_the_digest_of_its_model_until_a_job_brings_the_model():
    knowledge = LearnedKnowledge()
    plain = replace(spec(), model="", name="x")
    assert [knowledge.profile_of(one) for one in (plain, spec(), plain)] == [0, 1, 0]
    dump = json.loads(json.dumps(knowledge.dump(Part.PROFILES)))
    assert "model" not in dump["profiles"][0]  # an older release reads it
    assert len(json.dumps(dump)) < 600
    again = LearnedKnowledge({Part.PROFILES: dump})
    assert again.ways(again.key(1), CLUSTER) == ()
    assert again.profile_of(spec()) == 1
    assert again.key(1) == knowledge.key(1)
    assert again.ways(again.key(1), CLUSTER) == knowledge.ways(knowledge.key(1), CLUSTER) != ()
    assert again.profiles == 2


def test_models_of_ended_jobs_are_forgotten_if_there_are_many_and_keep_their_profiles():
    knowledge = LearnedKnowledge()
    specs = [
        spec(LAYERS | {"batch": batch}, scale_factors=(1,), worker_types=("h100",))
        for batch in range(1, MOST_MODELS + 2)
    ]
    profiles = [knowledge.profile_of(one) for one in specs]
    knowledge.table(CLUSTER)
    knowledge.forget_oldest([specs[0].type_key])
    known = [knowledge.key(profile).model.startswith("{") for profile in profiles]
    assert known[0]
    assert not any(known[1 : MOST_MODELS // 2])
    assert known[-1]
    assert knowledge.table(CLUSTER).profiles[1].configurations[0].throughput == 0
    assert knowledge.profile_of(specs[1]) == 1
    assert knowledge.table(CLUSTER).profiles[1].configurations[0].throughput > 0


def test_accelerators_of_an_operator_are_planned_too():
    abacus = {
        "tflops": {"fp16": 500},
        "memory_gb": 96,
        "memory_gb_per_s": 3000,
        "link_gb_per_s": 200,
        "per_node": 4,
        "network_gb_per_s": 50,
    }
    hardware = read_hardware({"abacus": abacus}, place="hardware.yaml")
    types = [
        {name for way in known.ways(key(), CLUSTER) if way.plan for name in way.workers}
        for known in (LearnedKnowledge(), LearnedKnowledge(hardware=hardware))
    ]
    assert types[1] - types[0] == {"abacus"}
