"""The SDK's messages are within the agent's bounds."""

from __future__ import annotations

import json
import math
import socket
import threading

import pytest

from leasehold.bounds import LINE_BYTES, MOST_STEP_TIMES
from leasehold.channel import Channel
from leasehold.learning import learning_of
from leasehold.surroundings import Surroundings
from scheduler.protocol import bounds
from scheduler.protocol.learning import Learning
from scheduler.protocol.reading import read_as


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


FIGURES = {
    "noise_scale_samples": 812.3456789,
    "batch_samples": 64,
    "gain": 1.5,
    "step_times": [(2, 32.0, 0.0123456789, 0.03)],
}


def test_what_was_measured_is_told_once_over_each_connection_and_again_if_it_changes(monkeypatch):
    monkeypatch.setattr("leasehold.channel.RECEIPT_MOST_S", 0.1)
    pairs = [socket.socketpair(), socket.socketpair()]
    unused = iter(pairs)
    monkeypatch.setattr("leasehold.channel.connect", lambda *_, **__: next(unused)[0])
    channel = Channel(Surroundings(endpoint="tcp://nowhere:1"), report_every_s=0.05)
    channel.learning = learning_of(FIGURES)
    channel.start()
    with pairs[0][1] as agent, agent.makefile("rb") as lines:
        first, second = json.loads(lines.readline()), json.loads(lines.readline())
        assert first["learning"] == {
            "noise_scale_samples": 812.346,
            "batch_samples": 64,
            "step_times": [[2, 32.0, 0.0123457, 0.03]],
        }
        assert "learning" not in second
        channel.learning = learning_of(FIGURES | {"batch_samples": 80})
        told = [json.loads(lines.readline()).get("learning") for _ in range(3)]
        assert [one["batch_samples"] for one in told if one] == [80]
    with pairs[1][1] as agent, agent.makefile("rb") as lines:
        assert json.loads(lines.readline())["learning"]["batch_samples"] == 80
        channel.close()


def test_a_channel_is_closed_when_the_agent_has_read_the_last_report(tmp_path):
    """An agent that answered on a closed connection would lose the reports after that."""
    path = tmp_path / "s"
    with socket.create_server(str(path), family=socket.AF_UNIX) as listener:
        channel = Channel(Surroundings(endpoint=str(path)), report_every_s=60.0)
        channel.start()
        agent, _ = listener.accept()
        closer = threading.Thread(target=channel.close)
        with agent, agent.makefile("rb") as lines:
            lines.readline()
            channel.steps_live = 3
            closer.start()
            reports = [json.loads(line)["steps_live"] for line in lines]  # until it sends no more
            agent.sendall(b'{"notice": false}\n')
            assert closer.is_alive()
        closer.join()
    assert reports == [3]


def test_an_agent_that_never_answers_holds_a_job_up_for_a_moment_only(monkeypatch):
    monkeypatch.setattr("leasehold.channel.RECEIPT_MOST_S", 0.1)
    ours, theirs = socket.socketpair()
    monkeypatch.setattr("leasehold.channel.connect", lambda *_, **__: ours)
    channel = Channel(Surroundings(endpoint="tcp://nowhere:1"), report_every_s=60.0)
    channel.start()
    with theirs:
        assert theirs.recv(4096)
        channel.close()
        assert ours.fileno() == -1, "it is closed, though the agent keeps its end open"


@pytest.mark.parametrize(
    ("noise", "told"), [(math.inf, 2.0**53 - 1.0), (math.nan, None), (-1.0, 0.0), (None, None)]
)
def test_absurd_figures_are_told_so_that_an_agent_takes_them_in_a_line_of_its_length(noise, told):
    absurd = [
        (0, 1.0, 1.0, 1.0), (2, 0.0, 1.0, 1.0), (2, 1.0, math.nan, 1.0), (2, 1.0, 1.0, 0.0),
        (2, math.inf, 1.0, 1.0), (2, 1.0, 1.0, 1e10),
    ]  # fmt: skip
    many = [(10**6, 123456.789 + i, 0.123456789, 1234.56789) for i in range(200)]
    figures = {"noise_scale_samples": noise, "batch_samples": 10**30, "step_times": absurd + many}
    found = learning_of(figures)
    taken = read_as(Learning, json.loads(json.dumps(found)))
    assert taken.noise_scale_samples == told
    assert taken.batch_samples == 2**53 - 1
    assert len(taken.step_times) == MOST_STEP_TIMES
    assert taken.step_times[-1][1] == pytest.approx(many[-1][1], rel=1e-5)
    steps = {"steps_live": 2**53 - 1, "steps_done": 2**53 - 1, "rank": 10**6}
    line = {"secret": "s" * bounds.LONGEST_NAME, "learning": found} | steps
    assert len(json.dumps(line)) < LINE_BYTES


def test_nothing_is_told_before_anything_was_measured():
    figures = {"noise_scale_samples": None, "batch_samples": 64, "step_times": []}
    assert learning_of(figures) is None
