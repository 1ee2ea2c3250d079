"""The daemon as it starts and a replay of its configuration decide the same.

On one side ``LiveService`` with the defaults of ``leasehold serve``, a store, a journal, and nodes
that follow the agents' protocol under a clock that a test moves; on the other ``Replay`` with the
defaults of ``leasehold simulate --config``. Quotas, a dependency, an array, a limit, a policy whose
answers age and what is learned of throughputs are part of it. Times and steps are the same numbers.
"""

import asyncio
import math
import random

import pytest

from leasehold.config.decisions import control_settings
from leasehold.config.load import load_config
from leasehold.daemon.settings import runtime_settings
from leasehold_testing.stage import Stage
from policies.registry import make_policy
from scheduler.control.requests import ProjectLimits, Submission
from scheduler.domain.codec import encode
from scheduler.domain.commands import GrantLease, RecordEvent, RevokeLease
from simulator.failures import FailureModel
from simulator.nodes import SimulatedWorld
from simulator.overheads import Overhead, Overheads
from simulator.replay import Replay
from traces.cluster import read_cluster
from traces.reader import read_trace
from traces.scaling import extend_scale_factors
from traces.throughputs import read_throughputs

PACE = 20.0
PROJECTS = (
    ProjectLimits(project="small", max_workers=3),
    ProjectLimits(project="few", max_jobs=2),
)
HEADER = (
    "job_id,job_type,total_steps,scale_factor,arrival_s,weight,project,depends_on,array_index,"
    "max_run_time_s\n"
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
        lines.append(
            f'{job.job_id},"{job.job_type}",{job.total_steps / PACE},{job.scale_factor},'
            f"{job.arrival_s / PACE},{job.weight},{project},{after},{index},{limit}\n"
        )
    path.write_text(HEADER + "".join(lines))
    return path


class Both:
    """One trace, one cluster and one configuration, for the daemon and for a replay."""

    def __init__(self, folder, toml=""):
        (folder / "leasehold.toml").write_text(toml)
        self.folder = folder
        self.config = load_config(path=str(folder / "leasehold.toml"), environment={}).config
        throughputs = read_throughputs("bundled")
        self.trace = read_trace(write_trace(folder / "trace.csv"), throughputs=throughputs)
        self.cluster = read_cluster("t4:4,v100:4,a100:2", workers_per_node=4)
        choice = control_settings(self.config).policy
        self.replay = Replay(
            cluster=self.cluster,
            trace=self.trace,
            throughputs=extend_scale_factors(
                throughputs, {job.scale_factor for job in self.trace.jobs}
            ),
            policy=make_policy(choice.name, choice.parameters),
            settings=control_settings(self.config),
            overheads=Overheads(default=Overhead(launch_s=2.0, checkpoint_s=1.0)),
            failures=FailureModel(),
            projects=PROJECTS,
        )
        self.replay.log = []

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
        )
        stage = Stage(self.folder, runtime_settings(self.config), world=world)
        await stage.start()
        for limits in PROJECTS:
            await stage.do(stage.service.set_project(limits, actor="replay"))
        for node in self.cluster.nodes:
            stage.add_node(node.name, *node.workers, margin_s=self.margin_s)
        await stage.settle()
        left = list(self.trace.jobs)
        while left or len(stage.state.jobs):
            limit_s = stage.control.next_due_s
            at_s = min(stage.next_s, limit_s, left[0].arrival_s if left else math.inf)
            due = [job for job in left if job.arrival_s <= at_s]
            del left[: len(due)]
            items = [
                Submission(spec=self.replay._spec(job), owner="replay", job_id=job.job_id)
                for job in due
            ]
            await stage.advance(at_s, items)
            if disturb is not None:
                await disturb(stage)
        return stage.log

    @property
    def margin_s(self):
        return next(iter(self.replay._nodes.values())).margin_s


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
    kinds = {command.kind for command in live if isinstance(command, RecordEvent)}
    assert {"job_completed", "job_cancelled", "job_preempted"} <= kinds
    assert sum(isinstance(command, GrantLease) for command in live) > 40
    assert any(isinstance(command, RevokeLease) for command in live)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_daemon_that_is_killed_at_random_decides_as_the_replay(tmp_path, seed):
    # A stretch of running that is being measured is lost with the daemon, so nothing is learned.
    both = Both(tmp_path, "[throughputs]\nlearn = false\n")
    draw = random.Random(seed)
    kills = 0

    async def disturb(stage):
        nonlocal kills
        if draw.random() < 0.3:
            kills += 1
            if draw.random() < 0.3:
                await stage.driver.write_snapshot()
            await stage.crash()
            await stage.start()
            await stage.settle()

    live = asyncio.run(both.live(disturb))
    assert first_difference(live, both.replayed()) is None
    assert kills > 10
