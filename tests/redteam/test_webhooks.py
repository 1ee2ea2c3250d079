"""Attacks by webhooks: on addresses, projects, secrets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import ipaddress
import json
import socket
import time

import pytest
from real_service import running_service

from leasehold.cli.local.secrets import new_key_file
from leasehold.config.plausibility import split_networks
from leasehold.daemon import webhook_post
from leasehold.daemon.webhook_post import WebPost, is_public
from leasehold_testing.receivers import answering, receiving
from scheduler.errors import InputError
from scheduler.webhooks.webhooks import MOST_OF_ONE, place_of

pytestmark = pytest.mark.redteam

HERE = split_networks("127.0.0.0/8")
METADATA = "http://169.254.169.254/latest/meta-data/iam/security-credentials/"


@contextlib.asynccontextmanager
async def posting(**settings):
    post = WebPost(**settings)
    try:
        yield post
    finally:
        await post.close()


def sent(url, **settings):
    """Return what becomes of a message to an address, and how long that takes."""

    async def go():
        async with posting(**settings) as post:
            begin_s = time.monotonic()
            posted = await post.send(url, headers={"webhook-id": "a"}, body=b"{}")
            return posted, time.monotonic() - begin_s

    return asyncio.run(go())


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1", "255.255.255.255"),
        *("::1", "::", "fe80::1", "fd00:ec2::254", "fc00::1", "ff02::1"),
        *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"),
        *("::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::1", "64:ff9b:1::7f00:1", "fec0::1"),
        *("5f00::1", "3fff::1", "3fff:fff::1", "2001:db8::1", "2001:2::1", "2001:20::1", "100::1"),
        *("fd00::5efe:808:808", "fe80::5efe:808:808", "fec0::5efe:808:808", "ff02::5efe:808:808"),
        *("2001:db8::5efe:808:808", "fd00::200:5efe:808:808"),
        *("2606:2800::5efe:a9fe:a9fe", "2606:2800::200:5efe:7f00:1", "4000::1", "2001::1"),
    ],
)
def test_an_address_that_is_not_of_the_public_internet_is_refused(address):
    assert not is_public(ipaddress.ip_address(address))
    host = f"[{address}]" if ":" in address else address
    posted, _ = sent(f"https://{host}/")
    assert "no public address" in posted.problem


@pytest.mark.parametrize(
    "address",
    [
        *("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "2a00:1450:4001:81b::200e"),
        *("64:ff9b::5db8:d822", "2002:5db8:d822::1", "::ffff:93.184.216.34"),
        *("2606:2800::5efe:5db8:d822", "2001:4860:4860::8888"),
    ],
)
def test_a_public_address_is_none_of_those(address):
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        *(METADATA, "https://localhost/", "https://127.1/", "https://2130706433/"),
        *("https://0x7f000001/", "https://[::1]:8642/v1/tokens", "https://user:pw@example.com/"),
        *(
            "file:///etc/passwd",
            "gopher://127.0.0.1/",
            "https:///",
            "ftp://example.com",
            "nonsense",
        ),
        "https://" + "a" * 3000,
    ],
)
def test_an_address_is_refused_when_it_is_registered_however_it_is_written(url):
    async def go():
        async with posting() as post:
            with pytest.raises(InputError, match=r"^url: "):
                await post.check(url)

    asyncio.run(go())


def test_a_name_that_means_another_address_a_moment_later_leads_nowhere(monkeypatch):
    """DNS rebinding: every send looks the name up and connects to the address that it checked."""
    asked = []

    def look_up(name, port):
        asked.append((name, port))
        return [ipaddress.ip_address("93.184.216.34" if len(asked) == 1 else "169.254.169.254")]

    monkeypatch.setattr(webhook_post, "_look_up", look_up)

    async def go():
        async with posting() as post:
            await post.check("https://rebind.example.com/")
            return await post.send("https://rebind.example.com/", headers={}, body=b"{}")

    assert "169.254.169.254 is no public address" in asyncio.run(go()).problem
    assert asked == [("rebind.example.com", 443)] * 2


def test_a_name_with_one_private_address_among_public_ones_is_refused(monkeypatch):
    found = [ipaddress.ip_address(text) for text in ("93.184.216.34", "10.0.0.1")]
    monkeypatch.setattr(webhook_post, "_look_up", lambda _name, _port: found)
    posted, _ = sent("https://mixed.example.com/")
    assert "10.0.0.1 is no public address" in posted.problem


def test_http_goes_to_networks_that_an_operator_allows_and_nowhere_else(monkeypatch):
    public = [ipaddress.ip_address("93.184.216.34")]
    monkeypatch.setattr(webhook_post, "_look_up", lambda _name, _port: public)
    posted, _ = sent("http://plain.example.com/", allowed=HERE)
    assert "http://" in posted.problem


def attacked(answer, **settings):
    """Return a message's result for this answer of its receiver, its time, and the data."""

    async def go():
        async with receiving() as receiver, posting(allowed=HERE, **settings) as post:
            receiver.answer = answer
            begin_s = time.monotonic()
            posted = await post.send(receiver.url, headers={"webhook-id": "a"}, body=b"{}")
            return posted, time.monotonic() - begin_s, receiver.requests

    return asyncio.run(go())


def test_a_redirect_to_the_metadata_address_is_not_followed():
    head = f"HTTP/1.1 307 Temporary Redirect\r\nlocation: {METADATA}\r\ncontent-length: 0\r\n\r\n"
    posted, _, requests = attacked(answering(head.encode()))
    assert (posted.status, len(requests)) == (307, 1)
    assert "redirects are not followed" in posted.problem


def test_the_cookie_of_one_receiver_does_not_go_to_another_at_the_same_address():
    head = b"HTTP/1.1 200 OK\r\nset-cookie: session=theirs; Path=/\r\ncontent-length: 0\r\n\r\n"

    async def go():
        async with receiving() as receiver, posting(allowed=HERE) as post:
            receiver.answer = answering(head)
            for name in "ab":
                await post.send(receiver.url, headers={"webhook-id": name}, body=b"{}")
            return [headers for headers, _ in receiver.requests]

    first, second = asyncio.run(go())
    assert (first["webhook-id"], second["webhook-id"]) == ("a", "b")
    assert "cookie" not in first.keys() | second.keys()


def test_a_receiver_that_hangs_is_left_in_time():
    async def hang(_writer):
        await asyncio.sleep(3600)

    posted, took_s, _ = attacked(hang, timeout_s=0.5)
    assert posted.problem == "no answer within 0.5 s"
    assert took_s < 30


def test_a_receiver_that_sends_its_head_a_byte_at_a_time_is_left_in_time():
    async def drip(writer):
        while True:
            writer.write(b"H")
            await writer.drain()
            await asyncio.sleep(0.05)

    posted, took_s, _ = attacked(drip, timeout_s=1.0)
    assert posted.problem
    assert took_s < 30


def test_of_a_body_without_end_nothing_is_read():
    written = []

    async def endless(writer):
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            written.append(1)
            await writer.drain()

    posted, took_s, _ = attacked(endless, timeout_s=20.0)
    assert (posted.status, posted.problem) == (200, "")
    assert took_s < 15
    assert len(written) < 1000  # what fits into the buffers of the two sides


def test_a_head_without_end_is_not_taken_in():
    async def headers(writer):
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x-more: " + b"y" * 1000 + b"\r\n")
            await writer.drain()

    posted, took_s, _ = attacked(headers, timeout_s=20.0)
    assert posted.problem
    assert took_s < 15


@pytest.mark.parametrize(
    "said", [b"line1 secret\r\n\r\n", b"SSH-2.0-secret\r\n", b"\0\1secret\n\n"]
)
def test_what_a_service_sends_that_is_not_http_is_not_told(said):
    async def speak(writer):
        writer.write(said)
        await writer.drain()

    posted, _, _ = attacked(speak, timeout_s=5.0)
    assert posted.status is None
    assert posted.problem
    assert "secret" not in posted.problem


def test_only_scheme_and_host_of_an_address_are_shown():
    for rest in ("", "/", "/a/b", "?token=x", "#x", "/?a", "?a/b"):
        assert place_of(f"https://hooks.example.com:8443{rest}") == "https://hooks.example.com:8443"


def test_the_environment_s_proxy_is_not_asked(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    posted, _, requests = attacked(None)
    assert (posted.problem, len(requests)) == ("", 1)


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate):
    async def go():
        async def silent(_reader, writer):
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0, ssl=certificate)
        port = server.sockets[0].getsockname()[1]
        async with posting(allowed=HERE) as post:
            posted = await post.send(f"https://localhost:{port}/", headers={}, body=b"{}")
        server.close()
        return posted

    assert "certificate" in asyncio.run(go()).problem.lower()


@pytest.fixture
def certificate(tmp_path):
    import ssl
    import subprocess

    key, made = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"),
            *("-keyout", key, "-out", made, "-days", "2"),
            *("-addext", "subjectAltName=DNS:localhost"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    return context


# -- with a real service --------------------------------------------------------------------------


async def until(ask, there):
    async with asyncio.timeout(180):  # a first start compiles what plans rounds
        while not there(found := (await ask()).json()):  # noqa: ASYNC110 - it is asked by REST
            await asyncio.sleep(0.1)
    return found


@contextlib.asynccontextmanager
async def leading(tmp_path, **settings):
    new_key_file(tmp_path / "keys")
    settings = {"secrets__key_file": tmp_path / "keys"} | settings
    async with running_service(tmp_path, **settings) as (running, admin):
        await until(lambda: admin.get("/readyz"), lambda found: found["leading"])
        yield running, admin


async def token_of(admin, subject, *projects, role="user"):
    asked = {"subject": subject, "role": role, "projects": list(projects)}
    answer = await admin.post("/v1/tokens", json=asked)
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['token']}"}


def hook(name="chat", **fields):
    return {"name": name, "url": "https://hooks.example.com/x", "on": ["job.failed"]} | fields


def test_nobody_registers_reads_tests_or_deletes_for_another_s_project(tmp_path):
    async def go():
        allowed = {"webhooks__allowed_networks": "127.0.0.0/8"}
        async with leading(tmp_path, **allowed) as (_, admin), receiving() as receiver:
            eve = await token_of(admin, "eve", "speech")
            anna = await token_of(admin, "anna", "vision")
            dash = await token_of(admin, "dash", role="viewer")

            async def ask(method, path, headers, body=None):
                return await admin.request(method, path, headers=headers, json=body)

            own = hook(url=receiver.url, project="vision")
            assert (await ask("POST", "/v1/webhooks", eve, own)).status_code == 403
            assert (
                await ask("POST", "/v1/webhooks", eve, own | {"project": None})
            ).status_code == 403
            assert (await ask("POST", "/v1/webhooks", dash, own)).status_code == 403
            secret = own | {"on": ["token.created"]}
            assert (await ask("POST", "/v1/webhooks", anna, secret)).status_code == 403
            made = await ask("POST", "/v1/webhooks", anna, own)
            assert made.status_code == 201, made.text
            assert made.json()["secret"].startswith("whsec_")
            assert (await ask("GET", "/v1/webhooks", eve)).json() == {"webhooks": []}
            for method, path in (("POST", "/test"), ("POST", "/resume"), ("DELETE", "")):
                answer = await ask(method, f"/v1/webhooks/chat{path}", eve, {})
                assert answer.status_code == 404, path
            for reader in (anna, dash):
                shown = (await ask("GET", "/v1/webhooks", reader)).text
                assert "/hook" not in shown
                assert "whsec_" not in shown
            events = (await ask("GET", "/v1/events?subject_kind=webhook", eve)).json()["events"]
            assert events == []
            # Jobs of another project go to that project's webhooks only.
            other = {"name": "x", "project": "speech", "command": ["false"], "duration_s": 1}
            assert (await ask("POST", "/v1/jobs", eve, other)).status_code == 201
            assert (await ask("POST", "/v1/webhooks/chat/test", anna, {})).json()["delivered"]
            assert [json.loads(body)["type"] for _, body in receiver.requests] == ["webhook_test"]

    asyncio.run(go())


def test_nobody_learns_which_names_the_webhooks_of_other_projects_have(tmp_path):
    async def go():
        allowed = {"webhooks__allowed_networks": "127.0.0.0/8"}
        async with leading(tmp_path, **allowed) as (_, admin), receiving() as receiver:
            eve = await token_of(admin, "eve", "speech")
            anna = await token_of(admin, "anna", "vision")

            async def ask(method, path, headers, body=None):
                return await admin.request(
                    method, f"/v1/webhooks{path}", headers=headers, json=body
                )

            for caller, project in ((anna, "vision"), (eve, "speech")):
                own = hook(url=receiver.url, project=project)
                assert (await ask("POST", "", caller, own)).status_code == 201
                assert (await ask("POST", "", caller, own)).status_code == 409
            assert (await ask("POST", "/chat/test", eve, {})).json()["delivered"]
            assert (await ask("POST", "/chat/test?project=vision", eve, {})).status_code == 404
            # The administrator sees both, and has to say which one is meant.
            unclear = await ask("DELETE", "/chat", {})
            assert unclear.status_code == 409
            assert "of projects speech, vision; give the project" in unclear.json()["detail"]
            assert (await ask("DELETE", "/chat?project=vision", {})).status_code == 204
            (left,) = (await ask("GET", "", {})).json()["webhooks"]
            assert left["project"] == "speech"
            assert (await ask("DELETE", "/chat", eve)).status_code == 204

    asyncio.run(go())


def test_one_user_leaves_room_for_the_webhooks_of_others(tmp_path):
    async def go():
        allowed = {"webhooks__allowed_networks": "127.0.0.0/8"}
        async with leading(tmp_path, **allowed) as (_, admin), receiving() as receiver:
            eve = await token_of(admin, "eve", "speech")

            async def register(number, headers):
                body = hook(f"hook-{number}", url=receiver.url, project="speech")
                return await admin.post("/v1/webhooks", json=body, headers=headers)

            codes = [(await register(n, eve)).status_code for n in range(MOST_OF_ONE)]
            assert set(codes) == {201}
            refused = await register(MOST_OF_ONE, eve)
            assert refused.status_code in {409, 422}
            assert "'eve' has 10 webhooks, the most for a user" in refused.json()["detail"]
            bob = await token_of(admin, "bob", "speech")
            assert (await register(MOST_OF_ONE, bob)).status_code == 201

    asyncio.run(go())


def test_a_registration_for_the_metadata_address_or_the_scheduler_itself_is_refused(tmp_path):
    async def go():
        async with leading(tmp_path) as (running, admin):
            for url in (METADATA, f"{running.url}/v1/tokens", "https://localhost/x"):
                answer = await admin.post("/v1/webhooks", json=hook(url=url))
                assert answer.status_code == 422, url
                assert "public" in answer.json()["detail"] or "http://" in answer.json()["detail"]
            assert (await admin.get("/v1/webhooks")).json() == {"webhooks": []}

    asyncio.run(go())


def test_without_a_key_no_webhook_is_kept(tmp_path):
    async def go():
        async with leading(tmp_path, secrets__key_file=tmp_path / "none") as (_, admin):
            answer = await admin.post("/v1/webhooks", json=hook(url="https://93.184.216.34/x"))
            assert answer.status_code == 422
            assert "no key to encrypt" in answer.json()["detail"]

    asyncio.run(go())


def test_messages_arrive_signed_and_rounds_go_on_beside_a_receiver_that_hangs(tmp_path):
    async def go():
        settings = {
            "webhooks__allowed_networks": "127.0.0.0/8",
            "webhooks__first_pause_s": 0.1,
            "webhooks__timeout_s": 1,
        }
        async with (
            leading(tmp_path, **settings) as (_, admin),
            receiving() as good,
            receiving() as bad,
        ):

            async def hang(_writer):
                await asyncio.sleep(3600)

            bad.answer = hang
            made = await admin.post("/v1/webhooks", json=hook(url=good.url, on=["job.cancelled"]))
            asked = hook("bad", url=bad.url, on=["job.cancelled", "job.submitted"])
            assert (await admin.post("/v1/webhooks", json=asked)).status_code == 201
            secret = base64.b64decode(made.json()["secret"].removeprefix("whsec_"))
            for number in range(5):
                body = {"name": f"job-{number}", "command": ["sleep", "9"], "duration_s": 9}
                job = (await admin.post("/v1/jobs", json=body)).json()
                begin_s = time.monotonic()
                await admin.post(f"/v1/jobs/{job['job_id']}/cancel", json={})
                assert time.monotonic() - begin_s < 10
            await good.until(5)
            for headers, body in good.requests:
                signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
                digest = base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest())
                assert headers["webhook-signature"] == "v1," + digest.decode()
            shown = await until(
                lambda: admin.get("/v1/webhooks"),
                lambda found: found["webhooks"][0]["state"] == "failing",
            )
            shown = shown["webhooks"][0]
            assert shown["name"] == "bad"
            assert shown["problem"] == "no answer within 1 s"

    asyncio.run(go())


def test_an_address_is_where_the_kernel_says_it_is():
    """The forms above that are no literals are looked up as the system does it."""
    assert socket.getaddrinfo("2130706433", 443)[0][4][0] == "127.0.0.1"
