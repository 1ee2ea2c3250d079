"""Why a job waits: every reason can be reached, and the first one is the one to act on."""

import asyncio
import itertools

import pytest

from leasehold_testing.inline_solver import InlineSolver
from policies.answering import PolicyAnswerer
from scheduler.control.facts.requests import (
    JobAction,
    NodeAction,
    PolicyChoice,
    ProjectLimits,
)
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.job import JobStatus
from scheduler.errors import SolveError
from scheduler.views.explain import WaitingJobs, explain, explain_ended
from simulator.world.nodes import Mishap

TWO = {"n0": ("v100",), "n1": ("v100",)}


async def reasons(stage, name):
    explanation = await stage.explanation(name)
    assert explanation.message
    return [explanation.reason, *explanation.also]


def test_a_running_job_says_where_it_runs(live):
    async def story(stage):
        await stage.job(total_steps=30.0, scale_factors=(2,))
        explanation = await stage.explanation()
        assert explanation.reason is None
        assert explanation.message == "it runs on 2 x v100 on n0, n1, attempt 1"
        view = stage.service.live(["job", "nobody"])
        assert list(view) == ["job"]
        assert (view["job"].worker_type, view["job"].workers) == ("v100", 2)
        assert view["job"].nodes == ("n0", "n1")
        assert dict(view["job"].allocation) == {"v100": 1.0}

    live(story, nodes=TWO)


def test_jobs_that_wait_for_their_turn_are_told_their_place(live):
    async def story(stage):
        for name in "abcd":
            await stage.job(name, total_steps=100.0)
        await stage.wait(1)
        waiting = [name for name in "abcd" if stage.status(name) == "waiting"]
        assert len(waiting) == 3
        places = []
        for name in waiting:
            explanation = await stage.explanation(name)
            assert explanation.reason is WaitReason.TURN
            assert explanation.waiting == 3
            places.append(explanation.position)
        assert sorted(places) == [1, 2, 3]
        assert dict(stage.service.cluster().waiting) == {"turn": 3}

    live(story, policy=PolicyChoice(name="max_min_fairness"))


def test_jobs_that_the_policy_leaves_out_say_so(live):
    async def story(stage):
        await stage.job("a", total_steps=100.0)
        await stage.job("b", total_steps=100.0)
        await stage.wait(1)
        assert await reasons(stage, "b") == [WaitReason.NO_SHARE]

    live(story)


def test_a_held_job_says_who_holds_it_and_why(live):
    async def story(stage):
        await stage.job("a", held=True)
        assert (await stage.explanation("a")).message == "a user holds it"
        await stage.job("b", total_steps=100.0)
        for reason, said in (("wrong data", ": wrong data"), ("", " and gave no reason")):
            await stage.act(JobAction.HOLD, "b", reason=reason)
            explanation = await stage.explanation("b")
            assert explanation.reason is WaitReason.HELD
            assert explanation.message.startswith(f"'boss' holds it{said}")
            await stage.act(JobAction.RELEASE, "b")

    live(story)


def test_a_failed_job_says_when_it_is_tried_again(live):
    async def story(stage):
        stage.world.mishaps["job"] = [Mishap(steps=2.0)]
        await stage.job(total_steps=30.0)
        await stage.wait(3)
        explanation = await stage.explanation()
        assert explanation.reason is WaitReason.BACKOFF
        assert explanation.message == (
            "it failed once and is tried again in 59 s; its last attempt: a mishap"
        )
        view, now_s = stage.driver.view, stage.clock.now_s()
        told = explain(view, stage.row(), WaitingJobs(view), now_s=now_s + 20.0)  # no turn since
        assert "is tried again in 39 s" in told.message

    live(story, engine={"retry_backoff_s": 60.0})


class Hanging(InlineSolver):
    """Fails, or never answers."""

    def __init__(self, error=None):
        super().__init__(PolicyAnswerer())
        self.error = error

    async def solve(self, policy, problem):
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (
            None,
            "it has just come: policy 'fifo' is computing the next allocation, which counts it in",
        ),
        (SolveError("no"), "policy 'fifo' has not answered since it came; it failed last: no"),
    ],
)
def test_a_job_says_that_the_policy_has_not_answered(failure, said, live):
    async def story(stage):
        await stage.job("a", total_steps=50.0)
        stage.driver._solver = Hanging(failure)
        await stage.job("b")
        explanation = await stage.explanation("b")
        assert explanation.reason is WaitReason.NO_ALLOCATION
        assert explanation.message == said

    live(story)


def test_the_reason_of_the_last_decision_holds_until_the_next_one(live):
    async def story(stage):
        await stage.job("a", total_steps=100.0)
        await stage.job("b", total_steps=100.0)
        stage.driver._solver = Hanging()
        running, waiting = sorted("ab", key=stage.status)
        await stage.act(JobAction.CANCEL, running)
        # A new question is open, so decisions wait for a moment.
        assert await reasons(stage, waiting) == [WaitReason.TURN]
        await stage.wait(2)
        assert stage.status(waiting) == "running"

    live(story, policy=PolicyChoice(name="max_min_fairness"))


def test_a_job_that_waits_beside_idle_workers_since_the_policy_means_it_says_so(live):
    async def story(stage):
        await stage.job("a", total_steps=100.0)
        await stage.job("gang", total_steps=100.0, scale_factors=(2,))
        await stage.job("b", total_steps=100.0)
        await stage.wait(12)
        assert stage.status("a") == "running"
        assert await reasons(stage, "gang") == [WaitReason.NO_SHARE]
        assert await reasons(stage, "b") == [WaitReason.IDLING]
        explanation = await stage.explanation("b")
        assert explanation.message == "policy 'fifo' keeps the idle workers idle on purpose"
        assert "another policy" in explanation.unblocks

    policy = PolicyChoice(name="fifo", parameters={"backfill": "false"})
    live(story, nodes={"n0": ("v100", "v100")}, policy=policy)


def test_reasons_outside_the_engine_come_first_and_all_are_named(live):
    async def story(stage):
        limits = ProjectLimits(project="p", max_workers=1)
        await stage.do(stage.service.set_project(limits, actor="boss"))
        await stage.job("a", project="p", total_steps=50.0)
        await stage.job("b", project="p", depends_on=("a",), held=True)
        await stage.job("c", project="p")
        assert await reasons(stage, "b") == [WaitReason.HELD, WaitReason.DEPENDENCY]
        assert (await reasons(stage, "c"))[0] is WaitReason.QUOTA
        assert (await stage.explanation("b")).unblocks == "release it"
        await stage.do(stage.service.node_action("n0", NodeAction.DRAIN, reason="", actor="boss"))
        await stage.wait(1)
        assert (await reasons(stage, "b"))[-1] is WaitReason.WORKERS_OUT
        assert (await reasons(stage, "a"))[0] is WaitReason.WORKERS_OUT

    live(story)


@pytest.mark.parametrize("action", [NodeAction.CORDON, NodeAction.DRAIN])
@pytest.mark.parametrize("busy", [False, True])
def test_a_job_that_finds_all_nodes_cordoned_is_told_so_and_how_to_undo_it(live, action, busy):
    async def story(stage):
        if busy:
            await stage.job("runs", total_steps=1000.0, scale_factors=(2,))
        for name in TWO:
            await stage.do(stage.service.node_action(name, action, reason="", actor="boss"))
        await stage.wait(2)
        await stage.job()
        explanation = await stage.explanation()
        assert explanation.reason is WaitReason.WORKERS_OUT
        ordered = "cordoned" if action is NodeAction.CORDON else "drained"
        assert f"too few of them can be granted now: {ordered}: 2 (n0, n1)" in explanation.message
        assert explanation.unblocks == "`leasehold uncordon n0 n1`"
        assert (await stage.service.fit(stage.spec())).reason is WaitReason.WORKERS_OUT

    live(story, nodes=TWO)


def test_nodes_that_are_lost_and_workers_that_are_broken_are_told_apart(live):
    async def story(stage):
        stage.links["n0"].cut = True
        stage.node("n1").problems[0] = said = "processes of lease 17 cannot be killed: 4711"
        await stage.do(stage.service.node_action("n2", NodeAction.CORDON, reason="", actor="boss"))
        await stage.wait(20)
        await stage.job(throughputs={"v100": 1.0, "k80": 0.0})
        explanation = await stage.explanation()
        assert explanation.reason is WaitReason.WORKERS_OUT
        for part in ("lost: 1 (n0)", "broken: 1 (n1)", "cordoned: 1 (n2)"):
            assert part in explanation.message
        # The lease may be another project's.
        assert "; n1: processes of a lease cannot be killed" in explanation.message
        assert "17" not in explanation.message
        assert "n3" not in explanation.message  # no node for it in any case
        reasons = {node.name: node.reason for node in stage.service.nodes()}
        assert reasons["n1"] == said  # all of its workers have that problem
        assert explanation.unblocks == (
            "`leasehold uncordon n2`, or wait until lost, broken workers return"
        )

    nodes = dict.fromkeys(("n0", "n1", "n2"), ("v100",)) | {"n3": ("k80",)}
    live(story, nodes=nodes)


def test_jobs_that_have_ended_and_standbys_say_what_the_store_knows(live):
    async def story(stage):
        await stage.job(total_steps=3.0)
        row = stage.row()
        assert "it is running; ask the leader" in explain_ended(row).message
        await stage.act(JobAction.CANCEL, "job")
        explanation = await stage.explanation()
        assert (explanation.status, explanation.unblocks) == (JobStatus.CANCELLED, "requeue it")
        service = stage.service
        service.cease()
        assert "ended as cancelled" in (await service.explain(row := stage.row())).message
        assert service.live([row.job_id]) == {}
        assert not service.health().leading
        assert b"leasehold" in service.metrics()
        assert await service.wait_for_history(0, wait_s=0.0) > 0
        await stage.crash()
        await stage.start()

    live(story)


def test_a_forecaster_adds_times_for_active_jobs_only(live):
    async def story(stage):
        asked = []

        class Forecaster:
            async def add_times(self, copied, explanation, *, changed_s):
                asked.append(explanation.job_id)
                return explanation

        stage.service._forecaster = Forecaster()
        await stage.job("a", total_steps=3.0)
        await stage.explanation("a")
        await stage.service.explain(stage.row("a"), forecast=False)
        await stage.wait(5)
        await stage.explanation("a")
        assert asked == ["a"]

    live(story)


def test_what_people_watch_is_told_as_soon_as_it_is_committed(live):
    async def story(stage):
        head = stage.driver.event_id
        waiting = asyncio.ensure_future(stage.service.wait_for_history(head, wait_s=60.0))
        await asyncio.sleep(0)
        await stage.do(stage.service.note("token_made", "token", "t", actor="boss", data={"a": 1}))
        assert await waiting == head + 1
        (line,) = stage.history("token_made")
        assert (line.actor, dict(line.data)) == ("boss", {"a": 1})
        assert await stage.service.wait_for_history(head, wait_s=0.0) == head + 1
        assert await stage.service.wait_for_history(head + 1, wait_s=0.0) == head + 1

    live(story)


def test_views_agree_with_each_other(live):
    async def story(stage):
        rates = {"v100": 2.0, "k80": 1.0}
        for name in "abc":
            await stage.job(name, total_steps=500.0, throughputs=rates, job_type="t")
        await stage.wait(35)
        view = stage.service.allocation()
        assert view.computed_s is not None
        totals = {}
        for shares in view.shares.values():
            for kind, share in shares.items():
                totals[kind] = totals.get(kind, 0.0) + share
        assert totals == {"v100": 1.0, "k80": 1.0} or all(t <= 1.001 for t in totals.values())
        received = [sum(shares.values()) for shares in view.received.values()]
        assert sum(received) > 1.0
        cluster = stage.service.cluster()
        assert cluster.utilisation == 1.0
        assert dict(cluster.busy) == {"v100": 1, "k80": 1}
        assert dict(cluster.jobs) == {"running": 2, "waiting": 1}
        shares = [live.share for live in stage.service.live(list("abc")).values()]
        assert all(share > 0.9 for share in shares)  # no entity is below a third of the cluster
        text = stage.service.metrics().decode()
        assert "leasehold" in text

    live(
        story, nodes={"n0": ("v100",), "n1": ("k80",)}, policy=PolicyChoice(name="max_min_fairness")
    )


@pytest.mark.parametrize("with_dependency", [False, True])
def test_a_requeued_job_waits_for_its_dependency_only_where_that_is_active(live, with_dependency):
    async def story(stage):
        await stage.job("first", total_steps=1000.0)
        await stage.job("then", total_steps=3.0, depends_on=("first",))
        await stage.act(JobAction.CANCEL, "first")
        await stage.wait(1)
        explanation = await stage.explanation("then")
        assert (
            "has ended as cancelled: a job that it depends on did not complete"
            in explanation.message
        )
        assert "alone it runs without its dependency" in explanation.unblocks
        if with_dependency:
            await stage.act(JobAction.REQUEUE, "first")
        await stage.act(JobAction.REQUEUE, "then")
        await stage.wait(10)
        assert stage.status("then") == ("waiting" if with_dependency else "completed")

    live(story)


def test_the_round_that_is_shown_is_the_one_that_runs(live):
    async def story(stage):
        await stage.job("a", total_steps=1000.0)
        numbers = []
        for _ in range(60):
            await stage.wait(0.5)
            seen = stage.service.cluster()
            left_s = seen.round_ends_s - stage.clock.now_s()
            assert left_s <= seen.round_length_s
            numbers.append((seen.round_number, seen.round_ends_s))
        # Every round has one end, and the next one ends a round later.
        ends = dict(sorted(set(numbers)))
        assert len(ends) == len(set(numbers)) >= 3
        for one_s, next_s in itertools.pairwise(ends.values()):
            assert next_s - one_s == pytest.approx(seen.round_length_s)

    live(story)


def test_a_deadline_that_has_passed_is_told_of_jobs_that_run_and_that_wait(live):
    async def story(stage):
        soon_s = stage.clock.now_s() + 5.0
        for name in ("runs", "waits"):
            await stage.job(name, total_steps=1e3, deadline_s=soon_s, job_type="t")
        assert [stage.status(name) for name in ("runs", "waits")] == ["running", "waiting"]
        for seconds, told in ((1, False), (8, True)):
            await stage.wait(seconds)
            for name in ("runs", "waits"):
                message = (await stage.explanation(name)).message
                assert ("; its deadline has passed" in message) == told

    live(story, nodes={"n0": ("v100",)})
