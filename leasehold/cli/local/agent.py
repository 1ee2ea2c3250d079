"""``leasehold agent``: run this node's agent."""

from __future__ import annotations

import asyncio
import math
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.redaction import RedactingFilter
from leasehold.config.load import load_agent_config
from leasehold.daemon.agent import ENROLMENT_VARIABLE, TOKEN_VARIABLE, AgentOptions, run_agent
from leasehold.daemon.agent_options import options_of
from leasehold.daemon.process.stopping import stop_signals
from leasehold.daemon.process.watchdog import StallWatchdog
from leasehold.log import set_up_logging
from scheduler.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: If the event loop stands still for longer, the log says so, and names the code.
STALL_S = 1.0
#: Steps of a launch that have a bound.
START_STEPS = ("bind", "prepare", "image", "trouble", "process")


def agent(
    *,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="TOML file; by default $LEASEHOLD_AGENT_CONFIG, else leasehold/agent.toml in "
            "$XDG_CONFIG_HOME (~/.config) or /etc.",
        ),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(
            "--server",
            help="Address of the scheduler; repeat for standbys. Also LEASEHOLD_SERVER "
            "(default: http://127.0.0.1:8642).",
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="The node's name; by default the host name.")
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option(help="Declare workers, such as v100:4; otherwise NVML is asked. Repeatable."),
    ] = None,
    worker_name: Annotated[
        list[str] | None,
        typer.Option(help="PRODUCT=TYPE: the worker type of a product of NVML's. Repeatable."),
    ] = None,
    state_dir: Annotated[
        str | None,
        typer.Option(help="Private folder, kept over restarts; ~/.local/state/leasehold/agent."),
    ] = None,
    token_file: Annotated[
        str | None, typer.Option(help=f"File with the agent's token; or {TOKEN_VARIABLE}.")
    ] = None,
    enrol_file: Annotated[
        str | None,
        typer.Option(help=f"File with a one-time secret for a token; or {ENROLMENT_VARIABLE}."),
    ] = None,
    ca_file: Annotated[
        str | None, typer.Option(help="Certificates that the scheduler's is checked against.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Address at which other nodes reach rank 0 of a gang on this node."),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            help="process: jobs are local processes. kubernetes: pods of this node "
            "(default: process)."
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            help="Namespace of the jobs' pods. Also LEASEHOLD_JOB_NAMESPACE "
            "(default: leasehold-jobs)."
        ),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option(
            help="Name of the installation, in labels. Also LEASEHOLD_INSTANCE "
            "(default: leasehold)."
        ),
    ] = None,
    kubeconfig: Annotated[
        str | None, typer.Option(help="How to reach the cluster; by default the pod's account.")
    ] = None,
    kube_context: Annotated[str | None, typer.Option(help="Context of that file.")] = None,
    jobs_port: Annotated[
        int | None,
        typer.Option(help="Port on which pods reach this agent; 0: none (default: 8643)."),
    ] = None,
    jobs_host: Annotated[
        str | None,
        typer.Option(
            help="Address by which pods reach this agent; by default their node's. Also "
            "LEASEHOLD_JOBS_HOST."
        ),
    ] = None,
    guard_image: Annotated[
        str | None,
        typer.Option(
            help="Image with this program, for the container that ends a pod if "
            "its agent is gone. Also LEASEHOLD_GUARD_IMAGE."
        ),
    ] = None,
    code_image: Annotated[
        str | None,
        typer.Option(
            help="Image with this program, for the container that brings uploaded code into a pod. "
            "Also LEASEHOLD_CODE_IMAGE."
        ),
    ] = None,
    default_image: Annotated[str | None, typer.Option(help="Image of jobs that name none.")] = None,
    runtime_class: Annotated[
        str | None,
        typer.Option(help="RuntimeClass of pods that see their devices by name (default: nvidia)."),
    ] = None,
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
            help="STEP=SECONDS: how long a step of a launch may take without progress. Of pods: "
            "bind, prepare, image, trouble; of local processes: process. Repeatable."
        ),
    ] = None,
    stop_jobs: Annotated[
        bool | None,
        typer.Option("--stop-jobs", help="Stop the jobs with the agent; else they go on."),
    ] = None,
    report_every: Annotated[
        float | None, typer.Option(help="Seconds between reports without news (default: 10).")
    ] = None,
    progress_every: Annotated[
        float | None, typer.Option(help="Seconds between reports of mere progress (default: 5).")
    ] = None,
    health_every: Annotated[
        float | None, typer.Option(help="Seconds between two looks at the workers (default: 30).")
    ] = None,
    poll_wait: Annotated[
        float | None,
        typer.Option(help="Seconds for which the scheduler may hold a request (default: 15)."),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error (default: info).")
    ] = None,
    log_json: Annotated[
        bool | None, typer.Option("--log-json", help="Log one JSON object per line.")
    ] = None,
) -> None:
    """Run this node's agent: hold leases and run jobs under them.

    Every setting can also come from a TOML file or the environment: see `leasehold config --help`.
    SIGTERM and Ctrl-C stop the agent; its jobs go on, and the next agent on that folder finds them.
    """
    flags: dict[str, tuple[str, Any]] = {
        "servers": ("--server", server or None),
        "node": ("--node", node),
        "workers": ("--worker", worker or None),
        "state_dir": ("--state-dir", state_dir),
        "token_file": ("--token-file", token_file),
        "enrol_file": ("--enrol-file", enrol_file),
        "ca_file": ("--ca-file", ca_file),
        "address": ("--address", address),
        "backend": ("--backend", backend),
        "stop_jobs": ("--stop-jobs", stop_jobs),
        "kubernetes.namespace": ("--namespace", namespace),
        "kubernetes.instance": ("--instance", instance),
        "kubernetes.kubeconfig": ("--kubeconfig", kubeconfig),
        "kubernetes.context": ("--kube-context", kube_context),
        "kubernetes.jobs_port": ("--jobs-port", jobs_port),
        "kubernetes.jobs_host": ("--jobs-host", jobs_host),
        "kubernetes.guard_image": ("--guard-image", guard_image),
        "kubernetes.code_image": ("--code-image", code_image),
        "kubernetes.default_image": ("--default-image", default_image),
        "kubernetes.runtime_class": ("--runtime-class", runtime_class),
        "kubernetes.tolerations": ("--toleration", toleration or None),
        "times.report_every_s": ("--report-every", report_every),
        "times.progress_every_s": ("--progress-every", progress_every),
        "times.health_every_s": ("--health-every", health_every),
        "times.poll_wait_s": ("--poll-wait", poll_wait),
        "log.level": ("--log-level", log_level),
        "log.json": ("--log-json", log_json),
    }
    for product, kind in _names(worker_name or []).items():
        flags[f"worker_names.{product}"] = ("--worker-name", kind)
    sharing = _names(worker_sharing or [], option="--worker-sharing", form="TYPE=MODE")
    for kind, mode in sharing.items():
        flags[f"kubernetes.sharing.{kind}"] = ("--worker-sharing", mode)
    for step, seconds in _start_times(start_timeout or []).items():
        flags[f"start_timeout.{step}_s"] = ("--start-timeout", seconds)
    chosen = load_agent_config(path=config, flags=flags).config
    set_up_logging(level=chosen.log.level, as_json=chosen.log.json, filters=[RedactingFilter()])
    asyncio.run(_run(options_of(chosen, os.environ)))


async def _run(options: AgentOptions) -> None:
    stop, loop, signals = asyncio.Event(), asyncio.get_running_loop(), stop_signals()

    def ask_to_stop() -> None:
        stop.set()
        for number in signals:  # the second signal is not handled
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, ask_to_stop)
    watchdog = StallWatchdog(threshold_s=STALL_S)
    watchdog.start(loop)
    try:
        await run_agent(options, stop=stop, stalls=lambda: watchdog.stalls)
    except BaseExceptionGroup as group:
        raise _first(group) from group
    finally:
        watchdog.stop()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error to show to the user."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


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
