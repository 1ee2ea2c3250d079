"""Pairs: partners that come late, leave early, or change their number."""

from dataclasses import replace

import numpy as np
import pytest

from leasehold_testing.answers import equal_shares
from policies.testing import make_table
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.lease_life import EndReason
from scheduler.engine.tables.jobs import NONE

SHARED = {(0, 0, 0): (0.8, 0.8)}


@pytest.fixture
def apart_then_together(start, job, pair_up):
    """Two jobs that run on a worker each when X begins to want them as a pair."""

    def compose(**options):
        shell = start("type-0:2", shared=SHARED, allocate=equal_shares, **options)
        shell.submit(job("a"))
        shell.submit(job("b"))
        assert shell.running() == {"a": (0,), "b": (1,)}
        shell._allocate = pair_up
        shell.tell(ev.WeightChanged(job_id="a", weight=2.0))
        return shell

    return compose


def test_a_pair_shares_one_worker_and_one_of_them_stays_where_it_is(apart_then_together):
    shell = apart_then_together()
    shell.run(until_s=101.0)
    assert shell.running() == {"a": (0,), "b": (0,)}
    assert len(shell.history(do.GrantLease)) == 3
    assert shell.engine.jobs["workers_held"].tolist() == [0.5, 0.5]


def test_a_partner_whose_workers_come_back_late_still_joins(apart_then_together):
    # The lease of b is to end at 100 s and does at 350 s: two more rounds are planned meanwhile.
    shell = apart_then_together(release_delay_s=250.0)
    shell.run(until_s=349.0)
    assert shell.running() == {"a": (0,), "b": (1,)}
    assert shell.engine.jobs["pair"].tolist() == [0, NONE]
    shell.run(until_s=351.0)
    assert shell.running() == {"a": (0,), "b": (0,)}
    assert shell.engine.jobs["pair"].tolist() == [0, 0]


def test_a_planned_partner_follows_its_pair_through_a_new_allocation(
    apart_then_together, job, pair_up
):
    shell = apart_then_together(release_delay_s=50.0)
    shell.run(until_s=110.0)
    # A third job takes the first place: the pair of a and b is now another entry, and unwanted.
    shell._allocate = lambda problem: pair_up(problem) if problem.jobs < 3 else _last_two(problem)
    shell.submit(job("c"))
    shell.run(until_s=151.0)
    pair = shell.engine.jobs["pair"]
    assert pair[0] == pair[1] != NONE
    assert shell.running()["b"] == (0,)


def _last_two(problem):
    answer = equal_shares(problem)
    return replace(
        answer,
        x=np.zeros_like(answer.x),
        pair_jobs=np.array([[1, 2]]),
        pair_index=np.array([0]),
        pair_x=np.array([1.0]),
    )


def test_who_is_left_by_a_planned_partner_runs_alone_and_uncharged(apart_then_together):
    shell = apart_then_together(release_delay_s=250.0)
    shell.run(until_s=150.0)
    shell.tell(ev.JobHeld(job_id="b"))
    jobs = shell.engine.jobs
    assert (jobs["pair"][0], jobs["configuration"][0]) == (NONE, 0)
    assert (jobs["charged"][0], jobs["workers_held"][0]) == (0, 1.0)


def test_a_planned_partner_begins_alone_when_the_other_has_ended(apart_then_together):
    shell = apart_then_together(release_delay_s=50.0)
    shell.run(until_s=120.0)
    shell.end(1, EndReason.COMPLETED)
    shell.run(until_s=151.0)
    jobs = shell.engine.jobs
    assert set(shell.running()) == {"b"}
    assert (jobs["pair"][0], jobs["configuration"][0]) == (NONE, 0)


def test_the_survivor_of_a_pair_goes_on_at_once_on_the_workers_of_both(apart_then_together):
    shell = apart_then_together()
    shell.run(until_s=120.0)
    shell.end(1, EndReason.COMPLETED)
    jobs = shell.engine.jobs
    assert shell.running() == {"b": (0,)}
    assert (jobs["pair"][0], jobs["configuration"][0], jobs["workers_held"][0]) == (NONE, 0, 1.0)
    assert len(shell.history(do.GrantLease)) == 3


def test_pairs_keep_their_identity_when_the_table_gets_new_rows(apart_then_together):
    shell = apart_then_together(release_delay_s=50.0, answer_delay_s=0.0)
    shell.run(until_s=160.0)
    shell.answer_delay_s = None  # the new table's question stays open
    more = make_table(
        [[1.0], [1.0]], shared={(0, 1, 0): (0.7, 0.7), (0, 0, 0): (0.9, 0.9), (1, 1, 0): (0.6, 0.6)}
    )
    shell.tell(ev.ConfigurationsChanged(table=more))
    assert shell.engine.pairs.index.tolist() == [1]
    shell.run(until_s=330.0)
    assert shell.running() == {"a": (0,), "b": (0,)}
    without = make_table([[1.0], [1.0]], shared={(1, 1, 0): (0.6, 0.6)})
    shell.tell(ev.ConfigurationsChanged(table=without))
    assert shell.engine.pairs.index.tolist() == [NONE]
    assert shell.engine.pairs.x.tolist() == [0.0]
    shell.tell(ev.ConfigurationsChanged(table=without))
    shell.run(until_s=650.0)


def test_jobs_that_share_a_worker_hold_it_for_the_whole_time(apart_then_together):
    """Their time limits count seconds under leases, whatever the size of these."""
    shell = apart_then_together()
    shell.run(until_s=150.0)
    (lease_id,) = (
        one.lease.lease_id for one in shell.executions.values() if one.lease.job_id == "b"
    )
    shell.end(lease_id, EndReason.FAILED)
    assert shell.engine.held_before_s("b") == 150.0
    assert shell.engine.jobs["attained_worker_s"].tolist() == [125.0, 125.0]
