"""A change of any setting that decides changes the actions of a service with simulated nodes."""

import asyncio
import math
from dataclasses import replace

import pytest

from leasehold_testing.effects import Entry, check_effect, check_table, settings_of
from leasehold_testing.played import configured, held_back, outcome, reported
from scheduler.control.facts.requests import ProjectLimits
from scheduler.domain.lease_life import EndReason, LeasePhase
from scheduler.protocol.gpu_use import GpuUse
from simulator.world.nodes import Mishap

TWO_WORKERS = {"n0": ("v100", "v100")}
TWO_NODES = {"n0": ("v100",), "n1": ("v100",)}
TWO_TYPES = {"n0": ("v100",), "n1": ("k80",)}
FOUR_NODES = {f"n{i}": ("v100",) * 4 for i in range(4)}
OTHER = {"total_steps": 100.0}


def service(*others, job=OTHER, **how):
    """Return an observation: a service's actions with jobs; see ``outcome``."""
    return lambda config: outcome(config, job, *others, **how)


def history(*kinds):
    return lambda stage: stage.told(*kinds)


def of_nodes(stage):
    return [line for line in stage.told() if line[1].startswith("node_")]


def idle(percent):
    """Return what makes nodes report that GPUs compute for so much of the time."""

    def change(made, now_s):
        if made.state is LeasePhase.ENDED or made.started_s is None:
            return made
        measured_s = now_s - made.started_s
        return replace(made, gpu=GpuUse(used_s=percent / 100 * measured_s, measured_s=measured_s))

    return reported(change)


def setting(key, first, second, observe, *, own="", told=None, **beside):
    """Return the entry of a setting with two texts of it; ``beside`` are others, with ``__``.

    ``told`` is the rest of the entry.
    """
    given = {name.replace("__", "."): text for name, text in beside.items()}

    def shown(text):
        return observe(configured(given | {f"{key}{own}": text}))

    return key, Entry((first, second), shown, **told or {})


async def uids(stage):
    """Return under which uids the node is to run the jobs."""
    return [lease.uid for lease in await stage.launched()]


async def unanswered(stage):
    """Let the solver answer nothing from now on."""

    async def solve(_policy, _problem):
        await asyncio.Event().wait()

    stage.solver.solve = solve


async def one_reboots(stage):
    """Let the node of the first job die twice, each time soon after the job's start."""
    for _ in range(2):
        for agent in stage.agents.values():
            if any(run.end is None for run in agent.node.runs.values()):
                agent.node.reboot()
        await stage.wait(4)


async def cut_off(stage):
    """Let nothing come through to the first node or from it."""
    stage.links["n0"].cut = True


def starting():
    """Return a function that makes nodes report leases as about to start, permanently."""
    return reported(
        lambda made, _now_s: (
            replace(made, state=LeasePhase.STARTING, started_s=None)
            if made.state is LeasePhase.RUNNING
            else made
        )
    )


async def declared(stage):
    """Declare that two jobs may share a worker."""
    figures = [("a", 1, "v100", 1.0), ("b", 1, "v100", 1.0)]
    pairs = [(("a", 1), ("b", 1), "v100", (0.9, 0.9))]
    await stage.do(stage.service.declare_throughputs(figures, pairs=pairs, actor="boss"))


async def budget(stage):
    limits = ProjectLimits(project="default", budget_usd=0.01)
    await stage.do(stage.service.set_project(limits, actor="boss"))


FAILS = {"mishaps": {"job": [Mishap(steps=10.0, end=EndReason.FAILED)]}}
FAILS_TWICE = {"mishaps": {"job": [Mishap(steps=n, end=EndReason.FAILED) for n in (10.0, 30.0)]}}
SHARED = [{"job_type": kind, "throughputs": {}} for kind in "ab"]
BREAK = {
    "mishaps": {f"other-{i}": [Mishap(steps=2.0 + 15.0 * i, end=EndReason.LOST)] for i in range(3)}
}
BROKEN = service(*[OTHER] * 3, nodes=FOUR_NODES, shown=of_nodes, **BREAK)
OWNERS = service({"project": "other"}, nodes=TWO_WORKERS, for_s=5, shown=uids)
TOLD = {"composed": "to run under a uid needs root and bubblewrap; an agent is told it"}
ALIKE = {"throughputs": {"v100": 2.0, "k80": 1.9}}
FASTER = {"throughputs": {"v100": 9.0, "k80": 1.0}}
UNSAVED = service(OTHER, job={"checkpoint_dir": None}, for_s=300, unsaved={"job"})
TEAMS = {"policy__name": "hierarchical"}
BY_TEAM = service({"entity": "a"})
LONG_FIRST = service({"total_steps": 200.0}, job={"total_steps": 5000.0}, for_s=150)
BAND = {"engine__behind_rounds": "1", "engine__ahead_rounds": "0"}
HELD = {"then": held_back, "leave_s": math.inf}
ENTRIES = dict(
    [
        setting("engine.round_length_s", "20", "40", service(OTHER)),
        setting("engine.plan_lead_s", "4", "15", service(OTHER)),
        setting("engine.keep_bonus", "0", "3", service(OTHER), **BAND),
        setting(
            "engine.behind_rounds",
            "1",
            "20",
            LONG_FIRST,
            engine__ahead_rounds="20",
        ),
        setting("engine.ahead_rounds", "0", "5", service(OTHER), engine__behind_rounds="1"),
        setting(
            "engine.refresh_rounds",
            "1",
            "5",
            service(OTHER),
            policy__name="tiresias",
            policy__parameters__thresholds_worker_s="15",
        ),
        setting("engine.solve_grace_s", "1", "10", service(prepare=unanswered)),
        setting("engine.retry_backoff_s", "10", "40", service(**FAILS)),
        setting(
            "engine.forgive_failures_s",
            "5",
            "inf",
            service(job={"max_failures": 1}, checkpoint_every=1.0, for_s=150, **FAILS_TWICE),
        ),
        setting("engine.hold_after_deaths", "2", "0", service(nodes=TWO_NODES, then=one_reboots)),
        setting("engine.avoid_node_s", "0", "60", service(nodes=TWO_NODES, **FAILS)),
        setting("engine.patience_s", "40", "86400", UNSAVED),
        setting("engine.tick_s", "1", "30", service(job={"max_run_time_s": 15.0})),
        setting("policy.name", "fifo", "max_min_fairness", service(OTHER)),
        setting("policy.parameters", "a:1", "a:9", BY_TEAM, own=".entity_weights", **TEAMS),
        setting("policy.agnostic", "no", "yes", service(FASTER, job=ALIKE, nodes=TWO_TYPES)),
        setting(
            "policy.space_sharing", "no", "yes", service(SHARED[1], job=SHARED[0], prepare=declared)
        ),
        setting(
            "leases.margin_s",
            "1",
            "4",
            service(OTHER, nodes=TWO_NODES, then=cut_off),
            engine__plan_lead_s="10",
        ),
        setting("leases.notice_s", "1", "3", service(**HELD)),
        setting("leases.grace_s", "1", "3", service(**HELD, term_s=math.inf)),
        setting(
            "leases.node_timeout_s", "30", "60", service(then=cut_off, shown=history("node_lost"))
        ),
        setting("leases.start_timeout_s", "20", "50", service(prepare=starting())),
        setting(
            "idle.use_percent",
            "5",
            "50",
            service(prepare=idle(20.0), shown=history("job_idle")),
            idle__after_s="30",
        ),
        setting("idle.after_s", "20", "50", service(prepare=idle(1.0), shown=history("job_idle"))),
        setting("idle.stop_after_s", "20", "50", service(prepare=idle(1.0))),
        setting(
            "idle.exempt_projects",
            "",
            "default",
            service(prepare=idle(1.0)),
            idle__stop_after_s="20",
        ),
        setting("leases.quarantine_after", "2", "0", BROKEN),
        setting("leases.quarantine_share", "0.3", "0", BROKEN, leases__quarantine_after="2"),
        setting("isolation.first_uid", "100000", "200000", OWNERS, told=TOLD),
        setting("isolation.uids", "2", "1", OWNERS, told={"refused": True}),
        setting("budgets.prices", "0", "5", service(prepare=budget), own=".v100"),
    ]
)


def test_every_setting_has_an_entry():
    check_table(ENTRIES, settings_of("decisions"))


@pytest.mark.parametrize("key", ENTRIES)
def test_a_setting_changes_what_happens(key):
    check_effect(key, ENTRIES[key])
