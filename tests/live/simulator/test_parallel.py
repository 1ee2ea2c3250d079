"""Runs in processes of their own: one that dies takes no other with it."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from simulator.many.parallel import RunOutcome, first_bad_input, run_all
from simulator.request import SimulationRequest

if TYPE_CHECKING:
    from pathlib import Path

PLUGIN = """
    import os, signal
    from dataclasses import dataclass
    from typing import ClassVar
    from policies.base import Policy

    @dataclass(frozen=True, kw_only=True)
    class {cls}(Policy):
        name: ClassVar[str] = "{name}"

        @classmethod
        def from_text(cls, params):
            return cls()

        def allocate(self, problem):
            {body}
"""


class _Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def started(self, index):
        self.events.append(("started", index))

    def progressed(self, index, progress):
        assert 0 <= progress.jobs_done <= progress.jobs

    def ended(self, index, outcome):
        self.events.append(("ended", index))


@pytest.fixture
def request_of(tmp_path, monkeypatch):
    """Return a maker of requests; two plugins raise, and die."""
    site = tmp_path / "site"
    info = site / "odd_policies-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-policies\nVersion: 1.0\n")
    points = "raises = odd_raises:Raises\ndies = odd_dies:Dies\n"
    (info / "entry_points.txt").write_text(f"[leasehold.policies]\n{points}")
    for name, body in (
        ("raises", "raise RuntimeError('out of cheese')"),
        ("dies", "os.kill(os.getpid(), signal.SIGKILL)"),
    ):
        code = textwrap.dedent(PLUGIN).format(cls=name.capitalize(), name=name, body=body)
        (site / f"odd_{name}.py").write_text(code)
    monkeypatch.syspath_prepend(str(site))
    trace, table = tmp_path / "trace.csv", tmp_path / "throughputs.csv"
    trace.write_text("job_id,job_type,total_steps,arrival_s\na,A,100,0\nb,A,100,0\n")
    table.write_text("job_type,scale_factor,worker_type,steps_per_s\nA,1,t4,1\n")

    def make(policy: str, trace: Path = trace) -> SimulationRequest:
        return SimulationRequest(
            trace=str(trace), throughputs=str(table), cluster="t4:1", policy=policy, record=True
        )

    return make


def test_a_run_that_raises_or_dies_loses_no_other(request_of):
    listener = _Recorder()
    requests = [request_of(p) for p in ("raises", "dies", "fifo")]
    outcomes = run_all(requests, processes=2, listener=listener)
    assert [o.result is not None for o in outcomes] == [False, False, True]
    assert "policy 'raises' failed" in outcomes[0].error
    assert "RuntimeError: out of cheese" in outcomes[0].error
    assert "SIGKILL" in outcomes[1].error
    assert [o.request for o in outcomes] == requests
    # Two jobs of 100 s in turn on one worker.
    assert outcomes[2].result.summary.makespan_s == pytest.approx(200)
    assert sorted(listener.events) == [(kind, i) for kind in ("ended", "started") for i in range(3)]
    running = 0
    for kind, _ in listener.events:
        running += 1 if kind == "started" else -1
        assert running <= 2


def test_an_input_error_of_one_run_is_not_everybody_s(request_of):
    fine = RunOutcome(request=request_of("fifo"))
    bad = RunOutcome(request=request_of("fifo"), error="x is 3", bad_input=True)
    assert first_bad_input([fine, bad]) == ""
    assert first_bad_input([bad, bad]) == "x is 3"
