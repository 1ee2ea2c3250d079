"""A job that knows nothing of Leasehold: it saves its state on SIGTERM and goes on from there.

Three things make it fit: it keeps its state in its working directory, it leaves on SIGTERM with
exit code 0 or 75, and it writes how many steps are safe to a file that the agent reads.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

STATE = Path("steps.txt")


def write_state(steps: int) -> None:
    """Replace the state in one step, so that a kill leaves the old or the new, never half."""
    temporary = STATE.with_suffix(".new")
    temporary.write_text(str(steps))
    temporary.replace(STATE)


def main() -> int:
    """Count to the given number, slowly."""
    total = int(sys.argv[1])
    leave = False

    def ask_to_leave(*_: object) -> None:
        nonlocal leave
        leave = True

    signal.signal(signal.SIGTERM, ask_to_leave)
    done = int(STATE.read_text()) if STATE.exists() else 0
    print(f"from step {done}")
    while done < total and not leave:
        time.sleep(0.01)  # the work
        done += 1
    write_state(done)
    print(f"at step {done}")
    return 0 if done == total else 75


if __name__ == "__main__":
    sys.exit(main())
