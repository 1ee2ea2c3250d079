"""Jobs with a changing batch, over a restart of the service."""

from dataclasses import replace

from leasehold_testing.played import configured, played, reported
from scheduler.domain.lease_life import LeasePhase
from scheduler.domain.throughputs.knowledge import Part
from scheduler.protocol.learning import Learning

BATCH = {"initial": 32, "most": 4096, "most_per_worker": 1024}
JOB = {
    "job_type": "t",
    "throughputs": {},
    "total_steps": 1e9,
    "scale_factor": [1, 2, 3],
    "batch": BATCH,
}
FOUR_WORKERS = {"n0": ("v100",) * 4}


def measured(noise):
    """Return what nodes report for jobs of these noise scales, which take a second for a step."""

    def told(made, _now_s):
        if made.state is not LeasePhase.RUNNING or made.job_id not in noise:
            return made
        times = tuple((n, 32.0, 1.0, 1.1) for n in (1, 2, 3))
        found = Learning(noise_scale_samples=noise[made.job_id], batch_samples=64, step_times=times)
        return replace(made, learning=found)

    return told


def test_the_next_leader_knows_jobs_by_their_profiles_and_what_they_have_measured():
    async def story(stage):
        await reported(measured({"a": 1e5, "b": 1.0}))(stage)
        await stage.job("a", **JOB)
        await stage.job("b", **JOB)
        await stage.wait(130)
        known = stage.state.knowledge
        before = {part: known.dump(part) for part in (Part.BATCHES, Part.PROFILES)}
        assert [noise for _, noise in before[Part.BATCHES]["noise"]] == [1e5, 1.0]
        held = {job: len(workers) for job, workers, *_ in stage.leases()[-2:]}
        await stage.crash()
        await stage.start()
        records = stage.state.jobs.by_id
        rows = stage.state.engine.jobs
        for job_id, number in rows.number_of.items():
            assert int(rows["profile"][rows.row_of(number)]) == records[job_id].profile
        assert {part: stage.state.knowledge.dump(part) for part in before} == before
        await stage.wait(130)
        return held, {job: len(workers) for job, workers, *_ in stage.leases()[-2:]}

    held, later = played(story, configured({"policy.name": "goodput"}), nodes=FOUR_WORKERS)
    assert held == later
