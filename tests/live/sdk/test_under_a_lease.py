"""Real processes with the SDK: notices, preemptions, gangs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

JOBS = Path(__file__).resolve().parents[3] / "examples" / "jobs"
NUMPY = [str(JOBS / "numpy_training.py")]

MEMBER = """
import random, sys, time
from leasehold import LeaseIterator
rank, synchronous, folder = int(sys.argv[1]), sys.argv[2] == "synchronous", sys.argv[3]
mine, other = open(f"{folder}/at-{rank}", "w"), f"{folder}/at-{1 - rank}"
steps = LeaseIterator(range(10**6), save=lambda folder: None, load=lambda folder: None,
                      total_steps=int(sys.argv[4]))
random.seed(rank)
for step in steps:
    mine.write("x"); mine.flush()
    if synchronous:  # as in a collective operation: nobody ends a step before all have begun it
        import os
        while not os.path.exists(other) or os.path.getsize(other) < steps.step + 1:
            time.sleep(0.0005)
    else:
        time.sleep(random.random() * 0.01 * (1 + rank))
"""


LEARNER = """
import time
from leasehold import AdaptiveBatches, LeaseIterator
from leasehold.adaptive import StepMeasurement
from leasehold.gradient_noise import GradientNorms
batches = AdaptiveBatches(total=1000)
norms = GradientNorms(small_sqr=2.0 + 64.0, large_sqr=2.0 + 32.0, small=32.0, large=64.0)
for _ in LeaseIterator(batches, total_steps=10**6, save=lambda folder: None):
    time.sleep(0.01)  # stands for the work of a step
    batches.record(
        StepMeasurement(pass_s=0.01, last_pass_s=0.02, norms=norms, next_size=batches.size)
    )
"""


def test_what_a_job_whose_batch_may_change_has_measured_arrives(host, monkeypatch):
    monkeypatch.setenv("LEASEHOLD_BATCH", '{"initial": 64, "most": 512, "most_per_worker": 32}')
    lease = host.lease(1)
    job = host.start(["-c", LEARNER], lease)
    host.until(lambda: lease.learning is not None)
    host.notify(lease)
    assert job.wait(10) == 75
    host.until(lambda: lease.learning.noise_scale_samples is not None)
    assert lease.learning.noise_scale_samples == pytest.approx(1024.0, rel=1e-3)
    assert lease.learning.batch_samples == 64
    assert lease.learning.step_times == ((1, 32.0, 0.01, 0.02),)


def test_progress_arrives_and_a_notice_is_obeyed_at_once(host):
    lease = host.lease(1)
    job = host.start(NUMPY, lease, total_steps=100_000)
    host.until(lambda: lease.steps_live > 20)
    host.notify(lease)
    assert job.wait(10) == 75
    host.until(lambda: lease.steps_done == lease.steps_live)
    assert lease.steps_done > 20


FORKS = """
import multiprocessing, os, signal, sys, time
from leasehold import LeaseIterator

def sockets():
    links = (f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith("socket:") for link in links if os.path.exists(link))

def child(answers):
    answers.put((sockets(), signal.getsignal(signal.SIGTERM) is signal.SIG_DFL))
    time.sleep(60)

context = multiprocessing.get_context("fork")
for step in LeaseIterator(range(3), report_every_s=0.01):
    time.sleep(0.2)
    if step == 1:
        before, answers = sockets(), context.SimpleQueue()
        process = context.Process(target=child, args=(answers,))
        process.start()
        told = answers.get()
        process.terminate()
        process.join(10)
        print(before, *told, process.exitcode, flush=True)
        if not os.fork():
            sys.exit(3)  # it ends the loop as its parent would
        print(os.wait()[1] >> 8, flush=True)
reading, writing = os.pipe()  # the numbers of what the channel has closed
if not os.fork():
    os.write(writing, b"x")
    os._exit(0)
os.wait()
print(os.read(reading, 1).decode(), flush=True)
"""
BEGUN_IN_A_CHILD = """
import os
from leasehold import LeaseIterator
steps = LeaseIterator(range(3), report_every_s=0.01)
if not os.fork():
    for step in steps:
        pass
    os._exit(0)
os.wait()
"""


def test_a_forked_child_has_neither_the_handler_nor_the_connection(host):
    """Data loaders' workers are ended by SIGTERM."""
    lease = host.lease(1)
    job = host.start(["-c", FORKS], lease)
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 0
    assert output.splitlines() == ["1 0 True -15", "3", "x"]
    host.until(lambda: lease.steps_live == 3)


def test_an_iterator_that_begins_in_a_forked_child_reports_from_there(host):
    lease = host.lease(1)
    job = host.start(["-c", BEGUN_IN_A_CHILD], lease)
    job.communicate(timeout=60)
    assert job.returncode == 0
    host.until(lambda: lease.steps_live == 3)


def test_every_step_counts_once_across_preemptions_and_the_result_is_the_same(host):
    whole = subprocess.run(
        [sys.executable, *NUMPY, "--steps", "600", "--step-s", "0"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()[-1]
    assert "600 steps, each once: True" in whole
    ends, output = [], ""
    for attempt in range(1, 9):
        lease = host.lease(attempt)
        job = host.start([*NUMPY, "--step-s", "0.004"], lease, total_steps=600)
        if attempt <= 3:
            host.until(lambda lease=lease: lease.writers)
            begun = lease.steps_live
            if attempt < 3:  # reports come every second, so some 200 steps each
                host.until(lambda lease=lease, begun=begun: lease.steps_live > begun)
            if attempt == 2:
                job.send_signal(signal.SIGTERM)
            else:
                host.notify(lease)
        output, _ = job.communicate(timeout=20)
        ends.append((job.returncode, lease.steps_done))
        if job.returncode == 0:
            break
    assert [code for code, _ in ends] == [75, 75, 75, 0]
    assert output.splitlines()[-1] == whole
    assert ends[-1][1] == 600
    counts = [steps for _, steps in ends]
    assert counts == sorted(counts)


def test_an_agent_that_is_away_finds_the_steps_in_the_file(host):
    lease = host.lease(1)
    host.call(host.endpoint.close())
    job = host.start(NUMPY, lease, total_steps=100_000)
    host.until(lambda: list((host.folder / "checkpoints").glob("step-*")))
    (host.folder / "notice.json").write_text("{}")
    assert job.wait(10) == 75
    steps = json.loads((host.folder / "progress.json").read_text())
    newest = max((host.folder / "checkpoints").glob("step-*"))
    assert steps["steps_done"] == int(newest.name[5:]) > 0


def test_an_agent_that_comes_back_is_told_the_steps_again(host):
    lease = host.lease(1)
    host.start(NUMPY, lease, total_steps=100_000)
    host.until(lambda: lease.steps_live > 0)
    host.call(host.endpoint.close())
    again = host.lease(1)
    host.call(host.endpoint.open())
    host.until(lambda: again.steps_live > 0)


def test_the_plain_script_goes_on_where_it_was(host):
    script, lease = [str(JOBS / "plain_script.py"), "80"], host.lease(1)
    job = host.start(script, lease)
    assert job.stdout.readline() == "from step 0\n"
    job.send_signal(signal.SIGTERM)
    output, _ = job.communicate(timeout=10)
    assert job.returncode == 75
    at = re.match(r"at step (\d+)", output)[1]
    output, _ = host.start(script, lease).communicate(timeout=10)
    assert output == f"from step {at}\nat step 80\n"


@pytest.mark.parametrize("kind", ["synchronous", "loose"])
@pytest.mark.parametrize("told", [0, 1])
def test_a_gang_stops_on_the_same_step_whoever_hears_of_it_first(host, kind, told):
    gang = _gang(host, host.lease(1), kind, 10**6)
    marks = [host.folder / f"at-{r}" for r in (0, 1)]
    host.until(lambda: all(m.exists() and m.stat().st_size > 20 for m in marks))
    os.kill(gang[told].pid, signal.SIGTERM)  # only one of them hears of it
    assert [job.wait(15) for job in gang] == [75, 75]
    steps = [m.stat().st_size for m in marks]
    newest = max((host.folder / "checkpoints").glob("step-*"))
    assert steps[0] == steps[1] == int(newest.name[5:])


def test_a_gang_that_is_nearly_done_leaves_as_one_or_finishes_as_one(host):
    lease = host.lease(1)
    gang = _gang(host, lease, "loose", 40)
    mark = host.folder / "at-0"
    host.until(lambda: mark.exists() and mark.stat().st_size > 36)
    host.notify(lease)
    codes = [job.wait(15) for job in gang]
    assert codes in ([0, 0], [75, 75])


def _gang(host, lease, kind, total_steps):
    return [
        host.start(
            ["-c", MEMBER, str(rank), kind, str(host.folder), str(total_steps)],
            lease,
            rank=rank,
            world_size=2,
        )
        for rank in (0, 1)
    ]
