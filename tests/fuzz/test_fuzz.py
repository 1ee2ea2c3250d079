"""Nothing that an agent or a job says ends the scheduler, or an agent, or contradicts its state."""

from __future__ import annotations

import asyncio
import importlib
import logging
from pathlib import Path

import pytest


@pytest.fixture
def fuzz(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("fuzz").fuzz


@pytest.mark.parametrize("messages", [5_000, pytest.param(20_000, marks=pytest.mark.long)])
def test_messages_of_agents_and_jobs_do_no_harm(fuzz, caplog, messages):
    caplog.set_level(logging.CRITICAL, logger="leasehold")
    tally = asyncio.run(fuzz(messages, 10))
    assert tally.sent.total() == messages
    assert tally.share >= 0.5, tally
    for kind in ("report", "line", "told"):
        assert tally.decoded[kind] >= 0.5 * tally.sent[kind], tally
    assert not {status for status in tally.statuses if status >= 500}
