"""The client's types, written from the OpenAPI document: ``make client-forms``.

A schema becomes a ``TypedDict``, and the parameters of a query another one. Of a request that needs
some fields and takes others, the latter are a type of their own: ``JobOptions`` of ``JobIn``.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

from api.app import create_app
from api.settings import ApiSettings
from leasehold_testing.service import FakeService

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HEAD: Final = '''"""What requests hold and what answers say; plain dictionaries, as they are sent.

Written from the OpenAPI document: change the schemas in ``api``, then run ``make client-forms``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - read at run time
from typing import Any, Literal, TypeAlias, TypedDict'''
_PLAIN: Final = {
    "string": "str",
    "number": "float",
    "integer": "int",
    "boolean": "bool",
    "null": "None",
}
_WIDTH: Final = 100


def document() -> dict[str, Any]:
    """Return the OpenAPI document of the real routes."""
    return create_app(FakeService(), ApiSettings()).openapi()


def for_clients(made: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield method, path and operation of routes that are not for agents."""
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            if "agents" not in operation["tags"]:
                yield method.upper(), path, operation


def name_of(schema: str) -> str:
    """Return the client's name of a schema: ``JobOut`` is a ``Job``."""
    return schema.removesuffix("Out")


def query_name(operation_id: str) -> str:
    """Return the type of an operation's query: ``list_jobs`` has a ``ListJobsQuery``."""
    return "".join(word.capitalize() for word in operation_id.split("_")) + "Query"


def written(made: Mapping[str, Any]) -> str:
    """Return the module, not yet formatted."""
    parts = [_HEAD]
    schemas = made["components"]["schemas"]
    enumerations = [name for name in sorted(schemas) if "enum" in schemas[name]]
    parts += [_enumeration(name, schemas[name]) for name in enumerations]
    for name in sorted(schemas):
        if name not in enumerations:
            parts += _forms(name, schemas[name])
    for _, _, operation in for_clients(made):
        query = [p for p in operation.get("parameters", ()) if p["in"] == "query"]
        if query:
            parts.append(_query(operation, query))
    return "\n\n".join(parts) + "\n"


def _enumeration(name: str, schema: Mapping[str, Any]) -> str:
    comment = _lines(_first_line(schema), "#: ")
    return f"{comment}\n{name_of(name)}: TypeAlias = {_type(schema, sent=False)}"


def _forms(name: str, schema: Mapping[str, Any]) -> list[str]:
    sent = name.endswith("In")
    fields, needed = schema["properties"], set(schema.get("required", ()))
    if not sent:
        return [_form(name_of(name), "TypedDict", schema, fields, sent=False)]
    free = {key: value for key, value in fields.items() if key not in needed}
    owed = {key: value for key, value in fields.items() if key in needed}
    if not owed:
        return [_form(name, "TypedDict, total=False", schema, free, sent=True)]
    if not free:
        return [_form(name, "TypedDict", schema, owed, sent=True)]
    base = name.removesuffix("In") + "Options"
    title = {"description": f"The optional fields of ``{name}``."}
    return [
        _form(base, "TypedDict, total=False", title, free, sent=True),
        _form(name, base, schema, owed, sent=True),
    ]


def _form(
    name: str, base: str, schema: Mapping[str, Any], fields: Mapping[str, Any], *, sent: bool
) -> str:
    said = {key: _text(value) for key, value in fields.items() if _text(value)}
    lines = [f"class {name}({base}):", f'    """{_first_line(schema)}']
    if said:
        lines += ["", "    Attributes:"]
        lines += [_lines(f"{key}: {text}", " " * 8, " " * 12) for key, text in said.items()]
        lines.append('    """')
    else:
        lines[-1] += '"""'
    lines.append("")
    lines += [f"    {key}: {_type(value, sent=sent)}" for key, value in fields.items()]
    return "\n".join(lines)


def _query(operation: Mapping[str, Any], parameters: list[Mapping[str, Any]]) -> str:
    fields = {}
    for parameter in parameters:
        schema = dict(parameter["schema"])
        if schema.get("type") == "array":  # one alone may be given as it is
            schema = {"anyOf": [schema["items"], schema]}
        members = [m for m in schema.get("anyOf", [schema]) if m.get("type") != "null"]
        fields[parameter["name"]] = {
            "anyOf": [*members, {"type": "null"}],
            "description": parameter.get("description", ""),
        }
    title = {"description": f"What the query of ``{operation['operationId']}`` may hold."}
    name = query_name(operation["operationId"])
    return _form(name, "TypedDict, total=False", title, fields, sent=True)


def _type(schema: Mapping[str, Any], *, sent: bool) -> str:
    if "$ref" in schema:
        return name_of(schema["$ref"].rpartition("/")[2])
    if "enum" in schema or "const" in schema:
        values = schema.get("enum") or [schema["const"]]
        return f"Literal[{', '.join(map(repr, values))}]"
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(part, sent=sent) for part in schema["anyOf"]))
    if schema.get("type") == "array":
        items = _type(schema["items"], sent=sent)
        return f"Sequence[{items}]" if sent else f"list[{items}]"
    if schema.get("type") == "object":
        held = schema.get("additionalProperties", True)
        values = "Any" if isinstance(held, bool) else _type(held, sent=sent)
        return f"Mapping[str, {values}]" if sent else f"dict[str, {values}]"
    return _PLAIN.get(schema.get("type", ""), "Any")


def _first_line(schema: Mapping[str, Any]) -> str:
    text = str(schema.get("description") or "").partition("\n\n")[0]
    return " ".join(text.split()) or "One of these."


def _text(schema: Mapping[str, Any]) -> str:
    return " ".join(str(schema.get("description") or "").split())


def _lines(text: str, indent: str, further: str | None = None) -> str:
    return textwrap.fill(
        text,
        width=_WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    print(written(document()), end="")
