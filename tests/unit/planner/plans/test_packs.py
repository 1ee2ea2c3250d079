"""Packs of layers that take turns on workers: their simulation, their search, and swap volumes."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest

from leasehold_testing.planning_data import (
    HARMONY_BEST,
    harmony_best_s,
    harmony_model,
    harmony_rules,
    harmony_step_s,
)
from planner.plans.pack_search import best_packed_plan
from planner.plans.packs import (
    PackedModel,
    PackedPlan,
    SwapLinks,
    Traffic,
    at_microbatch,
    step_s,
    swap_traffic,
)
from scheduler.errors import InputError

LINKS = SwapLinks(swap=10.0, peer=20.0, host=40.0, pack_s=0.5)


def model(layers=4, *, inputs=0.0, seed=None):
    """Return a model whose layers are alike, or drawn."""
    rng = np.random.default_rng(seed)
    size = np.ones(layers) if seed is None else rng.uniform(0.5, 2.0, layers)
    return PackedModel(
        weight_bytes=10.0 * size,
        input_bytes=inputs * size,
        forward_s={1: size, 2: 1.5 * size, 4: 2.5 * size},
        backward_s={1: 3.0 * size, 2: 4.5 * size, 4: 7.5 * size},
        update_s=2.0 * size,
        forward_memory={1: 15.0 * size, 2: 20.0 * size, 4: 30.0 * size},
        backward_memory={1: 30.0 * size, 2: 40.0 * size, 4: 60.0 * size},
    )


def plan(forward, backward, *, pipeline=False, ours=1, theirs=1):
    return PackedPlan(
        pipeline=pipeline,
        forward=forward,
        forward_samples=ours,
        backward=backward,
        backward_samples=theirs,
    )


def test_one_pack_on_one_worker_does_one_thing_after_another():
    took = step_s(model(1), plan((), (1,)), workers=1, batch=1, links=LINKS)
    weights_s, forward_s, backward_s, update_s = 10.0 / 10.0, 1.0, 2.0, 2.0
    assert took == pytest.approx(2 * weights_s + forward_s + backward_s + update_s)


def test_two_packs_bring_their_weights_again_for_the_backward_pass():
    took = step_s(model(2), plan((1,), (1, 2)), workers=1, batch=1, links=LINKS)
    first = 1.0 + 1.0 + 0.5  # weights, forward, dropped
    last = 1.0 + 1.0 + 2.0 + 1.0 + 0.5  # weights, both passes, gradients, dropped
    again = 1.0 + 1.0 + 2.0 + 1.0 + 2.0  # the same, and the update of the host
    assert took == pytest.approx(first + last + again)


def test_inputs_are_stored_and_brought_back():
    plain, moved = (
        step_s(model(2, inputs=size), plan((1,), (1, 2)), workers=1, batch=1, links=LINKS)
        for size in (0.0, 10.0)
    )
    # In, stored and out; in; out; stored input and gradient in. The first input has no gradient.
    assert moved - plain == pytest.approx(7.0)


def test_workers_share_the_host_and_add_up_gradients():
    one, two = (
        step_s(model(1), plan((), (1,)), workers=workers, batch=workers, links=LINKS)
        for workers in (1, 2)
    )
    assert two - one == pytest.approx(2 * 1.0 + 10.0 / 20.0)


def test_packs_on_two_workers_overlap_in_a_pipeline():
    cut = plan((1, 2, 3), (1, 2, 3, 4), pipeline=True)
    free = replace(LINKS, swap=1e9, pack_s=0.0)
    one, two = (step_s(model(), cut, workers=n, batch=4, links=free) for n in (1, 2))
    assert two < one


def fits(drawn, one, memory):
    """Return whether the packs of both passes fit; each brings the input of its first layer."""
    passes = (
        (one.backward, drawn.backward_memory[one.backward_samples], one.backward_samples),
        (one.forward, drawn.forward_memory[one.forward_samples], one.forward_samples),
    )
    return all(
        sizes[a:b].sum() - samples * drawn.input_bytes[a + 1 : b].sum() < memory
        for ends, sizes, samples in passes
        for a, b in pairwise((0, *ends))
    )


@pytest.mark.parametrize("pipeline", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_plan_fits_and_is_near_the_best_of_all_cuts(seed, pipeline):
    drawn, memory = model(5, inputs=2.0, seed=seed), 120.0
    how = {"workers": 2, "batch": 4, "links": LINKS}
    found, best = best_packed_plan(drawn, pipeline=pipeline, memory=memory, **how)
    assert found == step_s(drawn, best, **how)
    assert fits(drawn, best, memory)
    cuts = [(*some, 5) for size in range(5) for some in combinations(range(1, 5), size)]
    every = (
        plan(backward[:-1], backward, pipeline=pipeline, ours=size, theirs=size)
        for backward in cuts
        for size in (1, 2)
    )
    least = min(step_s(drawn, one, **how) for one in every if fits(drawn, one, memory))
    assert found <= 1.1 * least


def test_a_layer_that_does_not_fit_leaves_no_plan():
    how = {"workers": 2, "batch": 4, "links": LINKS}
    assert best_packed_plan(model(), pipeline=True, memory=29.0, **how) is None
    assert best_packed_plan(model(), pipeline=True, memory=31.0, **how) is not None


def test_microbatches_of_other_sizes_go_over_the_host_one_after_another():
    cut = plan((2,), (1, 2, 3), pipeline=True, ours=2, theirs=1)
    drawn = model(3, inputs=10.0)
    took = step_s(drawn, cut, workers=2, batch=2, links=replace(LINKS, swap=40.0, pack_s=0.0))
    # For a sample of an input: 0.5 s to the host or to the other worker, 1 s as a message. Worker 0
    # stores layer 0 from 2 to 3 s for worker 1, and layer 1 for itself. Its output is out at 8 s,
    # and there for worker 1 at 9 and 10 s, which runs both passes of layer 2 until 16 s. Worker 0
    # ends layer 1 at 19 s, worker 1 layer 0 at 25 s; gradients take 0.5 s more, the update 2 s.
    assert took == pytest.approx(27.5)


def test_workers_without_packs_do_not_share_the_host():
    two, four = (
        step_s(model(1), plan((), (1,), pipeline=True), workers=n, batch=1, links=LINKS)
        for n in (1, 4)
    )
    assert two == four


def test_more_bandwidth_makes_steps_faster():
    drawn = model(6, inputs=2.0, seed=1)
    how = {"pipeline": True, "workers": 2, "batch": 4}
    narrow, _ = best_packed_plan(drawn, memory=100.0, links=LINKS, **how)
    wide, _ = best_packed_plan(drawn, memory=100.0, links=replace(LINKS, swap=20.0), **how)
    assert wide < narrow


@pytest.mark.parametrize(
    ("forward", "backward", "ours", "theirs", "batch"),
    [
        ((1,), (2, 4), 1, 1, 4),  # the forward pass ends elsewhere
        ((2,), (2, 3), 1, 1, 4),  # a layer is left out
        ((), (), 1, 1, 4),
        ((2,), (2, 4), 1, 2, 4),  # a microbatch that holds half a one
        ((2,), (2, 4), 2, 2, 5),
        ((2,), (2, 4), 4, 4, 6),
    ],
)
def test_plans_that_are_none_are_refused(forward, backward, ours, theirs, batch):
    cut = plan(forward, backward, ours=ours, theirs=theirs)
    with pytest.raises(InputError, match=r"packs end at|whole microbatches"):
        step_s(model(), cut, workers=1, batch=batch, links=LINKS)


def test_what_was_not_measured_is_refused():
    measured = {2: np.array([1.0]), 4: np.array([2.0])}
    assert at_microbatch(measured, 3) == pytest.approx([1.5])
    for samples in (1, 5):
        with pytest.raises(InputError, match=f"a microbatch of {samples} samples was not measured"):
            at_microbatch(measured, samples)
    with pytest.raises(InputError, match="no equal parts"):
        best_packed_plan(model(), pipeline=False, workers=2, batch=5, memory=99.0, links=LINKS)


def test_swap_volumes_are_those_of_the_published_table():
    many = {"workers": 4, "microbatches": 8, "layers": 24}
    found = {
        (packed, pipeline): swap_traffic(packed=packed, pipeline=pipeline, **many)
        for packed in (False, True)
        for pipeline in (False, True)
    }
    assert found == {
        (False, False): Traffic(40, 24, 8, 16, reduced=4),
        (True, False): Traffic(12, 0, 8, 16, reduced=4),
        (False, True): Traffic(34, 18, 2, 16, peer=1),
        (True, True): Traffic(3, 0, 2, 16, peer=8),
    }


@pytest.mark.data
@pytest.mark.parametrize(
    "best", HARMONY_BEST, ids=lambda best: f"{best.model}-{best.plan.pipeline}"
)
def test_the_authors_best_plans_take_as_long_as_they_predict(shared_data, best):
    found = harmony_step_s(harmony_model(shared_data / "harmony", best.model), best.plan)
    # Of resnet1026, profiles lack the inputs and some microbatches.
    close = {"rel": 0.01} if best.model == "resnet1026" else {"abs": 0.0006}
    assert found == pytest.approx(best.predicted_s, **close)


@pytest.mark.data
@pytest.mark.parametrize("name", dict.fromkeys(best.model for best in HARMONY_BEST))
def test_the_search_finds_plans_as_fast_as_the_authors(shared_data, name):
    found = harmony_model(shared_data / "harmony", name)
    theirs = [best.predicted_s for best in HARMONY_BEST if best.model == name]
    same = [harmony_best_s(found, pipeline=p, rules=harmony_rules(name)) for p in (False, True)]
    assert same == pytest.approx(theirs, rel=0.01)
    assert same[1] < same[0], "the pipeline is faster"
