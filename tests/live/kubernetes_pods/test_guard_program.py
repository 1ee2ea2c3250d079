"""The guard as it runs in a pod: it asks the agent, and says no when the lease is over."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from agent import guard
from agent.clock import lease_clock_s
from leasehold_testing.ports import free_ports


class FakeAgent:
    """Answers the guard's questions as a test sets; by default it does not."""

    def __init__(self):
        self.answer = b""
        self.asked = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as lines:
                self.asked.append(json.loads(lines.readline()))
                lines.write(self.answer)

    def close(self):
        self._socket.close()


@pytest.fixture
def agent():
    found = FakeAgent()
    yield found
    found.close()


def probe(port, *, host="127.0.0.1"):
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/lease") as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def until(condition, most_s=10.0):
    end = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_it_shows_the_leases_secret_and_takes_the_deadline_for_what_it_is(agent):
    agent.answer = b'{"deadline_s": 12.5}\n'
    assert guard.ask(agent.address, "s3cret") == 12.5
    assert agent.asked == [{"secret": "s3cret", "guard": True}]


@pytest.mark.parametrize(
    "answer", [b"", b"what?\n", b"[1]\n", b'{"deadline_s": "soon"}\n', b"{}\n"]
)
def test_an_answer_that_says_no_deadline_changes_nothing(agent, answer):
    agent.answer = answer
    assert guard.ask(agent.address, "s") is None


def test_an_address_that_is_none_changes_nothing():
    assert guard.ask("tcp://", "s") is None


def test_it_follows_the_agent_and_keeps_the_last_deadline_when_that_has_gone(agent, monkeypatch):
    """Within this process, so that what runs is measured."""
    (port,) = free_ports(1)
    monkeypatch.setattr(guard, "ASK_EVERY_S", 0.05)
    monkeypatch.setenv("LEASEHOLD_DEADLINE_S", str(lease_clock_s() + 0.2))
    monkeypatch.setenv("LEASEHOLD_ENDPOINT", agent.address)
    monkeypatch.setenv("LEASEHOLD_SECRET", "s3cret")
    monkeypatch.setattr(sys, "argv", ["guard", str(port)])
    handlers = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    agent.answer = json.dumps({"deadline_s": lease_clock_s() + 1.5}).encode() + b"\n"
    codes = []
    running = threading.Thread(target=lambda: codes.append(guard.main()))
    running.start()
    until(lambda: agent.asked)
    time.sleep(0.4)
    assert probe(port) == 200, "the agent has renewed the lease"
    agent.close()
    until(lambda: probe(port) == 410, most_s=5.0)
    handlers[signal.SIGTERM](signal.SIGTERM, None)
    running.join(5.0)
    assert codes == [0]


def test_as_a_program_it_ends_with_the_pod(agent):
    (port,) = free_ports(1)
    told = {
        "LEASEHOLD_DEADLINE_S": str(lease_clock_s() + 60),
        "LEASEHOLD_ENDPOINT": agent.address,
        "LEASEHOLD_SECRET": "s",
    }
    command = [sys.executable, "-I", "-m", "agent.guard", str(port)]
    process = subprocess.Popen(command, env=os.environ | told)
    try:
        until(lambda: probe(port) == 200)
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


def test_a_kubelet_may_ask_by_ipv4_and_by_ipv6():
    server = guard.serve(guard.Term(lease_clock_s() + 60), 0)
    port = server.server_address[1]
    try:
        assert probe(port) == 200
        if server.address_family == socket.AF_INET6:
            assert probe(port, host="[::1]") == 200
    finally:
        server.shutdown()
        server.server_close()


def test_it_stands_connections_without_end_and_answers_beside_them():
    """Else a job could fill its memory until it is killed, and answer in its place."""
    server = guard.serve(guard.Term(lease_clock_s() + 600.0), 0)
    port, before = server.server_address[1], threading.active_count()
    held = []
    try:
        for _ in range(20 * guard.MOST_CONNECTIONS):
            held.append(socket.create_connection(("127.0.0.1", port), timeout=60))
            held[-1].sendall(b"GET /lease HTTP/1.1\r\n")
        assert probe(port) == 200
        until(lambda: threading.active_count() - before <= guard.MOST_CONNECTIONS + 1, 60.0)
    finally:
        for connection in held:
            connection.close()
        server.shutdown()
        server.server_close()
