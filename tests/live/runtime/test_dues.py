"""What jobs and projects are due and have received, and the rho that jobs head for."""

import re

import pytest

from scheduler.control.facts.requests import PolicyChoice
from scheduler.operator_settings import LearningSettings

ONE = {"n0": ("v100",)}
FAIR = PolicyChoice(name="max_min_fairness")


def test_projects_with_one_job_each_are_due_half_of_a_worker(live):
    async def story(stage):
        for name, project in (("a", "vision"), ("b", "speech")):
            await stage.job(name, project=project, total_steps=1000.0, throughputs={"v100": 1.0})
        await stage.wait(25)
        found = {one.limits.project: one.dues for one in stage.service.projects()}
        due = [found[name].due_workers for name in ("vision", "speech")]
        assert due == pytest.approx([0.5, 0.5])
        had = {name: dues.received_workers for name, dues in found.items()}
        assert sum(had.values()) == pytest.approx(1.0, abs=0.1)
        # If one job has had more than half of the worker, the other has had less.
        owed = {name: dues.owed_worker_s for name, dues in found.items()}
        assert owed["vision"] == pytest.approx(-owed["speech"], abs=2.5)
        assert (owed["vision"] < 0) == (had["vision"] > had["speech"])
        # Each takes twice as long as alone, as in an equal share.
        assert found["vision"].mean_rho == found["vision"].worst_rho == pytest.approx(1.0, abs=0.05)
        text = stage.service.metrics().decode()
        for state, workers in (("due", 0.5), ("received", had["speech"])):
            line = rf'leasehold_project_workers{{project="speech",state="{state}"}} (\S+)'
            (value,) = re.findall(line, text)
            assert float(value) == pytest.approx(workers, abs=0.01)

    live(story, nodes=ONE, policy=FAIR)


def test_a_project_counts_all_of_its_jobs_and_disappears_with_them(live):
    async def story(stage):
        for name in "abc":
            await stage.job(name, total_steps=12.0, throughputs={"v100": 1.0})
        await stage.wait(5)
        (project,) = stage.service.projects()
        assert project.dues.due_workers == pytest.approx(1.0)
        assert project.dues.mean_rho <= project.dues.worst_rho
        await stage.wait(90)
        assert stage.service.projects() == ()
        assert "leasehold_project_workers{" not in stage.service.metrics().decode()

    live(story, nodes=ONE, policy=FAIR)


def test_rho_is_the_expected_completion_time_over_that_in_an_equal_share(live):
    async def story(stage):
        for name in "ab":
            await stage.job(name, total_steps=100.0, throughputs={"v100": 1.0})
        await stage.wait(20)
        for job in stage.service.live(["a", "b"]).values():
            # Half of a worker gives half a step per second, as an equal share of it does.
            assert job.rho == pytest.approx((20 + (100 - job.steps_done) / 0.5) / 200, abs=0.03)

    live(story, nodes=ONE, policy=FAIR)


def test_share_and_rho_count_time_in_pairs(live):
    figures = (("a", 1, "v100", 4.0), ("b", 1, "v100", 4.0))
    pairs = ((("a", 1), ("b", 1), "v100", (3.0 / 4.0, 2.5 / 4.0)),)

    async def story(stage):
        stage.world.pairs = True
        await stage.do(stage.service.declare_throughputs(figures, pairs=pairs, actor="boss"))
        for name in "ba":
            await stage.job(name, job_type=name, throughputs={}, total_steps=4000.0)
        await stage.wait(12)
        # 8/9 of the time in the pair, and 1/9 for b alone, give each 8/3 steps per second. An equal
        # share of the worker gives 2.
        for job in stage.service.live(["a", "b"]).values():
            assert job.share == pytest.approx(4 / 3)
            assert job.rho == pytest.approx(3 / 4, abs=0.01)
        # Received time in pairs is not recorded, so that jobs are not behind in it.
        (found,) = stage.service.jobs_behind(projects=frozenset(), first=0, count=10).jobs
        assert (found.job_id, found.due) == ("b", {"v100": pytest.approx(1 / 9, abs=1e-5)})

    choice = PolicyChoice(name="max_min_fairness", space_sharing=True)
    live(story, nodes=ONE, policy=choice, learning=LearningSettings(learn=False))


def test_before_any_node_is_known_jobs_have_no_share(live):
    async def story(stage):
        await stage.job("a", project="one", total_steps=100.0, throughputs={"v100": 1.0})
        (job,) = stage.service.live(["a"]).values()
        assert (job.share, job.rho) == (None, None)

    live(story, nodes={}, policy=FAIR)


def test_the_jobs_furthest_behind_come_first_with_the_figures_of_the_allocation(live):
    async def story(stage):
        for n in range(7):
            project = ("vision", "speech")[n % 2]
            await stage.job(f"j{n}", project=project, total_steps=1000.0, throughputs=RATES)
        await stage.wait(25)
        view = stage.service.allocation()
        found = stage.service.jobs_behind(projects=frozenset(), first=0, count=100)
        assert found.count == len(found.jobs) == 7
        assert (found.policy, found.computed_s) == (view.policy, view.computed_s)
        for one in found.jobs:
            assert one.due == view.shares.get(one.job_id, {})
            assert one.received == view.received.get(one.job_id, {})
        behind = [one.behind for one in found.jobs]
        assert behind == sorted(behind, reverse=True)
        assert behind[0] > behind[-1]
        pages = [
            stage.service.jobs_behind(projects=frozenset(), first=n, count=3) for n in (0, 3, 6)
        ]
        assert [one for page in pages for one in page.jobs] == list(found.jobs)
        own = stage.service.jobs_behind(projects=frozenset({"speech"}), first=0, count=100)
        assert {one.job_id for one in own.jobs} == {"j1", "j3", "j5"}
        none = stage.service.jobs_behind(projects=frozenset({"other"}), first=0, count=100)
        assert (none.count, none.jobs) == (0, ())

    live(story, nodes={"n0": ("v100", "v100", "k80")}, policy=FAIR)


RATES = {"v100": 2.0, "k80": 1.0}
