"""Read requests of routes: JSON by orjson, and no unknown query parameters."""

import re
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute

from api.context import context_of
from api.problems import (
    MOST_ERRORS,
    MOST_SUGGESTED,
    FieldProblem,
    ProblemError,
    invalid_request,
    unknown,
)

#: Levels of lists and objects in a body.
DEEPEST = 64
#: Values in a body. A thousand jobs with 200 each; 8 MB of empty lists, which took 1.4 s, do not.
MOST_VALUES = 200_000
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class StrictRequest(Request):
    """A request with strict JSON: no NaN, no lone surrogates, bounded depth and size."""

    async def json(self) -> Any:
        """Return the decoded body; a large one is decoded beside the event loop."""
        return await context_of(self).by_size(await self.body(), read_json)


def read_json(body: bytes) -> Any:
    """Decode a body after counting its values.

    Raises:
        ProblemError: there are too many, or they are nested too deeply.
        orjson.JSONDecodeError: it is not JSON.
    """
    check_count(body)
    value = orjson.loads(body)
    _check_depth(value)
    return value


def check_count(body: bytes) -> None:
    """Refuse a body of too many values, before they are made.

    Raises:
        ProblemError: the body has too many values.
    """
    if _values(body) <= MOST_VALUES:
        return
    count = _values(_STRINGS.sub(b"", body))  # 8 MB take 50 ms, so only if it may matter
    if count > MOST_VALUES:
        problem = f"has some {count} values, and at most {MOST_VALUES} are read; send several"
        raise ProblemError(
            413,
            f"the body {problem} requests",
            errors=[FieldProblem(field="", value=None, problem=f"{problem} requests")],
        )


def _values(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _check_depth(value: Any) -> None:
    """Refuse nesting so deep that later recursive steps could fail.

    Raises:
        ProblemError: the value is nested too deeply.
    """
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        if not level:
            return
        inner = (v.values() if isinstance(v, dict) else v for v in level)
        level = [v for values in inner for v in values if isinstance(v, dict | list)]
    if level:
        problem = f"is nested deeper than {DEEPEST} levels"
        raise invalid_request([FieldProblem(field="", value=None, problem=problem)])


class StrictRoute(APIRoute):
    """A route that refuses other media types than JSON, and unknown parameters."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route."""
        serve = super().get_route_handler()
        known = frozenset(field.alias for field in self.dependant.query_params)
        takes_body = self.body_field is not None or "requestBody" in (self.openapi_extra or {})

        async def strict(request: Request) -> Response:
            check_query(request, known)
            if takes_body:
                _check_media_type(request)
            return await serve(StrictRequest(request.scope, request.receive))

        return strict


def check_query(request: Request, known: frozenset[str]) -> None:
    """Refuse parameters of the query that a route does not know.

    Raises:
        ProblemError: a parameter is unknown, or a value holds a NUL character.
    """
    strangers = [name for name in request.query_params if name not in known]
    problems = [
        FieldProblem(
            field=name[:100],
            value=None,
            problem=unknown("parameter", name, known if i < MOST_SUGGESTED else ()),
        )
        for i, name in enumerate(strangers[:MOST_ERRORS])
    ]
    problems += [
        FieldProblem(field=name[:100], value=value, problem="must not contain NUL characters")
        for name, value in request.query_params.multi_items()
        if "\0" in value
    ]
    if problems:
        raise invalid_request(problems)


def _check_media_type(request: Request) -> None:
    """Refuse a body that is not declared as JSON, so that no web form can send one."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and (
        media_type or request.headers.get("content-length", "0") != "0"
    ):
        raise ProblemError(
            415, f"the body's media type is '{media_type[:100]}'; send application/json"
        )
