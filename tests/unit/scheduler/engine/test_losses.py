"""Jobs that lose leases again and again, and jobs that kill agents."""

import zlib

import orjson
import pytest

from scheduler.domain.facts import commands as do
from scheduler.domain.facts import events as ev
from scheduler.domain.lease_life import EndReason
from scheduler.engine.snapshot import decode_state, dump, encode_state, restore
from scheduler.engine.tables.jobs import HELD, RUNNING
from scheduler.errors import ParameterError


def column(shell, name, job_id="a"):
    jobs = shell.engine.jobs
    return int(jobs[name][jobs.row_of(jobs.number_of[job_id])])


def newest(shell):
    return shell.history(do.GrantLease)[-1][1].lease.lease_id


def lines(shell, kind):
    return [entry.data for _, entry in shell.history(do.RecordEvent) if entry.kind == kind]


def test_one_loss_costs_no_wait_and_each_further_one_in_a_row_twice_the_last(start, job):
    shell = start(settings={"retry_backoff_s": 30.0})
    shell.submit(job("a"))
    for wait_s in (0.0, 30.0, 60.0, 120.0, 240.0, 480.0, 480.0):
        shell.end(newest(shell), EndReason.LOST)
        shell.run(until_s=shell.now + max(wait_s - 0.1, 0.0))
        assert (shell.running() == {}) is (wait_s > 0)
        shell.run(until_s=shell.now + 0.1)
        assert set(shell.running()) == {"a"}
    assert [line.get("losses") for line in lines(shell, "job_interrupted")] == [None, *range(2, 8)]


@pytest.mark.parametrize("got_on", ["saved", "ran", "never ran"])
def test_a_job_that_has_got_on_counts_anew(start, job, got_on):
    shell = start(settings={"retry_backoff_s": 1000.0})
    shell.submit(job("a"))
    for number in (1.0, 2.0, 3.0) if got_on != "never ran" else (1.0, 2.0):
        lease_id = newest(shell)
        end = {"lease_id": lease_id, "reason": EndReason.LOST, "steps_done": 0.0, "ran_s": 0.0}
        if got_on == "saved":
            end["steps_done"] = number
        else:
            shell.run(until_s=shell.now + 61.0)
            end["ran_s"] = None if got_on == "ran" else 0.0
        shell.executions.pop(lease_id)
        shell.tell(ev.LeaseEnded(**end))
    assert column(shell, "losses") == (2 if got_on == "never ran" else 1)
    assert (column(shell, "status") == RUNNING) is (got_on != "never ran")


def leave(shell, *, steps_done=0.0, ran_s=0.1):
    lease_id = newest(shell)
    shell.executions.pop(lease_id)
    end = {"reason": EndReason.RELEASED, "steps_done": steps_done, "ran_s": ran_s, "left": True}
    shell.tell(ev.LeaseEnded(lease_id=lease_id, **end))


def test_a_job_that_leaves_at_once_waits_longer_each_time(start, job):
    shell = start(settings={"retry_backoff_s": 30.0})
    shell.submit(job("a"))
    for wait_s in (0.0, 30.0, 60.0, 120.0, 240.0, 480.0, 480.0):
        leave(shell)
        shell.run(until_s=shell.now + max(wait_s - 0.1, 0.0))
        assert (shell.running() == {}) is (wait_s > 0)
        shell.run(until_s=shell.now + 0.1)
        assert set(shell.running()) == {"a"}
    told = lines(shell, "job_interrupted")
    assert [line.get("losses") for line in told] == [None, *range(2, 8)]
    assert {line["left"] for line in told} == {True}
    assert not lines(shell, "job_preempted")


@pytest.mark.parametrize("progress", [{"ran_s": 3600.0}, {"steps_done": 1.0}])
def test_a_job_that_leaves_after_work_runs_again_at_once(start, job, progress):
    shell = start(settings={"retry_backoff_s": 1000.0})
    shell.submit(job("a"))
    for number in range(1, 4):
        leave(shell, **{name: value * number for name, value in progress.items()})
        assert set(shell.running()) == {"a"}


def test_waits_after_failures_have_a_bound(start, job):
    shell = start(settings={"retry_backoff_s": 30.0})
    shell.submit(job("a", max_failures=50))
    for _ in range(40):
        shell.end(newest(shell), EndReason.FAILED)
        shell.run(until_s=shell.now + 480.1)
        assert set(shell.running()) == {"a"}


@pytest.mark.parametrize(
    ("hours", "saves", "ends"), [(2, True, False), (0.5, True, True), (2, False, True)]
)
def test_work_that_was_saved_since_forgives_failures(start, job, hours, saves, ends):
    """A job that fails each time at the same point has made no progress, so that it ends."""
    shell = start(settings={"retry_backoff_s": 1.0})
    shell.submit(job("a", max_failures=2, total_steps=1e9))
    for number in range(1, 7):
        shell.run(until_s=shell.now + hours * 3600.0)
        if shell.ended:
            break
        lease_id = newest(shell)
        shell.executions.pop(lease_id)
        steps = float(number if saves else 0)
        failed = {"reason": EndReason.FAILED, "steps_done": steps}
        shell.tell(ev.LeaseEnded(lease_id=lease_id, **failed))
    assert shell.ended == ({"a": "job_failed"} if ends else {})
    assert number == (3 + 1 if ends else 6)


def test_a_failure_is_no_loss(start, job):
    shell = start(settings={"retry_backoff_s": 0.0})
    shell.submit(job("a"))
    shell.end(newest(shell), EndReason.LOST)
    shell.end(newest(shell), EndReason.FAILED)
    assert (column(shell, "losses"), column(shell, "failures")) == (0, 1)


def test_a_job_that_two_agents_died_of_is_held_with_a_reason_until_it_is_released(start, job):
    shell = start()
    shell.submit(job("a"))
    shell.submit(job("b"))
    shell.tell(ev.AgentDied(node="n1", job_ids=("a", "nobody")))
    assert set(shell.running()) == {"a", "b"}
    shell.tell(ev.AgentDied(node="n2", job_ids=("a",)))
    assert set(shell.running()) == {"b"}
    assert column(shell, "status") == HELD
    (line,) = lines(shell, "job_held")
    assert "2 agents in a row died" in line["reason"]
    assert "'n2'" in line["reason"]
    assert "release it" in line["reason"]
    shell.tell(ev.JobReleased(job_id="a"))
    shell.tell(ev.AgentDied(node="n1", job_ids=("a",)))
    assert set(shell.running()) == {"a", "b"}


def test_a_job_that_gets_on_between_two_deaths_is_not_held(start, job):
    shell = start()
    shell.submit(job("a"))
    for node in ("n1", "n2", "n3"):
        shell.tell(ev.AgentDied(node=node, job_ids=("a",)))
        shell.run(until_s=shell.now + 61.0)
        shell.end(newest(shell), EndReason.LOST)
    assert set(shell.running()) == {"a"}


@pytest.mark.parametrize(("most", "held"), [(0, False), (1, True)])
def test_how_many_deaths_hold_a_job_is_a_setting(start, job, most, held):
    shell = start(settings={"hold_after_deaths": most})
    shell.submit(job("a"))
    shell.tell(ev.AgentDied(node="n1", job_ids=("a",)))
    assert (column(shell, "status") == HELD) is held
    with pytest.raises(ParameterError, match="hold_after_deaths is -1"):
        start(settings={"hold_after_deaths": -1})


def test_a_snapshot_of_the_release_before_has_no_losses(start, job):
    shell = start()
    shell.submit(job("a"))
    shell.end(newest(shell), EndReason.LOST)
    head, _, body = encode_state(dump(shell.engine)).partition(b"\n")
    stored = orjson.loads(zlib.decompress(body))
    assert b"losses" in orjson.dumps(stored)
    for name in ("losses", "deaths", "steps_safe"):
        _drop(stored, name)
    assert b"losses" not in orjson.dumps(stored)
    old = head + b"\n" + zlib.compress(orjson.dumps(stored))
    engine = restore(decode_state(old), shell.engine.settings)
    assert engine.jobs["losses"].tolist() == [0]
    assert engine.jobs["attempts"].tolist() == shell.engine.jobs["attempts"].tolist()
    engine.check_invariants()


def _drop(value, name):
    """Take an entry out of every mapping in a decoded JSON value."""
    if isinstance(value, dict):
        value.pop(name, None)
        for item in value.values():
            _drop(item, name)
    elif isinstance(value, list):
        value[:] = [v for v in value if not (isinstance(v, list) and v and v[0] == name)]
        for item in value:
            _drop(item, name)


@pytest.mark.parametrize("reason", [EndReason.LOST, EndReason.FAILED])
def test_a_count_beyond_what_a_float_doubles_to_ends_nothing(start, job, reason):
    shell = start(settings={"retry_backoff_s": 0.0})
    shell.submit(job("a", max_failures=10_000))
    for _ in range(1100):
        shell.end(newest(shell), reason)
    assert set(shell.running()) == {"a"}
