"""The page of the Python API names all public names, and they exist."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from simulator import api

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "python-api.md").read_text()
TABLE = PAGE[: PAGE.index("**The promise.**")]
MODULES = {
    module: set(re.findall(r"`(\w+)`", text))
    for module, text in re.findall(r"^\| `([a-z.]+)` \| (.+) \|$", TABLE, re.MULTILINE)
}


def _public(module) -> set[str]:
    """Return a module's declared public names, or its definitions without a leading underscore."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and name != "TYPE_CHECKING"
        and getattr(value, "__module__", module.__name__) == module.__name__
        and not inspect.ismodule(value)
        and type(value).__name__ != "_Feature"  # from __future__
    }


def test_the_page_lists_the_public_modules():
    assert set(MODULES) == {
        "leasehold",
        "simulator.api",
        *(
            f"policies.{m}"
            for m in ("base", "program", "parameters", "terms", "registry", "testing")
        ),
        "scheduler.domain.problem",
        "scheduler.domain.allocation",
    }


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"simulator.api"}))
def test_every_public_name_is_there_and_on_the_page(name):
    module = importlib.import_module(name)
    assert MODULES[name] == _public(module)
    for public in MODULES[name]:
        value = getattr(module, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), public


@pytest.mark.parametrize("name", sorted(api.__all__))
def test_every_name_of_the_simulator_s_api_is_on_the_page(name):
    value = getattr(api, name)
    assert re.search(rf"`{name}\b", PAGE)
    assert inspect.getdoc(value)


@pytest.mark.parametrize("kind", [api.Result, api.Comparison, api.Table, api.Plot, api.Variant])
def test_every_part_of_a_result_is_on_the_page_and_has_a_docstring(kind):
    public = [name for name in dir(kind) if not name.startswith("_")]
    assert public
    for name in public:
        assert re.search(rf"`[^`]*\b{name}\b[^`]*`", PAGE), name
        value = inspect.getattr_static(kind, name)
        if isinstance(value, property) or inspect.isfunction(value):
            assert inspect.getdoc(value), name


@pytest.mark.parametrize("function", [api.simulate, api.compare])
def test_every_argument_is_in_the_docstring(function):
    text = inspect.getdoc(function)
    for name in inspect.signature(function).parameters:
        assert re.search(rf"^    {name}: ", text, re.MULTILINE), name
        assert re.search(rf"\b{name}\b", PAGE), name
