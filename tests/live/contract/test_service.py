"""The contract of a ``SchedulerService``: the same for the fake one and for the real one.

The fake service is what tests of the REST interface, of the client and of the command line run
against. If it differs from the real one, they would test a service that does not exist.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from leasehold_testing.output import read_whole
from leasehold_testing.service import FakeService
from leasehold_testing.stage import Stage
from scheduler.control.facts.requests import (
    JobAction,
    NodeAction,
    PolicyChoice,
    ProjectLimits,
    Submission,
)
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus
from scheduler.domain.jobs.spec import JobSpec
from scheduler.domain.lease_life import EndReason
from scheduler.domain.reservation import Reservation
from scheduler.engine.settings import EngineSettings
from scheduler.errors import ConflictError, InputError, NotFoundError
from scheduler.logs.output import LogWanted
from scheduler.runtime.settings import RuntimeSettings
from scheduler.store.queries import HistoryQuery
from scheduler.views.history_kinds import EventKind, SubjectKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

    from scheduler.domain.rows import HistoryRow, JobRow
    from scheduler.runtime.contract import SchedulerService
    from scheduler.views.types import LeaseView

WORKERS = 2


class FakeHouse:
    """The fake service; time passes and jobs run as the test says."""

    def __init__(self, _: Path) -> None:
        self.fake = FakeService(workers=WORKERS)
        self.service: SchedulerService = self.fake

    async def start(self) -> None:
        """Begin."""

    async def do(self, call: Coroutine[Any, Any, Any]) -> Any:
        return await call

    async def run(self, job_id: str) -> None:
        self.fake.run(job_id)

    async def finish(self, job_id: str) -> None:
        self.fake.finish(job_id)

    @property
    def now_s(self) -> float:
        return self.fake.now_s


class RealHouse:
    """The real service with a node, under a clock that stands still until a job is to run."""

    def __init__(self, folder: Path) -> None:
        engine = EngineSettings(round_length_s=10.0, plan_lead_s=4.0)
        settings = RuntimeSettings(
            engine=engine, policy=PolicyChoice(name="fifo"), margin_s=1.0, node_timeout_s=12.0
        )
        self.stage = Stage(folder, settings)

    async def start(self) -> None:
        self.stage.add_node("alpha", *["v100"] * WORKERS)
        await self.stage.start()
        await self.stage.settle()
        await self.stage.advance(0.5)

    @property
    def service(self) -> SchedulerService:
        return self.stage.service

    async def do(self, call: Coroutine[Any, Any, Any]) -> Any:
        return await self.stage.do(call)

    async def run(self, job_id: str) -> None:
        await self._until(job_id, JobStatus.RUNNING)

    async def finish(self, job_id: str) -> None:
        await self._until(job_id, JobStatus.COMPLETED)

    async def _until(self, job_id: str, status: JobStatus) -> None:
        def there() -> bool:
            row = self.service.store.job(job_id)
            return row is not None and row.status is status

        await self.stage.run_until(there, at_most_s=600.0, tick_s=0.5)

    @property
    def now_s(self) -> float:
        return self.stage.clock.now_s()


class House:
    """A service of either kind, with short words for what tests say to it."""

    def __init__(self, kind: FakeHouse | RealHouse) -> None:
        self.kind = kind

    @property
    def service(self) -> SchedulerService:
        return self.kind.service

    def spec(self, name: str = "job", **values: Any) -> JobSpec:
        usual: dict[str, Any] = {
            "command": ("train",),
            "total_steps": 5.0,
            "throughputs": {"v100": 1.0},
            "notice_s": 1.0,
            "grace_s": 1.0,
        }
        return JobSpec(name=name, **usual | values)

    async def submit(self, *items: Submission) -> Any:
        return await self.kind.do(self.service.submit(items, actor="ada"))

    async def job(self, name: str = "job", *, held: bool = False, **values: Any) -> str:
        (made,) = await self.submit(
            Submission(spec=self.spec(name, **values), owner="ada", held=held)
        )
        assert made.created, made
        return str(made.job_id)

    async def act(self, action: JobAction, *ids: str, **how: Any) -> Any:
        return await self.kind.do(self.service.act(ids, action, actor="ada", **how))

    async def change(self, *ids: str, **how: Any) -> Any:
        return await self.kind.do(self.service.change(ids, actor="ada", **how))

    def row(self, job_id: str) -> JobRow:
        row = self.service.store.job(job_id)
        assert row is not None
        return row

    def history(self, **query: Any) -> tuple[HistoryRow, ...]:
        return tuple(self.service.store.history(HistoryQuery(limit=1000, **query)))

    def lease_of(self, job_id: str) -> LeaseView:
        (lease,) = [lease for lease in self.service.leases() if lease.job_id == job_id]
        return lease


@pytest.fixture(params=[FakeHouse, RealHouse], ids=["fake", "real"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Return what lets a story happen in a service of either kind."""

    def happen(story: Callable[[House], Awaitable[None]]) -> None:
        async def work() -> None:
            kind = request.param(tmp_path)
            await kind.start()
            await story(House(kind))

        asyncio.run(work())

    return happen


class TestSubmitting:
    def test_a_job_waits_under_an_id_of_its_own(self, play) -> None:
        async def story(house: House) -> None:
            job_id = await house.job("a", weight=2.0, labels={"k": "v"})
            other = await house.job("a")
            row = house.row(job_id)
            assert job_id != other
            assert (row.name, row.owner, row.project) == ("a", "ada", "default")
            assert (row.weight, dict(row.labels), row.scale_factor) == (2.0, {"k": "v"}, 1)
            assert row.number < house.row(other).number
            assert (row.finished_s, row.steps_done, row.failures) == (None, 0.0, 0)

        play(story)

    def test_a_repeated_submission_is_the_same_job(self, play) -> None:
        async def story(house: House) -> None:
            item = Submission(spec=house.spec(), owner="ada", client_id="mine")
            ((first,), (again,)) = await house.submit(item), await house.submit(item)
            assert (first.created, again.created) == (True, False)
            assert again.job_id == first.job_id
            (clash,) = await house.submit(replace(item, spec=house.spec("other")))
            assert (clash.created, clash.code) == (False, "conflict")
            assert clash.job_id == first.job_id
            assert "mine" in clash.refusal
            (other,) = await house.submit(replace(item, owner="bob"))
            assert other.created

        play(story)

    def test_what_can_never_run_is_refused(self, play) -> None:
        async def story(house: House) -> None:
            spec = house.spec(scale_factors=(WORKERS + 1,))
            fit = await house.service.fit(spec)
            assert not fit.fits
            assert fit.reason is WaitReason.TOO_LARGE
            assert str(WORKERS) in fit.message
            (made,) = await house.submit(Submission(spec=spec, owner="ada"))
            assert (made.created, made.code) == (False, "refused")
            assert made.refusal
            fitting = await house.service.fit(house.spec(scale_factors=(WORKERS,)))
            assert fitting.fits
            (way,) = fitting.configurations
            assert (way.worker_type, way.count) == ("v100", WORKERS)
            assert (way.workers_in_service, way.workers_idle) == (WORKERS, WORKERS)

        play(story)

    def test_a_deadline_that_has_passed_is_invalid(self, play) -> None:
        async def story(house: House) -> None:
            late = house.spec(deadline_s=house.kind.now_s / 2)
            (made,) = await house.submit(Submission(spec=late, owner="ada"))
            assert (made.created, made.code) == (False, "invalid")
            assert "deadline" in made.refusal

        play(story)

    def test_a_batch_is_taken_item_by_item(self, play) -> None:
        async def story(house: House) -> None:
            large = house.spec(scale_factors=(WORKERS + 1,))
            found = await house.submit(
                Submission(spec=house.spec(), owner="ada"),
                Submission(spec=large, owner="ada"),
                Submission(spec=house.spec(), owner="ada"),
            )
            assert [one.created for one in found] == [True, False, True]

        play(story)

    def test_an_id_that_is_given_is_kept_and_not_given_twice(self, play) -> None:
        async def story(house: House) -> None:
            item = Submission(spec=house.spec(), owner="ada", job_id="mine[3]")
            (made,) = await house.submit(item)
            assert made.job_id == "mine[3]"
            (again,) = await house.submit(item)
            assert (again.created, again.code) == (False, "conflict")

        play(story)


class TestActing:
    def test_a_job_is_held_and_released(self, play) -> None:
        async def story(house: House) -> None:
            job_id = await house.job(held=True)
            assert house.row(job_id).status is JobStatus.HELD
            (same,) = await house.act(JobAction.HOLD, job_id)
            assert (same.changed, same.error) == (False, "")
            (acted,) = await house.act(JobAction.RELEASE, job_id)
            assert (acted.job_id, acted.changed, acted.code) == (job_id, True, "")
            assert house.row(job_id).status is not JobStatus.HELD
            (again,) = await house.act(JobAction.RELEASE, job_id)
            assert not again.changed

        play(story)

    def test_a_cancelled_job_has_ended(self, play) -> None:
        async def story(house: House) -> None:
            job_id = await house.job(held=True)
            (acted,) = await house.act(JobAction.CANCEL, job_id, reason="over")
            assert acted.changed
            row = house.row(job_id)
            assert row.status is JobStatus.CANCELLED
            assert row.finished_s == house.kind.now_s
            assert house.service.live([job_id]) == {}
            (again,) = await house.act(JobAction.CANCEL, job_id)
            assert not again.changed
            for action in (JobAction.HOLD, JobAction.RELEASE):
                (refused,) = await house.act(action, job_id)
                assert (refused.changed, refused.code) == (False, "conflict")
                assert job_id in refused.error
            (changed,) = await house.change(job_id, weight=2.0)
            assert (changed.changed, changed.code) == (False, "conflict")

        play(story)

    def test_an_ended_job_is_taken_up_again(self, play) -> None:
        async def story(house: House) -> None:
            job_id = await house.job(held=True)
            await house.act(JobAction.CANCEL, job_id)
            (acted,) = await house.act(JobAction.REQUEUE, job_id)
            assert acted.changed
            row = house.row(job_id)
            assert row.finished_s is None
            assert row.status in {JobStatus.WAITING, JobStatus.RUNNING}

        play(story)

    def test_a_dry_run_tells_and_does_nothing(self, play) -> None:
        async def story(house: House) -> None:
            job_id = await house.job(held=True)
            before = len(house.history())
            (acted,) = await house.act(JobAction.CANCEL, job_id, dry_run=True)
            assert acted.changed
            assert house.row(job_id).status is JobStatus.HELD
            assert len(house.history()) == before

        play(story)

    def test_jobs_that_are_none_are_named(self, play) -> None:
        async def story(house: House) -> None:
            job_id = await house.job(held=True)
            for found in (
                await house.act(JobAction.CANCEL, "nothing", job_id),
                await house.change("nothing", job_id, weight=2.0),
            ):
                assert [one.job_id for one in found] == ["nothing", job_id]
                assert found[0].code == "not_found"
                assert "nothing" in found[0].error

        play(story)

    def test_weight_and_deadline_are_changed(self, play) -> None:
        async def story(house: House) -> None:
            job_id, due_s = await house.job(held=True), house.kind.now_s + 1000.0
            (acted,) = await house.change(job_id, weight=3.0, deadline_s=due_s)
            assert acted.changed
            row = house.row(job_id)
            assert (row.weight, row.deadline_s) == (3.0, due_s)
            await house.change(job_id, clear_deadline=True)
            row = house.row(job_id)
            assert (row.weight, row.deadline_s) == (3.0, None)
            (same,) = await house.change(job_id, weight=3.0)
            assert (same.changed, same.error) == (False, "")
            (late,) = await house.change(job_id, deadline_s=house.kind.now_s / 2)
            assert (late.changed, late.code) == (False, "invalid")

        play(story)


class TestRunning:
    def test_a_job_that_runs_holds_a_lease(self, play) -> None:
        async def story(house: House) -> None:
            job_id = await house.job(scale_factors=(2,))
            await house.kind.run(job_id)
            lease, row = house.lease_of(job_id), house.row(job_id)
            assert (lease.worker_type, lease.workers, lease.nodes) == ("v100", (0, 1), ("alpha",))
            assert (lease.attempt, lease.project) == (1, "default")
            assert lease.deadline_s > lease.start_s
            assert (row.status, row.attempts) == (JobStatus.RUNNING, 1)
            assert row.started_s is not None
            live = house.service.live([job_id])[job_id]
            assert (live.lease_id, live.workers) == (lease.lease_id, 2)
            assert (live.worker_type, live.nodes) == ("v100", ("alpha",))
            assert live.lease_deadline_s == lease.deadline_s
            assert live.lease_start_s == lease.start_s
            (attempt,) = house.service.store.attempts(job_id)
            assert (attempt.lease_id, attempt.ended_s) == (lease.lease_id, None)
            (node,) = house.service.nodes()
            assert [worker.jobs for worker in node.workers] == [(job_id,), (job_id,)]
            assert house.service.cluster().busy == {"v100": 2}
            assert (await house.service.explain(row)).reason is None

        play(story)

    def test_a_job_that_has_completed_holds_none(self, play) -> None:
        async def story(house: House) -> None:
            job_id = await house.job()
            await house.kind.run(job_id)
            await house.kind.finish(job_id)
            row = house.row(job_id)
            assert row.status is JobStatus.COMPLETED
            assert row.finished_s is not None
            assert house.service.leases() == ()
            assert house.service.live([job_id]) == {}
            (attempt,) = house.service.store.attempts(job_id)
            assert attempt.end_reason is EndReason.COMPLETED
            assert attempt.ended_s == row.finished_s
            (node,) = house.service.nodes()
            assert not any(worker.jobs for worker in node.workers)

        play(story)

    def test_output_is_taken_of_leases_that_a_node_holds(self, play) -> None:
        async def story(house: House) -> None:
            job_id = await house.job()
            await house.kind.run(job_id)
            lease_id, service = house.lease_of(job_id).lease_id, house.service
            assert await service.append_log("alpha", lease_id, "out", offset=0, data=b"ab") == 2
            assert await service.append_log("alpha", lease_id, "out", offset=2, data=b"c") == 3
            # Sent again, and sent from too far: it gets the offset to go on.
            assert await service.append_log("alpha", lease_id, "out", offset=0, data=b"ab") == 3
            assert await service.append_log("alpha", lease_id, "out", offset=9, data=b"z") == 3
            found = await read_whole(service, job_id, LogWanted(stream="out"))
            assert b"".join(chunk.data for chunk in found) == b"abc"
            assert {(chunk.node, chunk.stream, chunk.attempt) for chunk in found} == {
                ("alpha", "out", 1)
            }
            (tail,) = await read_whole(service, job_id, LogWanted(stream="out", tail_bytes=1))
            assert (tail.offset, tail.data) == (2, b"c")
            assert await read_whole(service, job_id, LogWanted(stream="err")) == ()
            assert (await service.log_end(job_id, LogWanted())).complete is False
            for node, lease in (("beta", lease_id), ("alpha", lease_id + 7)):
                with pytest.raises(NotFoundError):
                    await service.append_log(node, lease, "out", offset=0, data=b"x")

        play(story)


class TestReading:
    def test_why_a_job_waits_is_explained(self, play) -> None:
        async def story(house: House) -> None:
            held = await house.job(held=True)
            found = await house.service.explain(house.row(held))
            assert (found.job_id, found.status, found.reason) == (
                held, JobStatus.HELD, WaitReason.HELD,
            )  # fmt: skip
            assert found.message
            assert house.service.live([held])[held].reason is WaitReason.HELD
            await house.act(JobAction.CANCEL, held)
            found = await house.service.explain(house.row(held))
            assert (found.status, found.reason) == (JobStatus.CANCELLED, None)
            assert found.message

        play(story)

    def test_an_explanation_lists_up_to_ten_jobs_right_before_a_waiting_one(self, play) -> None:
        async def story(house: House) -> None:
            ids = [await house.job(project="vision") for _ in range(15)]
            found = [await house.service.explain(house.row(job_id)) for job_id in ids]
            queue = sorted((one.position, one.job_id, one.ahead) for one in found if one.position)
            order = [job_id for _, job_id, _ in queue]
            assert [position for position, _, _ in queue] == list(range(1, len(order) + 1))
            assert len(order) > 11
            for place, (_, _, ahead) in enumerate(queue):
                assert [one.job_id for one in ahead] == order[max(place - 10, 0) : place]
                assert {one.project for one in ahead} <= {"vision"}

        play(story)

    def test_history_is_written_and_waited_for(self, play) -> None:
        async def story(house: House) -> None:
            service = house.service
            before = service.store.head().event_id
            job_id = await house.job(held=True)
            newest = await service.wait_for_history(before, wait_s=10.0)
            assert newest > before
            assert await service.wait_for_history(newest, wait_s=0.0) == newest
            await house.act(JobAction.RELEASE, job_id)
            lines = house.history(subject=job_id)
            assert lines[0].kind == EventKind.JOB_SUBMITTED
            assert (lines[0].subject_kind, lines[0].actor) == (SubjectKind.JOB, "ada")
            assert [line.event_id for line in lines] == sorted(line.event_id for line in lines)
            assert any("release" in line.kind and line.actor == "ada" for line in lines)
            await service.note("agent_enrolled", "node", "n", actor="n", data={"token_id": "t"})
            (line,) = house.history(kinds=("agent_enrolled",))
            assert (line.subject, dict(line.data)) == ("n", {"token_id": "t"})
            assert {line.kind for line in house.history()} <= set(EventKind)
            assert {line.subject_kind for line in house.history()} <= set(SubjectKind)

        play(story)

    def test_the_cluster_is_told_in_figures(self, play) -> None:
        async def story(house: House) -> None:
            service, counts = house.service, {"v100": WORKERS}
            found = service.cluster()
            assert (found.workers, found.in_service) == (counts, counts)
            assert found.utilisation == 0.0
            assert found.round_length_s > 0.0
            health = service.health()
            assert (health.ready, health.leading, health.problems) == (True, True, ())
            assert b"leasehold_jobs" in service.metrics()
            assert service.allocation().policy == service.policy().name

        play(story)


class TestOperating:
    def test_a_node_is_cordoned_drained_and_put_back(self, play) -> None:
        async def story(house: House) -> None:
            service = house.service
            (node,) = service.nodes()
            assert (node.name, node.state, len(node.workers)) == ("alpha", "ready", WORKERS)
            for action, states in (
                (NodeAction.CORDON, {"cordoned"}),
                (NodeAction.DRAIN, {"draining", "drained"}),
                (NodeAction.UNCORDON, {"ready"}),
            ):
                made = await house.kind.do(
                    service.node_action("alpha", action, reason="fan", actor="ada")
                )
                assert made.state in states
                (node,) = service.nodes()
                assert node.state in states
            for call in (
                service.node_action("beta", NodeAction.DRAIN, reason="", actor="ada"),
                service.remove_node("beta", actor="ada"),
            ):
                with pytest.raises(NotFoundError, match="beta"):
                    await house.kind.do(call)
            with pytest.raises(ConflictError, match="alpha"):
                await house.kind.do(service.remove_node("alpha", actor="ada"))

        play(story)

    def test_a_policy_is_put_in_force(self, play) -> None:
        async def story(house: House) -> None:
            service = house.service
            choice = PolicyChoice(name="alpha_fairness", parameters={"alpha": "2"}, agnostic=True)
            made = await house.kind.do(service.set_policy(choice, actor="ada"))
            assert made == service.policy()
            assert (made.name, dict(made.parameters)) == ("alpha_fairness", {"alpha": "2"})
            assert (made.agnostic, made.space_sharing, made.actor) == (True, False, "ada")
            for wrong in (
                PolicyChoice(name="no_such_policy"),
                PolicyChoice(name="alpha_fairness", parameters={"beta": "2"}),
            ):
                with pytest.raises(InputError):
                    await house.kind.do(service.set_policy(wrong, actor="ada"))
            assert service.policy() == made

        play(story)

    def test_the_event_of_a_policy_change_has_the_old_and_the_new_policy(self, play) -> None:
        async def story(house: House) -> None:
            for choice in (
                PolicyChoice(name="alpha_fairness", parameters={"alpha": "2"}, agnostic=True),
                PolicyChoice(name="fifo", space_sharing=True),
                PolicyChoice(name="max_min_fairness"),
            ):
                await house.kind.do(house.service.set_policy(choice, actor="ada"))
            *_, second, third = house.history(kinds=("policy_changed",))
            assert (second.subject, second.actor) == ("fifo", "ada")
            assert dict(second.figures) == {
                "before": "alpha_fairness",
                "before_parameters": {"alpha": "2"},
                "before_agnostic": True,
                "parameters": {},
                "agnostic": False,
                "space_sharing": True,
            }
            assert third.subject == "max_min_fairness"
            assert dict(third.figures) == {
                "before": "fifo",
                "before_space_sharing": True,
                "parameters": {},
                "agnostic": False,
                "space_sharing": False,
            }

        play(story)

    def test_a_project_gets_limits(self, play) -> None:
        async def story(house: House) -> None:
            service = house.service
            limits = ProjectLimits(project="vision", weight=2.0, max_jobs=3)
            made = await house.kind.do(service.set_project(limits, actor="ada"))
            assert made.limits == limits
            assert made in service.projects()
            await house.job(held=True, project="vision")
            (found,) = [p for p in service.projects() if p.limits.project == "vision"]
            assert found.active_jobs == 1

        play(story)

    def test_workers_are_reserved(self, play) -> None:
        async def story(house: House) -> None:
            service = house.service
            rule = Reservation(
                name="r", worker_type="v100", workers=2, from_s=1e10, until_s=2e10, project="p"
            )
            made = await house.kind.do(service.reserve(rule, actor="ada"))
            assert (made.reservation, made.state, made.assigned) == (rule, "planned", 2)
            assert service.reservations() == (made,)
            with pytest.raises(ConflictError, match="exists already"):
                await house.kind.do(service.reserve(rule, actor="ada"))
            await house.kind.do(service.delete_reservation("r", actor="ada"))
            assert service.reservations() == ()
            with pytest.raises(NotFoundError, match="there is no reservation 'r'"):
                await house.kind.do(service.delete_reservation("r", actor="ada"))

        play(story)

    def test_workers_are_reserved_for_a_job_that_is_to_run(self, play) -> None:
        async def story(house: House) -> None:
            service = house.service
            job = await house.job()
            other = await house.job()
            for job_id, error in (("nobody", NotFoundError), (other, ConflictError)):
                if job_id == other:
                    await house.kind.do(service.act([other], JobAction.CANCEL, actor="ada"))
                rule = Reservation(
                    name="r", worker_type="v100", workers=1, from_s=1e10, until_s=2e10, job=job_id
                )
                with pytest.raises(error, match=job_id):
                    await house.kind.do(service.reserve(rule, actor="ada"))
            rule = replace(rule, job=job)
            made = await house.kind.do(service.reserve(rule, actor="ada"))
            assert made.reservation == rule

        play(story)

    def test_throughputs_are_declared(self, play) -> None:
        async def story(house: House) -> None:
            service = house.service
            figures = [("bert", 1, "v100", 2.0), ("bert", 2, "v100", 3.0)]
            assert await house.kind.do(service.declare_throughputs(figures, actor="ada")) == 2
            assert await house.kind.do(service.declare_throughputs(figures, actor="ada")) == 0
            found = {
                (one.job_type, one.scale_factor, one.worker_type): (one.declared, one.source)
                for one in service.throughputs()
            }
            assert found["bert", 1, "v100"] == (2.0, "declared")
            assert found["bert", 2, "v100"] == (3.0, "declared")
            assert await house.kind.do(service.forget_throughputs("bert", actor="ada")) == 2
            assert service.throughputs() == ()
            with pytest.raises(NotFoundError, match="bert"):
                await house.kind.do(service.forget_throughputs("bert", actor="ada"))

        play(story)

    def test_costs_of_sharing_are_declared(self, play) -> None:
        async def story(house: House) -> None:
            service = house.service
            declare = partial(service.declare_throughputs, (), actor="ada")
            pairs = [
                (("bert", 1), ("bert", 1), "v100", (0.6, 0.6)),
                (("bert", 1), ("vgg", 1), "v100", (0.9, 0.7)),
            ]
            assert await house.kind.do(declare(pairs=pairs)) == 2
            assert await house.kind.do(declare(pairs=pairs)) == 0
            assert (
                await house.kind.do(declare(pairs=[(("bert", 1), ("vgg", 1), "v100", (0.8, 0.7))]))
                == 1
            )
            assert [
                (one.job_type, one.with_job_type, one.worker_type, one.part, one.with_part)
                for one in service.sharing()
            ] == [("bert", "bert", "v100", 0.6, 0.6), ("bert", "vgg", "v100", 0.8, 0.7)]

        play(story)

    def test_a_desired_set_is_given_at_once_where_it_is_newer(self, play) -> None:
        async def story(house: House) -> None:
            service = house.service
            found = await service.desired("alpha", after=(0, 0), wait_s=10.0)
            assert (found.term, found.revision) > (0, 0)
            newest = (found.term, found.revision)
            again = await service.desired("alpha", after=newest, wait_s=0.0)
            assert (again.term, again.revision) == newest

        play(story)
