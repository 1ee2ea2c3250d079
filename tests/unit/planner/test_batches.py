"""Knowledge of the step times of jobs with a changing batch."""

import json

import pytest

from planner.learning.batches import MOST_TIMES, BatchKnowledge
from planner.learning.goodput import (
    BatchLimits,
    StepTime,
    ThroughputModel,
    best_batch,
    rates_by_count,
)
from scheduler.errors import InputError

LIMITS = BatchLimits(initial=128, most=4096, least_per_worker=32, most_per_worker=512)
TRUTH = ThroughputModel(
    alpha_c=0.02, beta_c=0.001, alpha_n=0.2, beta_n=0.002, alpha_r=0.05, beta_r=0.001, gamma=2.0
)
NOISE = 2_000.0


def measured(*, nodes=1, workers=1, batch=128.0, slower=1.0):
    return StepTime(
        nodes=nodes,
        workers=workers,
        batch_per_worker=batch,
        pass_s=slower * TRUTH.pass_s(batch),
        last_pass_s=slower
        * TRUTH.iteration_s(nodes=nodes, workers=workers, batch_per_worker=batch),
    )


def rates(known, counts=(1, 2, 4, 8, 16)):
    return known.rates("a", "t4", LIMITS, NOISE, counts, workers_per_node=4)


def best(known, *, nodes, workers):
    return known.best("a", "t4", LIMITS, NOISE, nodes=nodes, workers=workers)


def test_a_job_type_that_never_ran_has_no_rates_and_its_initial_batch():
    known = BatchKnowledge()
    assert rates(known) == {}
    assert best(known, nodes=1, workers=2) == (64, 0)
    assert best(known, nodes=4, workers=16) is not None  # at the least batch that so many need
    assert best(known, nodes=50, workers=200) is None


def test_twice_the_workers_of_the_largest_run_are_offered():
    known = BatchKnowledge()
    for workers, offered in ((1, [1, 2]), (2, [1, 2, 4]), (4, [1, 2, 4, 8])):
        assert known.observe("a", "t4", measured(workers=workers))
        assert list(rates(known)) == offered
    assert known.rates("a", "v100", LIMITS, NOISE, (1,), workers_per_node=4) == {}
    assert known.rates("b", "t4", LIMITS, NOISE, (1,), workers_per_node=4) == {}


def test_what_has_no_measurement_is_believed_to_be_free_until_it_has_one():
    known = BatchKnowledge()
    for batch in (128.0, 256.0, 512.0):
        known.observe("a", "t4", measured(batch=batch))
    hoped = rates(known)[2]
    known.observe("a", "t4", measured(workers=2))
    known.observe("a", "t4", measured(workers=2, batch=512.0))
    assert rates(known)[2] < 0.99 * hoped
    truth = {n: known.rates("a", "t4", LIMITS, NOISE, (n,), workers_per_node=4)[n] for n in (1, 2)}
    assert truth[2] < 2 * truth[1]


def test_measurements_of_all_placements_give_the_true_rates_and_batches():
    known = BatchKnowledge()
    for nodes, workers in ((1, 1), (1, 2), (1, 4), (2, 8), (4, 16)):
        for batch in (32.0, 128.0, 512.0):
            known.observe("a", "t4", measured(nodes=nodes, workers=workers, batch=batch))
    expected = rates_by_count(TRUTH, LIMITS, NOISE, (1, 2, 4, 8, 16), workers_per_node=4)
    assert rates(known) == pytest.approx(expected, rel=0.05)
    ideal = best_batch(TRUTH, LIMITS, NOISE, nodes=2, workers=8)
    found = best(known, nodes=2, workers=8)
    assert found is not None
    assert found[0] == pytest.approx(ideal.batch_per_worker, rel=0.2)


def test_the_same_figure_again_is_no_news_and_another_one_is():
    known = BatchKnowledge()
    assert known.observe("a", "t4", measured())
    assert not known.observe("a", "t4", measured())
    assert not known.observe("a", "t4", measured(slower=1.04))
    before = rates(known)[1]
    assert known.observe("a", "t4", measured(slower=3.0))
    assert rates(known)[1] < 0.85 * before


def test_what_was_learned_comes_back_from_json_as_it_was():
    known = BatchKnowledge()
    known.observe("a", "t4", measured())
    known.observe("a", "t4", measured(workers=2))
    rates(known)  # fits a model, which is kept as it is
    known.observe("a", "t4", measured(slower=1.04))
    known.observe_noise("job", NOISE)
    again = BatchKnowledge.restore(json.loads(json.dumps(known.dump())))
    assert again.dump() == known.dump()
    assert rates(again) == rates(known)
    assert again.noise("job") == NOISE


@pytest.mark.parametrize(
    "data",
    [
        {"version": 2, "measured": [], "noise": []},
        {"version": 1, "measured": []},
        {"version": 1, "measured": [["a", "t4", None, [[1, 1, 1.0, 1.0]]]], "noise": []},
        {"version": 1, "measured": [["a", "t4", None, [[1, 1, 1.0, 1.0, -1.0]]]], "noise": []},
        {"version": 1, "measured": [["a", "t4", [1.0], []]], "noise": []},
    ],
)
def test_stored_data_that_cannot_be_read_are_refused(data):
    with pytest.raises(InputError, match="step time"):
        BatchKnowledge.restore(data)


def test_noise_is_news_if_it_differs_from_what_is_known_by_more_than_a_twentieth():
    known = BatchKnowledge()
    assert known.noise("job") == 0.0
    assert [known.observe_noise("job", n) for n in (100.0, 104.0, 104.9, 106.0, 101.0)] == [
        *(True, False, False, True, False)
    ]
    assert known.noise("job") == 106.0
    known.keep_noise({"other"})
    assert known.noise("job") == 0.0


def test_the_oldest_step_times_and_job_types_are_forgotten_beyond_a_bound(monkeypatch):
    known = BatchKnowledge()
    for batch in range(1, MOST_TIMES + 3):
        known.observe("a", "t4", measured(batch=float(batch)))
    (_, _, _, times) = known.dump()["measured"][0]
    assert [time[2] for time in times] == [float(batch) for batch in range(3, MOST_TIMES + 3)]
    monkeypatch.setattr("planner.learning.batches.MOST_REMEMBERED", 2)
    for name in ("b", "c"):
        known.observe(name, "t4", measured())
    known.forget_oldest(iter(["a"]))
    assert [key for key, *_ in known.dump()["measured"]] == ["a", "c"]
    assert known.forget("c") == 1
    assert rates(known)
    assert known.forget("a") == MOST_TIMES
    assert rates(known) == {}
