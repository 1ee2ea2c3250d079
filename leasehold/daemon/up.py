"""A daemon and an agent in one process, for one machine."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.folders import private_folder
from agent.process.cells.confinement import OFF
from agent.process.node import ProcessJobs, find_workers
from api.agent_tokens import UP_PREFIX
from api.auth.roles import Role
from api.auth.tokens import hash_secret, new_secret, new_token_id
from leasehold.config.secret_files import read_secret
from leasehold.daemon.agent import AgentOptions, node_name, run_agent
from leasehold.daemon.secrets.agent_token import TOKEN_FILE, write_secret
from leasehold.daemon.serve import serve
from scheduler.store.rows import TokenRow

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from typing import Any

    from leasehold.config.settings import ServerConfig
    from leasehold.daemon.serve import Running
    from scheduler.store.protocol import Store

#: Folder of the agent within the daemon's.
_AGENT_DIR = "agent"
#: Seconds between two checks whether the daemon leads.
LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """Options of ``leasehold up`` beside its configuration.

    Attributes:
        workers: declared workers such as ``v100:2``; empty: found by NVML.
        node: the node's name; empty: the host name.
        keep_jobs: whether jobs go on when the daemon stops; else they get notice first.
        isolation: whether jobs are isolated; see ``agent.process.cells.confinement``.
        after_set_back: see ``serve``.
    """

    workers: tuple[str, ...] = ()
    node: str = ""
    keep_jobs: bool = False
    isolation: str = OFF
    after_set_back: bool = False


async def run_up(
    config: ServerConfig,
    options: UpOptions,
    *,
    stop: asyncio.Event,
    version: str = "",
    started: Callable[[Running], None] = lambda _running: None,
) -> None:
    """Run a daemon and an agent until ``stop`` is set; the agent's jobs stop first.

    Raises:
        ClusterError: there is no GPU here and no worker was declared.
        InputError: the state folder is in use, or a setting cannot be used.
        OSError: the address is taken.
    """
    agent = AgentOptions(
        node=node_name(options.node),
        workers=options.workers,
        stop_jobs=not options.keep_jobs,
        backend=ProcessJobs(isolation=options.isolation),
    )
    find_workers(agent.workers, agent.worker_names)  # fails before anything is started
    stop_daemon = asyncio.Event()
    serving: asyncio.Future[Running] = asyncio.get_running_loop().create_future()

    def tell(running: Running) -> None:
        started(running)
        if not serving.done():
            serving.set_result(running)

    running = serve(
        config,
        stop=stop_daemon,
        version=version,
        started=tell,
        after_set_back=options.after_set_back,
    )
    daemon = asyncio.create_task(running)
    daemon.add_done_callback(lambda _task: stop.set())
    try:
        await _first(serving, stop.wait())
        if serving.done() and not stop.is_set():
            await _run_agent(agent, serving.result(), stop)
    finally:
        stop_daemon.set()
        await daemon


async def _run_agent(options: AgentOptions, running: Running, stop: asyncio.Event) -> None:
    # A daemon that does not lead yet would refuse the agent's first request.
    while not running.leader_known() and not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_S)
    if stop.is_set():
        return
    folder = running.state_dir / _AGENT_DIR
    private_folder(folder, marker="lock")
    await asyncio.to_thread(
        ensure_agent_token, running.store, folder, options.node, now_s=running.clock.wall_s()
    )
    await run_agent(replace(options, servers=(running.url,), state_dir=folder), stop=stop)


async def _first(future: asyncio.Future[Any], other: Coroutine[Any, Any, object]) -> None:
    """Wait for the first of the two."""
    waiting = asyncio.ensure_future(other)
    await asyncio.wait({future, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting


def ensure_agent_token(store: Store, folder: Path, node: str, *, now_s: float) -> None:
    """Give the agent of this machine a token, unless the one in its folder is valid."""
    file = folder / TOKEN_FILE
    if file.exists():
        row = store.token(hash_secret(read_secret(file, "token")))
        if row is not None and row.subject == node and _is_good(row, now_s):
            if row.token_id.startswith(UP_PREFIX):
                return
            # The previous release named it like an enrolled node's token, which may have no more
            # workers than it first reported.
            store.revoke_token(row.token_id, now_s=now_s)
    secret = new_secret()
    row = TokenRow(
        token_id=new_token_id(UP_PREFIX.rstrip("-")),
        secret_hash=hash_secret(secret),
        subject=node,
        role=Role.AGENT,
        created_s=now_s,
    )
    store.add_token(row)
    write_secret(file, secret)


def _is_good(row: TokenRow, now_s: float) -> bool:
    return row.revoked_s is None and (row.expires_s is None or row.expires_s > now_s)
