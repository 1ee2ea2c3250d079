"""``leasehold agent``: run this node's agent."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from agent.http_link import LinkSettings
from agent.kubernetes.pod_ends import StartBounds
from agent.kubernetes.pods import PodSettings
from agent.loop import AgentSettings
from api.redaction import RedactingFilter
from leasehold.daemon.agent import (
    DEFAULT_SERVER,
    ENROLMENT_VARIABLE,
    TOKEN_VARIABLE,
    AgentOptions,
    KubernetesOptions,
    run_agent,
)
from leasehold.log import set_up_logging
from scheduler.errors import InputError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The defaults.
TIMES, LINK_TIMES, PODS = AgentSettings(), LinkSettings(), PodSettings()
#: Steps of a launch that have a bound.
START_STEPS = ("bind", "prepare", "image", "trouble", "process")
#: Log levels.
LEVELS = ("debug", "info", "warning", "error")


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
    backend: Annotated[
        str, typer.Option(help="process: jobs are local processes. kubernetes: pods of this node.")
    ] = "process",
    namespace: Annotated[
        str, typer.Option(envvar="LEASEHOLD_JOB_NAMESPACE", help="Namespace of the jobs' pods.")
    ] = PODS.namespace,
    instance: Annotated[
        str, typer.Option(envvar="LEASEHOLD_INSTANCE", help="Name of the installation, in labels.")
    ] = PODS.instance,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="How to reach the cluster; by default the pod's account.")
    ] = None,
    kube_context: Annotated[str, typer.Option(help="Context of that file.")] = "",
    jobs_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on which pods reach this agent; 0: none.")
    ] = PODS.endpoint_port,
    jobs_host: Annotated[
        str,
        typer.Option(
            envvar="LEASEHOLD_JOBS_HOST",
            help="Address by which pods reach this agent; by default their node's.",
        ),
    ] = "",
    guard_image: Annotated[
        str,
        typer.Option(
            envvar="LEASEHOLD_GUARD_IMAGE",
            help="Image with this program, for the container that ends a pod whose agent is gone.",
        ),
    ] = "",
    default_image: Annotated[str, typer.Option(help="Image of jobs that name none.")] = "",
    runtime_class: Annotated[
        str, typer.Option(help="RuntimeClass of pods that see their devices by name.")
    ] = PODS.runtime_class,
    worker_sharing: Annotated[
        list[str] | None,
        typer.Option(
            help="TYPE=exclusive|time-slicing|mps|visible: how jobs share workers. Repeatable."
        ),
    ] = None,
    toleration: Annotated[
        list[str] | None,
        typer.Option(help="KEY[=VALUE]:EFFECT: a taint that the pods tolerate. Repeatable."),
    ] = None,
    start_timeout: Annotated[
        list[str] | None,
        typer.Option(
            help="STEP=SECONDS: how long a step of a launch may take without getting on. Of pods: "
            "bind, prepare, image, trouble; of local processes: process. Repeatable."
        ),
    ] = None,
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
    log_json: Annotated[
        bool, typer.Option("--log-json", help="Log one JSON object per line.")
    ] = False,
) -> None:
    """Run this node's agent: hold leases and run jobs under them.

    SIGTERM and Ctrl-C stop the agent; its jobs go on, and the next agent on that folder finds them.
    """
    if log_level not in LEVELS:
        raise ParameterError(f"--log-level is '{log_level}'; use one of {', '.join(LEVELS)}")
    if backend not in {"process", "kubernetes"}:
        raise ParameterError(f"--backend is '{backend}'; use process or kubernetes")
    times = _start_times(start_timeout or [])
    kubernetes = None
    if backend == "kubernetes":
        kubernetes = KubernetesOptions(
            pods=PodSettings(
                namespace=namespace,
                instance=instance,
                default_image=default_image,
                endpoint_port=jobs_port,
                endpoint_host=jobs_host,
                guard_image=guard_image,
                tolerations=(*PODS.tolerations, *map(_toleration, toleration or [])),
                runtime_class=runtime_class,
            ),
            kubeconfig=kubeconfig,
            context=kube_context,
            sharing=_names(worker_sharing or [], option="--worker-sharing", form="TYPE=MODE"),
            bounds=StartBounds(**{f"{n}_s": s for n, s in times.items() if n != "process"}),
        )
        # Its problems are looked up in memory.
        health_every = min(health_every, 5.0)
        node = node or os.environ.get("NODE_NAME", "")
        address = address or os.environ.get("HOST_IP", "")
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
        kubernetes=kubernetes,
        stop_jobs=stop_jobs,
        settings=AgentSettings(
            report_every_s=report_every,
            progress_every_s=progress_every,
            health_every_s=health_every,
            start_most_s=times.get("process", TIMES.start_most_s),
        ),
        link=LinkSettings(wait_s=poll_wait),
    )
    set_up_logging(level=log_level, as_json=log_json, filters=[RedactingFilter()])
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


def _toleration(text: str) -> Mapping[str, str]:
    taint, colon, effect = text.rpartition(":")
    key, equals, value = taint.partition("=")
    if not colon or not key:
        raise InputError(f"--toleration is '{text}'; give KEY[=VALUE]:EFFECT")
    given = {"key": key, "operator": "Equal" if equals else "Exists"}
    return given | ({"value": value} if equals else {}) | ({"effect": effect} if effect else {})


def _start_times(items: list[str]) -> Mapping[str, float]:
    times: dict[str, float] = {}
    for item in items:
        step, _, seconds = item.partition("=")
        try:
            times[step] = float(seconds)
        except ValueError:
            times[step] = 0.0
        if step not in START_STEPS or not 0 < times[step] < math.inf:
            raise InputError(
                f"--start-timeout is '{item}'; give STEP=SECONDS with one of "
                f"{', '.join(START_STEPS)} and a number > 0"
            )
    return times


def _names(
    items: list[str], *, option: str = "--worker-name", form: str = "PRODUCT=TYPE"
) -> Mapping[str, str]:
    names: dict[str, str] = {}
    for item in items:
        product, equals, worker_type = item.rpartition("=")
        if not equals or not product or not worker_type:
            raise InputError(f"{option} is '{item}'; give {form}")
        names[product] = worker_type
    return MappingProxyType(names)
