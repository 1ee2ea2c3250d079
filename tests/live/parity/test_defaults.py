"""The daemon as it starts and a replay of its configuration decide the same.

On one side ``LiveService`` with the defaults of ``leasehold serve``, a store, a journal, and nodes
that follow the agents' protocol under a clock that a test moves; on the other ``Replay`` with the
defaults of ``leasehold simulate --config``. Quotas, a dependency, an array, a limit, jobs out of
memory, a node that is lost and comes back, a policy that an operator switches, reservations and
learned throughputs are part of it. Times and steps are the same numbers.
"""

import asyncio
import math
import random
from collections import Counter

import numpy as np
import pytest

from leasehold.config.decisions import control_settings
from leasehold.config.load import load_config
from leasehold.daemon.settings import runtime_settings
from leasehold_testing.stage import Stage
from policies.registry import make_policy
from scheduler.control.facts.facts import PolicySet, ReservationDeleted, ReservationMade
from scheduler.control.facts.requests import PolicyChoice, ProjectLimits, Submission
from scheduler.control.leases.apply_commands import FINAL
from scheduler.domain.codec import encode
from scheduler.domain.facts.commands import GrantLease, RecordEvent, RevokeLease
from scheduler.domain.lease_life import EndReason, RevokeReason
from scheduler.domain.reservation import Reservation
from scheduler.store.queries import MAX_LIMIT, HistoryQuery
from simulator.replay import Replay
from simulator.world.agenda import Agenda
from simulator.world.failures import FailureModel, NodeOutage
from simulator.world.nodes import Mishap, SimulatedWorld
from simulator.world.overheads import Overhead, Overheads
from traces.cluster import read_cluster
from traces.reader import read_trace
from traces.tables.throughputs import read_throughputs

PACE = 20.0
PROJECTS = (
    ProjectLimits(project="small", max_workers=3),
    ProjectLimits(project="few", max_jobs=2),
)
#: An operator puts a policy in force with answers that age.
SWITCH_S, CHOICE = 2000.5, PolicyChoice(name="finish_time_fairness")
#: Reservations and when they are made: one is kept to its end, one given up within its window.
NIGHT, DAY = (
    Reservation(
        name="night", worker_type="v100", workers=3, from_s=900.0, until_s=1900.0, project="few"
    ),
    Reservation(
        name="day", worker_type="a100", workers=1, from_s=1000.0, until_s=9e5, project="small"
    ),
)
MADE = ((600.5, NIGHT), (700.5, DAY))
GIVEN_UP_S = 1600.25
OUTAGES = (NodeOutage(node="v100-0", lost_s=1300.5, back_s=1700.25),)
#: Position of a job -> steps at which it is out of memory, and whether that is retried.
OUT_OF_MEMORY = {2: (3000.0, True), 8: (1000.0, False)}
#: What every tenth job says: whether it checkpoints, is preemptible, and its least time.
MANNERS = {3: "false,,", 6: "false,false,", 8: ",,200"}
HEADER = (
    "job_id,job_type,total_steps,scale_factor,arrival_s,weight,project,depends_on,array_index,"
    "max_run_time_s,retry_oom,checkpoints,preemptible,min_run_time_s\n"
)


def write_trace(path):
    """Write the bundled jobs with quotas, dependencies, an array and limits among them."""
    trace = read_trace("bundled", throughputs=read_throughputs("bundled"), limit=30)
    lines = []
    for i, job in enumerate(trace.jobs):
        project = ("small", "few", "")[i % 3]
        after = trace.jobs[i - 4].job_id if i % 7 == 6 else ""
        index = str(i % 5) if 10 <= i < 15 else ""
        limit = "900" if i % 11 == 5 else ""
        retried = "" if OUT_OF_MEMORY.get(i, (0.0, True))[1] else "false"
        lines.append(
            f'{job.job_id},"{job.job_type}",{job.total_steps / PACE},{job.scale_factor},'
            f"{job.arrival_s / PACE},{job.weight},{project},{after},{index},{limit},{retried},"
            f"{MANNERS.get(i % 10, ',,')}\n"
        )
    path.write_text(HEADER + "".join(lines))
    return path


class Both:
    """One trace, one cluster and one configuration, for the daemon and for a replay."""

    def __init__(self, folder, toml="", *, outages=OUTAGES, made=MADE):
        self.outages, self.made = outages, made
        (folder / "leasehold.toml").write_text(toml)
        self.folder = folder
        self.config = load_config(path=str(folder / "leasehold.toml"), environment={}).config
        throughputs = read_throughputs("bundled")
        self.trace = read_trace(write_trace(folder / "trace.csv"), throughputs=throughputs)
        self.cluster = read_cluster("t4:4,v100:4,a100:2", workers_per_node=4)
        choice = control_settings(self.config).policy
        dependent = make_policy(CHOICE.name, CHOICE.parameters).time_dependent
        self.replay = Replay(
            cluster=self.cluster,
            trace=self.trace,
            throughputs=throughputs,
            policy=make_policy(choice.name, choice.parameters),
            settings=control_settings(self.config),
            overheads=Overheads(default=Overhead(launch_s=2.0, checkpoint_s=1.0)),
            failures=self.failures(),
            projects=PROJECTS,
            orders=[
                (SWITCH_S, PolicySet(choice=CHOICE, time_dependent=dependent, actor="operator")),
                *((s, ReservationMade(reservation=rule, actor="operator")) for s, rule in made),
                *(
                    (GIVEN_UP_S, ReservationDeleted(name=DAY.name, actor="operator"))
                    for _ in made[:1]
                ),
            ],
        )
        self.replay.log = []

    def failures(self):
        mishaps = [
            (self.trace.jobs[i].job_id, Mishap(steps=steps, end=EndReason.OOM))
            for i, (steps, _) in OUT_OF_MEMORY.items()
        ]
        return FailureModel(outages=self.outages, mishaps=tuple(mishaps))

    def replayed(self):
        self.replay.run()
        return [command for decision in self.replay.log for command in decision.commands]

    async def live(self, disturb=None):
        world = SimulatedWorld(
            now_s=lambda: 0.0,
            rate=self.replay._rate,
            totals={job.job_id: job.total_steps for job in self.trace.jobs},
            overhead=self.replay._overhead,
            whole_steps=False,
            pairs=True,
            checkpoint_interval_s=self.failures().checkpoint_interval_s,
            mishaps=self.failures().mishaps_of_jobs(),
            unsaved={job.job_id for job in self.trace.jobs if not job.checkpoints},
        )
        stage = self.stage = Stage(self.folder, runtime_settings(self.config), world=world)
        stage.actor = "replay"
        await stage.start()
        for limits in PROJECTS:
            await stage.do(stage.service.set_project(limits, actor="replay"))
        for node in self.cluster.nodes:
            stage.add_node(node.name, *node.workers, margin_s=self.margin_s)
        await stage.settle()
        arrivals = Agenda((job.arrival_s, job) for job in self.trace.jobs)
        by = {"actor": "operator"}
        switches = Agenda(
            [
                (SWITCH_S, lambda: stage.service.set_policy(CHOICE, **by)),
                *((s, lambda rule=r: stage.service.reserve(rule, **by)) for s, r in self.made),
                *(
                    (GIVEN_UP_S, lambda: stage.service.delete_reservation(DAY.name, **by))
                    for _ in self.made[:1]
                ),
            ]
        )
        outages = Agenda(
            [(one.lost_s, (one.node, True)) for one in self.outages]
            + [(one.back_s, (one.node, False)) for one in self.outages]
        )
        while not math.isinf(arrivals.next_s) or len(stage.state.jobs):
            known_s = min(arrivals.next_s, switches.next_s, outages.next_s)
            at_s = min(stage.next_s, stage.control.next_due_s, self.looks_s(), known_s)
            for name, lost in outages.take(at_s):
                stage.clock.advance(at_s)
                if lost:
                    await stage.agents[name].ask()  # it was there until now
                    stage.node(name).reboot()
                stage.links[name].cut = lost
            items = [
                Submission(spec=self.replay._submitted(job), owner="replay", job_id=job.job_id)
                for job in arrivals.take(at_s)
            ]
            orders = [order() for order in switches.take(at_s)]
            await stage.advance(at_s, items, orders=orders)
            if disturb is not None:
                await disturb(stage)
        return stage.log

    def live_history(self):
        rows = self.stage.store.history(HistoryQuery(limit=MAX_LIMIT))
        assert len(rows) < MAX_LIMIT
        return [story(row) for row in rows]

    def replayed_history(self):
        return [story(row) for decision in self.replay.log for row in decision.rows.history]

    @property
    def silent(self):
        """Whether a node is away, and the service has still to find out all that this ends."""
        state = self.stage.state
        away = [state.nodes.by_name[name] for name, link in self.stage.links.items() if link.cut]
        return any(not node.lost or state.leases.on_node.get(node.name) for node in away)

    def looks_s(self):
        """Return when the daemon looks at its nodes again; it does so every second."""
        return self.stage.clock.now_s() + self.config.engine.tick_s if self.silent else math.inf

    @property
    def margin_s(self):
        return next(iter(self.replay._shell.nodes.values())).margin_s


def story(row):
    return row.kind, row.subject_kind, row.subject, row.at_s, dict(row.data)


def with_first_steps_apart(lines):
    """Return the lines, and first steps sorted: their order within one moment is arbitrary."""
    steps = sorted((line for line in lines if line[0] == "first_step"), key=lambda line: line[2:4])
    assert steps
    return [line for line in lines if line[0] != "first_step"], steps


def first_difference(live, replayed):
    for i, (one, other) in enumerate(zip(live, replayed, strict=False)):
        if encode(one) != encode(other):
            return i, one, other
    return None if len(live) == len(replayed) else (len(live), len(replayed))


def test_the_daemons_defaults_and_a_replays_decide_the_same(tmp_path):
    both = Both(tmp_path)
    live = asyncio.run(both.live())
    replayed = both.replayed()
    assert first_difference(live, replayed) is None
    live_lines, replayed_lines = both.live_history(), both.replayed_history()
    assert with_first_steps_apart(live_lines) == with_first_steps_apart(replayed_lines)
    kinds = {command.kind for command in live if isinstance(command, RecordEvent)}
    assert {"job_completed", "job_cancelled", "job_preempted"} <= kinds
    assert sum(isinstance(command, GrantLease) for command in live) > 40
    why = {command.reason for command in live if isinstance(command, RevokeLease)}
    assert {RevokeReason.OUTBID, RevokeReason.WORKER_LOST} <= why


@pytest.mark.long
def test_what_goes_wrong_and_what_is_ordered_is_part_of_it(tmp_path):
    both = Both(tmp_path)
    asyncio.run(both.live())
    both.replayed()
    replayed = [row for decision in both.replay.log for row in decision.rows.history]
    told = Counter(row.kind for row in replayed)
    assert told["node_lost"] == told["node_returned"] == told["policy_changed"] == 1
    found = [row for row in replayed if row.data.get("trouble") == "out_of_memory"]
    assert {row.subject for row in found} == {both.trace.jobs[i].job_id for i in OUT_OF_MEMORY}
    ends = {row.subject: row.kind for row in replayed if row.kind in FINAL}
    assert [ends[both.trace.jobs[i].job_id] for i in (2, 8)] == ["job_completed", "job_failed"]
    assert both.stage.state.policy.choice == CHOICE
    assert [told[f"reservation_{what}"] for what in ("made", "deleted", "ended")] == [2, 1, 1]
    projects = {job.job_id: job.project for job in both.trace.jobs}
    grants = [c.lease for d in both.replay.log for c in d.commands if isinstance(c, GrantLease)]
    on_v100 = set(np.flatnonzero(both.cluster.worker_type_of == 1).tolist())
    # Its owner may begin on them as soon as others have left them, in time for it.
    begun = [one for one in grants if NIGHT.from_s - 60.0 <= one.start_s < OUTAGES[0].lost_s]
    own = [projects.get(one.job_id, "") for one in begun if on_v100.intersection(one.workers)]
    assert NIGHT.project in own
    assert own.count(NIGHT.project) >= len(own) - 1  # a worker is left for every job


@pytest.mark.parametrize(
    ("seed", "given"),
    [
        pytest.param(1, {"made": ()}, marks=pytest.mark.long),
        pytest.param(2, {"made": ()}, marks=pytest.mark.long),
        (3, {"outages": ()}),
    ],
)
def test_a_daemon_that_is_killed_at_random_decides_as_the_replay(tmp_path, seed, given):
    # A stretch of running that is being measured is lost with the daemon, so nothing is learned.
    # A start asks nodes for their steps, so after one more of them outlive a node that is lost.
    both = Both(tmp_path, "[throughputs]\nlearn = false\n", **given)
    draw = random.Random(seed)
    kills = 0

    async def disturb(stage):
        nonlocal kills
        # A start gives every node its time to report, so a lost one would be found out later.
        if draw.random() < 0.3 and not both.silent:
            kills += 1
            if draw.random() < 0.3:
                await stage.driver.write_snapshot()
            await stage.crash()
            await stage.start()
            await stage.settle()

    live = asyncio.run(both.live(disturb))
    assert first_difference(live, both.replayed()) is None
    assert kills > 10
