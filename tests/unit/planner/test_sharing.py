"""Costs of sharing: declared in one order, known in both, and kept over a restart."""

import pytest

from planner.knowledge import LearnedKnowledge
from planner.sharing import SharingCosts
from scheduler.domain.throughputs.knowledge import Part
from scheduler.domain.throughputs.throughput import ThroughputTable
from scheduler.errors import InputError

BERT, VGG = ("bert", 1), ("vgg", 1)


def test_costs_are_known_in_both_orders_and_a_repeated_figure_is_no_news() -> None:
    costs = SharingCosts()
    assert costs.declare(BERT, VGG, "v100", (0.9, 0.7))
    assert not costs.declare(BERT, VGG, "v100", (0.9, 0.7))
    assert not costs.declare(VGG, BERT, "v100", (0.7, 0.9))
    assert costs.of(VGG, BERT) == {"v100": (0.7, 0.9)}
    assert costs.of(BERT, BERT) == {}
    assert costs.knows(VGG)
    assert not costs.knows(("vgg", 2))
    assert costs.declare(BERT, VGG, "v100", (0.8, 0.7))
    assert list(costs.known()) == [(BERT, VGG, "v100", (0.8, 0.7))]


def test_costs_of_a_table_are_parts_of_the_speeds_alone() -> None:
    alone = {BERT: {"v100": 4.0, "t4": 2.0}, VGG: {"v100": 10.0, "k80": 1.0, "t4": 0.0}}
    both = {"v100": (3.0, 6.0), "t4": (1.0, 1.0), "k80": (1.0, 0.5)}
    mirrored = {name: (other, one) for name, (one, other) in both.items()}
    table = ThroughputTable(
        isolated=alone, shared={(BERT, VGG): both, (VGG, BERT): mirrored, (BERT, BERT): both}
    )
    assert list(table.sharing()) == [
        (BERT, VGG, "v100", (0.75, 0.6)),  # on the others one of them does not run alone
        (BERT, BERT, "v100", (0.75, 1.5)),
        (BERT, BERT, "t4", (0.5, 0.5)),
    ]
    assert sorted(table.alone()) == [
        ("bert", 1, "t4", 2.0),
        ("bert", 1, "v100", 4.0),
        ("vgg", 1, "k80", 1.0),
        ("vgg", 1, "t4", 0.0),  # the service has to know that it does not run there
        ("vgg", 1, "v100", 10.0),
    ]


def test_costs_are_kept_over_a_restart() -> None:
    knowledge = LearnedKnowledge()
    assert knowledge.declare_sharing(BERT, VGG, "v100", (0.9, 0.7))
    kept = {part: knowledge.dump(part) for part in Part}
    assert list(LearnedKnowledge(kept).sharing()) == [(BERT, VGG, "v100", (0.9, 0.7))]
    del kept[Part.SHARING]  # a database of the release before
    assert list(LearnedKnowledge(kept).sharing()) == []


@pytest.mark.parametrize("data", [{"version": 2}, {"version": 1, "pairs": [["bert", 1]]}])
def test_damaged_costs_are_refused(data) -> None:
    with pytest.raises(InputError, match="costs of sharing"):
        SharingCosts.restore(data)
