"""Parameters are typed, checked by range, and refused with the remedy."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  read at run time
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import pytest

from policies.base import Policy
from policies.parameters import as_text, describe, parameter
from policies.registry import make_policy
from scheduler.errors import ParameterError


@dataclass(frozen=True, kw_only=True)
class Every(Policy):
    """One of each kind."""

    name: ClassVar[str] = "every"
    rate: float = parameter(1.5, gt=0.0, lt=9.0, help="A rate.")
    count: int = parameter(3, ge=1, le=5, help="A count.")
    flag: bool = parameter(False, help="A flag.")
    word: str = parameter("a", choices=("a", "b"), help="A word.")
    limit: float | None = parameter(None, ge=0.0, help="A limit.")
    steps: tuple[float, ...] = parameter((1.0, 2.0), gt=0.0, help="Steps.")
    names: tuple[str, ...] = parameter((), help="Names.")
    shares: Mapping[str, float] = parameter(MappingProxyType({}), gt=0.0, help="Shares.")
    kinds: Mapping[str, str] = parameter(MappingProxyType({}), choices=("x", "y"), help="Kinds.")
    plain: float = 2.0

    def allocate(self, problem):
        raise NotImplementedError


def test_texts_become_values_of_the_fields_types() -> None:
    policy = Every.from_text(
        {
            "rate": "2.5",
            "count": "4",
            "flag": "Yes",
            "word": "b",
            "limit": "7",
            "steps": "1, 2.5",
            "names": "u,v",
            "shares": "a:2,b:0.5",
            "kinds": "a:x",
        }
    )
    expected = Every(
        rate=2.5,
        count=4,
        flag=True,
        word="b",
        limit=7.0,
        steps=(1.0, 2.5),
        names=("u", "v"),
        shares={"a": 2.0, "b": 0.5},
        kinds={"a": "x"},
    )
    assert policy == expected
    assert Every.from_text({"limit": "none", "flag": "off"}) == Every()


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("rate", "fast", "which is not a number"),
        ("count", "2.5", "which is not a whole number"),
        ("flag", "maybe", "which is not true or false"),
        ("steps", "1,x", "which is not numbers separated by commas"),
        ("shares", "a", "which is not name:number pairs separated by commas"),
        ("limit", "x", "which is not a number, or none"),
        ("rate", "0", "must be > 0 and < 9"),
        ("rate", "9", "must be > 0 and < 9"),
        ("rate", "nan", "must be > 0 and < 9"),
        ("plain", "nan", "must be a finite number"),
        ("count", "0", "must be >= 1 and <= 5"),
        ("count", "6", "must be >= 1 and <= 5"),
        ("word", "c", "must be one of a, b"),
        ("steps", "1,-2", "must be > 0"),
        ("shares", "a:0", "must be > 0"),
        ("kinds", "a:z", "must be one of x, y"),
    ],
)
def test_a_wrong_value_names_policy_parameter_value_and_rule(name, text, rule) -> None:
    with pytest.raises(ParameterError) as caught:
        Every.from_text({name: text})
    message = str(caught.value)
    assert f"policy 'every': parameter '{name}' has the value" in message
    assert rule in message
    assert "its parameters are: rate, count, flag" in message


def test_an_unknown_parameter_lists_the_known_ones() -> None:
    with pytest.raises(ParameterError, match=r"no parameter 'rat' \(did you mean 'rate'\?\)"):
        Every.from_text({"rat": "1"})
    with pytest.raises(
        ParameterError, match="'makespan' has no parameter 'q'; it has no parameters"
    ):
        make_policy("makespan", {"q": "1"})


def test_ranges_hold_for_policies_built_in_python_too() -> None:
    with pytest.raises(ParameterError, match="parameter 'alpha' has the value 99"):
        make_policy("alpha_fairness", {"alpha": "99"})
    with pytest.raises(ParameterError, match="'count' has the value 0"):
        Every(count=0)


def test_parameters_are_described_with_type_default_and_range() -> None:
    described = {info.name: info for info in describe(Every)}
    assert described["rate"].range == "> 0 and < 9"
    assert described["limit"].type == "a number, or none"
    assert described["shares"].default == {}
    assert described["word"].help == "A word."
    assert described["plain"].help == ""
    assert "_partner" not in {info.name for info in describe(type(make_policy("gandiva")))}


def test_thresholds_of_tiresias_must_ascend() -> None:
    with pytest.raises(ParameterError, match="the numbers must ascend"):
        make_policy("tiresias", {"thresholds_worker_s": "5,5"})


def test_an_annotation_that_exists_for_type_checkers_only_is_named() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Hidden(Every):
        name: ClassVar[str] = "hidden"
        depth: Nowhere = 1.0  # noqa: F821

    with pytest.raises(ParameterError, match=r"policy 'hidden'.*'Nowhere'.*import it outside"):
        describe(Hidden)


@pytest.mark.parametrize(
    ("policy", "texts"),
    [
        (Every(), {}),
        (Every(rate=2.5, flag=True, word="b"), {"rate": "2.5", "flag": "true", "word": "b"}),
        (Every(steps=(1.0, 3.5), names=("x", "y")), {"steps": "1.0,3.5", "names": "x,y"}),
        (Every(shares={"a": 0.5}, limit=2.0), {"limit": "2.0", "shares": "a:0.5"}),
    ],
)
def test_what_differs_from_the_defaults_is_written_as_it_is_read(policy, texts) -> None:
    assert as_text(policy) == texts
    assert Every.from_text(as_text(policy)) == policy


def test_a_class_that_declares_parameters_without_the_decorator_is_told_to_have_it() -> None:
    class Bare(Policy):
        """Forgot it."""

        name: ClassVar[str] = "bare"
        level: float = parameter(1.0, help="A level.")

        def allocate(self, problem):
            raise NotImplementedError

    for use in (Bare, lambda: Bare.from_text({"level": "2"}), lambda: describe(Bare)):
        with pytest.raises(ParameterError, match=r"'bare': 'level' .*write @dataclass\(frozen"):
            use()
