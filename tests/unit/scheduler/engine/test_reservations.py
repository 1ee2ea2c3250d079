"""Reservations: no other job is on their workers in the window; the owner begins in time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold_testing.shell import VirtualShell
from policies.testing import make_table
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.jobs.job import Job
from scheduler.domain.reservation import Reservation, most_reserved
from scheduler.engine.settings import EngineSettings
from scheduler.errors import InputError

ROUND_S = 100.0
#: Examples of a law; each is a whole run.
FEW = 25


def reservation(name="vision", workers=2, from_s=350.0, until_s=850.0, **values):
    given_ = {"worker_type": "type-0", "project": name} | values
    return Reservation(name=name, workers=workers, from_s=from_s, until_s=until_s, **given_)


def reserve(shell, *rules, **members):
    shell.tell(
        ev.ReservationsChanged(
            reservations=rules, name=rules[-1].name if rules else "", members=members
        )
    )


def entitle(shell, job, *names, profile=0):
    """Submit a job that may use the workers of reservations."""
    shell.tell(
        ev.JobEntitled(job_id=job.job_id, reservations=names),
        ev.JobSubmitted(job=job, profile=profile),
    )


class Watch:
    """Records others' leases on a reservation's workers, step by step of a shell.

    Another job may hold a lease there beyond the window's begin only if it was granted before the
    reservation was there.
    """

    def __init__(self, shell, owner):
        self.shell, self.owner = shell, owner
        self.starts = {}
        self.wrong = []

    def run(self, until_s, step_s=10.0):
        while self.shell.now < until_s:
            self.shell.run(until_s=min(self.shell.now + step_s, until_s))
            self.look()

    def look(self):
        engine = self.shell.engine
        for rule in engine.reservations.in_force:
            workers = set(engine.reservations.workers[rule.name])
            for run in self.shell.executions.values():
                job_id, on = run.lease.job_id, workers.intersection(run.lease.workers)
                if on and job_id in self.owner(rule):
                    self.starts.setdefault(rule.name, run.lease.start_s)
                elif on and run.deadline_s > rule.from_s and self.shell.now >= rule.from_s:
                    self.wrong.append((self.shell.now, job_id, rule.name))


def watch(shell, **owned):
    return Watch(shell, lambda rule: owned.get(rule.name, ()))


def test_others_leave_in_time_and_the_owner_begins_at_once(start, job):
    shell = start("type-0:4")
    for n in range(8):
        shell.submit(job(f"other-{n}"))
    reserve(shell, reservation())
    for n in range(2):
        entitle(shell, job(f"own-{n}"), "vision")
    seen = watch(shell, vision=("own-0", "own-1"))
    seen.run(until_s=840.0)
    assert seen.wrong == []
    assert seen.starts["vision"] <= 350.0
    running = shell.running()
    own = {w for name in ("own-0", "own-1") for w in running[name]}
    assert own == set(shell.engine.reservations.workers["vision"])
    assert len(running) == 4


def test_after_the_window_the_workers_go_back(start, job):
    shell = start("type-0:4")
    for n in range(4):
        shell.submit(job(f"other-{n}"))
    reserve(shell, reservation())
    shell.run(until_s=840.0)
    assert len(shell.running()) == 2  # kept for an owner without jobs to run
    shell.run(until_s=860.0)
    assert len(shell.running()) == 4
    assert not shell.engine.reservations.in_force


def test_where_one_window_follows_another_the_next_owner_finds_its_workers_free(start, job):
    shell = start("type-0:2")
    # The second begins within a round, and so does the end of the first.
    first, second = reservation("a", from_s=150.0, until_s=501.0), reservation("b", from_s=501.0)
    for n in range(2):
        shell.submit(job(f"other-{n}"))
    reserve(shell, first, second)
    # In that round one of the first owner's jobs ends, and another one waits.
    entitle(shell, job("ends", 290.0), "a")
    entitle(shell, job("goes-on"), "a")
    entitle(shell, job("waits"), "a")
    seen = watch(shell, a=("ends", "goes-on", "waits"))
    seen.run(until_s=700.0)
    assert seen.starts["a"] <= 200.0
    assert [one for one in seen.wrong if one[0] > 501.0 + shell.release_delay_s] == []


def test_the_next_owner_does_not_begin_while_the_window_before_lasts(start, job):
    shell = start("type-0:2")
    reserve(shell, reservation("a", from_s=150.0, until_s=401.0), reservation("b", from_s=401.0))
    entitle(shell, job("own"), "b")
    seen = watch(shell, b=("own",))
    seen.run(until_s=600.0, step_s=1.0)
    assert seen.wrong == []
    assert seen.starts["b"] == 401.0


def test_a_window_that_has_begun_is_drained_at_the_end_of_the_round(start, job):
    shell = start("type-0:2")
    for n in range(2):
        shell.submit(job(f"other-{n}"))
    shell.run(until_s=120.0)
    reserve(shell, reservation(from_s=121.0))
    entitle(shell, job("own-0"), "vision")
    seen = watch(shell, vision=("own-0",))
    shell.run(until_s=201.0)
    seen.run(until_s=400.0)
    assert seen.wrong == []
    assert seen.starts["vision"] - 121.0 <= ROUND_S


def test_a_gang_of_the_owner_gets_whole_nodes(start, job):
    shell = start("type-0:8", gangs=[1, 4], rates=((1.0,), (1.0,)))
    for n in range(8):
        shell.submit(job(f"other-{n}"))
    reserve(shell, reservation(workers=4))
    entitle(shell, job("gang", scale_factor=4), "vision", profile=1)
    shell.run(until_s=400.0)
    nodes = {shell.engine.fleet.node_name(w) for w in shell.running()["gang"]}
    assert len(nodes) == 1


def test_what_could_not_leave_in_time_is_not_placed_there(start, job):
    shell = start("type-0:4")
    reserve(shell, reservation(workers=2, from_s=500.0))
    kept = set(shell.engine.reservations.workers["vision"])
    for n in range(4):
        shell.submit(job(f"firm-{n}", 10_000.0, preemptible=False))
    shell.run(until_s=1.0)
    assert len(shell.running()) == 2
    assert not kept & {w for workers in shell.running().values() for w in workers}
    shell.submit(job("short", 300.0, preemptible=False))
    shell.run(until_s=2.0)
    assert set(shell.running()["short"]) <= kept


def test_workers_that_a_job_cannot_leave_are_not_chosen(start, job):
    shell = start("type-0:4")
    shell.submit(job("firm", 1e6, preemptible=False))
    shell.run(until_s=1.0)
    held = set(shell.running()["firm"])
    reserve(shell, reservation(workers=3))
    assert not held & set(shell.engine.reservations.workers["vision"])


@pytest.mark.parametrize("held_by", [0, 5])
def test_idle_workers_are_reserved_before_those_of_a_running_job(start, job, held_by):
    """Each reservation takes the rest of a node, which is no whole node any more."""
    shell = start("type-0:8")
    for n in range(held_by + 1):
        shell.submit(job(f"job-{n}", 1e6 if n == held_by else 1.0))
    shell.run(until_s=50.0)
    (held,) = shell.running()[f"job-{held_by}"]
    rules = [reservation(f"r{n}", workers=1) for n in range(7)]
    for n in range(7):
        reserve(shell, *rules[: n + 1])
    chosen = [shell.engine.reservations.workers[rule.name] for rule in rules]
    assert sorted(w for workers in chosen for w in workers) == sorted({*range(8)} - {held})


def test_a_reservation_moves_off_a_lost_node_and_says_what_it_lacks(start, job):
    shell = start("type-0:12")
    shell.submit(job("other"))
    reserve(shell, reservation(workers=8))
    before = shell.engine.reservations.workers["vision"]
    node = shell.engine.fleet.node_of[before[0]]
    lost = tuple(np.flatnonzero(shell.engine.fleet.node_of == node).tolist())
    shell.tell(ev.WorkersLost(workers=lost))
    moved = shell.engine.reservations.workers["vision"]
    assert len(moved) == 8
    assert not set(moved) & set(lost)
    other = tuple(w for w in range(12) if w not in lost)[:4]
    shell.tell(ev.WorkersLost(workers=other))
    told = [c for _, c in shell.history(do.RecordEvent) if c.kind == "reservation_short"]
    assert told[-1].data["lacking"] == 4
    shell.tell(ev.WorkersReturned(workers=other))
    told = [c for _, c in shell.history(do.RecordEvent) if c.kind == "reservation_short"]
    assert told[-1].data["lacking"] == 0


def test_deleting_a_reservation_gives_the_workers_back(start, job):
    shell = start("type-0:2")
    for n in range(2):
        shell.submit(job(f"other-{n}"))
    reserve(shell, reservation())
    shell.run(until_s=400.0)
    assert shell.running() == {}
    reserve(shell)
    shell.run(until_s=401.0)
    assert len(shell.running()) == 2


def test_reservations_one_after_another_may_have_the_same_workers(start, job):
    shell = start("type-0:2")
    shell.submit(job("other"))
    reserve(shell, reservation("a", until_s=500.0), reservation("b", from_s=500.0))
    assert shell.engine.reservations.workers["a"] == shell.engine.reservations.workers["b"]
    one, two = reservation("a", workers=1), reservation("b", workers=1)
    reserve(shell, one, two)
    found = shell.engine.reservations.workers
    assert not set(found["a"]) & set(found["b"])


def test_nobody_is_asked_about_workers_that_are_set_aside(start, job):
    shell = start("type-0:4", answer_delay_s=None)
    reserve(shell, reservation(from_s=0.0, workers=3))
    shell.submit(job("other"))
    assert shell.questions[-1].problem.capacity.tolist() == [1.0]


def test_without_any_nothing_is_looked_at(start, job, monkeypatch):
    monkeypatch.setattr("scheduler.engine.events.on_reservations.update_windows", lambda _: 1 / 0)
    monkeypatch.setattr(
        "scheduler.engine.events.on_reservations.bound_by_reservations", lambda _: 1 / 0
    )
    shell = start("type-0:2")
    for n in range(3):
        shell.submit(job(f"other-{n}"))
    shell.run(until_s=500.0)
    assert len(shell.running()) == 2


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"until_s": 350.0}, "until_s is 350"),
        ({"from_s": float("nan")}, "from_s is nan"),
        ({"project": ""}, "project, user and job are empty"),
    ],
)
def test_what_cannot_be_is_refused(values, said):
    with pytest.raises(InputError, match=said):
        reservation(**values)


def test_what_is_reserved_at_once_is_counted():
    one = reservation("a", workers=3, from_s=0.0, until_s=10.0)
    two = reservation("b", workers=4, from_s=10.0, until_s=20.0)
    three = reservation("c", workers=2, from_s=5.0, until_s=15.0)
    new = reservation("d", from_s=0.0, until_s=20.0)
    most, who = most_reserved(new, (one, two, three, new))
    assert most == 6
    assert [rule.name for rule in who] == ["b", "c"]
    assert most_reserved(reservation("d", from_s=20.0, until_s=30.0), (one, two, three)) == (0, ())


@settings(max_examples=FEW, deadline=None)
@given(data=st.data())
def test_in_any_run_nobody_else_is_there_and_a_restart_changes_nothing(data):
    draw = data.draw
    table = make_table(((1.0, 2.0), (0.5, 1.0)), scale_factor=[1, 2])
    shell = VirtualShell(
        parse_cluster_spec("type-0:4,type-1:4", workers_per_node=2),
        table,
        settings=EngineSettings(round_length_s=ROUND_S, plan_lead_s=draw(st.sampled_from([0, 20]))),
        release_delay_s=draw(st.sampled_from([0.0, 5.0])),
        fold_ends=False,
    )
    rules = [
        reservation(
            name,
            workers=draw(st.integers(1, 2)),
            worker_type=draw(st.sampled_from(["type-0", "type-1"])),
            from_s=(begin := draw(st.floats(150.0, 900.0))),
            until_s=begin + draw(st.floats(50.0, 500.0)),
        )
        for name in ("a", "b")
    ]
    owned = {"a": [], "b": []}
    for n in range(draw(st.integers(1, 12))):
        profile = draw(st.integers(0, 1))
        made = Job(
            job_id=f"job-{n}",
            job_type="profile",
            scale_factor=profile + 1,
            total_steps=draw(st.floats(10.0, 3000.0)),
            preemptible=draw(st.booleans()),
            restart_s=draw(st.sampled_from([0.0, 10.0])),
        )
        name = draw(st.sampled_from(["", "a", "b"]))
        if name:
            owned[name].append(made.job_id)
            entitle(shell, made, name, profile=profile)
        else:
            shell.submit(made, profile)
    reserve(shell, *rules, **{name: tuple(jobs) for name, jobs in owned.items()})
    seen = watch(shell, **owned)
    for stop_s in sorted(draw(st.lists(st.floats(10.0, 1500.0), max_size=3))):
        seen.run(until_s=stop_s, step_s=40.0)
        shell.restart()
    seen.run(until_s=1600.0, step_s=40.0)
    # A job that is asked to leave may take as long as its notice.
    begin_s = {rule.name: rule.from_s for rule in rules}
    assert [one for one in seen.wrong if one[0] > begin_s[one[2]] + shell.release_delay_s] == []


def test_a_gang_with_a_part_on_a_cordoned_worker_leaves_the_reserved_one(start, job):
    shell = start("type-0:2", gangs=[2], rates=((1.0,),))
    shell.submit(job("gang", scale_factor=2))
    shell.run(until_s=150.0)
    reserve(shell, reservation(workers=1))
    (kept,) = shell.engine.reservations.workers["vision"]
    assert shell.running()["gang"] == (0, 1)
    shell.tell(ev.WorkersCordoned(workers=(1 - kept,)))
    seen = watch(shell, vision=())
    seen.run(until_s=840.0)
    assert seen.wrong == []
    assert shell.running() == {}


def test_the_next_owner_begins_when_the_window_before_is_over(start, job):
    shell = start("type-0:2")
    rules = reservation("vision", until_s=650.0), reservation("speech", from_s=680.0)
    reserve(shell, *rules)
    entitle(shell, job("next"), "speech")
    shell.run(until_s=645.0)  # from 600 s on both are in force
    assert len(shell.engine.reservations.in_force) == 2
    assert shell.running() == {}
    shell.run(until_s=655.0)
    assert "next" in shell.running()


def test_with_its_only_job_a_reservation_ends_and_others_begin_at_once(start, job):
    shell = start("type-0:2")
    reserve(shell, reservation(from_s=1.0, job="own"), reservation("later", 1, from_s=700.0))
    entitle(shell, job("own", total_steps=130.0), "vision")
    shell.submit(job("other"))
    shell.run(until_s=129.0)
    assert set(shell.running()) == {"own"}
    shell.restart()  # the one beside it must say the same
    shell.run(until_s=140.0)
    assert set(shell.running()) == {"other"}
    (told,) = [
        (at_s, one)
        for at_s, one in shell.history(do.RecordEvent)
        if one.kind == "reservation_released"
    ]
    assert (told[1].subject, told[1].data) == ("vision", {"job": "own"})
    assert [rule.name for rule in shell.engine.reservations.rules] == ["later"]
    began_s = next(one.lease.start_s for one in shell.executions.values())
    assert began_s == told[0]


def test_a_cancelled_job_s_reservation_is_released_and_nothing_is_left_of_it(start, job):
    shell = start("type-0:2")
    reserve(shell, reservation(from_s=1.0, job="own"))
    entitle(shell, job("own"), "vision")
    shell.submit(job("other"))
    shell.run(until_s=50.0)
    shell.tell(ev.JobCancelled(job_id="own"))
    shell.run(until_s=70.0)
    found = shell.engine.reservations
    assert not found
    assert (found.in_force, found.members, found.workers) == ((), {}, {})
    assert not shell.engine.fleet.set_aside.any()
    assert set(shell.running()) == {"other"}
