"""Jobs that hold GPUs and do not use them are found, reported, and ended if configured."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold_testing.control_shell import Shell, new_control, report, submission
from scheduler.control.state.control_copy import copy_of, state_of
from scheduler.domain.facts.commands import RevokeLease
from scheduler.domain.lease_life import LeasePhase
from scheduler.operator_settings import IdleSettings
from scheduler.protocol.gpu_use import GpuUse
from scheduler.protocol.reports import LeaseReport

MINUTE_S = 60.0
TOLD = IdleSettings(use_percent=5.0, after_s=300.0)
STOPPED = IdleSettings(use_percent=5.0, after_s=300.0, stop_after_s=600.0)


class Service:
    """A service to which nodes with a GPU each report how busy those of a job are."""

    def __init__(self, idle: IdleSettings = TOLD, *, nodes: int = 1) -> None:
        self.shell = Shell(new_control(idle=idle, node_timeout_s=1e6))
        self.now_s, self.sequence, self.nodes = 0.0, 0, [f"n{i}" for i in range(nodes)]
        self.told: dict[str, tuple[float, float]] = dict.fromkeys(self.nodes, (0.0, 0.0))
        self.wait(1.0)
        self.wait(1.0)
        asked = submission("job", total_steps=1e9, scale_factors=(nodes,))
        self.shell.tell(asked, now_s=self.now_s)
        self.wait(1.0)

    @property
    def state(self) -> Any:
        return self.shell.control.state

    @property
    def live(self) -> Any:
        (live,) = self.state.leases.by_id.values()
        return live

    def wait(self, seconds: float, *shares: float | None) -> None:
        """Let time pass, and every node report; ``shares`` is how busy each node's GPU was."""
        self.now_s += seconds
        for node, share in zip(self.nodes, shares or [None] * len(self.nodes), strict=True):
            if share is not None:
                used_s, measured_s = self.told[node]
                self.told[node] = used_s + share * seconds, measured_s + seconds
            self.report(node, measured=share is not None)

    def report(self, node: str, *, measured: bool) -> None:
        self.sequence += 1
        used_s, measured_s = self.told[node]
        gpu = GpuUse(used_s=used_s, measured_s=measured_s) if measured else None
        leases = [
            LeaseReport(
                lease_id=live.lease.lease_id,
                token=live.lease.token,
                state=LeasePhase.RUNNING,
                gpu=gpu,
            )
            for live, _ in self.state.leases.held_by(node)
        ]
        known = self.state.nodes.by_name.get(node)
        revision = 0 if known is None else known.revision
        fact = report(self.sequence, *leases, node=node, revision=revision)
        self.shell.tell(fact, now_s=self.now_s)

    def history(self, kind: str) -> list[Any]:
        rows = [row for decision in self.shell.log for row in decision.rows.history]
        return [row for row in rows if row.kind == kind]


def test_use_is_that_of_the_time_between_two_reports():
    service = Service()
    service.wait(10.0, 0.9)
    service.wait(10.0, 0.4)
    assert service.live.use == pytest.approx(0.4)
    assert service.live.idle_since_s is None


def test_a_report_without_news_or_an_agent_that_begins_anew_counts_no_time_twice():
    service = Service()
    service.wait(30.0, 0.5)
    service.report("n0", measured=True)
    assert service.live.use == pytest.approx(0.5)
    service.told["n0"] = (0.0, 0.0)
    service.wait(10.0, 0.2)
    assert service.live.use == pytest.approx(0.2)


def test_a_job_is_idle_since_the_last_report_that_saw_it_busy():
    service = Service()
    service.wait(10.0, 0.9)
    busy_s = service.now_s
    for _ in range(3):
        service.wait(MINUTE_S, 0.01)
    assert service.live.idle_since_s == busy_s
    service.wait(10.0, 0.06)
    assert service.live.idle_since_s is None


def test_an_idle_job_is_told_once_and_that_it_is_busy_again():
    service = Service()
    for _ in range(10):
        service.wait(MINUTE_S, 0.01)
    (line,) = service.history("job_idle")
    assert (line.subject, line.data["use_percent"]) == ("job", 1.0)
    assert line.data["idle_s"] >= 300.0
    assert (line.data["workers"], line.data["nodes"]) == (1, ["n0"])
    service.wait(MINUTE_S, 0.8)
    assert [one.data["use_percent"] for one in service.history("job_busy")] == [80.0]
    assert not service.history("idle_limit")
    assert not service.shell.commands(RevokeLease)


def test_a_gang_is_idle_when_all_of_it_is_and_all_of_it_is_measured():
    service = Service(nodes=2)
    for _ in range(10):
        service.wait(MINUTE_S, 0.0, 0.9)
    assert service.live.use == pytest.approx(0.45)
    assert not service.history("job_idle")
    service = Service(nodes=2)
    for _ in range(10):
        service.wait(MINUTE_S, 0.0, None)
    assert service.live.idle_since_s is None
    service = Service(nodes=2)
    for _ in range(10):
        service.wait(MINUTE_S, 0.0, 0.0)
    assert len(service.history("job_idle")) == 1


def test_a_job_is_ended_as_failed_by_the_bound_that_an_operator_sets():
    service = Service(STOPPED)
    for _ in range(10):
        service.wait(MINUTE_S, 0.02)
    assert not service.history("idle_limit")
    for _ in range(3):
        service.wait(MINUTE_S, 0.02)
    (line,) = service.history("idle_limit")
    figures = {name: line.data[name] for name in ("use_percent", "least_percent", "stop_after_s")}
    assert figures == {"use_percent": 2.0, "least_percent": 5.0, "stop_after_s": 600.0}
    assert line.data["cause"]["fact"] == "idle"
    (revoked,) = service.shell.commands(RevokeLease)
    assert revoked.reason == "cancel"
    # The engine's event is journaled, so that a replay ends the job, too.
    events = [event for decision in service.shell.log for event in decision.events]
    assert [e.job_id for e in events if type(e).__name__ == "JobCancelled"] == ["job"]
    lines = service.history("job_failed")
    assert [one.data.get("reason", "idle") for one in lines] in ([], ["idle"])


@pytest.mark.parametrize(
    "idle",
    [
        IdleSettings(after_s=300.0),
        IdleSettings(after_s=300.0, stop_after_s=600.0, exempt_projects=("default",)),
    ],
)
def test_no_job_is_ended_unless_somebody_wants_it(idle):
    service = Service(idle)
    for _ in range(60):
        service.wait(MINUTE_S, 0.0)
    assert len(service.history("job_idle")) == 1
    assert not service.history("idle_limit")


def test_without_figures_nothing_is_known_and_nobody_is_idle():
    service = Service(STOPPED)
    for _ in range(60):
        service.wait(MINUTE_S, None)
    assert service.live.use is None
    assert not service.history("job_idle")
    assert not service.state.leases.used


def test_use_adds_up_over_agents_that_begin_anew_and_parts_of_a_gang():
    service = Service(nodes=2)
    service.wait(30.0, 0.5, 1.0)
    service.told["n0"] = (0.0, 0.0)  # another agent
    service.wait(10.0, 0.2, 1.0)
    gpu = service.live.gpu
    assert (gpu.gpu_used_us, gpu.gpu_measured_us) == (
        15_000_000 + 2_000_000 + 40_000_000,
        80_000_000,
    )
    assert gpu.gpu_marks == ((0, 2_000_000, 10_000_000), (1, 40_000_000, 40_000_000))
    assert gpu.gpu_told_s == service.now_s
    assert not any(decision.rows.uses for decision in service.shell.log)  # not with each report
    copied = copy_of(service.state)
    assert [live.gpu for live in copied.leases] == [gpu]
    assert service.state.leases.take_uses() == (gpu,)
    assert service.state.leases.take_uses() == ()
    assert service.shell.control.view.leases.by_id.popitem()[1].gpu == service.live.gpu


def test_a_node_is_not_believed_that_it_used_more_than_it_held():
    service = Service()
    service.wait(10.0, 0.5)
    service.told["n0"] = (1e300, 1e301)
    service.wait(10.0, 0.5)
    held_us = (service.now_s - service.live.lease.start_s) * 1e6
    gpu = service.live.gpu
    assert gpu.gpu_used_us <= gpu.gpu_measured_us <= held_us
    for _ in range(5):  # nor by repeated restarts
        service.told["n0"] = (0.0, 0.0)
        service.wait(1.0, 0.5)
        service.told["n0"] = (1e6, 1e6)
        service.wait(1.0, 0.5)
    held_us = (service.now_s - service.live.lease.start_s) * 1e6
    assert service.live.gpu.gpu_measured_us <= held_us


def test_the_published_view_has_the_same_figures():
    service = Service()
    for _ in range(10):
        service.wait(MINUTE_S, 0.01)
    view = service.shell.control.view
    (seen,) = view.leases.by_id.values()
    assert (seen.use, seen.idle_since_s) == (service.live.use, service.live.idle_since_s)
    assert seen.idle_told
    assert view.leases.used == {seen.lease.lease_id}


def test_a_copy_of_control_knows_the_same_of_idle_jobs():
    service = Service(STOPPED)
    for _ in range(8):
        service.wait(MINUTE_S, 0.0)
    twin = state_of(copy_of(service.state), service.state.knowledge)
    assert twin.leases.used == service.state.leases.used
    (live,) = twin.leases.by_id.values()
    assert (live.idle_since_s, live.idle_told) == (service.live.idle_since_s, True)


def test_time_of_which_a_node_says_nothing_is_not_idle():
    service = Service(STOPPED)
    for _ in range(4):
        service.wait(MINUTE_S, 0.0)
    for _ in range(30):
        service.wait(MINUTE_S, None)
    assert not service.history("job_idle")
    assert not service.history("idle_limit")
