"""Batches that change: limits and choices against the planner's, data order, progress, state."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold import AdaptiveBatches, BatchLimits, GlobalBatches, LeaseIterator, iterator
from leasehold.adaptive import StepMeasurement
from leasehold.gradient_noise import GradientNorms, gain
from leasehold.step_times import StepTimes
from planner.learning import goodput

LIMITS = BatchLimits(initial=32, most=512, most_per_worker=16)
#: Of gradients with q = 2 and S = 2048: the noise scale is 1024 samples.
SQR, TRACE = 2.0, 2048.0


def norms(small, large):
    """Return the expected norms of batches of two sizes."""
    return GradientNorms(
        small_sqr=SQR + TRACE / small, large_sqr=SQR + TRACE / large, small=small, large=large
    )


def measured(batches, model, *, nodes=1, next_size=None):
    """Return the time of a step on a cluster that follows a model of the planner."""
    place = {"nodes": nodes, "workers": batches.world_size}
    return StepMeasurement(
        pass_s=model.pass_s(batches.per_worker),
        last_pass_s=model.iteration_s(**place, batch_per_worker=batches.per_worker),
        norms=norms(batches.per_worker, batches.size)
        if batches.passes * batches.world_size > 1
        else None,
        next_size=batches.propose() if next_size is None else next_size,
    )


def train(batches, model, steps):
    """Do some steps; return their sizes."""
    sizes = []
    for _ in LeaseIterator(batches, total_steps=steps):
        sizes.append(batches.size)
        batches.record(measured(batches, model))
    return sizes


@given(
    initial=st.integers(1, 300), times=st.floats(1.0, 40.0), least=st.integers(1, 20),
    more=st.integers(0, 60), workers=st.integers(1, 40),
)  # fmt: skip
def test_candidates_and_splits_are_those_that_the_scheduler_expects(
    initial, times, least, more, workers
):
    fields = {
        "initial": initial,
        "most": int(initial * times),
        "least_per_worker": least,
        "most_per_worker": least + more,
    }
    ours, theirs = BatchLimits(**fields), goodput.BatchLimits(**fields)
    assert ours.candidates == theirs.candidates
    splits = {batch: ours.split(batch, workers) for batch in ours.candidates}
    assert splits == {batch: theirs.split(batch, workers) for batch in theirs.candidates}
    if any(splits.values()):
        for size in ours.sizes(workers):
            per_pass, accumulation = ours.split(size, workers)
            assert ours.initial <= size <= ours.most
            assert size >= workers * (accumulation + 1) * least
            assert (per_pass, accumulation) in splits.values()


@given(noise=st.floats(0.0, 1e9), batch=st.integers(32, 10**6))
def test_the_gain_is_that_of_the_planner_and_never_below_one(noise, batch):
    assert gain(32, noise, batch) == pytest.approx(goodput.gain(32, noise, batch))
    assert gain(32, noise, batch) >= 1.0
    assert gain(32, noise, 32) == 1.0


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("fixed_s", [0.0001, 0.05, 1.0])
def test_the_batch_that_is_found_learns_nearly_as_fast_as_the_planner_s_best(workers, fixed_s):
    model = goodput.ThroughputModel(
        alpha_c=fixed_s, beta_c=0.01, alpha_r=0.2, beta_r=0.02, gamma=1.0
    )
    batches = AdaptiveBatches(
        total=100, limits=LIMITS, rank=0, world_size=workers, retune_every_s=0.0
    )
    # One process without accumulation measures no noise here: it would compare two steps.
    batches.noise.observe(norms(8, 32))
    size = train(batches, model, 300)[-1]
    limits = goodput.BatchLimits(initial=32, most=512, most_per_worker=16)
    best = goodput.best_batch(model, limits, 1024.0, nodes=1, workers=workers)
    seconds = model.iteration_s(
        nodes=1,
        workers=workers,
        batch_per_worker=batches.per_worker,
        accumulation=batches.passes - 1,
    )
    found = gain(32, 1024.0, size) / seconds
    # It may stop at a size from which no other one within reach is 5 % faster.
    assert found >= 0.9 * best.steps_per_s


def test_no_choice_is_far_beyond_what_was_run_and_none_comes_early():
    model = goodput.ThroughputModel(alpha_c=1.0, beta_c=1e-6)
    limits = BatchLimits(initial=32, most=4096, most_per_worker=4096)
    batches = AdaptiveBatches(total=10_000, limits=limits, rank=0, world_size=2)
    sizes = train(batches, model, 2_000)
    # A second a step: the choice is made in the step after 30 s of training, at twice the size.
    assert sizes[:93] == [32] * 31 + [64] * 30 + [128] * 30 + [256] * 2
    assert max(b / a for a, b in itertools.pairwise(sizes)) == 2.0
    assert sizes[-1] == 4096


def test_a_noiseless_gradient_keeps_the_initial_batch():
    batches = AdaptiveBatches(total=10_000, limits=LIMITS, rank=0, world_size=4)
    batches.noise.observe(GradientNorms(small_sqr=2.0, large_sqr=2.0, small=8, large=32))
    batches.record(StepMeasurement(pass_s=40.0, last_pass_s=40.0, norms=None, next_size=32))
    batches.whole_steps()
    batches.record(StepMeasurement(pass_s=40.0, last_pass_s=40.0, norms=None, next_size=32))
    assert batches.noise.scale_samples < 1e-20
    assert batches.propose() == 32


def test_of_one_size_half_the_time_is_fixed_and_of_several_a_line_is_fitted():
    times = StepTimes(worker_type="v100", workers=2)
    times.add(8.0, pass_s=0.4, last_pass_s=0.5)
    assert times.iteration_s(16.0, 3) == pytest.approx(3 * (0.2 + 0.4) + 0.1)
    times.add(16.0, pass_s=0.6, last_pass_s=0.9)
    assert times.iteration_s(32.0, 2) == pytest.approx(2 * (0.2 + 0.025 * 32) + 0.2)
    assert times.measured == [(2, 8.0, 0.4, 0.5), (2, 16.0, 0.6, 0.9)]


@pytest.mark.parametrize(
    ("seconds", "expected_s"),
    [((0.6, 0.4), 0.5), ((0.1, 0.4), 1.0 * 64 * (0.8 + 6.4) / (64 + 256))],
    ids=["faster if larger", "nothing fixed"],
)
def test_no_part_of_a_pass_takes_less_than_nothing(seconds, expected_s):
    times = StepTimes(worker_type="", workers=1)
    for b, s in zip((8.0, 16.0), seconds, strict=True):
        times.add(b, pass_s=s, last_pass_s=s)
    assert times.iteration_s(64.0, 1) == pytest.approx(expected_s)


def test_times_on_other_worker_types_and_of_earlier_leases_are_kept_but_not_shown():
    old = StepTimes(worker_type="v100", workers=2)
    old.add(8.0, pass_s=0.4, last_pass_s=0.5)
    new = StepTimes(worker_type="a100", workers=2)
    new.load_state_dict(old.state_dict())
    new.add(8.0, pass_s=0.1, last_pass_s=0.1)
    assert new.iteration_s(8.0, 1) == pytest.approx(0.1)
    assert new.measured == [(2, 8.0, 0.1, 0.1)]
    again = StepTimes(worker_type="v100", workers=2)
    again.load_state_dict(new.state_dict())
    assert again.measured == []
    assert again.iteration_s(8.0, 1) == pytest.approx(0.5)
    again.add(8.0, pass_s=0.6, last_pass_s=0.6)  # perhaps other nodes: older figures are replaced
    assert again.iteration_s(8.0, 1) == pytest.approx(0.6)


@given(
    total=st.integers(40, 200), seed=st.integers(0, 9),
    sizes=st.lists(st.sampled_from(BatchLimits(initial=8, most=64, most_per_worker=4).candidates),
                   min_size=8, max_size=12),
    counts=st.lists(st.integers(1, 6), min_size=12, max_size=12),
)  # fmt: skip
def test_every_sample_comes_once_per_epoch_though_batch_and_gang_change(total, seed, sizes, counts):
    limits = BatchLimits(initial=8, most=64, most_per_worker=4)
    seen, state, step = [], None, 0
    for size, world_size in zip(sizes, counts, strict=False):
        gang = [
            AdaptiveBatches(total=total, limits=limits, seed=seed, rank=r, world_size=world_size)
            for r in range(world_size)
        ]
        states, whole = [], set()
        for batches in gang:
            if state is not None:
                batches.load_state_dict(pickle.loads(state))
            mine = next(batches(step))
            seen += mine.samples
            assert all(1 <= len(part.samples) <= 4 for part in mine.passes)
            # Each sample counts the same.
            for part in mine.passes:
                assert part.weight / len(part.samples) == pytest.approx(world_size / batches.size)
            batches.record(
                StepMeasurement(pass_s=1.0, last_pass_s=1.0, norms=norms(4, 8), next_size=size)
            )
            whole.add(batches.whole_steps())
            states.append(pickle.dumps(batches.state_dict()))
        assert len(set(states)) == len(whole) == 1, "every process has the same state"
        state, step = states[0], step + whole.pop()
    for begin in range(0, len(seen) - total + 1, total):
        assert sorted(seen[begin : begin + total]) == list(range(total))


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_batch_that_may_not_change_is_a_global_batch(world_size):
    limits = BatchLimits(initial=40, most=40, most_per_worker=8)
    for rank in range(world_size):
        place = {"total": 100, "seed": 3, "rank": rank, "world_size": world_size}
        adaptive = AdaptiveBatches(limits=limits, retune_every_s=0.0, **place)
        plain = GlobalBatches(size=40, most_per_pass=8, **place)
        done = []
        for batch in LeaseIterator(adaptive, total_steps=30):
            done.append(batch)
            adaptive.record(
                StepMeasurement(
                    pass_s=1.0, last_pass_s=1.0, norms=norms(8, 40), next_size=adaptive.propose()
                )
            )
        assert done == [plain.at(step) for step in range(30)]


def test_steps_add_up_to_those_of_the_job_and_the_rest_is_kept():
    limits = BatchLimits(initial=8, most=64, most_per_worker=64)
    batches = AdaptiveBatches(total=1000, limits=limits, rank=0, world_size=2)
    steps = LeaseIterator(batches, total_steps=100)
    worth, counted = [], []
    for batch in steps:
        counted.append(steps.step)
        assert batch.step == steps.step == math.floor(batches.progress)
        batches.record(
            StepMeasurement(pass_s=1.0, last_pass_s=1.0, norms=norms(4, 8), next_size=24)
        )
        worth.append(batches.gain)
    assert worth[0] == 1.0
    assert worth[1] == pytest.approx(3 * (1024 + 8) / (1024 + 24))
    assert batches.progress == pytest.approx(sum(worth))
    assert sum(worth[:-1]) < 100 <= sum(worth)
    assert counted == [math.floor(sum(worth[:n]) + 1e-9) for n in range(len(worth))]
    assert steps.finished
    assert steps.step == 100
    assert batches.position == 8 + 24 * (len(worth) - 1)


def test_a_loop_without_a_lease_iterator_counts_too():
    batches = AdaptiveBatches(total=1000, limits=LIMITS, rank=0, world_size=2)
    for number, _ in enumerate(batches(0)):
        assert batches.progress == number
        if number == 5:
            break


def test_a_job_goes_on_with_a_batch_that_fits_its_new_workers():
    limits = BatchLimits(initial=8, most=64, least_per_worker=4, most_per_worker=16)
    first = AdaptiveBatches(total=1000, limits=limits, rank=0, world_size=4)
    assert first.size == 16, "the batches before give some of four workers too little"
    assert first.gain == 1.0, "nothing says yet that it is worth more"
    next(first(0))
    first.record(StepMeasurement(pass_s=1.0, last_pass_s=1.0, norms=norms(4, 16), next_size=32))
    assert first.whole_steps() == 1
    for world_size, size in ((4, 32), (1, 32), (16, 64)):
        again = AdaptiveBatches(total=1000, limits=limits, rank=0, world_size=world_size)
        again.load_state_dict(first.state_dict())
        assert (again.size, again.position) == (size, 16)


def test_a_state_that_was_left_out_of_the_checkpoint_is_noticed():
    batches = AdaptiveBatches(total=1000, limits=LIMITS, rank=0, world_size=2)
    with pytest.raises(ValueError, match="7 steps are done, and the state of the batches is that"):
        next(batches(7))


def test_figures_are_plain_numbers():
    batches = AdaptiveBatches(total=1000, limits=LIMITS, rank=0, world_size=4, worker_type="v100")
    assert batches.figures["noise_scale_samples"] is None
    train(batches, goodput.ThroughputModel(alpha_c=0.5, beta_c=0.01, alpha_r=0.25), 3)
    figures = json.loads(json.dumps(batches.figures))
    assert figures["noise_scale_samples"] == pytest.approx(1024.0)
    assert figures["grad_sqr"] == pytest.approx(SQR)
    assert figures["grad_var"] == pytest.approx(TRACE / 32)
    assert figures["step_times"] == [[4, 8.0, pytest.approx(0.58), pytest.approx(0.58 + 0.25)]]
    assert (figures["batch_samples"], figures["progress_steps"]) == (32, 3.0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: BatchLimits(initial=8, most=4, most_per_worker=4), "'initial' is 8; it must be"),
        (
            lambda: BatchLimits(initial=8, most=8, least_per_worker=5, most_per_worker=4),
            "'least_per_worker' is 5",
        ),
        (
            lambda: AdaptiveBatches(
                total=9,
                limits=BatchLimits(initial=8, most=16, least_per_worker=4, most_per_worker=4),
                rank=0,
                world_size=8,
            ),
            "no batch from 8 to 16 samples gives each of 8 workers 4 to 4 per pass",
        ),
        (
            lambda: AdaptiveBatches(total=0, limits=LIMITS, rank=0, world_size=1),
            "'total' is 0",
        ),
    ],
)
def test_what_cannot_be_used_is_named(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_limits_are_those_that_the_job_was_submitted_with_unless_it_gives_others(monkeypatch):
    told = {"initial": 8, "most": 64, "least_per_worker": 2, "most_per_worker": 16}
    monkeypatch.setenv("LEASEHOLD_BATCH", json.dumps(told | {"of": "a later release"}))
    place = {"total": 100, "rank": 0, "world_size": 2}
    assert AdaptiveBatches(**place).limits == BatchLimits(**told)
    assert AdaptiveBatches(**place, limits=LIMITS).limits is LIMITS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no limits of the batch; give limits.*or submit the job with the field 'batch'"),
        ("{", "LEASEHOLD_BATCH is '{', which cannot be read"),
        ("[]", "LEASEHOLD_BATCH is .*, which cannot be read"),
        ('{"initial": 8}', "LEASEHOLD_BATCH is .*, which cannot be read"),
        ('{"initial": 8, "most": 4, "most_per_worker": 4}', "'initial' is 8; it must be"),
    ],
)
def test_without_limits_that_can_be_read_both_ways_to_give_them_are_named(monkeypatch, text, said):
    monkeypatch.setenv("LEASEHOLD_BATCH", text)
    with pytest.raises(ValueError, match=said):
        AdaptiveBatches(total=100, rank=0, world_size=2)


def test_a_mixed_gang_cannot_choose_its_batch(monkeypatch):
    monkeypatch.setenv("LEASEHOLD_PACES", "[2.0, 1.0]")
    with pytest.raises(ValueError, match="without the field 'mixed_gangs', or use GlobalBatches"):
        AdaptiveBatches(total=1000, limits=LIMITS, rank=0, world_size=2)


class Heard:
    """Stands for the channel to the agent: notes when it is handed something new to report."""

    noticed, leave_by_s, steps_live, steps_done = False, None, 0, 0

    def __init__(self, clock):
        self.at, self._learning, self._clock = [], None, clock

    @property
    def learning(self):
        return self._learning

    @learning.setter
    def learning(self, value):
        self._learning = value
        self.at.append(self._clock())

    def leave_steps(self):
        """Leave nothing."""

    def close(self):
        """End."""


def test_what_was_measured_is_reported_soon_at_first_and_later_every_thirty_seconds(monkeypatch):
    seconds = [0.0]
    monkeypatch.setattr(iterator, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    batches = AdaptiveBatches(total=1000, limits=LIMITS, rank=0, world_size=2)
    steps = LeaseIterator(batches, total_steps=10**6)
    steps._channel, steps._learns = Heard(lambda: seconds[0]), True
    for _ in steps:
        seconds[0] += 1.0
        measured = StepMeasurement(
            pass_s=1.0 + seconds[0],
            last_pass_s=2.0 + seconds[0],
            norms=norms(16, 32),
            next_size=batches.size,
        )
        batches.record(measured)
        if seconds[0] > 130:
            break
    told = steps._channel.at
    gaps = [after - before for before, after in itertools.pairwise(told)]
    assert gaps[:5] == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert set(gaps[5:]) == {30.0}
