"""Bounds of the messages between scheduler, agents and jobs, stated once for both ends.

A sender cuts descriptive values (texts, counts of steps, times) to these bounds; a receiver refuses
values beyond them. So a job's absurd figure ends at its agent, and the scheduler can store all that
an agent sends. An agent of an earlier release cuts nothing. So the values that a job controls,
texts and steps, are cut on arrival too: a refused report says nothing of other jobs.
"""

from __future__ import annotations

import math
import re
from typing import Final

#: Ids, tokens, terms, revisions, steps: a double, a JSON reader and a database's column all hold
#: these exactly.
MOST_COUNT: Final = 2**53 - 1
#: Exit codes: minus the number of a signal, or Kubernetes's 32 bits.
LEAST_EXIT_CODE: Final = -64
MOST_EXIT_CODE: Final = 2**31 - 1
#: Latest date, in the year 5138, and longest duration, some 30 years; as in the REST interface.
LATEST_S: Final = 1e11
LONGEST_S: Final = 1e9
#: Shortest time of a step, and the most step times that a job may report.
SHORTEST_S: Final = 1e-9
MOST_STEP_TIMES: Final = 32
#: Workers of a node, and processes of a gang.
MOST_WORKERS: Final = 4096
MOST_RANKS: Final = 1_000_000
#: Leases of a desired set. A report may have ended leases besides.
MOST_DESIRED: Final = 8192
MOST_REPORTED: Final = 2 * MOST_DESIRED
#: Elements of every other list or object.
MOST_ITEMS: Final = 4096
#: Characters of a name, a job's id, a word such as Kubernetes uses, a path, and a message.
LONGEST_NAME: Final = 253
LONGEST_ID: Final = 1024
LONGEST_WORD: Final = 128
LONGEST_PATH: Final = 4096
LONGEST_MESSAGE: Final = 4000
#: Characters of an argument or an environment variable, by Linux's limit.
LONGEST_TEXT: Final = 131_072
#: Uids of jobs: lower uids are those of systems and people, and some programs take higher ones for
#: negative.
LEAST_UID: Final = 65_536
LARGEST_UID: Final = 2**31 - 2
#: Remarks on a node, and accelerators named for a lease.
MOST_REMARKS: Final = 64
MOST_DEVICES: Final = 256
#: Bytes of a line that a job may send to the endpoint, and connections that it may keep there.
LINE_BYTES: Final = 4096
MOST_CONNECTIONS: Final = 1024
#: Bytes of a lease as an agent stores it: mostly command and environment.
FILE_BYTES: Final = 1 << 26
#: The depth of JSON within a lease; orjson writes 254 levels.
DEEPEST: Final = 128

#: Not allowed in messages: control characters but tab and line end, and halves of characters.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
#: Not allowed in storage or in a program's arguments.
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


def is_storable(text: str) -> bool:
    """Return whether a text can be stored and encoded: no NUL, no half characters."""
    return _UNSTORABLE.search(text) is None


def clean_text(text: object, longest: int = LONGEST_MESSAGE) -> str:
    """Return a text for people as it may be sent and stored: cut, and clean."""
    said = text if isinstance(text, str) else str(text)
    if not said:
        return said
    if len(said) > longest:
        said = f"{said[: longest - 3]}..."
    return _UNPRINTABLE.sub("\ufffd", said)


def step_count(value: object) -> int | None:
    """Return a count of steps that a job reported; None if no job can have counted it."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COUNT:
        return value
    return None


def clipped_count(value: object) -> int:
    """Return a count, cut to its bounds; 0 if it is not a count."""
    return min(max(value, 0), MOST_COUNT) if isinstance(value, int) else 0


def exit_code(value: object) -> int | None:
    """Return an exit code, cut to its bounds; None if it is not an exit code."""
    if not isinstance(value, int):
        return None
    return min(max(int(value), LEAST_EXIT_CODE), MOST_EXIT_CODE)


def bounded_duration(value: object) -> float | None:
    """Return a measured duration; None if it is out of bounds."""
    return _within(value, LONGEST_S)


def bounded_time(value: object) -> float | None:
    """Return a time since the Unix epoch; None if it is out of bounds."""
    return _within(value, LATEST_S)


def _within(value: object, most: float) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0.0 <= value <= most else None


def plain_json(value: object, depth: int = DEEPEST) -> bool:
    """Return whether decoded JSON can be stored and sent: numbers of 64 bits, whole texts, flat."""
    if isinstance(value, str):  # most are, and a thousand jobs have 20,000 of them
        return _UNSTORABLE.search(value) is None
    if isinstance(value, dict):
        return depth > 0 and all(
            isinstance(name, str) and is_storable(name) and plain_json(item, depth - 1)
            for name, item in value.items()
        )
    if isinstance(value, list | tuple):
        return depth > 0 and all(plain_json(item, depth - 1) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and -(2**63) <= value < 2**63)
