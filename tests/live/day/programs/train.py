"""Count steps under a lease: train.py STEP_S; the folder of the checkpoints holds how many."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from leasehold.iterator import LeaseIterator

if TYPE_CHECKING:
    from pathlib import Path


def main() -> None:
    """Sleep for each step, and save how many are done."""
    done = 0

    def save(folder: Path) -> None:
        (folder / "done").write_text(str(done))

    def load(folder: Path) -> None:
        nonlocal done
        done = int((folder / "done").read_text())

    steps = LeaseIterator(
        lambda step: iter(range(step, sys.maxsize)), save=save, load=load, report_every_s=0.3
    )
    for step in steps:
        time.sleep(float(sys.argv[1]))
        done = step + 1


if __name__ == "__main__":
    main()
