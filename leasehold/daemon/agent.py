"""The composition root of the agent: from options to a running agent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from agent.backend import NodeSetup
from agent.folders import private_folder
from agent.link.http_link import HttpLink, LinkSettings, server_address
from agent.logs.log_upload import UploadSettings
from agent.loop import Agent
from agent.process.node import ProcessJobs
from agent.settings import AgentSettings
from leasehold import __version__
from leasehold.daemon.process.heartbeat import heartbeat
from leasehold.daemon.secrets.agent_token import TOKEN_FILE, AgentToken
from scheduler.errors import InputError
from scheduler.protocol.desired import NODE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any

    from agent.backend import NodeBackend, NodeJobs

_log = logging.getLogger("leasehold.agent")
#: A part of a host name; some machines have underscores in their names.
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")

#: Addresses for documentation (RFC 5737, RFC 3849): only the route to other networks leads there.
_OUTSIDE: Final = ("192.0.2.1", "2001:db8::1")
#: The scheduler's address if no other is given.
DEFAULT_SERVER = "http://127.0.0.1:8642"
#: In the state folder.
HEARTBEAT: Final = "heartbeat"
#: Environment variables; a command line can be read by every user of the machine.
TOKEN_VARIABLE = "LEASEHOLD_AGENT_TOKEN"  # noqa: S105 - a variable's name
ENROLMENT_VARIABLE = "LEASEHOLD_ENROLMENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """Options of ``leasehold agent``.

    Attributes:
        servers: addresses of the scheduler's processes.
        node: the node's name; empty: the host name.
        workers: declared workers such as ``v100:4``; empty: found by NVML.
        worker_names: worker type by NVML's product name.
        state_dir: private folder, kept over restarts; None: of this user.
        token: the bearer token; empty: from the file, the state folder, or an enrolment.
        token_file: a file with the token; read again if the scheduler refuses the token.
        enrolment: one-time secret, used if there is no token yet.
        enrolment_file: a file with the one-time secret.
        ca_file: certificates that verify the scheduler's certificate.
        address: address of this node for rank 0 of a gang; empty: see ``local_address``.
        backend: runs the jobs; local processes by default.
        stop_jobs: whether the jobs stop when the agent stops; if not, they go on and the next agent
            finds them.
        settings: times of the loop.
        link: times of the link.
        upload: settings for sending output.
    """

    servers: tuple[str, ...] = (DEFAULT_SERVER,)
    node: str = ""
    workers: tuple[str, ...] = ()
    worker_names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    state_dir: Path | None = None
    token: str = ""
    token_file: Path | None = None
    enrolment: str = ""
    enrolment_file: Path | None = None
    ca_file: Path | None = None
    address: str = ""
    backend: NodeBackend = field(default_factory=ProcessJobs)
    stop_jobs: bool = False
    settings: AgentSettings = field(default_factory=AgentSettings)
    link: LinkSettings = field(default_factory=LinkSettings)
    upload: UploadSettings = field(default_factory=UploadSettings)


async def run_agent(
    options: AgentOptions,
    *,
    stop: asyncio.Event | None = None,
    stalls: Callable[[], int] = int,
) -> None:
    """Run an agent until ``stop`` is set or the call is cancelled.

    If the call is cancelled, the jobs go on, with any options.

    Args:
        options: of the agent.
        stop: ends it.
        stalls: returns how often the event loop stood still so far.

    Raises:
        InputError: an option cannot be used.
        NotPermittedError: the enrolment was refused; or, in a group: the scheduler refuses the
            token at the first contact.
        ClusterError: there is no GPU here and no worker was declared.
    """
    stop = stop or asyncio.Event()
    check_address(options.address)
    node = node_name(options.node)
    state_dir = (options.state_dir or default_state_dir()).absolute()
    private_folder(state_dir, marker="lock")
    setup = NodeSetup(
        node=node,
        state_dir=state_dir,
        workers=options.workers,
        worker_names=options.worker_names,
        margin_s=options.settings.margin_s,
        start_most_s=options.settings.start_most_s,
    )
    async with heartbeat(state_dir / HEARTBEAT), options.backend.open(setup) as jobs:
        await _unless(stop, token_of(options, setup).enrol_if_needed())
        if not stop.is_set():
            await _join(options, setup, jobs, stop=stop, stalls=stalls)


async def _join(
    options: AgentOptions,
    setup: NodeSetup,
    jobs: NodeJobs,
    *,
    stop: asyncio.Event,
    stalls: Callable[[], int],
) -> None:
    """Serve the scheduler until the agent is stopped."""
    token = token_of(options, setup)
    link = HttpLink(
        servers=options.servers,
        node=setup.node,
        token=token.read,
        address=options.address or local_address(options.servers[0]),
        version=__version__,
        ca_file=options.ca_file,
        settings=options.link,
    )
    try:
        agent = Agent(
            node=setup.node,
            link=link,
            inventory=jobs.inventory,
            state_dir=setup.state_dir,
            make_backend=jobs.make_backend,
            settings=options.settings,
            upload=options.upload,
            listen=jobs.listen,
            stalls=stalls,
        )
        line = f"node {setup.node} serves {link.server} with {jobs.says}"
        renewing = asyncio.create_task(token.keep_renewed(link))
        try:
            await _serve(agent, stop, line, stop_jobs=options.stop_jobs)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
    finally:
        await link.close()


async def _serve(agent: Agent, stop: asyncio.Event, line: str, *, stop_jobs: bool) -> None:
    """Run an agent until it is stopped; log the line when the agent is reachable."""
    running = asyncio.ensure_future(agent.run(on_open=lambda: _log.info("%s", line)))
    try:
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if stop_jobs and not running.done():
            _log.info("stopping the jobs")
            leaving = asyncio.ensure_future(agent.stop_jobs())
            await asyncio.wait({running, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def token_of(options: AgentOptions, setup: NodeSetup) -> AgentToken:
    """Return the location and source of the agent's token."""
    return AgentToken(
        node=setup.node,
        file=setup.state_dir / TOKEN_FILE,
        given=options.token,
        given_file=options.token_file,
        enrolment=options.enrolment,
        enrolment_file=options.enrolment_file,
        servers=options.servers,
        ca_file=options.ca_file,
    )


def default_state_dir() -> Path:
    """Return the default state folder of an agent of this user."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "leasehold" / "agent"


def local_address(server: str) -> str:
    """Return this machine's address for other nodes; no data is sent.

    It is the address on the route to the scheduler. If the scheduler is on this machine, it is the
    address on the route to other networks; loopback without such a route.
    """
    url = urlsplit(server_address(server))
    host = url.hostname or ""
    address = _address_towards(host, url.port or 80)
    if address and not ip_address(address).is_loopback:
        return address
    outward = (_address_towards(outside, 80) for outside in _OUTSIDE)
    if found := next(filter(None, outward), ""):
        return found
    _log.warning(
        "gangs over several nodes cannot reach this one: give --address; it uses 127.0.0.1"
    )
    return "127.0.0.1"


def _address_towards(host: str, port: int) -> str:
    """Return this machine's address on the route to a host; empty if there is no route."""
    try:
        family, kind, proto, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return ""


def node_name(given: str) -> str:
    """Return a node's name: the host name unless another one is given.

    Raises:
        InputError: no scheduler accepts the name.
    """
    name = given or socket.gethostname()
    if not NODE_NAME.fullmatch(name):
        whose = "--node" if given else "this machine's host name"
        raise InputError(
            f"{whose} is '{name[:100]}'; give --node NAME with at most 128 letters, digits, '.', "
            "'_' and '-', a letter or digit first"
        )
    return name


def check_address(address: str) -> None:
    """Refuse a text that is neither a host name nor an IP address; empty: no address given.

    Raises:
        InputError: the text is neither.
    """
    if not address:
        return
    with contextlib.suppress(ValueError):
        ip_address(address)
        return
    if len(address) > 253 or not all(map(_LABEL.fullmatch, address.removesuffix(".").split("."))):
        raise InputError(
            f"--address is '{address[:100]}'; give a host name or an IP address, without a port"
        )


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Await some work, but cancel it when the agent is stopped."""
    doing, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
    finally:
        stopped.cancel()
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)
