"""A change of any setting of the server or the log changes answers, connections or lines."""

import asyncio
import functools
import logging
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from api.app import create_app
from api.auth.tokens import hash_secret, new_secret
from leasehold.cli.serve_options import make_config
from leasehold.daemon.http.connections import Keeper, limits_of
from leasehold.daemon.http.server import HttpServer
from leasehold.daemon.settings import api_settings
from leasehold_testing.certificates import write_certificate, write_key
from leasehold_testing.effects import Entry, check_effect, check_table, settings_of
from leasehold_testing.logged import logged
from leasehold_testing.played import configured, played
from leasehold_testing.ports import free_ports
from leasehold_testing.receivers import receiving
from leasehold_testing.served import served
from leasehold_testing.service import FakeService
from scheduler.store.rows import TokenRow

JOB = {"name": "a", "command": ["x"]}
ONE, OTHER = new_secret(), new_secret()
BEARER = {"Authorization": f"Bearer {ONE}"}


@functools.cache
def ports():
    return free_ports(2)


def setting(key, first, second, observe, *, told=None, **beside):
    """Return the entry of a setting with two texts of it; ``beside`` are others, with ``__``.

    ``told`` is the rest of the entry. Texts may name ``{folder}``, in which there are keys,
    certificates and tokens.
    """
    given = {name.replace("__", "."): text for name, text in beside.items()}

    def shown(text):
        with tempfile.TemporaryDirectory(prefix="lh-") as name:
            folder = Path(name)
            (folder / "one.token").write_text(ONE)
            (folder / "other.token").write_text(OTHER)
            for token in folder.glob("*.token"):
                token.chmod(0o600)
            key_of_both = write_key(folder / "one.key")
            write_key(folder / "other.key")
            write_certificate(folder / "one.crt", key_of_both)
            write_certificate(folder / "other.crt", key_of_both)
            texts = {"state_dir": f"{name}/state"} | given | {key: text}
            return observe(configured({k: v.replace("{folder}", name) for k, v in texts.items()}))

    return key, Entry((first, second), shown, **told or {})


# -- over REST -------------------------------------------------------------------------------------


def answers(*requests, token=False):
    """Return an observation: how requests are answered, and when a refused one may come again.

    Args:
        requests: (method, path, further arguments of a request).
        token: whether they show an administrator's token.
    """

    def observe(config):
        async def story(stage):
            row = TokenRow(
                token_id="t",
                secret_hash=hash_secret(ONE),
                subject="ann",
                role="admin",
                projects=(),
                created_s=stage.clock.now_s(),
                expires_s=None,
            )
            stage.store.add_token(row)
            got = []
            for method, path, more in requests:
                headers = (BEARER if token else {}) | more.get("headers", {})
                got.append(await stage.request(method, path, **more | {"headers": headers}))
            return [(one.status_code, one.headers.get("retry-after")) for one in got]

        return played(story, config)

    return observe


def passed_on(config):
    """Return how a standby answers a request, and whether it asks the leader."""

    async def ask():
        async with receiving() as leader:
            standby = FakeService()
            standby.leading, standby.leader_address = False, leader.url.removesuffix("/hook")
            app = create_app(standby, api_settings(config))
            transport = httpx.ASGITransport(app)
            async with (
                app.router.lifespan_context(app),
                httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
            ):
                await client.post("/v1/jobs", json=JOB)
            return len(leader.requests)

    return asyncio.run(ask())


def reached(*urls, **options):
    """Return an observation: which addresses of a daemon answer; ``{port}`` is its port."""

    def observe(config):
        async def talk(running, _client):
            port, found = httpx.URL(running.url).port, []
            async with httpx.AsyncClient(timeout=30.0, **options) as client:
                for url in urls:
                    try:
                        answer = await client.get(url.replace("{port}", str(port)))
                    except httpx.ConnectError:
                        found.append(None)
                    else:
                        found.append(answer.status_code)
            return found

        return served(config, talk)

    return observe


def on_ports(config):
    """Return on which of two ports a daemon listens."""
    return reached(*(f"http://127.0.0.1:{port}/healthz" for port in ports()))(config)


def address(config):
    """Return under which address a leader is known to standbys."""

    async def talk(running, _client):
        return running.store.leader().address

    return served(config, talk)


def certificate(config):
    """Return whether a daemon shows the first of two certificates."""

    async def talk(running, _client):
        where = httpx.URL(running.url)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection(where.host, where.port, ssl=context)
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
        first = (Path(config.state_dir).parent / "one.crt").read_text()
        return ssl.DER_cert_to_PEM_cert(shown).split() == first.split()

    return served(config, talk)


# -- connections -----------------------------------------------------------------------------------


@dataclass(eq=False)
class Connection:
    """A connection that notes when it was cut off."""

    address: str
    cut: bool = False

    def drop(self):
        self.cut = True

    def time_out(self):
        self.cut = True


def keeper(config, monotonic=lambda: 0.0):
    limits = limits_of(config.server, room=1000, idle_timeout_s=80.0)
    return Keeper(limits, monotonic=monotonic)


def admitted(address):
    """Return an observation: how many of fifty connections are let in at once."""

    def observe(config):
        door, inside = keeper(config), 0
        for i in range(50):
            if door.admit(address.format(i)):
                door.add(Connection(address.format(i)))
                inside += 1
        return inside

    return observe


def cut_off(*, head):
    """Return an observation: after how long an unfinished request is cut off."""

    def observe(config):
        now = [0.0]
        door, one = keeper(config, lambda: now[0]), Connection("10.0.0.1")
        door.add(one)
        if head:
            door.await_body(one, agent=False)
        while not one.cut:
            now[0] += 1.0
            door.sweep()
        return now[0]

    return observe


def server(config, app=None):
    async def nothing(_scope, _receive, _send):
        """Answer nothing."""

    return HttpServer(app or nothing, config.server, started=lambda: None)


def caller(config):
    """Return the address of a caller behind a proxy on this machine, as the service sees it."""
    seen = []

    async def app(scope, _receive, _send):
        seen.append(scope["client"][0])

    made = server(config, app)
    made.config.load()
    scope = {
        "type": "http",
        "scheme": "http",
        "client": ("127.0.0.1", 1234),
        "headers": [(b"x-forwarded-for", b"10.9.9.9")],
    }
    asyncio.run(made.config.loaded_app(scope, None, None))
    return seen


def patience(config):
    return server(config).config.timeout_graceful_shutdown


# -- the log ---------------------------------------------------------------------------------------


def lines(config):
    """Return the lines that are logged for two messages and a request."""
    texts = [f"log.{name}={getattr(config.log, name)}" for name in ("level", "json", "requests")]

    def work():
        make_config(path="/dev/null", flags={}, parameters=(), settings=texts)
        logging.getLogger("leasehold.daemon").info("a line")
        logging.getLogger("leasehold.daemon").error("a problem")
        logging.getLogger("leasehold.access").info("a request")

    return logged(work)


WHOAMI = ("GET", "/v1/whoami", {})
TWICE = (WHOAMI, WHOAMI)
LARGE = ("POST", "/v1/jobs", {"json": JOB | {"env": {"A": "x" * 3000}}})
PAIR = ("POST", "/v1/jobs", {"json": {"jobs": [JOB, JOB]}})
NAMED = ("GET", "/v1/whoami", {"headers": {"Host": "cluster.example"}})
CLOSED = {"server__no_auth": "no"}
PORT = {"server__port": "0"}
TLS = {"server__tls_cert": "{folder}/one.crt", "server__tls_key": "{folder}/one.key"} | PORT
STOPS = {"composed": "a stop that waits for a request takes a second and longer"}
REFUSED = {"refused": True}
HOSTS = reached("http://127.0.0.1:{port}/healthz", "http://127.0.0.2:{port}/healthz")
MINE = reached("http://127.0.0.1:{port}/v1/whoami", headers=BEARER)
ENTRIES = dict(
    [
        setting("server.host", "127.0.0.1", "127.0.0.2", HOSTS, **PORT),
        setting("server.port", str(ports()[0]), str(ports()[1]), on_ports),
        setting("server.advertise", "http://a:1", "http://b:1", address, **PORT),
        setting("server.forward", "no", "yes", passed_on),
        setting("server.tls_cert", "{folder}/one.crt", "{folder}/other.crt", certificate, **TLS),
        setting(
            "server.tls_key",
            "{folder}/one.key",
            "{folder}/other.key",
            certificate,
            told=REFUSED,
            **TLS,
        ),
        setting("server.no_auth", "yes", "no", answers(WHOAMI)),
        setting(
            "server.admin_token_file",
            "{folder}/one.token",
            "{folder}/other.token",
            MINE,
            **CLOSED,
            **PORT,
        ),
        setting("server.metrics_open", "no", "yes", answers(("GET", "/metrics", {})), **CLOSED),
        setting("server.max_body_bytes", "2000", "20000", answers(LARGE)),
        setting("server.max_batch", "1", "2", answers(PAIR)),
        setting(
            "server.rate_per_s",
            "1",
            "0.1",
            answers(*TWICE, token=True),
            server__rate_burst="1",
            **CLOSED,
        ),
        setting("server.rate_burst", "1", "2", answers(*TWICE, token=True), **CLOSED),
        setting(
            "server.anonymous_rate_per_s",
            "1",
            "0.1",
            answers(*TWICE),
            server__anonymous_rate_burst="1",
            **CLOSED,
        ),
        setting("server.anonymous_rate_burst", "1", "2", answers(*TWICE), **CLOSED),
        setting("server.connections", "8", "20", admitted("10.0.0.{}")),
        setting("server.connections_per_address", "3", "9", admitted("10.0.0.1")),
        setting("server.header_timeout_s", "5", "9", cut_off(head=False)),
        setting("server.body_timeout_s", "5", "9", cut_off(head=True)),
        setting("server.hosts", "", "cluster.example", answers(NAMED)),
        setting("server.trusted_proxies", "", "127.0.0.0/8", caller),
        setting("server.shutdown_s", "3", "9", patience, told=STOPS),
        setting("log.level", "info", "error", lines),
        setting("log.json", "no", "yes", lines),
        setting("log.requests", "no", "yes", lines),
    ]
)


def test_every_setting_has_an_entry():
    check_table(ENTRIES, settings_of("serving"))


@pytest.mark.parametrize("key", ENTRIES)
def test_a_setting_changes_what_is_seen(key):
    check_effect(key, ENTRIES[key])
