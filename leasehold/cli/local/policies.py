"""``leasehold policies``: the list of policies, and a description of each."""

from __future__ import annotations

import inspect
import json
import math
import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leasehold.cli.display.output import print_shown, print_text, table
from policies.parameters import describe
from policies.registry import policy_class, policy_origin, usable_policies
from scheduler.errors import NotFoundError, UnknownPolicyError

if TYPE_CHECKING:
    from policies.base import Policy
    from policies.parameters import ParameterInfo

app = typer.Typer(
    name="policies",
    help="List the policies and show their programs and parameters.",
    no_args_is_help=True,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_policies(*, as_json: Json = False) -> None:
    """List every policy, built-in or from a plugin."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = usable_policies()
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        sys.stderr.write(f"leasehold: {message}\n")
    if as_json:
        typer.echo(json.dumps([summary(name, found[name]) for name in found], indent=2))
        return
    rows = [
        (
            name,
            _first_line(policy),
            ", ".join(info.name for info in describe(policy)),
            policy_origin(name),
        )
        for name, policy in found.items()
    ]
    headings = ("policy", "meaning", "parameters", "from")
    print_shown(table(headings, rows, spare=("from",), wrapped=True))


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="The policy.")], *, as_json: Json = False
) -> None:
    """Show a policy's program, source and parameters."""
    try:
        policy = policy_class(name)
    except UnknownPolicyError as error:
        raise NotFoundError(str(error)) from error
    if as_json:
        details = summary(name, policy) | {"description": _text(policy)}
        typer.echo(json.dumps(details, indent=2))
        return
    again = "as time goes by" if policy.time_dependent else "when jobs, weights or workers change"
    print_text(f"{name} ({policy_origin(name)})\n\n{_text(policy)}\n\nAnswers again {again}.\n")
    infos = describe(policy)
    typer.echo("Parameters:" if infos else "It has no parameters.")
    for info in infos:
        print_text(
            f"  {info.name} = {format_default(info.default)}   ({_kind(info)})\n      {info.help}"
        )


def summary(name: str, policy: type[Policy]) -> dict[str, Any]:
    """Return the ``--json`` output of a policy."""
    return {
        "name": name,
        "summary": _first_line(policy),
        "time_dependent": policy.time_dependent,
        "origin": policy_origin(name),
        "parameters": [_parameter(info) for info in describe(policy)],
    }


def format_default(value: object) -> str:
    """Return a default as a user would write it after ``--param name=``."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ",".join(format_default(item) for item in value) or "(empty)"
    if isinstance(value, Mapping):
        return ",".join(f"{k}:{format_default(v)}" for k, v in value.items()) or "(empty)"
    return str(value)


def _parameter(info: ParameterInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "type": info.type,
        "default": info.default,
        "range": info.range,
        "help": info.help,
    }


def _kind(info: ParameterInfo) -> str:
    return f"{info.type}; {info.range}" if info.range else info.type


def _text(policy: type[Policy]) -> str:
    return inspect.getdoc(policy) or "It has no description."


def _first_line(policy: type[Policy]) -> str:
    return _text(policy).split("\n", maxsplit=1)[0]
