"""A day in the life of a service, decision by decision, as it was when the file was written.

A change of structure leaves ``golden/service.txt`` as it is. One that decides otherwise writes it
again (LEASEHOLD_GOLDEN=write), says why, and raises the version of the rules.
"""

import hashlib
from pathlib import Path

from leasehold_testing.transcript import check_golden, fields, transcript
from scheduler.control.facts.requests import (
    JobAction,
    NodeAction,
    PolicyChoice,
    ProjectLimits,
    Submission,
)
from scheduler.domain.lease_life import EndReason
from scheduler.engine.version import DECIDER
from scheduler.store.queries import JobQuery
from simulator.world.nodes import Mishap

AS_SHIPPED = {"behind_rounds": 4.0, "ahead_rounds": 1.0}
GOLDEN = Path(__file__).parent / "golden" / "service.txt"
NODES = {"n0": ("v100", "v100"), "n1": ("v100",), "n2": ("k80", "k80")}
#: Steps per second on a v100 and a k80, and steps.
JOBS = {"a": (4.0, 1.0, 160.0), "b": (2.0, 1.0, 90.0), "c": (1.0, 1.0, 50.0), "d": (3.0, 1.0, 60.0)}


def history(stage):
    """Return what people read of it."""
    return [
        f"{row.kind} {row.subject_kind}={row.subject} at={row.at_s:.6g} "
        f"{fields(row.figures)}".rstrip()
        for row in stage.history()
    ]


async def the_day(stage):
    await stage.do(
        stage.service.set_project(ProjectLimits(project="vision", max_workers=2), actor="boss")
    )
    for name, (v100, k80, steps) in JOBS.items():
        rates = {"v100": v100, "k80": k80}
        await stage.job(name, total_steps=steps, throughputs=rates, project="vision")
    await stage.job("after", total_steps=10.0, depends_on=("a",))
    await stage.job("gang", total_steps=40.0, scale_factors=(2,))
    await stage.wait(7)
    steps = (12.0, 12.0, 12.0, 112.0)
    specs = [stage.spec(f"array-{i}", total_steps=n) for i, n in enumerate(steps)]
    array = [Submission(spec=s, owner="me", job_id=f"e{i}") for i, s in enumerate(specs)]
    await stage.submit(*array)
    stage.world.mishaps["big"] = [Mishap(steps=3.0, end=EndReason.OOM)]
    stage.world.mishaps["bad"] = [Mishap(steps=2.0), Mishap(steps=4.0)]
    await stage.job("big", total_steps=20.0, max_failures=2)
    await stage.job("bad", total_steps=20.0, max_failures=1)
    await stage.wait(16)
    await stage.act(JobAction.HOLD, "c")
    stage.links["n1"].cut = True
    await stage.wait(30)
    stage.links["n1"].cut = False
    await stage.act(JobAction.RELEASE, "c")
    choice = PolicyChoice(name="max_min_fairness")
    await stage.do(stage.service.set_policy(choice, actor="boss"))
    await stage.wait(20)
    order = stage.service.node_action("n2", NodeAction.DRAIN, reason="fan", actor="boss")
    await stage.do(order)
    await stage.wait(15)
    await stage.act(JobAction.CANCEL, "e3")
    await stage.wait(200)


def test_a_day_is_as_the_golden_file_shows(live):
    async def story(stage):
        await the_day(stage)
        ends = {row.status.value for row in stage.store.jobs(JobQuery(limit=100)).rows}
        assert ends == {"completed", "cancelled", "failed"}
        check_golden(GOLDEN, [*transcript(stage.log), "", *history(stage)])

    live(story, nodes=NODES, engine=AS_SHIPPED)


#: Version of the rules -> digest of the day that was lived under them. Add to it, change nothing.
DAYS = {
    **dict.fromkeys((1, 2), "977908bc2c6e320cfc42701787d36966caae989b3c55d7b779325584d7f8c521"),
    **dict.fromkeys((3, 4), "5f28c1602f33f502ece14a220283c1aaa197b8e81f03c608878d33abc9edf38d"),
    **dict.fromkeys((5, 6), "2fa295be38fe37a07de49e35c0e3a25d6128c567efc34250ae282ab539c14ec4"),
    7: "80b653b8f630ddff71501ad295cb248ba00d7fd8c7ad68894f6ad3003c9867de",
    8: "ed7e5ae4db437b47730d40eba909db3166ecb6b2255cdba1e09b013c070e50c9",
    **dict.fromkeys((9, 10), "d808b22416729f02df835527cab4df98d065d9b1c9638cd6eb24f63406000ca3"),
    **dict.fromkeys(
        (11, 12, 13), "5a3b594fcc4f01a4e62cd7a7a1fd13752959b419b1e1bef6b60d38f2bd4cea17"
    ),
}


def test_other_decisions_have_another_version() -> None:
    digest = hashlib.sha256(GOLDEN.read_bytes()).hexdigest()
    assert DAYS.get(DECIDER) == digest, "raise scheduler.engine.version.DECIDER, and add to DAYS"
    assert max(DAYS) == DECIDER
