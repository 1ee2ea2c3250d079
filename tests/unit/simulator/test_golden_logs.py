"""Replays, decision by decision, as they were when the files were written.

A change of structure leaves ``golden/`` as it is. One that decides otherwise writes it again
(LEASEHOLD_GOLDEN=write) and says why.
"""

from pathlib import Path

import pytest

from leasehold_testing.transcript import check_golden, transcript
from planner.oracle import build_table
from policies.registry import make_policy
from scheduler.domain.throughputs.ways import CatalogueKey
from scheduler.engine.settings import EngineSettings
from simulator.simulation import Simulation
from simulator.world.failures import FailureModel
from simulator.world.overheads import Overheads
from traces.cluster import read_cluster
from traces.reader import read_trace
from traces.tables.throughputs import read_throughputs

GOLDEN = Path(__file__).parent / "golden"
CASES = {
    "fifo": {},
    "max_min_fairness": {},
    "least_remaining_work-packed": {"space_sharing": True},
    "max_min_fairness-failures": {"failures": FailureModel(mtbf_s=1e6, repair_s=1800.0)},
}


@pytest.mark.parametrize("name", CASES)
def test_a_replay_is_as_the_golden_file_shows(name):
    throughputs = read_throughputs("bundled")
    trace = read_trace("bundled:small", throughputs=throughputs, seed=0, limit=24)
    kinds = sorted({(job.job_type, job.scale_factor) for job in trace.jobs})
    keys = [CatalogueKey(job_type=name, scale_factors=(count,)) for name, count in kinds]
    options = {"space_sharing": False, "failures": FailureModel()} | CASES[name]
    cluster = read_cluster("bundled:cluster")
    simulation = Simulation(
        cluster=cluster,
        jobs=[job.engine_job() for job in trace.jobs],
        profiles=[kinds.index((job.job_type, job.scale_factor)) for job in trace.jobs],
        table=build_table(cluster, throughputs, keys, space_sharing=options["space_sharing"]),
        policy=make_policy(name.partition("-")[0], {}),
        settings=EngineSettings(),
        overheads=Overheads(),
        failures=options["failures"],
        seed=3,
    )
    simulation.log = []
    simulation.run()
    check_golden(GOLDEN / f"{name}.txt", transcript(simulation.log))
