"""Bounds of a job's reports to its agent; the same figures as in ``scheduler.protocol.bounds``.

This package imports the standard library only, so they are stated here too; a test compares them.
"""

from __future__ import annotations

from typing import Final

#: Greatest number of steps: what a double, a JSON reader and a database's column all hold exactly.
MOST_COUNT: Final = 2**53 - 1
#: Shortest and longest time of a step, and most step times in a report.
SHORTEST_S: Final = 1e-9
LONGEST_S: Final = 1e9
MOST_STEP_TIMES: Final = 32
#: Processes of a gang.
MOST_RANKS: Final = 1_000_000
#: Characters of a name, and of a lease's secret.
LONGEST_NAME: Final = 253
#: Bytes of a line that a job may send.
LINE_BYTES: Final = 4096
