"""How layers are spread over the stages of a plan; PyTorch is not needed for it."""

from __future__ import annotations

import pytest

from leasehold import Plan
from leasehold.torch.planned import _cut


class Embedding: ...


class Block: ...


class Head: ...


LAYERS = [Embedding, *[Block] * 4, Head, Head]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (Plan(), [range(7)]),
        (Plan(pipeline=2), [range(3), range(3, 7)]),
        (Plan(pipeline=2, chunks=2), [range(2), range(2, 3), range(3, 4), range(4, 7)]),
        (Plan(pipeline=3, stages=(1, 5, 1)), [range(1), range(1, 6), range(6, 7)]),
    ],
)
def test_equal_layers_are_spread_evenly_and_the_others_go_to_the_ends(
    plan: Plan, expected: list[range]
) -> None:
    assert _cut(LAYERS, plan) == expected


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(pipeline=3), "4 equal layers in a row; they do not split into 3 chunks"),
        (Plan(pipeline=4, chunks=2), "do not split into 8 chunks"),
        (Plan(pipeline=2, stages=(4, 4)), "are 4, 4, together 8 layers; the module has 7"),
    ],
)
def test_layers_that_cannot_be_spread_are_refused(plan: Plan, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        _cut(LAYERS, plan)
