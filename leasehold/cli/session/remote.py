"""Commands that talk to a scheduler: their shared options, and their client."""

from __future__ import annotations

import functools
import inspect
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

import typer

from leasehold.cli.session.client import ServiceClient
from leasehold.cli.session.connection import find_connection
from leasehold.client.exchange import Patience
from scheduler.errors import InputError
from scheduler.views.times import parse_span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Server: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="The scheduler's address; several, separated by spaces, if it has standbys.",
        show_default=False,
    ),
]
TokenFile: TypeAlias = Annotated[
    str | None, typer.Option("--token-file", metavar="FILE", help="File that holds the token.")
]
CaFile: TypeAlias = Annotated[
    str | None, typer.Option("--ca-file", metavar="FILE", help="Certificates to trust, PEM.")
]
RetryFor: TypeAlias = Annotated[
    str | None,
    typer.Option("--retry-for", metavar="SPAN", help="How long to try if no scheduler answers."),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_SHARED: dict[str, Any] = {
    "server": Server,
    "token_file": TokenFile,
    "ca_file": CaFile,
    "retry_for": RetryFor,
}


def remote(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a client as its first argument, and the options of its connection."""
    hints = get_type_hints(command, localns={"ServiceClient": ServiceClient}, include_extras=True)
    own = list(inspect.signature(command).parameters.values())[1:]
    parameters = [parameter.replace(annotation=hints[parameter.name]) for parameter in own]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _SHARED.items()
    ]

    @functools.wraps(command)
    def connected(**values: Any) -> None:
        _check_texts(values)
        shared = {name: values.pop(name) for name in _SHARED}
        with open_client(**shared) as client:
            command(client, **values)

    connected.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    connected.__annotations__ = {p.name: p.annotation for p in parameters}
    return connected


def _check_texts(values: Mapping[str, Any]) -> None:
    """Refuse words that are not UTF-8; Python passes them as lone surrogates.

    Raises:
        InputError: a word is not UTF-8.
    """
    for value in values.values():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and any("\ud800" <= c <= "\udfff" for c in text):
                raise InputError(f"{text[:60]!a} on the command line is no UTF-8; write it so")


def open_client(
    *,
    server: str | None = None,
    token_file: str | None = None,
    ca_file: str | None = None,
    retry_for: str | None = None,
    patience: Patience | None = None,
) -> ServiceClient:
    """Build a client from the command line and the environment."""
    if retry_for is not None:
        patience = Patience.of(parse_span(retry_for, name="--retry-for"))
    find = partial(find_connection, server=server, token_file=token_file, ca_file=ca_file)
    return ServiceClient(find(), patience=patience, look_again=find)
