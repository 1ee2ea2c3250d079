"""``leasehold config``: the daemon's settings, and the source of each."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from leasehold.config.agent_settings import AgentConfig
from leasehold.config.load import load_agent_config, load_config
from leasehold.config.settings import ServerConfig
from leasehold.config.show import as_text, reference_tables, setting_rows

if TYPE_CHECKING:
    from leasehold.config.load import Loaded

app = typer.Typer(
    name="config",
    help="Show and check the configuration of the daemon, or of an agent.",
    no_args_is_help=True,
)

ConfigFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="TOML file; by default $LEASEHOLD_CONFIG, else leasehold/leasehold.toml in "
        "$XDG_CONFIG_HOME (~/.config) or /etc.",
    ),
]
OfAgent: TypeAlias = Annotated[
    bool, typer.Option("--agent", help="That of `leasehold agent` instead of the daemon's.")
]
#: Settings are long; if the output is not a terminal, they are not cut.
_UNBOUNDED = 400


@app.command("show")
def show(
    *,
    config: ConfigFile = None,
    agent: OfAgent = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show every setting in force with its origin. Passwords are masked."""
    loaded = _loaded(config, agent=agent)
    if as_json:
        settings = {
            key: {"value": _plain(value), "origin": origin}
            for key, value, origin in setting_rows(loaded)
        }
        typer.echo(json.dumps(settings, indent=2))
        return
    from rich.console import Console  # noqa: PLC0415  only when something is shown
    from rich.table import Table  # noqa: PLC0415 - only for tables

    table = Table("setting", "value", "origin", box=None, header_style="bold")
    for key, value, origin in setting_rows(loaded):
        table.add_row(key, as_text(value), origin, style="dim" if origin == "default" else None)
    console = Console()
    (console if console.is_terminal else Console(width=_UNBOUNDED)).print(table)


@app.command("check")
def check(
    file: Annotated[str, typer.Argument(help="The TOML file.")], *, agent: OfAgent = False
) -> None:
    """Check a file together with the environment; lists everything that is wrong."""
    _loaded(file, agent=agent)
    sys.stderr.write(f"{file} is in order\n")


@app.command("reference")
def show_reference(*, agent: OfAgent = False) -> None:
    """Print every setting with its default and variable, as Markdown."""
    sys.stdout.write(reference_tables(AgentConfig if agent else ServerConfig))


def _loaded(path: str | None, *, agent: bool) -> Loaded[Any]:
    """Read the configuration, and print its outdated settings."""
    loaded = load_agent_config(path=path) if agent else load_config(path=path)
    for warning in loaded.warnings:
        sys.stderr.write(f"leasehold: warning: {warning}\n")
    return loaded


def _plain(value: Any) -> Any:
    # JSON knows no infinity.
    return "inf" if isinstance(value, float) and math.isinf(value) else value
