"""The agreement on the last step, with members as threads that step at random."""

from __future__ import annotations

import random
import threading
import time

import pytest

from leasehold.gang import Gang, clear_older


class _Member(threading.Thread):
    def __init__(self, folder, rank, size, *, total, barrier=None, pause_s=0.004, most_worth=1):
        super().__init__(daemon=True)
        self.noticed, self.step, self.total = False, 0, total
        self.gang = Gang(folder, rank=rank, world_size=size, noticed=lambda: self.noticed)
        self.barrier, self.random, self.pause_s = barrier, random.Random(rank), pause_s
        self.most_worth = most_worth

    def run(self):
        begin = self.gang.agree_on_start(lambda: 0)
        self.gang.start(begin)
        while self.step < self.total and self.gang.may_begin(self.step + 1):
            if self.barrier is not None:
                self.barrier.wait(10)  # a collective operation: all or none
            time.sleep(self.random.random() * self.pause_s)
            worth = random.Random(self.step).randint(1, self.most_worth)  # the same in all members
            self.step = min(self.step + worth, self.total)
        self.gang.close(finished_step=self.total if self.step == self.total else None)


def _run(folder, size, *, told, synchronous, total=10**9, after=20, pauses=None, **more):
    barrier = threading.Barrier(size) if synchronous else None
    pauses = pauses or [0.004] * size
    members = [
        _Member(folder, rank, size, total=total, barrier=barrier, pause_s=pauses[rank], **more)
        for rank in range(size)
    ]
    for member in members:
        member.start()
    end_s = time.monotonic() + 20
    while min(m.step for m in members) < after and time.monotonic() < end_s:
        time.sleep(0.001)
    for rank in told:
        members[rank].noticed = True
    for member in members:
        member.join(20)
        assert not member.is_alive(), "a member waits for ever"
    return [member.step for member in members]


@pytest.mark.parametrize("synchronous", [True, False])
@pytest.mark.parametrize("told", [[0], [2], [0, 1, 2]])
def test_all_members_stop_on_the_same_step(tmp_path, told, synchronous):
    steps = _run(tmp_path / "gang-1", 3, told=told, synchronous=synchronous)
    assert len(set(steps)) == 1


@pytest.mark.parametrize("total", [60, 10**9])
def test_all_members_stop_together_though_items_are_worth_several_steps(tmp_path, total):
    steps = _run(tmp_path / "g", 3, told=[2], synchronous=True, total=total, most_worth=7)
    assert len(set(steps)) == 1


def test_a_member_far_ahead_makes_the_others_come_after(tmp_path):
    steps = _run(tmp_path / "g", 2, told=[0], synchronous=False, pauses=[0.02, 0.004], after=30)
    assert steps[0] == steps[1]


@pytest.mark.parametrize("total", [20, 22, 60])
def test_near_the_end_all_finish_or_all_stop_on_one_step(tmp_path, total):
    steps = _run(tmp_path / "g", 3, told=[1], synchronous=True, total=total, after=19)
    assert len(set(steps)) == 1


def test_a_member_that_has_finished_lets_the_slow_ones_finish(tmp_path):
    steps = _run(
        tmp_path / "g", 2, told=[0, 1], synchronous=False, total=30, after=5, pauses=[0.0, 0.03]
    )
    assert steps[0] == steps[1] or steps == [30, 30]


def test_everybody_begins_where_rank_0_says(tmp_path):
    gangs = [Gang(tmp_path / "g", rank=r, world_size=2, noticed=lambda: False) for r in (0, 1)]
    begins = [gangs[0].agree_on_start(lambda: 40), gangs[1].agree_on_start(lambda: 99)]
    assert begins == [40, 40]
    for gang in gangs:
        gang.close()


def test_agreements_of_earlier_attempts_are_cleared(tmp_path):
    for token in (1, 2, 3):
        (tmp_path / f"gang-{token}").mkdir()
    clear_older(tmp_path, 3)
    assert [p.name for p in tmp_path.iterdir()] == ["gang-3"]
