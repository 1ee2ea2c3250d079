"""The HTTP server: uvicorn on a socket that is already bound."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import time
from typing import TYPE_CHECKING, cast

import uvicorn

from api.app import stop_waiting
from leasehold.config.plausibility import split_networks
from leasehold.daemon.http.certificate import CertificateReloader
from leasehold.daemon.http.connections import Keeper, limits_of, room_for_connections
from leasehold.daemon.http.listener import Listener
from leasehold.daemon.http.protocol import GuardedProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI

    from leasehold.config.settings import ServerSection

_BACKLOG = 2048
#: Long enough for agents that poll every half minute to keep their connection.
_KEEP_ALIVE_S = 75
#: Ticks of uvicorn (0.1 s each) between two checks for overdue connections.
_SWEEP_TICKS = 5
#: The same between two checks for a new certificate.
_CERTIFICATE_TICKS = 50


def bind(settings: ServerSection) -> socket.socket:
    """Bind the address, before anything else is started.

    Raises:
        OSError: the address is taken, or not this machine's; a message of one line.
    """
    host = settings.host
    if host == "::" and not socket.has_dualstack_ipv6():
        host = "0.0.0.0"  # noqa: S104 - all addresses were asked for
    where = f"{host}:{settings.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise OSError(f"server.host '{settings.host}' has no address: {error.strerror}") from error
    taken = socket.socket(family, kind, protocol)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if host == "::":
        taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        taken.bind(address)
        taken.listen(_BACKLOG)
    except OSError as error:
        taken.close()
        advice = "; stop the process that listens there or choose another --port"
        said = advice if error.errno == errno.EADDRINUSE else ""
        raise OSError(f"cannot listen on {where}: {error.strerror}{said}") from error
    taken.setblocking(False)
    return taken


def url_of(bound: socket.socket, settings: ServerSection) -> str:
    """Return the URL that a user would type."""
    host, port = bound.getsockname()[:2]
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


class HttpServer(uvicorn.Server):
    """Serves until it is stopped; the composition root handles signals.

    Args:
        app: the application.
        settings: limits and certificates.
        started: called when the server serves requests.
    """

    def __init__(
        self, app: FastAPI, settings: ServerSection, *, started: Callable[[], None]
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=GuardedProtocol,
                ws="none",
                lifespan="on",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=bool(settings.trusted_proxies),
                forwarded_allow_ips=[str(one) for one in split_networks(settings.trusted_proxies)],
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=max(1, round(settings.shutdown_s)),
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
        )
        self._app = app
        self._settings = settings
        self._tell = started
        self._keeper: Keeper | None = None
        self._reloader: CertificateReloader | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup([])  # the listeners are our own
        keeper = self._keeper = self._make_keeper()
        cert, key = self._settings.tls_cert, self._settings.tls_key
        if self.config.ssl is not None and cert and key:
            self._reloader = CertificateReloader(context=self.config.ssl, certificate=cert, key=key)
        listeners = [
            Listener(one, self._make_protocol, keeper, tls=self.config.ssl) for one in sockets or ()
        ]
        # uvicorn closes them and waits for that, as with asyncio's servers.
        self.servers = cast("list[asyncio.base_events.Server]", listeners)
        self._tell()

    async def on_tick(self, counter: int) -> bool:
        """Close overdue connections, and look for a new certificate."""
        if self._keeper is not None and counter % _SWEEP_TICKS == 0:
            self._keeper.sweep()
        if self._reloader is not None and counter % _CERTIFICATE_TICKS == 0:
            self._reloader.look()
        return await super().on_tick(counter)

    def _make_keeper(self) -> Keeper:
        limits = limits_of(
            self._settings, room=room_for_connections(), idle_timeout_s=_KEEP_ALIVE_S + 5.0
        )
        proxies = split_networks(self._settings.trusted_proxies)
        return Keeper(
            limits,
            monotonic=time.monotonic,
            is_proxy=lambda address: any(ipaddress.ip_address(address) in one for one in proxies),
        )

    def _make_protocol(self, address: str) -> GuardedProtocol:
        assert self._keeper is not None
        return GuardedProtocol(
            self.config,
            self.server_state,
            self.lifespan.state,
            keeper=self._keeper,
            address=address,
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield

    async def run_on(self, bound: socket.socket, stop: asyncio.Event) -> None:
        """Serve on a socket until ``stop`` is set, then finish the open requests.

        Open streams and requests that wait for news are answered at once.
        """
        serving = asyncio.create_task(self.serve(sockets=[bound]))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            stop_waiting(self._app)
            self.should_exit = True
            await serving
