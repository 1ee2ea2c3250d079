"""The client against the OpenAPI document of the real routes: every route, parameter and field.

Nothing is listed by hand. Each method is called with all arguments of its signature. Its request is
compared with the document. Its result for an answer of the document is compared with its return
type.
"""

from __future__ import annotations

import ast
import asyncio
import collections.abc
import inspect
import json
import re
import types
import typing
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

import leasehold.client.forms as forms_module
from leasehold.client import AsyncClient, Client, forms, streams
from leasehold.client.exchange import Exchange, Patience
from leasehold.client.wires import AsyncWire, BlockingWire
from leasehold.connection import Connection
from leasehold_testing.client_forms import document, for_clients, written

DOCUMENT = document()
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    (method, path): operation for method, path, operation in for_clients(DOCUMENT)
}  # fmt: skip
NAMES = vars(forms_module) | vars(streams) | vars(collections.abc) | {"Any": Any, "forms": forms}


def methods(kind: type) -> dict[str, Any]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: method for name, method in found if not name.startswith("_")}


def test_the_types_are_those_of_the_document() -> None:
    there = ast.parse(Path(forms_module.__file__).read_text(encoding="utf-8"))
    made = ast.parse(written(DOCUMENT))
    assert ast.dump(there) == ast.dump(made), "run `make client-forms`"


def test_both_faces_have_the_same_methods_with_the_same_parameters() -> None:
    one, other = methods(Client), methods(AsyncClient)
    assert one.keys() == other.keys()
    for name in one:
        assert list(inspect.signature(one[name]).parameters) == list(
            inspect.signature(other[name]).parameters
        ), name
        assert inspect.getdoc(one[name])


# -- what goes out --------------------------------------------------------------------------------


def hints(method: Any) -> dict[str, Any]:
    return typing.get_type_hints(method, {**NAMES, **vars(inspect.getmodule(method))}, NAMES)


def fields_of(form: Any) -> dict[str, Any]:
    return typing.get_type_hints(form, NAMES)


def sample(hint: Any, name: str = "") -> Any:
    """Return a value of a type, as full as it can be."""
    if typing.is_typeddict(hint):
        return {key: sample(value, key) for key, value in fields_of(hint).items()}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return arguments[0]
    if origin in {typing.Union, types.UnionType}:
        wanted = [a for a in arguments if a is not type(None)]
        return sample(wanted[-1], name)  # of one and several, several
    if origin in {collections.abc.Sequence, list}:
        return [sample(arguments[0], name)]
    if origin in {collections.abc.Mapping, dict}:
        places = typing.get_args(arguments[0])  # of a tuple
        key = tuple(map(sample, places)) if places else "k"
        return {key: sample(arguments[1])}
    return {str: "a", int: 1, float: 1.0, bool: True, bytes: b"a"}.get(hint, "a")


def calls_of(method: Any) -> list[tuple[list[Any], dict[str, Any]]]:
    """Return arguments: all of them, the needed ones, and each value of those that have few."""
    known, positional, named = hints(method), [], {}
    owed: tuple[list[Any], dict[str, Any]] = ([], {})
    choices: list[tuple[int | str, Any]] = []
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        hint = known[parameter.name]
        if parameter.kind is parameter.VAR_KEYWORD:
            if typing.get_origin(hint) is typing.Unpack:
                named |= sample(typing.get_args(hint)[0])
            continue
        free = parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        place: int | str = len(positional) if free else parameter.name
        if free:
            positional.append(sample(hint))
        else:
            named[parameter.name] = sample(hint)
        if parameter.default is parameter.empty and free:
            owed[0].append(positional[-1])
        elif parameter.default is parameter.empty:
            owed[1][parameter.name] = named[parameter.name]
        if typing.get_origin(hint) is typing.Literal:
            choices += [(place, value) for value in typing.get_args(hint)]
    calls = [(positional, named), owed]
    for place, value in choices:
        calls.append((list(positional), dict(named)))
        calls[-1][isinstance(place, str)][place] = value  # type: ignore[index]
    return calls


class Recorder:
    """Answers every request as the document says, and records them."""

    def __init__(self) -> None:
        #: (method, path of the document) -> names in query, in body, values in the path.
        self.seen: dict[tuple[str, str], dict[str, set[str]]] = {}
        self.unknown: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = unquote(request.url.raw_path.decode().partition("?")[0])
        key, values = self._operation(request.method, path)
        if key is None:
            self.unknown.append(f"{request.method} {path}")
            return httpx.Response(404, json={})
        seen = self.seen.setdefault(key, {"query": set(), "body": set(), "path": set()})
        seen["query"] |= set(dict(request.url.params))
        seen["path"] |= values
        body = json.loads(request.content) if request.content else {}
        seen["body"] |= set(leaves(body))
        return answer(OPERATIONS[key], request, body)

    def _operation(self, method: str, path: str) -> tuple[tuple[str, str] | None, set[str]]:
        for (known, template), _ in sorted(OPERATIONS.items(), key=lambda item: "{" in item[0][1]):
            pattern = re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(template))
            found = re.fullmatch(pattern, path)
            if found and known == method and self._may_be(known, template, found.groups()):
                return (known, template), set(found.groups())
        return None, set()

    @staticmethod
    def _may_be(method: str, template: str, values: tuple[str, ...]) -> bool:
        parameters = OPERATIONS[method, template].get("parameters", ())
        for name, value in zip(re.findall(r"\{(\w+)\}", template), values, strict=True):
            (schema,) = [p["schema"] for p in parameters if p["name"] == name]
            allowed = resolved(schema).get("enum")
            if allowed and value not in allowed:
                return False
        return True


def leaves(body: Any, path: str = "") -> set[str]:
    """Return the names of the fields of a body, nested ones with dots."""
    if isinstance(body, list):
        return set().union(*(leaves(item, path) for item in body)) if body else set()
    if not isinstance(body, dict):
        return set()
    found = set()
    for key, value in body.items():
        name = f"{path}.{key}" if path else key
        found |= {name} | leaves(value, name)
    return found


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    return SCHEMAS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def fields_asked(schema: dict[str, Any], path: str = "") -> set[str]:
    """Return the fields of a body as the document has them."""
    schema = resolved(schema)
    found: set[str] = set()
    for option in schema.get("anyOf", ()):
        found |= fields_asked(option, path)
    if schema.get("type") == "array":
        found |= fields_asked(schema["items"], path)
    for key, value in schema.get("properties", {}).items():
        name = f"{path}.{key}" if path else key
        found |= {name} | fields_asked(value, name)
    return found


# -- what comes back ------------------------------------------------------------------------------


def example(schema: dict[str, Any]) -> Any:
    """Return a value as a schema describes it, with every field."""
    schema = resolved(schema)
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return example(schema["anyOf"][0])
    if schema.get("type") == "array":
        return [example(schema["items"])]
    if schema.get("type") == "object":
        made = {key: example(value) for key, value in schema.get("properties", {}).items()}
        further = schema.get("additionalProperties")
        return made | ({"k": example(further)} if isinstance(further, dict) else {})
    return {"string": "a", "number": 1.5, "integer": 1, "boolean": True}.get(schema.get("type"))


def answer(operation: dict[str, Any], request: httpx.Request, body: Any) -> httpx.Response:
    wanted = request.headers["Accept"]
    if wanted == "text/event-stream":
        data = json.dumps(example({"$ref": "#/components/schemas/EventOut"}))
        return httpx.Response(
            200, text=f"id: 7\ndata: {data}\n\n", headers={"Content-Type": wanted}
        )
    if wanted == streams.PIECES:
        return log_answer(request)
    status = min(int(s) for s in operation["responses"] if s.startswith("2"))
    content = operation["responses"][str(status)].get("content", {})
    if "application/json" not in content:
        return httpx.Response(status, text="x" if content else "")
    schema = content["application/json"]["schema"]
    options = [resolved(s) for s in schema.get("anyOf", [schema])]
    if "dry_run" in request.url.params or "jobs" in body:  # one route, four answers
        names = [
            name for name, known in SCHEMAS.items() if known in options
            and ("Fit" in name) == ("dry_run" in request.url.params)
            and ("jobs" in known["properties"]) == ("jobs" in body)
        ]  # fmt: skip
        options = [SCHEMAS[name] for name in names] or options
    elif len(options) > 1:
        options = [SCHEMAS["SubmittedOut"]]
    made = example(options[0])
    if "next_cursor" in made and "cursor" in request.url.params:
        made["next_cursor"] = None
    return httpx.Response(status, json=made)


def log_answer(request: httpx.Request) -> httpx.Response:
    """Break off after the first piece, so that it has to be said where to go on."""
    piece = {"attempt": 1, "node": "n", "stream": "out", "offset": 0, "data": "eHg="}
    end = {"end": True, "complete": True, "missing": []}
    line = end if "since" in request.url.params else piece
    return httpx.Response(
        200, text=json.dumps(line) + "\n", headers={"Content-Type": streams.PIECES}
    )


def assert_is(value: Any, hint: Any, where: str) -> None:
    """Compare a value with a type: a mapping has all of its fields and no others."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return
    if typing.is_typeddict(hint):
        fields = fields_of(hint)
        assert value.keys() == fields.keys(), where
        for key, kind in fields.items():
            assert_is(value[key], kind, f"{where}.{key}")
    elif origin is typing.Literal:
        assert value in arguments, where
    elif origin in {typing.Union, types.UnionType}:
        assert any(is_a(value, argument) for argument in arguments), (where, value, hint)
    elif origin is list:
        assert isinstance(value, list), where
        for item in value:
            assert_is(item, arguments[0], f"{where}[]")
    elif origin is dict:
        assert isinstance(value, dict), where
        for item in value.values():
            assert_is(item, arguments[1], f"{where}{{}}")
    else:
        assert isinstance(value, hint), (where, value, hint)


def is_a(value: Any, hint: Any) -> bool:
    try:
        assert_is(value, type(None) if hint is None else hint, "")
    except (AssertionError, AttributeError):
        return False
    return True


def exchange(wire: Any) -> Exchange:
    return Exchange(Connection(server="http://a:1"), patience=Patience.of(60.0), wire=wire)


def blocking(record: Recorder) -> Client:
    made = Client.__new__(Client)
    made._talk_over(exchange(BlockingWire(httpx.MockTransport(record), sleep=lambda _: None)))
    return made


#: A call of a given method, with or without a type.
GENERIC = {"call", "close"}


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    """Return what all methods have asked for."""
    record = Recorder()
    client = blocking(record)
    for name, method in methods(AsyncClient).items():
        if name in GENERIC:
            continue
        for positional, named in calls_of(method):
            if name == "wait":  # no example has ended
                with pytest.raises(TimeoutError):
                    client.wait(*positional, timeout_s=0.0)
                continue
            found = getattr(client, name)(*positional, **named)
            check_answer(name, found, hints(method)["return"])
    return record


def check_answer(name: str, found: Any, hint: Any) -> None:
    if typing.get_origin(hint) is collections.abc.AsyncGenerator:
        (kind,) = typing.get_args(hint)
        items = [item for item, _ in zip(found, range(2), strict=False)]
        assert items
        for item in items:
            assert_is(item, kind, name)
    elif hint is type(None):
        assert found is None
    else:
        assert_is(found, hint, name)


def test_every_route_has_a_method_and_no_method_asks_for_another(recorded: Recorder) -> None:
    assert recorded.unknown == []
    assert recorded.seen.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("key", sorted(OPERATIONS), ids=" ".join)
def test_every_parameter_and_field_of_a_route_can_be_given(
    key: tuple[str, str], recorded: Recorder
) -> None:
    operation, seen = OPERATIONS[key], recorded.seen[key]
    parameters = operation.get("parameters", ())
    assert seen["query"] == {p["name"] for p in parameters if p["in"] == "query"}
    for parameter in parameters:
        if parameter["in"] == "path":
            assert set(resolved(parameter["schema"]).get("enum", ())) <= seen["path"]
    content = operation.get("requestBody", {}).get("content", {})
    wanted = fields_asked(content["application/json"]["schema"]) if content else set()
    free = {name for name in seen["body"] if name.endswith(".k") or ".k." in name}
    assert seen["body"] - free == wanted


def test_a_coroutine_asks_for_the_same(recorded: Recorder) -> None:
    record = Recorder()

    async def ask() -> None:
        wire = AsyncWire(httpx.MockTransport(record))
        async with AsyncClient.over(exchange(wire)) as client:
            for name, method in methods(AsyncClient).items():
                if name in GENERIC | {"wait"}:
                    continue
                for positional, named in calls_of(method):
                    found = getattr(client, name)(*positional, **named)
                    if inspect.isasyncgen(found):
                        items = []
                        async for item in found:
                            items.append(item)
                            if len(items) == 2:
                                break
                        check_answer(name, items, hints(method)["return"])
                        await found.aclose()
                    else:
                        check_answer(name, await found, hints(method)["return"])

    asyncio.run(ask())
    assert record.seen == recorded.seen
