"""Refusals of the engine: malformed facts, jobs that can never run, settings, broken state."""

import math

import numpy as np
import pytest

from policies.testing import make_table
from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.lease import Leases
from scheduler.domain.lease_life import EndReason
from scheduler.engine.settings import EngineSettings
from scheduler.engine.tables.jobs import NONE
from scheduler.errors import InputError, InvariantError, ParameterError


@pytest.mark.parametrize("now", [4.0, math.nan, math.inf])
def test_time_does_not_run_backwards(start, now):
    shell = start()
    shell.run(until_s=5.0)
    shell.tell()
    shell.engine.handle(now=5.0)
    with pytest.raises(InputError, match="it must not be before the last call at 5"):
        shell.engine.handle(now=now)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (ev.WeightChanged(job_id="a", weight=0.0), "weight of job 'a' is 0.0; it must be > 0"),
        (ev.WeightChanged(job_id="a", weight=math.nan), "weight of job 'a' is nan"),
        (ev.WorkersLost(workers=(2,)), "worker 2 does not exist; workers are numbered 0 to 1"),
        (ev.WorkersReturned(workers=(0, -1)), "worker -1 does not exist"),
        (
            ev.LeaseEnded(lease_id=1, reason=EndReason.RELEASED, steps_done=math.nan),
            "lease 1 ended with nan steps done",
        ),
        (
            ev.ProgressReported(lease_ids=np.array([1, 2]), steps_done=np.array([1.0])),
            "progress names 2 leases and 1 step counts",
        ),
        (
            ev.ConfigurationsChanged(table=make_table([[1.0, 1.0]])),
            "table is about type-0, type-1, the cluster has type-0",
        ),
        (
            ev.ConfigurationsChanged(table=make_table([[1.0]], scale_factor=[2])),
            r"profile 0 \('profile-0' at scale factor 1\) has moved or is missing",
        ),
    ],
)
def test_a_malformed_fact_changes_nothing_not_even_what_came_with_it(start, job, event, message):
    shell = start()
    shell.submit(job("a"))
    before = shell.engine.jobs["weight"].tolist(), shell.engine.in_service.tolist()
    with pytest.raises(InputError, match=message):
        shell.engine.handle(ev.JobSubmitted(job=job("b"), profile=0), event, now=50.0)
    assert list(shell.engine.jobs.number_of) == ["a"]
    assert before == (shell.engine.jobs["weight"].tolist(), shell.engine.in_service.tolist())
    shell.engine.handle(now=1.0)  # the clock has not moved either
    shell.engine.check_invariants()


@pytest.mark.parametrize(
    ("profile", "scale_factor", "reason"),
    [
        (2, 1, "zero throughput on every worker type (type-0)"),
        (2, 3, "needs at least 3 workers of one type, more than the cluster has (type-0: 2)"),
        (1, 4, "needs at least 4 workers of one type, more than the cluster has (type-0: 2)"),
        (3, 1, "profile 3 is not in the configuration table (it has 3)"),
        (-1, 1, "profile -1 is not in the configuration table"),
    ],
)
def test_a_job_that_can_never_run_is_refused_with_the_reason(
    start, job, profile, scale_factor, reason
):
    shell = start(rates=[[1.0], [1.0], [0.0]], gangs=[1, 4, 1])
    shell.submit(job("a", scale_factor=scale_factor), profile=profile)
    record = shell.history(do.RecordEvent)[-1][1]
    assert (record.kind, record.subject) == ("job_refused", "a")
    assert reason in record.data["reason"]
    assert not len(shell.engine.jobs)
    assert shell.timers == {}


def test_workers_out_of_service_do_not_refuse_a_job(start, job):
    shell = start()
    shell.tell(ev.WorkersLost(workers=(0, 1)))
    shell.submit(job("a", 10.0))
    shell.run(until_s=500.0)
    assert shell.running() == {}
    shell.tell(ev.WorkersReturned(workers=(1,)))
    shell.run_until_idle(at_most_s=10.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"round_length_s": 0.0}, r"round_length_s is 0\.0; it must be > 0"),
        ({"round_length_s": math.inf}, "round_length_s is inf"),
        ({"plan_lead_s": 360.0}, r"plan_lead_s is 360\.0; .* shorter than the round of 360"),
        ({"plan_lead_s": -1.0}, r"plan_lead_s is -1\.0"),
        ({"refresh_rounds": 0}, "refresh_rounds is 0; it must be >= 1"),
        ({"keep_bonus": -0.5}, r"keep_bonus is -0\.5; it must be >= 0"),
        ({"solve_grace_s": -1.0}, r"solve_grace_s is -1\.0"),
        ({"retry_backoff_s": math.nan}, "retry_backoff_s is nan"),
    ],
)
def test_settings_under_which_rounds_make_no_sense_are_refused(values, message):
    with pytest.raises(ParameterError, match=message):
        EngineSettings(**values)


def _second_lease(engine):
    engine.book.on_worker[1].append(1)


def _forgotten_lease(engine):
    engine.jobs["lease"][0] = NONE
    engine.jobs["status"][0] = 0


def _stray_sharing(engine):
    lease = engine.book.leases[2]
    engine.book.end((2,))
    object.__setattr__(lease, "workers", (0,))
    engine.book.add(Leases.of(lease))


def _lost_worker(engine):
    engine.in_service[0] = False


def _no_round(engine):
    engine.state.round_end_s = None


def _too_many_steps(engine):
    engine.jobs["steps_done"][0] = 1e9


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (_second_lease, "lease book: workers know their leases"),
        (_forgotten_lease, "jobs hold leases"),
        (_stray_sharing, "share a worker but are no pair"),
        (_lost_worker, "lease 1 holds a worker that is out of service"),
        (_no_round, "leases are in force, but no round runs"),
        (_too_many_steps, "job table: steps done stay within the total"),
    ],
)
def test_a_contradiction_in_the_state_is_found(start, job, break_it, message):
    shell = start()
    shell.submit(job("a"))
    shell.submit(job("b"))
    break_it(shell.engine)
    with pytest.raises(InvariantError, match=message):
        shell.engine.check_invariants()
