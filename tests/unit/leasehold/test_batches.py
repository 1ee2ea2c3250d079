"""Global batches: the same samples in each step at every number of processes."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold import GlobalBatches

SIZES = st.integers(1, 40)


def gang(world_size, **fields):
    return [GlobalBatches(rank=r, world_size=world_size, **fields) for r in range(world_size)]


def samples_of(ranks, step):
    return [sample for batches in ranks for sample in batches.at(step).samples]


@given(
    total=st.integers(1, 60), size=st.integers(8, 40), most=SIZES, seed=st.integers(0, 9),
    sizes=st.lists(st.integers(1, 8), min_size=2, max_size=6),
)  # fmt: skip
def test_a_step_has_the_same_samples_at_every_number_of_processes(total, size, most, seed, sizes):
    fields = {"total": total, "size": size, "most_per_pass": most, "seed": seed}
    for step, world_size in enumerate(sizes):
        alone = samples_of(gang(1, **fields), step)
        assert samples_of(gang(world_size, **fields), step) == alone


@given(
    total=st.integers(1, 40), size=st.integers(8, 30),
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=12),
)  # fmt: skip
def test_every_sample_comes_once_per_epoch_though_the_gang_is_resized(total, size, sizes):
    seen = [
        sample
        for step, world_size in enumerate(itertools.islice(itertools.cycle(sizes), 2 * total))
        for sample in samples_of(gang(world_size, total=total, size=size, most_per_pass=4), step)
    ]
    for begin in range(0, len(seen) - total + 1, total):
        assert sorted(seen[begin : begin + total]) == list(range(total))


@given(
    size=st.integers(8, 200), most=SIZES, paces=st.lists(st.floats(0.1, 10.0), max_size=8),
    world_size=st.integers(1, 8),
)  # fmt: skip
def test_every_sample_counts_the_same(size, most, paces, world_size):
    if paces:
        world_size = len(paces)
    ranks = gang(world_size, total=1000, size=size, most_per_pass=most, paces=paces)
    assert sum(ranks[0].shares) == size
    counts = []
    for batches in ranks:
        batch = batches.at(3)
        assert len(batch.samples) == batches.shares[batches.rank] >= 1
        assert 1 <= len(batch.passes) <= batches.accumulation
        for part in batch.passes:
            assert 1 <= len(part.samples) <= most
            # The mean loss of the pass, times its weight, averaged over the processes.
            each = Fraction(part.weight).limit_denominator(10**6) / len(part.samples) / world_size
            counts += [each] * len(part.samples)
    assert counts == [Fraction(1, size)] * size


def test_shares_follow_the_paces():
    ranks = gang(3, total=100, size=20, most_per_pass=4, paces=[4.0, 1.0, 1.0])
    assert ranks[0].shares == (12, 4, 4)
    assert ranks[0].accumulation == 3
    assert [len(part.samples) for part in ranks[0].at(0).passes] == [4, 4, 4]
    assert [len(part.samples) for part in ranks[1].at(0).passes] == [1, 1, 2]


def test_rank_and_number_of_processes_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    batches = GlobalBatches(total=10, size=4, most_per_pass=1)
    assert (batches.rank, batches.world_size, batches.accumulation) == (1, 2, 2)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"total": 0}, "'total' is 0; it must be at least 1"),
        ({"size": 3}, "'size' is 3, so that some of 4 processes would have no sample"),
        ({"most_per_pass": 0}, "'most_per_pass' is 0"),
        ({"rank": 4}, "'rank' is 4; there are 4 processes"),
        ({"paces": [1.0]}, "'paces' has 1 figures; there are 4 processes"),
        ({"paces": [1.0, 1.0, 0.0, 1.0]}, "all must be above 0"),
    ],
)
def test_what_cannot_be_used_is_named(fields, said):
    usual = {"total": 10, "size": 8, "most_per_pass": 2, "rank": 0, "world_size": 4}
    with pytest.raises(ValueError, match=said):
        GlobalBatches(**usual | fields)


def test_ranks_of_a_mixed_gang_split_by_the_paces_of_their_environment(monkeypatch):
    monkeypatch.setenv("LEASEHOLD_PACES", "[4.0, 1.0, 1.0]")
    theirs = gang(3, total=100, size=20, most_per_pass=4)
    given = gang(3, total=100, size=20, most_per_pass=4, paces=[4.0, 1.0, 1.0])
    assert [rank.at(7) for rank in theirs] == [rank.at(7) for rank in given]
    alike = gang(3, total=100, size=20, most_per_pass=4, paces=[1.0] * 3)
    assert alike[0].shares == (7, 7, 6), "what the program says counts more"
    assert gang(2, total=100, size=20, most_per_pass=4)[0].shares == (10, 10)


@pytest.mark.parametrize("text", ["4", "[1.0, null]", "[1.0", "{}x"])
def test_paces_that_cannot_be_read_are_quoted(monkeypatch, text):
    monkeypatch.setenv("LEASEHOLD_PACES", text)
    with pytest.raises(ValueError, match=r"LEASEHOLD_PACES is .*leave the variable as"):
        gang(2, total=100, size=20, most_per_pass=4)
