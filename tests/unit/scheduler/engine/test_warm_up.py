"""The warm-up compiles everything that decisions need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]

#: In a process of its own: kernels that others have called are compiled already.
PROGRAM = """
from scheduler.engine.placement import kernels as placement
from scheduler.engine.rounds import kernels as rounds
from scheduler.engine.tables import kernels as tables
from scheduler.engine.warm_up import warm_up
from simulator.api import read_trace, simulate

def compiled():
    kernels = vars(placement) | vars(rounds) | vars(tables)
    found = {name: f for name, f in kernels.items() if hasattr(f, "signatures")}
    return {(name, str(s)) for name, f in found.items() if name[0] != "_" for s in f.signatures}

warm_up()
before = compiled()
trace = read_trace("bundled:small")
for policy in ("fifo", "max_min_fairness", "max_min_fairness+packed", "least_remaining_work"):
    simulate(trace, policy=policy, throughputs="bundled", cluster="v100:4,a100:2,t4:4")
late = compiled() - before
assert not late, late
print(sorted({name for name, _ in before}))
"""


def test_no_kernel_is_compiled_while_rounds_are_planned() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    names = "choose_entitled choose_leftover choose_staying choose_workers count_types"
    names += " find_wait_reasons group_alike price_bound search_core swap_equals"
    assert ran.stdout.strip() == str(names.split())
