"""The faults that are planted fit the code as it is, and worlds find them."""

import importlib
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def plant(monkeypatch):
    monkeypatch.syspath_prepend(HERE / "planted")
    yield importlib.import_module("plant")
    for name in ("plant", "written"):
        sys.modules.pop(name, None)


def source(planted):
    return Path(importlib.util.find_spec(planted.module).origin).read_text()


def test_every_fault_can_be_planted(plant):
    every = plant.all_planted()
    assert len({planted.name for planted in every}) == len(every) >= 60
    for planted in every:
        code = planted.applied(source(planted))
        compile(code, planted.path, "exec")
        assert code != source(planted)


def test_half_of_them_are_drawn_and_few_of_those_are_no_faults(plant):
    every = [planted for planted in plant.all_planted() if not planted.name.startswith("s")]
    drawn = [planted for planted in every if planted.name.startswith("d")]
    assert 2 * len(drawn) >= len(every)
    assert sum(bool(planted.equivalent) for planted in drawn) <= len(drawn) / 5
    assert not any(p.equivalent for p in every if p not in drawn)


@pytest.mark.long
@pytest.mark.parametrize("name", ["w02", "d02", "s02", "s07"])
def test_a_fault_is_found(plant, name):
    planted = next(one for one in plant.all_planted() if one.name == name)
    how, _ = plant.hunt(planted)
    assert how.startswith("seed ")


def test_code_that_has_changed_is_told(plant):
    planted = plant.all_planted()[0]
    with pytest.raises(
        ValueError, match=r"w01: scheduler/runtime/driver/driver\.py has its lines 0 times"
    ):
        planted.applied("nothing")
