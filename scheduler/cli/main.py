"""The command ``leasehold``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from scheduler.cli import exit_codes
from scheduler.cli.guard import DISTRIBUTION, check_packages
from scheduler.cli.lazy import LazyCommand, lazy_group
from scheduler.errors import LeaseholdError

COMMANDS = {
    "simulate": LazyCommand(
        module="scheduler.cli.simulate",
        attribute="simulate",
        summary="Replay a trace under one policy.",
    ),
    "compare": LazyCommand(
        module="scheduler.cli.compare",
        attribute="compare",
        summary="Replay a trace under several policies and write one report.",
    ),
    "sweep": LazyCommand(
        module="scheduler.cli.sweep",
        attribute="sweep",
        summary="Run a grid of arrival rates, policies and seeds; resumable.",
    ),
    "serve": LazyCommand(
        module="scheduler.cli.serve",
        attribute="serve",
        summary="Run the scheduler: the REST interface and the rounds.",
    ),
    "up": LazyCommand(
        module="scheduler.cli.up",
        attribute="up",
        summary="Run a scheduler and an agent of this machine in one, for a laptop.",
    ),
    "config": LazyCommand(
        module="scheduler.cli.config",
        attribute="app",
        summary="Show and check the daemon's configuration.",
    ),
    "policies": LazyCommand(
        module="scheduler.cli.policies",
        attribute="app",
        summary="List the policies and show their programs and parameters.",
    ),
    "traces": LazyCommand(
        module="scheduler.cli.traces",
        attribute="app",
        summary="Inspect, convert and generate traces.",
    ),
    "agent": LazyCommand(
        module="scheduler.cli.agent",
        attribute="agent",
        summary="Run this node's agent: hold leases and run jobs under them.",
    ),
}

app = typer.Typer(
    name="leasehold",
    cls=lazy_group(COMMANDS),
    help="Share a cluster of unlike GPUs among training and inference jobs.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:  # typer calls it positionally
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415  only this option needs it

        typer.echo(f"leasehold {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Share a cluster of unlike GPUs among training and inference jobs."""


def main() -> int:
    """Run the command line.

    Returns:
        0, or what ``exit_codes`` says of the error; other ends leave through ``SystemExit``.
    """
    try:
        check_packages()
        app(prog_name=DISTRIBUTION)
    except LeaseholdError as error:
        details = "".join(f"  {note}\n" for note in getattr(error, "__notes__", ()))
        sys.stderr.write(f"leasehold: {_one_line(error)}\n{details}")
        return exit_codes.code_of(error)
    except OSError as error:
        sys.stderr.write(f"leasehold: {error}\n")
        return exit_codes.FAILED
    except KeyboardInterrupt:
        sys.stderr.write("leasehold: interrupted\n")
        return exit_codes.INTERRUPTED
    return 0


def _one_line(error: LeaseholdError) -> str:
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
