"""Jobs come in: once, or not at all, with the reason."""

import asyncio
from dataclasses import replace
from unittest import mock

import pytest

from scheduler.control.facts.facts import JobsSubmitted
from scheduler.control.facts.requests import JobAction, ProjectLimits, Submission
from scheduler.domain.facts.reasons import WaitReason
from scheduler.domain.jobs.spec import JobSpec
from scheduler.errors import AdmissionError, StoreUnavailableError
from scheduler.runtime.intake import digest_of, submission_fact


def test_a_repeated_submission_is_the_same_job_in_every_turn(live):
    async def story(stage):
        items = [
            Submission(spec=stage.spec(), owner="me", client_id="a"),
            Submission(spec=stage.spec(), owner="me", client_id="a"),
            Submission(spec=stage.spec("other"), owner="me", client_id="a"),
            Submission(spec=stage.spec(), owner="you", client_id="a"),
        ]
        first, again, clash, yours = await stage.submit(*items)
        assert first.created
        assert not again.created
        assert again.job_id == first.job_id
        assert (clash.created, clash.code, clash.job_id) == (False, "conflict", first.job_id)
        assert yours.created
        assert yours.job_id != first.job_id
        (later,) = await stage.submit(items[0])
        assert (later.created, later.job_id) == (False, first.job_id)
        await stage.restart()
        (after,) = await stage.submit(items[0])
        assert (after.created, after.job_id) == (False, first.job_id)

    live(story)


def test_a_dry_run_names_worker_types_that_there_are_none_of_and_what_is_assumed(live):
    async def story(stage):
        fit = await stage.service.fit(stage.spec(throughputs={"v100": 2.0, "zzz": 1.0}))
        none = "it declares steps/s on zzz, of which the cluster has no workers"
        assert fit.message == f"it could start at once; {none}"
        assert [one.source for one in fit.configurations] == ["declared"]
        fit = await stage.service.fit(
            stage.spec(throughputs={}, restarts={"v100:8": 60.0, "zzz:8": 60.0})
        )
        none = "it declares restarts on zzz:8, of which the cluster has no workers"
        assert fit.message == f"it could start at once; {none}"
        fit = await stage.service.fit(stage.spec(total_steps=None, throughputs={}))
        assert [(one.steps_per_s, one.source) for one in fit.configurations] == [(1.0, "assumed")]

    live(story)


def test_many_jobs_are_decided_on_in_pieces(live):
    async def story(stage):
        pieces = []
        tell = stage.service._tell

        async def note(fact, **more):
            if isinstance(fact, JobsSubmitted):
                pieces.append(len(fact.submissions))
            return await tell(fact, **more)

        items = [Submission(spec=stage.spec(), owner="me") for _ in range(600)]
        items[1] = Submission(spec=stage.spec(scale_factors=(64,)), owner="me")
        with mock.patch.object(stage.service, "_tell", note):
            made = await stage.submit(*items)
        assert pieces == [250, 250, 100]
        assert [place for place, one in enumerate(made) if not one.created] == [1]
        assert "at least 64 workers" in made[1].refusal
        assert len({one.job_id for one in made if one.created}) == 599

    live(story)


@pytest.mark.parametrize("named", [False, True])
def test_what_was_taken_before_a_failure_is_told_or_found_again(live, named):
    async def story(stage):
        facts = []
        tell = stage.service._tell

        async def fail_later(fact, **more):
            if isinstance(fact, JobsSubmitted):
                facts.append(fact)
                if len(facts) > 1:
                    raise StoreUnavailableError("the database is away")
            return await tell(fact, **more)

        names = [f"job-{n}" if named else "" for n in range(600)]
        items = [Submission(spec=stage.spec(), owner="me", client_id=name) for name in names]
        with mock.patch.object(stage.service, "_tell", fail_later):
            if named:
                with pytest.raises(StoreUnavailableError):
                    await stage.submit(*items)
            else:
                made = await stage.submit(*items)
                assert [one.code for one in made] == [""] * 250 + ["unavailable"] * 350
                assert made[-1].refusal == "the database is away; submit this job again"
        if named:
            again = await stage.submit(*items)
            assert [one.created for one in again] == [False] * 250 + [True] * 350

    live(story)


def test_two_requests_in_flight_with_one_client_id_make_one_job(live):
    async def story(stage):
        # Both look into the store before either is committed: one in a turn of its own, or both.
        item = Submission(spec=stage.spec(), owner="me", client_id="a")
        tasks = [asyncio.ensure_future(stage.service.submit([item], actor="me")) for _ in range(3)]
        await stage.settle()
        results = [result for task in tasks for result in await task]
        assert sum(result.created for result in results) == 1
        assert len({result.job_id for result in results}) == 1

        item = Submission(spec=stage.spec(), owner="x", client_id="b")
        fact = await asyncio.to_thread(submission_fact, stage.store, [item], actor="x")
        (first,) = await stage.submit(item)  # committed after the look-up of the other request
        (late,) = await stage.do(stage.driver.tell(fact))
        assert (late.created, late.job_id) == (False, first.job_id)

    live(story)


def test_an_id_that_is_taken_is_refused(live):
    async def story(stage):
        await stage.job("a")
        (again,) = await stage.submit(Submission(spec=stage.spec(), owner="me", job_id="a"))
        assert again.code == "conflict"
        await stage.wait(20)
        assert stage.status("a") == "completed"
        (again,) = await stage.submit(Submission(spec=stage.spec(), owner="me", job_id="a"))
        assert again.code == "conflict"

    live(story)


@pytest.mark.parametrize(
    ("values", "reason", "words"),
    [
        ({"scale_factors": (3,)}, WaitReason.TOO_LARGE, "at least 3 workers"),
        ({"worker_types": ("h100",)}, WaitReason.NO_WORKERS, "only run on h100"),
        (
            {"throughputs": {"v100": 0.0}, "job_type": "never"},
            WaitReason.NO_THROUGHPUT,
            "known to run on none",
        ),
    ],
)
def test_what_can_never_run_is_refused_with_the_reason(live, values, reason, words):
    async def story(stage):
        fit = await stage.service.fit(stage.spec(**values))
        assert not fit.fits
        assert fit.reason is reason
        (result,) = await stage.submit(Submission(spec=stage.spec(**values), owner="me"))
        assert result.code == "refused"
        assert words in result.refusal

    live(story)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"grace_s": 90_000.0}, "notice_s 1 + grace_s 90000 are 90001 s, and no lease is kept"),
        ({"min_run_time_s": 3 * 86_400.0}, "min_run_time_s is 259200"),
        ({"depends_on": ("nojob",)}, "depends_on names job 'nojob', which does not exist"),
        ({"depends_on": ("failed",)}, "depends_on names job 'failed', which has ended as cancel"),
        ({"progress_file": "p.json", "image": "train:1"}, "progress_file is 'p.json'"),
    ],
)
def test_a_dry_run_refuses_what_a_submission_refuses_in_the_same_words(live, values, words):
    async def story(stage):
        await stage.job("failed")
        await stage.act(JobAction.CANCEL, "failed")
        await stage.wait(2)
        spec = stage.spec("other", **values)
        (result,) = await stage.submit(Submission(spec=spec, owner="me"))
        assert words in result.refusal
        with pytest.raises(AdmissionError) as told:
            await stage.service.fit(spec, owner="me")
        assert str(told.value) == result.refusal

    live(story)


def test_a_dry_run_names_no_ways_that_the_cluster_is_too_small_for(live):
    async def story(stage):
        spec = stage.spec(scale_factors=(1, 2, 8))
        fit = await stage.service.fit(spec)
        assert fit.fits
        assert {way.count for way in fit.configurations} == {1, 2}
        wide = await stage.service.fit(stage.spec(scale_factors=(4, 8)))
        assert not wide.fits
        assert {way.count for way in wide.configurations} == {4, 8}

    live(story, nodes={"n0": ("v100", "v100")})


def test_what_cannot_run_yet_waits_where_it_is_not_refused(live):
    async def story(stage):
        await stage.job("a", worker_types=("k80",))
        await stage.wait(3)
        assert (await stage.explanation("a")).reason is WaitReason.NO_WORKERS
        stage.add_node("n1", "k80")
        await stage.wait(8)
        assert stage.status("a") == "completed"

    live(story, refuse_unfit=False)


def test_jobs_may_come_before_the_first_node(live):
    async def story(stage):
        await stage.job("a")
        explanation = await stage.explanation("a")
        assert explanation.reason is WaitReason.NO_WORKERS
        assert "no workers yet" in explanation.message
        stage.add_node("n0", "v100")
        await stage.wait(8)
        assert stage.status("a") == "completed"

    live(story, nodes={})


def test_fit_tells_where_a_job_could_start_and_where_it_would_wait(live):
    async def story(stage):
        spec = stage.spec(throughputs={"v100": 3.0, "k80": 1.0})
        fit = await stage.service.fit(spec)
        assert (fit.fits, fit.reason) == (True, None)
        fastest, slower = fit.configurations
        assert (fastest.worker_type, fastest.count, fastest.source) == ("v100", 1, "declared")
        await stage.job("a", throughputs={"v100": 3.0, "k80": 1.0}, job_type="t")
        fit = await stage.service.fit(stage.spec(job_type="t", throughputs={}))
        fastest, slower = fit.configurations
        assert fastest.steps_per_s == pytest.approx(3.0)
        assert (fastest.source, slower.worker_type) == ("declared", "k80")
        assert (fastest.workers_in_service, fastest.workers_idle) == (1, 0)
        assert fit.reason is None
        await stage.job("b", job_type="t")
        assert (await stage.service.fit(spec)).reason is WaitReason.TURN
        after = await stage.service.fit(replace(spec, depends_on=("a", "b")))
        assert (after.fits, after.reason) == (True, WaitReason.DEPENDENCY)
        assert after.message == "it fits, and waits for a, b"
        await stage.job("c", job_type="t")
        await stage.job("d", job_type="t")
        after = await stage.service.fit(replace(spec, depends_on=("a", "b", "c", "d")))
        assert after.message == "it fits, and waits for a, b, c and 1 more"
        only = await stage.service.fit(replace(spec, worker_types=("p100",)))
        assert (only.fits, only.reason) == (False, WaitReason.NO_WORKERS)
        stage.node("n0").problems[0] = stage.node("n1").problems[0] = "broken"
        await stage.wait(1)
        fit = await stage.service.fit(spec)
        assert (fit.fits, fit.reason) == (True, WaitReason.WORKERS_OUT)

    live(story, nodes={"n0": ("v100",), "n1": ("k80",)})


def test_a_project_over_its_quota_of_jobs_is_told_so_and_over_workers_waits(live):
    async def story(stage):
        limits = ProjectLimits(project="p", max_workers=2, max_jobs=3)
        await stage.do(stage.service.set_project(limits, actor="boss"))
        (large,) = await stage.submit(
            Submission(spec=stage.spec(project="p", scale_factors=(3,)), owner="me")
        )
        assert (large.code, large.created) == ("quota", False)
        assert "may have 2 at once" in large.refusal
        await stage.job("a", project="p", scale_factors=(2,))
        await stage.job("b", project="p", total_steps=4.0)
        await stage.job("c", project="p", total_steps=4.0)
        (fourth,) = await stage.submit(Submission(spec=stage.spec(project="p"), owner="me"))
        assert (fourth.code, fourth.created) == ("quota", False)
        assert "3 jobs" in fourth.refusal
        assert stage.status("a") == "running"
        explanation = await stage.explanation("b")
        assert explanation.reason is WaitReason.QUOTA
        assert "project 'p' uses 2 of its 2 workers" in explanation.message
        (view,) = stage.service.projects()
        assert (view.active_jobs, view.admitted_workers, view.running_workers) == (3, 4, 2)
        await stage.restart()
        assert (await stage.explanation("b")).reason is WaitReason.QUOTA
        await stage.wait(12)
        (view,) = stage.service.projects()
        assert view.running_workers <= 2

        wider = ProjectLimits(project="p", max_workers=4, max_jobs=10, weight=2.0)
        await stage.job("d", project="p")
        await stage.do(stage.service.set_project(wider, actor="boss"))
        await stage.wait(1)
        assert stage.status("d") == "running"
        entity = next(e for e in stage.state.engine.entities if e.name == "p")
        assert entity.weight == 2.0

    live(story, nodes={"n0": ("v100",) * 4})


def test_jobs_that_have_ended_come_back_as_far_as_the_quota_of_jobs_allows(live):
    async def story(stage):
        limits = ProjectLimits(project="p", max_jobs=2)
        names = ("a", "b", "c")
        for name in names:
            await stage.job(name, project="p")
        await stage.act(JobAction.CANCEL, *names)
        await stage.wait(1)
        await stage.do(stage.service.set_project(limits, actor="boss"))
        for dry_run in (True, False):
            results = await stage.act(JobAction.REQUEUE, *names, dry_run=dry_run)
            assert [one.changed for one in results] == [True, True, False], dry_run
            assert results[2].code == "quota"
            assert "has 2 jobs that have not ended, and may have 2" in results[2].error

    live(story)


def test_jobs_stay_within_what_their_project_may_use(live):
    async def story(stage):
        service = stage.service
        await stage.job("early", project="p", entity="ads", weight=9.0, total_steps=1e4)
        await stage.job("done", project="p", entity="ads", total_steps=1.0)
        await stage.wait(12)
        assert stage.row("done").status.value == "completed"
        limits = ProjectLimits(
            project="p", entities=("nlp",), job_types=("bert*",), max_job_weight=2.0
        )
        await stage.do(service.set_project(limits, actor="boss"))
        await stage.restart()
        service = stage.service
        for word, wrong in (
            ("entity is 'ads'", {"entity": "ads"}),
            ("job_type is 'resnet'", {"job_type": "resnet"}),
            ("weight is 3", {"weight": 3.0}),
        ):
            spec = stage.spec(project="p", **{"entity": "nlp", "job_type": "bert-large"} | wrong)
            (refused,) = await stage.submit(Submission(spec=spec, owner="me"))
            assert (refused.code, refused.created) == ("quota", False)
            assert word in refused.refusal
            fit = await service.fit(spec)
            assert (fit.fits, fit.reason) == (False, WaitReason.QUOTA)
            assert word in fit.message
            elsewhere = await service.fit(replace(spec, project="q"))
            assert elsewhere.reason is not WaitReason.QUOTA
        await stage.job("fine", project="p", entity="nlp", job_type="bert-large", weight=2.0)

        async def reweigh(job_id, weight):
            (acted,) = await stage.do(service.change((job_id,), actor="me", weight=weight))
            return acted.code, acted.changed

        assert await reweigh("fine", 3.0) == ("quota", False)
        assert await reweigh("fine", 1.5) == ("", True)
        assert await reweigh("early", 9.5) == ("quota", False)
        assert await reweigh("early", 5.0) == ("", True)  # lighter, if too heavy for a new one
        (again,) = await stage.do(service.act(("done",), JobAction.REQUEUE, actor="me"))
        assert (again.code, again.changed) == ("quota", False)
        assert "entity is 'ads'" in again.error

    live(story, nodes={"n0": ("v100",) * 4})


def test_a_job_waits_for_the_jobs_that_it_depends_on(live):
    async def story(stage):
        await stage.job("a", total_steps=3.0)
        await stage.job("b", total_steps=6.0)
        await stage.job("c", depends_on=("a", "b"))
        explanation = await stage.explanation("c")
        assert explanation.reason is WaitReason.DEPENDENCY
        assert "a, b" in explanation.message
        await stage.wait(4)
        assert stage.status("a") == "completed"
        assert "waits for b" in (await stage.explanation("c")).message
        await stage.restart()
        assert "waits for b" in (await stage.explanation("c")).message
        await stage.wait(12)
        assert stage.status("c") == "completed"
        (refused,) = await stage.submit(
            Submission(spec=stage.spec(depends_on=("nobody",)), owner="me")
        )
        assert "does not exist" in refused.refusal
        await stage.job("d", depends_on=("a",))  # which has completed
        await stage.wait(8)
        assert stage.status("d") == "completed"
        await stage.job("e", held=True)
        await stage.act(JobAction.CANCEL, "e")
        (refused,) = await stage.submit(Submission(spec=stage.spec(depends_on=("e",)), owner="me"))
        assert "has ended as cancelled" in refused.refusal

    live(story, nodes={"n0": ("v100", "v100")})


def test_dependents_of_a_job_that_did_not_complete_are_cancelled_through_and_through(live):
    async def story(stage):
        await stage.job("a", total_steps=50.0)
        for name, other in (("b", "a"), ("c", "b"), ("d", "a")):
            await stage.job(name, depends_on=(other,))
        await stage.act(JobAction.CANCEL, "a")
        await stage.wait(2)
        assert [stage.status(name) for name in "abcd"] == ["cancelled"] * 4
        assert "a" in stage.row("b").reason
        assert "job_cancelled" in stage.kinds("c")
        assert not stage.state.jobs.by_id

    live(story)


def test_a_job_that_asks_for_no_notice_gets_the_operators(live):
    async def story(stage):
        stage.settings = replace(stage.settings, notice_s=1.5, grace_s=0.5)
        await stage.restart()
        await stage.job("a", notice_s=None, grace_s=None)
        await stage.wait(1)
        (node,) = {live.nodes[0] for live in stage.state.leases.by_id.values()}
        desired = await stage.service.desired(node, after=(0, -1), wait_s=0.0)
        assert [(lease.notice_s, lease.grace_s) for lease in desired.leases] == [(1.5, 0.5)]

    live(story)


def test_a_deadline_that_has_passed_is_refused_unless_the_job_is_known_already(live):
    async def story(stage):
        soon_s = stage.clock.now_s() + 5.0
        item = Submission(spec=stage.spec(deadline_s=soon_s), owner="me", client_id="a")
        (first,) = await stage.submit(item)
        await stage.wait(10)
        (again,) = await stage.submit(item)
        assert (again.job_id, again.refusal) == (first.job_id, "")
        (late,) = await stage.submit(replace(item, client_id="b"))
        assert late.code == "invalid"
        assert "deadline_s is 1970-01-01T00:00:" in late.refusal
        assert "has passed" in late.refusal

    live(story)


@pytest.mark.parametrize(
    "pods", [{"image": "team/train:1"}, {"kubernetes": {"requests": {"cpu": "2"}}}]
)
def test_a_file_for_progress_is_refused_where_nobody_could_read_it(live, pods):
    async def story(stage):
        given = stage.spec("a", progress_file="steps", **pods)
        (result,) = await stage.submit(Submission(spec=given, owner="me"))
        assert (result.code, result.created) == ("invalid", False)
        assert "progress_file is 'steps'" in result.refusal
        assert "progress_regex" in result.refusal
        await stage.job("b", progress_file="steps")
        await stage.job("c", progress_regex=r"step (\d+)", **pods)

    live(story)


def test_placeholders_are_filled_once_the_id_is_known(live):
    async def story(stage):
        spec = stage.spec(
            "train",
            command=("run", "--out={job_id}"),
            checkpoint_dir="/ckpt/{job_id}",
        )
        (result,) = await stage.submit(Submission(spec=spec, owner="me", client_id="k"))
        stored = stage.row(result.job_id).spec
        assert stored["command"] == ["run", f"--out={result.job_id}"]
        assert stored["checkpoint_dir"] == f"/ckpt/{result.job_id}"
        (again,) = await stage.submit(Submission(spec=spec, owner="me", client_id="k"))
        assert (again.job_id, again.created) == (result.job_id, False)

    live(story)


def test_a_submission_without_a_length_is_the_same_as_the_release_before_took_it():
    spec = JobSpec(name="a", command=("x",))
    assert digest_of(spec) == digest_of(replace(spec, duration_s=3600.0))
    assert digest_of(spec) != digest_of(replace(spec, duration_s=3601.0))
