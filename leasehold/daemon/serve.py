"""The composition root of the daemon: from a configuration to a running service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.app import create_app, page_path
from leasehold.config.decisions import policy_choice
from leasehold.config.plausibility import split_networks
from leasehold.config.sources import mask_secrets
from leasehold.daemon.forecasts import SimulatedForecaster
from leasehold.daemon.http.connections import more_descriptors
from leasehold.daemon.http.server import HttpServer, bind, url_of
from leasehold.daemon.identity import identity_provider
from leasehold.daemon.process.garbage import rare_collections
from leasehold.daemon.process.memory import share_arenas
from leasehold.daemon.process.threads import quick_switches
from leasehold.daemon.process.watchdog import StallWatchdog
from leasehold.daemon.secrets.first_token import ensure_admin_token, ensure_given_token
from leasehold.daemon.secrets.secret_keys import secret_box
from leasehold.daemon.settings import api_settings, runtime_settings
from leasehold.daemon.state_dir import StateDir
from leasehold.daemon.token_review import TokenReviewer
from leasehold.daemon.tracing import exported_traces
from leasehold.daemon.webhook_post import WebPost
from planner.knowledge import LearnedKnowledge
from planner.registry import make_sources
from policies.answering import PolicyAnswerer
from policies.registry import make_policy
from scheduler.clock import WallClock
from scheduler.errors import InputError, NotLeadingError, SolveError, StoreUnavailableError
from scheduler.runtime.driver.snapshots import policy_in_force
from scheduler.runtime.driver.takeover import MEANWHILE
from scheduler.runtime.service import LiveService
from scheduler.runtime.solver import SolverPool
from scheduler.unreadable import why_unreadable
from scheduler.views.metrics import Metrics
from simulator.catalogue import read_catalogue
from traces.tables.throughputs import read_throughputs

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Coroutine

    from leasehold.config.settings import ServerConfig
    from scheduler.clock import Clock
    from scheduler.control.facts.requests import PolicyChoice
    from scheduler.store.protocol import Store

_log = logging.getLogger("leasehold.daemon")

#: First and longest pause between two tries to reach the database at the start.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 8.0
#: Longest wait after a refusal before the configured throughputs are declared again.
_DECLARE_AGAIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A serving daemon, as its starter sees it.

    Attributes:
        url: address that it listens on.
        store: its store.
        clock: its clock.
        state_dir: its folder.
        token_made: whether the first token was made at this start.
        admin_token_file: file of that token, perhaps written at an earlier start.
        leader_known: whether this process leads, or knows the leader.
        page_link: makes a link that opens the page, signed in with the first token, once within a
            minute; without a code if that token is not in its file.
    """

    url: str
    store: Store
    clock: Clock
    state_dir: Path
    token_made: bool
    admin_token_file: Path
    leader_known: Callable[[], bool]
    page_link: Callable[[], str]


async def serve(
    config: ServerConfig,
    *,
    stop: asyncio.Event,
    version: str = "",
    started: Callable[[Running], None] = lambda _running: None,
    after_restore: bool = False,
    after_set_back: bool = False,
) -> None:
    """Run a daemon until ``stop`` is set.

    Args:
        config: checked.
        stop: stops it gracefully: requests finish, a snapshot is written, leadership is released.
        version: of the program.
        started: called when the daemon serves requests.
        after_restore: whether an old backup was restored since the last start.
        after_set_back: whether the system's clock was ahead before and is correct now.

    Raises:
        InputError: the state folder is in use, or a setting cannot be used.
        StoreError: the database is unreachable or belongs to a newer release.
        OSError: the address is taken.
    """
    share_arenas()
    more_descriptors()
    async with contextlib.AsyncExitStack() as stack:
        folder = StateDir(Path(config.state_dir or "."))
        stack.callback(folder.close)
        bound = bind(config.server)
        stack.callback(bound.close)
        store = await _wait_for_store(config, stop)
        if store is None:
            return
        stack.callback(store.close)
        box = secret_box(config)
        clock, metrics = WallClock(), Metrics(version=version)
        token_file = Path(config.server.admin_token_file or folder.admin_token_file)
        ensure = ensure_given_token if config.server.admin_token_file else ensure_admin_token
        token_made = not config.server.no_auth and await asyncio.to_thread(
            ensure, store, token_file, now_s=clock.wall_s()
        )
        sources = make_sources(config.throughputs.sources)
        hardware = read_catalogue(config.throughputs.hardware)
        forecaster = SimulatedForecaster(
            clock, sources=config.throughputs.sources, hardware=hardware
        )
        stack.callback(forecaster.close)
        solver, warm = await stack.enter_async_context(_warm_solver(config))
        post = _post(config)
        stack.push_async_callback(post.close)
        service = LiveService(
            store=store,
            clock=clock,
            solver=solver,
            knowledge=partial(LearnedKnowledge, sources=sources, hardware=hardware),
            solver_is_warm=warm.is_set,
            settings=runtime_settings(config),
            metrics=metrics,
            state_dir=folder.path,
            holder=folder.holder,
            address=_advertised(config, bound),
            ttl_s=config.leadership.ttl_s,
            forecaster=forecaster,
            version=version,
            after_restore=after_restore,
            after_set_back=after_set_back,
            box=box,
            post=post,
        )
        reviewer, by_label = _reviewer(config), config.kubernetes.approved_label is not None
        app = create_app(
            service,
            api_settings(config),
            now=clock.wall_s,
            node_of=None if reviewer is None else reviewer.node_of,
            approved_of=reviewer.approved_of if reviewer and by_label else None,
            provider=identity_provider(config, now=clock.wall_s, monotonic=time.monotonic),
        )
        url = url_of(bound, config.server)
        running = Running(
            url=url,
            store=store,
            clock=clock,
            state_dir=folder.path,
            token_made=token_made,
            admin_token_file=token_file,
            leader_known=service.leader_known,
            page_link=lambda: url + page_path(app, token_file),
        )
        folder.note_address(url)
        server = HttpServer(app, config.server, started=lambda: started(running))
        watchdog = StallWatchdog(on_stall=metrics.stalled)
        watchdog.start(asyncio.get_running_loop())
        stack.callback(watchdog.stop)
        stack.enter_context(rare_collections())
        stack.enter_context(quick_switches())
        await stack.enter_async_context(exported_traces(config, store, service))
        await _run_both(service, server.run_on(bound, stop), _declare(config, service), stop=stop)


async def _run_both(
    service: LiveService,
    serving: Coroutine[Any, Any, None],
    declaring: Coroutine[Any, Any, None],
    *,
    stop: asyncio.Event,
) -> None:
    """Schedule and serve requests; if one ends, end the other, requests first."""
    scheduling = asyncio.create_task(service.run())
    scheduling.add_done_callback(lambda _task: stop.set())
    beside = asyncio.create_task(declaring)
    try:
        await serving
    finally:
        beside.cancel()
        scheduling.cancel()
        ends = await asyncio.gather(scheduling, beside, return_exceptions=True)
        await service.stop()
    for end in ends:
        if isinstance(end, Exception):
            raise end


def _post(config: ServerConfig) -> WebPost:
    given = config.webhooks
    try:
        return WebPost(
            allowed=split_networks(",".join(given.allowed_networks)),
            timeout_s=given.timeout_s,
            ca_file=given.ca_file,
        )
    except OSError as error:
        raise InputError(
            f"webhooks.ca_file: the authorities in '{given.ca_file}' cannot be read: "
            f"{why_unreadable(error)}"
        ) from error


def _reviewer(config: ServerConfig) -> TokenReviewer | None:
    account = config.kubernetes.agent_account
    if account is None:
        return None
    audience = config.kubernetes.audience
    return TokenReviewer.in_cluster(
        account=account,
        audience=audience,
        environment=os.environ,
        approved_label=config.kubernetes.approved_label,
    )


async def _wait_for_store(config: ServerConfig, stop: asyncio.Event) -> Store | None:
    """Open the database; wait for an unreachable one as long as the configuration says.

    Returns:
        The store, or None if the daemon is stopped meanwhile.

    Raises:
        StoreUnavailableError: the database did not answer in time, or is a file that cannot be
            opened, so that waiting is useless.
    """
    most_s, begin_s, pause_s = config.store.wait_s, time.monotonic(), FIRST_PAUSE_S
    is_server = not (config.store.url or "").startswith("sqlite")
    while not stop.is_set():
        try:
            return await asyncio.to_thread(open_store, config, migrate=config.store.migrate)
        except StoreUnavailableError as error:
            left_s = most_s - (time.monotonic() - begin_s)
            if not is_server or left_s <= 0:
                if is_server and most_s > 0:
                    error.add_note(f"waited {most_s:g} s for it: store.wait_s")
                raise
            pause_s = min(pause_s, left_s)
            _log.warning(
                "%s; trying again in %.1f s, for %.0f s more", _one_line(error), pause_s, left_s
            )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def open_store(config: ServerConfig, *, migrate: bool) -> Store:
    """Open the database.

    Raises:
        StoreError: it is unreachable, or its schema is another release's.
    """
    from scheduler.store.sql.store import SqlStore  # noqa: PLC0415  sqlalchemy takes long to import

    return SqlStore.open(config.store.url or "", migrate=migrate)


@contextlib.asynccontextmanager
async def _warm_solver(config: ServerConfig) -> AsyncIterator[tuple[SolverPool, asyncio.Event]]:
    """Start the solver in the background; the first question waits if necessary.

    Yields:
        The solver, and an event that is set after its trial run, even a failed one.
    """
    solver = SolverPool(
        PolicyAnswerer(), workers=config.solver.workers, deadline_s=config.solver.deadline_s
    )
    warm = asyncio.Event()
    warming = asyncio.create_task(_warm(solver, config))
    warming.add_done_callback(lambda _task: warm.set())
    try:
        yield solver, warm
    finally:
        warming.cancel()
        await solver.close()
        await asyncio.gather(warming, return_exceptions=True)


async def _warm(solver: SolverPool, config: ServerConfig) -> None:
    try:
        await solver.warm(policy_choice(config))
    except SolveError as error:
        _log.warning("the policy could not be tried out: %s", error)


def _advertised(config: ServerConfig, bound: socket.socket) -> str:
    """Return the URL to which standbys send writes; with port 0 the port is known only now."""
    address = config.server.advertise or ""
    head, colon, port = address.rpartition(":")
    return f"{head}{colon}{bound.getsockname()[1]}" if port == "0" else address


async def _declare(config: ServerConfig, service: LiveService) -> None:
    """Declare the configured throughputs as soon as this process leads."""
    if config.throughputs.path is None:
        return
    table = await asyncio.to_thread(read_throughputs, config.throughputs.path)
    figures, pairs = tuple(table.alone()), tuple(table.sharing())
    while True:
        try:
            changed = await service.declare_throughputs(figures, pairs=pairs, actor="configuration")
        except (NotLeadingError, StoreUnavailableError):
            # When the database accepts entries again, leadership does not change.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(service.until_turned(), _DECLARE_AGAIN_S)
        else:
            _log.info("%d throughputs of %s are new", changed, config.throughputs.path)
            return


def migrate(config: ServerConfig) -> None:
    """Bring the database's schema up to this release.

    Raises:
        StoreError: the database is unreachable or belongs to a newer release.
    """
    open_store(config, migrate=True).close()


def _policy_line(config: ServerConfig, running: Running) -> str:
    """Return the policy in force, and the configured one if a user has replaced it."""
    configured = policy_choice(config)
    found = policy_in_force(running.store, configured, now_s=running.clock.now_s())
    problem = _unusable(found.choice)
    if found.choice == configured:
        return f"{_words(configured)}{problem}"
    return (
        f"{_words(found.choice)}, set by {found.actor}; configured: {_words(configured)}{problem}"
    )


def _unusable(choice: PolicyChoice) -> str:
    """Return the banner's line on an unusable policy: the reason, and the substitute."""
    try:
        make_policy(choice.name, choice.parameters)
    except InputError as error:
        return f"\n          ERROR: it cannot be used: {error};\n          {MEANWHILE}"
    return ""


def _words(choice: PolicyChoice) -> str:
    named = " ".join([choice.name, *(f"{k}={v}" for k, v in choice.parameters.items())])
    flags = [choice.agnostic and "agnostic", choice.space_sharing and "space sharing"]
    return ", ".join([named, *(flag for flag in flags if flag)])


def banner(config: ServerConfig, running: Running, *, version: str) -> str:
    """Return the text at the daemon's start: address, store, policy and token."""
    lines = [
        f"Leasehold {version} listens on {running.url}",
        f"  store   {mask_secrets('store.url', config.store.url or '')}",
        f"  policy  {_policy_line(config, running)}",
        f"  state   {running.state_dir}",
    ]
    if config.server.no_auth:
        lines.append("  tokens  none asked for: every user of this machine is an administrator")
    elif running.token_made:
        lines.append(f"  token   the first administrator's is new in {running.admin_token_file}")
    return "\n".join(lines) + "\n"
