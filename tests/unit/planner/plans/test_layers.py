"""Models as lists of layers: reading, cutting into stages, time and memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plans.cost import Rates
from planner.plans.hardware import read_hardware
from planner.plans.layers import read_layer_table, read_layers
from planner.plans.memory import RESERVE
from planner.plans.plan import Plan
from planner.plans.ranking import USABLE, best_layered_plan
from planner.plans.stages import LayeredPlans, StagedPlan, cut, pipeline_times
from planner.plans.training import LayeredTraining
from scheduler.errors import InputError

V100 = read_hardware().find("v100")
SIZES = {"parameters": 1e7, "kept_bytes": 4e7, "output_bytes": 1e6}
LAYERS = [
    {"name": "embedding", **SIZES, "flops": 1e6},
    {"name": "block", "repeat": 6, **SIZES, "flops": 1e10},
    {"name": "head", **SIZES, "flops": 3e10},
]
TIMES = {
    "worker_type": "V100",
    "microbatch": 2,
    "forward_s": [0.001, 0.002, 0.006],
    "backward_s": [0.0, 0.004, 0.012],
    "update_s": [0.001, 0.002, 0.001],
}


def model(measured=(), layers=LAYERS, **more):
    document = {"layers": layers, "measured": list(measured), **more}
    return read_layers(document, name="m", place="m.yaml")


def plans(measured=(), batch=32, layers=LAYERS):
    training = LayeredTraining(model=model(measured, layers), batch=batch, precision="fp32")
    return LayeredPlans(training, "v100", V100, Rates())


def best(count, measured=(), batch=32, **more):
    training = LayeredTraining(model=model(measured, **more), batch=batch, precision="fp32")
    return best_layered_plan(LayeredPlans(training, "v100", V100, Rates()), count)


def test_entries_stand_for_as_many_layers_as_they_repeat():
    read = model([TIMES])
    assert read.layers == 8
    assert read.parameters == 8e7
    times = read.measured["v100"][1, 2]
    assert times.forward_s.tolist() == [0.001, *[0.002] * 6, 0.006]
    assert times.parameters.tolist() == [1e7] * 8


def test_a_worker_of_a_tensor_group_has_an_even_share_unless_it_is_said():
    even, said = (
        model([TIMES | {"tensor": 2} | more]).measured["v100"][2, 2]
        for more in ({}, {"kept_bytes": [1, 2, 3]})
    )
    assert set(even.kept_bytes) == {2e7}
    assert said.kept_bytes.tolist() == [1, *[2] * 6, 3]
    assert set(said.parameters) == {5e6}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"layers": []}, "m.yaml: layers is []"),
        ({}, "m.yaml: Object missing required field `layers`"),
        ({"layers": [SIZES | {"repeat": 0}]}, "layers[0].repeat is 0"),
        ({"layers": [SIZES | {"parameters": -1}]}, "layers[0].parameters is -1"),
        ({"layers": [SIZES | {"colour": 1}]}, "unknown field `colour`"),
        ({"layers": [SIZES | {"repeat": 513}]}, "layers are 513; there may be 512"),
        (
            {"layers": LAYERS, "measured": [TIMES | {"forward_s": [1.0]}]},
            "measured[0].forward_s has 1 values; there are 3 entries of layers",
        ),
        (
            {"layers": LAYERS, "measured": [TIMES, TIMES]},
            "measured[1] repeats worker_type 'V100' with tensor 1 and microbatch 2",
        ),
    ],
)
def test_what_cannot_be_used_is_named(document, said):
    with pytest.raises(InputError) as error:
        read_layers(document, name="m", place="m.yaml")
    assert said in str(error.value)


def test_a_table_is_the_same_as_a_document():
    text = "name,repeat,parameters,flops,kept_bytes,output_bytes\n" + "".join(
        f"{one['name']},{one.get('repeat', '')},1e7,{one['flops']},4e7,1e6\n" for one in LAYERS
    )
    document = read_layer_table(text, place="m.csv")
    read = read_layers(document, name="m", place="m.csv")
    assert np.array_equal(read.flops, model().flops)
    assert read.layers == 8
    assert read_layer_table(text.replace("\n", "\r"), place="m.csv") == document
    document = read_layer_table("parameters\nmany\n", place="m.csv")
    with pytest.raises(InputError, match=r"m.csv: layers\[0\].parameters is 'many'"):
        read_layers(document, name="m", place="m.csv")
    for broken, said in (
        ("a\n1,2\n", "m.csv:2: more cells"),
        ("a\n" + "1" * 200_000, "m.csv:1: field"),
    ):
        with pytest.raises(InputError, match=said):
            read_layer_table(broken, place="m.csv")


@given(
    st.lists(st.floats(0.0, 100.0), min_size=1, max_size=9),
    st.integers(1, 4),
    st.lists(st.integers(1, 9), min_size=9, max_size=9),
)
def test_no_other_cut_that_is_allowed_has_a_cheaper_dearest_stage(costs, stages, reaches):
    stages = min(stages, len(costs))

    def spans(ends):
        borders = [0, *ends, len(costs)]
        return list(pairwise(borders))

    def dearest(ends):
        return max(sum(costs[begin:end]) for begin, end in spans(ends))

    def reach(stage, begin):  # monotone: later stages and later begins reach at least as far
        return begin + max(reaches[: begin + stage + 1])

    every = list(combinations(range(1, len(costs)), stages - 1))
    found = cut(np.array(costs), stages)
    assert sum(found) == len(costs)
    assert min(found) >= 1
    assert dearest(np.cumsum(found)[:-1].tolist()) == pytest.approx(min(map(dearest, every)))

    allowed = [
        ends
        for ends in every
        if all(end <= reach(i, begin) for i, (begin, end) in enumerate(spans(ends)))
    ]
    found = cut(np.array(costs), stages, reach)
    assert bool(found) == bool(allowed)
    if allowed:
        ends = np.cumsum(found)[:-1].tolist()
        assert tuple(ends) in allowed
        assert dearest(ends) == pytest.approx(min(map(dearest, allowed)))


def test_the_slowest_stage_sets_the_pace():
    # By hand: stages of 2, 3 and 1 seconds; boundaries of 0.5 and 0.2; four microbatches.
    found = pipeline_times(4, np.array([2.0, 3.0, 1.0]), np.array([0.5, 0.2]))
    assert found.pace == 1
    assert found.compute_s == 12.0
    assert found.pipeline_s == 2.0
    assert found.bubble_s == pytest.approx(2.0 + 1.0 + 0.2)


def test_a_step_of_one_worker_is_the_sum_of_its_layers():
    staged = StagedPlan(plan=Plan(microbatch=2), stages=(8,))
    times = plans([TIMES], batch=8).step_times([staged])
    added_s = 3 * 4 * 8e7 / (900e9 * Rates().memory)
    passes_s = 0.001 + 6 * 0.006 + 0.018
    assert times.compute_s[0] == pytest.approx(4 * passes_s + 3 * added_s)
    assert times.update_s[0] == pytest.approx(0.001 + 6 * 0.002 + 0.001 + Rates().step_s)
    again = plans([TIMES], batch=8).step_times(
        [StagedPlan(plan=Plan(microbatch=2, recompute=True), stages=(8,))]
    )
    assert again.compute_s[0] - times.compute_s[0] == pytest.approx(4 * (0.001 + 0.012 + 0.006))


def test_stages_hold_as_many_microbatches_as_follow():
    # By hand: 4 bytes of weights, 4 of gradients, 8 of Adam; two samples of 4e7 bytes a layer.
    plan = Plan(pipeline=2, microbatch=2)
    found = plans([TIMES]).memory([StagedPlan(plan=plan, stages=(4, 4))], reserve=0)
    assert found.weights[0] == 4 * 4e7
    assert found.optimiser[0] == 8 * 4e7
    assert found.activations[0] == 2 * 4 * 2 * 4e7
    again = Plan(pipeline=2, microbatch=2, recompute=True)
    found = plans([TIMES]).memory([StagedPlan(plan=again, stages=(4, 4))], reserve=0)
    assert found.activations[0] == 2 * 3 * 2e6 + 2 * 4e7  # inputs in flight, and one layer whole


def test_every_plan_divides_what_it_splits():
    found = plans([TIMES, TIMES | {"tensor": 2}, TIMES | {"microbatch": 4}]).enumerate(8, 15e9)
    assert len({(one.plan, one.stages) for one in found}) == len(found) > 20
    for one in found:
        assert one.plan.workers == 8
        assert (one.plan.tensor, one.plan.microbatch) in {(1, 2), (2, 2), (1, 4)}
        assert sum(one.stages) == 8
        assert len(one.stages) == one.plan.pipeline
        assert 32 % (one.plan.data * one.plan.microbatch) == 0


#: The last layers take most of the time and keep little.
LATE = [
    {"repeat": 6, "parameters": 1e6, "flops": 1e9, "kept_bytes": 1e9, "output_bytes": 1e6},
    {"repeat": 2, "parameters": 1e6, "flops": 1e11, "kept_bytes": 1e8, "output_bytes": 1e6},
]


@pytest.mark.parametrize(
    ("usable", "stages"),
    [
        (16e9, [(7, 1)]),  # 12.2 GB on the first stage, which has two microbatches in flight
        (11e9, [(7, 1), (5, 3)]),  # 10 GB: the fastest cut that fits
        (9e9, [(7, 1), (4, 4)]),
        (2e9, [(7, 1), (2, 6)]),  # none fits; 4.2 GB is the least
    ],
)
def test_the_fastest_cut_that_fits_is_found(usable, stages):
    plan = Plan(pipeline=2, microbatch=1)
    found = plans(layers=LATE, batch=8).enumerate(2, usable + RESERVE)
    assert [one.stages for one in found if one.plan == plan] == stages


def test_a_cut_counts_the_second_forward_pass():
    measured = TIMES | {"microbatch": 1, "forward_s": [3, 1, 1], "backward_s": [0, 2, 2]}
    layers = [SIZES, SIZES | {"repeat": 3}, SIZES]
    found = plans([measured], layers=layers).enumerate(2, 1e12)
    stages = {one.plan.recompute: one.stages for one in found if one.plan.pipeline == 2}
    assert stages == {False: (3, 2), True: (2, 3)}


@pytest.mark.parametrize("plan", [Plan(), Plan(recompute=True), Plan(data=4, zero=3)])
@given(data=st.data())
def test_memory_is_that_of_the_fullest_stage(plan, data):
    sizes = st.floats(1e6, 1e8)
    layers = [
        {"parameters": data.draw(sizes), "kept_bytes": data.draw(sizes), "output_bytes": 1e6}
        for _ in range(6)
    ]
    one = replace(plan, pipeline=2 if plan.data == 1 else 1)
    first = data.draw(st.integers(1, 5)) if one.pipeline == 2 else 6
    stages = (first, 6 - first) if one.pipeline == 2 else (6,)
    staged = StagedPlan(plan=one, stages=stages)
    totals = []
    for i, (begin, end) in enumerate(((0, first), (first, 6))[: one.pipeline]):
        params = [layer["parameters"] for layer in layers[begin:end]]
        kept = [layer["kept_bytes"] for layer in layers[begin:end]]
        total = 16 * sum(params) / one.data
        if one.zero == 3:
            total += 12 * max(params)
        flight = one.pipeline - i
        if one.recompute:
            inputs = sum(1e6 for k in range(begin, end) if k)
            total += flight * inputs + max(kept)
        else:
            total += flight * sum(kept)
        totals.append(total)
    found = plans(layers=layers, batch=8).memory([staged], reserve=0)
    assert found.total[0] == pytest.approx(max(totals))


def test_the_best_plan_fits_and_names_its_stages():
    way = best(4, [TIMES])
    assert way.fits
    assert way.is_measured
    assert sum(way.stages) == 8
    assert sum(way.parts.values()) == pytest.approx(way.step_s)
    assert sum(way.memory.values()) <= USABLE * 16e9
    assert not best(4).is_measured
    assert best(4).step_s > 0


def test_why_there_is_no_plan_is_said():
    assert best(16, [TIMES], batch=1).reason == (
        "8 layers and a batch of 1 cannot be split evenly over 16 workers; measured are tp1 b2"
    )
    bare = [{key: value for key, value in one.items() if key != "flops"} for one in LAYERS]
    assert best(1, layers=bare).reason == (
        "the model's layers have no flops, and were not measured on such workers"
    )


def test_more_flops_and_a_slower_memory_take_longer():
    slow = best(1).step_s
    twice = [one | {"flops": 2 * one["flops"]} for one in LAYERS]
    assert best(1, layers=twice).step_s > 1.5 * slow
