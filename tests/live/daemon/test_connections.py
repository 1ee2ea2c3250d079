"""Unfinished requests do not keep others out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
import pytest

from leasehold.daemon.http.connections import (
    PATIENCE_S,
    ConnectionLimits,
    Keeper,
    limits_of,
    more_descriptors,
    origin_of,
    plain_address,
)

# -- the keeper ----------------------------------------------------------------------------------


@dataclass(eq=False)
class Connection:
    """A connection that notes how it ended."""

    address: str = "10.0.0.1"
    ended: list[str] = field(default_factory=list)

    def drop(self):
        self.ended.append("dropped")

    def time_out(self):
        self.ended.append("timed out")


class Door:
    """A keeper, a clock, and connections."""

    def __init__(self, *, proxies=(), **limits):
        self.now_s = 1000.0
        known = {"most": 100, "per_address": 10, "for_agents": 25} | limits
        self.keeper = Keeper(
            ConnectionLimits(
                header_timeout_s=10.0, body_timeout_s=60.0, idle_timeout_s=80.0, **known
            ),
            monotonic=lambda: self.now_s,
            is_proxy=lambda address: address in proxies,
        )

    def comes(self, address="10.0.0.1"):
        if not self.keeper.admit(address):
            return None
        one = Connection(address)
        self.keeper.add(one)
        return one

    def asks(self, one, *, agent=False, known=True):
        self.keeper.await_body(one, agent=agent)
        self.keeper.has_all(one)
        if known:
            self.keeper.know(one)

    def comes_and_asks(self, address="10.0.0.1", *, agent=False, known=True):
        one = self.comes(address)
        if one is not None:
            self.asks(one, agent=agent, known=known)
        return one


def test_a_thousand_who_are_known_stand_behind_one_address():
    door = Door(most=2000, per_address=10)
    assert all(door.comes_and_asks(agent=True) for _ in range(1000))
    assert door.comes() is not None


def test_strangers_of_one_address_are_counted_and_other_addresses_are_not_kept_out():
    door = Door(per_address=10)
    assert all(door.comes("10.0.0.66") for _ in range(10))
    assert door.comes("10.0.0.66") is None
    assert all(door.comes(f"10.0.1.{i}") for i in range(90))


def test_a_stranger_that_had_its_time_makes_room_for_the_next_of_its_address():
    door = Door(per_address=2)
    first, second = door.comes(), door.comes()
    door.now_s += PATIENCE_S
    assert door.comes() is not None
    assert (first.ended, second.ended) == (["dropped"], [])


def test_an_answer_without_a_token_makes_nobody_known():
    door = Door(per_address=2)
    first, _ = door.comes_and_asks(known=False), door.comes_and_asks(known=False)
    assert door.comes() is None
    door.keeper.has_answer(first)
    assert door.comes() is not None
    assert first.ended == ["dropped"]


def test_a_proxys_address_stands_for_many():
    door = Door(per_address=2, proxies={"10.0.0.9"})
    assert all(door.comes("10.0.0.9") for _ in range(50))


def test_where_all_is_taken_the_longest_idle_goes_first():
    door = Door(most=8, per_address=8)
    everybody = [door.comes_and_asks() for _ in range(8)]
    for one in (everybody[3], everybody[5]):
        door.keeper.has_answer(one)
    assert door.comes("10.9.9.9") is not None
    assert [i for i, one in enumerate(everybody) if one.ended] == [3]


def test_where_all_is_taken_whoever_holds_most_unfinished_requests_lets_one_go():
    door = Door(most=10, per_address=8)
    honest = door.comes("10.0.0.5")
    many = [door.comes("10.0.0.66") for _ in range(8)]
    other = door.comes("10.0.0.7")
    door.now_s += PATIENCE_S
    assert door.comes("10.0.0.8") is not None
    assert [one.ended for one in (honest, other)] == [[], []]
    assert [one.ended for one in many] == [["dropped"]] + [[]] * 7


def test_nobody_is_let_in_over_the_limit_where_all_are_served():
    door = Door(most=8, per_address=8)
    assert all(door.comes_and_asks(agent=True) for _ in range(8))
    assert door.comes("10.0.0.2") is None
    assert len(door.keeper) == 8


def test_people_leave_room_for_agents():
    door = Door(most=8, for_agents=2, per_address=8)
    people = [door.comes_and_asks() for _ in range(6)]
    assert door.keeper.is_crowded
    door.keeper.has_answer(people[0])
    assert not door.keeper.is_crowded
    assert all(door.comes_and_asks(agent=True) for _ in range(2))
    assert not door.keeper.is_crowded


def test_head_body_and_pause_have_their_times():
    door = Door()
    head, body, idle, served = (door.comes() for _ in range(4))
    door.keeper.await_body(body, agent=False)
    for one in (idle, served):
        door.asks(one)
    door.keeper.has_answer(idle)
    for seconds, expected in (
        (9.9, [[], [], [], []]),
        (0.2, [["timed out"], [], [], []]),
        (50.0, [["timed out"], ["timed out"], [], []]),
        (20.0, [["timed out"], ["timed out"], ["dropped"], []]),
        (9e9, [["timed out"], ["timed out"], ["dropped"], []]),
    ):
        door.now_s += seconds
        door.keeper.sweep()
        assert [one.ended for one in (head, body, idle, served)] == expected


def test_what_was_timed_out_counts_until_it_is_closed():
    door = Door(most=8, per_address=8)
    one = door.comes()
    door.now_s += 11.0
    door.keeper.sweep()
    assert len(door.keeper) == 1
    door.keeper.remove(one)
    assert len(door.keeper) == 0


def test_it_is_told_once_a_minute_who_is_cut_off(caplog):
    door = Door()
    for _ in range(3):
        door.comes("10.0.0.66")
    for _ in range(5):
        door.now_s += 11.0
        door.keeper.sweep()
        door.comes("10.0.0.66")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert lines[0].startswith("3 requests that did not come to an end were cut off")
    assert "3 of them strangers' at 10.0.0.66" in lines[0]


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("somewhere", "somewhere"),
    ],
)
def test_a_network_of_64_bits_counts_as_one_address(address, origin):
    assert origin_of(address) == origin


@pytest.mark.parametrize(
    ("shown", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("2001:db8::ffff:1", "2001:db8::ffff:1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_a_client_by_ipv4_has_its_own_address_on_a_listener_for_both(shown, plain):
    assert plain_address(shown) == plain


def test_limits_leave_descriptors_for_everything_else(make_config, caplog):
    server = make_config().server
    limits = limits_of(server, room=400, idle_timeout_s=80.0)
    assert (limits.most, limits.per_address, limits.for_agents) == (400, 100, 100)
    passing = make_config(server__forward=True).server
    assert limits_of(passing, room=400, idle_timeout_s=80.0).most == 200
    greedy = make_config(server__connections=5000, server__connections_per_address=3).server
    limits = limits_of(greedy, room=400, idle_timeout_s=80.0)
    assert (limits.most, limits.per_address) == (400, 3)
    assert "there are descriptors for 400" in caplog.text


def test_the_limit_of_descriptors_is_raised_as_far_as_it_may():
    code = (
        "import resource; from leasehold.daemon.http.connections import more_descriptors;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512)); more_descriptors();"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "(512, 512)"
    assert callable(more_descriptors)


# -- on sockets ----------------------------------------------------------------------------------

HEAD = b"GET /v1/whoami HTTP/1.1\r\nHost: x\r\n"
BODY = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"


class Wire:
    """A connection on which anything can be sent."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, url, **options):
        parts = httpx.URL(url)
        return cls(*await asyncio.open_connection(parts.host, parts.port, **options))

    def send(self, data):
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)

    async def rest(self):
        """Return what comes until the other side closes."""
        parts = []
        with contextlib.suppress(ConnectionError):
            while part := await asyncio.wait_for(self.reader.read(4096), 60):
                parts.append(part)
        return b"".join(parts)

    def close(self):
        self.writer.transport.abort()


async def trickle(wire, data=b"X-Pad: 1\r\n"):
    """Send a little again and again, for as long as the other side listens."""
    while not wire.reader.at_eof() and not wire.writer.transport.is_closing():
        wire.send(data)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("start", "more", "part"),
    [(HEAD, b"X-Pad: 1\r\n", b"head"), (BODY, b" ", b"body"), (b"GET /", b"x", b"head")],
)
def test_a_request_that_trickles_is_cut_off_and_told_why(make_config, daemon, start, more, part):
    config = make_config(server__header_timeout_s=1, server__body_timeout_s=1)

    async def scenario():
        async with daemon(config) as (running, client):
            wire = await Wire.to(running.url)
            wire.send(start)
            if part == b"body":  # with a token, so that the body is waited for
                wire.close()
                wire = await Wire.to(running.url)
                token = client.headers["Authorization"].encode()
                fields = b"Authorization: " + token + b"\r\nContent-Type: application/json\r\n\r\n{"
                wire.send(start.removesuffix(b"\r\n{") + fields)
            feeding = asyncio.create_task(trickle(wire, more))
            told = await wire.rest()
            await feeding
            assert told.startswith(b"HTTP/1.1 408 ")
            assert b"the request's " + part + b" did not arrive within 1 s" in told
            wire.close()

    asyncio.run(scenario())


def test_line_ends_between_requests_do_not_keep_a_connection(make_config, daemon):
    config = make_config(server__header_timeout_s=1)

    async def scenario():
        async with daemon(config) as (running, _):
            wire = await Wire.to(running.url)
            wire.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            await wire.reader.readuntil(b"\r\n\r\n")
            feeding = asyncio.create_task(trickle(wire, b"\r\n"))
            await wire.rest()  # ends
            await feeding
            wire.close()

    asyncio.run(scenario())


def test_a_head_without_end_is_refused_before_it_fills_the_memory(make_config, daemon):
    async def scenario():
        async with daemon(make_config()) as (running, _):
            wire = await Wire.to(running.url)
            wire.send(HEAD)
            with contextlib.suppress(ConnectionError):
                for _ in range(50):
                    wire.send(b"X-Pad: " + b"x" * 60_000 + b"\r\n")
                    await asyncio.wait_for(wire.writer.drain(), 60)
            await wire.rest()  # the refusal itself may be lost in the reset
            large = await Wire.to(running.url)
            large.send(HEAD + b"X-Pad: " + b"x" * 66_000 + b"\r\n\r\n")
            assert (await large.rest()).startswith(b"HTTP/1.1 431 ")
            large.close()
            many = await Wire.to(running.url)
            many.send(HEAD + b"X: 1\r\n" * 300 + b"\r\n")
            assert (await many.rest()).startswith(b"HTTP/1.1 431 ")
            long = await Wire.to(running.url)
            long.send(b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await long.rest()).startswith(b"HTTP/1.1 414 ")
            for one in (wire, many, long):
                one.close()

    asyncio.run(scenario())


def test_unfinished_requests_keep_neither_callers_nor_the_store_out(make_config, daemon):
    config = make_config(server__connections=12)

    async def scenario():
        async with daemon(config) as (running, client):
            wires = []
            for _ in range(60):
                with contextlib.suppress(ConnectionError):
                    wires.append(await Wire.to(running.url))
                    wires[-1].send(HEAD)

            async def submitted():
                # A new connection each time: the one of the client may have been let go of.
                async with httpx.AsyncClient(base_url=running.url, headers=client.headers) as one:
                    with contextlib.suppress(httpx.TransportError):
                        job = {"name": "a", "command": ["true"]}
                        return (await one.post("/v1/jobs", json=job)).status_code == 201
                    return False

            end = time.monotonic() + 60
            while not await submitted():
                assert time.monotonic() < end, "nobody was admitted"
                await asyncio.sleep(0.1)
            for wire in wires:
                wire.close()

    asyncio.run(scenario())


def test_streams_leave_room_for_agents_and_probes(make_config, daemon):
    config = make_config(server__connections=8)

    async def scenario():
        async with daemon(config) as (running, client):
            token = client.headers["Authorization"].encode()
            stream = (
                b"GET /v1/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
                b"Authorization: " + token + b"\r\n\r\n"
            )
            wires = []
            for _ in range(6):
                wires.append(await Wire.to(running.url))
                wires[-1].send(stream)
                await wires[-1].reader.readuntil(b"\r\n\r\n")
            answer = await client.get("/v1/jobs")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert "server.connections" in answer.json()["detail"]
            assert (await client.get("/healthz")).status_code == 200
            # Accepted, and only then refused: the token is no agent's.
            assert (await client.get("/v1/agent/desired")).status_code == 403
            wires[0].close()

            async def free():
                return (await client.get("/v1/jobs")).status_code == 200

            end = time.monotonic() + 60
            while not await free():
                assert time.monotonic() < end
                await asyncio.sleep(0.05)
            for wire in wires:
                wire.close()

    asyncio.run(scenario())


def test_tls_that_never_shakes_hands_is_counted_and_cut_off(make_config, daemon, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    openssl = shutil.which("openssl")
    assert openssl
    options = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, *options, *names, *files], check=True, capture_output=True)
    config = make_config(
        server__tls_cert=certificate,
        server__tls_key=key,
        server__connections=8,
        server__header_timeout_s=2,
    )

    async def scenario():
        async with daemon(config) as (running, _):
            url = running.url.replace("https", "http")
            wires = [await Wire.to(url) for _ in range(2)]
            for wire in wires:
                assert await wire.rest() == b""
                wire.close()
            context = ssl.create_default_context(cafile=str(certificate))
            async with httpx.AsyncClient(verify=context) as client:
                assert (await client.get(f"{running.url}/healthz")).status_code == 200

    asyncio.run(scenario())


def test_requests_that_are_sent_ahead_have_a_bound(make_config, daemon):
    async def scenario():
        async with daemon(make_config()) as (running, client):
            token = client.headers["Authorization"].encode()
            one = b"GET /v1/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: " + token + b"\r\n\r\n"
            few = await Wire.to(running.url)
            few.send(one * 5)
            for _ in range(5):
                head = await few.reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await few.reader.readexactly(length)
            many = await Wire.to(running.url)
            many.send(one * 400)
            assert (await many.rest()).count(b"HTTP/1.1 200") < 400
            few.close()
            many.close()

    asyncio.run(scenario())


def test_with_few_descriptors_the_store_still_works_beside_unfinished_requests(tmp_path):
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    # More connections than the daemon could open descriptors for.
    few = 128

    def fewer():
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))

    process = subprocess.Popen(
        [sys.executable, "-m", "leasehold", "serve", "--port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        text=True,
        preexec_fn=fewer,  # noqa: PLW1509 - the test has no threads here
    )
    held = []
    try:
        line = next(line for line in process.stdout if "listens on" in line)
        url = line.split("listens on ")[1].strip()
        where = httpx.URL(url)
        token = (tmp_path / "state" / "leasehold" / "admin.token").read_text().strip()
        for _ in range(2 * few):
            one = socket.create_connection((where.host, where.port), timeout=30)
            held.append(one)
            with contextlib.suppress(OSError):
                one.sendall(HEAD)
        made, end = 0, time.monotonic() + 60
        while made < 5:
            assert time.monotonic() < end, "nobody was admitted"
            assert process.poll() is None
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.post(
                    f"{url}/v1/jobs",
                    json={"name": f"j-{made}", "command": ["true"]},
                    headers={"Authorization": f"Bearer {token}"},
                    timeout=30,
                )
                assert answer.status_code in {201, 503}, answer.text
                made += answer.status_code == 201
            time.sleep(0.1)
    finally:
        for one in held:
            one.close()
        process.terminate()
        rest = process.communicate(timeout=60)[0]
    assert "unable to open database file" not in rest
    assert "Too many open files" not in rest


@pytest.mark.parametrize(
    "trust",
    [
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.0/8", "10.9.9.9"),
        ("::", "", "127.0.0.1"),
        ("::", "127.0.0.0/8", "10.9.9.9"),
    ],
)
def test_only_a_configured_proxy_says_for_whom_it_asks(
    make_config, daemon, caplog, monkeypatch, trust
):
    host, proxies, address = trust
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's own way is not ours
    config = make_config(server__trusted_proxies=proxies, server__host=host)

    async def scenario():
        async with daemon(config) as (running, client):
            client.base_url = f"http://127.0.0.1:{urlsplit(running.url).port}"
            with caplog.at_level("INFO", logger="leasehold.access"):
                for _ in range(2):
                    await client.get("/v1/whoami", headers={"X-Forwarded-For": "10.9.9.9"})

    asyncio.run(scenario())
    asked = [one.request for one in caplog.records if one.name == "leasehold.access"]
    assert {one["client"] for one in asked if one["path"] == "/v1/whoami"} == {address}
