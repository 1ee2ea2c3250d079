"""The same jobs through the live service and through the simulator."""

import math
from dataclasses import replace

import numpy as np
import pytest

from leasehold_testing.faults import ShakyStore
from leasehold_testing.stage import Stage
from policies.registry import make_policy
from scheduler.control.facts.requests import PolicyChoice, Submission
from scheduler.control.facts.specs import engine_job
from scheduler.domain.codec import encode
from scheduler.domain.jobs.spec import JobSpec
from scheduler.engine.settings import EngineSettings
from scheduler.operator_settings import LearningSettings
from scheduler.runtime.settings import RuntimeSettings
from simulator.simulation import Simulation
from simulator.world.failures import FailureModel
from simulator.world.overheads import Overheads
from traces.reader import read_trace
from traces.tables.throughputs import read_throughputs

#: A cluster as the bundled one, small enough for queues: node -> worker types.
NODES = {
    "n0": ("t4",) * 4,
    "n1": ("v100",) * 4,
    "n2": ("a100",) * 2,
    "n3": ("v100",) * 2,
}


class Case:
    """One comparison."""

    def __init__(
        self, folder, policy, *, jobs, pace, space_sharing, round_length_s, parameters, manners
    ):
        self.folder = folder
        #: position of a job -> what its specification says beside what all say; "unsaved" if it
        #: never saves anything.
        self.unsaved = {i for i, said in manners.items() if "unsaved" in said}
        self.store = ShakyStore()
        self.throughputs = read_throughputs("bundled")
        trace = read_trace("bundled", throughputs=self.throughputs, seed=0, limit=jobs)
        self.specs = [
            JobSpec(
                name=job.job_id,
                command=("true",),
                scale_factors=(job.scale_factor,),
                total_steps=job.total_steps,
                job_type=job.job_type,
                weight=job.weight,
                deadline_s=job.deadline_s,
                notice_s=0.0,
                grace_s=0.0,
                **{n: v for n, v in manners.get(i, {}).items() if n != "unsaved"},
            )
            for i, job in enumerate(trace.jobs)
        ]
        self.arrivals = [job.arrival_s / pace for job in trace.jobs]
        self.choice = PolicyChoice(name=policy, parameters=parameters, space_sharing=space_sharing)
        self.settings = RuntimeSettings(
            engine=EngineSettings(round_length_s=round_length_s),
            policy=self.choice,
            learning=LearningSettings(learn=False),
            node_timeout_s=1e12,
            snapshot_entries=7,
        )

    def submission(self, i):
        return Submission(spec=self.specs[i], owner="somebody", job_id=f"job-{i}")

    # -- the live way -----------------------------------------------------------------------------

    def stage(self):
        stage = Stage(self.folder, self.settings, store=self.store)
        world = stage.world
        world.whole_steps, world.pairs = False, True
        world.unsaved = {f"job-{i}" for i in self.unsaved}
        world.totals = {f"job-{i}": spec.total_steps for i, spec in enumerate(self.specs)}
        return stage

    async def begin(self, stage):
        """Let the nodes join and every profile be known, as the simulator begins."""
        for name, types in NODES.items():
            stage.add_node(name, *types, margin_s=-1.0)
        await stage.start()
        await stage.settle()
        table = self.throughputs
        await stage.do(
            stage.service.declare_throughputs(
                tuple(table.alone()), pairs=tuple(table.sharing()), actor="operator"
            )
        )
        state = stage.state
        self.profiles = [state.knowledge.profile_of(spec) for spec in self.specs]
        state.table_due = True
        await stage.driver.turn()
        await stage.settle()
        assert stage.log == []
        self.cluster, self.table = state.engine.cluster, state.engine.table
        stage.world.rate = self.rate

    def rate(self, job_id, worker_type, workers, partner):
        """Return the throughput that the simulator takes for the truth."""
        table, profile = self.table, self.profiles[int(job_id[4:])]
        demand = np.zeros(len(table.worker_types), dtype=int)
        demand[table.worker_types.index(worker_type)] = workers
        alone = table.throughput[profile][(table.demand[profile] == demand).all(axis=1)]
        if partner is None:
            return float(alone.max())
        other = self.profiles[int(partner[4:])]
        pair = sorted((profile, other))
        found = (table.pair_profiles == pair).all(axis=1)
        found &= (table.pair_demand == demand).all(axis=1)
        member = 1 if profile > other else 0
        return float(table.pair_throughput[found, member][-1])

    async def live(self, disturb=None):
        """Return the log of the live service.

        Args:
            disturb: called after every moment with the stage and the number of the moment.
        """
        stage = self.stage()
        await self.begin(stage)
        arrivals, moment = list(enumerate(self.arrivals)), 0
        while arrivals or len(stage.state.jobs):
            at_s = min(stage.next_s, arrivals[0][1] if arrivals else math.inf)
            due = [i for i, arrival_s in arrivals if arrival_s <= at_s]
            del arrivals[: len(due)]
            await stage.advance(at_s, [self.submission(i) for i in due])
            moment += 1
            if disturb is not None:
                await disturb(stage, moment)
        self.stage_after = stage
        return stage.log

    # -- the simulator's --------------------------------------------------------------------------

    def simulated(self):
        """Return the log of the simulator; ``live`` must have run, as it numbers workers."""
        jobs = [
            replace(
                engine_job(
                    spec,
                    job_id=f"job-{i}",
                    arrival_s=self.arrivals[i],
                    weight=spec.weight,
                    deadline_s=spec.deadline_s,
                ),
                checkpoints=i not in self.unsaved,
            )
            for i, spec in enumerate(self.specs)
        ]
        simulation = Simulation(
            cluster=self.cluster,
            jobs=jobs,
            profiles=self.profiles,
            table=self.table,
            policy=make_policy(self.choice.name, self.choice.parameters),
            settings=self.settings.engine,
            overheads=Overheads(),
            failures=FailureModel(),
        )
        simulation.log = []
        simulation.run()
        return simulation.log

    @staticmethod
    def difference(live, simulated):
        """Return the first difference of the two logs, or None."""
        for i, (one, other) in enumerate(zip(live, simulated, strict=False)):
            if encode(one) != encode(other):
                return i, one, other
        if len(live) != len(simulated):
            return min(len(live), len(simulated)), len(live), len(simulated)
        return None


@pytest.fixture
def case(tmp_path):
    """Return a function that composes a comparison."""

    def compose(
        policy,
        *,
        jobs=40,
        pace=10.0,
        space_sharing=False,
        round_length_s=360.0,
        manners=None,
        **parameters,
    ):
        return Case(
            tmp_path,
            policy,
            jobs=jobs,
            pace=pace,
            space_sharing=space_sharing,
            round_length_s=round_length_s,
            parameters=parameters,
            manners=manners or {},
        )

    return compose
