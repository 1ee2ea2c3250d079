"""Flags of the commands that start a daemon, and the configuration that they make."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from api.redaction import RedactingFilter
from leasehold.cli import exit_codes
from leasehold.cli.config import ConfigFile
from leasehold.cli.options import parse_params
from leasehold.config.load import load_config
from leasehold.log import set_up_logging
from scheduler.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leasehold.config.settings import ServerConfig

_log = logging.getLogger("leasehold.daemon")

__all__ = ["ConfigFile"]

Host: TypeAlias = Annotated[
    str | None, typer.Option("--host", help="Address to listen on (default: 127.0.0.1).")
]
Port: TypeAlias = Annotated[
    int | None, typer.Option("--port", help="Port to listen on; 0 for any (default: 8642).")
]
StateDirectory: TypeAlias = Annotated[
    str | None,
    typer.Option("--state-dir", help="Folder of database, output and first token."),
]
Database: TypeAlias = Annotated[
    str | None, typer.Option("--db", help="sqlite:////path or postgresql://user@host/database.")
]
PolicyName: TypeAlias = Annotated[
    str | None, typer.Option("--policy", help="Policy of the first start.")
]
PolicyParameters: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="KEY=VALUE", help="Parameter of that policy. Repeatable."),
]
RoundLength: TypeAlias = Annotated[
    float | None, typer.Option("--round-length", help="Seconds of a round (default: 360).")
]
Throughputs: TypeAlias = Annotated[
    str | None,
    typer.Option("--throughputs", help="Throughput table to declare: a file, or bundled."),
]
NoAuth: TypeAlias = Annotated[
    bool | None, typer.Option("--no-auth", help="Ask for no tokens; only on a loopback address.")
]
Certificate: TypeAlias = Annotated[
    str | None, typer.Option("--tls-cert", help="PEM file with the certificate; turns TLS on.")
]
Key: TypeAlias = Annotated[
    str | None, typer.Option("--tls-key", help="PEM file with the certificate's key.")
]
LogLevel: TypeAlias = Annotated[
    str | None, typer.Option("--log-level", help="debug, info, warning or error.")
]
LogJson: TypeAlias = Annotated[
    bool | None, typer.Option("--log-json", help="Log one JSON object per line.")
]
Settings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Any other setting, as in --set leases.notice_s=2. Repeatable.",
    ),
]


AfterRestore: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--after-restore",
        help="Give once, when an old backup was put in place: lease ids that were given away since "
        "are passed over.",
    ),
]

AfterClockSetBack: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--after-clock-set-back",
        help="Give once, when this machine's clock was ahead and was set right: the scheduler goes "
        "on from the time of its newest entry, and goes slower until both agree.",
    ),
]


def make_config(
    *,
    path: str | None,
    flags: dict[str, tuple[str, Any]],
    parameters: Sequence[str],
    settings: Sequence[str],
) -> ServerConfig:
    """Build the configuration, and set up logging by it.

    Args:
        path: of the file, or None for the usual ones.
        flags: key -> (flag, value); a value None was not given.
        parameters: ``KEY=VALUE`` of the policy.
        settings: ``SECTION.KEY=VALUE``.

    Raises:
        ConfigError: lists all faults.
        ParameterError: an item has no ``=``, or comes twice.
    """
    for name, text in parse_params(list(parameters)).items():
        flags[f"policy.parameters.{name}"] = (f"--param {name}", text)
    texts = {
        key: (f"--set {key}", text) for key, text in parse_params(list(settings), "--set").items()
    }
    loaded = load_config(path=path, flags=flags, texts=texts)
    config = loaded.config
    set_up_logging(
        level=config.log.level,
        as_json=config.log.json,
        requests=config.log.requests,
        filters=(RedactingFilter(),),
    )
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    return config


def print_note(text: str) -> None:
    """Print a text for the user; results alone go to stdout."""
    sys.stderr.write(text)
    sys.stderr.flush()


@contextlib.contextmanager
def exits_clearly() -> Iterator[None]:
    """Exit with one line and a code if the daemon cannot start or continue."""
    try:
        yield
    except StoreError as error:
        notes = [f" ({note})" for note in getattr(error, "__notes__", ())]
        print_note(f"leasehold: {' '.join(str(error).split())}{''.join(notes)}\n")
        raise typer.Exit(exit_codes.FAILED) from None
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from group
