"""A training job of the demonstration: the regression of ``examples/jobs``, paced by worker type.

On a CPU every declared worker type is equally fast. So the job reads its worker type from
LEASEHOLD_WORKER_TYPE and takes at least 1/pace seconds for a step there: it simulates hardware. All
else is real: processes, gradients, checkpoints, the notice, the resumption.

After each attempt it leaves a line about it in the trail: which steps it did, and when.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "jobs"))

from numpy_training import Model, batches

from leasehold import LeaseIterator

#: As the SDK's: left early, run me again.
LEFT_EARLY = 75


def main() -> int:
    """Train until all steps are done or the lease ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pace", action="append", required=True, metavar="TYPE=STEPS_PER_S")
    parser.add_argument("--trail", type=Path, required=True)
    options = parser.parse_args()
    paces = dict(item.split("=") for item in options.pace)
    step_s = 1.0 / float(paces[os.environ["LEASEHOLD_WORKER_TYPE"]])
    model = Model()
    steps = LeaseIterator(
        batches,
        save=model.save,
        load=model.load,
        checkpoint_every_s=20.0,
        on_notice="stop",
        report_every_s=0.2,
    )
    model.times_done = np.zeros(steps.total_steps, dtype=np.int64)
    first, began_s, ended_s = None, 0.0, 0.0
    for done, (step, inputs, targets) in enumerate(steps, start=1):
        if first is None:
            first, began_s, start_s = step, time.time(), time.monotonic()
        model.train(step, inputs, targets)
        # Against the start and not against the step before, so that no sleep's surplus adds up.
        time.sleep(max(start_s + done * step_s - time.monotonic(), 0.0))
        ended_s = time.time()
    each_once = bool((model.times_done == (np.arange(steps.total_steps) < steps.step)).all())
    line = {
        "lease": int(os.environ["LEASEHOLD_LEASE_ID"]),
        "rank": int(os.environ["RANK"]),
        "worker_type": os.environ["LEASEHOLD_WORKER_TYPE"],
        "first": first,
        "steps": steps.step,
        "began_s": began_s,
        "ended_s": ended_s,
        "finished": steps.finished,
        "each_once": each_once,
    }
    with options.trail.open("a") as trail:
        trail.write(json.dumps(line) + "\n")
    print(json.dumps(line))
    if not each_once:
        return 1
    return LEFT_EARLY if steps.left_early else 0


if __name__ == "__main__":
    sys.exit(main())
