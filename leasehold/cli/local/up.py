"""``leasehold up``: a scheduler and an agent of this machine in one process."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

import typer
import uvloop

from agent.process.cells.confinement import OFF
from leasehold import __version__
from leasehold.cli import serve_options as given  # noqa: TC001  typer reads the annotations
from leasehold.cli.serve_options import exits_clearly, make_config, print_note
from leasehold.cli.session.connection import DEFAULT_SERVER
from leasehold.cli.session.connection import state_dir as usual_state_dir
from leasehold.daemon.process.stopping import stop_on_signals
from leasehold.daemon.serve import banner
from leasehold.daemon.up import UpOptions, run_up

if TYPE_CHECKING:
    from leasehold.daemon.serve import Running


def up(
    *,
    worker: Annotated[
        list[str] | None,
        typer.Option(
            "--worker",
            metavar="TYPE:COUNT",
            help="Declare workers, as in v100:2; otherwise NVML is asked. Repeatable.",
        ),
    ] = None,
    node: Annotated[str, typer.Option("--node", help="The node's name (default: host name).")] = "",
    keep_jobs: Annotated[
        bool,
        typer.Option("--keep-jobs", help="Leave jobs running; the next start finds them."),
    ] = False,
    isolation: Annotated[
        str,
        typer.Option(
            "--isolation",
            metavar="auto|required|off",
            help="Keep jobs apart from one another and from the scheduler; needs root.",
        ),
    ] = OFF,
    config: given.ConfigFile = None,
    port: given.Port = None,
    state_dir: given.StateDirectory = None,
    policy: given.PolicyName = None,
    param: given.PolicyParameters = None,
    round_length: given.RoundLength = None,
    throughputs: given.Throughputs = None,
    log_level: given.LogLevel = None,
    after_clock_set_back: given.AfterClockSetBack = False,
    settings: given.Settings = None,
) -> None:
    """Run a scheduler and an agent of this machine in one, for a laptop.

    Ctrl-C gives the jobs notice, so that they checkpoint; the next start goes on with them.
    """
    chosen = make_config(
        path=config,
        flags={
            "server.port": ("--port", port),
            "state_dir": ("--state-dir", state_dir),
            "policy.name": ("--policy", policy),
            "engine.round_length_s": ("--round-length", round_length),
            "throughputs.path": ("--throughputs", throughputs),
            "log.level": ("--log-level", log_level),
        },
        parameters=param or (),
        settings=settings or (),
    )
    options = UpOptions(
        workers=tuple(worker or ()),
        node=node,
        keep_jobs=keep_jobs,
        isolation=isolation,
        after_set_back=after_clock_set_back,
    )

    async def run() -> None:
        stop = asyncio.Event()
        with stop_on_signals(stop):
            await run_up(
                chosen,
                options,
                stop=stop,
                version=__version__,
                started=lambda running: print_note(
                    banner(chosen, running, version=__version__) + next_steps(running)
                ),
            )

    with exits_clearly():
        uvloop.run(run())


def next_steps(running: Running) -> str:
    """Return the command to type in another terminal, with unusual settings first."""
    lines = ["", "In another terminal:"]
    if running.url != DEFAULT_SERVER:
        lines.append(f"  export LEASEHOLD_SERVER={running.url}")
    if running.state_dir != usual_state_dir(os.environ):
        lines.append(f"  export LEASEHOLD_STATE_DIR={running.state_dir}")
    lines += [
        "  leasehold nodes",
        "  leasehold submit -C . -- python train.py",
        "  leasehold watch",
        "In a browser (`leasehold page` prints another link, which signs in once):",
        f"  {running.page_link()}",
    ]
    return "\n".join(lines) + "\n"
