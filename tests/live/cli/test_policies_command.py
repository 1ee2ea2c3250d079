"""``leasehold policies``: the list and the pages of single policies."""

from __future__ import annotations

import json
import warnings

import pytest
from typer.testing import CliRunner

from leasehold.cli.local import policies
from leasehold.cli.local.policies import app, format_default
from policies import registry
from policies.registry import BUILT_IN
from scheduler.errors import NotFoundError


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), terminal_width=200)


def test_the_list_names_every_policy_with_a_line_on_what_it_does() -> None:
    result = run("list")
    assert result.exit_code == 0
    for name in BUILT_IN:
        assert name in result.stdout


def test_the_list_as_json_has_parameters_and_origin() -> None:
    entries = {entry["name"]: entry for entry in json.loads(run("list", "--json").stdout)}
    assert set(BUILT_IN) <= set(entries)
    alpha = entries["alpha_fairness"]
    assert alpha["origin"] == "built-in"
    assert alpha["time_dependent"] is False
    assert alpha["parameters"] == [
        {
            "name": "alpha",
            "type": "a number",
            "default": 2.0,
            "range": ">= 0 and <= 8",
            "help": "Aversion to inequality: 0 sum, 1 proportional, large max-min.",
        }
    ]


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_policy_shows_its_program_and_its_source(name) -> None:
    result = run("show", name)
    assert result.exit_code == 0
    assert "Program: " in result.stdout
    assert "Source: " in result.stdout
    assert "Answers again" in result.stdout
    details = json.loads(run("show", name, "--json").stdout)
    assert details["name"] == name
    assert details["summary"] in details["description"]


def test_parameters_are_shown_as_they_would_be_given() -> None:
    page = run("show", "tiresias").stdout
    assert "thresholds_worker_s = 3600,36000   (numbers separated by commas; > 0)" in page
    assert "promote = none   (a number, or none; > 0)" in page
    assert "It has no parameters." in run("show", "makespan").stdout


def test_an_unknown_policy_is_an_error_with_the_names_that_there_are() -> None:
    result = run("show", "fifoo")
    assert isinstance(result.exception, NotFoundError)
    assert "did you mean 'fifo'" in str(result.exception)


def test_broken_plugins_are_named_beside_the_list(monkeypatch) -> None:
    def found():
        warnings.warn("plugin 'x' is skipped", registry.PolicyPluginWarning, stacklevel=1)
        return {"fifo": registry.policy_class("fifo")}

    monkeypatch.setattr(policies, "usable_policies", found)
    result = run("list")
    assert "leasehold: plugin 'x' is skipped" in result.stderr
    assert "fifo" in result.stdout


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "true"),
        (2.0, "2"),
        (3, "3"),
        ((1.0, 2.5), "1,2.5"),
        ((), "(empty)"),
        ({"a": 2.0}, "a:2"),
        ({}, "(empty)"),
        ("word", "word"),
        (float("inf"), "inf"),
    ],
)
def test_defaults_read_as_users_write_them(value, text) -> None:
    assert format_default(value) == text
