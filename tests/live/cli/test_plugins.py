"""Plugins that print, end the program, or have a name that is taken, on the command line."""

from __future__ import annotations

import json

import pytest

TRACE = "job_id,job_type,total_steps,scale_factor,arrival_s\na,A,3600,1,0\n"
THROUGHPUTS = "job_type,scale_factor,worker_type,steps_per_s\nA,1,fast,4\n"
POLICY = """\
import sys
from dataclasses import dataclass
from typing import ClassVar

from policies.built_in.fifo import Fifo

print("imported")


@dataclass(frozen=True, kw_only=True)
class Odd(Fifo):
    name: ClassVar[str] = "odd"
    ends: bool = False

    def allocate(self, problem):
        print("asked")
        if self.ends:
            sys.exit(3)
        return super().allocate(problem)
"""


@pytest.fixture
def replay(leasehold, plugged, tmp_path):
    plugged(POLICY, "Odd", "odd")
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "throughputs.csv").write_text(THROUGHPUTS)
    files = ("trace.csv", "--throughputs", "throughputs.csv", "--cluster", "fast:1")
    return lambda *more: leasehold("simulate", *files, "--policy", "odd", *more)


def test_what_a_policy_prints_is_no_part_of_the_json(replay):
    ran = replay("--json")
    assert ran.code == 0
    assert json.loads(ran.out)["jobs_completed"] == 1
    assert "imported" in ran.err
    assert "asked" in ran.err


def test_nor_if_it_is_asked_in_a_process_of_its_own(replay, leasehold):
    files = ("trace.csv", "--throughputs", "throughputs.csv", "--cluster", "fast:1")
    ran = leasehold("compare", *files, "--policies", "odd", "--out", "out", "--json")
    assert ran.code == 0, ran.err
    assert "odd" in json.dumps(json.loads(ran.out))
    assert "asked" in ran.err


def test_a_policy_that_ends_the_program_is_named(replay):
    ran = replay("--param", "ends=true")
    assert ran.code == 1
    assert "leasehold: at 0 s, policy 'odd' ended the program: sys.exit(3); this is a" in ran.err


@pytest.mark.filterwarnings("default::policies.registry.PolicyPluginWarning")
def test_a_plugin_with_the_name_of_a_built_in_policy_is_a_remark(replay, plugged):
    plugged(POLICY, "Odd", "fifo")
    said = replay().err
    assert "leasehold: warning: policy plugin 'fifo' (fifo_policy:Odd of fifo-policy) is" in said
    assert "registry.py" not in said
