"""Same inputs and seed: the same result in every field, in every process."""

import os
import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from simulator.request import SimulationRequest
from simulator.result import Summary
from simulator.run import simulate
from traces.bundle import bundled

if TYPE_CHECKING:
    from simulator.progress import Progress

FAILURES = "mtbf_s: 40000\nrepair_s: 900\nstraggler_share: 0.2\njob_mtbf_s: 60000\n"


@pytest.fixture
def request_with_faults(tmp_path):
    path = tmp_path / "failures.yaml"
    path.write_text(FAILURES)
    return SimulationRequest(
        trace=str(bundled("small")),
        throughputs=str(bundled("throughputs")),
        cluster=str(bundled("cluster")),
        policy="max_min_fairness",
        space_sharing=True,
        overheads="default",
        failures=str(path),
        seed=7,
        limit=40,
        record=True,
    )


def flat(value):
    """Turn a result into plain values, without the figures that are timings."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value):
        skipped = value.TIMINGS if isinstance(value, Summary) else ()
        return {
            f.name: flat(getattr(value, f.name)) for f in fields(value) if f.name not in skipped
        }
    if isinstance(value, tuple):
        return [flat(item) for item in value]
    return value


def test_two_runs_agree_in_every_field(request_with_faults):
    first, second = flat(simulate(request_with_faults)), flat(simulate(request_with_faults))
    assert first == second
    assert any(lease["reason"] == "lost" for lease in first["leases"])
    assert first["summary"]["jobs_completed"] == first["summary"]["jobs"] == 40


def test_another_seed_draws_other_failures(request_with_faults):
    first = simulate(request_with_faults)
    second = simulate(replace(request_with_faults, seed=8))
    assert flat(first.leases) != flat(second.leases)


def test_recording_changes_nothing_but_what_is_kept(request_with_faults):
    kept = simulate(request_with_faults)
    dropped = simulate(replace(request_with_faults, record=False))
    assert flat(kept.summary) == flat(dropped.summary)
    assert flat(kept.jobs) == flat(dropped.jobs)
    assert dropped.leases == ()
    assert len(dropped.series.time_s) == len(dropped.allocations.time_s) == 0


def test_processes_with_other_hash_seeds_agree(request_with_faults):
    script = (
        "import pickle, sys; from simulator.run import simulate\n"
        "result = simulate(pickle.loads(bytes.fromhex(sys.stdin.read())))\n"
        "print(result.summary.to_dict(timings=False), result.jobs, result.leases)\n"
    )
    import pickle

    text = pickle.dumps(request_with_faults).hex()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (process.communicate(text, timeout=120)[0] for process in processes)
    assert len(first) > 1000
    assert first == second


def test_progress_grows_to_all_jobs(request_with_faults):
    seen: list[Progress] = []
    simulate(replace(request_with_faults, record=False), seen.append)
    assert len(seen) > 1
    assert [p.jobs_done for p in seen] == sorted(p.jobs_done for p in seen)
    assert [p.now_s for p in seen] == sorted(p.now_s for p in seen)
    assert seen[-1].jobs_done == seen[-1].jobs == 40
