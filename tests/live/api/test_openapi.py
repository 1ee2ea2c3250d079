"""The OpenAPI document: complete, and kept by the daemon for any request."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.app import create_app
from api.problems import PROBLEM
from api.settings import ApiSettings, RateLimit
from leasehold_testing.service import FakeService

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI

UNLIMITED = RateLimit(per_s=1e9, burst=10**9)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def make_app() -> FastAPI:
    service = FakeService()
    options = ApiSettings(
        auth=False, rate=UNLIMITED, rate_without_token=UNLIMITED, max_wait_s=0.01, heartbeat_s=0.01
    )
    return create_app(service, options)


DOCUMENT = make_app().openapi()
OPERATIONS = sorted(
    (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods
)


def operation(method: str, path: str) -> dict[str, Any]:
    return DOCUMENT["paths"][path][method.lower()]


def test_ids_of_operations_are_unique_and_no_schema_is_missing() -> None:
    ids = [operation(*key)["operationId"] for key in OPERATIONS]
    assert len(set(ids)) == len(ids)
    wanted: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            wanted.update([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
            for part in value.values():
                walk(part)
        elif isinstance(value, list):
            for part in value:
                walk(part)

    walk(DOCUMENT)
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert wanted <= known
    assert known - wanted == set(), "nothing is described that no route uses"


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_operation_is_described_with_its_errors(method: str, path: str) -> None:
    found = operation(method, path)
    assert found["summary"]
    assert found["description"]
    assert found["tags"]
    answers = found["responses"]
    assert {"422", "429", "500", "503"} <= answers.keys()
    assert any(status.startswith("2") for status in answers)
    for status, answer in answers.items():
        assert answer["description"]
        if int(status) >= 300 and path != "/readyz":
            assert list(answer["content"]) == [PROBLEM], status
    if "{" in path:
        assert "404" in answers
    if found["security"]:
        assert {"401", "403"} <= answers.keys()
    for parameter in found.get("parameters", ()):
        agents = path.startswith("/v1/agent")
        assert parameter.get("description") or parameter["in"] == "header" or agents, parameter


def test_every_field_of_a_submission_is_described_with_its_unit() -> None:
    for name, field in DOCUMENT["components"]["schemas"]["JobIn"]["properties"].items():
        assert field.get("description"), name
        if name.endswith("_s"):
            assert "second" in field["description"], name


@pytest.fixture(scope="module")
def send() -> Iterator[Any]:
    """Return what sends a case to a daemon with a job, in process."""
    app, loop = make_app(), asyncio.new_event_loop()
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
    body = {"name": "train", "command": ["python"]}
    loop.run_until_complete(client.post("/v1/jobs", json=body))
    service = app.state.context.service
    service.run("job-1")
    service.finish("job-1")  # a reader that follows its output must come to an end

    def call(case: Any) -> httpx.Response:
        kwargs = case.as_transport_kwargs(base_url="http://localhost")
        kwargs.pop("cookies", None)
        request = httpx.Request(
            kwargs.pop("method"),
            kwargs.pop("url"),
            headers=httpx.Headers(dict(kwargs.pop("headers", None) or {}), encoding="latin-1"),
            params=kwargs.pop("params", None) or None,
            content=kwargs.pop("data", None),
            json=kwargs.pop("json", None),
        )
        return loop.run_until_complete(client.send(request))

    yield call
    loop.run_until_complete(client.aclose())
    loop.close()


def closed() -> dict[str, Any]:
    """Return the document with schemas that allow no other fields than theirs."""
    document = make_app().openapi()
    for schema in document["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return document


SCHEMA = schemathesis.openapi.from_dict(closed())


def sent_and_checked(send: Any, method: str, path: str, *, examples: int) -> None:
    for mode in schemathesis.GenerationMode:
        strategy = SCHEMA[path][method].as_strategy(generation_mode=mode)

        @settings(
            max_examples=examples,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=strategy)
        def one(case: Any) -> None:
            answer = send(case)
            case.validate_response(answer, checks=CHECKS)

        with contextlib.suppress(Unsatisfiable):  # nothing can be wrong where nothing is given
            one()


#: Without those with examples that take over ten seconds; the long test has them.
SLOW = {("POST", "/v1/jobs"), ("POST", "/v1/jobs/{job_id}/exec")}
QUICK = [key for key in OPERATIONS if key not in SLOW]


@pytest.mark.hypothesis  # its examples lie within: `make test-explore` finds it by the mark
@pytest.mark.parametrize(("method", "path"), QUICK)
def test_whatever_is_sent_the_answer_is_one_that_the_document_promises(
    send: Any, method: str, path: str
) -> None:
    sent_and_checked(send, method, path, examples=5)


@pytest.mark.long
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_whatever_is_sent_in_large_numbers_the_answer_is_one_that_the_document_promises(
    send: Any, method: str, path: str
) -> None:
    sent_and_checked(send, method, path, examples=150)
