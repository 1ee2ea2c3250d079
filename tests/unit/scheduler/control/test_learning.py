"""Jobs with a changing batch: their measurements decide their numbers of workers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from leasehold_testing.control_shell import Shell, new_control, report, submission
from planner.knowledge import LearnedKnowledge
from planner.learning.goodput import ThroughputModel
from scheduler.control.facts.facts import JobActionAsked
from scheduler.control.facts.requests import JobAction, PolicyChoice
from scheduler.control.state.control_copy import copy_of, state_of
from scheduler.domain.codec import encode
from scheduler.domain.facts.commands import GrantLease
from scheduler.domain.lease_life import LeasePhase
from scheduler.domain.throughputs.knowledge import Part
from scheduler.engine.settings import EngineSettings
from scheduler.protocol.learning import Learning
from scheduler.protocol.reports import LeaseReport

LIMITS = {"initial": 32, "most": 4096, "least_per_worker": 1, "most_per_worker": 1024}
#: A pass takes a while however small it is: more workers are worth little at the same batch.
TRUTH = ThroughputModel(alpha_c=0.1, beta_c=0.001, alpha_r=0.02, beta_r=0.001)
TYPES = ("v100",) * 4
ASKED: dict[str, Any] = {
    "total_steps": 1e9, "scale_factors": (1, 2, 3), "batch": LIMITS, "job_type": "t",
    "throughputs": {},
}  # fmt: skip
GROWN = 1e5


class Service:
    """A service with a node of four workers, and jobs that report measurements."""

    def __init__(self, *names: str, **spec: Any) -> None:
        engine = EngineSettings(round_length_s=60.0, plan_lead_s=15.0)
        chosen = PolicyChoice(name="goodput")
        self.shell = Shell(new_control(policy=chosen, engine=engine, node_timeout_s=1e6))
        self.noise: dict[str, float | None] = dict.fromkeys(names)
        self.now_s, self.sequence, self.tells = 0.0, 0, True
        self.wait(2.0)
        self.shell.tell(submission(*names, **ASKED | spec), now_s=self.now_s)

    @property
    def state(self) -> Any:
        return self.shell.control.state

    def learning(self, live: Any) -> Learning:
        workers = len(live.lease.workers)
        times = tuple(
            (
                workers,
                each,
                TRUTH.pass_s(each),
                TRUTH.iteration_s(nodes=1, workers=workers, batch_per_worker=each),
            )
            for each in (32.0 / workers, 512.0)
        )
        noise = self.noise[live.lease.job_id]
        return Learning(noise_scale_samples=noise, batch_samples=32, step_times=times)

    def wait(self, seconds: float) -> None:
        """Let time pass; the node reports every second."""
        for _ in range(int(seconds)):
            self.now_s, self.sequence = self.now_s + 1.0, self.sequence + 1
            leases = [
                LeaseReport(
                    lease_id=live.lease.lease_id,
                    token=live.lease.token,
                    state=LeasePhase.RUNNING,
                    steps_done=int(self.now_s),
                    steps_live=int(self.now_s),
                    learning=self.learning(live) if self.tells else None,
                )
                for live, _ in self.state.leases.held_by("n0")
            ]
            known = self.state.nodes.by_name.get("n0")
            revision = 0 if known is None else known.revision
            fact = report(self.sequence, *leases, types=TYPES, revision=revision)
            self.shell.tell(fact, now_s=self.now_s)

    def held(self) -> dict[str, int]:
        """Return how many workers each job holds."""
        leases = self.state.leases.by_id.values()
        return {live.lease.job_id: len(live.lease.workers) for live in leases}

    def stored(self) -> dict[str, Any]:
        """Return the stored knowledge, part by part."""
        rows = [row for decision in self.shell.log for row in decision.rows.settings]
        return {row.key: row.value for row in rows if row.key in set(Part)}

    def ways(self, job_id: str) -> dict[tuple[int, str], tuple[float, str]]:
        """Return the knowledge of a job, by count and locality: steps/s and their source."""
        known = self.state.knowledge
        key = known.key(self.state.jobs.by_id[job_id].profile)
        return {
            (way.count, way.locality): (way.estimate.steps_per_s, way.estimate.source.value)
            for way in known.ways(key, self.state.engine.cluster)
        }


def test_of_two_jobs_of_a_type_the_one_whose_noise_has_grown_gets_more_workers():
    service = Service("a", "b")
    service.wait(180)
    assert service.held() == {"a": 2, "b": 2}
    service.noise = {"a": GROWN, "b": 1.0}
    service.wait(180)
    assert service.held() == {"a": 3, "b": 1}
    service.noise = {"a": 1.0, "b": GROWN}
    service.wait(240)
    assert service.held() == {"a": 1, "b": 3}


def test_step_times_are_those_of_the_type_and_noise_is_the_job_s_own():
    service = Service("a", "b")
    service.noise = {"a": GROWN, "b": 0.0}
    service.wait(120)
    a, b = service.ways("a"), service.ways("b")
    assert a.keys() == b.keys()
    for way, (rate, _) in a.items():
        assert rate > 1.5 * b[way][0]
    assert {source for _, source in a.values()} <= {"measured", "estimated"}
    assert a[2, "consolidated"][1] == "measured"
    truth = 1.0 / TRUTH.iteration_s(nodes=1, workers=2, batch_per_worker=16.0)
    assert b[2, "consolidated"][0] == pytest.approx(truth, rel=0.1)


def test_what_a_job_has_measured_is_published_with_its_lease():
    service = Service("a")
    for noise in (None, 5.0, 7.0):
        service.noise["a"] = noise
        service.wait(5)
        (seen,) = service.shell.control.view.leases.by_id.values()
        assert seen.learning.noise_scale_samples == noise


def test_jobs_that_tell_nothing_are_known_as_before():
    service = Service("a", "b")
    service.tells = False
    service.wait(120)
    assert {source for _, source in service.ways("a").values()} == {"assumed"}
    assert not service.state.batches_due
    assert service.state.knowledge.dump(Part.BATCHES)["measured"] == []


def test_figures_of_a_job_whose_batch_may_not_change_are_not_heeded():
    service = Service("a", "b", batch={})
    service.noise = {"a": GROWN, "b": 1.0}
    service.wait(90)
    assert service.state.knowledge.dump(Part.BATCHES)["noise"] == []


def test_step_times_of_another_count_than_the_lease_holds_do_not_count():
    service = Service("a", scale_factors=(1,))
    usual = service.learning
    service.learning = lambda live: replace(usual(live), step_times=((3, 8.0, 1.0, 1.0),))
    service.wait(90)
    assert service.state.knowledge.dump(Part.BATCHES)["measured"] == []


def test_what_was_learned_is_stored_with_the_table_and_restored_as_it_was():
    service = Service("a", "b")
    service.noise = {"a": GROWN, "b": 1.0}
    service.wait(180)
    stored = service.stored()
    assert stored[Part.BATCHES]["noise"] == [["1", GROWN], ["2", 1.0]]
    again = LearnedKnowledge(json.loads(json.dumps(stored)))
    service_ways = service.ways("a")
    known = service.state.knowledge
    key = known.key(service.state.jobs.by_id["a"].profile)
    found = {
        (way.count, way.locality): (way.estimate.steps_per_s, way.estimate.source.value)
        for way in again.ways(key, service.state.engine.cluster)
    }
    assert found == service_ways
    assert again.profiles == known.profiles


def test_a_copy_decides_as_the_original_and_learns_on():
    service = Service("a", "b")
    service.noise = {"a": GROWN, "b": 1.0}
    service.wait(95)
    copied = copy_of(service.state)
    twin = Service("a", "b")
    twin.shell.control.state = state_of(copied, LearnedKnowledge(copied.knowledge))
    twin.now_s, twin.sequence, twin.noise = service.now_s, service.sequence, service.noise
    begun = len(service.shell.log), len(twin.shell.log)
    for one in (service, twin):
        one.noise = {"a": 1.0, "b": GROWN}
        one.wait(240)
    told = [
        [encode(c) for d in one.shell.log[at:] for c in d.commands if isinstance(c, GrantLease)]
        for one, at in zip((service, twin), begun, strict=True)
    ]
    assert told[0] == told[1]
    assert told[0]


def test_a_job_that_comes_when_another_has_ended_has_its_profile_and_none_of_its_noise():
    service = Service("a", "b")
    service.noise = {"a": GROWN, "b": GROWN}
    service.wait(90)
    profiles = service.state.knowledge.profiles
    ended = service.state.jobs.by_id["b"].profile
    service.shell.tell(
        JobActionAsked(job_ids=("b",), action=JobAction.CANCEL, actor="me"), now_s=service.now_s
    )
    service.wait(120)
    service.noise = {"a": 1.0, "c": None}
    service.wait(60)
    assert service.state.knowledge.dump(Part.BATCHES)["noise"] == [["1", 1.0]]
    service.shell.tell(submission("c", **ASKED), now_s=service.now_s)
    assert service.state.jobs.by_id["c"].profile == ended
    assert service.state.knowledge.profiles == profiles
    stored = service.stored()[Part.PROFILES]
    assert stored["learners"] == {"a": 1, "c": 2}
    service.wait(60)
    assert service.held().keys() == {"a", "c"}
    limit = 1.2 * service.ways("a")[1, "any"][0]
    assert service.ways("c")[1, "any"][0] < limit, "nothing is known of its noise"
