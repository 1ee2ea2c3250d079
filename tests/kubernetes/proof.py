"""Checks of everything that ran, by the nodes' records alone."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fake_kubelets import FakeKubelets, Run


def check(kubelets: FakeKubelets, *, steps: dict[str, int] | None = None) -> None:
    """Fail if a worker or a job was held twice at a time, or a step was lost or counted twice.

    Args:
        kubelets: the nodes.
        steps: job -> steps that it has to have done by now.
    """
    by_worker: dict[tuple[str, int], list[Run]] = defaultdict(list)
    by_device: dict[tuple[str, int], list[Run]] = defaultdict(list)
    by_member: dict[tuple[str, int, int], list[Run]] = defaultdict(list)
    by_job: dict[str, list[Run]] = defaultdict(list)
    for run in kubelets.runs:
        by_job[run.job].append(run)
        by_member[run.job, run.attempt, run.rank].append(run)
        for worker in run.workers:
            by_worker[run.node, worker].append(run)
        for device in run.devices:
            by_device[run.node, device].append(run)
        assert len(run.devices) == len(run.workers), run
    for runs in (*by_worker.values(), *by_device.values()):
        _apart(runs)
    for runs in by_member.values():
        assert len(runs) == 1, f"a member of an attempt ran twice: {runs}"
    for runs in by_job.values():
        for one, other in itertools.combinations(runs, 2):
            if one.lease != other.lease:
                _apart([one, other])
        tokens = [run.token for run in sorted(runs, key=lambda run: run.begin_s)]
        assert tokens == sorted(tokens), f"an older lease ran after a newer one: {tokens}"
    for name, uids in kubelets.made.items():
        assert len(uids) == 1, f"pod {name} was made {len(uids)} times"
    for job, count in (steps or {}).items():
        ledger = kubelets.volumes[job]
        assert [step for step, _ in ledger] == list(range(1, count + 1)), (job, len(ledger))
        tokens = [token for _, token in ledger]
        assert tokens == sorted(tokens), f"{job}: an older lease has written after a newer one"
    assert not kubelets.faults, kubelets.faults


def _apart(runs: list[Run]) -> None:
    ordered = sorted(runs, key=lambda run: run.begin_s)
    for one, other in itertools.pairwise(ordered):
        assert one.end_s is not None, f"at once: {one} and {other}"
        assert one.end_s <= other.begin_s, f"at once: {one} and {other}"
