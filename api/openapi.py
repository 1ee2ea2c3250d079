"""The OpenAPI document: FastAPI's, plus errors, tokens and the agents' routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from api.edge.layers import OPEN_PATHS
from api.problems import PROBLEM
from api.schemas.answers import Problem
from api.schemas.jobs import BatchIn, JobIn

if TYPE_CHECKING:
    from fastapi import FastAPI

_DESCRIPTION = """
The REST interface of Leasehold. Moments are seconds since the Unix epoch, durations are seconds
(names end in `_s`), throughputs are steps/s of the whole job. Errors are problem details
(RFC 9457) that list every bad field. A standby answers from the store. If only the leader can
answer a request, the standby redirects (307) to the leader, or asks to come back (503). Send
`Authorization: Bearer TOKEN`; a token has a role (viewer, user, operator, admin, agent, or metrics)
and may be confined to projects, and then sees no other jobs.
"""
_REF = "#/components/schemas/{model}"
_ERRORS = {
    "307": "This process does not lead; Location names the leader",
    "401": "No valid token",
    "403": "The role or the projects of the token do not suffice",
    "404": "Not found, or not visible to this token",
    "409": "It contradicts the present state",
    "413": "The body is too large",
    "415": "The body is not JSON",
    "422": "Fields cannot be used; every one is listed",
    "429": "Too many requests; see Retry-After",
    "500": "A bug; see the log under the request's id",
    "503": "Not at the moment; see Retry-After",
}
_AGENTS = "The messages of agents; see `scheduler.protocol.desired`."


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the whole document."""
    made = get_openapi(
        title="Leasehold",
        version=app.version,
        description=_DESCRIPTION,
        routes=app.routes,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    for model in (JobIn, BatchIn, Problem):
        _, found = models_json_schema([(model, "validation")], ref_template=_REF)
        schemas.update(found.get("$defs", {}))
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    made["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    made["paths"].update(_agent_paths())
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            _complete(path, method, operation)
    return made


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add a route's possible errors and its required access."""
    answers = operation["responses"]
    answers.pop("422", None)
    statuses = {"422", "429", "500", "503"}
    if path not in OPEN_PATHS:
        operation["security"] = [{"bearer": []}]
        statuses |= {"307", "401", "403"}
    else:
        operation["security"] = []
    if "{" in path:
        statuses |= {"404"}
    if method != "get":
        statuses |= {"307", "403", "404", "409", "413", "415"}
    for status in sorted(statuses - answers.keys()):
        answers[status] = {
            "description": _ERRORS[status],
            "content": {PROBLEM: {"schema": {"$ref": _REF.format(model="Problem")}}},
        }
    for status in ("200", "201", "207"):
        if status in answers and answers[status].get("description") == "Successful Response":
            answers[status]["description"] = "Done"


def _agent_paths() -> dict[str, Any]:
    return {
        "/v1/agent/enrol": {
            "post": _agent_operation(
                "enrol_agent",
                "Exchange a one-time secret for a node's token",
                body=_object(node=_STRING, secret=_STRING),
                answer=_object(token=_STRING, token_id=_STRING),
            )
        },
        "/v1/agent/token": {
            "post": _agent_operation(
                "renew_token",
                "Renew the node's token if it is time for that",
                answer=_object(renew_in_s={"type": ["number", "null"]}) | {"properties": _RENEWED},
            )
        },
        "/v1/agent/desired": {
            "get": _agent_operation(
                "get_desired",
                "Return the node's desired leases; held until there is news",
                parameters=[
                    _query("term", {"type": "integer", "minimum": 0}),
                    _query("revision", {"type": "integer", "minimum": 0}),
                    _query("wait_s", {"type": "number", "minimum": 0, "maximum": 3600}),
                    _header("X-Leasehold-Instance", r"^[A-Za-z0-9.+/-]{0,253}$"),
                ],
                answer={"type": "object"},
            )
        },
        "/v1/agent/code/{lease_id}": {"get": _code_operation()},
        "/v1/agent/execs/{exec_id}": {
            "post": _agent_operation(
                "tell_exec",
                "Report the output of a command beside a job, or its end",
                parameters=[{"name": "exec_id", "in": "path", "required": True, "schema": _STRING}],
                answer=_object(stop={"type": "boolean"}, room={"type": "boolean"}),
            )
        },
        "/v1/agent/report": {
            "post": _agent_operation(
                "report",
                "Take a node's report in",
                body={"type": "object"},
                parameters=[
                    _header("X-Leasehold-Address", r"^[A-Za-z0-9._:\[\]-]{0,253}$"),
                    _header("X-Leasehold-Agent", r"^[A-Za-z0-9._+-]{0,64}$"),
                ],
                answer=None,
            )
        },
        "/v1/agent/logs/{lease_id}/{stream}": {"put": _log_operation()},
    }


_STRING = {"type": "string"}
_RENEWED = {"renew_in_s": {"type": ["number", "null"]}, "token": _STRING, "token_id": _STRING}


def _object(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _header(name: str, pattern: str) -> dict[str, Any]:
    schema = {"type": "string", "pattern": pattern}
    return {"name": name, "in": "header", "required": False, "schema": schema}


def _path(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _agent_operation(
    operation_id: str,
    summary: str,
    *,
    answer: dict[str, Any] | None,
    body: dict[str, Any] | None = None,
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    good: dict[str, Any] = {"204": {"description": "Done"}}
    if answer is not None:
        good = {"200": {"description": "Done", "content": {"application/json": {"schema": answer}}}}
    operation = {
        "tags": ["agents"],
        "summary": summary,
        "description": _AGENTS,
        "operationId": operation_id,
        "parameters": parameters or [],
        "responses": good,
    }
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body}},
        }
    return operation


def _code_operation() -> dict[str, Any]:
    operation = _agent_operation(
        "get_code",
        "Return the code that a lease of the node is started in",
        parameters=[_path("lease_id", {"type": "integer", "minimum": 0})],
        answer=None,
    )
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return operation | {"responses": {"200": {"description": "Done", "content": content}}}


def _log_operation() -> dict[str, Any]:
    operation = _agent_operation(
        "append_log",
        "Store output of a lease",
        parameters=[
            _path("lease_id", {"type": "integer", "minimum": 0}),
            _path("stream", {"type": "string", "enum": ["out", "err"]}),
            _query("offset", {"type": "integer", "minimum": 0}),
            _header("X-Leasehold-Nonce", r"^[0-9a-f]{0,64}$"),
        ],
        answer=_object(next_offset={"type": "integer"}),
    )
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return operation | {"requestBody": {"required": True, "content": content}}
