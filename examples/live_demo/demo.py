"""The live demonstration of ``make demo``: a real daemon, three agents, a dozen training jobs.

Shows preemption and resumption as they happen, and at the end each job's results beside the
simulator's forecasts. Exits with 1 if a job did not complete or a step was lost or done twice.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from cluster import DemoError, LiveCluster, Times
from forecast import cluster_of, overheads_of, simulate
from watching import LiveRun
from workload import draw_work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watching import Event, Lived
    from workload import Work

    from simulator.result import SimulationResult
    from simulator.world.overheads import Overhead

NODES = {"ada": "v100:2", "bert": "p100:2", "carl": "k80:2"}
POLICY = "max_min_fairness"
#: Two of these jobs run on one worker as fast as alone.
SHARED = ("tabular",)
_STOPS = (signal.SIGINT, signal.SIGTERM)


@dataclass(kw_only=True)
class Feed:
    """Prints what happens to jobs, a line each.

    Attributes:
        preemptions: so far.
        pairs: times that a job started beside another one on its workers.
    """

    preemptions: int = 0
    pairs: int = 0
    _names: dict[int, str] = field(default_factory=dict, init=False)  # of jobs, by open lease
    _places: dict[int, tuple[str, ...]] = field(default_factory=dict, init=False)  # likewise
    _where: dict[int, str] = field(default_factory=dict, init=False)  # by lease
    _last: dict[str, tuple[str, int]] = field(default_factory=dict, init=False)  # by job

    def __call__(self, event: Event, name: str) -> None:
        """Print one event of the job of that name, if it is of interest."""
        text = ""
        if event.kind == "lease_granted":
            text = self._granted(event) + self._beside(event, name)
        elif event.kind == "lease_ended":
            text = self._ended(event)
        if text:
            print(f"  {event.at_s:5.1f} s  {name:<12} {text}", flush=True)

    def _granted(self, event: Event) -> str:
        where = f"{event.data['worker_type']} of {'+'.join(event.data['nodes'])}"
        self._where[event.data["lease"]] = where
        if event.job_id not in self._last:
            return f"starts on {where}"
        before, steps = self._last[event.job_id]
        came = "" if before == where else f", was on {before}"
        return f"resumes on {where} after step {steps} (attempt {event.data['attempt']}{came})"

    def _beside(self, event: Event, name: str) -> str:
        """Record the node of a lease, and return the job that is there already."""
        place = (*map(str, event.data["workers"]),)
        mates = [self._names[lease] for lease, taken in self._places.items() if taken == place]
        self._names[event.data["lease"]], self._places[event.data["lease"]] = name, place
        self.pairs += bool(mates)
        return f", beside {mates[0]}" if mates else ""

    def _ended(self, event: Event) -> str:
        self._places.pop(event.data["lease"], None)
        where, reason = self._where[event.data["lease"]], event.data["reason"]
        steps = round(event.data["steps_done"])
        self._last[event.job_id] = where, steps
        if reason != "released":
            return f"{reason} on {where}"
        self.preemptions += 1
        return f"preempted on {where}, checkpoint after step {steps}"


def main() -> int:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    for number in _STOPS:
        signal.signal(number, _stop)
    work = draw_work(
        count=options.jobs, mean_gap_s=0.8, least_s=5.0, most_s=12.0, seed=options.seed
    )
    times = Times()
    nodes = ", ".join(f"{name} ({workers})" for name, workers in NODES.items())
    print(
        f"\nLive: the daemon with SQLite, and the agents {nodes}, each a process;\n"
        f"{len(work)} training jobs under {POLICY} in rounds of {times.round_length_s:g} s;\n"
        f"two {SHARED[0]} jobs may share a worker.\n"
        "The jobs train with numpy. A CPU here is as fast as any other, so each job paces its own\n"
        "steps by the worker type that it is granted: the one stand-in, for the hardware.\n",
        flush=True,
    )
    try:
        with tempfile.TemporaryDirectory(prefix="leasehold-demo-") as name:
            return _demonstrate(Path(name), work, times)
    except KeyboardInterrupt:
        print("\nstopped; everything that was started is stopped, too", file=sys.stderr)
        return 130
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


def _stop(*_: object) -> None:
    """Begin to stop everything, and let no further signal cut that short."""
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _demonstrate(folder: Path, work: Sequence[Work], times: Times) -> int:
    feed = Feed()
    with LiveCluster(folder=folder, nodes=NODES, policy=POLICY, times=times, shared=SHARED) as live:
        run = LiveRun(cluster=live, work=work, folder=folder / "jobs", tell=feed, most_s=120.0)
        lived = run.run()
        cluster = cluster_of(live)
    overheads = overheads_of(lived, times)
    simulated = simulate(
        lived, cluster, policy=POLICY, times=times, overheads=overheads, shared=SHARED
    )
    _print_table(lived, simulated, [workers.partition(":")[0] for workers in NODES.values()])
    _print_summary(lived, simulated, feed, overheads.default)
    faults = [fault for job in lived for fault in job.faults()]
    for fault in faults:
        print(f"FAULT: {fault}")
    if not faults:
        print(f"{sum(job.work.total_steps for job in lived)} steps, each done exactly once")
    return 1 if faults else 0


def _print_table(lived: Sequence[Lived], simulated: SimulationResult, types: Sequence[str]) -> None:
    outcomes = {outcome.job_id: outcome for outcome in simulated.jobs}
    heads = "".join(f"{name:>11}" for name in types)
    print(
        f"\n{'':12} {'JCT (s)':>16}  {'% of its JCT on: ran / X':>{len(heads)}} {'attempts':>13}\n"
        f"{'job':12} {'live':>7}{'forecast':>9}  {heads} {'live':>6}{'fcst':>7}{'steps':>7}"
    )
    for job in lived:
        outcome, had_s = outcomes[job.job_id], job.received_s()
        jct_s, forecast_s = (x or math.nan for x in (job.jct_s, outcome.jct_s))
        shares = "".join(
            f"{100 * had_s.get(name, 0.0) / jct_s:6.0f} /"
            f"{100 * job.promised_s.get(name, 0.0) / jct_s:3.0f}"
            for name in types
        )
        print(
            f"{job.work.name:12} {jct_s:7.1f}{forecast_s:9.1f}  {shares} "
            f"{len(job.attempts):6}{outcome.attempts:7}{job.work.total_steps:7}"
        )
    print(
        "ran / X: of the time from a job's submission to its completion, the part for which it "
        "held such a worker,\nand the part that the policy's answers (X) gave it there"
    )


def _print_summary(
    lived: Sequence[Lived], simulated: SimulationResult, feed: Feed, found: Overhead
) -> None:
    live_s = fmean(job.jct_s or math.nan for job in lived)
    forecast_s = simulated.summary.average_jct_s
    print(
        "had: under lease there; X: what the policy's answers promised, over time. Forecast: the\n"
        "simulator on the same jobs, throughputs and rounds, and the overheads measured here:\n"
        f"launch {found.launch_s:.2f} s, restore {found.restore_s:.2f} s, checkpoint and release "
        f"{found.checkpoint_s:.2f} s, last step to completion {found.complete_s:.2f} s\n\n"
        f"average JCT: live {live_s:.2f} s, forecast {forecast_s:.2f} s, "
        f"ratio {live_s / forecast_s:.3f}\n"
        f"{feed.preemptions} preemptions, each resumed from its checkpoint; "
        f"{feed.pairs} times a job shared the worker of another one"
    )


if __name__ == "__main__":
    sys.exit(main())
