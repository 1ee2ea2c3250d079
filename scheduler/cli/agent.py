"""``leasehold agent``: run this node's agent."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from agent.http_link import LinkSettings
from agent.loop import AgentSettings
from scheduler.daemon.agent import (
    DEFAULT_SERVER,
    ENROLMENT_VARIABLE,
    TOKEN_VARIABLE,
    AgentOptions,
    run_agent,
)
from scheduler.errors import InputError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The defaults.
TIMES, LINK_TIMES = AgentSettings(), LinkSettings()
#: Log levels by name.
LEVELS = {
    name: logging.getLevelName(name.upper()) for name in ("debug", "info", "warning", "error")
}


def agent(
    *,
    server: Annotated[
        list[str] | None,
        typer.Option(
            "--server",
            envvar="LEASEHOLD_SERVER",
            help=f"Address of the scheduler; repeat for standbys. By default {DEFAULT_SERVER}.",
        ),
    ] = None,
    node: Annotated[str, typer.Option(help="The node's name; by default the host name.")] = "",
    worker: Annotated[
        list[str] | None,
        typer.Option(help="Declare workers, such as v100:4; otherwise NVML is asked. Repeatable."),
    ] = None,
    worker_name: Annotated[
        list[str] | None,
        typer.Option(help="PRODUCT=TYPE: the worker type of a product of NVML's. Repeatable."),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(help="Private folder, kept over restarts; ~/.local/state/leasehold/agent."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help=f"File with the agent's token; or {TOKEN_VARIABLE}.")
    ] = None,
    enrol_file: Annotated[
        Path | None,
        typer.Option(help=f"File with a one-time secret for a token; or {ENROLMENT_VARIABLE}."),
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="Certificates that the scheduler's is checked against.")
    ] = None,
    address: Annotated[
        str, typer.Option(help="Where other nodes reach rank 0 of a gang on this node.")
    ] = "",
    stop_jobs: Annotated[
        bool,
        typer.Option("--stop-jobs", help="Have the jobs leave with the agent; else they go on."),
    ] = False,
    report_every: Annotated[
        float, typer.Option(min=0.1, help="Seconds between reports without news.")
    ] = TIMES.report_every_s,
    progress_every: Annotated[
        float, typer.Option(min=0.1, help="Seconds between reports of mere progress.")
    ] = TIMES.progress_every_s,
    health_every: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks at the workers.")
    ] = TIMES.health_every_s,
    poll_wait: Annotated[
        float, typer.Option(min=0.1, help="Seconds for which the scheduler may hold a request.")
    ] = LINK_TIMES.wait_s,
    log_level: Annotated[str, typer.Option(help=f"One of {', '.join(LEVELS)}.")] = "info",
) -> None:
    """Run this node's agent: hold leases and run jobs under them.

    SIGTERM and Ctrl-C stop the agent; its jobs go on, and the next agent on that folder finds them.
    """
    if log_level not in LEVELS:
        raise ParameterError(f"--log-level is '{log_level}'; use one of {', '.join(LEVELS)}")
    options = AgentOptions(
        servers=tuple(server or [DEFAULT_SERVER]),
        node=node,
        workers=tuple(worker or []),
        worker_names=_names(worker_name or []),
        state_dir=state_dir,
        token=os.environ.get(TOKEN_VARIABLE, "").strip(),
        token_file=token_file,
        enrolment=os.environ.get(ENROLMENT_VARIABLE, "").strip(),
        enrolment_file=enrol_file,
        ca_file=ca_file,
        address=address,
        stop_jobs=stop_jobs,
        settings=AgentSettings(
            report_every_s=report_every,
            progress_every_s=progress_every,
            health_every_s=health_every,
        ),
        link=LinkSettings(wait_s=poll_wait),
    )
    logging.basicConfig(
        level=LEVELS[log_level],
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
    asyncio.run(_run(options))


async def _run(options: AgentOptions) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def ask_to_stop() -> None:
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):  # the second signal is not handled
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask_to_stop)
    try:
        await run_agent(options, stop=stop)
    except BaseExceptionGroup as group:
        raise _first(group) from group


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error that a person should see."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _names(items: list[str]) -> Mapping[str, str]:
    names: dict[str, str] = {}
    for item in items:
        product, equals, worker_type = item.rpartition("=")
        if not equals or not product or not worker_type:
            raise InputError(f"--worker-name is '{item}'; give PRODUCT=TYPE")
        names[product] = worker_type
    return MappingProxyType(names)
