"""Remarks of a run beside its figures: failing policies, refused jobs, inputs that cannot be."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from policies.base import Policy
from scheduler.domain.allocation import Allocation
from scheduler.domain.cluster import parse_cluster_spec
from scheduler.domain.configuration import Configuration, ConfigurationTable, Profile
from scheduler.domain.jobs.job import Job
from scheduler.engine.settings import EngineSettings
from scheduler.errors import InputError, LeaseholdError, ParameterError, SolveError
from simulator.remarks import Remarks
from simulator.request import SimulationRequest
from simulator.run import simulate
from simulator.simulation import Simulation
from simulator.world.failures import FailureModel
from simulator.world.overheads import Overheads


@dataclass(frozen=True, kw_only=True)
class Moody(Policy):
    """Fails from its n-th question on, with the given error."""

    name: ClassVar[str] = "moody"
    good: int = 0
    error: type[Exception] = SolveError

    def allocate(self, problem):
        calls = self.__dict__.setdefault("calls", [])
        calls.append(1)
        if len(calls) > self.good:
            raise self.error("no idea")
        return Allocation.singles(np.zeros((problem.jobs, 1)))


def run(policy, *, gangs=(1, 1)):
    profiles = tuple(
        Profile(
            job_type="a",
            scale_factor=gang,
            configurations=(Configuration(demand=(gang,), throughput=1.0),),
        )
        for gang in gangs
    )
    jobs = [
        Job(job_id=str(i), job_type="a", total_steps=100.0, scale_factor=gang, arrival_s=10.0 * i)
        for i, gang in enumerate(gangs)
    ]
    simulation = Simulation(
        cluster=parse_cluster_spec("t4:2"),
        jobs=jobs,
        profiles=range(len(gangs)),
        table=ConfigurationTable.build(("t4",), profiles),
        policy=policy,
        settings=EngineSettings(),
        overheads=Overheads(),
        failures=FailureModel(),
    )
    return simulation.run()


def test_a_policy_that_cannot_answer_at_all_ends_the_run_and_is_named():
    with pytest.raises(LeaseholdError, match="policy 'moody' could not answer its first question"):
        run(Moody())


def test_a_policy_that_fails_later_leaves_a_warning_with_counts():
    result = run(Moody(good=1))
    assert result.summary.jobs_completed == 2
    (warning,) = result.warnings
    assert "failed in" in warning
    assert "no idea" in warning


def test_any_other_error_of_a_policy_names_the_policy():
    with pytest.raises(LeaseholdError, match="at 0 s, policy 'moody' failed with ValueError"):
        run(Moody(error=ValueError))


def even(problem):
    return Allocation.singles(np.full(problem.throughput.shape, 0.5))


@dataclass(frozen=True, kw_only=True)
class Strange(Policy):
    """Changes an allocation to something else, from the n-th question on."""

    name: ClassVar[str] = "strange"
    change: Callable[[Allocation], object]
    good: int = 0

    def allocate(self, problem):
        calls = self.__dict__.setdefault("calls", [])
        calls.append(1)
        return even(problem) if len(calls) <= self.good else self.change(even(problem))


@pytest.mark.parametrize(("change", "said"), [
    (lambda _: None, "its answer is a NoneType and not an Allocation"),
    (lambda answer: answer.x, "its answer is a ndarray and not an Allocation"),
    (lambda answer: replace(answer, x=answer.x.tolist()), "field x of its answer is a list"),
    (lambda answer: replace(answer, x=answer.x[:, 0]), r"its answer has the shape \(\d,\)"),
    (lambda answer: replace(answer, x=answer.x * np.nan), "fractions that are not numbers"),
    (lambda answer: replace(answer, x=answer.x * 9), "more than all"),
])  # fmt: skip
def test_an_answer_that_cannot_be_used_is_no_answer(change, said):
    with pytest.raises(LeaseholdError, match=f"could not answer its first question: .*{said}"):
        run(Strange(change=change))
    (warning,) = run(Strange(change=change, good=1)).warnings
    assert re.search(f"failed in .* solves.*{said}", warning)


def test_a_refused_job_is_told_with_its_reason():
    result = run(Moody(good=9), gangs=(1, 4))
    assert [job.status for job in result.jobs] == ["completed", "refused"]
    assert "job '1' was refused: job '1'" in result.warnings[0]


def test_limits_of_a_project_without_jobs_are_remarked_upon():
    remarks = Remarks()
    remarks.projects(["vison", "nlp"], ["vision", "nlp", "nlp"])
    assert remarks.sentences("fifo", 1) == (
        "no job of the trace is project 'vison's, which has limits; its projects are nlp, vision",
    )


def test_a_worker_type_that_the_table_lacks_is_refused():
    request = SimulationRequest(
        trace="bundled", throughputs="bundled", cluster="foo:4", policy="fifo"
    )
    with pytest.raises(InputError, match="worker type 'foo' of the cluster is not in the"):
        simulate(request)


def test_a_negative_seed_is_refused():
    with pytest.raises(ParameterError, match="seed is -1"):
        SimulationRequest(trace="t", throughputs="t", cluster="c", policy="fifo", seed=-1)
