"""What follows from other settings, and what settings must not be together."""

from __future__ import annotations

import dataclasses
import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.config.sources import mask
from policies.registry import make_policy
from scheduler.errors import InputError
from scheduler.protocol.desired import MARGIN_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from leasehold.config.settings import ServerConfig

_BUNDLED = "bundled"


def derive(config: ServerConfig, environment: Mapping[str, str]) -> tuple[ServerConfig, set[str]]:
    """Fill in what follows from other settings; returns the keys that were filled in, too."""
    derived: set[str] = set()
    if config.state_dir is None:
        config = dataclasses.replace(config, state_dir=str(_state_dir(environment)))
        derived.add("state_dir")
    if config.store.url is None:
        url = f"sqlite:///{Path(config.state_dir or '.').expanduser().absolute()}/leasehold.db"
        config = dataclasses.replace(config, store=dataclasses.replace(config.store, url=url))
        derived.add("store.url")
    if config.engine.plan_lead_s is None:
        engine = dataclasses.replace(config.engine, plan_lead_s=_needed_lead_s(config))
        config = dataclasses.replace(config, engine=engine)
        derived.add("engine.plan_lead_s")
    if config.server.advertise is None:
        server = dataclasses.replace(config.server, advertise=_advertised(config))
        config = dataclasses.replace(config, server=server)
        derived.add("server.advertise")
    return config, derived


def _state_dir(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "leasehold"


def _needed_lead_s(config: ServerConfig) -> float:
    leases = config.leases
    return leases.notice_s + leases.grace_s + MARGIN_S + leases.margin_s


def _advertised(config: ServerConfig) -> str:
    server = config.server
    host = socket.gethostname() if server.host in {"0.0.0.0", "::", ""} else server.host  # noqa: S104
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if server.tls_cert else 'http'}://{shown}:{server.port}"


def words(text: str) -> tuple[str, ...]:
    """Return the parts of a text that are separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def networks(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Return addresses and networks that are separated by commas.

    Raises:
        ValueError: one is malformed.
    """
    return tuple(ipaddress.ip_network(part) for part in words(text))


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check(config: ServerConfig, origins: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for everything that does not go together, with its origin."""
    for key, problem in (
        *_check_rounds(config),
        *_check_server(config),
        *_check_places(config),
        *_check_policy(config),
    ):
        yield f"{origins[key]}: {key}: {problem}" if key in origins else f"{key}: {problem}"


def _check_rounds(config: ServerConfig) -> Iterator[tuple[str, str]]:
    length_s, lead_s = config.engine.round_length_s, config.engine.plan_lead_s or 0.0
    leases, needed_s = config.leases, _needed_lead_s(config)
    parts = (
        f"leases.notice_s {leases.notice_s:g} + leases.grace_s {leases.grace_s:g} + "
        f"leases.margin_s {leases.margin_s:g} + {MARGIN_S:g} s at the agent = {needed_s:g} s"
    )
    if needed_s >= length_s:
        yield (
            "engine.round_length_s",
            (
                f"a round of {length_s:g} s leaves no room for {parts}; lengthen the round or "
                "shorten notice and grace"
            ),
        )
    elif lead_s < needed_s:
        yield "engine.plan_lead_s", f"{lead_s:g} s is less than {parts}; jobs would be cut short"
    elif lead_s >= length_s:
        yield (
            "engine.plan_lead_s",
            f"{lead_s:g} s is not shorter than the round of {length_s:g} s",
        )
    if leases.node_timeout_s < leases.margin_s:
        yield (
            "leases.node_timeout_s",
            f"{leases.node_timeout_s:g} s is shorter than leases.margin_s of {leases.margin_s:g} s",
        )


def _check_server(config: ServerConfig) -> Iterator[tuple[str, str]]:
    server = config.server
    if server.no_auth and not is_loopback(server.host):
        yield (
            "server.no_auth",
            (
                f"everybody who reaches {server.host} would be an administrator; listen on "
                "127.0.0.1 or use tokens"
            ),
        )
    if (server.tls_cert is None) != (server.tls_key is None):
        missing = "server.tls_key" if server.tls_key is None else "server.tls_cert"
        given = "server.tls_cert" if server.tls_key is None else "server.tls_key"
        yield given, f"TLS needs {missing} too"
    try:
        networks(server.trusted_proxies)
    except ValueError as error:
        yield (
            "server.trusted_proxies",
            f"{error}; give addresses and networks such as 10.0.0.7, 192.168.0.0/16",
        )
    for key, path in (("server.tls_cert", server.tls_cert), ("server.tls_key", server.tls_key)):
        if path is not None and not Path(path).is_file():
            yield key, f"there is no file '{path}'"


def _check_places(config: ServerConfig) -> Iterator[tuple[str, str]]:
    url = config.store.url or ""
    if not url.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
        yield (
            "store.url",
            (
                f"'{mask('store.url', url)}' names no database; give sqlite:///PATH or "
                "postgresql://USER:PASSWORD@HOST/DATABASE"
            ),
        )
    path = config.throughputs.path
    if path is not None and path != _BUNDLED and not Path(path).is_file():
        yield "throughputs.path", f"there is no file '{path}'; give one, or '{_BUNDLED}'"


def _check_policy(config: ServerConfig) -> Iterator[tuple[str, str]]:
    try:
        make_policy(config.policy.name, config.policy.parameters)
    except InputError as error:
        known = "parameter" in type(error).__name__.lower()
        yield "policy.parameters" if known else "policy.name", str(error)
