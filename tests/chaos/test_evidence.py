"""The soak test notices faults of each kind that it checks."""

import random

import pytest


@pytest.fixture
def evidence(module):
    return module("evidence")


class Maker:
    """Makes the runs of one job from few words."""

    def __init__(self, evidence, job="j"):
        self._evidence, self._job = evidence, job
        self.runs = []

    def run(self, attempt, at_s, steps, *, began=0, every_s=1.0, node="n0", rank=0, end="exit"):
        """One process that does ``steps`` after ``began``, one every second."""
        same = {"node": node, "worker": 0, "rank": rank, "attempt": attempt}
        same |= {"lease": 10 * attempt, "token": 10 * attempt, "pid": 1000 + len(self.runs)}
        lines = [("start", 0), *([("load", began)] if began else [])]
        lines += [("step", step) for step in steps]
        lines += [(end, steps[-1] if steps else began)] if end else []
        line = self._evidence.Line
        made = tuple(
            line(at_s=at_s + every_s * number, kind=kind, step=step, **same)
            for number, (kind, step) in enumerate(lines)
        )
        self.runs.append(self._evidence.Run(job=self._job, lines=made))
        return self

    def story(self, ledger, total=4):
        runs = tuple(sorted(self.runs, key=lambda run: run.begin_s))
        return self._evidence.Story(job=self._job, total=total, runs=runs, ledger=tuple(ledger))


@pytest.fixture
def maker(evidence):
    return Maker(evidence)


def test_a_job_that_was_interrupted_and_went_on_is_in_order(evidence, maker):
    # Step 2 was done twice: the first time it was lost with its process.
    story = maker.run(1, 0.0, [1, 2], end=None).run(2, 10.0, [2, 3, 4], began=1)
    story = story.story([(1, 10), (2, 20), (3, 20), (4, 20)])
    assert list(evidence.check_job(story)) == []
    assert list(evidence.check_workers([story])) == []
    assert list(evidence.check_tokens([story])) == []


def test_a_step_that_counts_twice_or_not_at_all_is_found(evidence, maker):
    maker.run(1, 0.0, [1, 2, 3, 4])
    for steps in ([1, 2, 2, 3, 4], [1, 2, 4], [1, 2, 3]):
        (problem,) = evidence.check_job(maker.story([(step, 10) for step in steps]))
        assert "not each of 4 steps counts once" in problem


def test_a_step_done_again_after_it_counted_is_found(evidence, maker):
    maker.run(1, 0.0, [1, 2]).run(2, 10.0, [3], began=2, end=None).run(3, 20.0, [2, 3, 4], began=1)
    problems = list(evidence.check_job(maker.story([(n, 10) for n in range(1, 4)] + [(4, 30)])))
    assert any("begins at 1 although 2 steps were counted" in problem for problem in problems)


def test_two_attempts_at_once_are_found(evidence, maker):
    maker.run(1, 0.0, [1, 2], every_s=5.0).run(2, 9.0, [2, 3, 4], began=1, node="n1")
    story = maker.story([(1, 10), (2, 20), (3, 20), (4, 20)])
    (problem,) = evidence.check_job(story)
    assert "two attempts at once" in problem
    assert list(evidence.check_workers([story])) == []


def test_the_processes_of_one_gang_run_at_once(evidence, maker):
    maker.run(1, 0.0, [1, 2, 3, 4]).run(1, 0.1, [1, 2, 3, 4], node="n1", rank=1)
    assert list(evidence.check_job(maker.story([(n, 10) for n in range(1, 5)]))) == []


def test_two_leases_on_one_worker_are_found(evidence):
    one = Maker(evidence, "a").run(1, 0.0, [1, 2, 3, 4]).story([])
    other = Maker(evidence, "b").run(2, 4.5, [1, 2, 3, 4]).story([])
    (problem,) = evidence.check_workers([one, other])
    assert "n0/0: two leases at once: a lease 10" in problem
    after = Maker(evidence, "b").run(2, 5.5, [1, 2, 3, 4]).story([])
    assert list(evidence.check_workers([one, after])) == []
    assert evidence.closest_s([one, after]) == pytest.approx(0.5)


def test_a_job_completed_twice_is_found(evidence, maker):
    maker.run(1, 0.0, [1, 2, 3, 4]).run(2, 10.0, [4], began=3)
    problems = list(evidence.check_job(maker.story([(n, 10) for n in range(1, 4)] + [(4, 20)])))
    assert any("completed twice" in problem for problem in problems)


def test_a_lease_of_two_jobs_and_tokens_that_shrink_are_found(evidence):
    one = Maker(evidence, "a").run(1, 0.0, [1]).story([])
    other = Maker(evidence, "b").run(1, 9.0, [1]).story([])
    (problem,) = evidence.check_tokens([one, other])
    assert "the lease belongs to a, too" in problem


def lease(kind, number, event_id):
    return {"kind": f"lease_{kind}", "data": {"lease": number}, "event_id": event_id}


def attempt(number, ended_s=1.0):
    return {"attempt": number, "ended_s": ended_s}


def test_gaps_in_the_history_are_found(evidence):
    done = {"kind": "job_completed", "data": {}, "event_id": 9}
    good = [lease("granted", 1, 1), lease("ended", 1, 2), done]
    assert list(evidence.check_history("j", [attempt(1)], good)) == []
    wrong = {
        "a gap at its lease number 1": [lease("granted", 1, 1), done],
        "is followed by the end of": [lease("granted", 1, 1), lease("ended", 2, 2), done],
        "0 completions": good[:2],
        "2 completions": [*good, done],
    }
    for said, events in wrong.items():
        assert said in "\n".join(evidence.check_history("j", [attempt(1)], events))
    assert "never ended" in next(evidence.check_history("j", [attempt(1, None)], good))


def test_the_seed_decides_what_goes_wrong(module):
    faults = module("faults")
    size = {"for_s": 120.0, "agents": 8, "schedulers": 2, "databases": 1}
    drawn = [faults.draw_faults(random.Random(seed), **size) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {fault.on for fault in drawn[0]} == set(faults.EVERY_S)
    assert all(fault.at_s + fault.for_s <= 120.0 for fault in drawn[0])
