"""Nodes on which jobs fail are avoided, then quarantined; slow ones and stalls are reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from leasehold_testing.control_shell import Shell, begin, new_control, report, submission
from scheduler.control.facts.facts import JobActionAsked, NodeOrdered
from scheduler.control.facts.requests import JobAction, NodeAction
from scheduler.control.nodes.health import (
    AVOID_S,
    SLOW,
    WINDOW_S,
    doubt_in_words,
    note_end,
)
from scheduler.control.nodes.reports import MOST_STALLS
from scheduler.control.state.leases import MemberEnd
from scheduler.control.state.node_evidence import NodeHealth, without_jobs
from scheduler.control.state.nodes import Doubt
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.operator_settings import LearningSettings
from scheduler.protocol.reports import LeaseReport

NODES = ("bad", *(f"good-{n}" for n in range(5)))


class Cluster:
    """Some nodes with a worker each, which report the events of a test."""

    def __init__(self, nodes: tuple[str, ...] = NODES, **settings: Any) -> None:
        self.shell: Shell = begin(types=())
        self.shell.control = new_control(**settings)
        self.nodes, self.now_s, self.sequence, self.jobs = nodes, 1.0, 0, 0
        self.wait(1.0)
        self.wait(1.0)

    @property
    def state(self) -> Any:
        return self.shell.control.state

    def node(self, name: str = "bad") -> Any:
        return self.state.nodes.by_name[name]

    def wait(self, seconds: float, *leases: LeaseReport, on: str = "") -> None:
        """Let time pass, and every node report; one of them reports leases."""
        self.now_s += seconds
        self.sequence += 1
        for name in self.nodes:
            known = self.state.nodes.by_name.get(name)
            told = leases if name == on else ()
            revision = 0 if known is None else known.revision
            own = [
                one for one in self.running(name) if one.lease_id not in {t.lease_id for t in told}
            ]
            fact = report(self.sequence, *own, *told, node=name, revision=revision)
            self.shell.tell(fact, now_s=self.now_s)

    def running(self, name: str) -> list[LeaseReport]:
        """Return the report of a node that obeys."""
        told = []
        for live, member in self.state.leases.held_by(name):
            over = bool(live.revoked) or not member.wanted
            told.append(
                LeaseReport(
                    lease_id=live.lease.lease_id,
                    token=live.lease.token,
                    state=LeasePhase.ENDED if over else LeasePhase.RUNNING,
                    reason=EndReason.RELEASED if over else None,
                )
            )
        return told

    def lease_on(self, name: str) -> Any:
        """Submit jobs until one runs on a node; returns its lease."""
        for _ in range(40):
            found = [live for live, _ in self.state.leases.held_by(name) if not live.revoked]
            if found:
                return found[0]
            self.jobs += 1
            self.shell.tell(submission(f"job-{self.jobs}", total_steps=1e9), now_s=self.now_s)
            self.wait(30.0)
        raise AssertionError(f"nothing starts on {name}")

    def end(
        self, name: str, reason: EndReason, *, apart_s: float = 30.0, said: str = "Xid 79"
    ) -> str:
        """Let a job come to an end on a node; returns the job."""
        live = self.lease_on(name)
        ended = LeaseReport(
            lease_id=live.lease.lease_id,
            token=live.lease.token,
            state=LeasePhase.ENDED,
            reason=reason,
            exit_code=1,
            message=said,
        )
        self.wait(apart_s, ended, on=name)
        return str(live.lease.job_id)

    def notes(self, kind: str) -> list[Any]:
        rows = (row for decision in self.shell.log for row in decision.rows.history)
        return [row for row in rows if row.kind == kind]


def drop(cluster: Cluster, job_id: str) -> None:
    asked = JobActionAsked(job_ids=(job_id,), action=JobAction.CANCEL, actor="me")
    cluster.shell.tell(asked, now_s=cluster.now_s)


def fail(cluster: Cluster, times: int, reason: EndReason = EndReason.LOST) -> list[str]:
    """Let different jobs fail on the bad node, each once."""
    jobs = []
    for _ in range(times):
        jobs.append(cluster.end("bad", reason))
        drop(cluster, jobs[-1])
        cluster.wait(1.0)
    return jobs


def test_a_node_is_avoided_for_a_while_and_tried_again() -> None:
    cluster = Cluster()
    jobs = fail(cluster, 2)
    doubt = cluster.node().doubt
    assert doubt is not None
    assert not doubt.lasts
    assert [one["job"] for one in doubt.evidence] == jobs
    (note,) = cluster.notes("node_avoided")
    assert [one["message"] for one in note.data["evidence"]] == ["Xid 79", "Xid 79"]
    cluster.wait(AVOID_S / 2)
    cluster.wait(AVOID_S / 2 + 1)
    assert cluster.node().doubt is None
    assert len(cluster.notes("node_tried_again")) == 1
    assert cluster.lease_on("bad")


def test_a_node_that_goes_on_failing_is_quarantined_until_somebody_uncordons_it() -> None:
    cluster = Cluster(quarantine_after=2)
    fail(cluster, 2)
    assert cluster.node().doubt.lasts
    assert "2 jobs failed here" in doubt_in_words(cluster.node())
    assert "Xid 79" in doubt_in_words(cluster.node())
    assert without_jobs(doubt_in_words(cluster.node())) == (
        "quarantined by the scheduler: 2 jobs failed here"
    )
    assert without_jobs("fans (all) are broken") == "fans (all) are broken"
    assert any("leasehold uncordon bad" in w for d in cluster.shell.log for w in d.warnings)
    for _ in range(8):  # more jobs than there are other workers
        cluster.jobs += 1
        cluster.shell.tell(submission(f"job-{cluster.jobs}", total_steps=1e9), now_s=cluster.now_s)
    cluster.wait(AVOID_S * 3)
    cluster.wait(120.0)
    assert not list(cluster.state.leases.held_by("bad"))
    order = NodeOrdered(node="bad", action=NodeAction.UNCORDON, actor="boss")
    cluster.shell.tell(order, now_s=cluster.now_s)
    assert cluster.node().doubt is None
    settings = [r for d in cluster.shell.log for r in d.rows.settings if r.key == "doubt/bad"]
    assert [row.value is None for row in settings] == [False, True]
    assert cluster.lease_on("bad")


def test_one_job_that_fails_again_and_again_is_held_against_no_node() -> None:
    cluster = Cluster(quarantine_after=2)
    jobs = {cluster.end("bad", EndReason.LOST), cluster.end("bad", EndReason.LOST)}
    assert len(jobs) == 1, "it began anew where it was"
    assert len(cluster.state.health.faults["bad"]) == 2
    assert cluster.node().doubt is None


def test_what_happens_at_once_counts_once() -> None:
    """A machine that starts again loses all that ran there."""
    cluster = Cluster(quarantine_after=2)
    job = cluster.end("bad", EndReason.LOST)
    (fault,) = cluster.state.health.faults["bad"]
    live = cluster.lease_on("bad")
    other = replace(live, lease=replace(live.lease, job_id="other"))
    transaction = cluster.shell.control.transaction(fault.at_s + 5.0)
    end = MemberEnd(reason=EndReason.LOST)
    note_end(cluster.state, transaction, other, "bad", end)
    assert {one.job_id for one in cluster.state.health.faults["bad"]} == {job, "other"}
    assert cluster.node().doubt is None
    note_end(cluster.state, cluster.shell.control.transaction(fault.at_s + 50.0), other, "bad", end)
    assert cluster.node().doubt is not None


def test_a_failure_is_its_nodes_where_the_job_completes_elsewhere() -> None:
    cluster = Cluster(quarantine_after=2)
    for number in range(2):
        job = cluster.end("bad", EndReason.FAILED, said="CUDA error")
        assert job not in {one.job_id for one in cluster.state.health.faults.get("bad", ())}
        filler = submission(f"filler-{number}", total_steps=1e9)  # takes its place while it waits
        cluster.shell.tell(filler, now_s=cluster.now_s)
        live = None
        while live is None:
            cluster.wait(10.0)
            live = cluster.state.leases.by_id.get(cluster.state.leases.of_job.get(job, -1))
        assert live.nodes != ("bad",)
        done = LeaseReport(
            lease_id=live.lease.lease_id,
            token=live.lease.token,
            state=LeasePhase.ENDED,
            reason=EndReason.COMPLETED,
            exit_code=0,
        )
        cluster.wait(20.0, done, on=live.nodes[0])
        assert job in {one.job_id for one in cluster.state.health.faults["bad"]}
        assert (cluster.node().doubt is not None) == (number == 1)
        drop(cluster, f"filler-{number}")
        cluster.wait(5.0)
    assert cluster.state.health.failures == {}


def over(live: Any, reason: EndReason) -> LeaseReport:
    """Return a node's report of a lease of which nothing is left."""
    return LeaseReport(
        lease_id=live.lease.lease_id,
        token=live.lease.token,
        state=LeasePhase.ENDED,
        reason=reason,
        exit_code=0 if reason is EndReason.COMPLETED else 1,
    )


def test_a_node_on_which_every_launch_fails_takes_one_try_of_each_of_two_jobs() -> None:
    cluster = Cluster(("bad", "good-0", "good-1", "good-2"))
    for number in range(7):
        job = submission(f"job-{number}", total_steps=1e9, max_failures=2)
        cluster.shell.tell(job, now_s=cluster.now_s)
    tried: list[str] = []
    for _ in range(60):
        for live, _ in list(cluster.state.leases.held_by("bad")):
            tried.append(live.lease.job_id)
            cluster.wait(1.0, over(live, EndReason.FAILED), on="bad")
        cluster.wait(10.0)
        for name in cluster.nodes[1:]:
            for live, _ in list(cluster.state.leases.held_by(name)):
                if cluster.now_s - live.lease.start_s > 100.0:
                    cluster.wait(1.0, over(live, EndReason.COMPLETED), on=name)
        if len(cluster.notes("job_completed")) == 7:
            break
    assert len(cluster.notes("job_completed")) == 7
    assert cluster.notes("job_failed") == []
    assert len(tried) == len(set(tried)) <= 3, "each job was there once, before and after a look"
    avoided = cluster.notes("node_avoided")[0]
    completed = cluster.notes("job_completed")[0]
    assert avoided.at_s < completed.at_s, "the node is known before any of the jobs has completed"


@pytest.mark.parametrize("harmless", ["same type", "fails elsewhere too", "ran for a while"])
def test_jobs_that_fail_by_themselves_do_not_count_against_their_node(harmless: str) -> None:
    cluster = Cluster(("bad", "good-0", "good-1", "good-2"))
    for number in range(2):
        kind = "same" if harmless == "same type" else f"type-{number}"
        job = submission(f"job-{number}", total_steps=1e9, max_failures=9, job_type=kind)
        cluster.shell.tell(job, now_s=cluster.now_s)
        failed_on = set()
        while "bad" not in failed_on or (harmless == "fails elsewhere too" and len(failed_on) < 2):
            cluster.wait(5.0)  # started leases are seen to run
            cluster.wait(70.0 if harmless == "ran for a while" else 20.0)
            for name in cluster.nodes:
                for live, _ in list(cluster.state.leases.held_by(name)):
                    cluster.wait(1.0, over(live, EndReason.FAILED), on=name)
                    failed_on.add(name)
        drop(cluster, f"job-{number}")
        cluster.wait(1.0)
    assert cluster.notes("node_avoided") == cluster.notes("node_suspected") == []


def test_the_last_workers_of_a_type_are_never_kept_out() -> None:
    cluster = Cluster(("bad", "good-0"), quarantine_after=2)
    fail(cluster, 2)
    assert cluster.node().doubt is None
    (note, *_) = cluster.notes("node_suspected")
    assert len(note.data["evidence"]) == 2


def test_workers_that_a_gang_needs_are_never_kept_out() -> None:
    cluster = Cluster(quarantine_after=2)
    gang = submission("gang", scale_factors=(6,), total_steps=1e9)
    cluster.shell.tell(gang, now_s=cluster.now_s)
    hold = JobActionAsked(job_ids=("gang",), action=JobAction.HOLD, actor="me")
    cluster.shell.tell(hold, now_s=cluster.now_s)
    cluster.wait(5.0)
    assert "gang" not in fail(cluster, 2)
    assert cluster.node().doubt is None
    assert cluster.notes("node_suspected")


def test_without_the_setting_nothing_is_held_against_anybody() -> None:
    cluster = Cluster(quarantine_after=0)
    fail(cluster, 3)
    assert cluster.node().doubt is None
    assert cluster.state.health.faults == {}


@pytest.mark.parametrize("until_s", [7.0, float("inf")])
def test_a_doubt_is_stored(until_s: float) -> None:
    doubt = Doubt(since_s=1.0, until_s=until_s, evidence=({"job": "a", "message": "x"},))
    back = Doubt.of_data(doubt.to_data())
    assert (back.since_s, back.until_s, back.lasts) == (1.0, until_s, until_s > 1e9)
    assert [dict(one) for one in back.evidence] == [{"job": "a", "message": "x"}]


def test_old_faults_are_held_against_nobody() -> None:
    cluster = Cluster(quarantine_after=2)
    fail(cluster, 1)
    for _ in range(3):
        cluster.wait(WINDOW_S / 2)
    fail(cluster, 1)
    assert cluster.node().doubt is None


def test_a_speed_is_the_mean_of_the_last_stretches_beside_other_nodes() -> None:
    health, key = NodeHealth(), ("resnet", 1, "v100")
    for _ in range(2):
        health.measure(key, "a", 8.0)
    assert health.relative_speed("a") is None, "there is nobody beside it"
    health.measure(key, "b", 10.0)
    assert health.relative_speed("a") is None, "one stretch says little"
    health.measure(key, "b", 10.0)
    assert health.relative_speed("a") == pytest.approx(0.8)
    other = ("bert", 2, "v100")
    for node, speed in (("a", 1.0), ("b", 1.0)) * 2:
        health.measure(other, node, speed)
    assert health.relative_speed("a") == pytest.approx(0.9), "the mean over job types"
    for _ in range(3):
        health.measure(key, "a", 10.0)
    assert health.relative_speed("a") == pytest.approx(1.0)
    health.drop_node("b")
    assert health.relative_speed("a") is None
    assert health.relative_speed("nobody") is None


def test_a_slow_node_is_told_within_three_rounds_and_goes_on() -> None:
    cluster = Cluster(learning=LearningSettings(least_s=5.0))
    for number, _ in enumerate(NODES):
        job = submission(f"same-{number}", total_steps=1e9, job_type="resnet")
        cluster.shell.tell(job, now_s=cluster.now_s)
    cluster.wait(1.0)
    cluster.wait(1.0)
    steps = dict.fromkeys(NODES, 0.0)
    began = cluster.state.engine.round_number
    while not cluster.notes("node_slow"):
        cluster.now_s += 20.0
        cluster.sequence += 1
        for name in NODES:
            steps[name] += 20.0 * (8.0 if name == "bad" else 10.0)
            leases = [
                LeaseReport(
                    lease_id=live.lease.lease_id,
                    token=live.lease.token,
                    state=LeasePhase.RUNNING,
                    steps_live=int(steps[name]),
                )
                for live, _ in cluster.state.leases.held_by(name)
            ]
            fact = report(
                cluster.sequence, *leases, node=name, revision=cluster.node(name).revision
            )
            cluster.shell.tell(fact, now_s=cluster.now_s)
        assert cluster.state.engine.round_number - began <= 3
    (note,) = cluster.notes("node_slow")
    assert (note.subject, note.data["relative_speed"]) == ("bad", pytest.approx(0.8))
    assert cluster.node().slow == pytest.approx(0.8)
    assert cluster.node().slow < SLOW
    assert cluster.node().doubt is None, "who is slow still works"
    assert "80%" in doubt_in_words(cluster.node())
    assert all(cluster.node(name).slow is None for name in NODES if name != "bad")


def test_stalls_of_agents_are_counted_once_and_told_with_the_node():
    shell = begin()

    def counted(sequence: int, stalls: int, *, incarnation: float = 1.0) -> tuple[int, list[str]]:
        fact = report(sequence)
        told = replace(fact.report, stalls=stalls, incarnation=incarnation)
        decision = shell.tell(replace(fact, report=told), now_s=1.0 + sequence)
        return decision.stalls, list(decision.warnings)

    said = ["the agent on n0 stood still for over a second; its log says where"]
    assert counted(3, 2) == (2, said)
    assert counted(4, 2) == (0, [])
    assert counted(4, 5) == (0, []), "a repeated report is old"
    assert counted(5, 3) == (1, said)
    assert counted(6, 1, incarnation=9.0) == (1, said), "a new agent counts from 0"
    assert counted(7, 10**15, incarnation=9.0) == (MOST_STALLS, said)


def test_stalls_before_the_scheduler_began_are_not_counted_again():
    shell = begin(types=())
    fact = report(1, node="far")
    told = replace(fact.report, stalls=5)
    assert shell.tell(replace(fact, report=told), now_s=5.0).stalls == 0
    told = replace(told, stalls=6, sequence=2)
    assert shell.tell(replace(fact, report=told), now_s=6.0).stalls == 1
