"""What the SDK tells an agent is within the bounds that the agent has."""

from __future__ import annotations

import json
import socket

import pytest

from leasehold.channel import Channel
from leasehold.surroundings import Surroundings
from scheduler.protocol import bounds


@pytest.mark.parametrize(
    ("steps", "told"), [(10**30, 2**53 - 1), (-5, 0), (7, 7), (2**53 - 1, 2**53 - 1)]
)
def test_steps_are_told_within_bounds(tmp_path, monkeypatch, steps, told):
    ours, theirs = socket.socketpair()
    monkeypatch.setattr("leasehold.channel.connect", lambda *_, **__: ours)
    surroundings = Surroundings(
        endpoint="tcp://nowhere:1",
        secret="s" * bounds.LONGEST_NAME,
        rank=0,
        progress_file=tmp_path / "progress.json",
    )
    channel = Channel(surroundings, report_every_s=60.0)
    channel.steps_live = channel.steps_done = steps
    channel.start()
    with theirs, theirs.makefile("rb") as lines:
        line = lines.readline()
        channel.close()
    assert len(line) <= bounds.LINE_BYTES
    assert {name: json.loads(line)[name] for name in ("steps_live", "steps_done")} == {
        "steps_live": told,
        "steps_done": told,
    }
    assert json.loads((tmp_path / "progress.json").read_text())["steps_live"] == told


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"secret": "s" * (bounds.LONGEST_NAME + 1)}, "LEASEHOLD_SECRET has 254 characters"),
        ({"rank": bounds.MOST_RANKS + 1}, "RANK is 1000001; give one from 0 to 1000000"),
        ({"rank": -1}, "RANK is -1"),
    ],
)
def test_what_no_agent_would_take_is_refused(known, message):
    with pytest.raises(ValueError, match=message):
        Channel(Surroundings(endpoint="tcp://nowhere:1", **known), report_every_s=1.0)
