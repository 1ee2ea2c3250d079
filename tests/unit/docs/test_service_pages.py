"""The pages about the live service against the program: routes, roles, metrics, settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from api.access import Access
from api.app import create_app
from api.auth.roles import Role
from api.edge.layers import OPEN_PATHS
from api.settings import ApiSettings
from leasehold.config.load import load_config
from leasehold_testing.service import FakeService
from scheduler.domain.facts.reasons import WaitReason
from scheduler.views.history_kinds import EventKind, SubjectKind
from scheduler.views.metrics import Metrics

DOCS = Path(__file__).resolve().parents[3] / "docs"
APP = create_app(FakeService(), ApiSettings())
DOCUMENT = APP.openapi()


def least_role(method: str, path: str) -> str:
    """Return the least role that a route asks for, as the reference writes it."""
    if path in OPEN_PATHS:
        return "secret" if path.endswith("enrol") else "none"
    if path.startswith("/v1/agent/"):
        return "agent"
    if path == "/metrics":
        return "metrics"  # or any that reads; unless it is configured open
    (route,) = (
        r
        for r in APP.routes
        if isinstance(r, APIRoute) and r.path == path and method in (r.methods or ())
    )
    found = [d.call for d in route.dependant.dependencies if isinstance(d.call, Access)]
    (access,) = found
    if access.role is None:
        return "any"
    return f"{access.role.value}*" if access.everywhere else access.role.value


def route_lines() -> list[str]:
    """Return the lines of the reference's table of routes."""
    return [
        f"| `{method.upper()} {path}` | {least_role(method.upper(), path)} | {what['summary']} |"
        for path, methods in DOCUMENT["paths"].items()
        for method, what in methods.items()
    ]


def test_every_route_is_in_the_reference_with_its_role():
    page = (DOCS / "reference" / "rest-api.md").read_text()
    section = page.partition("## Routes")[2].partition("\n## ")[0]
    listed = [line for line in section.splitlines() if re.match(r"\| `[A-Z]+ /", line)]
    assert listed == route_lines()


def test_every_query_parameter_is_in_the_reference():
    page = (DOCS / "reference" / "rest-api.md").read_text()
    names = {
        parameter["name"]
        for path, methods in DOCUMENT["paths"].items()
        if not path.startswith("/v1/agent/")
        for what in methods.values()
        for parameter in what.get("parameters", [])
        if parameter["in"] == "query"
    }
    assert {name for name in names if f"`{name}" not in page} == set()


def test_every_kind_of_event_and_subject_is_in_the_reference():
    page = (DOCS / "reference" / "rest-api.md").read_text()
    assert {kind for kind in (*EventKind, *SubjectKind) if f"`{kind}`" not in page} == set()


def test_every_field_of_a_job_is_in_the_reference():
    page = (DOCS / "reference" / "rest-api.md").read_text()
    fields = DOCUMENT["components"]["schemas"]["JobIn"]["properties"]
    assert {name for name in fields if f"| `{name}` |" not in page} == set()


@pytest.mark.parametrize("status", ["307", "401", "403", "404", "409", "413", "415", "422", "429"])
def test_every_status_of_an_error_is_in_the_reference(status):
    assert f"| {status} |" in (DOCS / "reference" / "rest-api.md").read_text()


def test_every_role_is_explained():
    page = (DOCS / "how-to" / "give-out-tokens.md").read_text()
    assert {role.value for role in Role if f"| `{role.value}` |" not in page} == set()


def test_every_metric_is_listed_and_no_other():
    page = (DOCS / "how-to" / "monitor.md").read_text()
    described = set(re.findall(r"^\| `(leasehold_\w+)", page, re.MULTILINE))
    families = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in Metrics(process=False).registry.collect()
    }
    families = {"leasehold_info" if f == "leasehold" else f for f in families}
    assert described == families


def test_every_metric_that_an_example_uses_exists():
    page = (DOCS / "how-to" / "monitor.md").read_text()
    there = {
        sample.name
        for family in Metrics(process=False).registry.collect()
        for sample in family.samples
    } | {f"{family.name}_total" for family in Metrics(process=False).registry.collect()}
    there |= {f"{family.name}_bucket" for family in Metrics(process=False).registry.collect()}
    there |= {family.name for family in Metrics(process=False).registry.collect()}
    code = "\n".join(re.findall(r"```.*?```", page, re.DOTALL))
    assert set(re.findall(r"leasehold_\w+", code)) - there == set()


def test_every_reason_to_wait_is_explained():
    page = (DOCS / "explanation" / "live-service.md").read_text()
    assert {reason.value for reason in WaitReason if f"| `{reason.value}` |" not in page} == set()


@pytest.mark.parametrize("page", sorted((DOCS / "how-to").glob("*.md")), ids=lambda p: p.stem)
def test_configurations_in_guides_are_in_order(page, tmp_path):
    text = page.read_text()
    for block in re.findall(r"```toml\n(# leasehold.toml\n.*?)```", text, re.DOTALL):
        file = tmp_path / "leasehold.toml"
        file.write_text(block.replace("/etc/leasehold/", f"{tmp_path}/"))
        assert load_config(path=file, environment={}, elsewhere=True).config
