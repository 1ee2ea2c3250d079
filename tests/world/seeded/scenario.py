"""What happens in a world, drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from scheduler.control.facts.requests import PolicyChoice
from seeded.jobs import Mishap

#: Worker types and their speeds.
SPEEDS = {"v100": 2.0, "p100": 1.4, "k80": 1.0}
POLICIES = ("max_min_fairness", "least_remaining_work", "fifo", "finish_time_fairness")
#: Policies with a half-life; only they count past use.
FADING = ("max_min_fairness", "hierarchical")
#: Until when jobs are submitted and faults happen; then everything is mended.
STORM_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job to submit; ``jobs.Model`` describes it.

    Attributes:
        at_s: when.
        name: its id, and its client's id.
        gang: workers at once.
        types: on which it may run; empty for any.
        max_failures: of its own, that are retried.
        held: whether it is held from the start.
        after: names of jobs that have to complete before.
        again: whether it is submitted a second time.
        limit_s: how long it may hold workers in all; None: no limit.
        firm: whether it is not to be preempted.
        model: further fields of its model.
    """

    at_s: float
    name: str
    gang: int
    types: tuple[str, ...]
    max_failures: int
    held: bool
    after: tuple[str, ...]
    again: bool
    limit_s: float | None
    firm: bool = False
    model: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """A reservation by a user; times count from the world's begin.

    Attributes:
        at_s: when it is made.
        name: its own.
        worker_type: of its workers.
        workers: how many.
        from_s: when its window begins.
        until_s: when that ends.
        project: its project; empty if it is a job's.
        job: as above.
        gone_s: when a user deletes it; None for never.
    """

    at_s: float
    name: str
    worker_type: str
    workers: int
    from_s: float
    until_s: float
    project: str
    job: str
    gone_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault, or a request of a user.

    Attributes:
        at_s: when.
        kind: the name of a method of ``faults.Faults``.
        target: the index of its target.
        for_s: how long.
        how: a number for the kind to make use of.
    """

    at_s: float
    kind: str
    target: int
    for_s: float
    how: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A world.

    Attributes:
        schedulers: how many processes may lead.
        nodes: worker types of each node.
        orders: jobs, by time.
        faults: by time.
        policy: at the beginning.
        round_s: the scheduling quantum.
        lose: part of the messages that are lost.
        late: part of them that take seconds.
        repeat: part of the requests that arrive twice.
        slow_s: mean time of a call of the database.
        solve_s: mean time of an answer of the policy.
        drift: of clocks at most, seconds per second.
        skew_s: between wall clocks at most.
        slices: whether each turn pauses after each fact.
        fails: part of the questions to which a policy gives no answer.
        quotas: project -> workers that it may hold, of projects that have a quota.
        idle: project -> what becomes of the idle part of its quota; with any, quotas are lent.
        projects: among which the jobs are divided.
        bookings: workers that are reserved for a time.
        budgets: project -> worker-seconds that it may use before everything is mended.
        half_life_s: half-life of past use; 0 if past use does not count.
        launch_s: time of each launch, beside the moment that every launch takes.
    """

    schedulers: int
    nodes: tuple[tuple[str, ...], ...]
    orders: tuple[Order, ...]
    faults: tuple[Fault, ...]
    policy: str
    round_s: float
    lose: float
    late: float
    repeat: float
    slow_s: float
    solve_s: float
    drift: float
    skew_s: float
    slices: bool
    fails: float
    quotas: dict[str, int]
    idle: dict[str, str]
    projects: tuple[str, ...]
    bookings: tuple[Booking, ...]
    budgets: dict[str, float]
    half_life_s: float
    launch_s: float = 0.0

    def project_of(self, name: str) -> str:
        """Return the project of a job."""
        return self.projects[int(name[1:]) % len(self.projects)]

    def choice(self, name: str) -> PolicyChoice:
        """Return a policy with the world's half-life, if the policy has one."""
        known = self.half_life_s and name in FADING
        return PolicyChoice(
            name=name, parameters={"usage_half_life_s": str(self.half_life_s)} if known else {}
        )


#: Kinds of faults, and how often each is drawn.
KINDS = {
    "kill_scheduler": 4,
    "kill_scheduler_soon": 6,
    "freeze_scheduler": 2,
    "lose_database": 3,
    "spoil_commits": 6,
    "stop_scheduler": 2,
    "stop_agent": 2,
    "leave_node": 2,
    "kill_agent": 4,
    "kill_agent_soon": 3,
    "freeze_agent": 2,
    "crash_node": 2,
    "wipe_node": 1,
    "cut_node": 5,
    "cut_and_order": 5,
    "break_worker": 2,
    "fill_disk": 1,
    "cancel": 1,
    "hold": 2,
    "requeue": 2,
    "drain_node": 2,
    "cordon_node": 1,
    "set_policy": 1,
    "limit_project": 1,
    "jump_clock": 1,
    "repeat_report": 3,
}


#: Kinds that came later, likewise. They are drawn by themselves: earlier worlds stay as they were.
LATER_KINDS = {
    "refuse_commits": 2,
    "clone_node": 3,
}


#: Kinds that came last, and in which part of the worlds each happens once. Each is drawn by itself:
#: worlds without one stay as they were.
SINGLE_KINDS = {
    "swallow_jobs": 0.12,
    "forget_commits": 0.12,
    "jump_hours": 0.15,
    "name_twice": 0.12,
}


def draw(seed: int) -> Scenario:
    """Draw a world."""
    chance = random.Random(f"{seed}/scenario")
    calm = chance.random() < 0.1
    schedulers = chance.choice([1, 1, 2])
    kinds = chance.sample(sorted(SPEEDS), chance.choice([1, 2, 2]))
    nodes = tuple(
        tuple([chance.choice(kinds)] * chance.choice([1, 1, 2, 3]))
        for _ in range(chance.choice([1, 2, 2, 3, 3, 4]))
    )
    orders = _orders(chance, nodes)
    count = 0 if calm else chance.choice([1, 3, 6, 10, 16, 24])
    # A few kinds at a time: what comes often meets what comes rarely.
    mixed = chance.sample(sorted(KINDS), chance.randint(2, len(KINDS)))
    drawn = chance.choices(mixed, [KINDS[kind] for kind in mixed], k=count)
    faults = sorted(
        (
            Fault(
                at_s=chance.uniform(2.0, STORM_S),
                kind=kind,
                target=chance.randrange(1000),
                for_s=chance.choice([chance.uniform(0.05, 2.0), chance.uniform(1.0, 15.0)]),
                how=chance.randrange(1000),
            )
            for kind in drawn
        ),
        key=lambda fault: fault.at_s,
    )
    if not calm:
        faults = sorted([*faults, *_later(seed), *_single(seed)], key=lambda fault: fault.at_s)
    shaky = not calm and chance.random() < 0.6
    quotas, idle = _quotas(random.Random(f"{seed}/quotas"), orders)
    bookings = _bookings(random.Random(f"{seed}/bookings"), nodes, orders)
    budgets = _budgets(random.Random(f"{seed}/budgets"), orders)
    half_life_s = random.Random(f"{seed}/half-life").choice([0.0, 0.0, 0.0, 5.0, 20.0, 200.0])
    divided = idle or bookings or budgets or half_life_s
    if bookings:
        firm = random.Random(f"{seed}/firm")
        orders = tuple(replace(order, firm=firm.random() < 0.15) for order in orders)
    policy = chance.choice(POLICIES)
    if half_life_s:
        policy = FADING[seed % len(FADING)]
    drawn_world = Scenario(
        schedulers=schedulers,
        nodes=nodes,
        orders=orders,
        faults=tuple(faults),
        policy=policy,
        round_s=chance.choice([4.0, 5.0, 8.0]),
        lose=chance.choice([0.01, 0.05]) if shaky else 0.0,
        late=chance.choice([0.0, 0.02, 0.1]) if shaky else 0.0,
        repeat=chance.choice([0.0, 0.05, 0.3]) if shaky else 0.0,
        slow_s=chance.choice([0.001, 0.01, 0.1]),
        solve_s=chance.choice([0.005, 0.05, 0.5]),
        drift=chance.choice([0.0, 1e-4, 5e-4]),
        skew_s=chance.choice([0.0, 0.05, 0.2]),
        slices=chance.random() < 0.3,
        fails=chance.choice([0.1, 0.4]) if shaky and chance.random() < 0.5 else 0.0,
        quotas=quotas,
        idle=idle,
        projects=("p", "r") if divided else ("p",),
        bookings=bookings,
        budgets=budgets,
        half_life_s=half_life_s,
    )
    if any(fault.kind == "forget_commits" for fault in faults):  # shares would be forgotten, too
        none: dict[str, Any] = {"quotas": {}, "idle": {}, "bookings": (), "budgets": {}}
        drawn_world = replace(drawn_world, **none, half_life_s=0.0)
    return replace(drawn_world, launch_s=_launch_s(seed, drawn_world.round_s))


def _launch_s(seed: int, round_s: float) -> float:
    """Draw how long launches take: longer than a round in an eighth of the worlds."""
    chance = random.Random(f"{seed}/launches")
    return chance.uniform(1.0, 1.8) * round_s if chance.random() < 0.125 else 0.0


def _later(seed: int) -> list[Fault]:
    """Draw faults of the later kinds, in half of the worlds."""
    chance = random.Random(f"{seed}/later faults")
    count = chance.choice([0, 0, 1, 3])
    kinds = chance.choices(list(LATER_KINDS), list(LATER_KINDS.values()), k=count)
    return [
        Fault(
            at_s=chance.uniform(2.0, STORM_S),
            kind=kind,
            target=chance.randrange(1000),
            for_s=chance.uniform(1.0, 15.0),
            how=chance.randrange(1000),
        )
        for kind in kinds
    ]


def _single(seed: int) -> list[Fault]:
    """Draw faults that happen once in a world."""
    found = []
    for kind, part in SINGLE_KINDS.items():
        chance = random.Random(f"{seed}/{kind}")
        if chance.random() < part:
            found.append(
                Fault(
                    at_s=chance.uniform(2.0, 45.0),
                    kind=kind,
                    target=chance.randrange(1000),
                    for_s=chance.uniform(5.0, 25.0),
                    how=chance.randrange(1000),
                )
            )
    forgets = any(fault.kind == "forget_commits" for fault in found)
    # Two schedulers of one name take tokens fast, and lost ones would be given out again.
    return [fault for fault in found if not (forgets and fault.kind == "name_twice")]


def _bookings(
    chance: random.Random, nodes: tuple[tuple[str, ...], ...], orders: tuple[Order, ...]
) -> tuple[Booking, ...]:
    """Draw reservations, in half of the worlds: planned ones, and some that begin at once."""
    if chance.random() < 0.5:
        return ()
    types = [kind for node in nodes for kind in node]
    found = []
    for number in range(chance.choice([1, 1, 2, 3])):
        kind = chance.choice(types)
        at_s = chance.uniform(0.0, 40.0)
        from_s = at_s + chance.choice([0.0, chance.uniform(0.0, 10.0), chance.uniform(10.0, 30.0)])
        until_s = from_s + chance.uniform(5.0, 45.0)
        job = chance.choice(orders).name if chance.random() < 0.3 else ""
        found.append(
            Booking(
                at_s=at_s,
                name=f"b{number}",
                worker_type=kind,
                workers=chance.randint(1, types.count(kind)),
                from_s=from_s,
                until_s=until_s,
                project="" if job else chance.choice(["p", "r"]),
                job=job,
                gone_s=chance.uniform(at_s + 1.0, until_s) if chance.random() < 0.3 else None,
            )
        )
    return tuple(sorted(found, key=lambda booking: booking.at_s))


def _budgets(chance: random.Random, orders: tuple[Order, ...]) -> dict[str, float]:
    """Draw budgets, in a third of the worlds: most of them are spent before the work is done."""
    if chance.random() < 0.65:
        return {}
    work_s = sum(order.gang * order.model["steps"] * order.model["step_s"] for order in orders)
    projects = chance.choice([("p",), ("r",), ("p", "r")])
    return {name: work_s * chance.uniform(0.02, 0.6) for name in projects}


def _quotas(
    chance: random.Random, orders: tuple[Order, ...]
) -> tuple[dict[str, int], dict[str, str]]:
    """Draw quotas with room for the widest job: in half of the worlds none, in others lent ones."""
    widest = max(order.gang for order in orders)
    drawn = {name: widest + chance.randrange(2) for name in ("p", "r")}
    kind = chance.choice(["none", "none", "plain", "lent"])
    idle = {"p": chance.choice(["lend", "share"]), "r": "share"}
    if kind == "lent":
        return drawn, idle
    return ({"p": drawn["p"]} if kind == "plain" else {}), {}


def _orders(chance: random.Random, nodes: tuple[tuple[str, ...], ...]) -> tuple[Order, ...]:
    kinds = sorted({kind for types in nodes for kind in types})
    room = {kind: sum(types.count(kind) for types in nodes) for kind in kinds}
    widest = max(room.values())
    crowd_s = chance.uniform(0.0, 20.0)
    orders: list[Order] = []
    for number in range(chance.choice([1, 3, 4, 6, 8, 10])):
        gang = chance.choice([1, 1, 1, 2, 3])
        gang = min(gang, widest)
        fitting = [kind for kind in kinds if room[kind] >= gang]
        types = (chance.choice(fitting),) if chance.random() < 0.2 else ()
        steps = chance.randint(5, 40)
        mishaps = [
            Mishap(
                step=chance.randint(0, steps - 1),
                kind=chance.choice(["fail", "fail", "oom", "hang"]),
                for_s=chance.uniform(1.0, 15.0),
            )
            for _ in range(chance.choice([0, 0, 0, 1, 2]))
        ]
        slow = chance.random() < 0.15
        orders.append(
            Order(
                at_s=crowd_s if chance.random() < 0.5 else chance.uniform(0.0, 40.0),
                name=f"j{number}",
                gang=gang,
                types=types,
                max_failures=chance.choice([0, 1, 50, 50, 50]),
                held=chance.random() < 0.05,
                after=(f"j{chance.randrange(number)}",)
                if number and chance.random() < 0.15
                else (),
                again=chance.random() < 0.2,
                limit_s=chance.uniform(5.0, 40.0) if chance.random() < 0.08 else None,
                model={
                    "steps": steps,
                    "step_s": chance.choice([0.2, 0.4, 1.0]),
                    "long_every": 7 if slow else 0,
                    "long_s": 2.5 if slow else 0.0,
                    "save_s": chance.choice([0.01, 0.1, 0.4]),
                    "save_every": chance.choice([1, 4, 10]),
                    "heeds": chance.choice(["notice", "notice", "notice", "sigterm", "nothing"]),
                    "counted": chance.random() < 0.8,
                    "mishaps": sorted(mishaps, key=lambda mishap: mishap.step),
                },
            )
        )
    return tuple(sorted(orders, key=lambda order: order.at_s))
