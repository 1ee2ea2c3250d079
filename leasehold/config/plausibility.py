"""What follows from other settings, and what settings must not be together."""

from __future__ import annotations

import dataclasses
import ipaddress
import math
import re
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from api.auth.identity import ALGORITHMS, is_safe_url, parse_grant
from leasehold.config.certificates import validity_of
from leasehold.config.secret_files import read_given_token, read_secret
from leasehold.config.sources import mask_secrets
from policies.registry import make_policy
from scheduler.errors import InputError
from scheduler.protocol.bounds import LARGEST_UID
from scheduler.protocol.desired import MARGIN_S
from scheduler.unreadable import why_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from leasehold.config.settings import OidcSection, ServerConfig, ServerSection

_BUNDLED = "bundled"
#: Twice the default wait of an agent's request for news.
LEAST_TIMEOUT_S: Final = 30.0


def fill_derived(
    config: ServerConfig, environment: Mapping[str, str]
) -> tuple[ServerConfig, set[str]]:
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


def split_words(text: str) -> tuple[str, ...]:
    """Return the parts of a text that are separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def split_networks(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Return addresses and networks that are separated by commas.

    Raises:
        ValueError: one is malformed.
    """
    return tuple(ipaddress.ip_network(part) for part in split_words(text))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
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
        *_check_webhooks(config),
        *_check_tracing(config),
        *_check_provider(config),
        *_check_places(config),
        *_check_policy(config),
        *_check_throughputs(config),
        *_check_uids(config),
        *_check_prices(config),
        *_check_pods(config),
    ):
        yield f"{origins[key]}: {key}: {problem}"


def remarks_on(config: ServerConfig, origins: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for everything that works, and not as one would think, with its origin."""
    leases = config.leases
    if leases.node_timeout_s < LEAST_TIMEOUT_S:
        yield (
            f"{origins['leases.node_timeout_s']}: leases.node_timeout_s: {leases.node_timeout_s:g} "
            f"s is short: nodes get nothing new while they are silent for half of it, and agents "
            f"may be silent for {LEAST_TIMEOUT_S / 2:g} s when all is well; give "
            f"{LEAST_TIMEOUT_S:g} s or more, or let agents report more often (times.report_every_s)"
        )


def remarks_on_files(config: ServerConfig, origins: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for every file without which, or with which, less works, with its origin."""
    keys, cert = config.secrets.key_file, config.server.tls_cert
    if keys is not None and not Path(keys).expanduser().is_file():
        yield (
            f"{origins['secrets.key_file']}: secrets.key_file: there is no file '{keys}'; jobs "
            "with secret variables are refused"
        )
    validity = None if cert is None else validity_of(cert)
    if validity is not None and (words := validity.in_words(datetime.now(UTC))):
        yield f"{origins['server.tls_cert']}: server.tls_cert: {words}"


def check_files(config: ServerConfig, origins: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for every file that only the daemon reads and cannot use, with its origin."""
    for key, problem in (
        *_check_certificate(config.server),
        *_check_hardware(config),
        *_check_token_file(config.server),
        *_check_authority(config.webhooks.ca_file),
    ):
        yield f"{origins[key]}: {key}: {problem}"


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
                f"anyone that reaches {server.host} would be an administrator; listen on "
                "127.0.0.1 or use tokens"
            ),
        )
    if (server.tls_cert is None) != (server.tls_key is None):
        missing = "server.tls_key" if server.tls_key is None else "server.tls_cert"
        given = "server.tls_cert" if server.tls_key is None else "server.tls_key"
        yield given, f"TLS needs {missing} too"
    if server.advertise is not None and not re.match(r"https?://[^/]", server.advertise):
        yield (
            "server.advertise",
            f"'{server.advertise}' is no address; give one as https://scheduler-1.example:8642",
        )
    try:
        split_networks(server.trusted_proxies)
    except ValueError as error:
        yield (
            "server.trusted_proxies",
            f"{error}; give addresses and networks such as 10.0.0.7, 192.168.0.0/16",
        )


def _check_tracing(config: ServerConfig) -> Iterator[tuple[str, str]]:
    endpoint = config.tracing.endpoint
    if endpoint is not None and not re.match(r"https?://[^/]", endpoint):
        yield "tracing.endpoint", f"'{endpoint}' is no address; give one as http://collector:4318"


def _check_webhooks(config: ServerConfig) -> Iterator[tuple[str, str]]:
    try:
        split_networks(",".join(config.webhooks.allowed_networks))
    except ValueError as error:
        yield "webhooks.allowed_networks", f"{error}; give networks such as 10.0.0.0/8"


def _check_authority(path: str | None) -> Iterator[tuple[str, str]]:
    if path is not None and not Path(path).is_file():
        yield "webhooks.ca_file", f"there is no file '{path}'"


def _check_certificate(server: ServerSection) -> Iterator[tuple[str, str]]:
    files = {"server.tls_cert": server.tls_cert, "server.tls_key": server.tls_key}
    missing = [(k, p) for k, p in files.items() if p is not None and not Path(p).is_file()]
    for key, path in missing:
        yield key, f"there is no file '{path}'"
    if missing or server.tls_cert is None or server.tls_key is None:
        return
    asked: list[bool] = []

    def password() -> str:
        asked.append(True)
        return ""

    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            server.tls_cert, server.tls_key, password=password
        )
    except (OSError, ValueError) as error:
        if not asked:  # a key with a password is asked for when the daemon starts
            yield (
                "server.tls_cert",
                (
                    f"'{server.tls_cert}' and server.tls_key '{server.tls_key}' are no certificate "
                    f"with its key in PEM: "
                    f"{getattr(error, 'reason', None) or why_unreadable(error)}"
                ),
            )


def _check_token_file(server: ServerSection) -> Iterator[tuple[str, str]]:
    if server.admin_token_file is None:
        return
    try:
        read_given_token(Path(server.admin_token_file))
    except InputError as error:
        yield "server.admin_token_file", str(error)


def _check_provider(config: ServerConfig) -> Iterator[tuple[str, str]]:
    oidc = config.oidc
    yield from _check_client(oidc)
    if oidc.issuer is None:
        return
    for key, url in (("oidc.issuer", oidc.issuer), ("oidc.jwks_url", oidc.jwks_url)):
        if url is not None and not is_safe_url(url):
            yield key, f"'{url}' is no https address; anyone on the way could change its answer"
    if not oidc.audience:
        yield "oidc.audience", "none is given; tokens made for others would be taken"
    if not oidc.groups:
        yield "oidc.groups", 'no group has a role; give some, such as "ml-team" = "user:vision"'
    for group, text in oidc.groups.items():
        try:
            parse_grant(text)
        except InputError as error:
            yield "oidc.groups", f"{group}: {error}"
    wrong = [name for name in oidc.algorithms if name not in ALGORITHMS]
    if wrong or not oidc.algorithms:
        known = ", ".join(ALGORITHMS)
        yield (
            "oidc.algorithms",
            f"{', '.join(wrong) or 'none'} cannot be taken; give some of {known}",
        )
    if oidc.ca_file is not None and not Path(oidc.ca_file).is_file():
        yield "oidc.ca_file", f"there is no file '{oidc.ca_file}'"


def _check_client(oidc: OidcSection) -> Iterator[tuple[str, str]]:
    """Check the settings with which the page signs people in."""
    needed = next((one for one in ("issuer", "client_id") if getattr(oidc, one) is None), None)
    if needed is not None:
        for name in ("client_id", "client_secret_file", "redirect_url"):
            if getattr(oidc, name) is not None:
                yield f"oidc.{name}", f"is given without oidc.{needed}"
        return
    if oidc.redirect_url is None:
        yield "oidc.redirect_url", "is missing; with oidc.client_id give https://HOST/sign-in-done"
    elif not _is_way_back(oidc.redirect_url):
        yield (
            "oidc.redirect_url",
            f"is '{oidc.redirect_url}'; it must be an https address that ends with /sign-in-done",
        )
    if "openid" not in oidc.scopes:
        yield "oidc.scopes", f"'{' '.join(oidc.scopes)}' lacks openid, so there would be no token"
    if oidc.client_secret_file is not None:
        try:
            read_secret(Path(oidc.client_secret_file), "client secret")
        except InputError as error:
            yield "oidc.client_secret_file", str(error)


def _is_way_back(url: str) -> bool:
    """Return whether an address is one of the page to which a provider leads back."""
    parts = urlsplit(url)
    plain = not (parts.query or parts.fragment or parts.username or parts.password)
    return is_safe_url(url) and plain and parts.path.endswith("/sign-in-done")


def _check_places(config: ServerConfig) -> Iterator[tuple[str, str]]:
    url = config.store.url or ""
    if not url.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
        yield (
            "store.url",
            (
                f"'{mask_secrets('store.url', url)}' names no database; give sqlite:///PATH or "
                "postgresql://USER:PASSWORD@HOST/DATABASE"
            ),
        )
    elif problem := _url_problem(url):
        yield "store.url", problem


def _url_problem(url: str) -> str:
    """Return the problem with the URL of a known kind of database; empty if it is valid."""
    if url.startswith("sqlite:"):
        if url.removeprefix("sqlite:///").partition("?")[0] in {"", ":memory:"}:
            return "a SQLite database in memory cannot be shared; name a file: sqlite:////PATH"
        return ""
    try:
        urlsplit(url).port  # noqa: B018 - it raises
    except ValueError as error:
        return f"'{mask_secrets('store.url', url)}' is no URL: {error}"
    return ""


def _check_hardware(config: ServerConfig) -> Iterator[tuple[str, str]]:
    if config.throughputs.hardware is not None:
        from simulator.catalogue import read_catalogue  # noqa: PLC0415  it imports numpy

        try:
            read_catalogue(config.throughputs.hardware)
        except InputError as error:
            yield "throughputs.hardware", str(error)


def _check_throughputs(config: ServerConfig) -> Iterator[tuple[str, str]]:
    path = config.throughputs.path
    if path is not None and path != _BUNDLED:
        if not Path(path).is_file():
            yield "throughputs.path", f"there is no file '{path}'; give one, or '{_BUNDLED}'"
        else:
            from traces.tables.throughputs import read_throughputs  # noqa: PLC0415  it imports numpy

            try:
                read_throughputs(path)
            except InputError as error:
                yield "throughputs.path", str(error)
    if not config.throughputs.sources:
        return
    from planner.registry import make_sources  # noqa: PLC0415  it imports numpy

    try:
        make_sources(config.throughputs.sources)
    except InputError as error:
        yield "throughputs.sources", str(error)


def _check_uids(config: ServerConfig) -> Iterator[tuple[str, str]]:
    first, count = config.isolation.first_uid, config.isolation.uids
    if first + count > LARGEST_UID:
        yield (
            "isolation.first_uid",
            f"isolation.uids {count} from {first} on go beyond the largest uid, {LARGEST_UID}",
        )


def _check_prices(config: ServerConfig) -> Iterator[tuple[str, str]]:
    for name, text in config.budgets.prices.items():
        try:
            price = float(text)
        except ValueError:
            price = -1.0
        if not 0.0 <= price < math.inf:
            yield "budgets.prices", f"the price of '{name}' is '{text}'; it must be a number >= 0"


def _check_policy(config: ServerConfig) -> Iterator[tuple[str, str]]:
    try:
        make_policy(config.policy.name, config.policy.parameters)
    except InputError as error:
        known = "parameter" in type(error).__name__.lower()
        yield "policy.parameters" if known else "policy.name", str(error)


def _check_pods(config: ServerConfig) -> Iterator[tuple[str, str]]:
    account = config.kubernetes.agent_account
    if account is not None and not re.fullmatch("[^/]+/[^/]+", account):
        yield "kubernetes.agent_account", f"'{account}' is no account; give NAMESPACE/NAME"
    known = ("spec.", "metadata.labels.", "metadata.annotations.", "env.", "requests.")
    for entry in config.kubernetes.template_allows:
        if not entry.startswith(known):
            problem = (
                f"'{entry}' is no field of a pod; give paths as the error of a submission names "
                "them, such as spec.volumes[].nfs or spec.priorityClassName=low"
            )
            yield "kubernetes.template_allows", problem
