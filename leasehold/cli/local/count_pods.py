"""``leasehold count-pods``: accelerators of a Kubernetes cluster held by foreign pods."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path  # noqa: TC003  typer reads the annotations
from typing import Annotated

import typer

from leasehold.log import set_up_logging


def count_pods(
    *,
    into: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE/NAME", help="ConfigMaps NAME-0 to NAME-15, which must be there."
        ),
    ],
    instance: Annotated[
        str, typer.Option(help="Name of the installation; its own pods are not counted.")
    ] = "leasehold",
    kubeconfig: Annotated[
        Path | None, typer.Option(help="How to reach the cluster; by default the pod's account.")
    ] = None,
    kube_context: Annotated[str, typer.Option(help="Context of that file.")] = "",
    heartbeat: Annotated[
        Path | None,
        typer.Option(
            envvar="LEASEHOLD_HEARTBEAT",
            metavar="FILE",
            help="A file to touch every few seconds, for a probe.",
        ),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_json: Annotated[
        bool, typer.Option("--log-json", help="Log one JSON object per line.")
    ] = False,
) -> None:
    """Count the accelerators that pods of others hold, for the agents of all nodes.

    Reads the pods of every namespace, so that no agent has to, and writes by node what those hold
    that are not of this installation. The chart runs it; see `kubernetes.foreign_pods` of agents.
    """
    from agent.kubernetes.client import connect_client  # noqa: PLC0415 - with the extra
    from agent.kubernetes.node.foreign_pods import PodCounter, place_of  # noqa: PLC0415 - as above
    from agent.kubernetes.node.foreign_pods import count_pods as run  # noqa: PLC0415 - as above
    from leasehold.daemon.process.heartbeat import heartbeat as beats  # noqa: PLC0415 - as above

    namespace, name = place_of(into)
    set_up_logging(level=log_level, as_json=log_json)

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        client = await connect_client(kubeconfig=kubeconfig, context=kube_context)
        try:
            counter = PodCounter(client=client, namespace=namespace, name=name, instance=instance)
            async with beats(heartbeat):
                await run(counter, stop)
        finally:
            await client.close()

    asyncio.run(main())
