"""The guard: it says no once the lease is over, whether the agent lives or not."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

import pytest

from agent.clock import lease_clock_s
from agent.guard import Term, ask, serve


def probe(server):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/lease") as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@pytest.fixture
def guard():
    term = Term(lease_clock_s() + 0.3)
    server = serve(term, 0)
    yield term, server
    server.shutdown()
    server.server_close()


def test_it_answers_200_until_the_deadline_and_410_from_then_on(guard):
    term, server = guard
    assert probe(server) == 200
    time.sleep(0.35)
    assert probe(server) == 410
    term.deadline_s += 60
    assert probe(server) == 200


def test_without_an_agent_it_keeps_to_what_it_knows():
    assert ask("tcp://127.0.0.1:1", "secret") is None
