"""The plan of a lease, as a job reads it."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from leasehold import Plan
from planner.planned import plan_text
from planner.plans import plan as planners
from planner.plans.ranking import BestPlan


def test_plans_of_the_planner_are_read() -> None:
    found = planners.Plan(
        tensor=2, pipeline=4, data=3, microbatch=5, chunks=2, recompute=True, zero=1, offload=True
    )
    best = BestPlan(worker_type="a100", workers=24, plan=found, step_s=1.0)
    read = Plan.read(plan_text(best))
    for one in fields(found):
        assert getattr(read, one.name) == getattr(found, one.name)
    assert read.stages == ()
    assert read.workers == 24
    staged = replace(best, plan=replace(found, chunks=1), stages=(1, 2, 3, 4))
    text = plan_text(staged)
    assert Plan.read(text).stages == (1, 2, 3, 4)
    assert set(json.loads(text)) == {one.name for one in fields(Plan)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tp2", "is no JSON"),
        ("[2]", "is no object"),
        ('{"tensor": 0}', "'tensor' of the plan is 0"),
        ('{"data": "4"}', "'data' of the plan is '4'"),
        ('{"data": true}', "'data' of the plan is True"),
        ('{"zero": 4}', "'zero' of the plan is 4"),
        ('{"recompute": 1}', "'recompute' of the plan is 1"),
        ('{"stages": 3}', "'stages' of the plan is 3"),
        ('{"stages": [3, 4]}', "'stages' of the plan has 2 numbers; 'pipeline' is 1"),
        ('{"chunks": 2}', "'chunks' of the plan is 2; that needs several stages"),
        (
            '{"pipeline": 2, "chunks": 2, "stages": [3, 4]}',
            "'chunks' of the plan is 2, and 'stages' are given",
        ),
        ('{"pipeline": 2, "stages": [3, 0]}', "'stages' of the plan is 0"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="plan") as raised:
        Plan.read(text)
    assert said in str(raised.value)


def test_fields_of_later_versions_are_left_out_with_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match="context"):
        assert Plan.read('{"data": 2, "context": 4}') == Plan(data=2)


def test_the_plan_of_a_lease_is_for_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("LEASEHOLD_PLAN", raising=False)
    with pytest.raises(ValueError, match="LEASEHOLD_PLAN is not set"):
        Plan.current()
    assert Plan.current(Plan(data=2)) == Plan(data=2)
    monkeypatch.setenv("LEASEHOLD_PLAN", '{"tensor": 2}')
    assert Plan.current(Plan(data=2)) == Plan(tensor=2)
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match=r"for 2 workers .* WORLD_SIZE is 4"):
        Plan.current()
