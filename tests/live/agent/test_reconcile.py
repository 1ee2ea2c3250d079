"""The decision core against a small world that loses, doubles and reorders messages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.reconcile import (
    DesiredView,
    Forget,
    HeldLease,
    Kill,
    Notice,
    Refuse,
    Renew,
    Start,
    Terminate,
    accept_desired,
    decide_actions,
    view_of_adopted,
    wake_at,
)
from scheduler.protocol.desired import Desired, DesiredLease

MARGIN_S = 1.0


def _lease(lease_id=1, *, token=None, job="a", attempt=1, workers=(0,), remaining_s=100.0, **more):
    return DesiredLease(
        lease_id=lease_id,
        attempt=attempt,
        token=lease_id if token is None else token,
        job_id=job,
        command=("true",),
        workers=workers,
        remaining_s=remaining_s,
        notice_s=5.0,
        grace_s=3.0,
        **more,
    )


def _view(*leases, revision=1, at_s=0.0, view=None):
    return accept_desired(
        view or DesiredView(), Desired(revision=revision, leases=leases), sent_s=at_s
    )


def _held(lease, deadline_s=100.0, **more):
    return HeldLease(
        lease_id=lease.lease_id,
        token=lease.token,
        job_id=lease.job_id,
        attempt=lease.attempt,
        nonce=lease.nonce,
        workers=lease.workers,
        deadline_s=deadline_s,
        notice_s=lease.notice_s,
        grace_s=lease.grace_s,
        **more,
    )


def _decide(view, *held, now_s=0.0):
    return decide_actions(view, held, now_s=now_s, margin_s=MARGIN_S)


def test_what_is_new_is_started_and_what_goes_on_is_left_alone():
    view = _view(_lease())
    (start,) = _decide(view)
    assert isinstance(start, Start)
    assert start.wanted.deadline_s == 100.0
    assert _decide(view, _held(_lease())) == ()


@pytest.mark.parametrize("more", [{"job": "b"}, {"nonce": "n2"}, {"attempt": 2}])
def test_another_lease_of_the_same_number_waits_until_the_first_is_forgotten(more):
    first, second = _lease(nonce="n1"), _lease(**{"nonce": "n1"} | more)
    view = _view(second)
    held = _held(first)
    (action,) = _decide(view, held)
    assert (type(action), action.unwanted) == (Terminate, True)
    for ended in (replace(held, terminated_s=0.0), replace(held, ended=True)):
        assert _decide(view, ended) == ()
    (action,) = _decide(view, replace(held, ended=True, delivered_term=view.term))
    assert isinstance(action, Forget)
    (action,) = _decide(view)
    assert (type(action), action.wanted.lease) == (Start, second)


@pytest.mark.parametrize(("held", "wanted"), [("", "n1"), ("n1", "")])
def test_a_lease_goes_on_if_the_release_before_told_or_kept_no_nonce(held, wanted):
    assert _decide(_view(_lease(nonce=wanted)), _held(_lease(nonce=held))) == ()


def test_a_lease_that_is_not_renewed_is_wound_down_before_its_deadline():
    view, held = _view(_lease()), _held(_lease())
    # By hand: SIGKILL at 100 - 1, SIGTERM 3 earlier, notice 5 earlier still.
    assert _decide(view, held, now_s=90.9) == ()
    assert wake_at(view, (held,), margin_s=MARGIN_S) == 91.0
    assert _decide(view, held, now_s=91.0) == (Notice(lease_id=1, on=True, by_s=96.0),)
    held = replace(held, noticed=True)
    assert wake_at(view, (held,), margin_s=MARGIN_S) == 96.0
    assert _decide(view, held, now_s=96.0) == (Terminate(lease_id=1, unwanted=False),)
    held = replace(held, terminated_s=96.0)
    assert wake_at(view, (held,), margin_s=MARGIN_S) == 99.0
    assert _decide(view, held, now_s=98.9) == ()
    assert _decide(view, held, now_s=99.0) == (Kill(lease_id=1),)


def test_a_renewal_in_time_takes_the_notice_back():
    held = _held(_lease(), noticed=True)
    view = _view(_lease(remaining_s=60.0), at_s=92.0)
    assert _decide(view, held, now_s=92.5) == (
        Renew(lease_id=1, deadline_s=152.0),
        Notice(lease_id=1, on=False, by_s=148.0),
    )


def test_a_renewal_brings_secret_variables_which_an_adopted_lease_has_lost():
    (renewal,) = _decide(_view(_lease(secret_env={"TOKEN": "hunter2"})), _held(_lease(), 20.0))
    assert renewal == Renew(lease_id=1, deadline_s=100.0, secret_env={"TOKEN": "hunter2"})
    assert "hunter2" not in repr(renewal)


def test_a_renewal_after_sigterm_changes_nothing():
    held = _held(_lease(), noticed=True, terminated_s=96.0)
    assert _decide(_view(_lease(), at_s=97.0), held, now_s=97.0) == ()


def test_an_announced_end_gives_the_job_the_time_until_the_deadline():
    view = _view(_lease(notice_in_s=0.0))
    assert _decide(view, _held(_lease())) == (Notice(lease_id=1, on=True, by_s=96.0),)
    assert _decide(view, _held(_lease(), noticed=True), now_s=95.0) == ()


def test_what_is_no_longer_wanted_is_stopped_at_once():
    held = _held(_lease())
    assert _decide(_view(), held, now_s=10.0) == (Terminate(lease_id=1, unwanted=True),)
    assert _decide(_view(), replace(held, terminated_s=10.0), now_s=12.9) == ()
    assert _decide(_view(), replace(held, terminated_s=10.0), now_s=13.0) == (Kill(lease_id=1),)


def test_an_agent_that_has_not_heard_the_scheduler_yet_stops_nothing_but_holds_deadlines():
    held = _held(_lease())
    assert _decide(DesiredView(), held, now_s=10.0) == ()
    assert _decide(DesiredView(), held, now_s=99.5) == (
        Terminate(lease_id=1, unwanted=False),
        Kill(lease_id=1),
    )


def test_an_older_message_is_ignored_and_a_new_leader_outranks_every_revision():
    view = _view(_lease(), revision=7)
    assert accept_desired(view, Desired(revision=6, leases=()), sent_s=1.0) is view
    assert accept_desired(view, Desired(term=1, revision=0, leases=()), sent_s=1.0).wanted == {}


def test_a_repeated_message_never_moves_a_deadline_back():
    view = _view(_lease(remaining_s=50.0), at_s=10.0)
    late = _view(_lease(remaining_s=30.0), at_s=5.0, view=view)
    assert late.wanted[1].deadline_s == 60.0


def test_a_slow_answer_makes_the_deadline_earlier_never_later():
    # The scheduler holds the request for 20 s and answers "30 s left": its deadline is 50 s after
    # the request, however long the answer then travels.
    desired = Desired(revision=1, held_s=20.0, leases=(_lease(remaining_s=30.0),))
    assert accept_desired(DesiredView(), desired, sent_s=100.0).wanted[1].deadline_s == 150.0


def test_workers_are_not_used_again_before_their_holder_is_gone():
    old, new = _lease(1, job="a"), _lease(2, job="b")
    view = _view(new)
    assert _decide(view, _held(old)) == (Terminate(lease_id=1, unwanted=True),)
    assert _decide(view, _held(old, terminated_s=0.0), now_s=1.0) == ()
    assert isinstance(_decide(view, _held(old, terminated_s=0.0, ended=True))[0], Start)


def test_two_wanted_leases_may_share_a_worker():
    pair = _lease(1, job="a"), _lease(2, job="b")
    assert len(_decide(_view(*pair), _held(pair[0]))) == 1


def test_a_job_never_has_two_attempts_at_once():
    old, new = _lease(1, workers=(0,)), _lease(2, workers=(1,))
    assert _decide(_view(old, new), _held(old)) == ()


def test_a_lease_with_an_older_token_than_the_job_has_had_is_never_started():
    view = view_of_adopted(DesiredView(), [_held(_lease(5))])
    assert _decide(_view(_lease(4), view=view)) == ()


def test_a_newer_token_for_the_same_lease_replaces_its_processes():
    held = _held(_lease(1, token=1))
    assert _decide(_view(_lease(1, token=2)), held) == (Terminate(lease_id=1, unwanted=True),)
    # An older one neither renews nor stops them.
    held = _held(_lease(1, token=3))
    assert _decide(_view(_lease(1, token=2, remaining_s=500.0)), held) == ()


def test_a_lease_that_arrives_too_late_is_refused():
    (refusal,) = _decide(_view(_lease(remaining_s=3.9)))
    assert isinstance(refusal, Refuse)


def test_an_ended_lease_is_kept_until_it_is_delivered_and_unwanted():
    ended = _held(_lease(), ended=True)
    view = _view()
    delivered = replace(ended, delivered_term=view.term)
    assert _decide(_view(_lease()), delivered) == ()
    assert _decide(view, ended) == ()
    assert _decide(DesiredView(), replace(ended, delivered_term=0)) == ()
    assert _decide(view, delivered) == (Forget(lease_id=1),)


def test_an_end_is_delivered_again_to_the_next_leader():
    view = _view()
    told = _held(_lease(), ended=True, delivered_term=view.term)
    assert _decide(replace(view, term=view.term + 1), told) == ()


def test_only_so_many_jobs_are_remembered():
    leases = [_lease(i, job=f"j{i}", workers=(i,)) for i in range(5000)]
    view = _view(*leases)
    assert len(view.newest_token) == 4096
    assert "j4999" in view.newest_token
    assert "j0" not in view.newest_token


class _World:
    """Processes that obey at once or only SIGKILL, and a scheduler that never errs."""

    def __init__(self):
        self.now_s, self.view, self.held, self.stubborn, self.starts = (
            0.0,
            DesiredView(),
            {},
            set(),
            [],
        )
        self.true_deadline_s = {}

    def act(self):
        for action in decide_actions(
            self.view, tuple(self.held.values()), now_s=self.now_s, margin_s=MARGIN_S
        ):
            if isinstance(action, Start):
                lease = action.wanted.lease
                self.starts.append(lease.token)
                self.held[lease.lease_id] = _held(lease, action.wanted.deadline_s)
                continue
            if isinstance(action, Refuse):
                lease = action.wanted.lease
                self.held[lease.lease_id] = _held(lease, action.wanted.deadline_s, ended=True)
                continue
            held = self.held[action.lease_id]
            if isinstance(action, Renew):
                self.held[action.lease_id] = replace(held, deadline_s=action.deadline_s)
            elif isinstance(action, Notice):
                self.held[action.lease_id] = replace(held, noticed=action.on)
            elif isinstance(action, Terminate):
                ended = action.lease_id not in self.stubborn
                self.held[action.lease_id] = replace(held, terminated_s=self.now_s, ended=ended)
            elif isinstance(action, Kill):
                self.held[action.lease_id] = replace(held, ended=True)
            elif isinstance(action, Forget):
                del self.held[action.lease_id]

    def check(self):
        alive = [h for h in self.held.values() if not h.ended]
        assert len({h.job_id for h in alive}) == len(alive), "two attempts of a job"
        for held in alive:
            assert self.now_s < self.true_deadline_s[held.lease_id], "runs past its deadline"
        workers = [w for h in alive for w in h.workers]
        assert len(set(workers)) == len(workers), "two leases on one worker"

    def sleep_until(self, until_s):
        while self.now_s < until_s:
            wake_s = wake_at(self.view, tuple(self.held.values()), margin_s=MARGIN_S)
            self.now_s = min(max(wake_s, self.now_s + 1e-6), until_s)
            self.act()
            self.check()


@settings(max_examples=150)
@given(st.data())
def test_whatever_happens_to_messages_deadlines_hold_and_the_newest_wish_is_met(data):
    world, sent = _World(), []
    next_id, current = 1, {}
    for revision in range(data.draw(st.integers(1, 12))):
        # The scheduler: a lease of another job per worker, granted again only after its deadline.
        for worker in (0, 1):
            lease = current.get(worker)
            over = lease is None or world.true_deadline_s[lease.lease_id] <= world.now_s
            if over and data.draw(st.booleans()):
                lease = _lease(next_id, job=f"j{worker}{next_id % 2}", workers=(worker,))
                world.true_deadline_s[next_id] = world.now_s + data.draw(st.floats(5, 40))
                if data.draw(st.booleans()):
                    world.stubborn.add(next_id)
                next_id += 1
                current[worker] = lease
            elif over:
                current.pop(worker, None)
            elif data.draw(st.booleans()):
                world.true_deadline_s[lease.lease_id] += data.draw(st.floats(0, 20))
        leases = tuple(
            replace(c, remaining_s=world.true_deadline_s[c.lease_id] - world.now_s)
            for c in current.values()
        )
        sent.append((world.now_s, Desired(revision=revision, leases=leases)))
        # The network: any of the messages so far, in any order, any number of times.
        for position in data.draw(st.lists(st.integers(0, len(sent) - 1), max_size=4)):
            at_s, desired = sent[position]
            world.view = accept_desired(world.view, desired, sent_s=at_s)
            world.act()
            world.check()
        world.sleep_until(world.now_s + data.draw(st.floats(0, 15)))
    at_s, newest = sent[-1]
    world.view = accept_desired(world.view, newest, sent_s=at_s)
    world.act()
    world.sleep_until(world.now_s + 5.0)
    world.act()
    wanted = {lease.lease_id for lease in newest.leases}
    alive = {h.lease_id for h in world.held.values() if not h.ended}
    assert alive <= wanted
    for lease_id in wanted - alive:  # refused or run down: it had no time left
        assert world.true_deadline_s[lease_id] - world.now_s <= 4.0 or lease_id in world.held
    assert len(set(world.starts)) == len(world.starts), "a lease was started twice"
