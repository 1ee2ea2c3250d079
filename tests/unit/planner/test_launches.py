"""How long starting takes is learned, and one slow pull of an image does not decide."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.estimation.launches import LEAST, MEMORY, Launches, robust_mean
from scheduler.errors import InputError


def ready(launches, job_type, seconds):
    launches.take((job_type, 1, "v100"), seconds, first_step=False)


def test_the_middle_half_counts():
    assert robust_mean([7.0]) == 7.0
    assert robust_mean([1.0, 2.0, 3.0]) == 2.0
    assert robust_mean([600.0, 5.0, 6.0, 0.1]) == 5.5
    assert robust_mean([600.0, 500.0, 4.0, 5.0, 6.0, 7.0, 0.1, 0.2]) == 5.5


@given(st.lists(st.floats(0.0, 1e4), min_size=1, max_size=40))
def test_it_lies_between_the_quartiles(seconds):
    ordered, cut = sorted(seconds), len(seconds) // 4
    found = robust_mean(seconds)
    slack = 1e-9 * ordered[-1]
    assert ordered[cut] - slack <= found <= ordered[len(ordered) - cut - 1] + slack


def test_nothing_is_said_before_enough_was_seen():
    launches = Launches()
    assert launches.typical_s("a") == 0.0
    for _ in range(LEAST - 1):
        ready(launches, "a", 30.0)
    assert launches.typical_s("a") == 0.0
    ready(launches, "b", 30.0)
    # Of neither is enough known; of all together there is.
    assert launches.typical_s("a") == launches.typical_s("new") == 30.0
    for _ in range(LEAST):
        ready(launches, "b", 90.0)
    assert launches.typical_s("b") == 90.0  # of 30, 90, 90, 90 the two in the middle


def test_the_newest_launches_decide():
    launches = Launches()
    for _ in range(5 * MEMORY):
        ready(launches, "a", 300.0)
    for _ in range(MEMORY):
        ready(launches, "a", 4.0)
    assert launches.typical_s("a") == 4.0


def test_the_same_workers_count_before_others_and_first_steps_before_ready_pods():
    launches = Launches()
    for count, worker_type, seconds in ((1, "v100", 10.0), (8, "v100", 90.0), (1, "k80", 30.0)):
        for _ in range(LEAST):
            launches.take(("a", count, worker_type), seconds, first_step=False)
    assert launches.on_workers("a") == {"v100:1": 10.0, "v100:8": 90.0, "k80:1": 30.0}
    assert 10.0 < launches.typical_s("a") < 90.0
    for _ in range(LEAST):
        launches.take(("a", 8, "v100"), 400.0, first_step=True)
    assert launches.on_workers("a") == {"v100:8": 400.0}
    assert launches.typical_s("a") == 400.0
    assert launches.typical_s("new") == 400.0


def test_times_of_the_release_before_are_read():
    stored = {"version": 1, "types": {"a": [30.0, 31.0, 32.0]}, "all": [30.0, 31.0, 32.0]}
    launches = Launches.restore(stored)
    assert launches.typical_s("a") == launches.typical_s("new") == 31.0
    assert launches.on_workers("a") == {}
    for _ in range(LEAST):
        launches.take(("a", 1, "v100"), 50.0, first_step=True)
    assert launches.typical_s("a") == launches.on_workers("a")["v100:1"] == 50.0


def test_it_survives_storage_and_damage_is_named():
    launches = Launches()
    for seconds in (1.0, 2.0, 3.0, 40.0):
        ready(launches, "a", seconds)
    again = Launches.restore(json.loads(json.dumps(launches.dump())))
    assert again.typical_s("a") == launches.typical_s("a")
    assert again.dump() == launches.dump()
    with pytest.raises(InputError, match="version None"):
        Launches.restore({})
    with pytest.raises(InputError, match="damaged"):
        Launches.restore({"version": 1, "types": {"a": "soon"}, "all": []})
    with pytest.raises(InputError, match="-1"):
        ready(launches, "a", -1.0)
