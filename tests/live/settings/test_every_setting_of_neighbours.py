"""A change of any setting of identity providers, Kubernetes, webhooks and tracing has an effect."""

import asyncio
import functools
import http.server
import os
import shutil
import ssl
import tempfile
import threading
import time
from pathlib import Path
from unittest import mock
from urllib.parse import parse_qs, urlsplit

import pytest

from api.auth.code_flow import BegunSignIn, SignInError
from leasehold.daemon.identity import identity_provider
from leasehold.daemon.serve import _post, _reviewer
from leasehold.daemon.settings import runtime_settings
from leasehold.daemon.token_review import TokenReviewer
from leasehold.daemon.tracing import exported_traces
from leasehold_testing.certificates import write_certificate, write_key
from leasehold_testing.clock import ManualClock
from leasehold_testing.effects import Entry, check_effect, check_table, settings_of
from leasehold_testing.hooks import KEY
from leasehold_testing.identity_provider import AUDIENCE, IdentityProvider
from leasehold_testing.memory_store import MemoryStore
from leasehold_testing.played import configured, played
from leasehold_testing.receivers import receiving
from leasehold_testing.stored import history_row
from scheduler.secret_box import SecretBox
from scheduler.webhooks.delivery import Webhooks
from scheduler.webhooks.messages import Template
from scheduler.webhooks.webhooks import Posted

NODE = "authentication.kubernetes.io/node-name"


def setting(key, first, second, observe, *, own="", told=None, **beside):
    """Return the entry of a setting with two texts of it; ``beside`` are others, with ``__``.

    ``told`` is the rest of the entry. Texts may name ``{folder}``, in which there are certificates.
    """
    given = {name.replace("__", "."): text for name, text in beside.items()}

    def shown(text):
        texts = {"server.no_auth": "no"} | given | {f"{key}{own}": text}
        here = {name: one.replace("{folder}", str(certificates())) for name, one in texts.items()}
        return observe(here)

    return key, Entry((first, second), shown, **told or {})


@functools.cache
def certificates():
    """Return a folder with two certificates and their keys, and two secrets."""
    folder = Path(tempfile.mkdtemp(prefix="lh-"))
    for name in ("one", "other"):
        write_certificate(folder / f"{name}.crt", write_key(folder / f"{name}.key"))
        (folder / f"{name}.secret").write_text(f"secret-{name}\n")
    return folder


@pytest.fixture(scope="module", autouse=True)
def _no_certificates_are_left():
    yield
    shutil.rmtree(certificates())


def server_context():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates() / "one.crt", certificates() / "one.key")
    return context


# -- identity providers ----------------------------------------------------------------------------


@functools.cache
def keys():
    """Return the keys of an identity provider; to make them takes long."""
    with IdentityProvider() as idp:
        return idp.keys


def known(*, expired_s=None, between_s=None, tls=False):
    """Return an observation: the person of a token, or why the token is refused.

    Args:
        expired_s: for how long it has been expired.
        between_s: until a second token comes; then the story returns how often keys were fetched.
        tls: whether the provider is reached by TLS.
    """

    def observe(texts):
        signing = keys()
        with mock.patch.object(IdentityProvider, "add_key"), IdentityProvider() as idp:
            idp.keys = signing
            if tls:
                socket = idp._server.socket
                idp._server.socket = server_context().wrap_socket(socket, server_side=True)
                idp.issuer = idp.issuer.replace("http", "https")
            idp.answers["/others"] = (200, b'{"keys": []}')
            given = {key: text.replace("{issuer}", idp.issuer) for key, text in texts.items()}
            return asyncio.run(ask(idp, configured(given)))

    async def ask(idp, config):
        now = [0.0]
        provider = identity_provider(config, now=time.time, monotonic=lambda: now[0])
        if provider is None:
            return None
        claims = {"teams": ["others"], "email": "ann@example.com"}
        if expired_s is not None:
            claims["exp"] = int(time.time()) - expired_s
        found = await provider.principal(idp.token(**claims))
        if between_s is not None:
            now[0] += between_s
            await provider.principal(idp.token(**claims, jti="another"))
        await provider.close()
        fetched = idp.asked.count("/keys")
        if not hasattr(found, "subject"):
            return str(found).replace(idp.issuer, ""), fetched
        return found.subject, found.role, found.projects, fetched

    return observe


def signing_in(texts):
    """Return how a person is led to an identity provider, and whether the page gets a token."""
    signing = keys()
    with mock.patch.object(IdentityProvider, "add_key"), IdentityProvider() as idp:
        idp.keys = signing
        if "client_secret_file" in "".join(texts):
            idp.secret = "secret-one"
        given = {key: text.replace("{issuer}", idp.issuer) for key, text in texts.items()}
        return asyncio.run(led_and_back(idp, configured(given)))


async def led_and_back(idp, config):
    provider = identity_provider(config, now=time.time, monotonic=time.monotonic)
    begun = BegunSignIn(state="s" * 43, verifier="v" * 43, nonce="n" * 43)
    query = urlsplit(await provider.address(begun)).query
    back = parse_qs(urlsplit(idp.agree(f"/authorize?{query}")).query)
    try:
        await provider.exchange(begun, back["code"][0])
        problem = ""
    except SignInError as error:
        problem = str(error).replace(idp.issuer, "")
    await provider.close()
    asked = parse_qs(query)
    return asked["client_id"], asked["redirect_uri"], asked["scope"], problem


# -- Kubernetes ------------------------------------------------------------------------------------


def reviewed(call, argument):
    """Return an observation: the answer about an agent or a node, by a fake API server."""

    def send(_self, _path, body=None):
        if body is None:
            return {"metadata": {"labels": {"a.example.com/v100": "2", "b.example.com/v100": "4"}}}
        user = {"username": "system:serviceaccount:gpus:agent", "extra": {NODE: ["alpha"]}}
        return {"status": {"authenticated": True, "audiences": [AUDIENCE], "user": user}}

    def observe(texts):
        in_cluster = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
        with (
            mock.patch.dict(os.environ, in_cluster),
            mock.patch.object(TokenReviewer, "_send", send),
        ):
            reviewer = _reviewer(configured(texts))
            return None if reviewer is None else asyncio.run(getattr(reviewer, call)(argument))

    return observe


def images(texts):
    """Return the images that a node must pull while jobs wait."""

    async def story(stage):
        await stage.job("a", image="team/a:1")
        await stage.job("b", image="team/b:1")
        await stage.wait(2)
        return [image.name for image in (await stage.desired()).images]

    return played(story, configured(texts | OPEN))


def templated(texts):
    """Return the status for a job with a priority class in its pod template."""

    async def story(stage):
        template = {"spec": {"priorityClassName": "low"}}
        job = {"name": "a", "command": ["x"], "kubernetes": {"template": template}}
        return (await stage.request("POST", "/v1/jobs", json=job)).status_code

    return played(story, configured(texts | OPEN))


# -- webhooks --------------------------------------------------------------------------------------


def posted(*, answers=True, tls=False):
    """Return an observation: what becomes of a message to a receiver on this machine."""

    async def nothing(_writer):
        await asyncio.sleep(60)

    async def send(config):
        async with receiving() as receiver:
            if not answers:
                receiver.answer = nothing
            post = _post(config)
            return await sent(post, receiver.url)

    async def sent(post, url):
        try:
            found = await post.send(url, headers={}, body=b"{}")
            return found.status, found.problem.split(":")[0]
        finally:
            await post.close()

    async def send_by_tls(config):
        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server_context())
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await sent(_post(config), f"https://localhost:{port}/")

    return lambda texts: asyncio.run((send_by_tls if tls else send)(configured(texts)))


def tried(texts):
    """Return the times at which a refused message is sent, until its webhook is paused."""
    return asyncio.run(deliver(runtime_settings(configured(texts)).webhooks))


async def deliver(rules):
    clock, store, tries, over = JumpingClock(), MemoryStore(), [], asyncio.Event()

    class Refusing:
        async def check(self, _url):
            """Let every address pass."""

        async def send(self, _url, **_message):
            tries.append(round(clock.now_s(), 3))
            if len(tries) == 20:
                over.set()
                await asyncio.Event().wait()
            return Posted(status=500, problem="it answered 500")

    async def note(kind, *_subject, **_more):
        if kind == "webhook_created":
            store.append_history((history_row("a", "job_failed", subject_kind="job"),))
        if kind == "webhook_paused":
            over.set()

    async def news(_after_id, _wait_s):
        await asyncio.Event().wait()

    token = store.acquire_leadership("test", now_s=0.0, ttl_s=1e12).token
    box = SecretBox(lambda: (KEY,))
    hooks = Webhooks(
        store,
        clock,
        box,
        None,
        news=news,
        note=note,
        post=Refusing(),
        rules=rules,
        draw=lambda: 1.0,
    )
    task = asyncio.create_task(hooks.run(token))
    while hooks._token is None:  # noqa: ASYNC110 - it sets no event
        await asyncio.sleep(0.001)
    url = "https://hooks.example.com/"
    fields = {"project": None, "template": Template.JSON, "actor": "olga"}
    await hooks.add("chat", url, on=("job_failed",), **fields)
    await asyncio.wait_for(over.wait(), 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return tries


class JumpingClock(ManualClock):
    """A clock on which every sleep is over at once."""

    async def sleep_until(self, at_s, *, wake=None):
        await asyncio.sleep(0)
        self.advance(max(at_s, self.now_s()))
        return True


# -- tracing ---------------------------------------------------------------------------------------


def traced(texts):
    """Return the paths to which a collector is sent the trace of a job."""
    paths = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            paths.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments):
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    here = f"http://127.0.0.1:{server.server_port}"
    config = configured({key: text.replace("{here}", here) for key, text in texts.items()} | OPEN)

    async def story(stage):
        await stage.job("job", total_steps=5.0)
        await stage.wait(10)
        async with exported_traces(config, stage.store, stage.service):
            for _ in range(100):
                await asyncio.sleep(0)

    try:
        played(story, config)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
    return paths


OPEN = {"server.no_auth": "yes"}
OIDC = {
    "oidc__issuer": "{issuer}",
    "oidc__audience": AUDIENCE,
    "oidc__groups__vision-team": "user:vision",
    "oidc__groups__others": "viewer",
}
BACK = {"oidc__redirect_url": "https://a.example/sign-in-done"}
CLIENT = {"oidc__client_id": "page"}
AGENT = {"kubernetes__agent_account": "gpus/agent"}
LOCAL = {"webhooks__allowed_networks": "127.0.0.0/8"}
TRUSTS_ONE = {"oidc__ca_file": "{folder}/one.crt"}
NODE_OF = reviewed("node_of", "token")
APPROVED = reviewed("approved_of", "alpha")
ENTRIES = dict(
    [
        setting("oidc.issuer", "{issuer}", "none", known(), **OIDC),
        setting("oidc.audience", AUDIENCE, "another", known(), **OIDC),
        setting("oidc.groups", "user:vision", "operator", known(), own=".vision-team", **OIDC),
        setting("oidc.groups_claim", "groups", "teams", known(), **OIDC),
        setting("oidc.subject_claim", "sub", "email", known(), **OIDC),
        setting("oidc.subject_prefix", "oidc-", "idp-", known(), **OIDC),
        setting("oidc.jwks_url", "none", "{issuer}/others", known(), **OIDC),
        setting("oidc.algorithms", "RS256", "ES256", known(), **OIDC),
        setting("oidc.ca_file", "{folder}/one.crt", "{folder}/other.crt", known(tls=True), **OIDC),
        setting("oidc.client_id", "page", "other", signing_in, **OIDC, **BACK),
        setting(
            "oidc.client_secret_file",
            "{folder}/one.secret",
            "{folder}/other.secret",
            signing_in,
            **OIDC,
            **BACK,
            **CLIENT,
        ),
        setting(
            "oidc.redirect_url",
            "https://a.example/sign-in-done",
            "https://b.example/sign-in-done",
            signing_in,
            **OIDC,
            **CLIENT,
        ),
        setting("oidc.scopes", "openid", "openid,groups", signing_in, **OIDC, **BACK, **CLIENT),
        setting("oidc.leeway_s", "60", "5", known(expired_s=30), **OIDC),
        setting("oidc.keep_s", "600", "6000", known(between_s=1000.0), **OIDC),
        setting("kubernetes.agent_account", "gpus/agent", "gpus/other", NODE_OF),
        setting("kubernetes.audience", AUDIENCE, "another", NODE_OF, **AGENT),
        setting("kubernetes.approved_label", "a.example.com", "b.example.com", APPROVED, **AGENT),
        setting("kubernetes.prepull_images", "0", "2", images),
        setting("kubernetes.template_allows", "", "spec.priorityClassName", templated),
        setting("webhooks.allowed_networks", "", "127.0.0.0/8", posted()),
        setting(
            "webhooks.ca_file", "{folder}/one.crt", "{folder}/other.crt", posted(tls=True), **LOCAL
        ),
        setting("webhooks.timeout_s", "0.1", "0.3", posted(answers=False), **LOCAL),
        setting("webhooks.first_pause_s", "2", "5", tried),
        setting("webhooks.longest_pause_s", "60", "600", tried),
        setting("webhooks.pause_after_s", "100", "1000", tried),
        setting("tracing.endpoint", "{here}", "{here}/own", traced),
    ]
)


def test_every_setting_has_an_entry():
    check_table(ENTRIES, settings_of("neighbours"))


@pytest.mark.parametrize("key", ENTRIES)
def test_a_setting_changes_what_becomes_of_them(key):
    check_effect(key, ENTRIES[key])
